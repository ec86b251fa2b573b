"""Every counted report is checked for poisoning once."""

import numpy as np
import pytest

import ldp
from ldp import frames
from ldp.alarms import Watch
from ldp.privacy.declaration import Declaration
from worker.counting.columns import Batch, Columns
from worker.counting.documents import Document
from worker.counting.partition_state import PartitionState
from worker.counting.rules import RecordLimits, RequestedRule
from worker.counting.watching import Watching
from worker.counting.windows import Windowing

STREAM = ldp.Stream("watched", ldp.OLH("1", domain_size=5))
NAME, DOCUMENTS = STREAM.fingerprint.hex(), {STREAM.fingerprint.hex(): Document.of(STREAM)}
WINDOWS = RequestedRule(1, RecordLimits(100, hamming_weight=True, windowing=Windowing(("all", "1s"), 0, 0)))


class Told(list):
    def poisoned(self, test, reports, found):
        self.append((test, reports, found))


def watching_of(block):
    told = Told()
    watching = Watching(lambda: 0.0, told)
    watch = watching._watches[NAME] = Watch(STREAM.oracle, lambda: 0.0)
    watch._block = watch._block[:block]
    return watching, told


def batch(start, *records, partition=0):
    offsets = range(start, start + len(records))
    return Batch(partition, start, start + len(records), Columns.of(offsets, [1000] * len(records), records))


def test_poisoning_reports_raise_alarms_and_recounted_ones_are_skipped():
    watching, told = watching_of(block=8)
    same = frames.encode(STREAM, np.repeat(STREAM.oracle.perturb([1]), 2))
    for again in range(3):
        state = PartitionState.fresh(ldp.Fleet((STREAM,)), 0)
        for start in (0, 2):
            one = batch(start, same, same)
            watching.look(one, state.documents, state.apply(one).reports)
        assert state.reports == 8
        assert [test for test, *_ in told] == ["repeats"], again
    assert told[0][2].startswith("pairs of equal reports in a block: 28; at most")


def test_each_offset_of_a_partition_is_examined_once():
    watching, _ = watching_of(block=8)
    assert watching.look(batch(5, b"", b""), DOCUMENTS, [])
    assert watching.look(batch(5, b"", b"", partition=1), DOCUMENTS, [])
    assert not watching.look(batch(6, b"", b""), DOCUMENTS, [])  # partly
    assert watching.look(batch(7, b""), DOCUMENTS, [])
    assert not watching.look(batch(7, b""), DOCUMENTS, [])
    assert watching.look(batch(9, b""), DOCUMENTS, [])  # a gap


@pytest.mark.parametrize("configured", [RequestedRule(1, RecordLimits(100, hamming_weight=True)), WINDOWS])
def test_only_counted_records_are_examined(configured):
    state = PartitionState.fresh(ldp.Fleet((STREAM,)), 0, configured)
    if configured is WINDOWS:
        state.windows.admit(0)
    reports = STREAM.oracle.perturb([1, 2, 3, 4])
    records = [frames.encode(STREAM, reports[:1]), b"noise", frames.encode(STREAM, reports[1:])]
    applied = state.apply(batch(0, *records))
    assert np.array_equal(np.concatenate([some for _, some in applied.reports]), reports)
    assert state.reports == 4


def test_records_over_the_pane_limit_are_not_examined():
    state = PartitionState.fresh(ldp.Fleet((STREAM,)), 0, WINDOWS)
    state.windows.admit(0)
    most = WINDOWS.limits.windowing.most_panes
    record = frames.encode(STREAM, STREAM.oracle.perturb([1]))
    n = most + 2
    columns = Columns.of(range(n), [1000 * i for i in range(n)], [record] * n)
    applied = state.apply(Batch(0, 0, n, columns))
    assert sum(len(some) for _, some in applied.reports) == state.reports < n


def test_reports_that_share_memoised_noise_raise_no_alarm():
    declared = Declaration("device", 1, "24h", "memoised", "30d")
    stream, told = ldp.Stream("watched", STREAM.oracle, privacy=declared), Told()
    watching, same = Watching(lambda: 0.0, told), np.repeat(STREAM.oracle.perturb([1]), 100_000)
    name, document = stream.fingerprint.hex(), Document.of(stream)
    one = batch(0, frames.encode(stream, same[:1]))
    assert watching.look(one, {name: document}, [(name, same)])
    assert not watching.look(one, {name: document}, [(name, same)])
    assert told == []
