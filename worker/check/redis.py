"""Redis: the server and its memory, and the metadata that it has of partitions."""

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from typing import Any

import redis
from redis.exceptions import MovedError
from redis.sentinel import SentinelConnectionPool

from worker.check.counts import judge_counts
from worker.check.finding import Finding, Level
from worker.config import Config, Served
from worker.config import Redis as RedisTable
from worker.counting import layout
from worker.counting.head import Head
from worker.counting.ports import StateLost
from worker.kafka.admin.cluster import Cluster
from worker.kafka.client.topics import Topic
from worker.observe.units import said_bytes
from worker.redis.advice import START, remedy
from worker.redis.connecting import Client, connect, servers
from worker.redis.errors import ERRORS
from worker.redis.reaching import Unreachable

OLDEST_REDIS = (6, 2)
STRING_LIMIT = 512 << 20
"""Redis' own default of proto-max-bulk-len, the longest string that it takes, in bytes."""
_NEARLY = 0.9
"""The share of its memory from which on Redis is said to be nearly full."""
_KEYS = 4096
"""What Redis needs of a partition beside its blobs, in bytes: keys and metadata."""
_PANE = 512
"""And of each of its panes: a key, and what the metadata say of it."""


def look(
    config: Config, deadline: float, cluster: Cluster | None, heads: Mapping[str, Head]
) -> list[Finding]:
    """Looks at Redis and at the counts in it.

    Args:
        config: what to check against.
        deadline: until when to keep trying, by the monotonic clock.
        cluster: what Kafka has; without it the counts cannot be judged.
        heads: stream -> its newest snapshot's head.
    """
    findings: list[Finding] = []
    try:
        key = layout.meta_key(config.streams[0].stream.name, 0)
        with closing(_connected(config.redis, key, deadline)) as client:
            infos, limit = [], None
            for node, server in servers(client):
                info = _info(server)
                infos.append(info or {})
                fsync, limit = (
                    _setting(server, "appendfsync"),
                    limit or _setting(server, "proto-max-bulk-len"),
                )
                found = judge_refusals(info is None, fsync is None, _lets_in_anyone(server))
                if info is not None:
                    found += [*judge_redis(info, fsync, config.redis.address.kind), *judge_used(info)]
                findings += [replace(each, subject=f"{each.subject} {node}".strip()) for each in found]
            findings += _judge_sentinels(client, config.redis.address.master)
            findings += judge_blobs(config, int(limit or STRING_LIMIT))
            if cluster is not None:
                findings += _judge_state(client, config, cluster, heads, together(infos))
    except ERRORS as error:
        why = Unreachable(error, config.redis)
        findings.append(Finding(Level.ERROR, "redis", str(why), why.remedy))
    return findings


def _connected(table: RedisTable, key: str, deadline: float) -> Client:
    """Returns a client that may read a key; asks until the deadline."""
    while True:
        client = None
        try:
            client = connect(table)
            _ask_for(client, key)
            return client
        except ERRORS as error:  # BusyLoading, too
            if client is not None:
                client.close()
            if time.monotonic() >= deadline or remedy(error, table.address) != START:
                raise
            time.sleep(0.2)


def _ask_for(client: Client, key: str) -> None:
    """Reads a key; a cluster's node that does not have it and a Sentinel answer, too, and are named later."""
    try:
        client.hgetall(key)
    except redis.ResponseError as error:
        if not isinstance(error, MovedError) and "unknown command 'HGETALL'" not in str(error):
            raise


def together(infos: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    """Returns what memory there is in all servers; no limit where one has none."""
    limits, totals = (
        [int(info.get(name, 0)) for info in infos] for name in ("maxmemory", "total_system_memory")
    )
    return {"maxmemory": sum(limits) if all(limits) else 0, "total_system_memory": sum(totals)}


def _info(client: "redis.Redis") -> dict[str, Any] | None:
    """Returns what INFO has, or None if it is refused, as in managed services."""
    try:
        return dict(client.info())
    except redis.ResponseError:
        return None


def _lets_in_anyone(client: "redis.Redis") -> bool:
    """Returns whether a server answers without the password that it was given."""
    pool = client.connection_pool
    if not pool.connection_kwargs.get("password") or isinstance(pool, SentinelConnectionPool):
        return False
    settings = {k: v for k, v in pool.connection_kwargs.items() if k not in ("username", "password")}
    without = redis.ConnectionPool(connection_class=pool.connection_class, **settings)
    try:
        with closing(redis.Redis(connection_pool=without)) as anyone:
            return bool(anyone.ping())
    except ERRORS:
        return False
    finally:
        without.disconnect()


def judge_refusals(info: bool, settings: bool, anyone: bool) -> list[Finding]:
    """Judges what Redis refuses to tell, and whom it lets in; nothing if all is well.

    Args:
        info: whether it refuses INFO.
        settings: whether it refuses CONFIG.
        anyone: whether it answers without the password that is configured.
    """
    findings = []
    if info or settings:
        refused = " and ".join(name for name, is_it in (("INFO", info), ("CONFIG", settings)) if is_it)
        lacks = (
            "version, memory, maxmemory-policy and appendonly"
            if info
            else "appendfsync and proto-max-bulk-len"
        )
        text = f"it refuses {refused} to this user, as managed services do: {lacks} are not checked"
        todo = "allow this user INFO and CONFIG GET, or compare the service's settings with worker/README.md"
        # appendfsync matters less than the rest, and a user with the listed rights lacks CONFIG
        findings.append(Finding(Level.WARNING if info else Level.OK, "redis", text, todo))
    if anyone:
        text = "redis.password is set, but it answers without one: whoever reaches its port can change the counts"
        todo = "set requirepass in Redis, or disable its default user; or remove redis.password"
        findings.append(Finding(Level.WARNING, "redis", text, todo))
    return findings


def _setting(client: "redis.Redis", name: str) -> str | None:
    """Returns a setting, or None where CONFIG is not allowed, as in managed services."""
    try:
        reply = client.config_get(name)
    except redis.ResponseError:
        return None
    return str(reply.get(name)) if reply else None


def judge_redis(info: Mapping[str, Any], appendfsync: str | None, kind: str = "server") -> list[Finding]:
    """Judges a Redis server by its INFO and its appendfsync, and by what the configuration takes it for."""
    findings = []
    version = str(info["redis_version"])
    if tuple(int(part) for part in version.split(".")[:2]) < OLDEST_REDIS:
        findings.append(Finding(Level.ERROR, "redis", f"version {version}", "use Redis 6.2 or newer"))
    if info.get("redis_mode") == "sentinel":
        todo = "write redis+sentinel:// in redis.url, and the master's name"
        return [Finding(Level.ERROR, "redis", "a Sentinel: it has no keys", todo)]
    if info.get("role") == "slave":
        findings.append(
            Finding(Level.ERROR, "redis", "a replica: it refuses writes", "let redis.url name the primary")
        )
    if int(info.get("cluster_enabled", 0)) and kind != "cluster":
        text = "a cluster's node: it has some of the keys only"
        findings.append(Finding(Level.ERROR, "redis", text, "write redis+cluster:// in redis.url"))
    policy = str(info.get("maxmemory_policy", "noeviction"))
    if policy != "noeviction":
        findings.append(
            Finding(
                Level.ERROR,
                "redis",
                f"maxmemory-policy={policy}: counts are evicted when memory is short",
                "set maxmemory-policy noeviction",
            )
        )
    if not int(info.get("aof_enabled", 0)):
        findings.append(
            Finding(
                Level.WARNING,
                "redis",
                "no append-only file: a restart goes back to the last dump, or to nothing, which stops the stream",
                "set appendonly yes, appendfsync everysec",
            )
        )
    elif appendfsync == "no":
        findings.append(
            Finding(
                Level.WARNING,
                "redis",
                "appendfsync=no: a crash of the machine goes back by as much as its cache held",
                "set appendfsync everysec; what is lost together is counted again from Kafka",
            )
        )
    replicas = int(info.get("connected_slaves", 0))
    fsync = f", appendfsync {appendfsync}" if appendfsync and int(info.get("aof_enabled", 0)) else ""
    behind = (
        "; one that is promoted while behind is counted up again from Kafka, within the topic's retention"
        if replicas
        else ""
    )
    name = f"Valkey {info['valkey_version']}" if "valkey_version" in info else f"Redis {version}"
    return [Finding(Level.OK, "redis", f"{name}, {replicas} replica(s){fsync}{behind}"), *findings]


def _judge_sentinels(client: Client, master: str) -> list[Finding]:
    """Judges whether the Sentinels that named the master could name another one; nothing where there are none."""
    pool = getattr(client, "connection_pool", None)
    if not isinstance(pool, SentinelConnectionPool):
        return []
    state = pool.sentinel_manager.sentinels[0].sentinel_masters()[master]  # the first is the one that knew
    return judge_sentinels(state)


def judge_sentinels(state: Mapping[str, Any]) -> list[Finding]:
    """Judges by what a Sentinel says of the master whether there could be another one."""
    number, quorum, replicas = state["num-other-sentinels"] + 1, state["quorum"], state["num-slaves"]
    where = f"{state['ip']}:{state['port']}"
    text = f"{number} Sentinel(s), quorum {quorum}: {where} is the master, of {replicas} replica(s)"
    if not replicas:
        return [Finding(Level.WARNING, "redis sentinels", text, "add a replica: nobody could take over")]
    if number < 3:
        todo = "run three or more: of fewer the loss of one leaves no majority"
        return [Finding(Level.WARNING, "redis sentinels", text, todo)]
    return [Finding(Level.OK, "redis sentinels", text)]


def judge_blobs(config: Config, limit: int) -> list[Finding]:
    """Judges whether the counts of a partition fit into one string of Redis; says nothing if they do."""
    findings = []
    for served in config.streams:
        oracle = served.stream.oracle
        size = layout.HEADER_BYTES + 8 * oracle.state_size
        if size > limit:
            text = (
                f"a partition's counts may be {size} bytes, proto-max-bulk-len is {limit}: Redis refuses them"
            )
            todo = f"set proto-max-bulk-len {size} or more, or use a smaller domain or another protocol"
            findings.append(Finding(Level.ERROR, f"counts of {served.stream.name}", text, todo))
    return findings


def judge_used(info: Mapping[str, Any]) -> list[Finding]:
    """Judges how much of its memory Redis uses; says nothing if there is no limit, or room enough."""
    limit = int(info.get("maxmemory", 0))
    used = int(info.get("used_memory", 0)) - int(info.get("mem_not_counted_for_evict", 0))
    if not limit or used <= _NEARLY * limit:
        return []
    text, todo = (
        f"{said_bytes(used)} of {said_bytes(limit)} are used",
        "raise maxmemory, or remove what is not needed",
    )
    if used > limit:
        return [
            Finding(Level.ERROR, "redis memory", f"{text}: Redis refuses writes, nothing is committed", todo)
        ]
    return [Finding(Level.WARNING, "redis memory", f"{text}: soon Redis will refuse writes", todo)]


def judge_memory(config: Config, there: Mapping[str, Topic], info: Mapping[str, Any]) -> Finding:
    """Judges whether the counts fit in Redis, where staged and live blobs stand side by side during a commit.

    Of the panes that a partition may have it is the half that its own reports keep open; the rest waits for others.
    """
    known = [served for served in config.streams if served.topic in there]
    need, most = (sum(_needed(served, there[served.topic], share) for served in known) for share in (2, 1))
    limit = int(info.get("maxmemory", 0)) or int(info.get("total_system_memory", 0))
    text = f"all counts need up to {said_bytes(need)}"
    if most > need:
        text += f", {said_bytes(most)} where partitions wait for others with all the panes that they may have"
    if not limit:
        return Finding(Level.OK, "redis memory", text)
    text += f", Redis may use {said_bytes(limit)}"
    level = Level.ERROR if need > limit else Level.WARNING if 2 * need > limit else Level.OK
    todo = "" if level is Level.OK else f"set maxmemory to {said_bytes(2 * need)} or more"
    if level is not Level.OK and most > need:
        todo += ", or let windows hop by more"
    return Finding(level, "redis memory", text, todo)


def _needed(served: Served, topic: Topic, share: int) -> int:
    """Returns the bytes that a stream's counts need, with one in so many of the panes that there may be."""
    panes = 0 if served.cost is None else served.cost.panes // share
    size = 8 * served.stream.oracle.state_size
    return 2 * topic.partitions * (size + _KEYS + panes * (size + _PANE))


def _judge_state(
    client: Client,
    config: Config,
    cluster: Cluster,
    heads: Mapping[str, Head],
    info: Mapping[str, Any],
) -> Iterator[Finding]:
    """Judges what the counts need and what there is of them."""
    known = [served for served in config.streams if served.topic in cluster.topics]
    if known:
        yield judge_memory(config, cluster.topics, info)
    for served in known:
        fields = _metadata(client, served, cluster.topics[served.topic].partitions)
        yield from judge_counts(config, served, cluster, fields, heads.get(served.stream.name, Head()))


def _metadata(client: Client, served: Served, partitions: int) -> dict[int, dict[str, str] | StateLost]:
    """Returns the fields of those partitions' metadata that Redis has, or that their key is of another type."""
    pipeline = client.pipeline(transaction=False)
    for partition in range(partitions):
        pipeline.hgetall(layout.meta_key(served.stream.name, partition))
    found = dict[int, dict[str, str] | StateLost]()
    for partition, reply in enumerate(pipeline.execute(raise_on_error=False)):
        if isinstance(reply, Exception):
            if "WRONGTYPE" not in str(reply):
                raise reply
            key = layout.meta_key(served.stream.name, partition)
            found[partition] = StateLost(f"key {key} in Redis is of another type than was written")
        elif reply:
            found[partition] = layout.decoded(reply)
    return found
