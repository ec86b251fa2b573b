"""Connects to a Redis server, a master named by Sentinels, or a cluster."""

from typing import Any, TypeAlias

import redis
from redis.backoff import NoBackoff
from redis.cluster import ClusterNode
from redis.retry import Retry
from redis.sentinel import MasterNotFoundError, Sentinel

from worker.config import Redis as RedisTable
from worker.config.address import Address
from worker.config.schema import secret

Client: TypeAlias = redis.Redis | redis.RedisCluster
TIMEOUT_SECONDS = 5.0
"""Time-out of a step. After a time-out, the outcome of the step is unknown, and the worker retries it."""


def connect(table: RedisTable, retries: int = 0) -> Client:
    """Returns a client of the configured Redis.

    The client of a server or of Sentinels connects on first use, and again after a fail-over. The client of a cluster
    reads the list of nodes immediately, and follows redirections.

    Args:
        table: the table `redis` of the configuration.
        retries: limit of repetitions of an unanswered command. Only readers set it, because a write may have succeeded.

    Raises:
        redis.exceptions.RedisClusterException: no node of a cluster answered.
    """
    at, retry = table.address, Retry(NoBackoff(), retries)
    settings: dict[str, Any] = {
        "username": at.username,
        "password": at.password or secret(table.password),
        **_connection_settings(table),
    }
    match at.kind:
        case "cluster":
            nodes = [ClusterNode(host, port) for host, port in at.hosts]  # type: ignore[no-untyped-call]
            return redis.RedisCluster(startup_nodes=nodes, retry=retry, **settings)
        case "sentinel":
            return _master(table, at, settings | {"retry": retry})
        case "socket":
            return redis.Redis(unix_socket_path=at.path, retry=retry, **settings)
    ((host, port),) = at.hosts
    return redis.Redis(host, port, db=at.number, retry=retry, **settings)


def servers(client: Client) -> list[tuple[str, "redis.Redis"]]:
    """Returns (name, client) of each primary; the name is '' if not a cluster."""
    if isinstance(client, redis.RedisCluster):
        nodes: list[Any] = client.nodes_manager.get_nodes_by_server_type("primary")
        found = [(str(node.name), client.get_redis_connection(node)) for node in nodes]
        return sorted(found, key=lambda each: each[0])
    return [("", client)]


def _connection_settings(table: RedisTable) -> dict[str, Any]:
    settings: dict[str, Any] = {
        "socket_timeout": TIMEOUT_SECONDS,
        "socket_connect_timeout": TIMEOUT_SECONDS,
        "health_check_interval": 0,
        "protocol": 3,
    }
    if table.address.tls:
        settings |= {
            "ssl": True,
            "ssl_ca_certs": table.ssl_cafile and str(table.ssl_cafile),
            "ssl_certfile": table.ssl_certfile and str(table.ssl_certfile),
            "ssl_keyfile": table.ssl_keyfile and str(table.ssl_keyfile),
            "ssl_password": "",  # otherwise OpenSSL prompts for the password of an encrypted key
        }
    return settings


class _Sentinels(Sentinel):
    """Asks Sentinels for a master; the error contains each Sentinel's reason."""

    def discover_master(self, service_name: str) -> tuple[str, int]:
        why = []
        for number, sentinel in enumerate(self.sentinels):
            try:
                masters: Any = sentinel.sentinel_masters()
            except (redis.ConnectionError, redis.TimeoutError) as error:
                why.append(str(error))
                continue
            if (state := masters.get(service_name)) is None:
                why.append(f"one Sentinel monitors only {', '.join(masters) or 'none'}")
            elif self.check_master_state(state, service_name):  # type: ignore[no-untyped-call]
                self.sentinels.insert(0, self.sentinels.pop(number))  # the next call asks it first
                return state["ip"], state["port"]
            else:
                why.append(f"{state['ip']}:{state['port']} is down")
        raise MasterNotFoundError(f"no Sentinel names a master {service_name!r}: {'; '.join(why)}")


class _Master(redis.Redis):
    """A client of the current master; `close` also closes the Sentinels."""

    def close(self) -> None:
        super().close()
        self.connection_pool.sentinel_manager.close()  # type: ignore[attr-defined]


def _master(table: RedisTable, at: Address, settings: dict[str, Any]) -> "redis.Redis":
    asking = _connection_settings(table) | {
        "password": secret(table.sentinel_password),
        "retry": Retry(NoBackoff(), 0),
    }
    sentinels: Any = _Sentinels
    master: redis.Redis = sentinels(at.hosts, sentinel_kwargs=asking, **settings).master_for(
        at.master, redis_class=_Master, db=at.number
    )
    return master
