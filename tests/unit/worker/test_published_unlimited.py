"""Without snapshots.fewest_new, messages are those before the release rule, byte for byte.

The file of vectors has the records of each history, and its messages as keys and digests; heads are whole, without the
documents that a later version added. It was recorded with commit ad339e37, the last one without the release rule: in a
work tree of that commit with this file,
`python -m tests.unit.worker.test_published_unlimited > tests/vectors/published_unlimited.json`.
"""

import hashlib
import json
import random
import re
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import pytest

from ldp.snapshot import Slots
from tests.unit.worker.audit.publishing import World
from tests.unit.worker.audit.streams import STREAMS
from tests.unit.worker.audit.test_windows import HOPS, PLAIN, START, log
from worker.publishing import taking
from worker.publishing.rows import RowTopic

FILE = Path(__file__).parents[2] / "vectors" / "published_unlimited.json"
ROWS = RowTopic("rows", Slots(("base",), {"": 2, "some": 1, "most": 2}))
METHODS = "base", "norm-sub"
TICKS = (0, 0), (9, 4), (20, 25), (20, 30), (41, 44), (60, 60)
"""Records of each partition that are counted at each tick."""
CASES = {
    "hopping windows, late and undated reports, rows": ("grr-3", HOPS, 20_000, ROWS),
    "no windows": ("oue-10", PLAIN, None, RowTopic()),
}


def published(name: str, logs: list[list[tuple[int, bytes]]]) -> list[list[tuple[str, str]]]:
    """Returns key and text of each message at each tick, and last the rows."""
    stream, limits, retain, rows = CASES[name]
    world: Any = World(0, limits, stream=STREAMS[stream], queries=rows.topic is not None)
    for partition, records in zip(world.partitions, logs, strict=True):
        partition.counting.records = records
    world.publisher = world.publisher_of(retain, rows, methods=METHODS)
    numbers, ticks = count(1), list[list[tuple[str, str]]]()
    with (
        patch.object(taking, "uuid4", lambda: SimpleNamespace(hex=f"{next(numbers):032x}")),
        patch.object(taking, "_now", lambda: 1_700_000_000_000 + len(ticks)),
    ):
        for ends in TICKS:
            before = len(world.topic)
            for partition, end in zip(world.partitions, ends, strict=True):
                partition.counting.to(START + end, droppings=False)
            world.tick()
            ticks.append(
                [(one.key, f"{[*one.headers.items()]} {one.value.decode()}") for one in world.topic[before:]]
            )
    return [*ticks, [(key.decode(), value.decode()) for key, value in world.rows_there.items()]]


def short(key: str, text: str) -> str:
    """Returns a digest, or a head without its documents, which later versions added."""
    if not key.endswith("/head"):
        return hashlib.sha256(text.encode()).hexdigest()[:16]
    return re.sub(r',"documents":\[\{"fingerprint":.*?"retired":false,"partitions":2\}\]', "", text)


def record() -> dict[str, Any]:
    found = {}
    for seed, (name, (stream, *_)) in enumerate(CASES.items()):
        logs = [log(random.Random(2 * seed + i), 60, STREAMS[stream]) for i in range(2)]
        shown = [[(key, short(key, text)) for key, text in tick] for tick in published(name, logs)]
        found[name] = {"logs": [[(time, value.hex()) for time, value in one] for one in logs], "shown": shown}
    return found


@pytest.mark.parametrize("name", CASES)
def test_messages_without_a_limit_are_those_before_the_release_rule(name: str) -> None:
    recorded = json.loads(FILE.read_text(encoding="utf-8"))[name]
    logs = [[(time, bytes.fromhex(value)) for time, value in one] for one in recorded["logs"]]
    for tick, (here, then) in enumerate(zip(published(name, logs), recorded["shown"], strict=True)):
        assert [key for key, _ in here] == [key for key, _ in then], tick
        for (key, text), (_, before) in zip(here, then, strict=True):
            assert short(key, text) == before, f"tick {tick}: {key} is now {text}"


if __name__ == "__main__":
    print(json.dumps(record(), ensure_ascii=False))
