"""Cache of compressed HTTP answers, limited in number and in bytes."""

import asyncio
import threading
import time
import zlib
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from typing import Any

from worker.http.connections import PIECE_BYTES
from worker.kafka.snapshots.follower import trim_memory

MOST_BYTES = 48 << 20
"""Maximum compressed bytes of all answers, cached or in progress."""
MOST_ANSWERS = 256
MOST_WAITING = 32
"""Maximum number of answers in the queue."""
MAKING_SECONDS = 30.0
"""Maximum wait of a client for an answer."""
_CUT_BYTES = 1 << 18
_LARGE_BYTES = 1 << 20
_PAUSES = 19
"""Pause after an answer, in multiples of its CPU time, so that counting has priority."""
_LONGEST_PAUSE_SECONDS = 30.0

Parts = Callable[[], Iterable[bytes]]


class Dropped(Exception):  # noqa: N818  # an answer, not a fault
    """The cache dropped an answer while the server was sending it."""


class TooLarge(Exception):  # noqa: N818  # an answer, not a fault
    """An answer is larger than `MOST_BYTES`."""


class Busy(Exception):  # noqa: N818  # an answer, not a fault
    """An answer cannot be made now; the client should retry."""


class Packed:
    """Buffer that compresses bytes with the fastest level of gzip.

    Attributes:
        size: number of compressed bytes.
        length: number of uncompressed bytes.

    Example:
        >>> packed = Packed()
        >>> sum(packed.add(part) for part in (b"a" * 50_000, b"b")) + packed.end() == packed.size < 500
        True
        >>> packed.length, b"".join(packed.plain()) == b"a" * 50_000 + b"b"
        (50001, True)
    """

    def __init__(self) -> None:
        self._pieces: list[bytes] | None = []
        self._packing: Any = zlib.compressobj(1, wbits=31)
        self._rest = bytearray()
        self.size = self.length = 0

    @classmethod
    def of(cls, *parts: bytes) -> "Packed":
        """Returns the compressed concatenation of parts."""
        packed = cls()
        for part in parts:
            packed.add(part)
        packed.end()
        return packed

    def add(self, part: bytes) -> int:
        """Adds a part; returns the number of new compressed bytes."""
        self.length += len(part)
        return self._take(self._packing.compress(part))

    def end(self) -> int:
        """Ends the gzip stream; returns the number of new compressed bytes."""
        taken = self._take(self._packing.flush())
        if self._rest and self._pieces is not None:
            self._pieces.append(bytes(self._rest))
        self._packing, self._rest = None, bytearray()
        return taken

    def _take(self, data: bytes) -> int:
        self.size += len(data)
        self._rest += data
        while len(self._rest) >= PIECE_BYTES and self._pieces is not None:
            self._pieces.append(bytes(self._rest[:PIECE_BYTES]))
            del self._rest[:PIECE_BYTES]
        return len(data)

    def drop(self) -> None:
        """Frees the bytes, even during a transfer."""
        self._pieces = None

    def gzipped(self) -> Iterator[bytes]:
        """Yields the compressed bytes in pieces; raises Dropped after `drop`."""
        for at in count():
            if self._pieces is None:
                raise Dropped
            if at == len(self._pieces):
                return
            yield self._pieces[at]

    def plain(self) -> Iterator[bytes]:
        """Yields the uncompressed bytes in pieces; raises Dropped after `drop`."""
        unpacking = zlib.decompressobj(31)
        for piece in self.gzipped():
            data = piece
            while data:
                yield unpacking.decompress(data, PIECE_BYTES)
                data = unpacking.unconsumed_tail
        yield unpacking.flush()


class Answers:
    """LRU cache of answers, which one thread makes.

    Concurrent requests with the same key get the same answer.
    """

    def __init__(self) -> None:
        self._kept: OrderedDict[object, Packed] = OrderedDict()
        self._waiting: dict[object, asyncio.Future[Packed]] = {}
        self._lock = threading.Lock()
        self._bytes = 0
        self._begins = defaultdict[str, float](float)
        self._turns = defaultdict[str, asyncio.Lock](asyncio.Lock)
        self._ended = threading.Event()
        self._maker = ThreadPoolExecutor(1, thread_name_prefix="make")

    @property
    def bytes(self) -> int:
        """Number of compressed bytes in cached and unfinished answers."""
        return self._bytes

    def __len__(self) -> int:
        return len(self._kept)

    async def get(self, key: object, parts: Parts, kind: str = "") -> Packed:
        """Returns an answer from the cache, or makes it.

        Raises:
            TooLarge: the answer has too many bytes.
            Busy: the queue is full, the answer takes too long, or the worker shuts down.
        """
        with self._lock:
            if (kept := self._kept.get(key)) is not None:
                self._kept.move_to_end(key)
                return kept
        making = self._waiting.get(key)
        if making is None:
            if len(self._waiting) >= MOST_WAITING:
                raise Busy(f"{MOST_WAITING} requests are queued; retry later")
            making = self._waiting[key] = asyncio.ensure_future(self._made(key, parts, kind))
            making.add_done_callback(lambda done: self._waited(key, done))
        try:
            return await asyncio.wait_for(asyncio.shield(making), MAKING_SECONDS)
        except TimeoutError:
            raise Busy("the answer is not ready yet; retry later") from None

    def _waited(self, key: object, made: "asyncio.Future[Packed]") -> None:
        del self._waiting[key]
        if not made.cancelled():
            made.exception()  # marks it as retrieved: its clients may have disconnected

    async def _made(self, key: object, parts: Parts, kind: str) -> Packed:
        async with self._turns[kind]:
            await asyncio.sleep(self._begins[kind] - time.monotonic())
            if self._ended.is_set():
                raise Busy("the worker shuts down")
            return await asyncio.wrap_future(self._maker.submit(self._make, key, parts, kind))

    def _make(self, key: object, parts: Parts, kind: str) -> Packed:
        packed, began = Packed(), time.thread_time()
        with self._lock:
            while self._bytes > MOST_BYTES // 2:  # leaves memory for the answer's snapshot
                self._drop()
        try:
            for part in parts():
                for at in range(0, len(part), _CUT_BYTES):
                    self._count(packed.add(part[at : at + _CUT_BYTES]))
            self._count(packed.end())
        except BaseException:
            with self._lock:
                self._bytes -= packed.size
            raise
        finally:
            if packed.size > _LARGE_BYTES:
                trim_memory()
            pause = min(_PAUSES * (time.thread_time() - began), _LONGEST_PAUSE_SECONDS)
            self._begins[kind] = time.monotonic() + pause
        with self._lock:
            self._kept[key] = packed
            if len(self._kept) > MOST_ANSWERS:
                self._drop()
        return packed

    def _count(self, more: int) -> None:
        """Counts new bytes; above `MOST_BYTES`, drops cached answers."""
        if self._ended.is_set():
            raise Busy("the worker shuts down")
        with self._lock:
            self._bytes += more
            while self._bytes > MOST_BYTES:
                if not self._kept:
                    raise TooLarge
                self._drop()

    def _drop(self) -> None:
        _, packed = self._kept.popitem(last=False)
        self._bytes -= packed.size
        packed.drop()

    def end(self) -> None:
        """Stops the thread that makes answers."""
        self._ended.set()
        self._maker.shutdown(wait=False, cancel_futures=True)
