"""Windows of the worker, recounted by the audit; every changed field is found."""

import random

import pytest

import ldp
from tests.support.cells import cells_of, key_in
from tests.unit.worker.audit.streams import STREAMS, frame, some_reports
from worker.audit.comparison import assess
from worker.audit.parsing import by_fingerprint
from worker.audit.records import Records
from worker.counting import layout
from worker.counting.columns import Batch, Columns
from worker.counting.lineage import lineage_of
from worker.counting.partition_state import PartitionState
from worker.counting.rules import RecordLimits, RequestedRule, Rule
from worker.counting.windows import Pane, Windowing

GROUP, START, COMMIT = "ldp-worker-s", 100, "0123456789abcdef" * 2
STREAM = STREAMS["grr-3"]
PLAIN = RecordLimits(3, True)
TENS = RecordLimits(3, True, windowing=Windowing(("all", "10s"), 4_000, 2_000))
SHORTER = RecordLimits(3, True, windowing=Windowing(("10s",), 0, 1_000))
HOPS = RecordLimits(2, True, windowing=Windowing(("10s", "40s every 20s", "all"), grace=30_000))
MANY = RecordLimits(3, True, windowing=Windowing(("30s every 5s",), 10_000, 9_000))
LIMITS = [PLAIN, TENS, SHORTER, HOPS, MANY]


def log(rng, n=120, stream=STREAM):
    """Records with advancing times; some are late, early, undated or malformed, and lengths vary."""
    records, now = [], 0
    for _ in range(n):
        now += rng.choice((0, 200, 900, 3_000))
        time = now + rng.choice((0, 0, 0, -1_000, -12_000, 5_000, -90_000))
        no_time = rng.choice((-1, -1, -(1 << 63), 253_370_678_400_000, (1 << 63) - 1))
        time = no_time if rng.randrange(12) == 0 else max(0, time)
        reports = some_reports(stream, rng, rng.randrange(1, 5))
        records.append((time, b"noise" if rng.randrange(10) == 0 else frame(stream, *reports)))
    return records


class Counting:
    """A worker that counts a log as it pleases: in batches of any length, while panes are evicted."""

    def __init__(self, rng, records, limits, changes=(), stream=STREAM, start=START):
        self.rng, self.records, self.stream = rng, records, stream
        self.state = PartitionState.fresh(ldp.Fleet((stream,)), start, RequestedRule(1, limits))
        if changes:
            rules = [Rule(offset, 2 + i, other) for i, (offset, other) in enumerate(changes)]
            self.state.set_rules([*self.state.rules, *rules])

    def to(self, end, droppings=True):
        state = self.state
        while state.offset < end:
            last = min(end, state.offset + self.rng.randrange(1, 20))
            part = self.records[state.offset - START : last - START]
            columns = Columns.of(range(state.offset, last), [t for t, _ in part], [v for _, v in part])
            state.apply(Batch(0, state.offset, last, columns))
            if state.offset < last:  # the capacity was exhausted
                before = len(state.cells)
                state.evict(state.windows.closed if droppings else 0)
                if len(state.cells) == before:
                    break
            if droppings and state.windows.closed and self.rng.randrange(3) == 0:
                state.evict(self.rng.randrange(state.windows.closed + 1))
        return self


def stored(state, stream=STREAM):
    before = layout.initial(lineage_of(GROUP, "t"), PartitionState.fresh(ldp.Fleet((stream,)), state.start))
    state.changed = {*state.cells}
    metadata, blobs = layout.dump(state, before, COMMIT)
    return layout.fields(metadata, layout.meta_key("s", 0)), dict(blobs)


def verify(state, records, begin=START, stream=STREAM):
    def there(first, last, caps):
        return [Records.of(records[at - START : at + 7 - START][: last - at]) for at in range(first, last, 7)]

    bounds = (begin, START + len(records))
    return assess(
        by_fingerprint(stream.document()),
        0,
        stream="s",
        group=GROUP,
        cut=stored(state, stream),
        bounds=bounds,
        read=there,
    )


def histories(seeds, *salt):
    for seed in seeds:
        rng = random.Random(f"{seed} {salt}")
        offsets = sorted(rng.randrange(START, START + 121) for _ in range(rng.randrange(4)))
        changes = [(offset, rng.choice(LIMITS)) for offset in offsets]
        yield rng, log(rng), rng.choice(LIMITS), changes


@pytest.mark.parametrize("seed", range(20))
def test_every_windowed_count_is_recounted(seed):
    for rng, records, limits, changes in histories(range(10 * seed, 10 * seed + 10), "equal"):
        counting = Counting(rng, records, limits, changes)
        if rng.randrange(2):
            counting.state.windows.admit(rng.choice((0, 7_000, 30_000)))
        state = counting.to(START + rng.randrange(121)).state
        assert verify(state, records).difference is None


@pytest.mark.parametrize("stream", STREAMS.values(), ids=STREAMS.keys())
def test_panes_of_every_protocol_are_recounted(stream):
    rng = random.Random(f"panes {stream.fingerprint.hex()}")
    records = log(rng, 60, stream)
    state = Counting(rng, records, TENS, [(START + 40, HOPS)], stream).to(START + 60).state
    assert len(state.cells) > 1
    assert verify(state, records, stream=stream).difference is None


def test_panes_and_watermarks_match_a_hand_calculation():
    """Windows of 10 s that wait for 6 s: the expected verdicts were written down, not computed."""
    times = [1_000, 12_000, 9_000, -1, 16_000, 9_999, 31_000, 19_999, 20_000]
    #        0+     10+     0+    none 10+     late   30+     late    late? its pane ends at 30 s, the line is 25 s
    records = [(time, frame(STREAM, (i % 3,))) for i, time in enumerate(times)]
    state = Counting(random.Random(1), records, TENS).to(START + 9, droppings=False).state
    assert {name: cell.reports for name, cell in cells_of(state).items()} == {
        "all": 3,
        "0+10000": 2,
        "10000+10000": 2,
        "30000+10000": 1,
        "20000+10000": 1,
    }
    assert (state.windows.closed, state.windows.late, state.windows.undated) == (25_000, {"1m": 2}, 1)
    assert verify(state, records).difference is None
    # the first complete hopping window at the end begins after 31 s
    state.set_rules([*state.rules, Rule(START + 9, 2, HOPS)])
    assert state.windows.first_start == {"10s": 0, "40s every 20s": 40_000}
    assert verify(state, records).difference is None


def rich():
    """A state with everything in it: panes, late and undated reports, evicted panes, a floor, two rules."""
    rng = random.Random(11)
    records = log(rng)
    counting = Counting(rng, records, TENS, [(START + 60, HOPS)])
    counting.state.windows.admit(12_000)
    state = counting.to(START + 90, droppings=False).state
    state.evict(20_000)
    state = counting.to(START + 120, droppings=False).state
    assert state.windows.late and state.windows.undated and len(state.cells) > 4
    return state, records


def exchanged(state):
    """Two panes exchange a report each, so that only their vectors differ."""
    cells = [cell for name, cell in cells_of(state).items() if name != "all"]
    one, other = next((a, b) for a in cells for b in cells if a is not b and b.state[1] > 0 < a.state[0])
    one.state += [-1, 1, 0]
    other.state += [1, -1, 0]


def taken_out(state):
    """A report of a pane is late."""
    cell = next(cell for name, cell in cells_of(state).items() if name != "all")
    v = int(cell.state.argmax())
    cell.reports, cell.state[v] = cell.reports - 1, cell.state[v] - 1
    cells_of(state)["all"].reports += 1
    cells_of(state)["all"].state[v] += 1


def without_a_pane(state):
    cell = state.cells.pop(max(key for key in state.cells if key.pane is not None))[""]
    cells_of(state)["all"].reports += cell.reports
    cells_of(state)["all"].state += cell.state


def one_more_pane(state):
    state.cell(key_in(state, "990000+10000"))


def renamed(state):
    key = next(key for key in state.cells if key.pane is not None)
    pane = Pane(key.pane.start, 2 * key.pane.length)
    state.cells[key._replace(pane=pane)] = state.cells.pop(key)


def other_rules(**limits):
    def change(state):
        first, last = state.rules
        windowing = Windowing(**{"windows": HOPS.windowing.windows, "grace": 30_000} | limits)
        state.rules = [
            first,
            Rule(last.offset, last.revision, RecordLimits(2, hamming_weight=True, windowing=windowing)),
        ]

    return change


def by(what, change):
    def changed(state):
        holder = state if hasattr(state, what) else state.windows
        setattr(holder, what, change(getattr(holder, what)))

    return changed


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (by("accepted", lambda n: n + 1), "accepted: "),
        (by("rejected", lambda said: {**said, "version": 1}), "rejected as version: 1 in Redis, "),
        (by("late", lambda said: {**said, "1m": said["1m"] + 1}), "late by 1m: "),
        (by("late", lambda said: {**said, "older": 1}), "late by older: 1 in Redis, 0 recounted"),
        (by("undated", lambda n: n - 1), "undated: "),
        (by("watermark", lambda time: time + 1), "watermark: "),
        (by("closed", lambda line: line - 1), "closed: "),
        (by("admitted_from", lambda _: 200_000), "late by "),
        (
            by("evicted_to", lambda _: 500_000),
            "evicted_to: 500000 in Redis, beyond the window-close watermark ",
        ),
        (by("evicted_to", lambda line: line - 10_000), "reports of pane 10000+10000: none in Redis, "),
        (
            by("evicted_to", lambda line: line + 10_000),
            "pane 20000+10000: in Redis, but panes that end by 30000",
        ),
        (by("first_start", lambda said: said | {"10s": said["10s"] + 10_000}), "first_start of window 10s: "),
        (
            by("first_start", lambda said: {"10s": said["10s"]}),
            "first_start of window 40s every 20s: none in Redis, ",
        ),
        (by("gaps", lambda _: [(START, START + 1)]), f"gaps: [{START}, {START + 1}) in Redis, but the log"),
        (by("gap_bounds", lambda _: [(0, 5)]), "gap_bounds: 1 in Redis, but 0 gaps"),
        (by("offset", lambda offset: offset - 1), ""),
        (by("start", lambda offset: offset + 1), "start: "),
        (other_rules(grace=29_000), ""),
        (other_rules(windows=("10s", "40s every 20s", "1m")), "first_start of window 1m: none in Redis, "),
        (other_rules(windows=("5s", "40s every 20s")), ""),
        (exchanged, "state[0] of pane "),
        (taken_out, "reports of pane "),
        (without_a_pane, "reports of pane "),
        (one_more_pane, "reports of pane 990000+10000: 0 in Redis, none recounted"),
        (renamed, "reports of pane "),
    ],
)
def test_every_changed_field_is_detected(change, said):
    state, records = rich()
    assert verify(state, records).difference is None
    change(state)
    row = verify(state, records)
    assert row.verdict == "different"
    assert row.difference.startswith(said)


def test_the_bounds_of_gaps_are_recounted():
    records = log(random.Random(5))
    for admitted in (None, 3_000, 9_000):
        counting = Counting(random.Random(5), records, TENS)
        state = counting.state
        if admitted == 3_000:
            state.windows.admit(3_000)
        state.skip(START + 10)
        state.skip(START + 12)
        if admitted == 9_000:  # the head was there only after the gap was recorded
            state.windows.admit(9_000)
        counting.to(START + 120)
        first = next(t for t, value in records[12:] if t >= 0 and len(value) <= 9 and value != b"noise")
        assert state.windows.gap_bounds == [(3_000 if admitted == 3_000 else 0, first)] * 2
        assert verify(state, records, begin=START + 12).verdict == "gap"
        bounds = state.windows.gap_bounds
        for wrong in ((bounds[0][0] + 1, first), (bounds[0][0], first + 1), (bounds[0][0], None)):
            state.windows.gap_bounds = [bounds[0], wrong]
            difference = verify(state, records, begin=START + 12).difference
            assert difference.startswith(
                ("closed before the gap [110, 112]", "first after the gap [110, 112]")
            )


def test_late_records_after_a_gap_do_not_count_as_the_first_after_it():
    good = frame(STREAM, (1,))
    records = [(50_000, good), (90_000, good), (20_000, good), (49_000, good), (60_000, good), (70_000, good)]
    counting = Counting(random.Random(8), records, TENS)
    counting.to(START + 1)
    counting.state.skip(START + 2)
    counting.to(START + 6)
    ((line, first),) = counting.state.windows.gap_bounds
    assert first == 60_000
    # records before the gap are deleted, and may have been later than some remaining records
    for kept, right in ((60_000, True), (20_000, True), (70_000, True), (None, True), (19_999, False)):
        counting.state.windows.gap_bounds = [(line, kept)]
        assert (verify(counting.state, records, begin=START + 2).verdict != "different") == right, kept


# --- after retention deleted counted records
# --------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(12))
def test_correct_windowed_counts_are_equal_after_any_deletion(seed):
    for rng, records, limits, changes in histories(range(5 * seed, 5 * seed + 5), "deleted"):
        counting = Counting(rng, records, limits, changes)
        if rng.randrange(2):
            counting.state.windows.admit(rng.choice((0, 7_000, 30_000)))
        counting.to(lost := START + rng.randrange(1, 60))
        found = lost
        if rng.randrange(2) and counting.state.offset == lost:
            counting.state.skip(found := lost + rng.randrange(1, 30))
        counting.to(START + 120)
        for begin in {found, found + 1, found + 10, counting.state.offset}:
            row = verify(counting.state, records, begin=min(begin, counting.state.offset))
            assert row.verdict in ("not recountable", "gap"), row.difference


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (by("late", lambda said: {}), "late: 0 in Redis, "),
        (by("late", lambda said: {"1m": 1_000}), "late: 1000 in Redis, "),
        (by("undated", lambda n: 1_000), "undated: 1000 in Redis, "),
        (by("closed", lambda line: 10**6), "closed: 1000000 in Redis, "),
        (
            by("evicted_to", lambda _: 10**6),
            "evicted_to: 1000000 in Redis, beyond the window-close watermark ",
        ),
        (
            by("first_start", lambda said: {"10s": said["10s"]}),
            "first_start of window 40s every 20s: none in Redis, ",
        ),
        (
            by("first_start", lambda said: said | {"40s every 20s": 10**6}),
            "first_start of window 40s every 20s: 1000000",
        ),
        (without_a_pane, "reports of pane "),
        (one_more_pane, None),
    ],
)
def test_a_loss_visible_in_the_remaining_windows_is_a_difference(change, said):
    state, records = rich()
    change(state)
    row = verify(state, records, begin=START + 5)
    assert row.verdict == ("different" if said else "not recountable")
    assert row.difference.startswith(said or "not recountable: ")
