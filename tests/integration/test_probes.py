"""What the probes say while something is in the way, that errors are tried again, and how a worker is told to stop.

These tests freeze and kill servers, so they have a Kafka and a Redis of their own.
"""

import contextlib
import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.integration.harness import TIMEOUT_SECONDS, Sending, assert_snapshot_topic, frozen, until

pytestmark = pytest.mark.integration


@pytest.fixture
def world(own_world):
    return own_world


def check(world):
    """What ``ldp-worker check`` says: its exit code, and all that is not ok as (level, subject, text)."""
    command = [Path(sys.executable).parent / "ldp-worker", "check", "--json", "--config", world.toml]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    findings = [(row["level"], row["subject"], row["text"]) for row in json.loads(done.stdout)]
    return done.returncode, [finding for finding in findings if finding[0] != "ok"]


def blocked(worker, *words):
    """Waits until the worker is not ready for a reason with these words; returns the reason."""

    def said():
        status, _, body = worker.get("/readyz")
        return status == 503 and all(word in body for word in words) and body

    said = until(said, f"not ready because of {words}")
    assert worker.get("/healthz")[0] == 200
    return said


def assert_goes_on(world, *workers):
    for worker in workers:
        until(worker.ready, "ready again")
    world.send(8)
    last = world.covered()
    world.assert_right(last)
    assert_snapshot_topic(world)


# --- ready means that what is due happens -----------------------------------------------------------------------------


@pytest.mark.long
def test_point_8_a_frozen_broker(own_pair_world, own_services):
    world = own_pair_world
    (worker,) = world.start()
    world.send(8)
    world.covered()
    assert worker.says() == "serving"
    with frozen(own_services.kafka):
        reason = blocked(worker, "brokers", "start the brokers")
        code, findings = check(world)
        assert code == 1
        assert ("error", "brokers") in [finding[:2] for finding in findings], findings
        assert not worker.events("stream.stopped")
    print(reason)
    assert_goes_on(world, worker)


@pytest.mark.long
def test_point_8_redis_out_of_memory(world):
    (worker,) = world.start()
    world.send(8)
    world.covered()
    world.redis.config_set("maxmemory", "100kb")
    try:
        world.send(8)
        reason = blocked(worker, "committing counts has failed", "OutOfMemory", "free memory in Redis")
        code, findings = check(world)
    finally:
        world.redis.config_set("maxmemory", "0")
    print(reason)
    assert code == 1
    assert any(level == "error" and subject == "redis memory" for level, subject, _ in findings), findings
    assert any("refuses writes" in text for _, _, text in findings), findings
    assert "LDP" not in worker.log.read_text(errors="replace")  # no blob's bytes are written anywhere
    assert_goes_on(world, worker)


@pytest.mark.long
def test_point_8_no_dead_letter_topic(world):
    (worker,) = world.start()
    world.send(8)
    world.covered()
    topic = world.config.dead_letters.topic
    world.admin.delete_topics([topic])
    world.put(b"malformed", partition=1).get(TIMEOUT_SECONDS)
    reason = blocked(worker, "dead letters", "create-topics")
    code, findings = check(world)
    print(reason)
    assert code == 1
    assert ("error", f"topic {topic}") in [finding[:2] for finding in findings], findings
    world.create_topics()
    assert_goes_on(world, worker)
    assert world.totals()["rejected"] == {"version": 1}


@pytest.mark.long
def test_point_8_no_snapshot_topic(world):
    (worker,) = world.start()
    topic = world.config.snapshots.topic
    world.admin.delete_topics([topic])
    world.send(8)
    reason = blocked(worker, "publishing has failed", "create-topics")
    code, findings = check(world)
    print(reason)
    assert code == 1
    assert ("error", f"topic {topic}") in [finding[:2] for finding in findings], findings
    world.create_topics()
    until(worker.ready, "ready again")


def test_point_8_an_open_transaction_holds_records_back(world):
    (worker,) = world.start()
    world.send(8)
    world.covered()
    producer = world.open_producer(transactional_id=f"{world.name}-open")
    producer.init_transactions()
    producer.begin_transaction()
    world.send(30, partition=2, producer=producer)
    producer.flush()
    world.send(70, partition=2)  # of another producer, and behind the open transaction all the same
    world.settle()
    until(lambda: worker.metric("partition_undecided", partition="2") == 100, "what is held back is shown")
    assert worker.metric("partition_undecided") == 100
    assert worker.metric("partition_lag") == 0
    code, findings = check(world)
    (held,) = [text for level, subject, text in findings if "transaction" in text]
    assert code == 0  # an open transaction is not yet a fault
    assert "partition 2" in held
    assert "100 offset" in held
    assert f"{world.name}-open" in held
    producer.commit_transaction()
    until(lambda: worker.metric("partition_undecided") == 0, "nothing is held back any more")
    assert_goes_on(world, worker)


@pytest.mark.long
def test_point_10_a_stopped_stream_stays_to_be_seen(world):
    (worker,) = world.start()
    world.send(8)
    world.covered()
    world.redis.flushall()
    until(lambda: worker.events("stream.stopped"), "the stream stops")
    for _ in range(3):
        time.sleep(1)  # within which it used to end
        assert worker.alive()
        assert worker.get("/healthz")[0] == 200
        assert worker.get("/readyz")[0] == 503
        assert worker.metric("stream_up") == 0
    # the remedy comes first: the line has hundreds of characters
    assert worker.says().startswith(
        "StateLost: Remedy: undo a change of the configuration, restore Redis, or "
    )
    assert f". Cause: stream {world.name!r}, partition " in worker.says()
    assert worker.events("stream.stopped")[0]["remedy"].startswith("undo a change of the configuration")
    assert worker.owned() == set()
    assert worker.metric("publisher") == 0
    assert worker.terminate() == 1


# --- asked to stop ----------------------------------------------------------------------------------------------------

DEADLINE = 30.0
"""Five seconds are promised; a machine under test may be slow. What waits for a frozen server waits for ever."""


def stop(worker):
    began = time.monotonic()
    code = worker.terminate()
    took = time.monotonic() - began
    print(f"ended {took:.1f} s after SIGTERM")
    assert took < DEADLINE
    return code


@pytest.mark.long
@pytest.mark.parametrize(
    ("names", "noticed"),
    [(["kafka"], False), (["redis"], False), (["kafka", "redis"], True)],
    ids=["kafka", "redis", "both for a while"],
)
def test_point_20_sigterm_while_servers_are_frozen(own_pair_world, own_services, names, noticed):
    world = own_pair_world
    (worker,) = world.start()
    world.send(8)
    world.covered()
    with contextlib.ExitStack() as stack:
        stack.enter_context(Sending(world))
        until(lambda: worker.metric("snapshots_total") > 3, "it publishes all the time")
        for name in names:
            stack.enter_context(frozen(getattr(own_services, name)))
        if noticed:  # it is in a question to the brokers, else in a transaction or a commit
            blocked(worker)
        assert stop(worker) == 0
    world.settle()
    (worker,) = world.start()  # its partitions are its own once the other's session is over
    assert_goes_on(world, worker)


@pytest.mark.long
def test_point_20_sigterm_while_the_broker_is_dead(own_pair_world, own_services):
    world = own_pair_world
    (worker,) = world.start()
    world.send(8)
    world.covered()
    own_services.kafka.kill()
    try:
        blocked(worker)
        assert stop(worker) == 0
    finally:
        own_services.kafka.start()


@pytest.mark.long
def test_point_20_sigterm_while_connecting(own_pair_world, own_services):
    world = own_pair_world
    with frozen(own_services.kafka):
        worker = world.launch()
        until(lambda: worker.events("worker.started"), "it starts")
        time.sleep(3)
        assert worker.get("/readyz")[0] == 503
        assert stop(worker) == 0
