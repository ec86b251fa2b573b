"""`ldp-worker watch`: tables, JSON, and the overview of several streams."""

import json
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from rich.console import Console

import ldp
from ldp import snapshot
from ldp.terminal import echo_json
from tests.unit.ldp.test_snapshot_vectors import VECTORS, topic
from worker.cli import overview, shown
from worker.config import parse

STREAM = ldp.Stream("colours", ldp.GRR("1", 3), labels=["red", "[green]", "blue"])


def taken(gaps=None) -> snapshot.Snapshot:
    estimate = STREAM.oracle.estimate(np.array([200, 500, 300]), 1000)
    return replace(
        snapshot.take(STREAM, estimate, snapshot.Cut({0: 9}, gaps or {}), sequence=4), published=5000
    )


@pytest.fixture(autouse=True)
def now(monkeypatch):
    """Lets `watch` run 7 s after the snapshots were published."""
    monkeypatch.setattr(shown, "time", SimpleNamespace(time=lambda: 12.0))


def printed(methods, width, **options) -> str:
    console = Console(width=width, record=True, file=None, quiet=False, force_terminal=False)
    with console.capture() as captured:
        console.print(shown.render(taken(**options), methods, 2, width))
    return captured.get()


def test_the_most_frequent_values_come_first_in_percent():
    text = printed(("norm",), 100)
    base = (0.5 - float(STREAM.oracle.q)) / float(STREAM.oracle.p - STREAM.oracle.q)
    rows = [line for line in text.splitlines() if line.startswith(("red", "[green]", "blue"))]
    assert [row.split()[0] for row in rows] == ["[green]", "blue"]
    assert f"{100 * base:.2f}" in rows[0]
    assert "snapshot 4, 1,000 reports, 7 s old, complete" in text


def test_lost_offsets_are_shown():
    # gaps are [from, to)
    assert "NOT COMPLETE: partition 0 lost offsets 3–4" in printed(("norm",), 120, gaps={0: [(3, 5)]})
    assert "partition 0 lost offsets 3, 7–8\n" in printed(("norm",), 120, gaps={0: [(3, 4), (7, 9)]})


def test_a_snapshot_of_another_stream_is_detected():
    assert shown.foreign(taken(), ldp.Fleet((STREAM,))) is None
    others = [
        ldp.Stream("colours", ldp.GRR("2", 3), labels=STREAM.labels),
        ldp.Stream("colours", ldp.OLH("1", 3), labels=STREAM.labels),
        ldp.Stream("colours", ldp.GRR("1", 3), labels=["red", "green", "blue"]),
    ]
    for other in others:
        warning = shown.foreign(taken(), ldp.Fleet((other,)))
        assert STREAM.fingerprint.hex() in warning
        assert other.fingerprint.hex() in warning


def test_the_latest_snapshot_stays_on_the_terminal_until_interrupted(monkeypatch):
    console = Console(width=100, force_terminal=True, color_system=None)
    monkeypatch.setattr("worker.cli.overview.screen", lambda: console)
    drawn = []

    def draw(newest):
        drawn.append([snapshot.sequence for snapshot in newest.values()])
        return f"screen {len(drawn)}"

    with console.capture() as captured, pytest.raises(KeyboardInterrupt):
        overview.follow([Reading("colours", None, taken(), None)], None, lambda *_: None, draw)
    said = captured.get()
    assert said.index("screen 2") < said.index("screen 3")
    assert drawn == [[], [4], [4]]  # once more with its age, though nothing new came


def test_the_document_contains_the_messages(capsys):
    vector = next(one for one in VECTORS if one["name"] == "plain")
    said = {message["key"]: json.loads(message["body"]) for message in vector["messages"]}
    bodies = {key.split("/")[2]: body for key, body in said.items() if "/all/" in key}
    name = vector["stream"]
    together = {"head": said[f"{name}/head"], "labels": said[f"{name}/domain"]["labels"], "bodies": bodies}
    read = snapshot.assemble(name, topic(vector))
    echo_json(shown.document(read, tuple(bodies)))
    assert json.loads(capsys.readouterr().out) == together


class Reading:
    """A reader of one stream, whose snapshots come one after the other."""

    def __init__(self, stream, *snapshots):
        self.stream, self.coming, self.head, self.progress = stream, list(snapshots), {}, {}

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def catch_up(self, timeout_seconds):
        return True

    @property
    def is_there(self):
        return any(self.coming)

    def latest(self, timeout_seconds):
        if not self.coming:
            raise KeyboardInterrupt
        return self.coming.pop(0)


def several(monkeypatch, second):
    """Returns a configuration of two streams, with one snapshot and the given ones."""
    readers = {"colours": Reading("colours", taken()), "shapes": Reading("shapes", *second)}
    monkeypatch.setattr("worker.cli.overview.reach", lambda config, topic: None)
    monkeypatch.setattr(
        "worker.kafka.snapshots.reader.SnapshotReader", lambda config, name, on_passed: readers[name]
    )
    labels = ["red", "[green]", "blue"]
    stream = (
        f'[[streams]]\nname = "{{}}"\ntopic = "{{}}"\nprotocol = "grr"\nepsilon = "1"\nlabels = {labels}\n'
    )
    return parse(stream.format("colours", "a") + stream.format("shapes", "b"))


def test_a_timeout_before_the_end_of_the_topic_is_reported(monkeypatch, capsys):
    config = several(monkeypatch, [taken()])
    monkeypatch.setattr(Reading, "catch_up", lambda *_: False)
    assert overview.follow_all(config, 3.0, None) == 1
    said = capsys.readouterr()
    assert said.out == ""
    assert "the topic was not read to its end in 3 s; use a longer --timeout" in said.err


def test_each_stream_has_one_line(monkeypatch, capsys):
    config = several(monkeypatch, [replace(taken(), stream="shapes", sequence=5)])
    assert overview.follow_all(config, 10.0, None) == 0
    said = capsys.readouterr()
    assert said.err == ""
    rows = [line.split() for line in said.out.splitlines()]
    frequency = f"{100 * taken().bodies['base'].frequencies[1]:.2f}"
    assert rows[1:] == [
        ["colours", "4", "1,000", "7", "s", "[green],", frequency, "%", "complete"],
        ["shapes", "5", "1,000", "7", "s", "[green],", frequency, "%", "complete"],
    ]


def test_a_stream_without_a_snapshot_is_reported(monkeypatch, capsys):
    config = several(monkeypatch, [None, None, None])
    assert overview.follow_all(config, 0.0, None) == 1
    said = capsys.readouterr()
    assert said.out.splitlines()[-1].split() == ["shapes", "no", "snapshot", "yet"]
    assert "no snapshot of some streams; waiting for them" in said.err
    assert "no snapshot of shapes after 0 s" in said.err


@pytest.mark.parametrize("as_json", [None, ("base",)])
def test_without_a_terminal_each_new_snapshot_is_one_line(monkeypatch, capsys, as_json):
    config = several(monkeypatch, [None, replace(taken(), stream="shapes")])
    with pytest.raises(KeyboardInterrupt):
        overview.follow_all(config, None, as_json)
    first, *others = capsys.readouterr().out.splitlines()
    if as_json is None:
        assert (first, others) == ("colours: snapshot 4, 1,000 reports, complete", [])
    else:
        assert json.loads(first)["bodies"].keys() == {"base"}
