"""`check` on documents: verdicts as findings, and where each document is in force."""

import json
from contextlib import contextmanager
from dataclasses import replace
from types import SimpleNamespace

import pytest
from click.testing import CliRunner

import ldp
from worker.check import Finding, Level, assess_privacy
from worker.check import kafka as check_kafka
from worker.check import redis as check_redis
from worker.check.documents import Recorded, assess_documents
from worker.check.kafka import assess_reports
from worker.cli import cli
from worker.config import Served, parse
from worker.counting import layout
from worker.counting.head import Head
from worker.counting.lineage import lineage_of
from worker.counting.partition_state import PartitionState
from worker.counting.ports import StateLost
from worker.kafka.client.topics import Topic
from worker.kafka.reports.reader import NewestReports
from worker.kafka.snapshots import reader as snapshot_reader

OLD = ldp.Stream("s", ldp.GRR("1", 3), ["red", "blue", "grey"])
NEW = ldp.Stream("s", ldp.OUE("2", 3), ["blue", "green", "red"])
OTHER = ldp.Stream("s", ldp.OUE("3", 3), ["blue", "green", "red"])
LARGE = ldp.Stream("s", ldp.OUE("2", 100), ["red", *map(str, range(99))])
ONE, BOTH = ldp.Fleet((OLD,)), ldp.Fleet((NEW, OLD))
RETIRED = ldp.Fleet((NEW, OLD), frozenset([OLD.fingerprint]))
TEXT = """
[[streams]]
name = "s"
topic = "reports"
protocol = "grr"
epsilon = "1"
labels = ["red", "blue", "grey"]
"""
OK, WARNING, ERROR = Level.OK, Level.WARNING, Level.ERROR


def of(stream):
    return f"document {stream.fingerprint.hex()} of s"


def metadata(fleet):
    return layout.initial(lineage_of("g", "id-1"), PartitionState.fresh(fleet, 0))


def recorded(*fleets, head=Head()):  # noqa: B008
    return Recorded.of([None if fleet is None else metadata(fleet) for fleet in fleets], head)


def lines(fleet, found, newest=(), shares=(), ship=None):
    head = Head(variance_shares=dict(shares))
    findings = assess_documents(Served(fleet, "reports"), found, head, dict(newest), ship)
    return [(each.level, each.subject, each.text) for each in findings]


def test_one_document_that_does_not_change_has_no_line():
    assert lines(ONE, recorded(ONE, ONE)) == []
    assert lines(ONE, recorded(None, None)) == []


def test_an_added_document_is_in_force_nowhere():
    added, old, new = lines(BOTH, recorded(ONE, ONE))
    assert added[:2] == (WARNING, of(NEW))
    assert added[2].startswith("safe, with a warning: added; epsilon: ")
    assert old == (OK, of(OLD), "in force in 2 of 2 partitions")
    assert new == (WARNING, of(NEW), "in force in 0 of 2 partitions")


def test_shares_of_reports_and_of_the_variance():
    names = OLD.fingerprint.hex(), NEW.fingerprint.hex()
    newest, shares = (dict(zip(names, each, strict=True)) for each in ((590, 410), (0.376, 0.624)))
    assert lines(BOTH, recorded(ONE, BOTH), newest, shares) == [
        (OK, of(OLD), "in force in 2 of 2 partitions; 59 % of the newest reports; 38 % of the variance"),
        (
            WARNING,
            of(NEW),
            "in force in 1 of 2 partitions, not in 0; 41 % of the newest reports; 62 % of the variance",
        ),
    ]


def test_a_retired_document():
    retired, new, old = lines(RETIRED, recorded(BOTH, BOTH))
    assert retired == (
        OK,
        of(OLD),
        "safe: retired; its counts stay, and its later reports are rejected as retired",
    )
    assert [old[2], new[2]] == 2 * ["in force in 2 of 2 partitions"]
    assert lines(RETIRED, recorded(RETIRED, BOTH)) == [
        (OK, of(NEW), "in force in 2 of 2 partitions"),
        (OK, of(OLD), "retired in 1 of 2 partitions"),
    ]


def test_a_document_that_the_configuration_does_not_list_is_an_error():
    unlisted, *_ = lines(ldp.Fleet((NEW,)), recorded(BOTH))
    assert unlisted[:2] == (ERROR, of(OLD))
    assert unlisted[2].startswith("impossible: recorded, and neither documents nor retired lists it")


def test_the_largest_counts_are_named():
    fleet = ldp.Fleet((LARGE, OLD))
    assert [text for *_, text in lines(fleet, recorded(fleet))] == [
        "in force in 1 of 1 partitions",
        "in force in 1 of 1 partitions; the largest counts, up to 800 B for each pane of a partition",
    ]


@pytest.mark.parametrize(
    ("fleets", "level"),
    [
        ((BOTH, BOTH), OK),
        ((BOTH, ONE), ERROR),
        ((BOTH, None), ERROR),
        ((ONE, ONE), ERROR),
        ((None, None), ERROR),
    ],
)
def test_a_document_for_clients_is_in_force_in_every_partition(fleets, level):
    found = [each for each in lines(BOTH, recorded(*fleets), ship=NEW) if each[1] == of(NEW)][-1]
    force = sum(fleet is BOTH for fleet in fleets)
    missing = ", not in 1" if force == 1 else ""
    assert found == (level, of(NEW), f"in force in {force} of 2 partitions{missing}")


def test_a_retired_document_is_not_for_clients():
    assert lines(RETIRED, recorded(RETIRED, RETIRED), ship=OLD)[-1] == (
        ERROR,
        of(OLD),
        "retired in 2 of 2 partitions",
    )


def test_a_document_for_clients_is_listed_and_not_to_be_retired():
    """The remedy names what the configuration lacks, also while the document is in force."""

    def last(fleet, found, ship):
        return assess_documents(Served(fleet, "reports"), found, Head(), {}, ship)[-1]

    for found, ship, hint in (
        (last(BOTH, recorded(ONE), NEW), NEW, "start all workers with this configuration"),
        (last(BOTH, recorded(BOTH), OTHER), OTHER, "this configuration does not list it"),
        (last(RETIRED, recorded(BOTH), OLD), OLD, "this configuration retires it"),
        (last(RETIRED, recorded(RETIRED), OLD), OLD, "this configuration retires it"),
    ):
        assert (found.level, found.subject) == (ERROR, of(ship))
        assert found.hint.startswith(hint)


def test_retiring_a_document_that_clients_still_send_is_a_warning():
    name = OLD.fingerprint.hex()
    for fleet, found, newest, level in (
        (RETIRED, recorded(BOTH), 1, WARNING),
        (RETIRED, recorded(BOTH), 0, OK),
        (RETIRED, recorded(RETIRED), 1, OK),  # is retired already
        (BOTH, recorded(BOTH), 1, OK),
    ):
        *_, last = [
            each
            for each in assess_documents(Served(fleet, "reports"), found, Head(), {name: newest})
            if each.subject == of(OLD)
        ]
        assert (last.level, "clients still send it" in last.hint) == (level, level is WARNING)


def test_a_document_whose_fingerprint_collides_with_a_recorded_one_is_not_for_clients():
    found = recorded(ONE)
    found.documents[OLD.fingerprint.hex()] = NEW.hashed.decode()
    assert lines(ONE, found, ship=OLD)[-1][0] is ERROR


def test_the_head_shows_documents_of_partitions_without_counts():
    rules = {0: [rule.as_json() for rule in PartitionState.fresh(BOTH, 0).rules]}
    head = Head(documents={each.fingerprint.hex(): each.hashed.decode() for each in (OLD, NEW)}, rules=rules)
    found = recorded(None, head=head)
    assert [*found.documents] == [OLD.fingerprint.hex(), NEW.fingerprint.hex()]
    assert found.names.documents.keys() == found.documents.keys()
    assert lines(ONE, found)[0][:2] == (ERROR, of(NEW))
    assert lines(BOTH, found)[0] == (WARNING, of(OLD), "in force in 0 of 1 partitions")


def test_metadata_that_cannot_be_read_count_as_none():
    broken = metadata(ONE)
    object.__setattr__(broken, "totals", "{}")
    assert Recorded.of([broken, metadata(ONE)], Head()).where(OLD.fingerprint.hex()) == [1]
    fields = {
        0: StateLost("another type"),
        1: {"epoch": "x"},
        2: layout.fields(metadata(ONE), layout.meta_key("s", 2)),
    }
    found = check_redis._recorded(Served(ONE, "reports"), fields, 4, Head())
    assert [names is None for names in found.partitions] == [True, True, False, True]


def test_findings_name_each_live_document():
    fleet = ldp.Fleet((NEW, OLD, LARGE), frozenset([LARGE.fingerprint]))
    config = replace(parse(TEXT), streams=(Served(fleet, "reports"),))
    live = [f"privacy of s, document {each.fingerprint.hex()}" for each in (NEW, OLD)]
    found = assess_privacy(config)
    assert [each.subject for each in found] == live
    assert found[0].text != found[1].text
    assert assess_reports(config.streams[0], NewestReports()).text == (
        f"fingerprint {NEW.fingerprint.hex()}, {OLD.fingerprint.hex()}; no record yet"
    )
    assert [each.subject for each in assess_privacy(parse(TEXT))] == ["privacy of s"]


@pytest.fixture
def command(tmp_path, monkeypatch):
    """Runs a command; one of two partitions accepts NEW."""
    (tmp_path / "worker.toml").write_text(TEXT)
    for name, stream in (("old", OLD), ("new", NEW)):
        (tmp_path / f"{name}.json").write_text(json.dumps(stream.document()))

    @contextmanager
    def connected(*_):
        yield None

    found = recorded(BOTH, ONE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(check_kafka.brokers, "connect", connected)
    monkeypatch.setattr(check_kafka, "describe", lambda *_: {"reports": Topic("id-1", 2, 1, {})})
    monkeypatch.setattr(check_redis, "recorded", lambda *_: found)
    monkeypatch.setattr(check_kafka, "look", lambda *_: ([], None, {}, {}))
    monkeypatch.setattr(check_redis, "look", lambda _, __, ___, ____, ship: _ship(found, ship))
    return lambda *arguments: CliRunner().invoke(cli, [*arguments])


def _ship(found, ship):
    return assess_documents(Served(ONE, "reports"), found, Head(), {}, None if ship is None else ship[1])


def test_the_command_prints_configured_and_recorded_documents(command, monkeypatch):
    published = {}

    @contextmanager
    def reader(_, name):
        snapshot = SimpleNamespace(labels=published[name]) if name in published else None
        yield SimpleNamespace(catch_up=lambda _: True, latest=lambda _: snapshot)

    monkeypatch.setattr(snapshot_reader, "SnapshotReader", reader)
    found = command("document")
    assert (found.exit_code, json.loads(found.stdout)) == (0, OLD.document())
    assert command("document", "--fingerprint", OLD.fingerprint.hex()).stdout == found.stdout
    new = NEW.fingerprint.hex()
    found = command("document", "--fingerprint", new)
    assert (found.exit_code, json.loads(found.stdout)) == (0, json.loads(NEW.hashed))
    assert "without its labels: only their SHA-256 is recorded" in found.stderr
    published[f"s@{new}"] = NEW.labels
    found = command("document", "--fingerprint", new)
    assert (found.exit_code, json.loads(found.stdout)) == (0, NEW.document())
    assert "labels" not in found.stderr
    published.update({f"s@{new}": (), "s": [*NEW.labels, "grey"]})
    assert json.loads(command("document", "--fingerprint", new).stdout) == NEW.document()
    found = command("document", "--fingerprint", "01234567")
    names = f"{OLD.fingerprint.hex()}, {NEW.fingerprint.hex()}"
    assert (found.exit_code, found.stdout) == (2, "")
    assert f"'01234567' given; the documents of stream s are {names}" in found.stderr


def test_check_with_a_document_for_clients_needs_it_in_force(command):
    found = command("check", "--document", "new.json", "--json")
    assert found.exit_code == 1
    texts = {each["subject"]: each["text"] for each in json.loads(found.stdout)}
    assert texts[of(NEW)] == "in force in 1 of 2 partitions, not in 1"
    assert texts[of(OLD)] == "in force in 2 of 2 partitions"
    found = command("check", "--document", "none.json")
    assert (found.exit_code, found.stderr) == (2, found.stderr)
    assert "--document: none.json cannot be read (No such file or directory)" in found.stderr


def test_check_with_a_document_for_clients_distinguishes_other_errors(command, monkeypatch):
    """0: it may be shipped; 1: not yet; 2: another error prevents a verdict."""
    both, other = (
        replace(parse(TEXT), streams=(Served(BOTH, "reports"),)),
        Finding(ERROR, "topic x", "missing"),
    )

    def code(fleets, *more):
        found = assess_documents(both.streams[0], recorded(*fleets), Head(), {}, NEW) if fleets else []
        monkeypatch.setattr(check_redis, "look", lambda *_: [*more, *found])
        monkeypatch.setattr(check_kafka, "look", lambda *_: ([], None, {}, {}))
        return command("check", "--document", "new.json").exit_code

    assert code([BOTH, BOTH]) == code([BOTH], Finding(Level.WARNING, "topic x", "small")) == 0
    assert code([BOTH, ONE]) == code([BOTH, ONE], other) == code([BOTH, None]) == 1
    assert code([BOTH, BOTH], other) == code([], other) == code([]) == 2
