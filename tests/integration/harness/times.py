"""The times that the records of a stream of windows carry: mostly a little before now, some too late, some none."""

import random
import time
from typing import Any

WINDOWED: dict[str, Any] = {
    "windows": ["all", "5s", "20s every 5s"],
    "grace": "2s",
    "out_of_order": "1s",
    "retain": "20s",
}
"""A stream's keys: windows so short that some become final, and some are deleted, every few seconds."""
EVENT_TIME = {"message.timestamp.type": "CreateTime"}
"""The settings of its topic of reports."""
_LATE, _UNDATED = 0.02, 0.01


def event_time(rng: random.Random) -> int:
    """Returns the time of a record that is sent now, in milliseconds; -1 for none."""
    kind = rng.random()
    if kind < _UNDATED:
        return -1
    now = int(1000 * time.time())
    return now - rng.randrange(10_000, 40_000) if kind < _UNDATED + _LATE else now - rng.randrange(1500)
