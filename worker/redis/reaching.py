"""Connects to Redis, and checks the connection with one request."""

from worker.config import Redis as RedisTable
from worker.config.redaction import redacted
from worker.counting.ports import Unavailable
from worker.redis.advice import START, described, remedy
from worker.redis.connecting import Client, connect
from worker.redis.errors import ERRORS


class Unreachable(Unavailable):
    """Redis refused this client or did not answer."""

    def __init__(self, error: Exception, table: RedisTable) -> None:
        hint = remedy(error, table.address)
        outcome = "no answer from" if hint == START else "rejected by"
        super().__init__(f"{outcome} {redacted(table.url)}: {described(error)}", hint)


def reach(table: RedisTable, key: str) -> Client:
    """Connects, and checks that this client may read a key.

    Raises:
        Unreachable: Redis refused the client or did not answer.
    """
    client = None
    try:
        client = connect(table)
        client.exists(key)
    except ERRORS as error:
        if client is not None:
            client.close()
        raise Unreachable(error, table) from None
    return client
