"""Timestamps of records: most recent, some late, some missing."""

import random
import time
from typing import Any

WINDOWED: dict[str, Any] = {
    "windows": ["all", "5s", "20s every 5s"],
    "grace": "2s",
    "max_out_of_orderness": "1s",
    "retain": "20s",
}
"""Keys of a stream with windows of seconds."""
EVENT_TIME = {"message.timestamp.type": "CreateTime"}
"""Settings of a topic of reports with event time."""
_LATE, _UNDATED = 0.02, 0.01


def event_time(rng: random.Random) -> int:
    """Returns the timestamp of a record in milliseconds; -1 for none."""
    kind = rng.random()
    if kind < _UNDATED:
        return -1
    now = int(1000 * time.time())
    return now - rng.randrange(10_000, 40_000) if kind < _UNDATED + _LATE else now - rng.randrange(1500)
