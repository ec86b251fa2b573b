"""Rejections are reported, by the worker once a minute and by the commands, without record contents."""

import json
from collections import Counter
from types import SimpleNamespace

import numpy as np
from rich.console import Console

import ldp
from ldp import frames
from worker.cli import dead_letters
from worker.counting.accepted import Accepting
from worker.counting.applied import Applied
from worker.counting.columns import Batch, Columns
from worker.counting.documents import of_fleet
from worker.counting.rejections import EVERY_SECONDS, GATHER_SECONDS, Rejections, counted
from worker.counting.rules import MOST_REPORTS, Names, RecordLimits, RequestedRule, Status
from worker.kafka.dead_letters import reader
from worker.observe.events import StreamEvents
from worker.observe.metrics import Metrics
from worker.observe.progress import Progress

STREAM = ldp.Stream("colours", ldp.GRR("1", 3), labels=["red", "green", "blue"])
LIMITS = RecordLimits(MOST_REPORTS, hamming_weight=True)
OTHER = ldp.Stream("colours", ldp.GRR("2", 3), labels=["red", "green", "blue"])


def frame(stream):
    return frames.encode(stream, np.array([(2,)], stream.oracle.report_dtype))


def batch(*rejected, partition=0, start=0, size=10):
    verdicts = np.zeros(size, np.uint8)
    verdicts[list(rejected)] = frames.VERDICTS.index(frames.Reason.VERSION)
    columns = Columns.of(range(start, start + size), [0] * size, [b""] * size)
    rejected = Counter(version=len(rejected)) if rejected else Counter()
    return Batch(partition, start, start + size, columns), Applied(verdicts, rejected)


class Said:
    def __init__(self):
        self.now, self.events = 1000.0, []
        log = SimpleNamespace(info=None, warning=self.warn)
        events = StreamEvents("colours", Metrics(), Progress(), log)
        self.rejections = Rejections(lambda: self.now, events)

    def warn(self, event, **facts):
        self.events.append((event, facts))

    def add(self, batch, applied, left_out=0):
        self.rejections.add(batch, applied, left_out)


def test_the_first_rejections_are_collected_for_two_seconds():
    """300 malformed records in batches of one: the first event counts them all, where it once counted 1."""
    said = Said()
    for start in range(300):
        said.add(*batch(0, start=start, size=1))
        said.now += GATHER_SECONDS / 301
    said.rejections.emit()
    assert said.events == []
    said.now += GATHER_SECONDS
    said.rejections.emit()
    assert [facts["reasons"] for _, facts in said.events] == [{"version": 300}]


def test_rejections_are_logged_soon_and_then_once_a_minute():
    said = Said()
    said.add(*batch())
    said.rejections.emit()
    assert said.events == []
    said.add(*batch(7, 3, partition=2, start=100))
    said.now += GATHER_SECONDS
    said.rejections.emit()
    facts = {"dead_letters_left_out": 0, "accepted": 8, "partition": 2, "offset": 103}
    facts |= {"reasons": {"version": 2}}
    assert said.events == [("records.rejected", facts)]
    # rejections within the minute are reported together with the first
    for start in range(0, 500, 10):
        said.now += EVERY_SECONDS / 51
        said.add(*batch(*range(10), partition=1, start=start), left_out=3)
        said.rejections.emit()
    assert len(said.events) == 1
    said.now += EVERY_SECONDS
    said.rejections.emit()
    facts = {"dead_letters_left_out": 150, "accepted": 0, "partition": 1, "offset": 0}
    facts |= {"reasons": {"version": 500}}
    assert said.events[1:] == [("records.rejected", facts)]
    # and silence when only good records or none follow
    said.now += 10 * EVERY_SECONDS
    said.add(*batch())
    said.rejections.emit()
    assert len(said.events) == 2
    # earlier accepted records are not part of it
    said.add(*batch(9, start=70))
    said.now += GATHER_SECONDS
    said.rejections.emit()
    assert said.events[2][1] == {
        "reasons": {"version": 1},
        "dead_letters_left_out": 0,
        "accepted": 9,
        "partition": 0,
        "offset": 79,
    }


def test_reasons_are_counted_per_document_of_the_stream():
    fleet = ldp.Fleet((STREAM,))
    accepting = Accepting.of(RequestedRule().names(fleet), of_fleet(fleet))

    def reasons(some, limits=LIMITS, unreadable=0):
        return counted(accepting.decode(some, limits).verdicts, unreadable)

    def columns(*values):
        return Columns.of(range(len(values)), [0] * len(values), values)

    some = columns(frame(STREAM), frame(OTHER), frame(OTHER), None, b"noise")
    assert reasons(some) == {"fingerprint": 2, "empty": 1, "version": 1}
    assert reasons(some, unreadable=7)["batch"] == 7
    assert reasons(columns()) == {}
    many = columns(frames.encode(STREAM, np.zeros(2, STREAM.oracle.report_dtype)))
    assert reasons(many) == {}
    assert reasons(many, RecordLimits(1, hamming_weight=True)) == {"many": 1}


# --- dead letters, shown ----------------------------------------------------------------------------------------------

EVIL = b"\x1b[31mred\x1b]0;title\x07 \xc2\x9b2J \xe2\x80\xae \xff\x00\r\n[bold]gr\xc3\xbcn"


def parsed(value, written=0, **headers):
    names = {
        "__connect.errors.topic": "reports",
        "__connect.errors.partition": "3",
        "__connect.errors.offset": "17",
        "__connect.errors.exception.class.name": "version",
        "__connect.errors.exception.message": "the first byte is not a known frame version",
        "stream": "colours",
    }
    headers = [(name, text.encode()) for name, text in (names | headers).items()]
    record = SimpleNamespace(timestamp=written, value=value, headers=headers)
    return reader._dead_letter(record)


def shown(found, last=10, value=False, width=80):
    console = Console(width=width, force_terminal=True, color_system=None)
    with console.capture() as captured:
        console.print(dead_letters.render(found, last, value))
    return captured.get()


def test_dead_letters_show_reason_and_offset_without_the_value():
    text = shown([parsed(b"secret value", 1_700_000_000_000), parsed(b"2nd")])
    assert "version: the first byte is not a known frame version" in text
    assert ["2023-11-14T22:13:20Z", "version", "reports/3/17", "12", "B"] in [
        line.split() for line in text.splitlines()
    ]
    assert "secret" not in text
    assert "secret value" in shown([parsed(b"secret value")], value=True)
    assert shown([]) == "no dead letters\n"


def test_no_control_character_of_a_record_reaches_the_terminal():
    found = parsed(EVIL, stream="a\x1b[2Jb", **{"__connect.errors.topic": "t\x1b\u202e"})
    text = shown([found], value=True)
    assert all(c.isprintable() or c == "\n" for c in text)
    assert (reader.printable(b"\\x1b"), reader.printable(b"\x1b")) == (r"\\x1b", r"\x1b")
    assert r"\x1b[31mred\x1b]0;title\x07 \x9b2J \u202e \xff\x00\r\n[bold]grün" in "".join(
        line.strip() for line in shown([found], value=True, width=400).splitlines()
    )
    assert "\x1b" not in json.dumps(dead_letters.in_json([found], 1, value=True))


def test_a_large_value_is_truncated_with_its_size():
    text = shown(
        [parsed(b"x" * 1024, **{"truncated.size": "1000000", "truncated.sha256": "00"})],
        value=True,
        width=400,
    )
    assert "x" * 256 + " … 976.3 KiB more" in text
    assert "976.6 KiB" in text


def test_an_unreadable_batch_is_shown_with_its_reason_and_size():
    said = {
        "__connect.errors.exception.class.name": "batch",
        "batch.why": "check\x1bsum",
        "batch.size": "70000",
    }
    found = parsed(b"", **said)
    rows = [line.split() for line in shown([found]).splitlines()]
    assert ["1970-01-01T00:00:00Z", "batch:", r"check\x1bsum", "reports/3/17", "68.4", "KiB"] in rows
    (row,) = dead_letters.in_json([found], 1, value=False)["dead_letters"]
    assert (row["reason"], row["why"], row["bytes"]) == ("batch", r"check\x1bsum", 70_000)


def test_a_late_record_is_shown_with_its_time_and_window():
    said = {
        "__connect.errors.exception.class.name": "late",
        "late.timestamp": "1700000000000",
        "late.start": "1699999200000",
        "late.end": "1700002800000",
        "late.closed": "1700003000000",
    }
    found = parsed(b"abc", 1_700_003_600_000, **said)
    rows = [line.split() for line in shown([found], width=100).splitlines()]
    assert ["2023-11-14T23:13:20Z", "late:", "of", "2023-11-14T22:13:20Z", "reports/3/17", "3", "B"] in rows
    (row,) = dead_letters.in_json([found], 1, value=False)["dead_letters"]
    assert (row["reason"], row["written_at"]) == ("late", "2023-11-14T23:13:20Z")
    assert row["late"] == {name.split(".")[1]: int(n) for name, n in said.items() if name.startswith("late.")}
    assert "late" not in dead_letters.in_json([parsed(b"")], 1, value=False)["dead_letters"][0]
    others = parsed(b"", **{"late.timestamp": "9" * 30, "late.end": "?"})
    assert others.late == {"timestamp": -1, "end": -1}


def test_foreign_dead_letters_are_harmless():
    record = SimpleNamespace(timestamp=0, value=None, headers=[("stream", None)])
    found = reader._dead_letter(record)
    assert (found.reason, found.where, found.size, found.stream) == ("?", "?/-1/-1", 0, "")
    assert parsed(b"", 1 << 62).time == f"{1 << 62} ms"
    assert parsed(b"", **{"truncated.size": "9" * 5000, "__connect.errors.offset": "-1"}).size == 0


def test_dead_letters_are_printed_as_json():
    found = [
        parsed(EVIL),
        parsed(b"2nd", **{"__connect.errors.exception.class.name": "json"}),
        parsed(b"3rd"),
    ]
    tree = dead_letters.in_json(found, 1, value=False)
    assert (tree["looked_at"], tree["reasons"]) == (3, {"version": 2, "json": 1})
    (row,) = tree["dead_letters"]
    assert (row["reason"], row["topic"], row["partition"], row["offset"]) == ("version", "reports", 3, 17)
    assert "base64" not in row
    assert dead_letters.in_json(found, 3, value=True)["dead_letters"][1]["base64"] == "Mm5k"


def test_documents_of_later_rules_are_unknown_while_all_others_are_retired():
    """Two configurations of one revision can retire each other's document; a recount knows the later rules."""
    accepting = Accepting.of(
        Names({STREAM.fingerprint.hex(): Status(7, retired=True)}), of_fleet(ldp.Fleet((OTHER, STREAM)))
    )
    records = Columns.of(range(2), [0] * 2, [frame(STREAM), frame(OTHER)])
    assert counted(accepting.decode(records, LIMITS).verdicts, 0) == {"retired": 1, "fingerprint": 1}
