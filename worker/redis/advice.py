"""What to do where Redis lets nobody in, by what the client library says happened on the way there."""

import redis
from redis.sentinel import MasterNotFoundError

from worker.config.address import Address

ADVICE = "start Redis, or correct redis.url and redis.password"
"""Where nothing answers."""
_PLAIN = "this port seems to speak no TLS: write redis:// in redis.url, or correct its port"
_CERTIFICATE = (
    "Redis refuses this client's certificate, or wants one: correct redis.ssl_certfile and redis.ssl_keyfile"
)
_TLS = "Redis hangs up on this client, it may want TLS: write rediss:// in redis.url, or correct its port"
RIGHTS = "allow this user the commands and keys that worker/README.md lists, by ACL SETUSER"
"""Where a user lacks a right."""
_CLUSTER = "this is a node of a cluster: write redis+cluster:// in redis.url"
_ADVICE = {
    "mismatch": "let redis.url, and what Sentinels or a cluster announce, name the server as its certificate does",
    "certificate has expired": "renew the certificate of Redis",
    "certificate verify failed": "let redis.ssl_cafile name the authority that signed the certificate of Redis",
    "wrong version number": _PLAIN,
    "record layer failure": _PLAIN,
    "EOF occurred in violation": _CERTIFICATE,
    " alert ": _CERTIFICATE,
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
    """Returns what happened, by type and text; of a cluster the client library tells less than it was told."""
    text = f"{type(error).__name__}: {error}"
    told = error.__cause__.__context__ if error.__cause__ is not None else None
    return f"{text} ({type(told).__name__}: {told})" if isinstance(told, redis.ResponseError) else text


def advice(error: Exception, at: Address) -> str:
    """Returns what to do about an error on the way to an address.

    Example:
        >>> from redis import AuthenticationError
        >>> from worker.config.address import read
        >>> advice(AuthenticationError("invalid username-password pair"), read("redis://cache"))
        'correct redis.password, or the user in redis.url'
    """
    happened = said(error)
    if at.tls and (isinstance(error, redis.TimeoutError) or "Timeout connecting" in happened):
        return (
            "nobody answers in TLS here: if this port speaks none write redis:// in redis.url, or correct it"
        )
    todo = next((todo for sign, todo in _ADVICE.items() if sign in happened), ADVICE)
    if at.kind != "cluster" and "ClusterDownError" in happened:
        return _CLUSTER
    if isinstance(error, MasterNotFoundError) and todo is not ADVICE:
        return todo.replace("redis.password", "redis.sentinel_password")  # it is they who refused
    return todo
