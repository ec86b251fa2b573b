"""What decides what counts is kept with the counts: limits that change, are rolled out, or that old counts lack."""

import json

import pytest

from tests.integration.harness import TIMEOUT_SECONDS, World, foreign, until

pytestmark = pytest.mark.integration


def ruled(world, partition=0):
    """The rules recorded for a partition: (offset, revision, most_reports)."""
    totals = json.loads(world.redis.hget(f"{{{world.name}:{partition}}}:meta", "totals"))
    return [(rule["offset"], rule["revision"], rule["most_reports"]) for rule in totals["rules"]]


def counted(world, **expected):
    """Waits until everything is counted; the totals are as said, and the audit finds no difference."""
    world.settle()
    ends = world.ends()
    until(lambda: world.totals()["offsets"] == ends, f"all of {ends} counted")
    totals = world.totals()
    assert {key: totals[key] for key in expected} == expected
    assert world.audit().difference is None


def restart(world, file, **changes):
    """Stops the workers, and starts one with a changed configuration."""
    for worker in world.workers:
        if worker.alive():
            assert worker.terminate() == 0
    worker = world.launch(world.configure(file, **changes))
    until(worker.ready, f"{worker.log.name} ready")
    until(world.balanced, "it owns all")
    return worker


def test_point_16_a_record_of_a_million_reports_is_one_dead_letter(kafka, redis_url, tmp_path):
    with World(kafka, redis_url, tmp_path, partitions=1, protocol="grr", domain_size=200) as world:
        (worker,) = world.start()
        world.send(5, reports=3)
        million = bytes([1]) + world.stream.fingerprint + bytes(1_000_000)
        world.put(million).get(TIMEOUT_SECONDS)
        many = {"fingerprint": world.stream.fingerprint.hex(), "reports": [0] * 10_001}
        world.put(json.dumps(many).encode()).get(TIMEOUT_SECONDS)
        world.send(1, reports=10_000)
        world.assert_right(world.covered())
        counted(world, accepted=6, rejected={"many": 2})
        assert world.audit().rejected == {"many": 2}
        assert worker.by_label("rejected_total", "reason") == {"many": 2}
        letters = foreign(kafka, world.config.dead_letters.topic)
        assert [m.headers["__connect.errors.exception.class.name"] for m in letters] == ["many", "many"]
        assert letters[0].value == million


@pytest.mark.long
def test_point_16_a_changed_limit_leaves_what_was_counted_alone(kafka, redis_url, tmp_path):
    with World(kafka, redis_url, tmp_path, partitions=1, most_reports=5) as world:
        world.start()
        world.send(10, reports=5)
        counted(world, accepted=10, rejected={})

        worker = restart(world, "lower", most_reports=2)
        until(lambda: len(ruled(world)) == 2, "the new rule is stored though nothing came")
        assert [event["offset"] for event in worker.events("rules.added")] == [10]
        world.send(10, reports=5)
        world.send(10, reports=2)
        counted(world, accepted=20, rejected={"many": 10})

        worker = restart(
            world, "back"
        )  # as a roll-out does in between: it is older, and follows what is recorded
        (event,) = worker.events("rules.older")
        assert (event["level"], event["remedy"]) == ("warning", "to go back to it, set streams.revision to 3")
        world.send(10, reports=5)
        counted(world, accepted=20, rejected={"many": 20})

        restart(world, "on-purpose", revision=3)
        world.send(10, reports=5)
        counted(world, accepted=30, rejected={"many": 20})
        assert ruled(world) == [(0, 1, 5), (10, 2, 2), (40, 3, 5)]


@pytest.mark.long
def test_point_16_old_and_new_workers_side_by_side_do_not_flap(kafka, redis_url, tmp_path):
    with World(kafka, redis_url, tmp_path, partitions=4, most_reports=5) as world:
        (old,) = world.start()
        world.send(40, reports=5)
        counted(world, accepted=40)
        members = world.members()
        for turn in range(3):
            new = world.launch(world.configure(f"new-{turn}", most_reports=2))
            until(new.ready, "the new one is ready")
            until(world.balanced, "both count")
            world.send(40, reports=5)
            counted(world)
            new.kill()
            world.expel(list(world.members() - members))
            until(world.balanced, "the old one counts all")
            world.send(40, reports=5)
            counted(world)
        recorded = [ruled(world, partition) for partition in range(4)]
        assert all(len(some) <= 2 for some in recorded)
        assert sum(len(some) == 2 for some in recorded) >= 2
        assert world.totals()["rejected"]["many"] >= 100
        assert old.events("rules.older")


@pytest.mark.long
def test_point_16_and_19_counts_of_before_there_were_rules_go_on(kafka, redis_url, tmp_path):
    with World(kafka, redis_url, tmp_path, partitions=1, protocol="oue", domain_size=64) as world:
        head = bytes([1]) + world.stream.fingerprint
        world.start()
        world.send(10, reports=3)
        counted(world, accepted=10, rejected={})
        assert world.workers[0].terminate() == 0
        # as 942af5d stored it
        world.change_totals(0, lambda totals: totals.pop("rules"))
        until(world.snapshots.newest, "a snapshot")
        later = ("rules", "lineage", "snapshot", "uncounted")
        for key, (headers, value) in world.snapshots.messages().items():
            said = {name: of for name, of in json.loads(value).items() if name not in later}
            sent = [(name, of) for name, of in headers.items() if name not in later]
            world.producer.send(
                world.config.snapshots.topic, json.dumps(said).encode(), key.encode(), sent, partition=0
            ).get(TIMEOUT_SECONDS)
        assert world.audit().difference is None

        restart(world, "now", most_reports=2)
        for reports in (b"\xff" * 8, b"\xff" * 16):
            world.put(head + reports).get(TIMEOUT_SECONDS)
        world.send(10, reports=3)
        world.send(10, reports=2)
        counted(world, accepted=20, rejected={"many": 10, "ones": 2})
        assert ruled(world) == [(0, 0, None), (10, 1, 2)]
