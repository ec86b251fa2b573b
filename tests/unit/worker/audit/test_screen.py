"""What the command says of a verdict, on the terminal and in JSON."""

import json
from dataclasses import replace

import pytest
from rich.console import Console

from worker.audit import VERDICTS, PartitionVerdict, StreamVerdict
from worker.cli.audit import EXIT_CODES, in_json, outcome, render

EQUAL = PartitionVerdict(0, 100, 150, 7, records=50, reports=120, rejected={"json": 2, "version": 8})
UNCOUNTED = PartitionVerdict(1, None, 0, 4)
DIFFERENT = PartitionVerdict(2, 0, 5, 0, 3, 3, {"json": 1}, difference="late: 1 in Redis, 0 recounted")
GAP = PartitionVerdict(
    3, 0, 50, 1, records=30, reports=30, gaps=((0, 20),), difference="gap: offsets 0 to 19: lost"
)
DELETED = PartitionVerdict(
    4, 0, 50, 1, 30, 30, deleted=((0, 20),), difference="not recountable: offsets 0 to 19: ..."
)


def shown(*rows, width=80):
    console = Console(width=width, force_terminal=False)
    with console.capture() as captured:
        console.print(render(StreamVerdict("colours", rows)))
    return captured.get().splitlines()


def test_verdict_adds_up():
    verdict = StreamVerdict("colours", (EQUAL, UNCOUNTED))
    assert (verdict.equal, verdict.counted, verdict.records, verdict.reports) == (True, True, 50, 120)
    assert (verdict.malformed, verdict.rejected, verdict.lag) == (10, {"json": 2, "version": 8}, 11)
    different = StreamVerdict("colours", (EQUAL, UNCOUNTED, DIFFERENT, GAP))
    assert (different.equal, different.malformed, different.rejected) == (
        False,
        11,
        {"json": 3, "version": 8},
    )
    assert not StreamVerdict("colours", (GAP,)).equal
    assert not StreamVerdict("colours", (UNCOUNTED,)).counted


def test_the_terminal_says_a_row_a_partition_then_what_differs_then_the_outcome():
    lines = shown(EQUAL, UNCOUNTED)
    assert lines[0] == "audit of colours"
    assert [line.split() for line in lines[2:4]] == [
        ["0", "150", "7", "120", "10", "equal"],
        ["1", "0", "4", "0", "0", "none", "yet"],
    ]
    assert lines[-1] == "equal: 120 reports in 50 records, 10 malformed"
    assert shown(UNCOUNTED)[-1] == "nothing is counted yet: no verdict"

    lines = shown(EQUAL, DIFFERENT, GAP)
    assert [line.split()[-1] for line in lines[2:5]] == ["equal", "different", "gap"]
    assert lines[-3:] == [
        "partition 2: late: 1 in Redis, 0 recounted",
        "partition 3: gap: offsets 0 to 19: lost",
        "different in partition 2",
    ]
    assert (
        shown(EQUAL, GAP)[-1] == "equal except for the recorded gaps: 150 reports in 80 records, 10 malformed"
    )


def test_point_11_the_terminal_names_the_reasons_of_malformed_records():
    lines = shown(EQUAL, UNCOUNTED, DIFFERENT)
    assert [line.split() for line in lines[5:8]] == [
        ["malformed", "records", "in", "partition"],
        ["json", "3", "0,", "2"],
        ["version", "8", "0"],
    ]
    assert "malformed  records" not in "\n".join(shown(UNCOUNTED, GAP))


def test_point_7_the_terminal_says_what_is_not_recountable():
    lines = shown(EQUAL, DELETED)
    assert lines[3].split()[-2:] == ["not", "recountable"]
    assert lines[-3] == "partition 4: not recountable: offsets 0 to 19: ..."
    outcome = "not recountable in partition 4; nothing differs in what remains: 150 reports in 80"
    assert " ".join(shown(EQUAL, DELETED, width=200)[-1].split()).startswith(outcome)
    assert (
        "nothing differs except for the recorded gaps in what remains" in shown(GAP, DELETED, width=200)[-1]
    )
    assert shown(DIFFERENT, DELETED)[-1] == "different in partition 2"


@pytest.mark.parametrize(
    ("rows", "verdict", "code", "first"),
    [
        ((), "none yet", 0, None),
        ((UNCOUNTED,), "none yet", 0, None),
        ((UNCOUNTED, EQUAL), "equal", 0, None),
        ((EQUAL, DELETED, UNCOUNTED), "not recountable", 3, 4),
        ((DELETED, GAP), "gap", 1, 3),
        (
            (PartitionVerdict(0, 0, 9, 0, gaps=((0, 1),), deleted=((1, 2),), difference="gap: ..."),),
            "gap",
            1,
            0,
        ),
        ((DELETED, GAP, DIFFERENT, EQUAL), "different", 1, 2),
    ],
)
def test_point_7_the_gravest_verdict_is_the_streams_and_has_an_exit_code_of_its_own(
    rows, verdict, code, first
):
    found = StreamVerdict("colours", rows)
    assert (found.verdict, EXIT_CODES[found.verdict]) == (verdict, code)
    assert found.equal == (code == 0)
    assert (found.difference or "").startswith(f"partition {first}: " if code else "")


def test_a_verdict_on_a_billion_fits_in_80_columns():
    row = PartitionVerdict(
        99, 0, 9_876_543_210, 1_234_567_890, 9_876_543_210, 9_876_543_210, {"json": 123_456}
    )
    lines = shown(row, DIFFERENT)
    assert max(map(len, lines)) <= 80
    assert lines[2].split() == ["99", "9,876,543,210", "1,234,567,890", "9,876,543,210", "123,456", "equal"]
    # whatever the numbers are, the verdict stays whole
    huge = PartitionVerdict(2**31 - 1, 0, 2**63 - 1, 2**63 - 1, 2**63 - 1, 2**63 - 1, {"json": 2**62})
    lines = shown(huge, DIFFERENT, UNCOUNTED)
    assert max(map(len, lines)) <= 80
    assert sum("different" in line for line in lines[:-1]) == sum("none yet" in line for line in lines) == 1
    lines = shown(row, DELETED)
    assert max(map(len, lines)) <= 80
    assert sum("not recountable" in line for line in lines[:-2]) == 1


def test_json_has_the_same_fields_for_the_stream_and_its_partitions():
    tree = json.loads(
        json.dumps(in_json(StreamVerdict("colours", (EQUAL, UNCOUNTED, DIFFERENT, GAP, DELETED))))
    )
    rows = tree["partitions"]
    own = {"partition", "start", "offset", "gaps", "deleted"}
    of_stream = {
        "stream",
        "partitions",
        "finals",
        "recounted",
        "provisional",
        "provisional_recounted",
        "gone",
        "unknown",
    }
    assert all(row.keys() - own == tree.keys() - of_stream for row in rows)
    for key, value in tree.items():
        if key not in {*of_stream, "difference"}:
            assert {type(row[key]) for row in rows} == {type(value)}, key
    assert (tree["equal"], tree["counted"], tree["malformed"]) == (False, True, 11)
    assert tree["rejected"] == {"json": 3, "version": 8}
    assert tree["difference"] == "partition 2: late: 1 in Redis, 0 recounted"
    assert tree["verdict"] == "different"
    verdicts = ["equal", "none yet", "different", "gap", "not recountable"]
    assert [row["verdict"] for row in rows] == verdicts
    assert [row["equal"] for row in rows] == [True, True, False, False, False]
    assert [row["counted"] for row in rows] == [True, False, True, True, True]
    assert [row["malformed"] for row in rows] == [10, 0, 1, 0, 0]
    assert [row["gaps"] for row in rows] == [[], [], [], [[0, 20]], []]
    assert [row["deleted"] for row in rows] == [[], [], [], [], [[0, 20]]]
    assert rows[0] == {
        "partition": 0,
        "start": 100,
        "offset": 150,
        "verdict": "equal",
        "equal": True,
        "counted": True,
        "difference": None,
        "records": 50,
        "reports": 120,
        "malformed": 10,
        "rejected": {"json": 2, "version": 8},
        "late": 0,
        "panes": 0,
        "lag": 7,
        "gaps": [],
        "deleted": [],
    }


WINDOWED = PartitionVerdict(5, 0, 50, 1, 30, 40, late=4, panes=26)


def test_panes_and_late_records_are_shown_where_there_are_windows():
    lines = shown(EQUAL, WINDOWED)
    assert lines[1].split() == [
        "partition",
        "offset",
        "lag",
        "reports",
        "malformed",
        "late",
        "panes",
        "verdict",
    ]
    assert [line.split() for line in lines[2:4]] == [
        ["0", "150", "7", "120", "10", "0", "0", "equal"],
        ["5", "50", "1", "40", "0", "4", "26", "equal"],
    ]
    assert lines[1].split()[-2:] != shown(EQUAL)[1].split()[-2:]
    tree = in_json(StreamVerdict("colours", (EQUAL, WINDOWED), finals=9, recounted=7))
    assert (tree["late"], tree["panes"], tree["finals"], tree["recounted"]) == (4, 26, 9, 7)


def test_what_is_published_of_final_windows_has_its_say():
    good = StreamVerdict("colours", (EQUAL, WINDOWED), finals=9, recounted=7)
    assert outcome(good) == "equal: 160 reports in 80 records, 10 malformed; 7 of 9 final windows recounted"
    both = replace(good, provisional=3, provisional_recounted=2)
    assert outcome(both).endswith("; 7 of 9 final windows and 2 of 3 provisional windows recounted")
    some = replace(both, gone=1_000)
    assert outcome(some).endswith(" recounted; windows: 1,009 final by the lines, 9 on the topic")
    none = replace(some, finals=0, recounted=0)
    assert outcome(none).endswith(
        "2 of 3 provisional windows recounted; windows: 1,000 final by the lines, none on the topic"
    )
    assert (in_json(none)["gone"], in_json(good)["gone"]) == (1_000, 0)
    lost = "2 windows cannot be recounted: records before offset 5 of partition 0 are gone"
    unknown = replace(both, unknown=lost)
    assert (unknown.verdict, EXIT_CODES[unknown.verdict], unknown.difference) == ("not recountable", 3, lost)
    assert outcome(unknown).startswith("not recountable in what is published; nothing differs")
    assert (in_json(unknown)["unknown"], in_json(both)["unknown"]) == (lost, None)
    assert "\n".join(shown(EQUAL, GAP)).count(lost) == 0
    said = "window 1h/0: 5 reports published, 4 recounted"
    bad = StreamVerdict("colours", (EQUAL, DELETED), finals=9, recounted=2, published=said)
    console = Console(width=100, force_terminal=False)
    with console.capture() as captured:
        console.print(render(bad))
    assert captured.get().splitlines()[-2:] == [said, "different in what is published"]
    assert (EXIT_CODES[bad.verdict], in_json(bad)["difference"]) == (1, said)
    both = StreamVerdict("colours", (DIFFERENT,), finals=9, recounted=2, published=said)
    assert outcome(both) == "different in partition 2"


def test_every_verdict_has_an_exit_code():
    assert set(EXIT_CODES) == set(VERDICTS)
