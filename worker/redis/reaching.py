"""Reaching: a client that was answered, or why there is none and what to do."""

from worker.config import Redis as RedisTable
from worker.config.redaction import redacted
from worker.counting.ports import Unavailable
from worker.redis.advice import START, remedy, said
from worker.redis.connecting import Client, connect
from worker.redis.errors import ERRORS


class Unreachable(Unavailable):
    """Redis did not let this client in, or did not answer.

    Args:
        error: what the client library raised.
        table: the configuration's.
    """

    def __init__(self, error: Exception, table: RedisTable) -> None:
        todo = remedy(error, table.address)
        outcome = "no answer from" if todo == START else "not let in by"
        super().__init__(f"{outcome} {redacted(table.url)}: {said(error)}", todo)


def reach(table: RedisTable, key: str) -> Client:
    """Connects, and asks for a key, as whoever may do less is of no use.

    Args:
        table: the configuration's.
        key: one that is read or written later.

    Raises:
        Unreachable: nobody answered, or refused.
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
