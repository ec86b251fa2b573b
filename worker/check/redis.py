"""Checks of Redis: server, memory, and the metadata of partitions."""

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import redis
from redis.exceptions import MovedError
from redis.sentinel import SentinelConnectionPool

import ldp
from worker.check.counts import assess_counts
from worker.check.documents import Recorded, assess_documents
from worker.check.finding import Fault, Finding, Level
from worker.config import Config, Served
from worker.counting import layout
from worker.counting.head import Head
from worker.counting.ports import Metadata, StateLost
from worker.kafka.admin.cluster import Cluster
from worker.kafka.client.topics import Topic
from worker.kafka.reports.reader import NewestReports
from worker.observe.units import size_text
from worker.redis.connecting import Client, connect, servers
from worker.redis.errors import ERRORS
from worker.redis.reaching import Unreachable

OLDEST_REDIS = (6, 2)
STRING_LIMIT = 512 << 20
"""Default of Redis' proto-max-bulk-len, in bytes."""
_NEARLY = 0.9  # Share of maxmemory; check warns if more is used
_KEYS = 4096  # Bytes of a partition's keys and metadata
_PANE = 512  # Bytes of a pane's key and metadata


def look(
    config: Config,
    cluster: Cluster | None,
    heads: Mapping[str, Head],
    newest: Mapping[str, NewestReports] = MappingProxyType({}),
    ship: tuple[str, ldp.Stream] | None = None,
) -> list[Finding]:
    """Returns findings on Redis and the counts.

    `ship` names a stream and one of its documents; see `documents.assess_documents`.
    """
    findings: list[Finding] = []
    try:
        key = layout.meta_key(config.streams[0].stream.name, 0)
        with closing(connect(config.redis)) as client:
            _probe(client, key)
            infos, limit = [], None
            for node, server in servers(client):
                info = _info(server)
                infos.append(info or {})
                fsync = _setting(server, "appendfsync")
                limit = limit or _setting(server, "proto-max-bulk-len")
                found = [*assess_refusals(info is None, fsync is None, _answers_without_password(server))]
                if info is not None:
                    found += [*assess_redis(info, fsync, config.redis.address.kind), *assess_used(info)]
                findings += [replace(each, subject=f"{each.subject} {node}".strip()) for each in found]
            findings += _assess_sentinels(client, config.redis.address.master)
            findings += assess_blobs(config, int(limit or STRING_LIMIT))
            if cluster is not None:
                findings += _assess_state(client, config, cluster, heads, together(infos), newest, ship)
    except ERRORS as error:
        why = Unreachable(error, config.redis)
        findings.append(Finding(Level.ERROR, "redis", str(why), why.remedy))
    return findings


def _probe(client: Client, key: str) -> None:
    """Reads a key; ignores errors of a cluster node or a Sentinel."""
    try:
        client.hgetall(key)
    except redis.ResponseError as error:
        if not isinstance(error, MovedError) and "unknown command 'HGETALL'" not in str(error):
            raise


def together(infos: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    """Adds up the memory and `maxmemory` of several servers.

    The sum of `maxmemory` is 0 (no limit) if one server has no limit.
    """
    limits, totals = (
        [int(info.get(name, 0)) for info in infos] for name in ("maxmemory", "total_system_memory")
    )
    return {"maxmemory": sum(limits) if all(limits) else 0, "total_system_memory": sum(totals)}


def _info(client: "redis.Redis") -> dict[str, Any] | None:
    try:
        return dict(client.info())
    except redis.ResponseError:
        return None


def _answers_without_password(client: "redis.Redis") -> bool:
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


def assess_refusals(info: bool, settings: bool, anyone: bool) -> Iterator[Finding]:
    """Assesses refused commands, and access without the configured password."""
    if info or settings:
        refused = " and ".join(name for name, is_it in (("INFO", info), ("CONFIG", settings)) if is_it)
        lacks = "appendfsync and proto-max-bulk-len"
        lacks = "version, memory, maxmemory-policy and appendonly" if info else lacks
        text = f"it refuses {refused} to this user, as managed services do; not checked: {lacks}"
        hint = (
            "allow this user +info and +config|get, or compare the service's settings: version 6.2 or newer,"
            " maxmemory-policy noeviction, appendonly yes, appendfsync everysec"
        )
        # a user with only the documented permissions cannot use CONFIG
        yield Finding(Level.WARNING if info else Level.OK, "redis", text, hint)
    if anyone:
        text = "redis.password is set, but Redis answers without it: any client that reaches its port can change counts"
        hint = "set requirepass in Redis, or disable its default user; or remove redis.password"
        yield Finding(Level.WARNING, "redis", text, hint)


def _setting(client: "redis.Redis", name: str) -> str | None:
    try:
        reply = client.config_get(name)
    except redis.ResponseError:
        return None
    return str(reply.get(name)) if reply else None


def assess_redis(info: Mapping[str, Any], appendfsync: str | None, kind: str = "server") -> list[Finding]:
    """Assesses a Redis server by INFO, appendfsync and the configured kind."""
    if info.get("redis_mode") == "sentinel":
        hint = "use redis+sentinel:// with the master's name in redis.url"
        return [Finding(Level.ERROR, "redis", "it is a Sentinel, which has no keys", hint)]
    replicas = int(info.get("connected_slaves", 0))
    valkey, aof = info.get("valkey_version"), int(info.get("aof_enabled", 0))
    text = f"Valkey {valkey}" if valkey else f"Redis {info['redis_version']}"
    text += f", {replicas} replica(s)" + (f", appendfsync {appendfsync}" if appendfsync and aof else "")
    if replicas:
        text += "; after a fail-over, workers count missing records again from Kafka, within the topic's retention"
    found = Finding(Level.OK, "redis", text)
    return [found, *(Finding(level, "redis", *rest) for level, *rest in _faults(info, appendfsync, kind))]


def _faults(info: Mapping[str, Any], appendfsync: str | None, kind: str) -> Iterator[Fault]:
    version, policy = str(info["redis_version"]), str(info.get("maxmemory_policy", "noeviction"))
    if tuple(int(part) for part in version.split(".")[:2]) < OLDEST_REDIS:
        yield Level.ERROR, f"version {version}", "use Redis 6.2 or newer"
    if info.get("role") == "slave":
        yield Level.ERROR, "it is a replica, which refuses writes", "let redis.url name the primary"
    if int(info.get("cluster_enabled", 0)) and kind != "cluster":
        text = "it is a cluster node, which has only a part of the keys"
        yield Level.ERROR, text, "use redis+cluster:// in redis.url"
    if policy != "noeviction":
        text = f"maxmemory-policy={policy}: Redis evicts counts when memory is short"
        yield Level.ERROR, text, "set maxmemory-policy noeviction"
    if not int(info.get("aof_enabled", 0)):
        text = "no append-only file: after a restart, Redis has its last dump or no counts, which stops the stream"
        yield Level.WARNING, text, "set appendonly yes, appendfsync everysec"
    elif appendfsync == "no":
        text = "appendfsync=no: a machine crash loses all writes in its cache"
        yield Level.WARNING, text, "set appendfsync everysec; workers count the lost second again from Kafka"


def _assess_sentinels(client: Client, master: str) -> list[Finding]:
    pool = getattr(client, "connection_pool", None)
    if not isinstance(pool, SentinelConnectionPool):
        return []
    state = pool.sentinel_manager.sentinels[0].sentinel_masters()[
        master
    ]  # the Sentinel that named it is first
    return assess_sentinels(state)


def assess_sentinels(state: Mapping[str, Any]) -> list[Finding]:
    """Assesses whether Sentinel can fail over, by its state of the master."""
    number, quorum, replicas = state["num-other-sentinels"] + 1, state["quorum"], state["num-slaves"]
    where = f"{state['ip']}:{state['port']}"
    text = f"{number} Sentinel(s), quorum {quorum}: {where} is the master, with {replicas} replica(s)"
    if not replicas:
        return [Finding(Level.WARNING, "redis sentinels", text, "add a replica, which can take over")]
    if number < 3:
        hint = "run three or more: with fewer, the loss of one leaves no majority"
        return [Finding(Level.WARNING, "redis sentinels", text, hint)]
    return [Finding(Level.OK, "redis sentinels", text)]


def assess_blobs(config: Config, limit: int) -> Iterator[Finding]:
    """Assesses whether the counts of a partition fit into one Redis string."""
    for served in config.streams:
        size = layout.HEADER_BYTES + max(served.cell_bytes.values())
        if size > limit:
            text = f"a partition's counts can have {size} bytes, but proto-max-bulk-len is {limit}: Redis refuses them"
            hint = f"set proto-max-bulk-len {size} or more, or use a smaller domain or another protocol"
            yield Finding(Level.ERROR, f"counts of {served.name}", text, hint)


def assess_used(info: Mapping[str, Any]) -> list[Finding]:
    """Assesses the used memory of Redis."""
    limit = int(info.get("maxmemory", 0))
    used = int(info.get("used_memory", 0)) - int(info.get("mem_not_counted_for_evict", 0))
    if not limit or used <= _NEARLY * limit:
        return []
    level, text = Level.WARNING, "soon Redis will refuse writes"
    if used > limit:
        level, text = Level.ERROR, "Redis refuses writes, so workers cannot commit"
    text = f"{size_text(used)} of {size_text(limit)} used: {text}"
    return [Finding(level, "redis memory", text, "raise maxmemory, or delete unneeded keys")]


def assess_memory(config: Config, there: Mapping[str, Topic], info: Mapping[str, Any]) -> Finding:
    """Assesses whether Redis can hold all counts twice, as commits need.

    A partition's own reports need up to half of the possible panes. More panes are open only while other partitions
    lag.
    """
    known = [served for served in config.streams if served.topic in there]
    need, most = (sum(_needed(served, there[served.topic], share) for served in known) for share in (2, 1))
    limit = int(info.get("maxmemory", 0)) or int(info.get("total_system_memory", 0))
    text = f"all counts need up to {size_text(need)}"
    if most > need:
        text += f", {size_text(most)} if partitions wait for others with all possible panes"
    if not limit:
        return Finding(Level.OK, "redis memory", text)
    text += f", Redis may use {size_text(limit)}"
    level = Level.ERROR if need > limit else Level.WARNING if 2 * need > limit else Level.OK
    hint = "" if level is Level.OK else f"set maxmemory to {size_text(2 * need)} or more"
    if level is not Level.OK and most > need:
        hint += ", or configure longer hops of windows"
    return Finding(level, "redis memory", text, hint)


def _needed(served: Served, topic: Topic, share: int) -> int:
    """Returns the bytes of a stream's counts if 1/`share` of all panes exist."""
    size, panes = served.cost.pane_bytes, served.cost.panes // share
    return 2 * topic.partitions * (size + _KEYS + panes * (size + _PANE))


def _assess_state(
    client: Client,
    config: Config,
    cluster: Cluster,
    heads: Mapping[str, Head],
    info: Mapping[str, Any],
    newest: Mapping[str, NewestReports],
    ship: tuple[str, ldp.Stream] | None,
) -> Iterator[Finding]:
    known = [served for served in config.streams if served.topic in cluster.topics]
    if known:
        yield assess_memory(config, cluster.topics, info)
    for served in known:
        partitions, head = cluster.topics[served.topic].partitions, heads.get(served.name, Head())
        fields = _metadata(client, served, partitions)
        yield from assess_counts(config, served, cluster, fields, head)
        found = _recorded(served, fields, partitions, head)
        reports = newest.get(served.name, NewestReports()).documents
        document = ship[1] if ship is not None and ship[0] == served.name else None
        yield from assess_documents(served, found, head, reports, document)


def recorded(config: Config, served: Served, partitions: int, head: Head) -> Recorded:
    """Returns the recorded documents and segments of a stream."""
    with closing(connect(config.redis)) as client:
        return _recorded(served, _metadata(client, served, partitions), partitions, head)


def _recorded(
    served: Served, fields: Mapping[int, Mapping[str, str] | StateLost], partitions: int, head: Head
) -> Recorded:
    """Returns the recorded names; metadata that cannot be read count as none."""
    found: list[Metadata | None] = [None] * partitions
    for partition, stored in fields.items():
        if not isinstance(stored, StateLost):
            with contextlib.suppress(StateLost):
                found[partition] = layout.parse(stored, layout.meta_key(served.name, partition))
    return Recorded.of(found, head)


def _metadata(client: Client, served: Served, partitions: int) -> dict[int, dict[str, str] | StateLost]:
    """Returns metadata by partition; `StateLost` for a key of another type."""
    pipeline = client.pipeline(transaction=False)
    for partition in range(partitions):
        pipeline.hgetall(layout.meta_key(served.name, partition))
    found = dict[int, dict[str, str] | StateLost]()
    for partition, reply in enumerate(pipeline.execute(raise_on_error=False)):
        if isinstance(reply, Exception):
            if "WRONGTYPE" not in str(reply):
                raise reply
            key = layout.meta_key(served.name, partition)
            found[partition] = StateLost(f"key {key} in Redis has another type than the worker wrote")
        elif reply:
            found[partition] = layout.decoded(reply)
    return found
