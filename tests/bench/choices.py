"""Cost of a producer's choices: bytes of the topic per report, and counting speed.

Run as ``python -m tests.bench.choices``; it prints the table of docs/guides/send-reports.md. The bytes are those of
full record batches as kafka-python makes them, headers included; the codecs' versions change them a little. The
speeds are ratios within one run: from the bytes of a fetch to the counts (`Reader`, `PartitionState`) on one core, in
lz4, without the fetching itself. ``--bytes`` leaves them out.
"""

import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from kafka.record import MemoryRecordsBuilder

import ldp
from ldp import frames
from tests.bench.measure import compare
from tests.support.cells import cells_of
from worker.counting.columns import Batch
from worker.counting.partition_state import PartitionState
from worker.kafka.decoding.records import Arena, Reader

PROTOCOLS = ("pgr", "olh")
EPSILON, D = "1", 1024
CODECS = {"plain": 0, "lz4": 3, "zstd": 4}
BATCH_BYTES = 128 << 10
"""Size of a full batch before compression, as the page advises."""
RECORDS_A_MS = 512
"""Arrival rate: a batch of the shortest records is full after about 20 ms."""
COUNTED = 100_000
"""Reports that are counted for a speed."""
_BEGAN = 1_700_000_000_000


@dataclass(frozen=True)
class Choice:
    """Choices of a producer."""

    name: str
    reports: int
    as_json: bool
    alone: bool  # each record in its own batch


CHOICES = (
    Choice("one report", 1, False, False),
    Choice("100 reports", 100, False, False),
    Choice("one report, JSON", 1, True, False),
    Choice("100 reports, JSON", 100, True, False),
    Choice("one report, sent by itself", 1, False, True),
)
"""Compared choices; speeds are relative to the first."""


def stream(protocol: str) -> ldp.Stream:
    """The stream that the tables are about."""
    return ldp.Stream("choices", ldp.oracle(protocol, EPSILON, D))


def values(stream: ldp.Stream, choice: Choice, reports: int) -> list[bytes]:
    """Records of a number of reports, from users with Zipf-distributed values."""
    rng = np.random.default_rng(11)
    users = np.minimum(rng.zipf(1.5, reports), D) - 1
    perturbed = stream.oracle.perturb(users, rng=rng)
    encode = frames.encode_json if choice.as_json else frames.encode
    return [
        encode(stream, perturbed[first : first + choice.reports])
        for first in range(0, reports, choice.reports)
    ]


def batches(records: list[bytes], codec: int, alone: bool) -> Iterator[tuple[bytes, int]]:
    """Record batches without keys and headers, as a producer sends them, with how many records each has."""
    at = 0
    while at < len(records):
        builder = MemoryRecordsBuilder(2, codec, 1 if alone else BATCH_BYTES)
        first = at
        while at < len(records) and builder.append(_BEGAN + at // RECORDS_A_MS, None, records[at], []):
            at += 1
        builder.close()
        made = bytearray(builder.buffer())
        made[:8] = first.to_bytes(8, "big")  # the broker's part: the base offset
        yield bytes(made), at - first


def size(stream: ldp.Stream, choice: Choice, codec: int) -> float:
    """Bytes of the topic a report, of one full batch."""
    record = values(stream, choice, choice.reports)[0]
    enough = 1 if choice.alone else 5 * BATCH_BYTES // (4 * len(record))  # JSON texts differ in length
    batch, records = next(batches(values(stream, choice, enough * choice.reports), codec, choice.alone))
    return len(batch) / records / choice.reports


def counting(stream: ldp.Stream, choice: Choice) -> Callable[[], None]:
    """Counts reports from the bytes of one fetch, in lz4 batches."""
    made = batches(values(stream, choice, COUNTED), CODECS["lz4"], choice.alone)
    fetched = np.frombuffer(b"".join(batch for batch, _ in made), np.uint8)
    arena = Arena()

    def count() -> None:
        state = PartitionState.fresh(ldp.Fleet((stream,)), start=0)
        reader = Reader(fetched, 0, [], [(0, None)])
        while (chunk := reader.read(arena)) is not None:
            state.apply(Batch(0, state.offset, chunk.end, chunk.columns, chunk.unreadable))
        assert cells_of(state)["all"].reports == COUNTED

    return count


def speed(stream: ldp.Stream, choice: Choice) -> float:
    """Speed of counting relative to the first choice, measured in turns with it."""
    ours, peer = counting(stream, choice), counting(stream, CHOICES[0])
    line = compare(choice.name, ours, peer, peer_name=CHOICES[0].name, setup="", rate=(COUNTED, "reports"))
    return float(line["ratio"])


def table(with_speeds: bool) -> Iterator[str]:
    """The lines of the table."""
    streams = [stream(protocol) for protocol in PROTOCOLS]
    columns = [f"`{name}`, {codec}" for name in PROTOCOLS for codec in CODECS]
    if with_speeds:
        columns += [f"`{name}`, counted" for name in PROTOCOLS]
    yield f"| a record holds | {' | '.join(columns)} |"
    yield "| --- " * (1 + len(columns)) + "|"
    for choice in CHOICES:
        cells = [f"{size(each, choice, codec):.1f}" for each in streams for codec in CODECS.values()]
        if with_speeds:
            cells += ["1" if choice is CHOICES[0] else f"{speed(each, choice):.2g}" for each in streams]
        yield f"| {choice.name} | {' | '.join(cells)} |"


def main() -> None:
    """Prints the table, a line as soon as it is known."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    for line in table(with_speeds="--bytes" not in sys.argv[1:]):
        print(line, flush=True)


if __name__ == "__main__":
    main()
