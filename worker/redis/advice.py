"""Remedies for the errors of Redis."""

import redis
from redis.sentinel import MasterNotFoundError

from worker.config.address import Address

START = "start Redis, or correct redis.url and redis.password"
"""The remedy if no server answers."""
_PLAIN = "this port does not seem to use TLS: write redis:// in redis.url, or correct its port"
_CERTIFICATE = (
    "Redis rejects or requires a client certificate: correct redis.ssl_certfile and redis.ssl_keyfile"
)
_TLS = "Redis closes the connection and may require TLS: write rediss:// in redis.url, or correct its port"
RIGHTS = (
    "with ACL SETUSER, allow this user for each stream ~{STREAM:*}:meta ~{STREAM:*}:window:* ~{STREAM:*}:staged:* and"
    " +hgetall +hget +hmget +exists +get +set +rename +persist +hset +del +evalsha +eval +info +scan +unlink; in a"
    " cluster also +cluster|slots +command +asking"
)
"""The remedy if a user lacks a permission."""
_CLUSTER = "this is a node of a cluster: write redis+cluster:// in redis.url"
_FULL = "free memory in Redis or raise its maxmemory: it rejects writes while it is full"
_REPLICA = (
    "this server is a replica, which rejects writes: set redis.url to the primary, or to the Sentinels, which follow a"
    " fail-over"
)
_REMEDIES = {
    "OutOfMemoryError": _FULL,
    "OOM command": _FULL,
    "ReadOnlyError": _REPLICA,
    "READONLY": _REPLICA,
    "MISCONF": "check the disk and the log of Redis: it cannot save its data, and rejects writes",
    "NOREPLICAS": "start the replicas of Redis, or lower its min-replicas-to-write",
    "NoReplicas": "start the replicas of Redis, or lower its min-replicas-to-write",
    "BusyLoading": "wait: Redis is loading its data",
    "BUSY ": "end the script that blocks Redis: SCRIPT KILL",
    "TryAgain": "wait: the cluster is moving this slot",
    "MASTERDOWN": "start the master of this replica, or set redis.url to the current master",
    "mismatch": "use the host name of the certificate in redis.url, and in the addresses of Sentinels or the cluster",
    "certificate has expired": "renew the certificate of Redis",
    "certificate verify failed": "set redis.ssl_cafile to the authority that signed the certificate of Redis",
    "wrong version number": _PLAIN,
    "record layer failure": _PLAIN,
    "EOF occurred in violation": _CERTIFICATE,
    " alert ": _CERTIFICATE,
    "without any password configured": "Redis has no password: remove redis.password",
    "invalid username-password": "correct redis.password, or the user in redis.url",
    "HELLO must be called": "Redis requires a password: set redis.password",
    "Authentication required": "Redis requires a password: set redis.password",
    "NoPermissionError": RIGHTS,
    "The user executing the script": RIGHTS,
    "'SENTINEL'": "this is not a Sentinel: correct the ports in redis.url, or write redis:// there",
    "unknown command": "this seems to be a Sentinel: write redis+sentinel:// in redis.url, and the master's name",
    "one Sentinel monitors only": "end redis.url with the name that the Sentinels have for the master",
    "Cluster mode is not enabled": "this is not a cluster: write redis:// in redis.url",
    "MovedError": _CLUSTER,
    "CrossSlot": _CLUSTER,
    "ClusterDownError": "give every slot of the cluster a node that answers: run redis-cli --cluster check",
    "not covered": "give every slot of the cluster a node that answers: run redis-cli --cluster check",
    "reset by peer": _TLS,
    "Connection closed by server": _TLS,
}
"""Remedies by a part of the error's text; the first match applies."""


def described(error: Exception) -> str:
    """Formats an error, with the cause that the cluster client hides."""
    text = f"{type(error).__name__}: {error}"
    hidden = error.__cause__.__context__ if error.__cause__ is not None else None
    return f"{text} ({type(hidden).__name__}: {hidden})" if isinstance(hidden, redis.ResponseError) else text


def remedy(error: Exception, at: Address | None = None) -> str:
    """Returns the remedy for an error of Redis.

    Args:
        error: the client library's exception.
        at: the address, if the error occurred while connecting.

    Example:
        >>> from redis import AuthenticationError
        >>> from worker.config.address import read
        >>> remedy(AuthenticationError("invalid username-password pair"), read("redis://cache"))
        'correct redis.password, or the user in redis.url'
    """
    happened = described(error)
    if (
        at is not None
        and at.tls
        and (isinstance(error, redis.TimeoutError) or "Timeout connecting" in happened)
    ):
        return "no answer over TLS: if this port does not use TLS, write redis:// in redis.url, or correct the port"
    hint = next((hint for sign, hint in _REMEDIES.items() if sign in happened), START)
    if at is not None and at.kind != "cluster" and "ClusterDownError" in happened:
        return _CLUSTER
    if isinstance(error, MasterNotFoundError) and hint is not START:
        return hint.replace("redis.password", "redis.sentinel_password")  # the Sentinels refused the client
    return hint
