"""The recount: records in, counts out."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from worker.audit.hashes import State
from worker.audit.parsing import Limits, Malformed, body_of, fingerprint_of
from worker.audit.protocols import protocol_of
from worker.audit.records import Record

_PENDING_BYTES = 1 << 20


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
    records: Iterable[Record],
    limits: Limits = Limits(),  # noqa: B008  # frozen
    onto: Recount | None = None,
) -> Recount:
    r"""Counts records; O(bytes) and for OLH O(reports · d) hashes in bounded memory.

    Args:
        document: the stream's public document.
        records: (timestamp, value) pairs in any order.
        limits: by what they are judged.
        onto: an earlier recount, to which they are added; without it counting begins from nothing.

    Raises:
        AuditError: a protocol or hash that the audit does not know.

    Example:
        >>> document = {"protocol": "grr", "epsilon": "1/1", "domain_size": 3}
        >>> frame = b"\x01" + fingerprint_of(document) + bytes([2, 0, 2])
        >>> result = recount(document, [(1000, frame), (1001, b"noise"), (1002, None)])
        >>> result.accepted, dict(result.rejected), result.watermark, result.reports, result.state.tolist()
        (1, {'version': 1, 'empty': 1}, 1000, 3, [1, 0, 2])
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

    for timestamp, value in records:
        try:
            body = body_of(value, own, protocol, limits)
        except Malformed as fault:
            result.rejected[fault.reason] += 1
            continue
        pending += body
        result.accepted += 1
        result.watermark = timestamp if result.watermark is None else max(result.watermark, timestamp)
        if len(pending) >= _PENDING_BYTES:
            count_pending()
    count_pending()
    return result
