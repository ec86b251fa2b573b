"""The reader of the snapshot topic, and `ldp-worker watch`."""

import json
from collections import namedtuple
from dataclasses import replace

import numpy as np
import pytest
from click.testing import CliRunner
from rich.console import Console

import ldp
from ldp import snapshot
from ldp.snapshot import Closed, Cut, Period
from tests.unit.worker.test_cli import GOOD as WITHOUT_LABELS
from worker import config as configuration
from worker.cli import cli, shown
from worker.cli import watch as command
from worker.kafka.snapshots import index
from worker.kafka.snapshots import reader as snapshots

GOOD = WITHOUT_LABELS.replace("domain_size = 3", 'labels = ["red", "green", "blue"]')
HOUR = 3_600_000
STREAM = ldp.Stream("s", ldp.GRR("1", 3), ["red", "green", "blue"])
Record = namedtuple("Record", "key value headers offset", defaults=[7])


def hour(start, *, final=False, name="1h", hours=1):
    return Period(name, start * HOUR, (start + hours) * HOUR, final)


def taken(window=snapshot.ALL_TIME, sequence=1, progress=None, n=15, stream=STREAM):
    estimate = stream.oracle.estimate(np.array([n // 3] * 3), n)
    progress = progress or {"1h": Closed(0), "24h every 1h": Closed(0)}
    cut = Cut({0: sequence}, {}, floors={0: 0}, progress=progress)
    identity, published = f"{sequence:016x}{n:016x}", 1000 * sequence
    return snapshot.take(
        stream, estimate, cut, sequence, window=window, identity=identity, published=published
    )


class Topic:
    """The consumer of a topic, whose records come a few a poll."""

    def __init__(self, settings, begins, on_passed):
        self._at, self.records, self.a_poll, self.begins = 0, Topic.log, Topic.a_poll, begins

    def assign(self, partitions):
        (self._partition,) = partitions

    def seek_to_beginning(self, partition):
        assert partition == self._partition

    def seek(self, partition, offset):
        self._at = offset

    def poll(self, timeout_ms):
        came = self.records[self._at : self._at + self.a_poll]
        self._at += len(came)
        return {self._partition: came} if came else {}

    def highwater(self, partition):
        return len(self.records)

    def position(self, partition):
        return self._at

    def end_offsets(self, partitions):
        return {self._partition: len(self.records)}

    def close(self):
        pass


@pytest.fixture
def log(monkeypatch):
    """Records of the topic in their order."""
    monkeypatch.setattr(snapshots.reading, "connect", Topic)
    monkeypatch.setattr(Topic, "log", [], raising=False)
    monkeypatch.setattr(Topic, "a_poll", 5, raising=False)
    return Topic.log


@pytest.fixture
def config(tmp_path):
    path = tmp_path / "worker.toml"
    path.write_text(GOOD, encoding="utf-8")
    return configuration.load(path, {})


def publish(log, *many, gone=()):
    """One transaction of the first's sequence: snapshots, and tombstones of windows."""
    messages = []
    for one in many:
        messages += (snapshot.encode if one.window == snapshot.ALL_TIME else snapshot.encode_window)(one)
    for window in gone:
        messages += snapshot.delete_window(many[0], window)
    sequence = many[0].sequence
    for message in messages:
        headers = message.headers(sequence)
        log.append(Record(message.key.encode(), message.body or None, headers, len(log)))


def reads(config, *asked, **named):
    return snapshots.SnapshotReader(config, "s", *asked, **named)


def test_all_time_is_read_without_the_windows_in_between(config, log):
    publish(log, taken(sequence=1), taken(hour(1)))
    publish(log, taken(sequence=2), taken(hour(1, final=True), 2), taken(hour(2), 2))
    with reads(config) as reader:
        assert reader.latest(9) == taken(sequence=2)
        assert reader.latest(0) is None
        assert reader.windows == [hour(1, final=True), hour(2)]
        publish(log, taken(sequence=3), taken(hour(2), 3), gone=[hour(1)])
        assert reader.latest(9) == taken(sequence=3)
        assert reader.windows == [hour(2)]


def test_a_final_window_is_read_after_many_later_heads(config, log):
    final = taken(hour(1, final=True), 2)
    publish(log, taken(sequence=1))
    publish(log, taken(sequence=2), final)
    for sequence in range(3, 30):
        publish(log, taken(sequence=sequence), taken(hour(2), sequence))
    with reads(config, "1h", HOUR) as reader:
        assert reader.latest(9) == final
        publish(log, taken(sequence=30))
        assert reader.latest(0.05) is None  # nothing new of it


def test_the_newest_window_is_followed(config, log):
    publish(log, taken(sequence=1), taken(hour(1)), taken(hour(9, name="24h every 1h", hours=24)))
    with reads(config, "1h") as reader:
        assert reader.latest(9) == taken(hour(1))
        publish(log, taken(sequence=2), taken(hour(1), 2))
        assert reader.latest(9) == taken(hour(1), 2)
        publish(log, taken(sequence=3), taken(hour(1), 3), taken(hour(2), 3))
        assert reader.latest(9) == taken(hour(2), 3)
        # the one before becomes final after it: that is not the newest
        publish(log, taken(sequence=4), taken(hour(1, final=True), 4))
        assert reader.latest(0.05) is None
        publish(log, taken(sequence=5), taken(hour(2, final=True), 5))
        assert reader.latest(9) == taken(hour(2, final=True), 5)


def test_labels_may_come_after_the_window_that_has_them(config, log):
    """A compacted topic has a final where it was written, and the labels in the newest snapshot of all time."""
    final = taken(hour(1, final=True), 2)
    publish(log, taken(sequence=2), final)
    kept = [record for record in log if record.key.startswith(b"s/1h/")]
    log[:] = [record._replace(offset=i) for i, record in enumerate(kept)]
    with reads(config, "1h") as reader:
        assert reader.latest(0.05) is None
        publish(log, taken(sequence=7))
        assert reader.latest(9) == final


def test_a_deleted_window_is_absent(config, log):
    publish(log, taken(sequence=1), taken(hour(1)))
    publish(log, taken(sequence=2), taken(hour(2), 2), gone=[hour(1)])
    with reads(config, "1h", HOUR) as reader:
        assert reader.catch_up(9)
        assert reader.latest(0.05) is None
        assert not reader.is_there
        assert reader.windows == [hour(2)]


def test_another_streams_windows_are_not_read(config, log):
    other = ldp.Stream("s2", STREAM.oracle, STREAM.labels)
    publish(log, taken(stream=other), taken(hour(5), stream=other))
    publish(log, taken(), taken(hour(1)))
    with reads(config, "1h") as reader:
        assert reader.latest(9) == taken(hour(1))
        assert reader.windows == [hour(1)]


def test_foreign_messages_stop_no_reader(config, log):
    """As a producer with write access could have written it."""
    numbered = [("sequence", b"1"), ("snapshot", b"x"), ("parts", b"1"), ("schema", b"1")]
    for key, headers in (
        (b"s/x", [("end", b"soon")]),
        (b"s/1h/3600000/base", [("end", None), ("final", None)]),
        (b"s/1h/1/base", [("end", b"2")]),
        (b"s/head", numbered),
        (b"s/all/base", numbered),
    ):
        log.append(Record(key, b"{}", headers))
    with reads(config) as reader:
        assert reader.catch_up(9)
        assert reader.latest(0.05) is None
        publish(log, taken(sequence=2))
        assert reader.latest(9) == taken(sequence=2)


def record_of(log, key):
    return next(record for record in reversed(log) if record.key == key)


OTHER = [("sequence", b"3"), ("snapshot", bytes(32)), ("parts", b"1"), ("schema", b"1")]
PASSED_OVER = {
    "a head that is garbage": ("head", lambda real: real._replace(value=b"{garbage")),
    "a head that is another document": ("head", lambda real: real._replace(value=b"{}")),
    "a head with another's headers": ("head", lambda real: real._replace(headers=OTHER)),
    "labels that are garbage": ("domain", lambda real: real._replace(value=b"[1]")),
    "a body with another's headers": ("all/base", lambda real: real._replace(headers=OTHER)),
    "a body that is changed": (
        "all/base",
        lambda real: real._replace(value=real.value.replace(b'"level":0.95', b'"level":0.5')),
    ),
    "one body more": ("all/base", lambda real: real._replace(key=b"s/all/more")),
    "a second head": ("head", lambda real: real),
}


@pytest.mark.parametrize("forged", PASSED_OVER)
def test_forged_messages_after_a_snapshot_change_nothing(config, log, forged):
    publish(log, taken(sequence=1), taken(hour(1)))
    publish(log, taken(sequence=2))
    place, forge = PASSED_OVER[forged]
    log.append(forge(record_of(log, b"s/" + place.encode()))._replace(offset=99))
    passed = []
    with reads(config, on_passed=passed.append) as reader:
        assert reader.latest(9) == taken(sequence=2)
        if forged == "a head that is garbage":
            ((named, offset),) = [(one.topic, one.offset) for one in passed]
            assert (named, offset) == ("ldp-snapshots", 99)
            assert passed[0].why.startswith("not a message of a snapshot: ")
        publish(log, taken(sequence=3))
        assert reader.latest(9) == taken(sequence=3)


@pytest.mark.parametrize(
    "forge",
    [
        lambda real: real._replace(value=b"{}"),
        lambda real: real._replace(headers=[*OTHER, ("end", b"1"), ("final", b"true")]),
        lambda real: real._replace(key=real.key.replace(b"base", b"more")),
    ],
)
def test_a_final_window_survives_forged_messages(config, log, forge):
    final = taken(hour(1, final=True), 2)
    publish(log, taken(sequence=2), final)
    log.append(forge(record_of(log, b"s/1h/3600000/base"))._replace(offset=len(log)))
    with reads(config, "1h", HOUR) as reader:
        assert reader.latest(9) == final


FLOODS = {
    "chunks of the window": "1h/3600000/base/frequencies/{}",
    "chunks of labels": "domain/labels/{}",
    "keys below the head's": "head/x/{}",
}


@pytest.mark.parametrize("flood", FLOODS)
def test_a_flood_of_messages_that_no_head_lists_hides_no_snapshot(config, log, flood):
    final = taken(hour(1, final=True), 2)

    def fill():
        for number in range(200):
            key = f"s/{FLOODS[flood].format(number)}".encode()
            headers = [("sequence", b"1"), ("snapshot", b"%d" % number), ("parts", b"1")]
            log.append(Record(key, bytes(2_000), headers, len(log)))

    publish(log, taken(sequence=1))
    fill()
    publish(log, taken(sequence=2), final)
    if flood != "chunks of labels":
        fill()
    with reads(config, "1h", HOUR) as reader:
        assert reader.catch_up(9)
        assert reader.latest(9) == final


def test_known_windows_are_bounded(config, log, monkeypatch):
    monkeypatch.setattr(index, "_MOST_WINDOWS", 6)
    publish(log, taken(), *(taken(hour(start)) for start in range(1, 9)))
    log.append(Record(b"s/1h/" + b"9" * 1000, b"{}", [], len(log)))
    passed = []
    with reads(config, on_passed=passed.append) as reader:
        assert reader.catch_up(9)
        assert reader.windows == [hour(start) for start in range(4, 9)]
    assert len(passed) == 1


def test_a_new_snapshot_with_a_shown_number_is_shown(config, log):
    with reads(config) as reader:
        for reports in (15, 18):  # as after the stream was removed
            publish(log, taken(sequence=1, n=reports))
            assert reader.latest(9).reports == reports


# --- ldp-worker watch


@pytest.fixture
def watch(monkeypatch, tmp_path, log):
    monkeypatch.setattr(Topic, "a_poll", 1000)  # so that the existing records are read at any time
    monkeypatch.setattr("worker.cli.watch.reach", lambda config, topic: None)
    monkeypatch.setattr("worker.cli.watch.why_none", lambda config, served: "the cause is unknown")
    path = tmp_path / "worker.toml"
    path.write_text(GOOD, encoding="utf-8")
    return lambda *args: CliRunner().invoke(cli, ["watch", "--config", str(path), "--timeout", "0.1", *args])


@pytest.fixture
def there(log):
    progress = {"1h": Closed(3 * HOUR, ((3 * HOUR, 4 * HOUR),)), "24h every 1h": Closed(HOUR)}
    publish(
        log,
        taken(sequence=4, progress=progress),
        *(taken(hour(start, final=start < 3), 4) for start in (1, 2, 3)),
        taken(hour(3, name="24h every 1h", hours=24), 4),
    )
    return log


def test_watch_shows_the_finality_of_a_window(watch, there):
    for start, said in (("01:00Z", "final"), ("02:00", "final, bounded"), ("05:00+02:00", "provisional")):
        result = watch("--once", "--window", "1h", "--start", f"1970-01-01T{start}")
        assert result.exit_code == 0, result.output
        first, second, *_ = result.stdout.splitlines()
        assert first.startswith("1h from 1970-01-01T0")
        assert first.endswith(f":00:00Z, {said}")
        assert second.startswith("s: snapshot 4, 15 reports, ")
    newest = watch("--once", "--window", "24h every 1h").stdout.splitlines()[0]
    assert newest == "24h every 1h from 1970-01-01T03:00:00Z to 1970-01-02T03:00:00Z, provisional"
    assert "from" not in watch("--once").stdout.splitlines()[0]


def test_late_is_read_and_shown_as_a_window_without_times(config, watch, log):
    late, window = taken(snapshot.LATE, 2), replace(taken(hour(1, final=True), 2), withheld=1)
    publish(log, taken(sequence=1))
    with reads(config, "late") as reader:
        assert reader.latest(0.1) is None
        publish(log, taken(sequence=2), late, window)
        assert reader.latest(0.1) == late
        assert reader.windows == [hour(1, final=True), snapshot.LATE]
        publish(log, taken(sequence=3), gone=[snapshot.LATE])
        assert reader.latest(0.1) is None
        assert not reader.is_there
    publish(log, taken(sequence=4), taken(snapshot.LATE, 4))
    first, second, *_ = watch("--once", "--window", "late").stdout.splitlines()
    assert first == "late, released reports in no window"
    assert second.startswith("s: snapshot 4, 15 reports, ")
    first = watch("--once", "--window", "1h").stdout.splitlines()[0]
    assert first.endswith("02:00:00Z, final, 1 report withheld")
    said = json.loads(watch("--once", "--json", "--window", "late").stdout)
    assert said["window"] == {"name": "late", "start": None, "end": None, "final": False, "bounded": False}
    assert said["head"]["sequence"] == 4
    assert any(line.startswith("late ") for line in watch("--list").stdout.splitlines())


def test_late_of_another_snapshot_is_not_read(config, log):
    publish(log, taken(sequence=2), taken(snapshot.LATE, 2))
    with reads(config, "late") as reader:
        assert reader.latest(0.1).sequence == 2
        for sequence, n in ((1, 15), (2, 9), (3, 15)):
            publish(log, taken(snapshot.LATE, sequence, n=n))
        assert reader.latest(0.1) is None


def test_watch_once_waits_for_slow_brokers(watch, log, monkeypatch):
    for start in range(1, 9):
        publish(log, taken(sequence=start), taken(hour(start), start))
    polls, poll = [], Topic.poll

    def halting(topic, timeout_ms):
        polls.append(timeout_ms)
        return {} if len(polls) % 2 else poll(topic, timeout_ms)

    monkeypatch.setattr(Topic, "poll", halting)
    monkeypatch.setattr(Topic, "a_poll", 5)
    shown = watch("--once", "--window", "1h", "--timeout", "9").stdout
    assert shown.startswith("1h from 1970-01-01T08:00:00Z")
    assert len(polls) > 3


def test_watch_once_fails_if_the_end_is_not_reached(watch, log, monkeypatch):
    publish(log, taken())
    monkeypatch.setattr(Topic, "poll", lambda *_, **__: {})
    result = watch("--once")
    assert (result.exit_code, result.stdout) == (1, "")
    assert "the topic was not read to its end in 0.1 s; use a longer --timeout" in result.stderr


def test_an_unreadable_head_removes_no_window(watch, there, log):
    log.append(Record(b"s/head", b"{garbage", []))
    assert watch("--list").exit_code == 0
    assert watch("--once", "--window", "1h").stdout.startswith("1h from 1970-01-01T03:00:00Z")
    said = watch("--once")
    assert said.exit_code == 0
    assert said.stdout.startswith("s: snapshot 4, 15 reports")
    assert (
        "ldp-worker: topic ldp-snapshots, partition 0, offset 7 is skipped (not a message of" in said.stderr
    )


def test_watch_shows_the_last_snapshot_before_a_lone_head(watch, there, log):
    publish(log, taken(sequence=5))
    del log[-12:]
    assert watch("--once").stdout.startswith("s: snapshot 4, 15 reports")


def test_watch_prints_a_window_as_json(watch, there):
    said = json.loads(watch("--once", "--json", "--window", "1h", "--start", "1970-01-01T02:00Z").stdout)
    assert said["window"] == {
        "name": "1h",
        "start": "1970-01-01T02:00:00Z",
        "end": "1970-01-01T03:00:00Z",
        "final": True,
        "bounded": True,
    }
    assert said["head"]["windows"]["24h every 1h"]["closed"] == HOUR
    assert said["labels"] == ["red", "green", "blue"]
    assert set(said["bodies"]) == set(ldp.consistency.METHODS)
    assert {body["window"]["start"] for body in said["bodies"].values()} == {"1970-01-01T02:00:00.000Z"}
    assert "window" not in json.loads(watch("--once", "--json").stdout)


@pytest.mark.parametrize(("methods", "more"), [(["base"], []), (["power", "base", "power"], ["power"])])
def test_watch_shows_base_once(watch, there, methods, more):
    options = [word for method in methods for word in ("--method", method)]
    heading = watch("--once", *options).stdout.splitlines()[3]
    assert heading.split() == ["value", "base", "95", "%", "interval", *more]


@pytest.mark.parametrize("options", [(), ("--json",)])
def test_watch_warns_about_a_snapshot_of_another_stream(watch, log, options):
    other = ldp.Stream("s", ldp.GRR("2", 3), STREAM.labels)
    publish(log, taken(stream=other))
    result = watch("--once", *options)
    assert result.exit_code == 0
    said = " ".join((result.stderr if options else result.stdout).split())
    assert "NOT THE CONFIGURED STREAM" in said
    assert f"fingerprint {other.fingerprint.hex()}" in said
    assert STREAM.fingerprint.hex() in said
    if options:
        assert json.loads(result.stdout)["head"]["fingerprint"] == other.fingerprint.hex()
    publish(log, taken(sequence=2))
    result = watch("--once", *options)
    assert "NOT THE" not in result.stdout + result.stderr


def test_watch_lists_the_windows(watch, there, log):
    rows = [line.split("  ") for line in watch("--list").stdout.splitlines()[1:]]
    assert [[cell.strip() for cell in row if cell.strip()] for row in rows] == [
        ["1h", "1970-01-01T01:00:00Z", "1970-01-01T02:00:00Z", "final"],
        ["1h", "1970-01-01T02:00:00Z", "1970-01-01T03:00:00Z", "final, bounded"],
        ["1h", "1970-01-01T03:00:00Z", "1970-01-01T04:00:00Z", "provisional"],
        ["24h every 1h", "1970-01-01T03:00:00Z", "1970-01-02T03:00:00Z", "provisional"],
    ]
    said = json.loads(watch("--list", "--json").stdout)
    assert [(row["name"], row["final"], row["bounded"]) for row in said] == [
        ("1h", True, False),
        ("1h", True, True),
        ("1h", False, False),
        ("24h every 1h", False, False),
    ]
    log.clear()
    publish(log, taken())
    assert watch("--list").stdout == "no windows on the topic\n"
    assert json.loads(watch("--list", "--json").stdout) == []


def test_watch_names_the_requested_window(watch, there, log):
    result = watch("--once", "--window", "2h")
    assert result.exit_code == 1
    missing = "ldp-worker: no window '2h' of s (watch --list prints the windows)"
    assert result.stderr == f"{missing}; waiting for it\n{missing} in topic ldp-snapshots after 0.1 s\n"
    result = watch("--once", "--window", "1h", "--start", "1970-01-01T07:00Z")
    missing = "ldp-worker: no window '1h' of s that starts at 1970-01-01T07:00:00Z (watch --list"
    assert result.stderr.splitlines()[1].startswith(missing)
    missing = shown.none_there("s", "1h", None, limited=True)
    assert missing.endswith(" the windows, and a window whose panes all have too few reports is missing)")
    log.clear()
    result = watch("--once", "--window", "1h")
    assert result.stderr.endswith(" in topic ldp-snapshots after 0.1 s; the cause is unknown\n")


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("--start", "1970-01-01"), "'1970-01-01' given; allowed only with --window"),
        (("--window", "1h", "--start", "noon"), "'noon' given; allowed is a time such as 2026-11-22T06:00Z"),
    ],
)
def test_watch_refuses_an_invalid_start(watch, args, said):
    result = watch("--once", *args)
    assert result.exit_code == 2
    assert said in " ".join(result.stderr.split())


def test_waiting_for_a_window_is_printed(watch, there, log, monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(command, "_follow", interrupted)
    result = watch("--window", "2h")
    assert result.exit_code == 0
    assert result.stderr.endswith(" (watch --list prints the windows); waiting for it\n")
    assert watch("--window", "1h").stderr == ""
    log.clear()
    assert watch().stderr == "ldp-worker: no snapshot of s; waiting for it\n"


def test_a_window_with_missing_reports_is_incomplete():
    one = taken(hour(1, final=True))
    console = Console(width=100)
    with console.capture() as captured:
        console.print(shown.render(replace(one, complete=False), (), 2, 100))
    assert " old, NOT COMPLETE\n" in captured.get()
