"""Cost of several documents and of segments in one stream, against one document of the same protocol.

Run as ``python -m tests.bench.mixed``; it is part of ``make bench``. A line has the CPU seconds of counting the records
of one fetch, from its bytes to the counts (`Reader`, `PartitionState`), and their ratio: the cost of a record. Both
sides take turns in one process. The fetching itself, commits and snapshots are left out, so ratios of a whole worker
are lower.
"""

import json
import random
import time
from collections.abc import Callable, Iterator

import numpy as np

import ldp
from ldp import frames
from tests.bench.choices import CODECS, batches
from tests.bench.measure import Line, compare
from worker.counting.columns import Batch
from worker.counting.partition_state import PartitionState
from worker.counting.rules import RequestedRule, Status
from worker.kafka.decoding.records import Arena, Reader

PROTOCOLS = ("grr", "pgr", "hadamard", "olh", "olh xxh32", "oue", "subset")
RECORDS, D = 40_000, 1024
SEGMENTS = [f"S{number:03d}" for number in range(200)]


def lines() -> Iterator[Line]:
    """Three documents and 200 segments, each in turns with one document."""
    for protocol in PROTOCOLS:
        one = counting(protocol, 1, [])
        for kind, mixed in (
            ("three documents", counting(protocol, 3, [])),
            ("200 segments", counting(protocol, 1, SEGMENTS)),
        ):
            setup = f"d = {D}, ε = 1, one report a record, {RECORDS} records in batches of 128 KiB (lz4)"
            yield compare(
                f"count {kind}, {protocol}",
                mixed,
                one,
                peer_name="one document",
                setup=setup,
                clock=time.process_time,
            )


def counting(protocol: str, documents: int, segments: list[str]) -> Callable[[], None]:
    """Counts a fetch of records, in random order of documents and segments, again and again into one state."""
    name, _, function = protocol.partition(" ")
    options = {"hash": function} if function else {}
    levels = "segment" if segments else None
    streams = [  # documents of nearly equal domains: their reports cost the same
        ldp.Stream("mixed", ldp.oracle(name, "1", D - i, **options), segment=levels) for i in range(documents)
    ]
    rng, some = np.random.default_rng(7), random.Random(7)
    reports = [stream.oracle.perturb(rng.integers(D - 2, size=RECORDS), rng=rng) for stream in streams]
    records = []
    for i in range(RECORDS):
        which = some.randrange(documents)
        segment = some.choice(segments) if segments else None
        records.append(frames.encode(streams[which], reports[which][i : i + 1], segment))
    fetched = np.frombuffer(b"".join(batch for batch, _ in batches(records, CODECS["lz4"], False)), np.uint8)
    rule = RequestedRule(segments=dict.fromkeys(segments, Status()))
    state, arena = PartitionState.fresh(ldp.Fleet(tuple(streams)), 0, rule), Arena()

    def count() -> None:
        reader, before = Reader(fetched, 0, [], [(0, None)]), state.accepted
        while (chunk := reader.read(arena)) is not None:
            end = state.offset + len(chunk.columns)
            state.apply(Batch(0, state.offset, end, chunk.columns, chunk.unreadable))
        assert state.accepted == before + RECORDS

    return count


if __name__ == "__main__":
    for line in lines():
        print(json.dumps(line, ensure_ascii=False), flush=True)
