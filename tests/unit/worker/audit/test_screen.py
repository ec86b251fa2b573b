"""Output of a verdict, on the terminal and in JSON."""

import json
from dataclasses import replace

import pytest
from rich.console import Console

from worker.audit import VERDICTS, PartitionVerdict, StreamVerdict
from worker.cli.audit import EXIT_CODES, in_json, outcome, render

EQUAL = PartitionVerdict(0, 100, 150, 7, records=50, reports=120, rejected={"json": 2, "version": 8})
UNCOUNTED = PartitionVerdict(1, None, 0, 4)
DIFFERENT = PartitionVerdict(2, 0, 5, 0, 3, 3, {"json": 1}, difference="late: 1 in Redis, 0 recounted")
GAP = PartitionVerdict(3, 0, 50, 1, 30, 30, gaps=((0, 20),), difference="gap: offsets 0 to 19: lost")
LOST = "not recountable: offsets 0 to 19: ..."
DELETED = PartitionVerdict(4, 0, 50, 1, 30, 30, deleted=((0, 20),), difference=LOST)
WINDOWED = PartitionVerdict(5, 0, 50, 1, 30, 40, late=4, panes=26)


def shown(*rows, width=80, **published):
    console = Console(width=width, force_terminal=False)
    with console.capture() as captured:
        console.print(render(StreamVerdict("colours", rows, **published)))
    return captured.get().splitlines()


def test_the_terminal_lists_partitions_reasons_differences_and_the_outcome():
    lines = shown(EQUAL, UNCOUNTED)
    assert lines[0] == "audit of colours"
    assert [line.split() for line in lines[2:4]] == [
        ["0", "150", "7", "120", "10", "equal"],
        ["1", "0", "4", "0", "0", "none", "yet"],
    ]
    assert lines[-1] == "equal: 120 reports in 50 records, 10 malformed"
    assert shown(UNCOUNTED)[-1] == "no verdict: nothing is counted yet"
    lines = shown(EQUAL, DIFFERENT, GAP)
    assert [line.split()[-1] for line in lines[2:5]] == ["equal", "different", "gap"]
    assert [line.split() for line in lines[5:8]] == [
        ["malformed", "records", "in", "partition"],
        ["json", "3", "0,", "2"],
        ["version", "8", "0"],
    ]
    assert lines[-3:] == [
        "partition 2: late: 1 in Redis, 0 recounted",
        "partition 3: gap: offsets 0 to 19: lost",
        "different in partition 2",
    ]
    equal = "equal except for the recorded gaps: 150 reports in 80 records, 10 malformed"
    assert shown(EQUAL, GAP)[-1] == equal
    lines = shown(EQUAL, DELETED, width=200)
    assert lines[-2] == f"partition 4: {LOST}"
    assert lines[-1].startswith("not recountable in partition 4; the rest matches: 150 reports")
    remains = "the rest matches except for the recorded gaps"
    assert remains in shown(GAP, DELETED, width=200)[-1]
    lines = shown(EQUAL, WINDOWED)
    assert lines[1].split()[-3:] == ["late", "panes", "verdict"]
    assert lines[3].split() == ["5", "50", "1", "40", "0", "4", "26", "equal"]


BOTH = PartitionVerdict(0, 0, 9, 0, gaps=((0, 1),), deleted=((1, 2),), difference="gap: ...")


@pytest.mark.parametrize(
    ("rows", "verdict", "code", "first"),
    [
        ((), "none yet", 0, None),
        ((UNCOUNTED,), "none yet", 0, None),
        ((UNCOUNTED, EQUAL), "equal", 0, None),
        ((EQUAL, DELETED, UNCOUNTED), "not recountable", 3, 4),
        ((DELETED, GAP), "gap", 1, 3),
        ((BOTH,), "gap", 1, 0),
        ((DELETED, GAP, DIFFERENT, EQUAL), "different", 1, 2),
    ],
)
def test_the_gravest_verdict_decides_the_stream_and_its_exit_code(rows, verdict, code, first):
    found = StreamVerdict("colours", rows)
    assert (found.verdict, EXIT_CODES[found.verdict]) == (verdict, code)
    assert found.equal == (code == 0)
    assert (found.difference or "").startswith(f"partition {first}: " if code else "")


def test_json_has_the_same_fields_for_the_stream_and_its_partitions():
    verdict = StreamVerdict("colours", (EQUAL, UNCOUNTED, DIFFERENT, GAP, DELETED), gone=3)
    tree = json.loads(json.dumps(in_json(verdict)))
    common = {"records", "reports", "rejected", "malformed", "late", "panes", "lag"}
    common |= {"verdict", "equal", "counted", "difference"}
    published = {"finals", "recounted", "provisional", "provisional_recounted", "gone", "unknown"}
    published |= {"parts", "parts_recounted"}
    assert tree.keys() == common | published | {"stream", "partitions"}
    rows = tree["partitions"]
    assert {frozenset(row) for row in rows} == {
        frozenset(common | {"partition", "start", "offset", "gaps", "deleted"})
    }
    assert (tree["equal"], tree["counted"], tree["malformed"], tree["lag"]) == (False, True, 11, 13)
    assert tree["rejected"] == {"json": 3, "version": 8}
    assert (tree["verdict"], tree["difference"]) == (
        "different",
        "partition 2: late: 1 in Redis, 0 recounted",
    )
    assert [row["verdict"] for row in rows] == ["equal", "none yet", "different", "gap", "not recountable"]
    assert [row["equal"] for row in rows] == [True, True, False, False, False]
    assert [row["counted"] for row in rows] == [True, False, True, True, True]
    assert [(row["gaps"], row["deleted"]) for row in rows[3:]] == [([[0, 20]], []), ([], [[0, 20]])]


def test_published_windows_are_in_the_outcome():
    good = StreamVerdict("colours", (EQUAL, WINDOWED), finals=9, recounted=7)
    assert outcome(good) == "equal: 160 reports in 80 records, 10 malformed; 7 of 9 final windows recounted"
    assert outcome(replace(good, parts=4, parts_recounted=4)).endswith(" and 4 of 4 parts recounted")
    both = replace(good, provisional=3, provisional_recounted=2)
    assert outcome(both).endswith("; 7 of 9 final windows and 2 of 3 provisional windows recounted")
    none = replace(both, gone=1_000, finals=0, recounted=0)
    assert outcome(replace(none, finals=9)).endswith("; windows: 1,009 closed, 9 of them on the topic")
    assert outcome(none).endswith("; windows: 1,000 closed, none of them on the topic")
    lost = "2 windows cannot be recounted: records before offset 5 of partition 0 are gone"
    unknown = replace(both, unknown=lost)
    assert (unknown.verdict, EXIT_CODES[unknown.verdict], unknown.difference) == ("not recountable", 3, lost)
    assert outcome(unknown).startswith("not recountable in the snapshots; the rest matches")
    text = "window 1h/0: 5 reports published, 4 recounted"
    assert shown(EQUAL, DELETED, width=100, published=text)[-2:] == [text, "different in the snapshots"]
    bad = StreamVerdict("colours", (EQUAL, DELETED), published=text)
    assert (EXIT_CODES[bad.verdict], in_json(bad)["difference"]) == (1, text)
    assert outcome(replace(bad, partitions=(DIFFERENT,))) == "different in partition 2"


def test_every_verdict_has_an_exit_code():
    assert set(EXIT_CODES) == set(VERDICTS)
