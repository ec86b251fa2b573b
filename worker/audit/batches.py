"""Parser of Kafka's record batches (magic 2).

The parser shares no code with `worker.kafka.decoding`. Whether a batch is readable depends only on its bytes and on the
size limit at its first offset. The parser counts unreadable batches and returns none of their records.
"""

import struct
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import crc32c
import numpy as np
import numpy.typing as npt

from worker.audit.codecs import NO_LIMIT, Unreadable, unpack
from worker.audit.records import Caps, Ints, Records

_HEADER = struct.Struct(">qiibIhiqqqhii")
_CODEC, _APPEND_TIME, _TRANSACTIONAL, _CONTROL = 7, 8, 16, 32
_HIGHEST_BASE = 2**63 - 1 - 2**31
_LEAST_RECORD = 7
_TOGETHER = 1 << 20  # Bytes of records parsed at once


@dataclass(frozen=True)
class Batch:
    """A complete batch of a log."""

    data: bytes
    base: int
    end: int  # the offset after its last record
    sound: bool  # header and checksum allow parsing
    corrupt: bool  # only the checksum is wrong; another fetch may return correct bytes


def whole(fetched: bytes) -> list[Batch]:
    """Splits fetched bytes into complete batches; O(bytes)."""
    found = []
    for data, base, end in _cut_out(fetched):
        # after a negative length, the rest of the bytes may look like one batch with a valid checksum
        due = len(data) >= _HEADER.size and data[16] == 2 and data[8] < 0x80
        intact = due and crc32c.crc32c(data[21:]) == int.from_bytes(data[17:21], "big")
        found.append(Batch(data, base, end, intact, due and not intact))
    return found


def reach(fetched: bytes) -> tuple[int, int]:
    """Returns (total size, end offset) of the complete batches, or (0, −1)."""
    size, reached = 0, -1
    for data, _, end in _cut_out(fetched):
        size, reached = size + len(data), max(reached, end)
    return size, reached


def _cut_out(fetched: bytes) -> Iterator[tuple[bytes, int, int]]:
    """Yields (bytes, first offset, end offset) of each complete batch."""
    at, size = 0, _size(fetched, 0)
    while size:
        data, at = fetched[at : at + size], at + size
        size = _size(fetched, at)
        base = int.from_bytes(data[:8], "big", signed=True)
        following = int.from_bytes(fetched[at : at + 8], "big", signed=True) if size else base
        yield data, base, _end_offset(data, base, following)


def _size(fetched: bytes, at: int) -> int:
    """Returns the size of the batch at position `at`, or 0 if it is truncated."""
    left = len(fetched) - at
    if left < 12:
        return 0
    length = int.from_bytes(fetched[at + 8 : at + 12], "big", signed=True)
    if length < 0:
        return left
    return 12 + length if length <= left - 12 else 0


def _end_offset(data: bytes, base: int, following: int) -> int:
    if base > _HIGHEST_BASE:
        return 2**63 - 1
    last = 0
    if len(data) >= _HEADER.size and data[16] > 1:
        last = max(0, int.from_bytes(data[23:27], "big", signed=True))
    return min(base + 1 + last, following) if following > base else base + 1 + last


@dataclass
class _Section:
    """Location of one batch's records in the data of a `_Group`."""

    base: int  # first offset
    last: int  # last offset delta
    count: int  # number of records according to the header
    timestamp: int  # base of the timestamp deltas, or the append time of all records
    created: bool  # records have creation times
    begin: int  # first wanted offset
    end: int  # end of the wanted offsets
    counts: bool  # this range counts the batch if it is unreadable
    place: int = 0  # start of its records in the data; they end at `stop`
    stop: int = 0


@dataclass
class _Group:
    data: bytearray = field(default_factory=bytearray)
    sections: list[_Section] = field(default_factory=list)
    unreadable: int = 0


def read(
    batches: Iterable[Batch], start: int, stop: int, aborted: Sequence[tuple[int, int]], caps: Caps
) -> Iterator[Records]:
    """Yields the committed records of [start, stop) in groups of about 1 MiB.

    Skips control batches and aborted transactions. `aborted` contains the (producer id, first offset) of each
    transaction. A batch with a wrong checksum is unreadable. An unreadable batch counts in the range that contains its
    end. A limit in `caps` applies from its offset on.
    """
    pending, aborting = sorted(aborted, key=lambda transaction: transaction[1], reverse=True), set[int]()
    group, position = _Group(), start
    for batch in batches:
        begin, position = position, max(position, batch.end)
        try:
            section = _parse_header(batch, begin, stop, pending, aborting)
            if section is not None:
                cap = next((cap for offset, cap in reversed(caps) if offset <= batch.base), caps[0][1])
                made = unpack(
                    batch.data[22] & _CODEC, batch.data[_HEADER.size :], NO_LIMIT if cap is None else cap
                )
                section.place, section.stop = len(group.data), len(group.data) + len(made)
                group.data += made
                group.sections.append(section)
        except Unreadable:
            group.unreadable += begin < batch.end <= stop
        if len(group.data) >= _TOGETHER:
            yield _parse_records(group)
            group = _Group()
    yield _parse_records(group)


def _parse_header(
    batch: Batch, begin: int, stop: int, pending: list[tuple[int, int]], aborting: set[int]
) -> _Section | None:
    if not batch.sound:
        raise Unreadable
    base, _, _, _, _, attributes, last, first, highest, producer, _, _, count = _HEADER.unpack_from(
        batch.data
    )
    if last < 0 or not 0 <= base <= _HIGHEST_BASE:
        raise Unreadable
    if producer >= 0:
        while pending and pending[-1][1] <= base + last:
            aborting.add(pending.pop()[0])
        if producer in aborting:
            if _is_abort_marker(batch.data, attributes):
                aborting.remove(producer)
            elif attributes & _TRANSACTIONAL:
                return None
    if attributes & _CONTROL or batch.end <= begin or base >= stop:
        return None
    created = not attributes & _APPEND_TIME
    timestamp, end = first if created else highest, min(batch.end, stop)
    return _Section(base, last, count, timestamp, created, begin, end, batch.end <= stop)


def _is_abort_marker(data: bytes, attributes: int) -> bool:
    if not attributes & _CONTROL or attributes & _CODEC:
        return False
    at, end = _HEADER.size, len(data)
    _, at = _varint(data, at, end, 5)
    _, at = _varint(data, at + 1, end, 10)
    _, at = _varint(data, at, end, 5)
    length, at = _varint(data, at, end, 5)
    # the key of an ABORT marker's record has type 0
    return length >= 4 and end - at >= 4 and data[at] < 0x80 and data[at + 2 : at + 4] == b"\0\0"


def _varint(data: bytes | bytearray, at: int, end: int, most: int) -> tuple[int, int]:
    """Returns a zigzag varint and the next position; (0, end + 1) if invalid."""
    number = 0
    for k in range(most):
        if at >= end:
            break
        byte = data[at]
        at += 1
        number |= (byte & 0x7F) << 7 * k
        if byte < 0x80:
            if number >> (32 if most == 5 else 64):
                break
            return number >> 1 ^ -(number & 1), at
    return 0, end + 1


def _parse_records(group: _Group) -> Records:
    begins, ends, sizes = list[int](), list[int](), list[int]()
    unreadable, sections = group.unreadable, list[_Section]()
    for section in group.sections:
        known = len(begins)
        if _append_bounds(group.data, section, begins, ends):
            sections.append(section)
            sizes.append(len(begins) - known)
        else:
            del begins[known:], ends[known:]
            unreadable += section.counts
    data, stops = np.frombuffer(group.data, np.uint8), np.array(ends, np.int64)
    of = np.repeat(np.arange(len(sections)), np.array(sizes, np.int64))

    def of_its_batch(values: Iterable[int]) -> Ints:
        return np.array([*values], np.int64)[of]

    timestamps, at = _varints(data, np.array(begins, np.int64) + 1, 10)  # after the record's attributes
    deltas, at = _varints(data, at, 5)
    keys, at = _varints(data, at, 5)
    values, at = _varints(data, at + np.maximum(keys, 0), 5)
    first, last = at, at + np.maximum(values, 0)
    headers, at = _varints(data, last, 5)
    for i in np.flatnonzero(headers).tolist():
        at[i] = _behind_headers(group.data, int(at[i]), ends[i], int(headers[i]))
    before = np.full(len(of), -1, np.int64)
    before[1:][of[1:] == of[:-1]] = deltas[:-1][of[1:] == of[:-1]]
    good = (at == stops) & (before < deltas) & (deltas <= of_its_batch(one.last for one in sections))
    damaged = {*of[~good].tolist()}
    unreadable += sum(sections[i].counts for i in damaged)
    if damaged:  # one damaged record makes its whole batch unreadable
        good = ~np.isin(of, [*damaged])
    offsets = deltas + of_its_batch(one.base for one in sections)
    good &= offsets >= of_its_batch(one.begin for one in sections)
    good &= offsets < of_its_batch(one.end for one in sections)
    created = of_its_batch(one.created for one in sections)
    timestamps = timestamps * created + of_its_batch(one.timestamp for one in sections)
    starts = np.array(begins, np.int64)
    return Records(offsets[good], timestamps[good], data, first[good], last[good], unreadable, starts[good])


Keyed = tuple[int, bytes, bytes | None, dict[str, bytes]]
"""Offset, key, value and headers of a record that has a key."""


def keyed(records: Records, prefix: bytes) -> Iterator[Keyed]:
    """Yields the records whose key begins with `prefix`.

    Reads at most 64 headers of each record.
    """
    assert records.starts is not None
    data = records.data.tobytes()
    for offset, start in zip(records.offsets.tolist(), records.starts.tolist(), strict=True):
        _, at = _varint(data, start + 1, len(data), 10)  # after the record's attributes
        _, at = _varint(data, at, len(data), 5)
        key, at = _length_prefixed(data, at)
        if key is None or not key.startswith(prefix):
            continue
        value, at = _length_prefixed(data, at)
        count, at = _varint(data, at, len(data), 5)
        headers = dict[str, bytes]()
        for _ in range(min(count, 64)):
            name, at = _length_prefixed(data, at)
            content, at = _length_prefixed(data, at)
            headers[(name or b"").decode(errors="replace")] = content or b""
        yield offset, key, value, headers


def _length_prefixed(data: bytes, at: int) -> tuple[bytes | None, int]:
    size, at = _varint(data, at, len(data), 5)
    return (None, at) if size < 0 else (data[at : at + size], at + size)


def _append_bounds(data: bytearray, section: _Section, begins: list[int], ends: list[int]) -> bool:
    """Returns whether the records fill the section exactly."""
    at, stop = section.place, section.stop
    if not 0 <= section.count <= (stop - at) // _LEAST_RECORD:
        return False
    for _ in range(section.count):
        if at >= stop:
            return False
        length = data[at]
        if length < 0x80 and not length & 1:
            at, length = at + 1, length >> 1
        else:
            length, at = _varint(data, at, stop, 5)
        begins.append(at)
        at += length
        ends.append(at)
        if length < 0 or at > stop:
            return False
    return at == stop


def _varints(data: npt.NDArray[np.uint8], at: Ints, most: int) -> tuple[Ints, Ints]:
    """Returns zigzag varints and next positions, `_FAR` after invalid varints."""
    if not len(data):
        return at, at
    last, at = len(data) - 1, at.copy()
    byte = data[np.minimum(at, last)]
    number = (byte & 0x7F).astype(np.uint64)
    at += 1
    longer = np.flatnonzero(byte & 0x80)
    for k in range(1, most):
        if not len(longer):
            break
        byte = data[np.minimum(at[longer], last)]
        at[longer] += 1
        number[longer] |= (byte & 0x7F).astype(np.uint64) << np.uint64(7 * k)
        if k == most - 1:
            at[longer[byte > (0x0F if most == 5 else 1)]] = _FAR
        longer = longer[byte >= 0x80]
    at[longer] = _FAR
    return (number >> np.uint64(1)).astype(np.int64) ^ -(number & np.uint64(1)).astype(np.int64), at


_FAR = 1 << 48


def _behind_headers(data: bytearray, at: int, end: int, headers: int) -> int:
    """Returns the position after the headers; above `end` if they are invalid."""
    if headers < 0:
        return end + 1
    for _ in range(headers):
        key, at = _varint(data, at, end, 5)
        if key < 0:
            return end + 1
        value, at = _varint(data, at + key, end, 5)
        at += max(value, 0)
        if at > end:
            break
    return at
