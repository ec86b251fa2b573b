"""Finds and deletes the keys of a stream."""

import re
from collections.abc import Iterable

from worker.redis.connecting import Client

_AT_ONCE = 500


def keys_of(client: Client, stream: str) -> list[bytes]:
    """Returns all keys of a stream's partitions; O(keys of the database)."""
    mine = re.compile(rf"\{{{re.escape(stream)}:\d+\}}:(meta|window:.+|staged:.+)".encode())
    found = client.scan_iter(f"{{{stream}:*", count=_AT_ONCE)
    return sorted({key for key in found if mine.fullmatch(key)})


def delete(client: Client, keys: Iterable[bytes]) -> None:
    """Deletes keys one by one, because they can be on different nodes."""
    for key in keys:
        client.unlink(key)
