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

UPLOADS, LEAST, PARTITIONS, MOST_REPORTS = 100_000, 50, 3, 9
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
    attempts: list[partition.Release] = field(default_factory=list)

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

    def release(self, release):
        if release.frames:
            self.attempts.append(release)
            if len(self.attempts) % 2:
                raise Unavailable("aborted")
        self.kept = release.offset, release.metadata


def observed(permute):
    """Returns aborted and committed releases, (UPLOADS/LEAST, LEAST, 3): upload, partition and record of a position."""
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
            owner = partition.OwnedIntake(STREAM, memory, LEAST, 3_600_000, MOST_REPORTS)
            owner.claim()
            try:
                while memory.kept is None or memory.kept[0] < UPLOADS:
                    owner.step()
            except Unavailable:
                continue
    rows = []
    for number, release in enumerate(memory.attempts):
        first = number // 2 * LEAST
        assert {upload for _, frame in release.frames for upload in values(frame, where)} == set(
            range(first, first + LEAST)
        )
        rows.append(
            [
                (upload - first, (at - release.frames[0][0]) % PARTITIONS, record)
                for record, (at, frame) in enumerate(release.frames)
                for upload in values(frame, where)
            ]
        )
    found = np.array(rows)
    return found[0::2], found[1::2]


def values(frame, where):
    return where[np.frombuffer(frame[wire.HEADER_BYTES :], "<u4")].tolist()


def chance(right, trials, probability):
    """Returns the probability of a deviation at least as large, both sides, of dependent guesses in a release.

    The number of fixed points of a permutation has mean 1 and variance 1, as a Poisson variable has.
    """
    mean = trials * probability
    return 2 * stats.norm.sf(abs(right - mean) / math.sqrt(mean))


def associated(upload, place):
    table, *_ = np.histogram2d(upload.ravel(), place.ravel(), bins=[5, len(np.unique(place))])
    return stats.chi2_contingency(table).pvalue


def test_no_guess_links_reports_to_uploads():
    aborted, committed = observed(partition.permute)
    position = np.arange(LEAST)
    upload, releases = committed[:, :, 0], len(committed)
    assert releases == len(aborted) == UPLOADS // LEAST
    guesses = {
        "order": ((upload == position).sum(), UPLOADS, 1 / LEAST),
        "reverse order": ((upload == position[::-1]).sum(), UPLOADS, 1 / LEAST),
        "order of the aborted release": ((upload == aborted[:, :, 0]).sum(), UPLOADS, 1 / LEAST),
        "neighbours": ((abs(np.diff(upload, axis=1)) == 1).sum(), releases * (LEAST - 1), 2 / LEAST),
    }
    for name, guess in guesses.items():
        assert chance(*guess) > RISK, (name, guess)
    ranks = ((upload - (LEAST - 1) / 2) * (position - (LEAST - 1) / 2)).sum(axis=1)
    deviation = math.sqrt(((LEAST**2 - 1) / 12) ** 2 * LEAST**2 / (LEAST - 1))
    assert 2 * stats.norm.sf(abs(ranks.sum()) / (deviation * math.sqrt(releases))) > RISK
    for found in (committed, aborted):
        assert associated(found[:, :, 0], found[:, :, 1]) > RISK  # partition
        assert associated(found[:, :, 0], found[:, :, 2]) > RISK  # record


def test_the_order_links_all_reports_without_the_permutation():
    aborted, committed = observed(lambda reports: reports)
    assert (committed[:, :, 0] == np.arange(LEAST)).all()
    assert (aborted[:, :, 0] == np.arange(LEAST)).all()
    assert associated(committed[:, :, 0], committed[:, :, 2]) < RISK
