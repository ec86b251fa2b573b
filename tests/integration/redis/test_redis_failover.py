"""Sentinels and a cluster: a master dies under load, slots move."""

import contextlib
import secrets
import time

import pytest
import redis
from redis.crc import key_slot

from deploy.local.services import free_ports
from tests.support.harness import Sending, World, until
from tests.support.harness.authority import Authority
from tests.support.harness.matrix import commanded, main_path
from tests.support.harness.redises import Redises, synchronous
from tests.support.stores import Singly
from worker import check, config
from worker.counting import layout
from worker.counting.ports import Unavailable
from worker.redis.connecting import connect

pytestmark = [pytest.mark.integration, pytest.mark.long]

PASSWORD, OTHER = secrets.token_hex(8), secrets.token_hex(8)
LOGIN = {"requirepass": PASSWORD, "masterauth": PASSWORD}


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    found = Authority(tmp_path_factory.mktemp("failover") / "ca")
    found.sign("server", "IP:127.0.0.1")
    return found


@pytest.fixture(scope="module")
def redises(local_services, authority):
    with Redises(local_services.folder, f"failover-{secrets.token_hex(3)}", authority) as redises:
        yield redises


def node(port):
    return redis.Redis(port=port, password=PASSWORD)


def commits(world):
    return sum(worker.metric("commits_total", verdict="done") for worker in world.workers)


def more_commits(world, count=4):
    goal = commits(world) + count
    until(lambda: commits(world) >= goal, f"{count} more commits")


def offsets(world, client):
    """Returns the offset of each partition on a server."""
    found = {}
    for partition in range(world.partitions):
        with contextlib.suppress(redis.ResponseError):  # a key of another node
            if (offset := client.hget(layout.meta_key(world.name, partition), "offset")) is not None:
                found[partition] = int(offset)
    return found


def cut_off(world, master, replica):
    """Disconnects a replica until it lacks commits."""
    replica.config_set("masterauth", OTHER)
    master.client_kill_filter(_type="replica")
    until(lambda: not synchronous(replica), "the replica is cut off")
    for _ in range(2):  # the first of two consecutive commits was acknowledged
        before = offsets(world, master)
        until(
            lambda: all(offset > before[p] for p, offset in offsets(world, master).items()),  # noqa: B023
            "all commit again",
        )


def assert_counted_again(world, lost):
    """Asserts that each partition that went back was counted again."""
    refused = {
        (event["partition"], event["verdict"])
        for worker in world.workers
        for event in worker.events("commit.refused")
    }
    assert {(partition, "conflict") for partition in lost} <= refused, (lost, refused)
    assert not any(worker.events("stream.stopped") for worker in world.workers)
    world.assert_right(world.covered())
    for command, *options in (("watch", "--once"), ("audit",)):
        commanded(world, command, *options)


def fail_over(world, server, master, replica, sending):
    """Kills a master whose replica lacks commits; returns the lost offsets."""
    cut_off(world, master, replica)
    lost = offsets(world, master)
    with contextlib.closing(replica):
        server.kill()
        replica.config_set("masterauth", PASSWORD)
        until(lambda: replica.info("replication")["role"] == "master", "the replica takes over")
        # the initial data is unchanged, as no client may have written since
        more_commits(world, 6)
    sending.more()
    return lost


@pytest.fixture(scope="module")
def sentinels(redises):
    """A master, a replica, three Sentinels, and one Sentinel with TLS."""
    plain, second, tls, secure, *ports = free_ports(7)
    master = redises.start(port=plain, tls_port=tls, **LOGIN)
    redises.start(port=second, replicaof=("127.0.0.1", plain), **LOGIN)
    for port in ports:
        redises.sentinel(
            f"sentinel monitor counts 127.0.0.1 {plain} 2",
            "sentinel down-after-milliseconds counts 5000",
            "sentinel failover-timeout counts 6000",
            f"sentinel auth-pass counts {PASSWORD}",
            port=port,
        )
    redises.sentinel(
        f"sentinel monitor told 127.0.0.1 {tls} 1",
        "sentinel down-after-milliseconds told 600000",
        f"sentinel auth-pass told {PASSWORD}",
        tls_port=secure, tls_replication="yes", requirepass=OTHER,
    )  # fmt: skip
    asked = redis.Redis(port=ports[0])
    with contextlib.closing(asked):
        until(lambda: asked.sentinel_masters()["counts"]["num-other-sentinels"] == 2, "they know each other")
        until(lambda: asked.sentinel_masters()["counts"]["num-slaves"] == 1, "and the replica")
    until(lambda: synchronous(node(second)), "the replica follows")
    return master, second, ports, secure


def test_sentinels_fail_over_under_load(local_services, sentinels, authority, tmp_path):
    master, second, ports, secure = sentinels
    hosts = ",".join(f"127.0.0.1:{port}" for port in ports)
    url, store = f"redis+sentinel://{hosts}/counts/0", {"password": PASSWORD}
    tls = store | {"sentinel_password": OTHER, "ssl_cafile": str(authority.file)}
    kafka = local_services.kafka.address
    (tmp_path / "tls").mkdir()
    with (
        World(kafka, url, tmp_path, store=store) as world,
        World(kafka, f"rediss+sentinel://127.0.0.1:{secure}/told/1", tmp_path / "tls", store=tls) as other,
    ):
        world.launch()
        other.launch()
        main_path(other)
        other.workers[0].kill()
        with Sending(world) as sending:
            world.start(1)
            more_commits(world)
            lost = fail_over(world, master, node(master.port), node(second), sending)
        assert_counted_again(world, lost)
        found = check.findings(world.config)
        (said,) = [finding for finding in found if finding.subject == "redis sentinels"]
        assert said.text.startswith(f"3 Sentinel(s), quorum 2: 127.0.0.1:{second} is the master")


def test_check_names_a_master_that_no_sentinel_knows(sentinels, tmp_path):
    *_, ports, secure = sentinels
    sentinel = f"127.0.0.1:{ports[0]}"
    for url, reason, advice in (
        (f"redis+sentinel://{sentinel}/other", "one Sentinel monitors only counts", "the name that the"),
        (f"redis+sentinel://127.0.0.1:{secure}/told", "no Sentinel names a master", "it may want TLS"),
        (
            f"redis://{sentinel}",
            "it is a Sentinel, which has no keys",
            "use redis+sentinel:// with the master",
        ),
    ):
        assert_said(tmp_path, url, reason, advice)


def assert_said(folder, url, reason, advice, **store):
    """Asserts the finding of `check` for an address, within 30 s."""
    text = "".join(f'{key} = "{value}"\n' for key, value in ({"url": url} | store).items())
    stream = '[[streams]]\nname = "s"\ntopic = "t"\nprotocol = "grr"\nepsilon = "1"\ndomain_size = 3\n'
    (folder / "worker.toml").write_text(f"[redis]\n{text}{stream}")
    loaded = config.load(folder / "worker.toml", {})
    began = time.monotonic()
    found, *_ = (each for each in check.redis.look(loaded, None, {}) if each.level is check.Level.ERROR)
    assert reason in found.text
    assert advice in found.hint
    assert time.monotonic() - began < 30


@pytest.fixture(scope="module")
def cluster(redises):
    return redises.cluster(3, **LOGIN)


def tls_port(server):
    return int(server.command[server.command.index("--tls-port") + 1])


def test_a_cluster_fails_over_and_moves_slots_under_load(local_services, cluster, authority, tmp_path):
    kafka, hosts = local_services.kafka.address, ",".join(f"127.0.0.1:{s.port}" for s in cluster[:2])
    store = {"password": PASSWORD}
    tls = store | {"ssl_cafile": str(authority.file)}
    (tmp_path / "tls").mkdir()
    with (
        World(kafka, f"redis+cluster://{hosts}", tmp_path, partitions=8, store=store) as world,
        World(
            kafka, f"rediss+cluster://127.0.0.1:{tls_port(cluster[2])}", tmp_path / "tls", store=tls
        ) as other,
    ):
        world.launch()
        other.launch()
        main_path(other)
        other.workers[0].kill()
        with Sending(world) as sending:
            world.start(1)
            more_commits(world)
            move(world, cluster[:3])
            sending.more()
            more_commits(world)
            killed = next(
                number for number, server in enumerate(cluster[:3])
                if 0 in offsets(world, node(server.port))
            )  # fmt: skip
            server, replica = cluster[killed], cluster[killed + 3]
            lost = fail_over(world, server, node(server.port), node(replica.port), sending)
        assert_counted_again(world, lost)
        commanded(world, "check")


def move(world, servers):
    """Moves the slot of a partition to another master, a key at a time."""
    partition = world.partitions - 1
    meta = layout.meta_key(world.name, partition)
    nodes = [node(server.port) for server in servers]
    source = next(n for n in nodes if partition in offsets(world, n))
    # nodes of such a cluster speak TLS among themselves
    target, port = next((n, tls_port(s)) for n, s in zip(nodes, servers, strict=True) if n is not source)
    slot, names = (
        key_slot(meta.encode()),
        [n.execute_command("CLUSTER MYID").decode() for n in (source, target)],
    )
    target.execute_command("CLUSTER SETSLOT", slot, "IMPORTING", names[0])
    source.execute_command("CLUSTER SETSLOT", slot, "MIGRATING", names[1])
    with contextlib.closing(connect(world.config.redis)) as client:
        store = Singly(client, world.name)
        whole = store.cut(partition)
        assert whole is not None and whole.blobs
        moving = [meta]
        moved = 0
        while moving:
            for key in moving:
                source.migrate("127.0.0.1", port, [key], 0, 5000, auth=PASSWORD)
                moved += 1
                if moved == 1:
                    # metadata there and counts still here: no reader sees one without the other
                    with pytest.raises(Unavailable, match="Redis: ClusterError"):
                        store.cut(partition)
                    until(lambda: commit_waits(world), "a commit waits for the keys")
            moving = source.execute_command("CLUSTER GETKEYSINSLOT", slot, 100)
        for each in (target, source, *nodes):
            each.execute_command("CLUSTER SETSLOT", slot, "NODE", names[1])
        assert store.cut(partition).metadata.offset >= whole.metadata.offset


def commit_waits(world):
    return any(worker.metric("errors_total", step="commit") for worker in world.workers)


def test_check_names_an_incomplete_cluster(local_services, redises, cluster, tmp_path):
    store = {"password": PASSWORD}
    first = next(
        s.port for s in cluster if s.running() and node(s.port).info("replication")["role"] == "master"
    )
    assert_said(tmp_path, f"redis://127.0.0.1:{first}", "a cluster's node", "write redis+cluster://", **store)
    alone = redises.start(cluster_enabled="yes", cluster_port=free_ports(1)[0])
    assert_said(
        tmp_path, f"redis+cluster://127.0.0.1:{alone.port}", "not covered", "redis-cli --cluster check"
    )
