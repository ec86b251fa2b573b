"""Faults: each happens to a stage, and is over when it returns.

Afterwards nothing may be lost, doubled or out of order, and all records are published within a deadline.
"""

import shutil
import time
from collections.abc import Callable

import redis
from kafka import KafkaConsumer
from kafka.admin import TransactionState
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor

from tests.long.soak.stage import MOST_PARTITIONS, SESSION_SECONDS, Stage, another
from tests.support.harness import frozen, until
from tests.support.harness.proxy import Proxy
from worker.kafka.client import quirks

Fault = Callable[[Stage], None]

_REDIS_SECONDS = 2.0
"""Seconds that the workers of a stage wait for a reply of Redis."""

# --- workers ----------------------------------------------------------------------------------------------------------


def worker_killed(stage: Stage) -> None:
    """SIGKILL; a new worker takes over after the session."""
    stage.mortal.kill()
    stage.replace()


def worker_stopped(stage: Stage) -> None:
    """SIGTERM; another one is started."""
    assert stage.mortal.terminate() == 0
    stage.replace()


def worker_silent(stage: Stage) -> None:
    """SIGSTOP for longer than the session; it wakes up as a zombie."""
    victim = stage.rng.choice(stage.workers)
    other = stage.mortal if victim is stage.steady else stage.steady
    victim.pause()
    try:
        until(lambda: len(other.owned()) == stage.world.partitions, "the other takes over")
        time.sleep(stage.rng.uniform(0, 2))
    finally:
        victim.go_on()


def rebalance_storm(stage: Stage) -> None:
    """Members join and leave the group, one after the other."""
    for _ in range(6):
        member = KafkaConsumer(
            stage.world.topic,
            bootstrap_servers=stage.world.kafka,
            group_id=stage.world.group,
            enable_auto_commit=False,
            partition_assignment_strategy=[CooperativeStickyAssignor],
        )
        try:
            deadline = time.monotonic() + stage.rng.uniform(0.1, 1.5)
            while time.monotonic() < deadline:
                member.poll(50)
        finally:
            member.close(autocommit=False)


def publisher_killed_inside(stage: Stage) -> None:
    """SIGKILL inside a transaction, while the other worker is silent."""
    identity = stage.world.config.transactional_id(stage.world.name)

    def inside() -> bool:
        described = stage.world.admin.describe_transactions([identity])[identity]
        return bool(described.state is TransactionState.ONGOING)

    def stopped_inside() -> bool:
        if not inside():
            return False
        stage.mortal.pause()
        time.sleep(0.05)  # earlier sent data arrives
        if inside():
            return True
        stage.mortal.go_on()
        return False

    stage.steady.pause()
    try:
        until(lambda: len(stage.mortal.owned()) == stage.world.partitions, "it has all partitions")
        until(stopped_inside, "it is inside a transaction")
        stage.mortal.kill()
        stage.replace()
    finally:
        stage.steady.go_on()


def clock_jumped(stage: Stage) -> None:
    """One worker's clock jumps an hour ahead and back."""
    victim = stage.rng.choice(stage.workers)
    for seconds in (3590.0, -3590.0, 0.0):
        stage.jump(victim, seconds)
        time.sleep(stage.rng.uniform(1, 2))


def partitions_added(stage: Stage) -> None:
    """The topic grows by one partition, a few times in all."""
    world = stage.world
    if world.partitions < MOST_PARTITIONS:
        world.admin.create_partitions({world.topic: world.partitions + 1})
        world.partitions += 1
        until(
            lambda: sorted(p for w in stage.workers for p in w.owned()) == [*range(world.partitions)], "owned"
        )


# --- Redis ------------------------------------------------------------------------------------------------------------


def redis_killed(stage: Stage) -> None:
    """SIGKILL of Redis; it returns with all acknowledged writes."""
    stage.redis.kill()
    time.sleep(stage.rng.uniform(0, 4))
    stage.redis.start()


def redis_frozen(stage: Stage) -> None:
    """Redis answers nothing for longer than the time-out."""
    with frozen(stage.redis):
        time.sleep(stage.rng.uniform(1, 3) * _REDIS_SECONDS)


def redis_full(stage: Stage) -> None:
    """Redis refuses writes."""
    before = {worker.log: worker.metric("errors_total", step="commit") for worker in stage.workers}
    stage.world.redis.config_set("maxmemory", "100kb")
    try:

        def noticed() -> bool:
            return any(
                worker.metric("errors_total", step="commit") > before[worker.log] for worker in stage.workers
            )

        until(noticed, "a worker notices that Redis is full")
        time.sleep(stage.rng.uniform(0, 3))
    finally:
        stage.world.redis.config_set("maxmemory", "0")


def redis_set_back(stage: Stage) -> None:
    """It is killed, and has an older append-only file when it is back."""
    data = stage.redis.folder / stage.redis.command[stage.redis.command.index("--dir") + 1]
    older = stage.folder / "older"
    shutil.copytree(data, older)
    time.sleep(stage.rng.uniform(1, 4))
    stage.redis.kill()
    shutil.rmtree(data)
    older.rename(data)
    stage.redis.start()


def redis_failed_over(stage: Stage) -> None:
    """A replica that lacks the last writes replaces Redis."""
    with Proxy(("127.0.0.1", stage.redis.port)) as link:
        follower = another(stage.redis)
        with redis.Redis.from_url(follower.address) as client:
            client.replicaof("127.0.0.1", link.port)
            until(lambda: client.info("replication")["master_link_status"] == "up", "the replica has all")
            link.refuse()
            time.sleep(stage.rng.uniform(0.5, 2))
            stage.redis.kill()
            client.replicaof("NO", "ONE")
    stage.redis = follower
    stage.redis_proxy.target = ("127.0.0.1", follower.port)
    stage.redis_proxy.cut()


# --- proxies ----------------------------------------------------------------------------------------------------------


def _swallowed(stage: Stage, proxy: Proxy, least: float, most: float) -> None:
    proxy.swallow()
    time.sleep(stage.rng.uniform(least, most))
    proxy.mend()


def _delayed(stage: Stage, proxy: Proxy, seconds: float) -> None:
    proxy.delay = stage.rng.uniform(0.1, 0.9) * seconds
    time.sleep(stage.rng.uniform(3, 6))
    proxy.mend()


def _cut(stage: Stage, proxy: Proxy) -> None:
    for _ in range(5):
        proxy.cut()
        time.sleep(stage.rng.uniform(0, 0.5))
    proxy.refuse()
    time.sleep(stage.rng.uniform(0, 3))
    proxy.mend()


def redis_swallowed(stage: Stage) -> None:
    """Redis executes commands, and all replies are lost."""
    _swallowed(stage, stage.redis_proxy, 1, 5)


def redis_delayed(stage: Stage) -> None:
    """Each reply of Redis comes late."""
    _delayed(stage, stage.redis_proxy, _REDIS_SECONDS / 2)


def redis_cut(stage: Stage) -> None:
    """Connections to Redis end repeatedly, then none is accepted."""
    _cut(stage, stage.redis_proxy)


def kafka_swallowed(stage: Stage) -> None:
    """The brokers execute requests, and all replies are lost."""
    _swallowed(stage, stage.kafka_proxy, 1, 12)


def kafka_delayed(stage: Stage) -> None:
    """Each answer of the brokers comes late."""
    _delayed(stage, stage.kafka_proxy, 0.5)


def kafka_cut(stage: Stage) -> None:
    """Connections to the brokers end repeatedly, then none is accepted."""
    _cut(stage, stage.kafka_proxy)


# --- Kafka ------------------------------------------------------------------------------------------------------------


def kafka_killed(stage: Stage) -> None:
    """SIGKILL, and it comes back."""
    stage.services.kafka.kill()
    time.sleep(stage.rng.uniform(0, 3))
    stage.services.kafka.start()


def kafka_frozen(stage: Stage) -> None:
    """The broker answers nothing, for up to longer than a session."""
    with frozen(stage.services.kafka):
        time.sleep(stage.rng.uniform(0.3, 1.3) * SESSION_SECONDS)


def offsets_deleted(stage: Stage) -> None:
    """The group loses its offsets while all workers are silent."""
    world = stage.world
    for worker in stage.workers:
        worker.pause()
    try:
        until(lambda: not world.members(), "the group has no members")
        world.admin.delete_groups([world.group])
    finally:
        for worker in stage.workers:
            worker.go_on()


def transactions_aborted(stage: Stage) -> None:
    """Records are taken back, between others that are not."""
    world = stage.world
    producer = world.open_producer(transactional_id=f"{world.name}-aborted")
    producer.init_transactions()
    for number in range(6):
        producer.begin_transaction()
        world.send(20, reports=2, counted=bool(number % 2), producer=producer)
        producer.flush()
        world.settle()
        if number % 2:
            producer.commit_transaction()
        else:
            producer.abort_transaction()
    producer.close()


def _hang(stage: Stage, topic: str, key: bytes | None) -> None:
    """Leaves a transaction open, until the broker aborts it."""
    world, identity = stage.world, f"{stage.world.name}-hanging-on-{topic}"
    producer = world.open_producer(transactional_id=identity, transaction_timeout_ms=3000)
    producer.init_transactions()
    producer.begin_transaction()
    for _ in range(20):
        producer.send(topic, value=b"never", key=key, partition=0)
    producer.flush()
    quirks.drop(producer)

    def ended() -> bool:
        described = world.admin.describe_transactions([identity])[identity]
        return described.state is TransactionState.COMPLETE_ABORT

    until(ended, f"the broker aborts what hangs on {topic}")


def transaction_hanging(stage: Stage) -> None:
    """A producer dies in a transaction; the broker aborts it later."""
    _hang(stage, stage.world.topic, None)


def transaction_hanging_on_snapshots(stage: Stage) -> None:
    """Another stream's publisher dies in its transaction."""
    _hang(stage, stage.world.config.snapshots.topic, b"another/head")


FAULTS: tuple[Fault, ...] = (
    *(worker_killed, worker_stopped, worker_silent, rebalance_storm, publisher_killed_inside),
    *(clock_jumped, partitions_added),
    *(redis_killed, redis_frozen, redis_full, redis_set_back, redis_failed_over),
    *(redis_swallowed, redis_delayed, redis_cut, kafka_swallowed, kafka_delayed, kafka_cut),
    *(kafka_killed, kafka_frozen, offsets_deleted),
    *(transactions_aborted, transaction_hanging, transaction_hanging_on_snapshots),
)
"""All of them."""
