"""Rules: which configuration is the newer, and that turns of old and new workers add each at most once."""

import itertools
import random
from dataclasses import replace

import numpy as np
import pytest

import ldp
from ldp import frames
from tests.support.cells import cells_of, naming, ruled
from worker.counting import layout, rules
from worker.counting.columns import Batch, Columns
from worker.counting.partition_state import PartitionState
from worker.counting.rules import Names, Older, RecordLimits, RequestedRule, Rule, Status

A, B, C = (RecordLimits(most, hamming_weight=True) for most in (10, 20, 30))
STREAM = ldp.Stream("s", ldp.GRR("1", domain_size=3))


def recorded(*said):
    return [Rule(10 * i, revision, limits) for i, (revision, limits) in enumerate(said)]


@pytest.mark.parametrize(
    ("history", "configured", "expected"),
    [
        # without a revision: the same, never seen, replaced
        ([(1, A)], RequestedRule(None, A), None),
        ([(1, A)], RequestedRule(None, B), Rule(50, 2, B)),
        ([(1, A), (2, B)], RequestedRule(None, A), "set streams.revision to 3"),
        ([(1, A), (2, B)], RequestedRule(None, B), None),
        ([(1, A), (7, B), (8, A)], RequestedRule(None, A), None),
        ([(1, A), (7, B), (8, A)], RequestedRule(None, B), "set streams.revision to 9"),
        # with one: higher, the same, lower
        ([(1, A)], RequestedRule(2, B), Rule(50, 2, B)),
        ([(1, A)], RequestedRule(2, A), Rule(50, 2, A)),
        ([(1, A), (2, B)], RequestedRule(3, A), Rule(50, 3, A)),
        ([(1, A)], RequestedRule(1, A), None),
        ([(1, A)], RequestedRule(1, B), "set streams.revision to 2"),
        ([(1, A), (5, B)], RequestedRule(4, C), "set streams.revision to 6"),
        ([(1, A), (5, B)], RequestedRule(4, B), "set streams.revision to 6"),
    ],
)
def test_the_decided_rule_depends_on_the_recorded_history(history, configured, expected):
    decided = rules.decide(recorded(*history), configured, 50)
    if isinstance(expected, str):
        assert isinstance(decided, Older)
        assert expected in decided.hint
        assert f"revision {history[-1][0]}" in decided.why
    else:
        assert decided == expected


@pytest.mark.parametrize(
    ("history", "configured", "refused"),
    [
        ([(1, 20), (2, 0)], (None, 20), True),  # back to an earlier size
        ([(1, 20), (2, 0)], (2, 20), True),
        ([(1, 20), (2, 0)], (1, 20), False),  # a worker with the older configuration
        ([(1, 5), (2, 20)], (None, 5), False),
        ([(1, 5), (2, 20)], (2, 5), False),
    ],
)
def test_a_larger_increment_is_refused_unless_its_revision_is_lower(history, configured, refused):
    history = [(revision, replace(A, fewest_new=fewest)) for revision, fewest in history]
    revision, fewest = configured
    decided = rules.decide(recorded(*history), RequestedRule(revision, replace(A, fewest_new=fewest)), 50)
    assert isinstance(decided, Older)
    assert decided.refused == refused
    assert decided.hint == "to apply it, set streams.revision to 3"


def test_a_rule_begins_no_earlier_than_a_recorded_one():
    assert rules.decide([Rule(0, 1, A), Rule(90, 2, B)], RequestedRule(None, C), 50) == Rule(90, 3, C)


def test_alternating_old_and_new_workers_never_flap():
    """In any order of configurations, each adds at most one rule, and finally none adds any."""
    some = [RequestedRule(r, t) for r in (None, 1, 2, 3) for t in (A, B, C)]
    for seed in range(500):
        rng = random.Random(seed)
        workers = rng.sample(some, rng.randint(1, 5))
        history = [rules.first(workers[0], 0, Names({"8e9f39d0": Status()}))]
        for offset in range(200):
            decided = rules.decide(history, rng.choice(workers), offset)
            if isinstance(decided, Rule):
                history.append(decided)
        assert len(history) <= len(workers)
        assert all(not isinstance(rules.decide(history, w, 200), Rule) for w in workers)
        assert rules.parse([rule.as_json() for rule in history], 0) == history


def batch(sizes, start=0):
    values = [frames.encode(STREAM, np.zeros(size, STREAM.oracle.report_dtype)) for size in sizes]
    offsets = range(start, start + len(sizes))
    return Batch(0, start, start + len(sizes), Columns.of(offsets, [1000 + o for o in offsets], values))


def test_a_batch_is_counted_by_the_rule_of_each_offset():
    rng = random.Random(3)
    sizes = [rng.randrange(1, 6) for _ in range(40)]
    for edges in itertools.combinations_with_replacement((0, 1, 7, 20, 39, 40, 99), 3):
        history = [Rule(0, 1, RecordLimits(None, hamming_weight=True))]
        history += [
            Rule(edge, i + 2, RecordLimits(most, hamming_weight=True))
            for i, (edge, most) in enumerate(zip(edges, (3, 1, 4), strict=True))
        ]

        def fits(offset, history=history):
            most = [rule for rule in history if rule.offset <= offset][-1].limits.most_reports
            return most is None or sizes[offset] <= most

        for cut in (0, 5, 40):
            state = ruled(STREAM, history)
            verdicts = [
                *state.apply(batch(sizes[:cut])).verdicts,
                *state.apply(batch(sizes[cut:], cut)).verdicts,
            ]
            many = frames.VERDICTS.index(frames.Reason.MANY)
            assert verdicts == [0 if fits(o) else many for o in range(40)]
            assert cells_of(state)["all"].reports == sum(sizes[o] for o in range(40) if fits(o))
            assert state.accepted + state.rejected.get("many", 0) == 40
            assert state.windows.watermark == max(1000 + o for o in range(40) if fits(o))


def test_rules_are_stored():
    state = PartitionState.fresh(ldp.Fleet((STREAM,)), 5, RequestedRule(3, B))
    state.rules.append(Rule(70, 4, A))
    metadata, blobs = layout.dump(state, layout.initial("", state), "ab" * 16)
    assert (
        layout.load(ldp.Fleet((STREAM,)), metadata, blobs).rules
        == naming(STREAM, [Rule(5, 3, B), Rule(70, 4, A)])
        == layout.recorded(metadata)
    )
