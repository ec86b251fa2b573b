"""The recount of several documents and segments, and its comparison with Redis."""

import copy
import random

import numpy as np
import pytest

from tests.unit.worker.audit import fleet
from tests.unit.worker.audit.fleet import DOCUMENTS, GROUP, MARKS, RULES, START, count, log, stored
from worker.audit.comparison import assess
from worker.audit.records import Records


def verify(cut, records, begin=START, configured=DOCUMENTS, **facts):
    def read(first, last, caps):
        return [
            Records.of(records[at - START : min(at + 40, last) - START], at) for at in range(first, last, 40)
        ]

    bounds = begin, START + len(records)
    return assess(configured, 0, stream="s", group=GROUP, cut=cut, bounds=bounds, read=read, **facts)


@pytest.mark.parametrize("seed", range(20))
def test_documents_and_segments_are_recounted(seed):
    rng = random.Random(seed)
    records = log(rng)
    counted = count(records)
    row = verify(stored(counted, RULES, START + len(records)), records)
    assert row.difference is None
    assert row.rejected == dict(sorted(counted.rejected.items()))
    assert row.rejected.keys() >= {"retired", "segment", "fingerprint"}
    assert row.reports == sum(n for cells in counted.cells.values() for n, _ in cells.values())
    assert counted.late


@pytest.mark.parametrize("n", [0, 100])
def test_several_documents_need_no_counts_outside_panes(n):
    rng = random.Random(9)
    records = [(1_000_000 + 700 * i, fleet.record(rng, rng.choice(MARKS))) for i in range(n)]
    rules = [fleet.rule(START, 1, dict.fromkeys(MARKS, (0, False)), windows=n > 0)]
    counted = count(records, rules)
    assert not any(pane == "all" for pane, _ in counted.cells)
    assert verify(stored(counted, rules, START + n), records).difference is None


def test_records_with_equal_heads_are_decoded_together():
    rng = random.Random(1)
    for n in (1, 7, 8, 300):
        wrong = [fleet.broken(rng) for _ in range(n // 3)]
        values = [
            *wrong,
            *(fleet.record(rng, mark, 1, text) for mark in MARKS[1:] for text in ("DE", "US:9", "XX") * n),
        ]
        rng.shuffle(values)
        records = [(10**9 + i, value) for i, value in enumerate(values)]
        rules = [fleet.rule(START, 1, dict.fromkeys(MARKS, (0, False)), {"DE": (0, False)}, windows=False)]
        counted = count(records, rules)
        row = verify(stored(counted, rules, START + len(records)), records)
        assert row.difference is None
        assert {segment for cells in counted.cells.values() for segment in cells} >= {"DE", "~"}


def moved(cells, rng):
    """Moves the counts of a cell to another document, segment or pane."""
    (pane, mark) = rng.choice([key for key, own in cells.items() if any(n for n, _ in own.values())])
    segment = rng.choice([name for name, (n, _) in cells[pane, mark].items() if n])
    own = cells[pane, mark].pop(segment)
    if not cells[pane, mark]:
        del cells[pane, mark]
    panes, segments = {key[0] for key in cells}, {name for each in cells.values() for name in each if name}
    if segment and rng.randrange(2):
        place = pane, mark, rng.choice(sorted(segments - {segment}))
    else:
        place = rng.choice(sorted(panes - {pane})), mark, segment
    there = cells.setdefault(place[:2], {}).setdefault(place[2], [0, np.zeros_like(own[1])])
    there[0], there[1] = there[0] + own[0], there[1] + own[1]


def one_more(cells, rng):
    own = cells[rng.choice([*cells])]
    own[rng.choice([*own])][1][0] += 1


@pytest.mark.parametrize("change", [moved, one_more])
def test_counts_in_another_cell_are_a_difference(change):
    for seed in range(40):
        rng = random.Random(seed)
        records = log(rng)
        counted = count(records)
        change(counted.cells, rng)
        row = verify(stored(counted, RULES, START + len(records)), records)
        assert row.verdict == "different", seed


@pytest.mark.parametrize("kind", ["documents", "segments"])
def test_other_statuses_are_a_difference(kind):
    """Each recorded status matters; a rule that omits it, or names it earlier, counts otherwise."""
    records = log(random.Random(3), 200)
    cut = stored(count(records), RULES, START + len(records))
    assert verify(cut, records).difference is None
    for i, rule in enumerate(RULES):
        for name in rule.get(kind, ()):
            rules = copy.deepcopy(RULES)
            del rules[i][kind][name]
            found = verify(stored(count(records, rules), RULES, START + len(records)), records)
            assert found.verdict == "different", (i, name)


def test_unknown_configured_documents_are_another_stream():
    records = log(random.Random(5))
    cut = stored(count(records), RULES, START + len(records))
    assert verify(cut, records, configured={MARKS[1]: DOCUMENTS[MARKS[1]]}).difference is None
    row = verify(cut, records, configured={"00c0ffee": {}})
    assert row.difference == f"documents: {', '.join(MARKS)} in Redis, 00c0ffee in the configuration"


def test_rules_of_the_head_omit_the_first_document():
    records = log(random.Random(6))
    cut = stored(count(records), RULES, START + len(records))
    first, *later = copy.deepcopy(RULES)
    del first["documents"]

    def row(offset, listed, name):
        head = {"offsets": {"0": offset}, "rules": {"0": listed}, "documents": [{"fingerprint": name}]}
        return verify(cut, records, head=head)

    assert row(START + 9, [first, *later], MARKS[0]).difference is None
    for listed, name in (([first, *later], MARKS[1]), ([first, *later[1:]], MARKS[0])):
        assert row(START + 140, listed, name).difference.startswith("rules: ")


def test_the_rest_matches_after_records_are_deleted():
    for seed in range(10):
        rng = random.Random(seed)
        records = log(rng)
        counted = count(records)
        cut = stored(counted, RULES, START + len(records))
        assert verify(cut, records, START + 40).verdict == "not recountable"
        counted = copy.deepcopy(counted)
        document, segments = next((key, own) for key, own in counted.cells.items() if len(own) > 2)
        names = sorted(segments)[:2]
        segments[names[0]], segments[names[1]] = segments[names[1]], segments[names[0]]
        before = [segments[name][0] for name in names]
        row = verify(stored(counted, RULES, START + len(records)), records, START)
        assert row.verdict == "different" or before[0] == before[1], document


def test_blobs_name_ascending_segments():
    records = log(random.Random(8))
    counted = count(records)
    own = next(own for own in counted.cells.values() if "" not in own)
    own[""] = [1, np.zeros_like(next(iter(own.values()))[1])]
    row = verify(stored(counted, RULES, START + len(records)), records)
    assert "expected ascending names of segments" in row.difference
    counted = count(records)
    counted.cells["all", MARKS[0]]["DE"] = counted.cells["all", MARKS[0]].pop("")
    row = verify(stored(counted, RULES, START + len(records)), records)
    assert "expected one segment without a name" in row.difference
