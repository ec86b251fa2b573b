"""Decodes the binary and JSON frames of many records, with verdicts.

The parser makes one pass over the bytes, without allocation or recursion. It stops at the first byte that is invalid at
its position. After the end of a record, it reads NUL, which no JSON token contains.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
from numba import int64, njit, uint8, uint64

from ldp.kernels.inner import LEAN, lean
from ldp.wire import HEADER_BYTES, JSON_BEGINS, base64_bytes

_F = TypeVar("_F", bound=Callable[..., Any])
_Bytes = npt.NDArray[np.uint8]

# no reference counting: no kernel here owns an array, and it would make parsing a byte of text five times as slow
_INNER: dict[str, Any] = LEAN | {"no_cpython_wrapper": True}
_called: Callable[[_F], _F] = njit(**_INNER)
_inlined: Callable[[_F], _F] = njit(forceinline=True, **_INNER)
# a function with one caller becomes a part of it, which is optimised once instead of once for each level of calls
_merged: Callable[[_F], _F] = njit(inline="always", **_INNER)

_WORD = 8  # bytes copied at once
_HEAD = (1 << 8 * HEADER_BYTES) - 1

_INT64: Any = np.int64  # numba compiles a function again for each int that is passed, but not for each int64
_QUOTE, _COMMA, _MINUS, _COLON, _EQUALS, _BACKSLASH = map(_INT64, b'",-:=\\')
_LIST, _LIST_ENDS, _OBJECT_ENDS = map(_INT64, b"[]}")
_ZERO, _NINE, _SPACE, _U, _A, _F_CAPITAL = map(_INT64, b"09 uAF")
_KEYS = np.frombuffer(b"fingerprintreports", np.uint8)
_FIRST, _SECOND = _INT64(0), _INT64(len(b"fingerprint"))  # start of each key in _KEYS
_TEXT = _INT64(HEADER_BYTES)  # start of the fingerprint's text in the header
_LARGE = 1 << 40  # larger integers are replaced by this one, which exceeds every field

_PLAIN = np.array([_SPACE <= byte < 128 and byte not in (_QUOTE, _BACKSLASH) for byte in range(256)])
_HEX = np.full(128, -1)
_HEX[list(b"0123456789ABCDEF")] = range(16)
_HEX[list(b"abcdef")] = range(10, 16)
_ESCAPES = np.full(128, -1)
_ESCAPES[list(rb'"\/bfnrt')] = list(b'"\\/\b\f\n\r\t')
_SIXES = np.full(256, -1)  # base64 digits, RFC 4648, section 4
_SIXES[list(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/")] = range(64)


class Verdict(IntEnum):
    """Verdict on a record, in the same order as `ldp.frames.VERDICTS`."""

    ACCEPTED = 0
    EMPTY = 1
    VERSION = 2
    LENGTH = 3
    FINGERPRINT = 4
    RETIRED = 5
    SEGMENT = 6
    MANY = 7
    RANGE = 8
    ONES = 9
    RATE = 10
    JSON = 11


def frames_capacity(span: int, size: int, fields: int) -> int:
    """Returns the most bytes that `read_frames` writes for `span` input bytes.

    `size` is the size of a report in bytes. `fields` is the number of integers in a report, or 0 for a vector report.
    """
    # plus one report for items beyond the limit, and one word because writes are whole words
    return max(span, span // least_text(size, fields) * size) + size + _WORD


def least_text(size: int, fields: int) -> int:
    """Returns the smallest size of a report in JSON, with a comma or bracket."""
    return 2 if fields == 1 else 2 * fields + 2 if fields else base64_bytes(size) + 3


@lean
def read_frames(
    data: _Bytes,
    begins: npt.NDArray[np.int64],
    ends: npt.NDArray[np.int64],
    header: _Bytes,
    rules: tuple[int, int, int],
    fields: npt.NDArray[np.int64],
    reports: _Bytes,
    counts: npt.NDArray[np.int64],
    verdicts: _Bytes,
    json: Any,
) -> int:
    """Classifies records and copies the reports of accepted records; O(bytes).

    Integers in JSON are checked against their bounds. The content of binary reports and vectors is not checked.

    Args:
        data: the records' bytes.
        begins: (m,) int64, the start of each record.
        ends: (m,) int64, the end of each record.
        header: the version byte, the fingerprint, and the fingerprint in hexadecimal text.
        rules: the size of a report in bytes, the `least_text` of a report, and the limit of reports per record.
        fields: (f, 2) int64, exclusive bound and size in bytes of each integer in a report. For a vector, f is 0.
        reports: (`frames_capacity`,) uint8, output: the reports of accepted records.
        counts: (m,) int64, output: the number of reports of each accepted record, 0 for other records.
        verdicts: (m,) uint8, output: the `Verdict` on each record.
        json: True; or None to compile without the parser of JSON, and to stop before JSON.

    Returns:
        The number of reports; −1 if the records are not ascending ranges of the data; −2 if `json` is None and a record
        is JSON.
    """
    size, _, most = rules
    common = HEADER_BYTES + size if size <= _WORD and most else -1
    head = uint64(0)
    for k in range(HEADER_BYTES):
        head |= uint64(header[k]) << uint64(8 * k)
    total = before = 0
    last = ends[-1] if ends.size else 0
    last = last if last < data.size else data.size
    for i in range(begins.size):
        begin, end = begins[i], ends[i]
        if begin < before or end < begin or end > last:
            return -1
        before = end
        count, verdict = 1, Verdict.ACCEPTED.value
        if end - begin == common and end + _WORD <= data.size and _word(data, begin) & uint64(_HEAD) == head:
            _put(reports, total * size, _word(data, begin + HEADER_BYTES))
        elif end > begin and data[begin] == JSON_BEGINS:
            if json is None:
                return -2
            count, verdict = _read_json(data, begin, end, header, rules, fields, reports, total * size)
        else:
            count, verdict = _read_binary(data, begin, end, header, rules, reports, total * size)
        counts[i] = count
        verdicts[i] = verdict
        total += count
    return total


# Binary frames


@_called
def _read_binary(
    data: _Bytes,
    begin: int,
    end: int,
    header: _Bytes,
    rules: tuple[int, int, int],
    reports: _Bytes,
    place: int,
) -> tuple[int, int]:
    size, _, most = rules
    body = end - begin - HEADER_BYTES
    if end == begin:
        return 0, Verdict.EMPTY.value
    if data[begin] != header[0]:
        return 0, Verdict.VERSION.value
    if body < 0:
        return 0, Verdict.LENGTH.value
    for k in range(1, HEADER_BYTES):
        if data[begin + k] != header[k]:
            return 0, Verdict.FINGERPRINT.value
    if body == 0 or body % size:
        return 0, Verdict.LENGTH.value
    if body // size > most:
        return 0, Verdict.MANY.value
    start, left = end - body, body
    while left > 0 and start + _WORD <= data.size:
        _put(reports, place, _word(data, start))
        start, place, left = start + _WORD, place + _WORD, left - _WORD
    for k in range(left):
        reports[place + k] = data[start + k]
    return body // size, Verdict.ACCEPTED.value


@_inlined
def _word(data: _Bytes, start: int) -> Any:
    """Reads eight bytes as an integer, in a form that compiles to one load."""
    at = uint64(start)
    low = uint64(data[at]) | uint64(data[at + uint64(1)]) << uint64(8)
    low |= uint64(data[at + uint64(2)]) << uint64(16) | uint64(data[at + uint64(3)]) << uint64(24)
    low |= uint64(data[at + uint64(4)]) << uint64(32) | uint64(data[at + uint64(5)]) << uint64(40)
    return low | uint64(data[at + uint64(6)]) << uint64(48) | uint64(data[at + uint64(7)]) << uint64(56)


@_inlined
def _put(reports: _Bytes, place: int, word: int) -> None:
    """Writes an integer as eight bytes, in a form that compiles to one store."""
    at = uint64(place)
    for k in range(_WORD):
        reports[at + uint64(k)] = uint8(word >> uint64(8 * k))


# JSON frames: each function parses text at an index and returns the index after it, or −1 if it does not match


@_merged
def _read_json(
    data: _Bytes,
    begin: int,
    end: int,
    header: _Bytes,
    rules: tuple[int, int, int],
    fields: npt.NDArray[np.int64],
    reports: _Bytes,
    place: int,
) -> tuple[int, int]:
    count, verdict, same, first = 0, Verdict.ACCEPTED.value, False, -1
    at = _space(data, begin + 1, end)
    for turn in range(2):
        key = 0
        after, found = _string(data, at, end, _KEYS, _FIRST, _SECOND)
        if not found:
            key = 1
            after, found = _string(data, at, end, _KEYS, _SECOND, _KEYS.size)
        if after < 0 or not found or key == first:
            return 0, Verdict.JSON.value
        first = key
        at = _mark(data, after, end, _COLON)
        if key == 0:
            at, same = _string(data, at, end, header, _TEXT, header.size)
        else:
            at, count, verdict = _reports(data, at, end, rules, fields, reports, place)
        at = _mark(data, at, end, _OBJECT_ENDS if turn else _COMMA)
        if at < 0:
            return 0, Verdict.JSON.value
    if at != end:
        return 0, Verdict.JSON.value
    if not same:
        return 0, Verdict.FINGERPRINT.value
    return (count if verdict == Verdict.ACCEPTED else 0), verdict


@_merged
def _reports(
    data: _Bytes,
    at: int,
    end: int,
    rules: tuple[int, int, int],
    fields: npt.NDArray[np.int64],
    reports: _Bytes,
    place: int,
) -> tuple[int, int, int]:
    size, least, most = rules
    kept = (end - at) // least
    kept = kept if kept < most else most  # further reports are rejected and overwrite one place
    count, verdict = 0, Verdict.ACCEPTED.value
    at = _mark(data, at, end, _LIST)
    if _byte(data, at, end) == _LIST_ENDS:
        return at + 1, 0, Verdict.LENGTH.value
    while at >= 0:
        to = place + (count if count < kept else kept) * size
        if _byte(data, at, end) == _QUOTE:
            at, wrong = _base64(data, at + 1, end, size, reports, to)
            if len(fields):
                wrong = Verdict.JSON.value
        else:
            at, wrong = _numbers(data, at, end, fields, reports, to)
        verdict = verdict if verdict > wrong else wrong  # JSON prevails over RANGE
        count += 1
        at = _space(data, at, end)
        if _byte(data, at, end) == _LIST_ENDS:
            return at + 1, count, Verdict.MANY.value if count > most else verdict
        at = _mark(data, at, end, _COMMA)
    return -1, 0, Verdict.JSON.value


@_inlined
def _numbers(
    data: _Bytes, at: int, end: int, fields: npt.NDArray[np.int64], reports: _Bytes, to: int
) -> tuple[int, int]:
    listed = _byte(data, at, end) == _LIST
    found, verdict = 0, Verdict.ACCEPTED.value
    if listed:
        at = _space(data, at + 1, end)
        if _byte(data, at, end) == _LIST_ENDS:
            return at + 1, Verdict.JSON.value
    while True:
        at, number = _integer(data, at, end)
        if at < 0:
            return -1, Verdict.JSON.value
        if found < len(fields):
            if not 0 <= number < fields[found, 0]:
                verdict = Verdict.RANGE.value
            for k in range(fields[found, 1]):
                reports[to + k] = uint8(number >> 8 * k & 255)
            to += fields[found, 1]
        found += 1
        if not listed:
            break
        at = _space(data, at, end)
        if _byte(data, at, end) == _LIST_ENDS:
            at += 1
            break
        at = _mark(data, at, end, _COMMA)
    fits = found == len(fields) and listed == (found > 1)
    return at, verdict if fits else Verdict.JSON.value


@_inlined
def _integer(data: _Bytes, at: int, end: int) -> tuple[int, int]:
    negative = _byte(data, at, end) == _MINUS
    at += negative
    digit = _byte(data, at, end)
    if not _ZERO <= digit <= _NINE:
        return -1, 0
    if digit == _ZERO:
        return at + 1, 0
    number = 0
    while _ZERO <= digit <= _NINE:
        number = 10 * number + digit - _ZERO
        number = number if number < _LARGE else _LARGE
        at += 1
        digit = _byte(data, at, end)
    return at, -number if negative else number


@_inlined
def _base64(data: _Bytes, at: int, end: int, size: int, reports: _Bytes, to: int) -> tuple[int, int]:
    whole, letters, length = size // 3 * 4, -(-size * 4 // 3), -(-size // 3) * 4
    found = bits = word = 0
    good = True
    while True:
        while found < whole and at + 4 <= end and bits == 0:  # four unescaped characters encode three bytes
            four = _SIXES[data[at]] << 18 | _SIXES[data[at + 1]] << 12 | _SIXES[data[at + 2]] << 6
            four |= _SIXES[data[at + 3]]
            if four < 0:
                break
            reports[to], reports[to + 1], reports[to + 2] = uint8(four >> 16), uint8(four >> 8), uint8(four)
            at, to, found = at + 4, to + 3, found + 4
        at, code = _character(data, at, end)
        if code < 0:
            break
        six = _SIXES[code] if code < len(_SIXES) else -1
        if found < letters:
            good &= six >= 0
            word, bits = (word << 6 | six & 63) & 4095, bits + 6
            if bits >= 8:
                bits -= 8
                reports[to] = uint8(word >> bits)
                to += 1
        else:
            good &= code == _EQUALS
        found += 1
    good &= found == length and word & ((1 << bits) - 1) == 0
    after = at + 1 if _byte(data, at, end) == _QUOTE else -1
    return after, Verdict.ACCEPTED.value if good else Verdict.JSON.value


@_inlined
def _string(data: _Bytes, at: int, end: int, text: _Bytes, first: int, last: int) -> tuple[int, bool]:
    """Parses a string and compares it with text[first:last].

    A string of another length does not match, nor does one that differs by a character other than 0–9 and a–f.
    """
    if _byte(data, at, end) != _QUOTE:
        return -1, False
    at += 1
    same = True
    for k in range(first, last):
        at, code = _character(data, at, end)
        if code != text[k]:
            if not 0 <= code < len(_HEX) or _HEX[code] < 0 or _A <= code <= _F_CAPITAL:
                return -1, False
            same = False
    return (at + 1 if _byte(data, at, end) == _QUOTE else -1), same


@_inlined
def _character(data: _Bytes, at: int, end: int) -> tuple[int, int]:
    """Parses a character of a string; code −1 is the string's end or an error."""
    byte = _byte(data, at, end)
    if _PLAIN[byte]:
        return at + 1, byte
    if byte >= 128:
        return _wide(data, at, end)
    if byte != _BACKSLASH:
        return at, -1
    escape = _byte(data, at + 1, end)
    if escape != _U:
        code = _ESCAPES[escape] if escape < len(_ESCAPES) else -1
        return (at + 2 if code >= 0 else at), code
    code = 0
    for k in range(at + 2, at + 6):
        digit = _byte(data, k, end)
        if digit >= len(_HEX) or _HEX[digit] < 0:
            return at, -1
        code = code << 4 | _HEX[digit]
    return at + 6, code


@_called
def _wide(data: _Bytes, at: int, end: int) -> tuple[int, int]:
    """Parses a multi-byte character; rejects overlong forms and surrogates."""
    first = _byte(data, at, end)
    more = 1 if first < 0xE0 else 2 if first < 0xF0 else 3
    code = first & (0x3F >> more)
    for k in range(at + 1, at + 1 + more):
        byte = _byte(data, k, end)
        if byte & 0xC0 != 0x80:
            return at, -1
        code = code << 6 | byte & 0x3F
    least = 0x80 if more == 1 else 0x800 if more == 2 else 0x10000
    if first < 0xC0 or first > 0xF7 or not least <= code <= 0x10FFFF or 0xD800 <= code <= 0xDFFF:
        return at, -1
    return at + 1 + more, code


@_inlined
def _mark(data: _Bytes, at: int, end: int, mark: int) -> int:
    """Parses a structural character, and white space on both sides of it."""
    at = _space(data, at, end)
    return _space(data, at + 1, end) if _byte(data, at, end) == mark else -1


@_inlined
def _space(data: _Bytes, at: int, end: int) -> int:
    """Skips white space; returns −1 if `at` is −1."""
    while True:
        byte = _byte(data, at, end)
        if byte > _SPACE or byte not in (_SPACE, 0x0A, 0x0D, 0x09):
            return at
        at += 1


@_inlined
def _byte(data: _Bytes, at: int, end: int) -> int:
    """Returns a byte, or 0 if `at` is −1 or is not before `end`."""
    return int64(data[at]) if 0 <= at < end else int64(0)  # type: ignore[return-value]
