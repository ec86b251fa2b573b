"""A proxy in front of one broker, which changes its answers: error codes, and where a log begins."""

import contextlib
import socket
import struct
import threading
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, Self

from kafka.protocol.api_header import ResponseClassRegistry
from kafka.protocol.consumer import ListOffsetsRequest

FETCH, LIST_OFFSETS, METADATA, OFFSET_COMMIT, OFFSET_FETCH, FIND_COORDINATOR = 1, 2, 3, 8, 9, 10
INIT_PRODUCER_ID, ADD_PARTITIONS_TO_TXN, END_TXN, DESCRIBE_CLUSTER = 22, 24, 26, 60
_ADDRESSES = METADATA, FIND_COORDINATOR, DESCRIBE_CLUSTER
_EARLIEST = -2

_Found = list[tuple[Any, str]]
"""The fields of an answer that a lie changes: what has them, and their names."""


class Lie:
    """A change of a proxy's answers.

    Args:
        find: returns the fields to change, from the kind of request, the request and the answer.
        value: what the fields say instead.
        after: how many such answers stay true before the first lie.
        times: how many answers are changed at most; None for all.

    Attributes:
        told: how many answers were changed.
    """

    def __init__(
        self, find: Callable[[int, bytes, Any], _Found], value: int, after: int, times: int | None
    ) -> None:
        self._find, self._value, self._after, self._times = find, value, after, times
        self._seen = self.told = 0

    def tell(self, key: int, request: bytes, answer: Any) -> bool:
        """Changes an answer, if it is one of those; returns whether it did."""
        if self.told == self._times or not (found := self._find(key, request, answer)):
            return False
        self._seen += 1
        if self._seen <= self._after:
            return False
        for part, name in found:
            setattr(part, name, self._value)
        self.told += 1
        return True


class Lying:
    """Listens in the place of a broker, so that clients meet no other; a context manager.

    Args:
        broker: the bootstrap string of a cluster of one broker.

    Attributes:
        address: the bootstrap string that clients are given.
    """

    def __init__(self, broker: str) -> None:
        host, _, port = broker.rpartition(":")
        self._broker = host, int(port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.address = f"127.0.0.1:{self.port}"
        self._lies = list[Lie]()
        self._sockets = set[socket.socket]()

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        for each in (self._listener, *self._sockets):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()

    def lies(
        self,
        api: int,
        code: int,
        *,
        topic: str | None = None,
        partition: int | None = None,
        times: int | None = None,
    ) -> contextlib.AbstractContextManager[Lie]:
        """Has answers of one kind carry an error code meanwhile.

        Args:
            api: the kind of request.
            code: of the error.
            topic: of whose partition; None for all.
            partition: its number; None for the whole answer.
            times: how many answers at most; None for all.
        """

        def find(key: int, _: bytes, answer: Any) -> _Found:
            return list(_codes(key, answer, topic, partition)) if key == api else []

        return self._telling(Lie(find, code, 0, times))

    def begins(
        self, client: str, topic: str, partition: int, offset: int, *, after: int = 0, times: int | None = 1
    ) -> contextlib.AbstractContextManager[Lie]:
        """Has answers name another offset meanwhile as the first one of a partition's log.

        Args:
            client: the client's id; others are told the truth.
            topic: the topic.
            partition: the partition.
            offset: what they say.
            after: how many true answers come first.
            times: how many answers at most; None for all.
        """

        def find(key: int, request: bytes, answer: Any) -> _Found:
            if key != LIST_OFFSETS or not _asks_for_beginnings(request, client):
                return []
            return [(part, "offset") for part, _ in _codes(key, answer, topic, partition)]

        return self._telling(Lie(find, offset, after, times))

    @contextlib.contextmanager
    def _telling(self, lie: Lie) -> Iterator[Lie]:
        self._lies.append(lie)
        try:
            yield lie
        finally:
            self._lies.remove(lie)

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                far = socket.create_connection(self._broker)
                self._sockets |= {near, far}
                sent = deque[bytes]()
                for target, args in ((self._ask, (near, far, sent)), (self._answer, (far, near, sent))):
                    threading.Thread(target=target, args=args, daemon=True).start()

    def _ask(self, near: socket.socket, far: socket.socket, sent: deque[bytes]) -> None:
        for frame in _frames(near):
            sent.append(frame)
            far.sendall(struct.pack(">i", len(frame)) + frame)
        _close(near, far)

    def _answer(self, far: socket.socket, near: socket.socket, sent: deque[bytes]) -> None:
        for frame in _frames(far):
            near.sendall(self._changed(sent.popleft(), frame))
        _close(near, far)

    def _changed(self, request: bytes, frame: bytes) -> bytes:
        """Returns an answer as it is passed on: with this proxy's address instead of the broker's, and the lies."""
        key, version = struct.unpack_from(">hh", request)
        whole = struct.pack(">i", len(frame)) + frame
        kind = ResponseClassRegistry._response_class_registry.get(key)
        if kind is None or key not in (*_ADDRESSES, *_CODES):
            return whole
        response = kind[version].decode(frame, header=True)
        response._version = version
        lied = [lie.tell(key, request, response) for lie in self._lies]
        if key in _ADDRESSES:
            for broker in [*_listed(response, "brokers"), *_listed(response, "coordinators"), response]:
                if getattr(broker, "port", None) == self._broker[1]:
                    broker.host, broker.port = "127.0.0.1", self.port
        elif not any(lied):
            return whole
        return bytes(response.encode(header=True, framed=True))


def _listed(part: Any, name: str) -> list[Any]:
    return list(getattr(part, name, None) or ())


_CODES: dict[int, tuple[str, ...]] = {
    FETCH: ("responses",),
    LIST_OFFSETS: ("topics",),
    METADATA: ("topics",),
    OFFSET_COMMIT: ("topics",),
    OFFSET_FETCH: ("topics", "groups"),
    INIT_PRODUCER_ID: (),
    ADD_PARTITIONS_TO_TXN: ("results_by_topic_v3_and_below",),
    END_TXN: (),
}
"""Kind of request -> where its answer lists topics."""


def _asks_for_beginnings(request: bytes, client: str) -> bool:
    """Returns whether a ListOffsets request is one of a client for the first offsets of logs."""
    (version,) = struct.unpack_from(">h", request, 2)
    asked = ListOffsetsRequest[version].decode(request, header=True)
    earliest = all(part.timestamp == _EARLIEST for topic in asked.topics for part in topic.partitions)
    return earliest and asked.header.client_id == client


def _codes(key: int, response: Any, topic: str | None, partition: int | None) -> Iterator[tuple[Any, str]]:
    """Returns what has an error code in an answer: of a partition, or of the whole."""
    if partition is None:
        groups = _listed(response, "groups") if key == OFFSET_FETCH else []
        for part in groups or [response]:
            yield part, "error_code"
        return
    tops = [top for name in _CODES[key] for top in _listed(response, name)]
    if key == OFFSET_FETCH:
        tops = [inner for top in tops for inner in (_listed(top, "topics") or [top])]
    for top in tops:
        named = getattr(top, "name", None) or getattr(top, "topic", None)
        for part in [*_listed(top, "partitions"), *_listed(top, "results_by_partition")]:
            name = "partition_error_code" if key == ADD_PARTITIONS_TO_TXN else "error_code"
            if topic in (None, named) and part.partition_index == partition:
                yield part, name


def _frames(source: socket.socket) -> Iterator[bytes]:
    with contextlib.suppress(OSError), source.makefile("rb") as reading:
        while len(size := reading.read(4)) == 4:
            yield reading.read(struct.unpack(">i", size)[0])


def _close(*sockets: socket.socket) -> None:
    for each in sockets:
        with contextlib.suppress(OSError):
            each.shutdown(socket.SHUT_RDWR)
