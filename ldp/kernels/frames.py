"""Decodes the binary and JSON frames of many records, with verdicts.

The parser makes one pass over the bytes, without allocation or recursion. It stops at the first byte that is invalid at
its position. After the end of a record, it reads NUL, which no JSON token contains.

A kernel may only call functions of its own file, that is why it is longer than others.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
from numba import int64, njit, uint8, uint64

from ldp.kernels.inner import LEAN, lean
from ldp.segments import HASH_MULTIPLIER, LONGEST, LONGEST_LEVEL
from ldp.wire import FINGERPRINT_BYTES, HEADER_BYTES, JSON_BEGINS, SEGMENT_VERSION, VERSION, base64_bytes

_F = TypeVar("_F", bound=Callable[..., Any])
_Bytes = npt.NDArray[np.uint8]
_Marks = tuple[npt.NDArray[np.int16], npt.NDArray[np.int64], int]
_Segments = tuple[npt.NDArray[np.int16], npt.NDArray[np.uint64], npt.NDArray[np.int64]]

# no reference counting: no kernel here owns an array, and it would make parsing a byte of text five times as slow
_INNER: dict[str, Any] = LEAN | {"no_cpython_wrapper": True}
_called: Callable[[_F], _F] = njit(**_INNER)
_inlined: Callable[[_F], _F] = njit(forceinline=True, **_INNER)
# a function with one caller becomes a part of it, which is optimised once instead of once for each level of calls
_merged: Callable[[_F], _F] = njit(inline="always", **_INNER)

_WORD = 8  # bytes copied at once
_HEAD = (1 << 8 * HEADER_BYTES) - 1
_WHOLE = (1 << 8 * _WORD) - 1
_OTHER = LONGEST + 2 * _WORD  # the place of other strings than segments; a string is cut after LONGEST + 1
TEXT_BYTES = 2 * _OTHER

_INT64: Any = np.int64  # numba compiles a function again for each int that is passed, but not for each int64
_QUOTE, _COMMA, _MINUS, _COLON, _EQUALS, _BACKSLASH = map(_INT64, b'",-:=\\')
_LIST, _LIST_ENDS, _OBJECT_ENDS = map(_INT64, b"[]}")
_ZERO, _NINE, _SPACE, _U = map(_INT64, b"09 u")
_KEYS = np.frombuffer(b"fingerprintreportssegment", np.uint8)
_KEY_BEGINS = np.array([0, 11, 18, 25])  # the start of each key in _KEYS, and the end
_FINGERPRINT, _REPORTS = 0, 1  # the indices of the keys that a frame must have
_REQUIRED = 1 << _FINGERPRINT | 1 << _REPORTS
_LARGE = 1 << 40  # larger integers are replaced by this one, which exceeds every field

_PLAIN = np.array([_SPACE <= byte < 128 and byte not in (_QUOTE, _BACKSLASH) for byte in range(256)])
_HEX = np.full(128, -1)
_HEX[list(b"0123456789ABCDEF")] = range(16)
_HEX[list(b"abcdef")] = range(10, 16)
_DIGITS = np.full(256, -1)
_DIGITS[list(b"0123456789abcdef")] = range(16)
_ESCAPES = np.full(128, -1)
_ESCAPES[list(rb'"\/bfnrt')] = list(b'"\\/\b\f\n\r\t')
_OF_LEVEL = np.zeros(256, np.bool_)  # characters of a segment's levels
_OF_LEVEL[list(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-")] = True
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
    JSON = 10


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
    rules: tuple[int, int],
    reports: _Bytes,
    counts: npt.NDArray[np.int64],
    verdicts: _Bytes,
) -> int:
    """Classifies binary records of one document and copies the reports.

    The content of reports is not checked. O(bytes).

    Args:
        data: the records' bytes.
        begins: (m,) int64, the start of each record.
        ends: (m,) int64, the end of each record.
        header: the version byte and the fingerprint.
        rules: the size of a report in bytes, and the limit of reports per record.
        reports: (`frames_capacity`,) uint8, output: the reports of accepted records.
        counts: (m,) int64, output: the number of reports of each accepted record, 0 for other records.
        verdicts: (m,) uint8, output: the `Verdict` on each record.

    Returns:
        The number of reports; −1 if the records are not ascending ranges of the data; −2 if a record is JSON.
    """
    size, most = rules
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
            return -2
        else:
            count, verdict = _read_binary(data, begin, end, header, rules, reports, total * size)
        counts[i] = count
        verdicts[i] = verdict
        total += count
    return total


@lean
def read_short(
    data: _Bytes,
    begins: npt.NDArray[np.int64],
    ends: npt.NDArray[np.int64],
    slots: npt.NDArray[np.int16],
    multiplier: int,
    table: npt.NDArray[np.int64],
    reports: _Bytes,
    of_document: npt.NDArray[np.int16],
) -> int:
    """Reads the first records of several documents, while they are short.

    A short record is binary, and has one report of at most 8 bytes and no segment. `read_documents` would accept it. A
    small loop with few arrays keeps its variables in registers and takes half of the time.

    Args:
        data: as for `read_documents`, like `begins`, `ends`, `reports`, and `of_document`.
        begins: (m,) int64.
        ends: (m,) int64.
        slots: a table of fingerprints, see `read_documents`.
        multiplier: the multiplier of the same table.
        table: (D, 3) int64, in and out: each document's fingerprint, the size of its reports in bytes, and the place of
            its next report in `reports`.
        reports: uint8, output.
        of_document: (m,) int16, output.

    Returns:
        The number of records that were read.
    """
    before = 0
    last = ends[-1] if ends.size else 0
    last = last if last < data.size - _WORD else data.size - _WORD
    for i in range(begins.size):
        begin, end = begins[i], ends[i]
        if begin < before or end < begin or end > last:
            return i
        word = _word(data, begin)
        mark = word >> uint64(8) & uint64(0xFFFFFFFF)
        one = slots[_slot(mark, multiplier, slots)]
        if word & uint64(0xFF) != VERSION or not 0 <= one < len(table):
            return i
        size, place = table[one, 1], table[one, 2]
        if uint64(table[one, 0]) != mark or end - begin != HEADER_BYTES + size or size > _WORD:
            return i
        _put(reports, place, _word(data, begin + HEADER_BYTES))
        before, table[one, 2], of_document[i] = end, place + size, one
    return begins.size


@lean
def read_documents(
    data: _Bytes,
    begins: npt.NDArray[np.int64],
    ends: npt.NDArray[np.int64],
    before: int,
    marks: _Marks,
    documents: npt.NDArray[np.int64],
    fields: npt.NDArray[np.int64],
    segments: _Segments | None,
    most: int,
    reports: _Bytes,
    text: _Bytes,
    found: tuple[npt.NDArray[np.int64], _Bytes, npt.NDArray[np.int16], npt.NDArray[np.int32]],
    totals: npt.NDArray[np.int64],
) -> bool:
    """Classifies binary and JSON records of several documents; O(bytes).

    As `read_frames`, except for these arguments. Integers in JSON are checked against their bounds.

    Args:
        data: the records' bytes.
        begins: (m,) int64, the start of each record.
        ends: (m,) int64, the end of each record.
        before: the end of the last record that `read_short` has read, or 0.
        marks: a table of fingerprints; the documents' come first, then those of retired documents.
        documents: (D, 6) int64: the size of a report in bytes, the `least_text` of a report, whether records have a
            segment, the start of the reports in `reports`, and the first and last row in `fields`.
        fields: (f, 2) int64, exclusive bound and size in bytes of each integer in a report. A vector has none.
        segments: a table of segments; None if no document has a segment, to compile less.
        most: the limit of reports per record.
        reports: uint8, output: the reports of accepted records, with `frames_capacity` for each document.
        text: uint8, `TEXT_BYTES` for work.
        found: (m,) each, output: the number of reports, the verdict, the document and the segment's cell.
        totals: (D,) int64, in and out: the number of reports of each document.

    Returns:
        Whether the records are ascending ranges of the data.
    """
    counts, verdicts, of_document, of_segment = found
    guess = 0
    last = ends[-1] if ends.size else 0
    last = last if last < data.size else data.size
    for i in range(begins.size):
        begin, end = begins[i], ends[i]
        if begin < before or end < begin or end > last:
            return False
        before = end
        count, verdict, one, cell = _read_record(
            data, begin, end, marks, documents, fields, segments, most, reports, text, totals, guess
        )
        if verdict == Verdict.ACCEPTED.value:
            totals[one] += count
            guess = one
        else:
            one, cell, count = -1, 0, 0
        counts[i], verdicts[i], of_document[i], of_segment[i] = count, verdict, one, cell
    return True


@_merged
def _read_record(
    data: _Bytes,
    begin: int,
    end: int,
    marks: _Marks,
    documents: npt.NDArray[np.int64],
    fields: npt.NDArray[np.int64],
    segments: _Segments | None,
    most: int,
    reports: _Bytes,
    text: _Bytes,
    totals: npt.NDArray[np.int64],
    guess: int,
) -> tuple[int, int, int, int]:
    """Returns the number of reports, the verdict, the document, the cell."""
    is_json = end > begin and data[begin] == JSON_BEGINS
    count, start, one, cell = 0, begin, -1, 0
    if is_json:
        count, verdict, mark, length = _read_json(
            data, begin, end, marks, documents, fields, most, reports, totals, text, guess
        )
    else:
        start, verdict, mark, length = _read_header(data, begin, end, text, segments)
    if mark >= 0:
        one = _document(mark, marks)
        early, cell = _early(one, length, documents, segments, text)
        if early:
            verdict = early
        elif not is_json:
            place = documents[one, 3] + totals[one] * documents[one, 0]
            count, verdict = _read_body(data, start, end, documents[one, 0], most, reports, place)
    return count, verdict, one, cell


# Binary frames


@_called
def _read_binary(
    data: _Bytes,
    begin: int,
    end: int,
    header: _Bytes,
    rules: tuple[int, int],
    reports: _Bytes,
    place: int,
) -> tuple[int, int]:
    size, most = rules
    if end == begin:
        return 0, Verdict.EMPTY.value
    if data[begin] != header[0] and data[begin] != SEGMENT_VERSION:
        return 0, Verdict.VERSION.value
    if end - begin < HEADER_BYTES:
        return 0, Verdict.LENGTH.value
    for k in range(1, HEADER_BYTES):
        if data[begin + k] != header[k]:
            return 0, Verdict.FINGERPRINT.value
    if data[begin] != header[0]:
        return 0, Verdict.SEGMENT.value
    return _copy_body(data, begin + HEADER_BYTES, end, size, most, reports, place)


@_inlined
def _read_header(
    data: _Bytes, begin: int, end: int, text: _Bytes, segments: _Segments | None
) -> tuple[int, int, int, int]:
    """Reads the header of a binary record.

    Returns the start of the reports, the verdict, the fingerprint and the length of the segment.

    A record that is rejected has fingerprint −1, and one without a segment has length −1. Copies a segment to `text`.
    """
    if end == begin:
        return end, Verdict.EMPTY.value, -1, -1
    version = data[begin]
    if version not in (VERSION, SEGMENT_VERSION):
        return end, Verdict.VERSION.value, -1, -1
    start = begin + HEADER_BYTES
    if start > end:
        return end, Verdict.LENGTH.value, -1, -1
    at = uint64(begin)
    low = uint64(data[at + uint64(1)]) | uint64(data[at + uint64(2)]) << uint64(8)
    mark = int64(
        low | uint64(data[at + uint64(3)]) << uint64(16) | uint64(data[at + uint64(4)]) << uint64(24)
    )
    if version == VERSION:
        return start, Verdict.ACCEPTED.value, mark, -1
    if segments is None:
        return start, Verdict.ACCEPTED.value, mark, 0
    length = int64(data[start]) if start < end else 0
    if length > LONGEST or start + 1 + length > end:
        length = 0  # malformed
    _copy(data, start + 1, length, text, 0)
    return start + 1 + length, Verdict.ACCEPTED.value, mark, length


@_inlined
def _read_body(
    data: _Bytes, start: int, end: int, size: int, most: int, reports: _Bytes, place: int
) -> tuple[int, int]:
    if end - start == size and size <= _WORD and most and start + _WORD <= data.size:
        _put(reports, place, _word(data, start))
        return 1, Verdict.ACCEPTED.value
    return _copy_body(data, start, end, size, most, reports, place)


@_called
def _copy_body(
    data: _Bytes, start: int, end: int, size: int, most: int, reports: _Bytes, place: int
) -> tuple[int, int]:
    body = end - start
    if body <= 0 or body % size:
        return 0, Verdict.LENGTH.value
    if body // size > most:
        return 0, Verdict.MANY.value
    _copy(data, start, body, reports, place)
    return body // size, Verdict.ACCEPTED.value


@_called
def _copy(data: _Bytes, start: int, size: int, to: _Bytes, place: int) -> None:
    """Copies bytes, and up to seven more bytes if the data has them."""
    while size > 0 and start + _WORD <= data.size:
        _put(to, place, _word(data, start))
        start, place, size = start + _WORD, place + _WORD, size - _WORD
    for k in range(size):
        to[place + k] = data[start + k]


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


# Documents and segments


@_inlined
def _document(mark: int, marks: _Marks) -> int:
    """Returns the index of a fingerprint in its table, or −1."""
    slots, known, multiplier = marks
    one = slots[_slot(uint64(mark), multiplier, slots)]
    return one if one >= 0 and known[one] == mark else int64(-1)  # type: ignore[return-value]


@_inlined
def _slot(mark: Any, multiplier: int, slots: npt.NDArray[np.int16]) -> Any:
    low = mark * uint64(multiplier) & uint64(0xFFFFFFFF)
    return low * uint64(slots.size) >> uint64(32)


@_inlined
def _early(
    one: int, length: int, documents: npt.NDArray[np.int64], segments: _Segments | None, text: _Bytes
) -> tuple[int, int]:
    """Returns the verdict on a document and segment, and the cell."""
    if one < 0:
        return Verdict.FINGERPRINT.value, 0
    if one >= len(documents):
        return Verdict.RETIRED.value, 0
    if (length >= 0) != (documents[one, 2] > 0):
        return Verdict.SEGMENT.value, 0
    if length < 0 or segments is None:
        return Verdict.ACCEPTED.value, 0
    cell = _cell(text, length, segments)
    return (Verdict.ACCEPTED.value if cell >= 0 else Verdict.SEGMENT.value), cell


@_called
def _cell(text: _Bytes, length: int, segments: _Segments) -> Any:
    """Returns the cell of a segment, or −1 if it is malformed."""
    _, _, cells = segments
    node = whole = _node(text, length, segments) if 0 < length <= LONGEST else -1
    if whole >= 0 and cells[whole, 1] >= 0:
        return cells[whole, 1]
    level = 0
    for k in range(length if length <= LONGEST else 0):
        if text[k] == _COLON and level:
            prefix = _node(text, k, segments)
            node, level = (prefix if whole < 0 and prefix >= 0 else node), 0
        elif _OF_LEVEL[text[k]] and level < LONGEST_LEVEL:
            level += 1
        else:
            return -1
    if not level:
        return -1
    return cells[node, 2] if node >= 0 else int64(1)


@_called
def _node(text: _Bytes, length: int, segments: _Segments) -> Any:
    """Returns the index of a text in the table of segments, or −1."""
    slots, names, cells = segments
    slot = uint64(length)
    for k in range(0, length, _WORD):
        slot = (slot ^ _piece(text, k, length)) * uint64(HASH_MULTIPLIER)
        slot ^= slot >> uint64(32)
    while True:
        slot &= uint64(slots.size - 1)
        node = slots[slot]
        if node < 0:
            return -1
        same = cells[node, 0] == length
        for k in range(0, length, _WORD):
            same &= names[node, k // _WORD] == _piece(text, k, length)
        if same:
            return node
        slot += uint64(1)


@_inlined
def _piece(text: _Bytes, k: int, length: int) -> Any:
    """Returns eight bytes of a text as an integer, 0 beyond its length."""
    beyond = k + _WORD - length
    word = _word(text, k)
    return word & (uint64(_WHOLE) >> uint64(8 * beyond)) if beyond > 0 else word


# JSON frames: each function parses text at an index and returns the index after it, or −1 if it does not match


@_merged
def _read_json(
    data: _Bytes,
    begin: int,
    end: int,
    marks: _Marks,
    documents: npt.NDArray[np.int64],
    fields: npt.NDArray[np.int64],
    most: int,
    reports: _Bytes,
    totals: npt.NDArray[np.int64],
    text: _Bytes,
    guess: int,
) -> tuple[int, int, int, int]:
    """Parses a JSON record.

    Returns the number of reports, the verdict, the fingerprint and the length of the segment.

    A record that is not a frame of any protocol has fingerprint −1, and one without a segment has length −1. Reports
    before the fingerprint are parsed again, unless `guess` is the record's document.
    """
    one = parsed = guess
    while True:
        keys, count, verdict, mark, length = 0, 0, Verdict.ACCEPTED.value, 0, -1
        at = _space(data, begin + 1, end)
        while True:
            at, key = _key(data, at, end, text)
            if at < 0 or keys >> key & 1:
                return 0, Verdict.JSON.value, -1, -1
            keys |= 1 << key
            at = _mark(data, at, end, _COLON)
            if key == _FINGERPRINT:
                at, mark = _fingerprint(data, at, end, text)
                known = _document(mark, marks)
                one = known if 0 <= known < len(documents) else one
            elif key == _REPORTS:
                parsed = one
                rules = documents[one, 0], documents[one, 1], most
                integers = fields[documents[one, 4] : documents[one, 5]]
                place = documents[one, 3] + totals[one] * documents[one, 0]
                at, count, verdict = _reports(data, at, end, rules, integers, reports, place)
            else:
                at, length = _string(data, at, end, text, 0)
            at = _space(data, at, end)
            if _byte(data, at, end) == _OBJECT_ENDS:
                break
            at = _mark(data, at, end, _COMMA)
        if keys & _REQUIRED != _REQUIRED or _space(data, at + 1, end) != end:
            return 0, Verdict.JSON.value, -1, -1
        if parsed == one:
            return count, verdict, mark, length


@_inlined
def _key(data: _Bytes, at: int, end: int, text: _Bytes) -> tuple[int, int]:
    """Parses a key. Only a key with escapes is copied, to `text`."""
    for key in range(len(_KEY_BEGINS) - 1 if _byte(data, at, end) == _QUOTE else 0):
        first, last = _KEY_BEGINS[key], _KEY_BEGINS[key + 1]
        after = at + 1 + last - first
        if after < end and data[after] == _QUOTE and _same(data, at + 1, first, last):
            return after + 1, key
    after, length = _string(data, at, end, text, _OTHER)
    for key in range(len(_KEY_BEGINS) - 1):
        first, last = _KEY_BEGINS[key], _KEY_BEGINS[key + 1]
        if length == last - first and _same(text, _OTHER, first, last):
            return after, key
    return -1, 0


@_inlined
def _same(text: _Bytes, at: int, first: int, last: int) -> bool:
    for k in range(last - first):
        if text[at + k] != _KEYS[first + k]:
            return False
    return bool(last > first)


@_inlined
def _fingerprint(data: _Bytes, at: int, end: int, text: _Bytes) -> tuple[int, int]:
    """Parses a string of 8 lower-case hexadecimal digits; others are −1."""
    after = at + 2 + 2 * FINGERPRINT_BYTES
    if at >= 0 and after <= end and data[at] == _QUOTE == data[after - 1]:
        mark = _hexadecimal(data, at + 1)
        if mark >= 0:
            return after, mark
    after, length = _string(data, at, end, text, _OTHER)
    mark = _hexadecimal(text, _OTHER)
    return (after, mark) if length == 2 * FINGERPRINT_BYTES and mark >= 0 else (-1, 0)


@_inlined
def _hexadecimal(text: _Bytes, at: int) -> int:
    mark, least = int64(0), int64(0)
    for k in range(2 * FINGERPRINT_BYTES):
        digit = _DIGITS[text[at + k]]
        least |= digit
        mark |= (digit & 15) << (4 * (k ^ 1))  # the first byte is the lowest
    return mark if least >= 0 else int64(-1)  # type: ignore[return-value]


@_called
def _string(data: _Bytes, at: int, end: int, text: _Bytes, to: int) -> tuple[int, int]:
    """Parses a string, and copies at most `LONGEST` + 1 characters.

    A character beyond ASCII becomes NUL.
    """
    if _byte(data, at, end) != _QUOTE:
        return -1, 0
    at, length = at + 1, 0
    while True:
        at, code = _character(data, at, end)
        if code < 0:
            return (at + 1 if _byte(data, at, end) == _QUOTE else -1), length
        text[to + (length if length < LONGEST else LONGEST)] = uint8(code if code < 128 else 0)
        length += 1


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
