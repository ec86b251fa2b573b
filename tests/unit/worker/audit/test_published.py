"""Snapshots of the worker's publisher, recounted by the audit; every changed message is found."""

import json
from dataclasses import replace
from datetime import datetime, timedelta

import numpy as np
import pytest

from tests.unit.worker.audit.publishing import LENGTH, Partition, World, of_final
from tests.unit.worker.audit.streams import STREAMS
from tests.unit.worker.audit.test_windows import HOPS, MANY, PLAIN, SHORTER, START, TENS
from worker.audit import verification
from worker.cli.audit import outcome
from worker.counting.ports import Unavailable
from worker.counting.rules import RecordLimits, Rule
from worker.counting.windows import Windowing
from worker.publishing import taking

CASES = [
    (TENS, [(START + 50, HOPS)]),
    (MANY, [(START + 70, TENS)]),
    (HOPS, ()),
    (PLAIN, [(START + 30, SHORTER)]),
]


@pytest.mark.parametrize("seed", range(8))
def test_every_published_snapshot_is_recounted(seed):
    limits, changes = CASES[seed % len(CASES)]
    world = World(seed, limits, changes, retain=(None, 60_000)[seed % 2], queries=seed % 4 == 0).run()
    finals, provisional = world.counts()
    for topic in (world.topic, world.compacted()):
        verdict = world.audit(topic=topic)
        assert (verdict.verdict, verdict.difference) == ("equal", None)
        assert (verdict.finals, verdict.recounted) == (finals, finals)
        assert (verdict.provisional, verdict.provisional_recounted) == (provisional, provisional)
    assert finals + provisional > 1


def topic_with(world, places, change, headers=None):
    """The topic with some of its documents changed, and their headers."""
    topic = [replace(each) for each in world.topic]
    for i in places:
        if not topic[i].value.startswith(b"{"):
            continue
        said = json.loads(topic[i].value)
        change(said)
        topic[i].value = json.dumps(said).encode()
        topic[i].headers = topic[i].headers | (headers or {})
    return topic


def bodies(world, of, method=None):
    """Positions of a window's bodies, or of the newest snapshot; for one method, or for all with the head."""
    places = [i for i in world.wholes()[of] if not world.topic[i].key.startswith("s/domain")]
    return [i for i in places if method in (None, world.topic[i].key.rpartition("/")[2])]


def of_kind(world, final):
    """A final or open window; others of its name lie before and after it."""
    found = [of for of, at in world.wholes().items() if of != "all" and of_final(world.topic[at[0]]) == final]
    found.sort(key=lambda of: (of.split("/")[0], int(of.split("/")[1])))
    return found[len(found) // 2]


def shifted(said, by):
    """Moves a window's document to another window."""
    for which in ("start", "end"):
        time = datetime.fromisoformat(said["window"][which]) + timedelta(milliseconds=by)
        said["window"][which] = time.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def offset_back(said):
    partition = next(p for p, offset in said["offsets"].items() if offset > START + 20)
    said["offsets"][partition] -= 15


def bumped(said):
    said["frequencies"][1] = float(np.nextafter(said["frequencies"][1], 9))


def entry(key, by):
    return lambda said: said.update({key: said[key] + by})


EVERYWHERE = {
    "reports one more": (entry("reports", 1), "reports"),
    "reports one less": (entry("reports", -1), "reports"),
    "an offset back": (offset_back, ""),
    "another partition": (lambda said: said["offsets"].update({"7": 3}), "partition 7 does not exist"),
    "without a partition": (lambda said: said["offsets"].pop("1"), ""),
    "not complete": (
        lambda said: said.update(complete=False),
        "published as not complete, but it is complete",
    ),
    "a gap": (lambda said: said["gaps"].update({"0": [[START, START + 1]]}), "gaps of partition 0: "),
    "another number": (entry("sequence", 1), "snapshot"),
    "another fingerprint": (lambda said: said.update(fingerprint="00000000"), ""),
}
IN_ONE = {
    "a value": (lambda said: said["frequencies"].__setitem__(1, said["frequencies"][1] + 1e-3), ""),
    "a value too few": (lambda said: said["frequencies"].pop(), "2 frequencies published, expected 3"),
    "reports": (entry("reports", 1), "has reports"),
    "offsets": (offset_back, "has offsets"),
    "complete": (lambda said: said.update(complete=not said["complete"]), "has complete"),
    "the sum": (entry("sum", 0.01), "sum is"),
    "the standard error": (entry("standard_error", 0.01), "standard_error is"),
    "the identity": (lambda said: said.update(snapshot="0" * 32), "has snapshot"),
    "the method": (lambda said: said.update(method="norm"), "the key of "),
    "an answer": (lambda said: said["queries"][0].update(frequency=2.0), "query 'some'"),
    "the top": (lambda said: said["top"][0]["values"].reverse(), "query 'most'"),
}


@pytest.fixture(scope="module")
def world():
    world = World(1, HOPS, retain=40_000, queries=True).run(to=100)
    assert world.audit().verdict == "equal"
    assert min(world.counts()) > 3
    return world


def found(world, topic, of, said=""):
    verdict = world.audit(topic=topic)
    assert verdict.verdict == "different", "nobody noticed"
    assert verdict.published is not None
    where = ("the newest snapshot: ", "snapshot ", "head") if of == "all" else (f"window {of}: ",)
    assert verdict.published.startswith(where), verdict.published
    assert said in verdict.published, verdict.published


@pytest.mark.parametrize("kind", ["final", "provisional", "all"])
@pytest.mark.parametrize("what", EVERYWHERE)
def test_all_messages_of_a_snapshot_are_compared_with_the_log(world, kind, what):
    change, said = EVERYWHERE[what]
    of = "all" if kind == "all" else of_kind(world, kind == "final")
    topic = topic_with(world, bodies(world, of), change)
    if what == "another fingerprint" and of != "all":  # no window of this stream, so one is missing
        assert world.audit(topic=topic).verdict == "different"
    else:
        found(world, topic, of, said)


@pytest.mark.parametrize("kind", ["final", "provisional", "all"])
def test_each_message_is_compared_with_the_other_messages(world, kind):
    of = "all" if kind == "all" else of_kind(world, kind == "final")
    places = bodies(world, of)
    odd = topic_with(world, places[1:2], lambda said: None, {"parts": b"99"})
    found(world, odd, of, "differ from its other messages")

    def of_another(said):
        if "document" in said:
            said["document"].update(epsilon="2/1")

    found(world, topic_with(world, places, of_another), of, "another document")


def test_labels_of_another_stream_are_detected(world):
    (place,) = [i for i in world.wholes()["all"] if world.topic[i].key == "s/domain"]
    topic = topic_with(world, [place], lambda said: said["labels"].reverse())
    found(world, topic, "all", "the published labels")


@pytest.mark.parametrize("kind", ["final", "all"])
@pytest.mark.parametrize("what", IN_ONE)
@pytest.mark.parametrize("method", ["base", "power-ns"])
def test_each_message_of_a_snapshot_is_compared_with_the_others(world, kind, what, method):
    change, said = IN_ONE[what]
    of = "all" if kind == "all" else of_kind(world, kind == "final")
    found(world, topic_with(world, bodies(world, of, method), change), of, "" if method == "base" else said)


@pytest.mark.parametrize("kind", ["final", "provisional", "all"])
def test_a_flipped_last_bit_of_the_plain_estimate_is_detected(world, kind):
    of = "all" if kind == "all" else of_kind(world, kind == "final")
    found(world, topic_with(world, bodies(world, of, "base"), bumped), of, "frequency[1] is ")


def without(world, places):
    return [each for i, each in enumerate(world.topic) if i not in set(places)]


def tombstones(world, of):
    places = world.wholes()[of]
    return [replace(world.topic[i], value=b"") for i in places]


def test_a_missing_message_is_detected(world):
    for of in (of_kind(world, True), of_kind(world, False), "all"):
        for place in world.wholes()[of][::4]:
            if world.topic[place].key != "s/head":
                found(world, without(world, [place]), of, "messages are on the topic")


@pytest.mark.parametrize("final", [True, False])
def test_a_missing_window_is_detected(world, final):
    of = of_kind(world, final)
    places = [i for i, each in enumerate(world.topic) if each.key.startswith(f"s/{of}/")]
    found(world, without(world, places), of, "not")
    if not final:  # the one before is there still
        found(world, without(world, world.wholes()[of]), of, "not on the topic")


def test_a_republished_final_window_is_detected(world):
    of = of_kind(world, True)
    places = world.wholes()[of]
    again = [replace(world.topic[i]) for i in places]
    found(world, world.topic + again, of, "published twice")
    found(world, world.topic + again[:1], of, "published twice")
    number = {"sequence": str(world.head()["sequence"]).encode(), "snapshot": b"0" * 32}
    later = [replace(each, headers=each.headers | number) for each in again]
    found(world, world.topic + later, of, "already final")
    provisional = [replace(each, headers=each.headers | {"final": b"false"}) for each in later]
    found(world, world.topic + provisional, of, "already final")
    # after compaction only the last one is left, so its number decides
    compacted = [each for each in world.compacted() if not each.key.startswith(f"s/{of}/")]
    world_after = [replace(each, headers=each.headers | {"sequence": b"1"}) for each in again]
    found(world, compacted + world_after, of, "published after")


def test_a_wrong_final_flag_is_detected(world):
    for final, why in ((True, "provisional"), (False, "closed")):
        of = of_kind(world, final)
        label = {"final": b"false" if final else b"true"}

        def relabelled(said, final=final):
            said["window"]["final"] = not final

        found(world, topic_with(world, bodies(world, of), relabelled, label), of, why)
        found(world, topic_with(world, bodies(world, of), relabelled), of, "the headers have")


def test_a_key_of_another_window_is_detected(world):
    of = of_kind(world, True)
    name, start = of.split("/")
    for other in (f"{name}/{int(start) + 10_000}", f"{name}/{int(start) + 1}", f"20s/{start}"):
        topic = [replace(each) for each in world.topic]
        for i in world.wholes()[of]:
            topic[i].key = topic[i].key.replace(of, other)
        assert world.audit(topic=topic).verdict == "different"
        for i in world.wholes()[of]:  # its document is deleted with it, but its counts remain
            said = json.loads(topic[i].value)
            shifted(said, int(other.split("/")[1]) - int(start))
            topic[i].value = json.dumps(said).encode()
        assert world.audit(topic=topic).verdict == "different"


def test_early_and_missing_tombstones_are_detected(world):
    for final in (True, False):
        of = of_kind(world, final)
        verdict = world.audit(topic=world.topic + tombstones(world, of))
        assert verdict.published is not None
        assert verdict.published.startswith(f"window {of}: ")
        found(world, world.topic + tombstones(world, of)[:1], of, "messages are on the topic")
    deleted = {each.key.rpartition("/")[0].removeprefix("s/") for each in world.topic if not each.value}
    assert deleted
    for of in deleted:
        kept = [each for each in world.topic if each.value or not each.key.startswith(f"s/{of}/")]
        found(world, kept, of, "but still on the topic")


def difference(world, change):
    """Findings of the audit after a change of the newest head."""
    (place,) = [i for i in world.wholes()["all"] if world.topic[i].key == "s/head"]
    verdict = world.audit(topic=topic_with(world, [place], change))
    assert verdict.verdict == "different"
    return verdict.difference


def test_every_changed_field_of_the_head_is_detected(world):
    head = world.head()
    line, floor, rule = head["windows"]["10s"], head["floors"]["1"], head["rules"]["0"][0]

    def of_line(**said):
        return lambda head: head["windows"]["10s"].update(said)

    for at in (5_000, floor + 10_000):
        assert "admitted_from: " in difference(world, lambda head, at=at: head["floors"].update({"1": at}))
    for closed in (line["closed"] + 10_000, line["closed"] - 10_000, 0):
        assert "closed" in difference(world, of_line(closed=closed))
    for rules in ([rule | {"most_reports": 9}], [rule | {"grace": 9}], [rule, rule | {"offset": 150}]):
        assert "rules: " in difference(world, lambda head, rules=rules: head["rules"].update({"0": rules}))
    assert "fingerprint 00000000" in difference(world, lambda head: head.update(fingerprint="00000000"))
    changes = {"reports": 3, "offsets": {"0": START}, "complete": False, "gaps": {"0": [[100, 101]]}}
    changes |= {"uncounted": [1], "sequence": head["sequence"] + 1, "snapshot": "0" * 32, "stream": "other"}
    changes |= {"published": head["published"] + 1}
    for what, other in changes.items():
        assert difference(world, lambda head, what=what, other=other: head.update({what: other}))
    starts = line["starts"]
    assert "unlisted since" in difference(world, of_line(starts=[*starts[:1], *starts[2:]]))
    assert "still on the topic" in difference(world, of_line(starts=starts[1:]))
    assert "lists it, but" in difference(world, of_line(starts=[*starts, max(starts) + 990_000]))
    # and with no head before it that could have listed it
    topic = [each for each in world.compacted() if each.key != "s/head"]
    head["windows"]["10s"]["starts"] = [*starts[:1], *starts[2:]]
    (last,) = [each for each in world.compacted() if each.key == "s/head"]
    topic.append(replace(last, value=json.dumps(head).encode()))
    assert "does not list it" in world.audit(topic=topic).published


def test_a_transaction_has_one_time_of_publication_which_decides_nothing(monkeypatch):
    clock = iter(range(10**6, 0, -1))  # goes back, as the clock of the next publisher can
    monkeypatch.setattr(taking, "_now", lambda: next(clock))
    world = World(2, HOPS, retain=40_000, queries=True).run(to=60)
    times = {}
    for each in world.topic:
        if each.headers["content-type"] == b"application/json" and each.value and "/domain" not in each.key:
            times.setdefault(int(each.headers["sequence"]), set()).add(json.loads(each.value)["published"])
    assert list(times.values()) == [{10**6 - i} for i in range(len(times))]
    assert len(times) > 3
    assert any(is_of_a_window(each) and each.value for each in world.topic)
    assert world.audit().published is None

    sent, publish = len(world.topic), world.publish
    world.tick(3)  # the same counts at a later time
    assert len(world.topic) == sent

    def unknown(*given):
        publish(*given)
        raise Unavailable("the outcome is unknown")

    monkeypatch.setattr(world, "publish", unknown)
    for each in world.partitions:
        each.counting.to(START + 65, droppings=False)
    world.tick()
    monkeypatch.setattr(world, "publish", publish)
    sequence = world.open().sequence
    assert sequence == max(times) + 1
    world.tick(3)  # the head is read again, and has all counts
    assert world.open().sequence == sequence
    assert world.audit().published is None


def unlisted(world, change=lambda said: None, gone=lambda sent: True):
    """The topic after compaction, without expired windows; its newest head lists no windows."""

    def bare(said):
        for line in said["windows"].values():
            line["starts"] = []
        change(said)

    (place,) = [i for i in world.wholes()["all"] if world.topic[i].key == "s/head"]
    topic = topic_with(world, [place], bare)
    newest = {each.key: i for i, each in enumerate(topic)}
    topic = [each for i, each in enumerate(topic) if newest[each.key] == i]
    return [each for each in topic if not is_of_a_window(each) or not (each.value and gone(each))]


def is_of_a_window(sent):
    return sent.key.split("/")[1] not in ("head", "all", "domain")


def test_open_windows_are_required_even_if_the_head_lists_none(world):
    verdict = world.audit(topic=unlisted(world))
    assert verdict.verdict == "different"
    assert "not on the topic, but has " in verdict.published
    of = of_kind(world, False)
    name = of.split("/")[0]

    def gone(sent):
        return sent.key.startswith(f"s/{of}/")

    def bounded(said):
        said["windows"][name]["bounded"] = [[said["windows"][name]["closed"] + 1, 10**9]]

    found(world, unlisted(world, gone=gone), of, "not on the topic, but has ")
    # bounded windows or later times do not change that
    for change in (bounded, lambda said: said.update(reached=10**6)):
        assert world.audit(topic=unlisted(world, change, gone)).verdict == "different"


def test_missing_final_windows_are_counted(world):
    finals, provisional = world.counts()
    whole = world.audit()
    verdict = world.audit(topic=unlisted(world, gone=of_final))
    assert (verdict.verdict, verdict.finals, verdict.recounted) == ("equal", 0, 0)
    assert verdict.provisional_recounted == provisional
    assert verdict.gone == finals + whole.gone
    assert outcome(verdict).endswith(f"; windows: {verdict.gone} closed, none of them on the topic")
    # windows deleted by retention give the same finding; without retention all are present
    deleted = {each.key.rpartition("/")[0] for each in world.topic if not each.value and is_of_a_window(each)}
    assert whole.gone == len(deleted)
    assert outcome(whole).endswith(f", {finals} of them on the topic") == bool(deleted)


def test_a_head_that_omits_counted_windows_is_detected(world):
    verdict = world.audit(topic=unlisted(world, lambda said: said["windows"].clear()))
    assert verdict.published.endswith("lacks windows '10s', which are counted")
    # and one that is left alone, as are those that only admit
    topic = [each for each in unlisted(world) if each.key == "s/head"]
    alone = [replace(each, headers=each.headers | {"parts": b"1"}) for each in topic]
    assert world.audit(topic=alone).published.endswith("reports, but its snapshot is not on the topic")


@pytest.mark.parametrize("tombstone", [False, True])
def test_windows_without_a_head_are_reported(world, tombstone):
    finals, provisional = world.counts()
    topic = [each for each in world.topic if each.key != "s/head"]
    topic += [replace(world.topic[0], key="s/head", value=b"")] * tombstone
    verdict = world.audit(topic=topic)
    said = f"windows: {finals + provisional} on the topic without a head, so none is compared"
    assert (verdict.verdict, verdict.difference) == ("not recountable", said)
    verdict = world.audit(topic=[each for each in topic if not is_of_a_window(each)])
    assert (verdict.verdict, verdict.difference) == ("equal", None)


def test_a_closed_time_beyond_every_partition_is_detected(world):
    most = max(each.state.windows.closed for each in world.partitions)
    message = f"closed up to {most + 1}, but the partitions only up to {most} at its offsets"
    assert message in difference(world, lambda head: head.update(reached=most + 1))
    heads = [i for i, each in enumerate(world.topic) if each.key == "s/head"]
    reached = world.head()["reached"]
    # as if the last head had admitted partition 1
    topic = topic_with(world, heads[:-1], lambda head: head["floors"].pop("1", None))
    changed = topic_with(world, heads[-1:], lambda head: head["floors"].update({"1": reached + 1}))
    topic[heads[-1]] = changed[heads[-1]]
    message = f"floor {reached + 1} of partition 1, but windows are closed only up to {reached}"
    assert world.audit(topic=topic).published.endswith(message)


def test_windows_that_some_partitions_lacked_are_not_required():
    world = World(1, TENS).run(to=60)
    ahead, behind = world.partitions
    ahead.state.set_rules([*ahead.state.rules, Rule(ahead.state.offset, 2, HOPS)])
    ahead.counting.to(START + LENGTH, droppings=False)
    world.tick()
    assert "40s every 20s" in world.head()["windows"]
    assert not any("40s every 20s" in each.key for each in world.topic)
    behind.state.set_rules([*behind.state.rules, Rule(behind.state.offset, 2, HOPS)])
    behind.commit()
    assert world.audit().difference is None


def test_open_windows_may_be_deleted_once_windows_are_not_counted():
    world = World(2, MANY, [(START + 119, PLAIN)], retain=0).run(to=110)
    assert any(not each.value and is_of_a_window(each) for each in world.topic)
    for topic in (world.topic, world.compacted()):
        assert world.audit(topic=topic).difference is None


def test_windows_about_to_become_final_may_be_deleted():
    """More windows are over than become final in one snapshot, and other windows are closed further."""
    limits = RecordLimits(3, hamming_weight=True, windowing=Windowing(("1s", "10s", "60s"), grace=20_000))
    world = World(2, limits, retain=1_000)
    world.tick()
    for each in world.partitions:
        each.counting.to(START + LENGTH, droppings=False)
    waited = False
    for _ in range(5):
        world.tick()
        ones, tens = (world.head()["windows"][name] for name in ("1s", "10s"))
        deleted = {
            int(each.key.split("/")[2]) for each in world.topic if not each.value and "/1s/" in each.key
        }
        waited |= any(
            ones["closed"] < start + 1_000 <= tens["closed"] for start in deleted - {*ones["starts"]}
        )
        for topic in (world.topic, world.compacted()):
            assert world.audit(topic=topic).difference is None
    assert waited


def test_windows_with_deleted_records_are_reported_as_not_recountable():
    world = World(4, HOPS).run()
    finals, provisional = world.counts()
    verdict = world.audit(begins={1: START + 40})
    assert (verdict.verdict, verdict.published, verdict.recounted) == ("not recountable", None, 0)
    gone = f"records before offset {START + 40} of partition 1 are deleted"
    assert verdict.unknown == f"{finals + provisional} windows cannot be recounted: {gone}"
    # more than possible is also a difference
    of = of_kind(world, True)
    topic = topic_with(world, bodies(world, of), lambda said: said.update(reports=1))
    verdict = world.audit(begins={1: START + 40}, topic=topic)
    assert verdict.verdict == "different"
    assert verdict.published.startswith(f"window {of}: 1 reports published, ")
    assert verdict.published.endswith(" recounted from the remaining records")


def test_windows_that_a_restored_store_has_not_reached_are_ignored():
    far, behind = World(4, HOPS).run(), World(4, HOPS).run(to=105)
    behind.topic = far.topic
    verdict = behind.audit()
    assert (verdict.verdict, verdict.difference) == ("equal", None)
    assert 0 < verdict.recounted < verdict.finals


@pytest.mark.parametrize("seed", range(3))
def test_a_correct_restart_of_counting_is_equal(seed):
    """The store lost everything, and the operator allowed a restart; the log's beginning was deleted, or
    not."""
    lost = (0, 30, 60)[seed % 3]
    world = World(seed, TENS if seed < 2 else MANY).run(to=60)
    finals, provisional = world.counts()
    head = world.open()
    for p in (0, 1)[: 1 + seed % 2]:
        each = world.partitions[p]
        fresh = Partition(world.rng, each.counting.records, each.state.rules[-1].limits)
        fresh.state.set_rules(head.rules_of(p))
        if lost:
            fresh.state.skip(START + lost)
        fresh.state.windows.admit(head.floors[p])
        fresh.commits = 1000
        fresh.counting.to(each.state.offset, droppings=False)
        fresh.commit()
        world.partitions[p] = fresh
    world.publisher._let_go()
    for again in range(2):
        verdict = world.audit(begins=dict.fromkeys((0, 1)[: 1 + seed % 2], START + lost))
        assert verdict.published is None
        if lost:
            assert verdict.verdict == "gap"
            assert f"cannot be recounted: records before offset {START + lost} of partition 0" in (
                verdict.unknown or ""
            )
            assert verdict.recounted <= verdict.finals - finals * (lost == 60)
        else:
            assert (verdict.verdict, verdict.difference) == ("equal", None)
            assert verdict.recounted == verdict.finals >= finals
        if not again:
            world.run(to=LENGTH, since=60)
    assert provisional


def test_only_windows_that_a_gap_may_affect_are_incomplete():
    world = World(5, TENS)
    world.tick()
    for each in world.partitions:
        each.state.skip(START + 20)
    world.run(to=LENGTH, since=20)
    assert world.audit(begin=START + 20).published is None
    said = {}
    for of, places in world.wholes().items():
        said.setdefault(json.loads(world.topic[places[-1]].value)["complete"], []).append(of)
    assert said.keys() == {True, False}
    for complete, listed in said.items():
        for of in listed:
            topic = topic_with(
                world, bodies(world, of), lambda said, now=complete: said.update(complete=not now)
            )
            verdict = world.audit(begin=START + 20, topic=topic)
            assert verdict.verdict == "different"
            assert f"published as {'not ' * complete}complete" in verdict.published


def test_a_readmitted_partition_is_recounted():
    """Heads were deleted: the next head has another admission, and earlier counts keep the old one."""
    for floors in ((0, 40_000), (30_000, 50_000), (30_000, 0)):
        world = World(6, TENS)
        for each, floor in zip(world.partitions, (floors[0], 0), strict=True):
            each.state.windows.admit(floor)
            each.counting.to(START + 60, droppings=False)
        state = world.partitions[0].state
        state.windows.withdraw_admission(state.offset)
        assert state.windows.admitted_from is None
        state.windows.admit(floors[1])
        for each in world.partitions:
            each.counting.to(START + LENGTH, droppings=False)
            each.commit()
        assert world.audit().difference is None
        (entry,) = state.windows.readmitted
        state.windows.readmitted = [(entry[0], entry[1] + 20_000)]
        world.partitions[0].commit()
        assert world.audit().verdict == "different"


def test_bounded_windows_ahead_of_the_watermark_are_recounted():
    world = World(3, TENS)
    world.tick()
    ahead, behind = world.partitions
    ahead.counting.to(START + LENGTH, droppings=False)
    behind.counting.to(START + 5, droppings=False)
    assert ahead.state.full
    world.publisher._clock = iter(range(0, 10**6, 1000)).__next__
    world.tick(3)
    assert any(line["bounded"] for line in world.head()["windows"].values())
    verdict = world.audit()
    assert (verdict.verdict, verdict.difference) == ("equal", None)
    assert verdict.recounted == verdict.finals > 0

    def unbounded(head):
        for line in head["windows"].values():
            line["bounded"] = []

    assert "where the window-close watermark is" in difference(world, unbounded)


def test_windows_over_the_memory_limit_are_reported_and_not_recounted(monkeypatch):
    world = World(1, HOPS).run()
    monkeypatch.setattr(verification, "_MOST_BYTES", 3 * 16 * 3)
    finals, provisional = world.counts()
    verdict = world.audit()
    assert (verdict.verdict, verdict.finals, verdict.provisional) == ("equal", finals, provisional)
    assert verdict.recounted + verdict.provisional_recounted == 3


def test_messages_of_another_stream_or_history_are_skipped():
    world = World(1, HOPS).run()
    other = World(2, HOPS, stream=STREAMS["grr-256"]).run()
    windows = [each for each in other.topic if each.headers.get("final") == b"true"]
    known = {each.key for each in world.topic}
    verdict = world.audit(topic=[each for each in windows if each.key not in known] + world.topic)
    assert verdict.verdict == "equal"
    # heads of before were deleted, and the numbers begin again
    head = [replace(each, value=b"") for each in world.topic[:1]]
    again = World(1, HOPS).run()
    assert again.audit(topic=world.topic + head + again.topic).verdict == "equal"
    assert again.audit(topic=world.topic + again.topic).verdict == "equal"


def test_windows_published_before_a_retention_was_set_are_equal():
    world = World(1, MANY).run(to=60)
    old = world.counts()
    world.publisher = world.publisher_of(retain=30_000)
    world.run(to=LENGTH, since=60)
    assert any(not each.value for each in world.topic)
    verdict = world.audit()
    assert (verdict.verdict, verdict.difference) == ("equal", None)
    assert verdict.finals >= old[0] - 1
