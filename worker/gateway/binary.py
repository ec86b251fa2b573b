"""Binary HTTP (RFC 9292): reads requests, writes responses."""

import re
from collections.abc import Iterable
from dataclasses import dataclass

_METHOD = re.compile(rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_PATH = re.compile(rb"/[!-~]*")
_NAME = re.compile(rb"[!#$%&'*+\-.^_`|~0-9a-z]+")
_VALUE = re.compile(rb"[^\0\r\n]*")

Fields = list[tuple[bytes, bytes]]


class MalformedError(ValueError):
    """Raised for bytes that are not a request in binary HTTP."""


@dataclass(frozen=True, slots=True)
class BinaryRequest:
    """A request; its scheme, authority and trailers are dropped."""

    method: str
    path: str
    fields: Fields
    content: bytes


def read_request(message: bytes) -> BinaryRequest:
    r"""Parses a request of known or indeterminate length, with padding.

    Raises MalformedError.

    Example:
        >>> read_request(b"\0\3GET\5https\0\1/")
        BinaryRequest(method='GET', path='/', fields=[], content=b'')
    """
    reader = _Reader(message)
    if (framing := reader.number()) not in (0, 2):
        raise MalformedError(f"framing indicator {framing}; allowed are 0 and 2")
    known = framing == 0
    method, _, _, path = (reader.piece() for _ in range(4))
    if not (_METHOD.fullmatch(method) and _PATH.fullmatch(path)):
        raise MalformedError("method or path has other characters than HTTP allows")
    fields, content, _ = _fields(reader, known), _content(reader, known), _fields(reader, known)
    if reader.take(reader.left).strip(b"\0"):
        raise MalformedError("padding with other bytes than zeros")
    return BinaryRequest(method.decode(), path.decode(), fields, content)


def write_response(status: int, fields: Iterable[tuple[bytes, bytes]], content: bytes) -> bytes:
    r"""Returns a final response of known length.

    Names of fields are lower-case.

    Example:
        >>> write_response(202, [], b"")
        b'\x01@\xca\x00\x00'
    """
    lines = b"".join(_written(name) + _written(value) for name, value in fields)
    return b"\x01" + _number(status) + _written(lines) + _written(content)


class _Reader:
    """Reads from the front of a message; raises MalformedError at its end."""

    def __init__(self, message: bytes) -> None:
        self._message, self._at = message, 0

    @property
    def left(self) -> int:
        return len(self._message) - self._at

    def take(self, size: int) -> bytes:
        if size > self.left:
            raise MalformedError("the message is truncated")
        start, self._at = self._at, self._at + size
        return self._message[start : self._at]

    def number(self) -> int:
        """Returns an integer of variable length (RFC 9000, section 16)."""
        first = self.take(1)[0]
        return int.from_bytes(bytes([first & 63]) + self.take((1 << (first >> 6)) - 1))

    def piece(self) -> bytes:
        """Returns bytes after their length."""
        return self.take(self.number())


def _fields(reader: _Reader, known: bool) -> Fields:
    """Returns a section of fields, which can be missing at the message's end."""
    fields = Fields()
    if not reader.left:
        return fields
    section = _Reader(reader.piece()) if known else reader
    while section.left or not known:
        name = section.piece()
        if not name and not known:
            break
        value = section.piece()
        if not (_NAME.fullmatch(name) and _VALUE.fullmatch(value)):
            raise MalformedError("a field has other characters than HTTP allows")
        fields.append((name, value))
    return fields


def _content(reader: _Reader, known: bool) -> bytes:
    """Returns the content, which can be missing at the message's end."""
    if not reader.left:
        return b""
    if known:
        return reader.piece()
    return b"".join(iter(reader.piece, b""))


def _number(number: int) -> bytes:
    power = next(power for power in range(4) if number < 1 << ((8 << power) - 2))
    return (number | power << ((8 << power) - 2)).to_bytes(1 << power)


def _written(piece: bytes) -> bytes:
    return _number(len(piece)) + piece
