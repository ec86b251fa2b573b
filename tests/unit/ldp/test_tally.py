"""Tally: states of any partition of the records add up to the total."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ldp
from ldp import frames
from ldp.engines import tally as tallies
from ldp.engines.tally import Place, Places, Tally
from ldp.offset_range import TIME_ENDS, OffsetRange
from ldp.state import State

GRR = ldp.Stream("s", ldp.GRR("1", 3))
RECORDS = (
    b"",
    b"noise",
    *(frames.encode(GRR, np.array([(v,)] * n, GRR.oracle.report_dtype)) for v, n in ((0, 1), (1, 2), (2, 1))),
    b'{"fingerprint":"%s","reports":[2,2]}' % GRR.fingerprint.hex().encode(),
)
"""Records rejected as empty and as version, and reports 0; 1, 1; 2; 2, 2."""
HELD = (None, None, [0], [1, 1], [2], [2, 2])
TIMES = (None, -1, 7, 1000, TIME_ENDS, TIME_ENDS - 1)


def written_out(rows):
    """The states of rows (record, partition, offset, time), one partition after the other, by their definition."""
    states = {}
    for partition in sorted({row[1] for row in rows}):
        mine = [row for row in rows if row[1] == partition]
        held = [report for record, *_ in mine for report in HELD[record] or ()]
        accepted = [row for row in mine if HELD[row[0]] is not None]
        times = [-1 if row[3] is None or not 0 <= row[3] < TIME_ENDS else row[3] for row in accepted]
        timed = any(row[3] is not None for row in mine)
        offsets = [row[2] for row in mine]
        rejected = {"empty": sum(row[0] == 0 for row in mine), "version": sum(row[0] == 1 for row in mine)}
        states[partition] = State(
            GRR,
            len(held),
            [held.count(value) for value in range(3)],
            len(accepted),
            {reason: n for reason, n in rejected.items() if n},
            log=(
                OffsetRange(
                    *partition, min(offsets), max(offsets) + 1, max(times) if times and timed else None
                ),
            ),
        )
    return states


@settings(deadline=None)
@given(st.data())
def test_any_distribution_of_records_yields_the_same_total(data):
    timed = data.draw(st.booleans())
    rows = [
        (
            data.draw(st.integers(0, 5)),
            (topic, number),
            offset,
            data.draw(st.sampled_from(TIMES[1:])) if timed else None,
        )
        for topic, number in data.draw(
            st.sets(st.tuples(st.sampled_from("ab"), st.integers(0, 2)), min_size=1)
        )
        for offset in data.draw(st.sets(st.integers(0, 30), min_size=1, max_size=12))
    ]
    rows = data.draw(st.permutations(rows))
    cuts = [0, *sorted(data.draw(st.lists(st.integers(0, len(rows)), max_size=4))), len(rows)]
    whole = Tally(GRR)
    for first, last in pairwise(cuts):
        task = Tally(GRR)
        if data.draw(st.booleans()):
            for record, partition, offset, time in rows[first:last]:
                task.add(RECORDS[record] or None, Place(partition, offset, time))
        elif first < last:
            task.count(*columns(rows[first:last], timed))
        whole.merge(State.from_bytes(state.to_bytes()) for state in task.states())
    found = {(state.log[0].topic, state.log[0].partition): state for state in whole.states()}
    expected = written_out(rows)
    assert found.keys() == expected.keys()
    assert all(found[partition] == expected[partition] for partition in found)


def columns(rows, timed):
    """Rows as a column with something between the records, and their places."""
    partitions = sorted({row[1] for row in rows})
    parts = [RECORDS[row[0]] for row in rows]
    ends = np.cumsum([len(part) + 2 for part in parts]) - 2
    begins = ends - [len(part) for part in parts]
    buffer = np.frombuffer(b"--".join(parts), np.uint8)
    which = np.array([partitions.index(row[1]) for row in rows])
    offsets = np.array([row[2] for row in rows], np.int64)
    times = np.array([row[3] for row in rows], np.int64) if timed else None
    return buffer, begins.astype(np.int64), ends.astype(np.int64), Places(partitions, which, offsets, times)


def test_records_of_unknown_origin_form_one_state(monkeypatch):
    monkeypatch.setattr(tallies, "PENDING_RECORDS", 3)
    tally = Tally(GRR, most_reports=1)
    for record in [*RECORDS, None]:
        tally.add(record, None)
    (state,) = tally.states()
    assert (state.reports, state.records, state.log) == (2, 2, ())
    assert state.rejected == {"empty": 2, "version": 1, "many": 2}


def test_duplicate_records_are_detected():
    tally = Tally(GRR)
    for offset in (0, 1, 2, 1):
        tally.add(RECORDS[2], Place(("a", 0), offset, None))
    with pytest.raises(ValueError, match="4 records in 3 offsets of the log: some were counted twice"):
        tally.states()


def test_another_streams_state_is_refused():
    other = State(ldp.Stream("s", ldp.GRR("2", 3)), 1, [1, 0, 0], 1)
    with pytest.raises(ValueError, match="the state has another document"):
        Tally(GRR).merge([other])
