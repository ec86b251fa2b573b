"""The reader of the snapshot topic, and `ldp-worker watch`, for populations, documents and segments."""

import json
from dataclasses import replace

import numpy as np
import pytest

import ldp
from ldp import snapshot
from ldp.snapshot import Closed, Cut
from tests.unit.worker import test_snapshot_reader as reader_tests
from tests.unit.worker.test_snapshot_reader import STREAM, hour, publish
from worker.kafka.snapshots import reader as snapshots

config, log, watch = reader_tests.config, reader_tests.log, reader_tests.watch  # fixtures
NEW = ldp.Stream("s", ldp.OUE("1", 3), ["blue", "grey", "red"])
NEVER = ldp.Stream("s", ldp.OUE("1", 2), ["blue", "black"])
FLEET = ldp.Fleet((STREAM, NEW, NEVER))
NAMES = [document.fingerprint.hex() for document in FLEET.documents]
OLD_PART, NEW_PART = (snapshot.part_of("s", document=name) for name in NAMES[:2])
SEGMENT, CITY = (snapshot.part_of("s", segment=name) for name in ("DE", "DE:berlin"))
PROGRESS = {"1h": Closed(0), "24h every 1h": Closed(0)}


def taken(window=snapshot.ALL_TIME, sequence=1, n=15, part=None, progress=PROGRESS):
    cut = Cut({0: sequence}, {}, floors={0: 0}, progress=progress)
    counts = np.array([n // 3] * 3)
    estimates = [STREAM.oracle.estimate(counts, n), NEW.oracle.estimate(counts, n), None]
    fleet, estimate = FLEET, FLEET.estimate(estimates)
    if part in (OLD_PART, NEW_PART):
        number = (OLD_PART, NEW_PART).index(part)
        fleet, estimate = FLEET.documents[number], estimates[number]
    identity, queries = f"{sequence:032x}", [ldp.query.SetQuery("dark", (4,))] if fleet is FLEET else []
    return snapshot.take(fleet, estimate, cut, sequence, queries, identity=identity, window=window, part=part)


def reads(config, stream, *asked):
    return snapshots.SnapshotReader(config, stream, *asked)


def everything(log, sequence=1, windows=(), **more):
    parts = [taken(sequence=sequence, part=part, **more) for part in (OLD_PART, NEW_PART, SEGMENT, CITY)]
    of_windows = [
        taken(window, sequence, part=part, **more)
        for window in windows
        for part in (None, OLD_PART, NEW_PART, SEGMENT, CITY)
    ]
    publish(log, taken(sequence=sequence, **more), *parts, *of_windows)


@pytest.mark.parametrize("name", ["s", OLD_PART, NEW_PART, SEGMENT, CITY])
def test_each_part_is_read_by_its_name(config, log, name):
    everything(log, 1, [hour(1, final=True)])
    publish(log, taken(sequence=2))  # heads without new snapshots of parts
    publish(log, taken(sequence=3))
    part = None if name == "s" else name
    with reads(config, name) as reader:
        read = reader.latest(1)
        assert read == taken(sequence=1 if part else 3, part=part)
        assert read.labels == (FLEET.labels if part in (None, SEGMENT, CITY) else read.estimate().labels)
        assert reader.head["sequence"] == 3  # the head of the stream
        assert reader.windows == [hour(1, final=True)]
        due = {b"s/head", b"s/domain", f"{name}/head".encode()}
        assert {record.key for record in log if record.key.startswith(reader._consumer.begins)} >= due
    with reads(config, name, "1h") as reader:
        assert reader.latest(1) == taken(hour(1, final=True), 1, part=part)


def test_windows_of_parts_are_listed_by_a_later_head(config, log):
    for part in (None, OLD_PART, SEGMENT):  # compaction removed the heads
        publish(log, taken(hour(1, final=True), 1, part=part))
    everything(log, 2)
    for name in ("s", OLD_PART, SEGMENT):
        with reads(config, name, "1h") as reader:
            assert reader.latest(1) == taken(hour(1, final=True), 1, part=None if name == "s" else name)


def test_a_deleted_window_of_a_part_is_absent(config, log):
    windows = [hour(1, final=True), hour(2, final=True)]
    everything(log, 1, windows)
    for message in snapshot.delete_part(taken(), SEGMENT, windows[1], ["base"]):
        log.append(reader_tests.Record(message.key.encode(), None, message.headers(2), len(log)))
    for name, due in (("s", windows), (SEGMENT, windows[:1]), (CITY, windows), (NEW_PART, windows)):
        with reads(config, name) as reader:
            assert reader.catch_up(1)
            assert reader.windows == due


def test_the_head_of_the_stream_lists_the_windows_of_parts(config, log):
    everything(log, 1, [hour(1, final=True), hour(2, final=True)])
    forged = taken(
        hour(2, final=True), 2, n=9, part=SEGMENT
    )  # the next number, but another snapshot's identity
    publish(log, taken(sequence=2, progress={"1h": Closed(0, starts=(2 * reader_tests.HOUR,))}))
    publish(log, taken(hour(3, final=True), 1, part=SEGMENT))  # no head lists it
    publish(log, replace(forged, identity="ab" * 16))
    with reads(config, SEGMENT, "1h") as reader:
        assert reader.latest(1) == taken(hour(2, final=True), 1, part=SEGMENT)
    with reads(config, SEGMENT, "1h", 3 * reader_tests.HOUR) as reader:
        assert reader.latest(0) is None
    publish(log, taken(hour(2, final=True), 2, n=9, part=SEGMENT))
    with reads(config, SEGMENT, "1h") as reader:
        assert reader.latest(1) == forged


def test_a_segment_waits_for_the_labels_of_the_stream(config, log):
    publish(log, taken(part=SEGMENT))
    with reads(config, SEGMENT) as reader:
        assert reader.latest(0.1) is None
        assert "'s/domain' is missing" in reader.why_not
        publish(log, taken())
        assert reader.latest(1) == taken(part=SEGMENT)


@pytest.mark.parametrize("name", ["s", OLD_PART, SEGMENT])
def test_watch_shows_populations_and_parts(watch, log, name):
    everything(log)
    shown = watch("--stream", name, "--once")
    assert f"{name}: snapshot 1, {'15' if name == OLD_PART else '30'} reports" in shown.output
    assert "NOT THE CONFIGURED STREAM" not in shown.output
    assert "nan" not in shown.output
    assert "black" not in shown.output  # no report has a document with this label
    document = json.loads(
        watch("--stream", name, "--once", "--json").stdout,
        parse_constant=pytest.fail,
    )
    assert document["head"]["stream"] == name
    body = document["bodies"]["norm-sub"]
    assert body["frequencies"].count(None) == (0 if name == OLD_PART else 1)
    assert body.get("additive") is (None if name == OLD_PART else False)


def test_watch_explains_a_missing_part(watch, log):
    publish(log, taken())
    shown = watch("--stream", SEGMENT, "--once", "--timeout", "0.1")
    assert shown.exit_code == 1
    missing = "no snapshot of s:DE (a document or a declared segment needs snapshots.parts_fewest reports)"
    assert f"{missing} in topic ldp-snapshots after 0.1 s\n" in shown.output
    shown = watch("--stream", "other:DE", "--once")
    assert shown.exit_code != 0
    assert "'other' given; the configuration has s" in shown.output
