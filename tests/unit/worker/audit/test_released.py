"""The audit recounts the released part of the counts from the log and the head."""

import json
from dataclasses import replace

import numpy as np
import pytest

from ldp.snapshot import ALL_TIME
from tests.unit.worker.audit.publishing import LENGTH, World
from tests.unit.worker.audit.streams import STREAMS
from tests.unit.worker.audit.test_windows import HOPS, START, TENS, Counting
from worker.counting.cells import Cell
from worker.publishing import publisher
from worker.publishing.planning import Plan

CASES = [
    ("grr-3", HOPS, 3),
    ("olh-mul32", TENS, 4),
    ("hadamard-10", HOPS, 8),
    ("pgr-10", TENS, 5),
    ("response-5", HOPS, 3),
    ("response-5", TENS, 2),
    ("oue-10", replace(HOPS, windowing=None), 9),
    ("response-5", replace(HOPS, windowing=None), 30),
]


def ran(seed: int) -> World:
    name, limits, fewest = CASES[seed % len(CASES)]
    return World(seed, replace(limits, fewest_new=fewest), stream=STREAMS[name]).run()


@pytest.mark.parametrize("seed", range(24))
def test_released_counts_are_recounted_from_the_log_and_the_head(seed):
    world = ran(seed)
    verdict = world.audit()
    assert (verdict.verdict, verdict.difference) == ("equal", None)
    windowing = CASES[seed % len(CASES)][1].windowing
    assert verdict.recounted == verdict.finals == world.counts()[0]
    assert (verdict.finals > 1) == (windowing is not None)
    assert verdict.provisional == 0
    assert ("late" in world.wholes()) == (windowing is not None)


@pytest.mark.parametrize("seed", range(4))
def test_a_change_of_m_is_recounted(seed):
    """Windows were shown in part before the first change, and panes are decided by the m of their time."""
    first, then = replace(HOPS, fewest_new=(0, 3)[seed % 2]), replace(HOPS, fewest_new=5)
    verdict = World(seed, first, [(START + 50, then)]).run().audit()
    assert (verdict.verdict, verdict.difference) == ("equal", None)
    assert verdict.recounted == verdict.finals > 1


@pytest.mark.parametrize("limits", [HOPS, TENS])
@pytest.mark.parametrize("ms", [(8, 0), (5, 0, 12), (12, 0, 5)])
@pytest.mark.parametrize("seed", range(1, 4))
def test_windows_of_a_former_limit_are_equal(seed, ms, limits):
    """Such windows lack reports, or are not on the topic, and the newest head does not record why."""
    first, *others = (replace(limits, fewest_new=m) for m in ms)
    changes = [(START + 90 + 15 * i, then) for i, then in enumerate(others)]
    world, withheld = World(seed, first, changes, retain=10**9), set()
    for since in range(0, LENGTH, 5):
        world.run(to=since + 5, step=5, since=since)
        verdict = world.audit()
        assert (verdict.verdict, verdict.difference) == ("equal", None)
        bodies = [json.loads(each.value) for each in world.topic if each.value and each.key.endswith("/base")]
        withheld |= {body.get("withheld") for body in bodies if body["window"]["start"]}
    assert {None, 0} <= withheld
    assert seed > 1 or limits is TENS or withheld - {None, 0}  # windows of several panes were shown in part


@pytest.mark.parametrize("seed", range(4))
def test_open_windows_are_deleted_from_the_topic_and_the_list_when_a_limit_begins(seed):
    world = World(seed, HOPS, [(START + 50, replace(HOPS, fewest_new=5))], retain=10**9)
    open_before = 0
    for since in range(0, LENGTH, 5):
        world.run(to=since + 5, step=5, since=since)
        verdict = world.audit()
        assert (verdict.verdict, verdict.difference) == ("equal", None)
        if "released" in world.head():
            assert verdict.provisional == 0
        else:
            open_before = verdict.provisional
    assert open_before
    assert "released" in world.head()


@pytest.mark.parametrize("seed", range(4))
def test_counts_behind_the_head_have_no_other_panes(seed):
    """Redis was restored from a backup. Before the snapshot's offsets, `late` needs panes that Redis has merged."""
    world = World(seed, replace(HOPS, fewest_new=3)).run(to=75)
    before = [(replace(each.metadata), dict(each.blobs)) for each in world.partitions]
    world.run(since=75)
    for each, (metadata, blobs) in zip(world.partitions, before, strict=True):
        each.metadata, each.blobs = metadata, blobs
    assert world.audit().difference is None


def changed(world, key, change):
    """The topic with the newest document of a key changed."""
    topic = [replace(each) for each in world.topic]
    newest = [each for each in topic if each.key == key and each.value][-1]
    said = json.loads(newest.value)
    change(said)
    newest.value = json.dumps(said).encode()
    return topic


def test_wrong_fields_of_a_release_are_detected():
    world = ran(0)
    head = world.head()["released"]
    final = next(
        each.key
        for each in world.topic
        if each.key.endswith("/base") and each.headers.get("final") == b"true"
    )

    def step(said):
        said["released"]["fewest"][-1][1] += 20

    def fewer(said):
        said["withheld"] += 1

    def closed(said):
        said["released"]["closed"] -= 10_000

    def rest(said):
        said["rest"]["offsets"]["0"] -= 30

    def lost(said):
        said["rest"]["lost"] += 1

    def reports(said):
        said["reports"]["all"] += 1

    def late(said):
        said["reports"]["late"] -= 1

    assert head["fewest"] == [[0, 3]]
    changes = {final: [fewer], "s/head": [step, closed], rest_key(world): [rest, lost, reports, late]}
    for key, change in ((key, change) for key, own in changes.items() for change in own):
        verdict = world.audit(topic=changed(world, key, change))
        assert verdict.verdict == "different", change


def rest_key(world):
    """The key of the newest message with the released counts."""
    return [each.key for each in world.topic if each.key.endswith("/released") and each.value][-1]


def rest_of(world):
    return json.loads([each.value for each in world.topic if each.key == rest_key(world)][-1])["rest"]


@pytest.mark.parametrize("what", ["all", "late"])
def test_wrong_and_missing_released_counts_are_detected(what):
    world, key = ran(0), f"{rest_key(ran(0))}/{what}/0"
    topic = [replace(each) for each in world.topic]
    newest = [each for each in topic if each.key == key][-1]
    newest.value = newest.value[4:] + newest.value[:4]
    assert "other counts recounted" in world.audit(topic=topic).difference
    topic = [each for each in world.topic if each.key != key]
    assert "of 3 messages are on the topic" in world.audit(topic=topic).difference
    topic = [each for each in world.topic if not each.key.startswith(rest_key(world))]
    assert "reports published" in world.audit(topic=topic).difference


def test_reports_withheld_without_a_limit_are_detected(monkeypatch):
    """The publisher leaves a report out of each final window, and calls it withheld."""

    def lacking(plan, window=ALL_TIME):
        counted = counted_of(plan, window)
        if not window.final or counted.n < 2:
            return counted
        ((cell,),) = (cells.values() for cells in counted.cells.values())
        cell.state[cell.state.argmax()] -= 1
        cell.reports -= 1
        one = {name: {"": Cell(1, own[""].state)} for name, own in counted.cells.items()}
        return replace(counted, withheld=replace(counted, cells=one))

    counted_of = Plan.counted
    world = World(1, HOPS, retain=10**9, stream=STREAMS["grr-3"]).run()
    assert world.audit().verdict == "equal"
    monkeypatch.setattr(Plan, "counted", lacking)
    world = World(1, HOPS, retain=10**9, stream=STREAMS["grr-3"]).run()
    assert "recounted" in world.audit().difference


def _whole_rest(late, counts):
    return counts


def _no_rest(late, counts):
    return counts - counts


def _another_value(late, counts):
    return replace(late, vector=np.roll(late.vector, 1))


@pytest.mark.parametrize("wrong", [_whole_rest, _no_rest, _another_value])
def test_a_wrong_late_is_detected(wrong, monkeypatch):
    """Base and all methods follow from the wrong counts."""
    releasing = publisher.releasing

    def mutant(plan, *given):
        found = releasing(plan, *given)
        shown = {key: own.shown for key, own in found.release.items()}
        shown = {key: replace(own, late=wrong(own.late, own.counts)) for key, own in shown.items()}
        released = {key: replace(own, shown=shown[key]) for key, own in found.release.items()}
        return replace(found, release=released)

    monkeypatch.setattr(publisher, "releasing", mutant)
    verdict = ran(0).audit()
    assert verdict.verdict == "different"
    assert verdict.difference.startswith(("window late: ", "released counts of "))


def test_late_of_another_snapshot_is_detected():
    world = ran(0)
    newest = world.head()["sequence"]
    old = [
        each for each in world.topic if "s/late/" not in each.key or int(each.headers["sequence"]) < newest
    ]
    assert "expected in snapshot" in world.audit(topic=old).difference
    without = [each for each in world.topic if "s/late/" not in each.key]
    assert (
        f"published in snapshots [], expected in snapshot {newest}" in world.audit(topic=without).difference
    )
    unlimited = World(0, HOPS, stream=STREAMS["grr-3"]).run()
    late = [
        replace(each, key=each.key.replace("s/all", "s/late"))
        for each in unlimited.topic
        if "/all/" in each.key
    ]
    for each in late:
        said = json.loads(each.value)
        each.value = json.dumps(said | {"window": said["window"] | {"name": "late"}}).encode()
        each.headers = each.headers | {"parts": b"11"}
    newest = unlimited.head()["sequence"]
    late = [each for each in late if int(each.headers["sequence"]) == newest]
    assert "expected in none" in unlimited.audit(topic=[*unlimited.topic, *late]).difference


def test_counts_released_before_a_loss_are_not_recountable():
    """The store and a part of the log are lost, so that published reports cannot be counted again."""
    limits = replace(HOPS, windowing=None, fewest_new=20)
    world = World(6, limits, stream=STREAMS["grr-3"]).run()
    assert (world.audit().verdict, world.head()["gaps"]) == ("equal", {})
    before = rest_of(world)
    lost = before["offsets"]["0"] - 10
    for each in world.partitions:
        each.counting = Counting(each.rng, each.counting.records, limits)
        each.state.skip(lost)
        each.counting.to(START + LENGTH, droppings=False)
    world.tick()
    assert (rest_of(world), len(world.head()["gaps"])) == (before, 2)
    verdict = world.audit(begin=lost)
    assert verdict.verdict == "gap"
    assert verdict.published is None
    assert verdict.unknown.startswith("the newest snapshot cannot be recounted")
