"""Quix Streams with its state store, exactly once: a counter for each value that GRR may report.

The argument is a JSON object: ``address``, ``topic``, ``begin`` and ``records``, the offsets that bound the
measurement, ``commit_seconds``, ``folder`` for the state, and ``size``, the number of counters. Writes JSON lines on
stdout at the beginning and at the end, with the ``counts`` of its store.
"""

import json
import sys
from typing import Any

from quixstreams import Application, message_context  # type: ignore[import-not-found]

INDEX = slice(5, 7)
"""Where a frame of one report has its index, in two bytes."""


def main() -> None:
    """Counts so many records, and waits to be killed, so that what it used can be read."""
    task = json.loads(sys.argv[1])
    begin, records, size = task["begin"], task["records"], task["size"]
    app = Application(
        broker_address=task["address"],
        consumer_group=f"{task['topic']}-quix",
        auto_offset_reset="earliest",
        processing_guarantee="exactly-once",
        commit_interval=task["commit_seconds"],
        state_dir=task["folder"],
        loglevel="WARNING",
    )
    counts: list[int] = []

    def count(value: bytes, state: Any) -> None:
        offset = message_context().offset
        if offset == begin:
            print(json.dumps({"begin": begin}), flush=True)
        index = int.from_bytes(value[INDEX], "little")
        state.set(index, state.get(index, 0) + 1)
        if offset == records - 1:
            counts.extend(state.get(i, 0) for i in range(size))

    topic = app.topic(task["topic"], value_deserializer="bytes", key_deserializer="bytes")
    app.dataframe(topic).update(count, stateful=True)
    app.run(count=records)
    print(json.dumps({"end": True, "counts": counts}), flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main()
