"""The audit of everything that the worker's code counts and publishes of several documents and segments."""

import json
import random
from itertools import pairwise

import pytest

import ldp
from tests.unit.worker.fleets import SECOND, Fleet
from worker.counting.rules import Status

COUNTRIES = ["DE:1", "DE:2", "US:4.3", "US:9", "FR:2", "XX:1"]


def documents_of(segment=None):
    return [
        ldp.Stream("fleet", ldp.GRR("1", 3), ["red", "green", "blue"], segment=segment),
        ldp.Stream("fleet", ldp.GRR("2", 4), ["blue", "grey", "red", "pink"], segment=segment),
        ldp.Stream("fleet", ldp.GRR("1/2", 2), ["pink", "cyan"]),
    ]


class Audited(Fleet):
    """Counts and publishes, and keeps all messages."""

    def __init__(self, documents, **given):
        self.sequence = []
        super().__init__(documents, **given)

    def publish(self, sequence, messages, rows):
        super().publish(sequence, messages, rows)
        self.sequence += [(each.key, dict(each.headers(sequence)), each.body) for each in messages]


def run(seed, segmented=False, **given):
    """A random history in which documents and segments come and go."""
    rng, documents = random.Random(seed), documents_of("country:app" if segmented else None)
    world = Audited(documents[:1], **given)
    world.configured = documents[::-1]
    world.restart()
    live, time = documents[:1], 10 * SECOND
    for step in range(150 if seed % 2 else 120):
        time += rng.randrange(150)
        document = rng.choice(live)
        segment = rng.choice(COUNTRIES) if document.segment else ""
        late = rng.randrange(5) == 0
        value = rng.randrange(document.oracle.domain_size)
        world.count(rng.randrange(2), document, value, max(0, time - late * rng.randrange(4000)), segment)
        if step in (30, 50):
            live = documents[: len(live) + 1]
            world.add(live[-1])
        if segmented and step in (10, 70):
            names = ("DE:1", "US:4.3", "DE") if step == 10 else ("FR:2", "US")
            world.record(segments=dict.fromkeys(names, Status()))
        if segmented and step == 90:
            world.record(segments={"DE:1": Status(0, True)})
        if step == 100:
            live = live[1:]
            world.record(documents={documents[0].fingerprint.hex(): Status(0, True)})
        if step == 130:  # accepted again: its windows of before are those without it
            live = [documents[0], *live]
            world.record(documents={documents[0].fingerprint.hex(): Status(1, False)})
        if rng.randrange(8) == 0:
            world.tick()
        if rng.randrange(40) == 0:
            world.restart()
    world.tick()
    return world


@pytest.mark.parametrize("segmented", [False, True])
@pytest.mark.parametrize("seed", range(4))
def test_everything_published_is_recounted(seed, segmented):
    world = run(seed, segmented, windows=seed % 3 > 0)
    for topic in (world.sequence, world.compacted):
        verdict = world.audit(topic)
        assert (verdict.verdict, verdict.difference) == ("equal", None)
        assert verdict.parts == verdict.parts_recounted > 2
        assert (verdict.finals > 0) == (seed % 3 > 0)
        assert verdict.finals == verdict.recounted


@pytest.mark.parametrize("segmented", [False, True])
@pytest.mark.parametrize("seed", range(4))
def test_released_counts_of_several_documents_and_segments_are_recounted(seed, segmented):
    world = run(seed, segmented, windows=seed % 3 > 0, fewest_new=3 + seed % 3)
    assert any(":DE" in key for key in world.keys) == segmented
    for topic in (world.sequence, world.compacted):
        verdict = world.audit(topic)
        assert (verdict.verdict, verdict.difference) == ("equal", None)
        assert verdict.parts == verdict.parts_recounted > 1


@pytest.fixture(scope="module")
def world():
    return run(4, segmented=True)


def names_of(topic):
    """Names of all snapshots on a topic, also of windows and parts."""
    return sorted({key.removesuffix("/base") for key, _, value in topic if key.endswith("/base") and value})


def test_each_number_of_each_part_is_recounted(world):
    topic, rng = world.compacted, random.Random(3)
    assert world.audit(topic).published is None
    kinds = {name.split("/")[0] for name in names_of(topic)}
    assert {"fleet", "fleet:DE", "fleet:DE:1", "fleet:US:4.3"} <= kinds
    assert len([kind for kind in kinds if "@" in kind]) == 3
    for i, (key, headers, value) in enumerate(topic):
        if not value or not key.endswith(("/base", "/norm-sub")):
            continue
        changed = json.loads(value)
        known = [v for v, n in enumerate(changed["frequencies"]) if n is not None]
        name = rng.choice(["frequencies", "low", "anytime_high", "sum", "reports", "offsets", "gaps"])
        if name == "offsets":
            changed[name]["0"] -= 1
        elif name == "gaps":
            changed[name] = {"0": [[1, 2]]}
        elif name in ("sum", "reports"):
            changed[name] += 1
        elif name in changed:
            changed[name][rng.choice(known)] += 1e-4
        else:
            continue
        other = [*topic[:i], (key, headers, json.dumps(changed).encode()), *topic[i + 1 :]]
        assert world.audit(other).verdict == "different", (key, name)


def test_exchanged_parts_are_detected(world):
    topic = world.compacted
    names = [name for name in names_of(topic) if name.startswith("fleet:") and name.endswith("/all")]
    assert len(names) > 3
    for one, other in pairwise(names):
        swapped = []
        for key, headers, value in topic:
            of = next(
                (name for name in (one, other) if key.startswith((f"{name}/", f"{name[:-4]}/head"))), None
            )
            if of is None or not value:
                swapped.append((key, headers, value))
                continue
            to = other if of == one else one
            moved = value.replace(json.dumps(of[:-4]).encode(), json.dumps(to[:-4]).encode())
            swapped.append((key.replace(of[:-4], to[:-4], 1), headers, moved))
        assert world.audit(swapped).verdict == "different", (one, other)


def test_missing_and_stale_parts_are_detected(world):
    topic, found = world.compacted, set()
    for name in names_of(topic):
        part, _, place = name.partition("/")
        rest = [each for each in topic if not each[0].startswith(f"{name}/")]
        if place == "all" and part != "fleet":
            rest = [each for each in rest if each[0] not in (f"{part}/head", f"{part}/domain")]
        verdict = world.audit(rest)
        if verdict.verdict == "different":
            found.add(part)
        else:  # only a part of a window that may have been published before
            assert place != "all" and part != "fleet", name
    assert found >= {"fleet", "fleet:DE", "fleet:US"}
    assert any("@" in part for part in found)
    # the part of a window that has expired
    newest = {key: value for key, _, value in world.sequence}
    stale = next(key for key, value in newest.items() if "@" in key and key.endswith("0/base") and not value)
    there = [each for each in world.sequence if each[0] != stale or each[2]]
    assert "without the final window" in world.audit(there).published


@pytest.mark.parametrize("segmented", [False, True])
def test_all_missing_parts_are_detected(segmented):
    """Without any part, only the configured number of reports shows that there must be some."""
    world = run(0, segmented, windows=False)
    assert world.audit().published is None
    for kind in ("@", "@:") if segmented else ("@",):
        rest = [
            each for each in world.compacted if not each[0].startswith(tuple(f"fleet{one}" for one in kind))
        ]
        found = world.audit(rest).published
        assert ": no part " in found or "is listed, but it is not on the topic" in found


def test_each_number_of_a_head_of_a_part_is_compared(world):
    topic, heads = world.compacted, 0
    for i, (key, headers, value) in enumerate(topic):
        if not key.endswith("/head") or key == "fleet/head" or not value:
            continue
        heads += 1
        for at in range(len(json.loads(value)["documents"])):
            for name, other in {
                "partitions": 7,
                "retired": None,
                "variance_share": 0.3,
                "reports": 1,
            }.items():
                changed = json.loads(value)
                changed["documents"][at][name] = other
                there = [*topic[:i], (key, headers, json.dumps(changed).encode()), *topic[i + 1 :]]
                assert world.audit(there).verdict == "different", (key, at, name)
    assert heads > 5


def test_parts_restart_with_their_stream(world):
    """A deleted head restarts the numbers: parts of before are not those of the new snapshots."""
    topic, deleted = world.sequence, ("fleet/head", {}, b"")
    assert any("@" in key and key.endswith("0/base") and value for key, _, value in topic)
    assert world.audit([*topic, deleted, *topic]).difference is None
    first = [each for each in topic if each[1].get("sequence") == b"1"]
    assert 0 < len(first) < len(topic)
    assert world.audit([*topic, deleted, *first]).published is None
