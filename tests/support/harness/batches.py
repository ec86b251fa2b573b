"""Record batches made byte by byte, and requests that send them.

The format is implemented independently of the code under test and of the client.
"""

import socket
import struct
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import crc32c
import lz4.frame
import snappy
import zstandard

NONE, GZIP, SNAPPY, LZ4, ZSTD = range(5)
"""The codecs by their number in a batch's attributes."""
HEADER = 61
_PIECE = 1 << 16
_XERIAL = b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1)
_TIME = 1_600_000_000_000


def varint(number: int) -> bytes:
    """Encodes a zigzag varint."""
    left, out = (number << 1) ^ (number >> 63), bytearray()
    while left > 0x7F:
        out.append(left & 0x7F | 0x80)
        left >>= 7
    out.append(left)
    return bytes(out)


def _sized(field: bytes | None) -> bytes:
    return varint(-1) if field is None else varint(len(field)) + field


def record(
    value: bytes | None,
    *,
    key: bytes | None = None,
    headers: Sequence[tuple[bytes, bytes | None]] = (),
    delta: int = 0,
) -> bytes:
    """Encodes a record; header names are any bytes."""
    said = b"".join(varint(len(name)) + name + _sized(what) for name, what in headers)
    body = b"\x00" + varint(0) + varint(delta) + _sized(key) + _sized(value) + varint(len(headers)) + said
    return varint(len(body)) + body


def large(size: int, head: bytes = b"", filling: bytes = b"\x00", tail: bytes = b"") -> Iterator[bytes]:
    """Yields a record with a value of this size in pieces."""
    before = b"\x00" + varint(0) + varint(0) + varint(-1) + varint(size)
    yield varint(len(before) + size + 1) + before + head
    left, piece = size - len(head) - len(tail), filling * max(1, _PIECE // len(filling))
    for _ in range(left // len(piece)):
        yield piece
    yield piece[: left % len(piece)] + tail + varint(0)


def compressed(codec: int, pieces: Iterable[bytes]) -> bytes:
    """Compresses records piece by piece; Snappy in xerial's frames."""
    if codec == GZIP:
        gzip = zlib.compressobj(wbits=31)
        return b"".join([*map(gzip.compress, pieces), gzip.flush()])
    if codec == SNAPPY:
        blocks = map(snappy.compress, pieces)
        return _XERIAL + b"".join(struct.pack(">i", len(block)) + block for block in blocks)
    if codec == LZ4:
        with lz4.frame.LZ4FrameCompressor(block_linked=False) as frame:
            return b"".join([frame.begin(), *map(frame.compress, pieces), frame.flush()])
    if codec == ZSTD:
        zstd = zstandard.ZstdCompressor().compressobj()
        return b"".join([*map(zstd.compress, pieces), zstd.flush()])
    return b"".join(pieces)


def batch(section: bytes, count: int = 1, *, codec: int = NONE, last: int | None = None) -> bytes:
    """Returns a batch with base offset 0 and a valid checksum."""
    behind = count - 1 if last is None else last
    body = struct.pack(">hiqqqhii", codec, behind, _TIME, _TIME, -1, -1, -1, count) + section
    return mended(struct.pack(">qiibI", 0, 9 + len(body), 0, 2, 0) + body)


def mended(damaged: bytes) -> bytes:
    """Returns the batch with a valid checksum."""
    return damaged[:17] + struct.pack(">I", crc32c.crc32c(damaged[21:])) + damaged[21:]


def at(offset: int, made: bytes) -> bytes:
    """Returns the batch as the log stores it at an offset."""
    return struct.pack(">q", offset) + made[8:12] + struct.pack(">i", 0) + made[16:]


class RefusedError(Exception):
    """The broker refused a batch: Kafka's error code and message."""


def produce(kafka: str, topic: str, partition: int, made: bytes) -> int:
    """Sends a batch; returns its base offset or raises `RefusedError`."""
    host, _, port = kafka.rpartition(":")
    name = topic.encode()
    request = struct.pack(">hhihhhi", 0, 8, 1, -1, -1, -1, 60_000)
    request += struct.pack(f">ih{len(name)}siii", 1, len(name), name, 1, partition, len(made)) + made
    with socket.create_connection((host, int(port)), timeout=180) as connection:
        connection.sendall(struct.pack(">i", len(request)) + request)
        with connection.makefile("rb") as stream:
            (size,) = struct.unpack(">i", stream.read(4))
            answer = stream.read(size)
    error, offset = struct.unpack_from(">hq", answer, 4 + 4 + 2 + len(name) + 4 + 4)
    if error:
        raise RefusedError(error, answer[-120:])
    return int(offset)


@dataclass(frozen=True)
class Segment:
    """The log segment file of a partition on this machine."""

    path: Path

    @classmethod
    def of(cls, folder: Path, topic: str, partition: int) -> "Segment":
        """Returns the first segment of a partition."""
        return cls(folder / "kafka" / f"{topic}-{partition}" / "00000000000000000000.log")

    def at(self, offset: int) -> tuple[int, bytes]:
        """Returns position and bytes of the batch with this base offset."""
        data, place = self.path.read_bytes(), 0
        while place < len(data):
            base, length = struct.unpack_from(">qi", data, place)
            if base == offset:
                return place, data[place : place + 12 + length]
            place += 12 + length
        raise LookupError(f"no batch at offset {offset} in {self.path}")

    def overwrite(self, offset: int, made: bytes) -> None:
        """Replaces a batch by one of the same size."""
        place, found = self.at(offset)
        assert len(found) == len(made)
        with self.path.open("r+b") as file:
            file.seek(place)
            file.write(made)
