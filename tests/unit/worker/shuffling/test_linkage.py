"""An observer with all upload times and all records, aborted ones included, links reports to uploads at chance."""

import math
from dataclasses import dataclass, field

import numpy as np
import pytest
from scipy import stats

import ldp
from ldp import frames, wire
from worker.counting.ports import Unavailable
from worker.shuffling import partition

UPLOADS, BATCH, PARTITIONS, MOST_REPORTS = 100_000, 50, 3, 9
pytestmark = pytest.mark.slow
STREAM = ldp.Stream("s", ldp.GRR("1", domain_size=1 << 24))
RISK = 1e-8
"""False alarm of each of 9 tests."""


@dataclass
class Sent:
    offset: int
    timestamp: int
    key: bytes
    value: bytes


@dataclass
class Memory:
    """An intake whose every second transaction is aborted; the report of upload i is i."""

    log: list[Sent]
    position: int = 0
    kept: tuple[int, str] | None = None
    attempts: list[partition.Batch] = field(default_factory=list)

    def fence(self):
        pass

    def committed(self):
        return self.kept

    def bounds(self):
        return 0, len(self.log)

    def first_timestamp(self, offset, _end):
        return self.log[offset].timestamp if offset < len(self.log) else None

    def offset_since(self, _timestamp):
        return self.position  # the ids of this log are different

    def seek(self, offset):
        self.position = self.kept[0] if self.kept else offset

    def poll(self):
        found = self.log[self.position : self.position + 500]
        self.position += len(found)
        return found

    def partitions(self):
        return PARTITIONS

    def commit(self, batch):
        if batch.frames:
            self.attempts.append(batch)
            if len(self.attempts) % 2:
                raise Unavailable("aborted")
        self.kept = batch.offset, batch.metadata


def observed(permute):
    """Returns aborted and committed batches, (UPLOADS/BATCH, BATCH, 3): upload, partition and record of a position."""
    rng = np.random.default_rng(0)
    order = rng.permutation(UPLOADS)
    log = [
        Sent(
            i,
            60_000 * i,
            int(i).to_bytes(16, "big"),
            frames.encode(STREAM, np.array([(value,)], STREAM.oracle.report_dtype)),
        )
        for i, value in enumerate(order.tolist())
    ]
    where = np.argsort(order)  # the upload of a value
    memory = Memory(log)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(partition, "permute", permute)
        while memory.kept is None or memory.kept[0] < UPLOADS:
            owner = partition.OwnedIntake(STREAM, memory, BATCH, 3_600_000, MOST_REPORTS)
            owner.claim()
            try:
                while memory.kept is None or memory.kept[0] < UPLOADS:
                    owner.step()
            except Unavailable:
                continue
    rows = []
    for number, batch in enumerate(memory.attempts):
        first = number // 2 * BATCH
        assert {upload for _, frame in batch.frames for upload in values(frame, where)} == set(
            range(first, first + BATCH)
        )
        rows.append(
            [
                (upload - first, (at - batch.frames[0][0]) % PARTITIONS, record)
                for record, (at, frame) in enumerate(batch.frames)
                for upload in values(frame, where)
            ]
        )
    found = np.array(rows)
    return found[0::2], found[1::2]


def values(frame, where):
    return where[np.frombuffer(frame[wire.HEADER_BYTES :], "<u4")].tolist()


def chance(right, trials, probability):
    """Returns the probability of a deviation at least as large, both sides, of dependent guesses in a batch.

    The number of fixed points of a permutation has mean 1 and variance 1, as a Poisson variable has.
    """
    mean = trials * probability
    return 2 * stats.norm.sf(abs(right - mean) / math.sqrt(mean))


def associated(upload, place):
    table, *_ = np.histogram2d(upload.ravel(), place.ravel(), bins=[5, len(np.unique(place))])
    return stats.chi2_contingency(table).pvalue


def test_no_guess_links_reports_to_uploads():
    aborted, committed = observed(partition.permute)
    position = np.arange(BATCH)
    upload, batches = committed[:, :, 0], len(committed)
    assert batches == len(aborted) == UPLOADS // BATCH
    guesses = {
        "order": ((upload == position).sum(), UPLOADS, 1 / BATCH),
        "reverse order": ((upload == position[::-1]).sum(), UPLOADS, 1 / BATCH),
        "order of the aborted batch": ((upload == aborted[:, :, 0]).sum(), UPLOADS, 1 / BATCH),
        "neighbours": ((abs(np.diff(upload, axis=1)) == 1).sum(), batches * (BATCH - 1), 2 / BATCH),
    }
    for name, guess in guesses.items():
        assert chance(*guess) > RISK, (name, guess)
    ranks = ((upload - (BATCH - 1) / 2) * (position - (BATCH - 1) / 2)).sum(axis=1)
    deviation = math.sqrt(((BATCH**2 - 1) / 12) ** 2 * BATCH**2 / (BATCH - 1))
    assert 2 * stats.norm.sf(abs(ranks.sum()) / (deviation * math.sqrt(batches))) > RISK
    for found in (committed, aborted):
        assert associated(found[:, :, 0], found[:, :, 1]) > RISK  # partition
        assert associated(found[:, :, 0], found[:, :, 2]) > RISK  # record


def test_the_order_links_all_reports_without_the_permutation():
    aborted, committed = observed(lambda reports: reports)
    assert (committed[:, :, 0] == np.arange(BATCH)).all()
    assert (aborted[:, :, 0] == np.arange(BATCH)).all()
    assert associated(committed[:, :, 0], committed[:, :, 2]) < RISK
