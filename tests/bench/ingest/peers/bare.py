"""Reads from the broker and drops everything: a bare socket with Fetch requests, the upper limit.

Fetch, version 4, by Kafka's protocol guide: topics by name, no tagged fields. Uses only the standard library, in a
separate process. The argument is a file of JSON: the arguments of `deliver`. Writes JSON lines on stdout at the
beginning and at the end.
"""

import json
import socket
import struct
import sys
from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate
from pathlib import Path

FETCH, VERSION = 1, 4
FETCH_BYTES = 8 << 20
ROOM = 2 << 20
"""Largest excess of an answer: the fields around the batches, and a first batch above the limit."""
COMMITTED = 1
"""Isolation level that delivers only committed transactions."""
_CLIENT = b"bench"


class BrokerError(RuntimeError):
    """The broker refused a request, or went away."""


def deliver(address: str, topic: str, partitions: int, batches: Sequence[tuple[int, int]], turns: int) -> int:
    """Has a topic delivered from its beginning to its end, partition by partition, and drops it."""
    # A partition repeats batches of known (bytes, records), so the bytes of a fetch give its number of records;
    # parsing the batches would cost more than receiving them.
    ends = list(accumulate(size for size, _ in batches))
    records = [0, *accumulate(count for _, count in batches)]
    buffer = memoryview(bytearray(FETCH_BYTES + ROOM))
    host, _, port = address.rpartition(":")
    delivered = 0
    with socket.create_connection((host, int(port)), timeout=60) as connection:
        for partition in range(partitions):
            turn = within = offset = 0
            while turn < turns:
                connection.sendall(_request(topic, partition, offset))
                got = _answer(connection, buffer, topic)
                more, rest = divmod(within + got, ends[-1])
                whole = bisect_right(ends, rest)  # the last batch of an answer may be cut
                turn, within = turn + more, ends[whole - 1] if whole else 0
                offset = turn * records[-1] + records[whole]
            delivered += turn * ends[-1]
    return delivered


def _request(topic: str, partition: int, offset: int) -> bytes:
    request = struct.pack(">hhih", FETCH, VERSION, 0, len(_CLIENT)) + _CLIENT
    request += struct.pack(
        ">iiiib", -1, 500, 1, FETCH_BYTES, COMMITTED
    )  # no replica; ms to wait for at least 1 byte
    request += struct.pack(">ih", 1, len(topic)) + topic.encode()
    request += struct.pack(">iiqi", 1, partition, offset, FETCH_BYTES)
    return struct.pack(">i", len(request)) + request


def _answer(connection: socket.socket, buffer: memoryview, topic: str) -> int:
    """Receives the answer to a fetch of one partition; returns how many bytes of batches it has."""
    _receive(connection, buffer[:4])
    (length,) = struct.unpack_from(">i", buffer)
    if length > len(buffer):
        raise BrokerError(f"topic {topic!r}: the answer has {length} bytes; there is room for {len(buffer)}")
    _receive(connection, buffer[:length])
    at = (
        4 + 4 + 4 + 2 + len(topic) + 4 + 4
    )  # correlation, ms throttled; one topic, its name; one partition, its number
    error, _, _, aborted = struct.unpack_from(">hqqi", buffer, at)
    if error:
        raise BrokerError(f"topic {topic!r}: the broker refused a fetch with error {error}")
    (size,) = struct.unpack_from(">i", buffer, at + 22 + 16 * max(0, aborted))
    return max(0, int(size))


def _receive(connection: socket.socket, into: memoryview) -> None:
    at = 0
    while at < len(into):
        count = connection.recv_into(into[at:])
        if not count:
            raise BrokerError("the broker closed the connection")
        at += count


def main() -> None:
    """Has a topic delivered once, and waits to be killed, so that what it used can be read."""
    task = json.loads(Path(sys.argv[1]).read_text())
    print(json.dumps({"begin": 0}), flush=True)
    print(json.dumps({"end": True, "bytes": deliver(**task)}), flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main()
