"""A reference decoder of frames, one record at a time, to compare with `ldp.frames.decode`."""

import json
import string
import struct
from collections.abc import Collection, Sequence
from fractions import Fraction
from functools import cache
from math import comb
from typing import Any

import numpy as np
import numpy.typing as npt

import ldp

ALPHABET = string.ascii_uppercase + string.ascii_lowercase + string.digits + "+/"
_LETTERS = {1: "B", 2: "H", 4: "I"}


@cache
def weight_bounds(oracle: Any) -> tuple[int, int]:
    """Returns bounds of a unary report's Hamming weight; beyond each is probability at most 5·10⁻¹³."""
    d, p, q = oracle.domain_size, oracle.p, oracle.q
    rest = [comb(d - 1, k) * q**k * (1 - q) ** (d - 1 - k) for k in range(d)]
    law = [(1 - p) * without + p * own for without, own in zip([*rest, 0], [0, *rest], strict=True)]
    beyond = Fraction(1, 2 * 10**12)
    low = max(k for k in range(d + 1) if sum(law[:k]) <= beyond)
    return low, min(k for k in range(d + 1) if sum(law[k + 1 :]) <= beyond)


def bounds_of(oracle: Any) -> list[int] | None:
    """Returns the upper bounds of a report's integers; None for a vector."""
    match oracle.name:
        case "grr" | "response":
            return [oracle.domain_size]
        case "olh":
            return [2**32, oracle.g]
        case "hadamard":
            return [2 ** len(f"{oracle.domain_size:b}")]
        case "pgr":
            return [(oracle.prime**oracle.dimension - 1) // (oracle.prime - 1)]
    return None


def size_of(oracle: Any) -> Any:
    bounds = bounds_of(oracle)
    if bounds:
        return sum(1 if bound <= 256 else 2 if bound <= 65536 else 4 for bound in bounds)
    bits = -(-oracle.domain_size // 8)
    return min(bits, oracle.k * width(oracle.domain_size)) if oracle.name == "subset" else bits


def width(d: int) -> int:
    return 1 if d <= 256 else 2 if d <= 65536 else 4


def is_vector(oracle: Any, wire: bytes) -> Any:
    """Returns whether bytes are a valid vector report."""
    d, bits = oracle.domain_size, -(-oracle.domain_size // 8)
    if oracle.name == "subset" and oracle.k * width(d) <= bits:
        form = struct.Struct("<" + str(oracle.k) + {1: "B", 2: "H", 4: "I"}[width(d)])
        indices = list(form.unpack(wire))
        return indices == sorted(set(indices)) and indices[-1] < d
    ones = int.from_bytes(wire, "little")
    return ones < 1 << d and (oracle.name != "subset" or ones.bit_count() == oracle.k)


def read_one(stream: ldp.Stream, record: bytes, most: int | None) -> Any:
    """Returns a frame's reports as tuples or bytes, or the reason of its rejection."""
    answer = read_any([stream], record, most)
    return answer if isinstance(answer, str) else answer[2]


def read_any(
    documents: Sequence[ldp.Stream],
    record: bytes,
    most: int | None = None,
    retired: Collection[bytes] = (),
    declared: Collection[str] = (),
) -> Any:
    """Returns a frame's document, the cell of its segment and its reports, or the reason of its rejection."""
    found = split_json(record) if record.startswith(b"{") else split_binary(record)
    if isinstance(found, str):
        return found
    mark, segment, body = found
    known = [stream.fingerprint for stream in documents]
    if mark in retired:
        return "retired"
    if mark not in known:
        return "fingerprint"
    stream = documents[known.index(mark)]
    if stream.segment is None and segment is not None:
        return "segment"
    if stream.segment is not None and (segment is None or not is_segment(segment)):
        return "segment"
    rows = rows_of_binary(stream, body, most) if isinstance(body, bytes) else rows_of_json(stream, body, most)
    rows = rows if isinstance(rows, str) else checked(stream.oracle, rows)
    return rows if isinstance(rows, str) else (known.index(mark), cell_of(segment, declared), rows)


def is_segment(text: str) -> bool:
    letters = set(string.ascii_letters + string.digits + "._-")
    return len(text) <= 64 and all(
        1 <= len(level) <= 32 and set(level) <= letters for level in text.split(":")
    )


def cell_of(segment: str | None, declared: Collection[str]) -> str:
    """Returns the name of a segment's cell."""
    if segment is None or segment in declared:
        return segment or ""
    levels = segment.split(":")
    for n in range(len(levels), 0, -1):
        if any(name.split(":")[:n] == levels[:n] for name in declared):
            return ":".join(levels[:n]) + ":~"
    return "~"


def split_binary(record: bytes) -> Any:
    """Returns the fingerprint, the segment and the bytes of the reports, or a reason."""
    if record == b"":
        return "empty"
    if record[0] not in (1, 2):
        return "version"
    if len(record) < 5:
        return "length"
    if record[0] == 1:
        return record[1:5], None, record[5:]
    text = record[6:][: record[5]] if len(record) > 5 else b""
    whole = len(record) > 5 and len(text) == record[5]
    return record[1:5], text.decode("latin-1") if whole else "", record[6 + len(text) :]


def rows_of_binary(stream: ldp.Stream, body: bytes, most: int | None) -> Any:
    bounds, size = bounds_of(stream.oracle), size_of(stream.oracle)
    if body == b"" or len(body) % size:
        return "length"
    form = struct.Struct("<" + "".join(_LETTERS[width(bound)] for bound in bounds) if bounds else f"{size}s")
    rows = list(form.iter_unpack(body))
    if len(rows) > (len(rows) if most is None else most):
        return "many"
    return rows if bounds else [wire for (wire,) in rows]


def checked(oracle: Any, rows: list[Any]) -> Any:
    """Returns the reports, or the reason against one of them."""
    bounds = bounds_of(oracle)
    if not bounds:
        if not all(is_vector(oracle, wire) for wire in rows):
            return "range"
        if oracle.name == "subset":
            return rows
        low, high = weight_bounds(oracle)
        ones = [int.from_bytes(wire, "little").bit_count() for wire in rows]
        return rows if low <= min(ones) <= max(ones) <= high else "ones"
    if any(number < 0 or number >= bound for row in rows for number, bound in zip(row, bounds, strict=True)):
        return "range"
    return rows


def split_json(record: bytes) -> Any:
    """Returns the fingerprint, the segment and the items, or a reason."""

    class Bad:  # an object or a float at any position
        def __init__(self, read: Any) -> None:
            self.read = read

    try:
        frame = json.loads(
            str(record, "utf-8"),
            object_pairs_hook=Bad,
            parse_float=Bad,
            parse_constant=Bad,
            parse_int=lambda text: int(text[:30]),
        )
    except (ValueError, RecursionError):
        return "json"
    keys = sorted(key for key, _ in frame.read)
    if keys not in (["fingerprint", "reports"], ["fingerprint", "reports", "segment"]):
        return "json"
    frame = dict(frame.read)
    mark, items, segment = frame["fingerprint"], frame["reports"], frame.get("segment", "")
    if (
        type(mark) is not str
        or type(segment) is not str
        or len(mark) != 8
        or set(mark) - set("0123456789abcdef")
        or type(items) is not list
        or any(type(x) not in (int, str) for item in items for x in (item if type(item) is list else [item]))
        or any(type(x) is str for item in items if type(item) is list for x in item)
    ):
        return "json"
    return bytes.fromhex(mark), segment if "segment" in keys else None, items


def rows_of_json(stream: ldp.Stream, items: list[Any], most: int | None) -> Any:
    if not items:
        return "length"
    if len(items) > (len(items) if most is None else most):
        return "many"
    bounds, size = bounds_of(stream.oracle), size_of(stream.oracle)
    if bounds is None:
        reports = [from_base64(item, size) if type(item) is str else None for item in items]
        return "json" if None in reports else reports
    rows: list[Any] = [(item,) if len(bounds) == 1 else item for item in items]
    if any(
        not isinstance(row, list | tuple) or [type(x) for x in row] != [int] * len(bounds) for row in rows
    ):
        return "json"
    return [tuple(row) for row in rows]


def from_base64(text: str, size: int) -> bytes | None:
    """Decodes canonical Base64; None for any other text."""
    core = text.rstrip("=")
    if len(core) != -(-size * 4 // 3) or len(text) != -(-size // 3) * 4 or set(core) - set(ALPHABET):
        return None
    number, spare = 0, 6 * len(core) - 8 * size
    for character in core:
        number = number * 64 + ALPHABET.index(character)
    return None if number % (1 << spare) else (number >> spare).to_bytes(size, "big")


def rows_of(reports: npt.NDArray[np.void]) -> list[Any]:
    """Returns reports as tuples, or vectors as bytes."""
    (name, *_) = reports.dtype.names or ()
    return [row.tobytes() for row in reports] if reports.dtype[name].shape else reports.tolist()
