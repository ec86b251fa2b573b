"""The recount: records in, counts out."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from worker.audit.hashes import State
from worker.audit.parsing import Limits, Malformed, body_of, fingerprint_of
from worker.audit.protocols import Protocol, protocol_of
from worker.audit.records import Ints, Records

_PENDING_BYTES = 1 << 20
_FEW, _LONG = 8, 4096
"""Fewer records of a length, and longer ones, are judged one by one."""


@dataclass
class Recount:
    """What the records of one partition amount to.

    Attributes:
        accepted: records counted.
        rejected: malformed records by reason.
        watermark: the highest accepted timestamp in milliseconds, or None.
        reports: reports counted.
        state: (K,) int64: how many reports support each value, or, where a report is only an index, have each.
    """

    accepted: int
    rejected: Counter[str]
    watermark: int | None
    reports: int
    state: State


def recount(
    document: Mapping[str, Any],
    records: Iterable[Records],
    limits: Limits = Limits(),  # noqa: B008  # frozen
    onto: Recount | None = None,
) -> Recount:
    r"""Counts records; O(bytes) and for OLH O(reports · d) hashes in bounded memory.

    Args:
        document: the stream's public document.
        records: in any order.
        limits: by what they are judged.
        onto: an earlier recount, to which they are added; without it counting begins from nothing.

    Raises:
        AuditError: a protocol or hash that the audit does not know.

    Example:
        >>> document = {"protocol": "grr", "epsilon": "1/1", "domain_size": 3}
        >>> frame = b"\x01" + fingerprint_of(document) + bytes([2, 0, 2])
        >>> result = recount(document, [Records.of([(1000, frame), (1001, b"noise"), (1002, None)])])
        >>> result.accepted, dict(result.rejected), result.watermark, result.reports, result.state.tolist()
        (1, {'empty': 1, 'version': 1}, 1000, 3, [1, 0, 2])
    """
    protocol = protocol_of(document)
    own = fingerprint_of(document)
    result = onto or Recount(0, Counter(), None, 0, np.zeros(protocol.entries, np.int64))
    pending = bytearray()

    def count_pending() -> None:
        reports = np.frombuffer(bytes(pending), protocol.columns)
        protocol.count(result.state, *(reports[name] for name in protocol.columns.names or ()))
        result.reports += len(reports)
        pending.clear()

    for read in records:
        if read.unreadable:
            result.rejected["batch"] += read.unreadable
        for n, newest, body, reason in _judged(read, own, protocol, limits):
            if reason:
                result.rejected[reason] += n
                continue
            pending += body
            result.accepted += n
            result.watermark = newest if result.watermark is None else max(result.watermark, newest)
        if len(pending) >= _PENDING_BYTES:
            count_pending()
    count_pending()
    return result


def _judged(
    read: Records, own: bytes, protocol: Protocol, limits: Limits
) -> Iterator[tuple[int, int, bytes, str]]:
    """Yields, of one record or some, how many they are, the newest time, their reports, and why they are rejected."""
    lengths = read.ends - read.begins
    for length in np.unique(lengths).tolist():
        alike = np.flatnonzero(lengths == length)
        body = _together(read, alike, length, own, protocol, limits)
        if body is not None:
            yield len(alike), int(read.timestamps[alike].max()), body, ""
            continue
        for i in alike.tolist():
            try:
                value = read.data[read.begins[i] : read.ends[i]].tobytes()
                yield 1, int(read.timestamps[i]), body_of(value, own, protocol, limits), ""
            except Malformed as fault:
                yield 1, 0, b"", fault.reason


def _together(
    read: Records, alike: Ints, length: int, own: bytes, protocol: Protocol, limits: Limits
) -> bytes | None:
    """Returns the reports of records of one length, if all are good frames; None if each has to be looked at alone."""
    head, size = 1 + len(own), protocol.columns.itemsize
    if len(alike) < _FEW or not head < length <= _LONG or (length - head) % size:
        return None
    if limits.most is not None and length - head > limits.most * size:
        return None
    frames = np.lib.stride_tricks.sliding_window_view(read.data, length)[read.begins[alike]]
    if (frames[:, :head] != np.frombuffer(b"\x01" + own, np.uint8)).any():
        return None
    body = frames[:, head:].tobytes()
    # what is demanded of reports is demanded of each
    return body if protocol.allowed(body) and (not limits.ones or protocol.likely(body)) else None
