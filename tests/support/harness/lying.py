"""A proxy in front of one broker that changes error codes and log starts in its answers."""

import contextlib
import socket
import struct
import threading
from collections import deque
from collections.abc import Iterator
from typing import Any, Self

from kafka.protocol.api_header import ResponseClassRegistry
from kafka.protocol.consumer import ListOffsetsRequest

FETCH, LIST_OFFSETS, METADATA, OFFSET_COMMIT, OFFSET_FETCH, FIND_COORDINATOR = 1, 2, 3, 8, 9, 10
INIT_PRODUCER_ID, ADD_PARTITIONS_TO_TXN, END_TXN, DESCRIBE_CLUSTER = 22, 24, 26, 60
_ADDRESSES = METADATA, FIND_COORDINATOR, DESCRIBE_CLUSTER
_EARLIEST = -2


class Lie:
    """A changed error code or log start; `told` counts the changed answers."""

    def __init__(
        self,
        api: int,
        value: int,
        topic: str | None,  # None for all
        partition: int | None,  # None for the whole answer
        times: int | None,  # None for all matching answers
        client: str | None = None,  # changes this client's log starts; None changes error codes
        after: int = 0,  # matching answers that stay true first
    ) -> None:
        self._api, self._value, self._topic, self._partition = api, value, topic, partition
        self._times, self._client, self._after, self.told = times, client, after, 0

    def tell(self, key: int, request: bytes, answer: Any) -> bool:
        """Changes a matching answer; returns whether it did."""
        found = list(_codes(key, answer, self._topic, self._partition)) if key == self._api else []
        if self.told == self._times or not found or not self._asked(request):
            return False
        if self._after:
            self._after -= 1
            return False
        for part, name in found:
            setattr(part, name if self._client is None else "offset", self._value)
        self.told += 1
        return True

    def _asked(self, request: bytes) -> bool:
        """Returns whether a client's request for log starts is one that this lie answers."""
        if self._client is None:
            return True
        (version,) = struct.unpack_from(">h", request, 2)
        asked = ListOffsetsRequest[version].decode(request, header=True)
        starts = all(part.timestamp == _EARLIEST for topic in asked.topics for part in topic.partitions)
        return starts and asked.header.client_id == self._client


class Lying:
    """Listens at `address` in place of a cluster's one broker."""

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

    @contextlib.contextmanager
    def lies(
        self,
        api: int,
        code: int,
        *,
        topic: str | None = None,
        partition: int | None = None,
        times: int | None = None,
    ) -> Iterator[Lie]:
        """Changes the error code of matching answers until the block ends."""
        with self._telling(Lie(api, code, topic, partition, times)) as lie:
            yield lie

    @contextlib.contextmanager
    def begins(
        self, client: str, topic: str, offset: int, *, after: int = 0, times: int | None = 1
    ) -> Iterator[Lie]:
        """Names another log start of partition 0 to a client until the block ends."""
        with self._telling(Lie(LIST_OFFSETS, offset, topic, 0, times, client, after)) as lie:
            yield lie

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
        """Returns an answer with this proxy's address and the changed codes."""
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
"""Request -> the fields of its answer that list topics."""


def _codes(key: int, response: Any, topic: str | None, partition: int | None) -> Iterator[tuple[Any, str]]:
    """Yields the parts of an answer with the field of their error code."""
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
