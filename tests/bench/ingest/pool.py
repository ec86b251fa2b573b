"""A pool of record batches, repeated until a topic is full; and the true counts of each prefix.

The frames come from the real client, and the batches from kafka-python's producer. A batch that its codec does not
shrink stays uncompressed, as in the producer. The broker overwrites only a batch's offset, so that a copy equals a
new batch.
"""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from kafka.record.default_records import DefaultRecordBatchBuilder

import ldp
from ldp import frames
from tests.bench.ingest.cases import NATURAL, Case
from worker.audit.protocols import protocol_of

CODECS = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
"""By their numbers in a batch's attributes."""
BATCHES = 4
"""Smallest number of batches in a pool; small batches fill a pool with the reports of this many natural ones."""
RECORDS_A_MS = 50
SEGMENT_BYTES = 512 << 20

Counts = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Pool:
    """One turn of a topic."""

    stream: ldp.Stream
    batches: tuple[bytes, ...]  # each with offsets from 0 on
    batch: int  # records in a batch
    reports: npt.NDArray[np.void]
    each: int  # reports of a record

    @property
    def records(self) -> int:
        """Records of a turn."""
        return self.batch * len(self.batches)

    def turns(self, records: int) -> int:
        """Number of turns with at least this many records."""
        return -(-records // self.records)

    def truth(self, records: int) -> tuple[int, Counts]:
        """The reports and the state that a partition's first records make, by the audit's own arithmetic."""
        turns, rest = divmod(records, self.records)
        return records * self.each, turns * self._turn + self._counted(rest)

    @cached_property
    def _turn(self) -> Counts:
        return self._counted(self.records)

    def _counted(self, records: int) -> Counts:
        protocol = protocol_of(self.stream.document())
        state = np.zeros(protocol.entries, np.int64)
        reports = self.reports[: records * self.each]
        if records:
            protocol.count(state, *(reports[name] for name in reports.dtype.names or ()))
        return state

    def chunks(self, turns: int) -> Iterator[tuple[int, bytes]]:
        """The log of a number of turns: (offset, bytes) of ranges of complete batches, in order."""
        turn = np.frombuffer(b"".join(self.batches), np.uint8).copy()
        sizes = np.array([len(batch) for batch in self.batches])
        places = (np.cumsum(sizes) - sizes)[:, np.newaxis] + np.arange(8)
        offsets = np.arange(len(self.batches)) * self.batch
        for number in range(turns):
            turn[places] = (offsets + number * self.records).astype(">i8").view(np.uint8).reshape(-1, 8)
            yield number * self.records, turn.tobytes()


def make(case: Case) -> Pool:
    """Draws users, perturbs their values and batches their frames."""
    parameters = {key: value for key, value in case.stream.items() if key != "protocol"}
    stream = ldp.Stream(case.name, ldp.oracle(case.stream["protocol"], **parameters))
    rng = np.random.default_rng(20_200_616)
    count = max(BATCHES, BATCHES * NATURAL // (case.batch * case.reports))
    values = rng.zipf(1.5, size=count * case.batch * case.reports) % stream.oracle.domain_size
    reports = stream.oracle.perturb(values, rng=rng)
    encode = frames.encode_json if case.as_json else frames.encode
    now = round(1000 * time.time())
    batches = []
    for number in range(count):
        builder: Any = DefaultRecordBatchBuilder(2, CODECS[case.codec], False, -1, -1, -1, 1 << 30)
        for i in range(case.batch):
            at = (number * case.batch + i) * case.reports
            value = encode(stream, reports[at : at + case.reports])
            builder.append(i, now + i // RECORDS_A_MS, None, value, [])
        batches.append(bytes(builder.build()))
    return Pool(stream, tuple(batches), case.batch, reports, case.reports)


def lay(pool: Pool, folder: Path, turns: int) -> None:
    """Writes a partition's log into a new folder, in segments like a broker."""
    folder.mkdir()
    log, size = None, SEGMENT_BYTES
    try:
        for offset, chunk in pool.chunks(turns):
            if log is None or size + len(chunk) > SEGMENT_BYTES:
                if log is not None:
                    log.close()
                log, size = (folder / f"{offset:020d}.log").open("wb"), 0
            log.write(chunk)
            size += len(chunk)
    finally:
        if log is not None:
            log.close()
