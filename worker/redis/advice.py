"""Remedies for the errors of Redis."""

import redis
from redis.sentinel import MasterNotFoundError

from worker.config.address import Address

START = "start Redis, or correct redis.url and redis.password"
"""The remedy where nothing answers."""
_PLAIN = "this port seems to speak no TLS: write redis:// in redis.url, or correct its port"
_CERTIFICATE = (
    "Redis refuses this client's certificate, or wants one: correct redis.ssl_certfile and redis.ssl_keyfile"
)
_TLS = "Redis hangs up on this client, it may want TLS: write rediss:// in redis.url, or correct its port"
RIGHTS = "allow this user the commands and keys that docs/operate/redis.md lists, by ACL SETUSER"
"""Where a user lacks a right."""
_CLUSTER = "this is a node of a cluster: write redis+cluster:// in redis.url"
_FULL = "free memory in Redis or raise its maxmemory: while it is full it takes no writes"
_REPLICA = (
    "this server is a replica and takes no writes: let redis.url name the primary, or the Sentinels, which follow a"
    " fail-over"
)
_REMEDIES = {
    "OutOfMemoryError": _FULL,
    "OOM command": _FULL,
    "ReadOnlyError": _REPLICA,
    "READONLY": _REPLICA,
    "MISCONF": "look at the disk and the log of Redis: it cannot save, and takes no writes until it can",
    "NOREPLICAS": "start the replicas of Redis, or lower its min-replicas-to-write",
    "NoReplicas": "start the replicas of Redis, or lower its min-replicas-to-write",
    "BusyLoading": "wait: Redis is loading its data",
    "BUSY ": "end the script that blocks Redis: SCRIPT KILL",
    "TryAgain": "wait: the cluster is moving this slot",
    "MASTERDOWN": "start the master of this replica, or let redis.url name the present one",
    "mismatch": "let redis.url, and what Sentinels or a cluster announce, name the server as its certificate does",
    "certificate has expired": "renew the certificate of Redis",
    "certificate verify failed": "let redis.ssl_cafile name the authority that signed the certificate of Redis",
    "wrong version number": _PLAIN,
    "record layer failure": _PLAIN,
    "EOF occurred in violation": _CERTIFICATE,
    " alert ": _CERTIFICATE,
    "without any password configured": "Redis asks for no password: remove redis.password",
    "invalid username-password": "correct redis.password, or the user in redis.url",
    "HELLO must be called": "Redis asks for a password: set redis.password",
    "Authentication required": "Redis asks for a password: set redis.password",
    "NoPermissionError": RIGHTS,
    "The user executing the script": RIGHTS,
    "'SENTINEL'": "this is no Sentinel: correct the ports in redis.url, or write redis:// there",
    "unknown command": "this seems to be a Sentinel: write redis+sentinel:// in redis.url, and the master's name",
    "does not know": "let redis.url end with the name that the Sentinels have for the master",
    "Cluster mode is not enabled": "this is no cluster: write redis:// in redis.url",
    "MovedError": _CLUSTER,
    "CrossSlot": _CLUSTER,
    "ClusterDownError": "give every slot of the cluster a node that answers: redis-cli --cluster check says which",
    "not covered": "give every slot of the cluster a node that answers: redis-cli --cluster check says which",
    "reset by peer": _TLS,
    "Connection closed by server": _TLS,
}
"""By a sign in what happened; the first that is found counts."""


def said(error: Exception) -> str:
    """Returns an error's type and text, with the cause that the cluster client hides."""
    text = f"{type(error).__name__}: {error}"
    told = error.__cause__.__context__ if error.__cause__ is not None else None
    return f"{text} ({type(told).__name__}: {told})" if isinstance(told, redis.ResponseError) else text


def remedy(error: Exception, at: Address | None = None) -> str:
    """Returns the remedy for an error of Redis.

    Args:
        error: the client library's exception.
        at: the address, if the error came while connecting.

    Example:
        >>> from redis import AuthenticationError
        >>> from worker.config.address import read
        >>> remedy(AuthenticationError("invalid username-password pair"), read("redis://cache"))
        'correct redis.password, or the user in redis.url'
    """
    happened = said(error)
    if (
        at is not None
        and at.tls
        and (isinstance(error, redis.TimeoutError) or "Timeout connecting" in happened)
    ):
        return (
            "nobody answers in TLS here: if this port speaks none write redis:// in redis.url, or correct it"
        )
    hint = next((hint for sign, hint in _REMEDIES.items() if sign in happened), START)
    if at is not None and at.kind != "cluster" and "ClusterDownError" in happened:
        return _CLUSTER
    if isinstance(error, MasterNotFoundError) and hint is not START:
        return hint.replace("redis.password", "redis.sentinel_password")  # it is they who refused
    return hint
