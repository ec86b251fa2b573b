"""The wire: the bytes of a record; without numpy.

A binary frame:

    byte    content
    0       the version, 0x01
    1–4     the fingerprint of the stream's document
    5–      one or more reports, one after the other, all of one size

    report  its integers in the order of `Oracle.fields`, each unsigned and little-endian, in 1, 2 or 4 bytes:
            the fewest that hold what is below its bound; of a vector (bits, indices) as many as it has elements

A record whose first byte is ``{`` is a JSON frame; any other has an unknown version. docs/reference/wire-format.md
defines both for clients in other languages, and ``tests/vectors`` holds good and bad ones.
"""

from collections.abc import Iterable

VERSION = 1
FINGERPRINT_BYTES = 4
HEADER_BYTES = 1 + FINGERPRINT_BYTES
JSON_BEGINS = ord("{")
LARGEST_FRAME = 1_000_000
"""A larger frame does not fit into a record under Kafka's default limits of about 2²⁰ bytes."""


def header(fingerprint: bytes) -> bytes:
    """The first bytes of each binary frame of a stream with this fingerprint."""
    return bytes([VERSION]) + fingerprint


def bytes_below(bound: int) -> int:
    """The size of the smallest unsigned integer that holds bound − 1, bound ≤ 2³²."""
    return next(size for size in (1, 2, 4) if bound <= 1 << 8 * size)


def report_bytes(bounds: Iterable[int], length: int | None) -> int:
    """The size of a report: `bounds` of its integers, `length` of its only field if that is a vector."""
    return (1 if length is None else length) * sum(map(bytes_below, bounds))


def integers(report: bytes, bounds: Iterable[int]) -> list[int]:
    """Returns the integers of a report that is no vector, from its bytes and their bounds."""
    numbers, at = [], 0
    for bound in bounds:
        size = bytes_below(bound)
        numbers.append(int.from_bytes(report[at : at + size], "little"))
        at += size
    return numbers


def frame_bytes(report: int, reports: int = 1) -> int:
    """The size of a binary frame of so many reports of a size."""
    return HEADER_BYTES + report * reports


def base64_bytes(report: int) -> int:
    """The size of a report's base64 in a JSON frame."""
    return -(-report // 3) * 4
