"""Readiness while a service fails, recovery, and SIGTERM."""

import contextlib
import json
import time

import pytest
from click.testing import CliRunner
from kafka.admin import ConfigResource, ConfigResourceType

from tests.support.harness import TIMEOUT_SECONDS, Sending, assert_snapshot_topic, frozen, until
from worker.cli import cli

pytestmark = pytest.mark.integration


def check(world):
    """Runs `check`; returns its exit code and the findings that are not ok."""
    done = CliRunner().invoke(cli, ["check", "--json", "--config", str(world.toml)])
    findings = [(row["level"], row["subject"], row["text"]) for row in json.loads(done.stdout)]
    return done.exit_code, [finding for finding in findings if finding[0] != "ok"]


def blocked(worker, *words):
    """Waits until the worker is not ready for a reason with these words."""

    def said():
        status, _, body = worker.get("/readyz")
        return status == 503 and all(word in body for word in words) and body

    until(said, f"not ready because of {words}")
    assert worker.get("/healthz")[0] == 200


def assert_goes_on(world, *workers):
    for worker in workers:
        until(worker.ready, "ready again")
    world.send(8)
    last = world.covered()
    world.assert_right(last)
    assert_snapshot_topic(world)


@pytest.mark.long
def test_a_frozen_broker(own_pair_world, own_services):
    world = own_pair_world
    (worker,) = world.start()
    world.send(8)
    world.covered()
    assert worker.says() == "serving"
    with frozen(own_services.kafka):
        blocked(worker, "brokers", "start the brokers")
        code, findings = check(world)
        assert code == 1
        assert ("error", "brokers") in [finding[:2] for finding in findings], findings
        assert not worker.events("stream.stopped")
    assert_goes_on(world, worker)


@pytest.mark.long
def test_missing_topics_and_small_limits_are_named_and_recovered(world):
    (worker,) = world.start()
    world.send(8)
    world.covered()
    dead_letters, snapshots = world.config.dead_letters.topic, world.config.snapshots.topic
    world.admin.delete_topics([dead_letters])
    world.put(b"malformed", partition=1).get(TIMEOUT_SECONDS)
    blocked(worker, "dead letters", "create-topics")
    assert ("error", f"topic {dead_letters}") in [finding[:2] for finding in check(world)[1]]
    world.create_topics()
    until(worker.ready, "ready again")

    topic = ConfigResource(ConfigResourceType.TOPIC, snapshots, {"max.message.bytes": "100"})
    world.admin.alter_configs([topic])
    world.send(8)
    until(
        lambda: any("MessageSizeTooLarge" in event["error"] for event in worker.events("snapshot.retry")),
        "the snapshot is refused",
    )
    topic.configs = {"max.message.bytes": "1048588"}
    world.admin.alter_configs([topic])
    assert_goes_on(world, worker)
    assert world.totals()["rejected"] == {"version": 1}

    world.admin.delete_topics([snapshots])
    world.send(8)
    blocked(worker, "publishing has failed", "create-topics")
    assert ("error", f"topic {snapshots}") in [finding[:2] for finding in check(world)[1]]
    world.create_topics()
    until(worker.ready, "ready again")


@pytest.mark.long
def test_redis_out_of_memory(own_world):
    world = own_world
    (worker,) = world.start()
    world.send(8)
    world.covered()
    world.redis.config_set("maxmemory", "100kb")
    try:
        world.send(8)
        blocked(worker, "committing counts has failed", "OutOfMemory", "free memory in Redis")
        code, findings = check(world)
        assert world.audit().difference is None  # it writes nothing
    finally:
        world.redis.config_set("maxmemory", "0")
    assert code == 1
    assert any(level == "error" and subject == "redis memory" for level, subject, _ in findings), findings
    assert any("refuses writes" in text for _, _, text in findings), findings
    assert "LDP" not in worker.log.read_text(errors="replace")  # no blob's bytes are written anywhere
    assert_goes_on(world, worker)


def test_an_open_transaction_holds_records_back(world):
    (worker,) = world.start()
    world.send(8)
    world.covered()
    producer = world.open_producer(transactional_id=f"{world.name}-open")
    producer.init_transactions()
    producer.begin_transaction()
    world.send(30, partition=2, producer=producer)
    producer.flush()
    world.send(70, partition=2)  # another producer's record, also after the open transaction
    world.settle()
    above = "partition_offsets_above_last_stable"
    until(lambda: worker.metric(above, partition="2") == 100, "what is held back is shown")
    assert (worker.metric(above), worker.metric("partition_lag")) == (100, 0)
    code, findings = check(world)
    (held,) = [text for level, subject, text in findings if "transaction" in text]
    assert code == 0  # an open transaction is not yet a fault
    assert all(part in held for part in ("partition 2", "100 offset", f"{world.name}-open")), held
    producer.commit_transaction()
    until(lambda: worker.metric(above) == 0, "nothing is held back any more")
    assert_goes_on(world, worker)


DEADLINE = 30.0
"""Seconds to stop: 5 s are promised; a worker that waits for a frozen server never stops."""


def stop(worker):
    began = time.monotonic()
    code = worker.terminate()
    assert time.monotonic() - began < DEADLINE
    return code


@pytest.mark.long
@pytest.mark.parametrize("names", [["kafka"], ["kafka", "redis"]], ids=["broker", "both, noticed"])
def test_sigterm_while_servers_are_frozen(own_pair_world, own_services, names):
    world = own_pair_world
    (worker,) = world.start()
    world.send(8)
    world.covered()
    with contextlib.ExitStack() as stack:
        stack.enter_context(Sending(world))
        until(lambda: worker.metric("snapshots_total") > 3, "it publishes all the time")
        for name in names:
            stack.enter_context(frozen(getattr(own_services, name)))
        if len(names) == 2:
            blocked(worker)
        assert stop(worker) == 0
    world.settle()
    (worker,) = world.start()  # its partitions are its own once the other's session is over
    assert_goes_on(world, worker)


@pytest.mark.long
def test_sigterm_while_connecting(own_pair_world, own_services):
    world = own_pair_world
    with frozen(own_services.kafka):
        worker = world.launch()
        until(lambda: worker.events("worker.started"), "it starts")
        time.sleep(3)
        assert worker.get("/readyz")[0] == 503
        assert stop(worker) == 0
