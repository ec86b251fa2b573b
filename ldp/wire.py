"""Binary frames: layout and sizes, without numpy.

A binary frame:

    byte    content
    0       the version, 0x01
    1–4     the fingerprint of the stream's document
    5–      one or more consecutive reports of the same size

    report  one integer per field in the order of `Oracle.fields`, unsigned and little-endian, in 1, 2 or 4 bytes: the
            fewest that hold all integers below the field's bound. A vector (bits, indices) has one integer per element.

If the document has the key ``segment``, the version is 0x02. The length of the segment in one byte, and the segment in
ASCII, then follow the fingerprint.

A frame whose first byte is ``{`` is JSON. Other first bytes are invalid. docs/reference/wire-format.md defines both
formats for clients in other languages, and ``tests/vectors`` contains valid and invalid frames.
"""

from collections.abc import Iterable

VERSION = 1
SEGMENT_VERSION = 2
FINGERPRINT_BYTES = 4
HEADER_BYTES = 1 + FINGERPRINT_BYTES
JSON_BEGINS = ord("{")
LARGEST_FRAME = 1_000_000
"""Largest frame in bytes, which fits a record under Kafka's default limits of about 2²⁰ bytes."""


def header(fingerprint: bytes, segment: str | None = None) -> bytes:
    """Returns the header of binary frames with a fingerprint and a segment."""
    if segment is None:
        return bytes([VERSION]) + fingerprint
    return bytes([SEGMENT_VERSION]) + fingerprint + bytes([len(segment)]) + segment.encode()


def header_bytes(frame: bytes) -> int:
    """Returns the size of a binary frame's header, with the segment."""
    if frame[:1] != bytes([SEGMENT_VERSION]) or len(frame) <= HEADER_BYTES:
        return HEADER_BYTES
    return HEADER_BYTES + 1 + frame[HEADER_BYTES]


def bytes_below(bound: int) -> int:
    """Returns the size (1, 2 or 4 bytes) of integers below `bound`.

    Raises ValueError: a bound above 2³².
    """
    if bound > 1 << 32:
        raise ValueError(f"the bound of an integer is {bound}; allowed are bounds up to {1 << 32}")
    return next(size for size in (1, 2, 4) if bound <= 1 << 8 * size)


def report_bytes(bounds: Iterable[int], length: int | None) -> int:
    """Returns the size in bytes of a report with these bounds and length."""
    return (1 if length is None else length) * sum(map(bytes_below, bounds))


def integers(report: bytes, bounds: Iterable[int]) -> list[int]:
    """Decodes the integers of a report that is not a vector."""
    numbers, at = [], 0
    for bound in bounds:
        size = bytes_below(bound)
        numbers.append(int.from_bytes(report[at : at + size], "little"))
        at += size
    return numbers


def frame_bytes(report: int, reports: int = 1) -> int:
    """Returns a binary frame's size in bytes, for reports of `report` bytes."""
    return HEADER_BYTES + report * reports


def base64_bytes(report: int) -> int:
    """Returns the length of a report's base64 text from the report's size."""
    return -(-report // 3) * 4
