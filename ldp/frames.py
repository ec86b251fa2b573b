r"""Encodes and decodes frames of reports, binary (`ldp.wire`) or JSON.

A record whose first byte is ``{`` is JSON::

    {"fingerprint": "9f86d081", "reports": [...]}

A report of one integer is a JSON integer, and a report of several integers is a list (OLH: ``[seed, bucket]``). Bits
and subsets are the base64 of their binary form (RFC 4648, section 4, padded). A record is accepted or rejected as a
unit, and `decode` raises no error for a rejected record.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from ldp import wire
from ldp.oracles.grr import GRR
from ldp.oracles.rated import RatedResponse
from ldp.segments import LONGEST, Segments, is_segment

if TYPE_CHECKING:
    from ldp.oracles import Oracle
    from ldp.stream import Stream

_T = TypeVar("_T", bound=np.generic)


class Decodable(Protocol):
    """A stream, or a document whose labels are unknown."""

    @property
    def oracle(self) -> Oracle:
        """The protocol with its parameters."""

    @property
    def fingerprint(self) -> bytes:
        """The first four bytes of the document's hash."""

    @property
    def segment(self) -> str | None:
        """The names of the levels of a report's segment, or None."""


class Reason(StrEnum):
    """Reason for a rejection. Metrics and dead letters use its stable value."""

    EMPTY = "empty"  # No bytes, or a null value
    VERSION = "version"  # The first byte is neither the version nor ``{``
    LENGTH = "length"  # Truncated, not a whole number of reports, or no report
    FINGERPRINT = "fingerprint"  # Encoded for another stream document
    RETIRED = "retired"  # Encoded for a document that the stream no longer accepts
    SEGMENT = (
        "segment"  # Malformed, missing although the document requires one, or present although it does not
    )
    MANY = "many"  # More reports than the stream allows in a record
    RANGE = "range"  # A report that the protocol does not allow, such as a bucket ≥ g
    ONES = "ones"  # A unary report that fails the Hamming weight check
    RATE = "rate"  # A report at a rate that the stream's document does not declare
    JSON = "json"  # Not JSON in UTF-8, a wrong type, or a key that is unknown, missing or repeated


REASONS: Mapping[str, str] = {
    Reason.EMPTY: "the record has no value",
    Reason.VERSION: "the first byte is not a known frame version",
    Reason.LENGTH: "the frame is truncated, or not a whole number of reports",
    Reason.FINGERPRINT: (
        "the fingerprint names another document: the client uses another protocol, epsilon, domain or labels"
    ),
    Reason.RETIRED: "the stream no longer accepts the client's document: update the client",
    Reason.SEGMENT: (
        "the segment is malformed, or missing although the document has the key segment, or present although it has not"
    ),
    Reason.MANY: "the record has more reports than the stream allows",
    Reason.RANGE: "a report is outside the range that the protocol allows",
    Reason.ONES: "a report has too few or too many 1 bits for an honest client (Hamming weight check)",
    Reason.RATE: "a report is at a rate that the stream's document does not declare",
    Reason.JSON: "the JSON frame is malformed",
}
"""Explanation of each reason."""


def reasons_of(stream: Stream) -> Mapping[str, str]:
    """Returns `REASONS`, with the rates that a stream's document declares."""
    if not isinstance(stream.oracle, RatedResponse):
        return REASONS
    declared = ", ".join(str(float(rate)) for rate in stream.oracle.rates)
    return {**REASONS, Reason.RATE: f"{REASONS[Reason.RATE]}; declared are {declared}"}


VERDICTS: tuple[Reason, ...] = (Reason.EMPTY, *Reason)
"""Reason for each verdict; the first is a placeholder, because verdict 0 means accepted."""

_NO_LIMIT = 1 << 62
_BOUNDS = "begins or ends leave the buffer or descend; allowed are ascending offsets from 0 to its size {}"


@dataclass(frozen=True)
class Decoded:
    """The reports of a batch of m records, in order.

    `counts` are the (m,) numbers of reports per record, 0 for a rejected record. `verdicts` are (m,) indices into
    `VERDICTS`, 0 for an accepted record.
    """

    reports: npt.NDArray[np.void]
    counts: npt.NDArray[np.int64]
    verdicts: npt.NDArray[np.uint8]

    @property
    def reasons(self) -> dict[int, Reason]:
        """Reasons of the rejected records, by ascending index of the record."""
        return {i: VERDICTS[self.verdicts[i]] for i in np.flatnonzero(self.verdicts).tolist()}


@dataclass(frozen=True)
class DecodedBatch:
    """The reports of a batch of m records of several documents.

    Attributes:
        verdicts: (m,) indices into `VERDICTS`, 0 for an accepted record.
        counts: (m,) numbers of reports per record, 0 for a rejected record.
        document: (m,) indices of the documents of accepted records, -1 for a rejected record.
        segment: (m,) indices into `Segments.cells`, 0 for a rejected record and a document without segments.
        reports: the reports of each document, in the records' order.
    """

    verdicts: npt.NDArray[np.uint8]
    counts: npt.NDArray[np.int64]
    document: npt.NDArray[np.int16]
    segment: npt.NDArray[np.int32]
    reports: tuple[npt.NDArray[np.void], ...]


def encode(stream: Stream, reports: npt.NDArray[np.void]) -> bytes:
    """Returns one binary frame of one or more reports.

    Raises:
        TypeError: reports that are not an array of the oracle's ``report_dtype``.
        ValueError: no report, or a malformed one.

    Example:
        >>> import ldp
        >>> stream = ldp.Stream("colours", ldp.GRR("1", domain_size=3))
        >>> encode(stream, stream.oracle.perturb([0, 1, 2]))[:5].hex()
        '018e9f39d0'
    """
    return wire.header(stream.fingerprint) + _sendable(stream.oracle, reports).tobytes()


def encode_json(stream: Stream, reports: npt.NDArray[np.void]) -> bytes:
    """Returns one JSON frame of one or more reports. Raises as `encode` does.

    Example:
        >>> import ldp
        >>> stream = ldp.Stream("colours", ldp.GRR("1", domain_size=3))
        >>> encode_json(stream, np.array([(0,), (2,)], stream.oracle.report_dtype))
        b'{"fingerprint":"8e9f39d0","reports":[0,2]}'
    """
    return _frame(stream, _items(stream.oracle, reports)).encode()


def encode_lines(stream: Stream, reports: npt.NDArray[np.void]) -> bytes:
    """Returns a JSON frame and a line feed for each report; see `encode`."""
    return "".join(_frame(stream, [item]) + "\n" for item in _items(stream.oracle, reports)).encode()


def decode(
    stream: Decodable,
    buffer: bytes | bytearray | memoryview | npt.NDArray[np.uint8],
    begins: npt.NDArray[np.int64],
    ends: npt.NDArray[np.int64],
    *,
    most_reports: int | None = None,
    check_weight: bool = True,
) -> Decoded:
    """Decodes the reports of a batch of records in one buffer.

    A rejected record gets the first reason that applies: empty, version, length (of the header), fingerprint, length
    (of the reports), many, range, rate, ones. The order for JSON is: json (not a frame of any protocol), fingerprint,
    length, many, json (a malformed report), range, rate, ones. O(bytes): a few nanoseconds per binary record, and about
    a hundred per JSON record.

    Args:
        stream: the stream of the records.
        buffer: the values of the records in order. Bytes between the values are ignored.
        begins: (m,) int64 offsets at which the values begin; value i is ``buffer[begins[i]:ends[i]]``.
        ends: (m,) int64 offsets at which the values end.
        most_reports: limit of reports per record; None for no limit.
        check_weight: whether the Hamming weight check rejects unlikely reports (`Oracle.likely`).

    Raises:
        ValueError: `begins` and `ends` that are not ascending ranges of the buffer.

    Example:
        >>> import ldp
        >>> stream = ldp.Stream("colours", ldp.GRR("1", domain_size=3))
        >>> frame = encode(stream, stream.oracle.perturb([0, 1, 2]))
        >>> decoded = decode(stream, frame + b"noise", np.array([0, 8]), np.array([8, 13]))
        >>> decoded.counts.tolist(), decoded.reasons
        ([3, 0], {1: <Reason.VERSION: 'version'>})
    """
    from ldp import kernels

    data, begins, ends = _columns(buffer, begins, ends)
    oracle, size = stream.oracle, stream.oracle.report_bytes
    header = np.frombuffer(wire.header(stream.fingerprint) + stream.fingerprint.hex().encode(), np.uint8)
    bounds = [] if oracle.length is not None else [*oracle.fields.values()]
    fields = np.array([(bound, wire.bytes_below(bound)) for bound in bounds], np.int64).reshape(-1, 2)
    most = _NO_LIMIT if most_reports is None else most_reports
    span = int(ends[-1] - begins[0]) if begins.size else 0
    body = np.empty(kernels.frames_capacity(span, size, len(bounds)), np.uint8)
    counts, verdicts = np.empty(begins.size, np.int64), np.empty(begins.size, np.uint8)
    rules = (size, kernels.least_text(size, len(bounds)), most)
    columns = data, begins, ends, header, rules, fields, body, counts, verdicts
    json_first = begins.size > 0 and data[begins[0] : begins[0] + 1].tobytes() == bytes([wire.JSON_BEGINS])
    total = kernels.read_frames(*columns, True if json_first else None)
    if total == -2:  # only a stream that also has JSON compiles the parser
        total = kernels.read_frames(*columns, True)
    if total < 0:
        raise ValueError(_BOUNDS.format(data.size))
    reports = body[: total * size].view(oracle.report_dtype)
    return _reject(oracle, reports, counts, verdicts, check_weight)


def decode_all(
    documents: Sequence[Decodable],
    buffer: bytes | bytearray | memoryview | npt.NDArray[np.uint8],
    begins: npt.NDArray[np.int64],
    ends: npt.NDArray[np.int64],
    *,
    retired: Collection[bytes] = (),
    segments: Segments | None = None,
    most_reports: int | None = None,
    check_weight: bool = True,
) -> DecodedBatch:
    """Decodes the reports of several documents.

    The fingerprint of a record selects its document. Errors are those of `decode`.

    Args:
        documents: the accepted documents, at least one.
        buffer: as for `decode`.
        begins: as for `decode`.
        ends: as for `decode`.
        retired: fingerprints of documents that the stream no longer accepts.
        segments: the cells of segments; None if no segment is declared.
        most_reports: as for `decode`.
        check_weight: as for `decode`.
    """
    if len(documents) == 1 and documents[0].segment is None and not retired:
        return _single(
            decode(documents[0], buffer, begins, ends, most_reports=most_reports, check_weight=check_weight)
        )
    data, begins, ends = _columns(buffer, begins, ends)
    known = {one.fingerprint: i for i, one in enumerate(documents)}
    segments = segments or Segments(())
    m = begins.size
    verdicts = np.zeros(m, np.uint8)
    document, segment = np.full(m, -1, np.int16), np.zeros(m, np.int32)
    plain: list[list[tuple[int, bytes]]] = [[] for _ in documents]
    for i, (begin, end) in enumerate(zip(begins.tolist(), ends.tolist(), strict=True)):
        found = _plain(data[begin:end].tobytes())
        if isinstance(found, Reason):
            verdicts[i] = VERDICTS.index(found, 1)
            continue
        mark, text, record = found
        if mark in retired or mark not in known:
            reason = Reason.RETIRED if mark in retired else Reason.FINGERPRINT
        elif (text is None) != (documents[known[mark]].segment is None) or not is_segment(text or "DE"):
            reason = Reason.SEGMENT
        else:
            document[i] = known[mark]
            segment[i] = segments.index(text) if text else 0
            plain[known[mark]].append((i, record))
            continue
        verdicts[i] = VERDICTS.index(reason, 1)
    return _by_document(documents, plain, (verdicts, document, segment), (most_reports, check_weight))


def _by_document(
    documents: Sequence[Decodable],
    plain: list[list[tuple[int, bytes]]],
    columns: tuple[npt.NDArray[np.uint8], npt.NDArray[np.int16], npt.NDArray[np.int32]],
    limits: tuple[int | None, bool],
) -> DecodedBatch:
    verdicts, document, segment = columns
    counts, reports = np.zeros(verdicts.size, np.int64), []
    for given, records in zip(documents, plain, strict=True):
        bounds = np.cumsum([0, *(len(record) for _, record in records)], dtype=np.int64)
        joined, one = b"".join(record for _, record in records), _Plain(given.oracle, given.fingerprint)
        decoded = decode(one, joined, bounds[:-1], bounds[1:], most_reports=limits[0], check_weight=limits[1])
        places = np.array([i for i, _ in records], np.int64)
        verdicts[places], counts[places] = decoded.verdicts, decoded.counts
        reports.append(decoded.reports)
    document[verdicts != 0], segment[verdicts != 0] = -1, 0
    return DecodedBatch(verdicts, counts, document, segment, tuple(reports))


def _single(decoded: Decoded) -> DecodedBatch:
    """Returns the batch of one document; O(1) if no record is rejected."""
    m = decoded.counts.size
    nowhere = np.broadcast_to(np.int16(0), m)
    document = -(decoded.verdicts != 0).astype(np.int16) if decoded.verdicts.any() else nowhere
    none = np.broadcast_to(np.int32(0), m)
    return DecodedBatch(decoded.verdicts, decoded.counts, document, none, (decoded.reports,))


@dataclass(frozen=True)
class _Plain:
    oracle: Oracle
    fingerprint: bytes
    segment: None = None


def _plain(record: bytes) -> tuple[bytes, str | None, bytes] | Reason:
    """Splits a record into its fingerprint, its segment and the rest."""
    if not record:
        return Reason.EMPTY
    if record[0] == wire.JSON_BEGINS:
        return _plain_json(record)
    if record[0] not in (1, 2):
        return Reason.VERSION
    if len(record) < wire.HEADER_BYTES:
        return Reason.LENGTH
    mark, text, rest = record[1:5], None, record[5:]
    if record[0] == 2:
        end = 1 + rest[0] if rest else 1
        text, rest = rest[1:end].decode("latin-1"), rest[end:]
        if not 1 <= len(text) == end - 1 <= LONGEST:
            text = ":"  # malformed
    return mark, text, wire.header(mark) + rest


def _plain_json(record: bytes) -> tuple[bytes, str | None, bytes] | Reason:
    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        if len(dict(pairs)) < len(pairs):
            raise ValueError("a repeated key")
        return dict(pairs)

    try:
        frame = json.loads(record.decode(), object_pairs_hook=unique)
        if not frame.keys() <= {"fingerprint", "reports", "segment"}:
            return Reason.JSON
        mark = bytes.fromhex(frame["fingerprint"])
    except (ValueError, KeyError, TypeError, RecursionError):
        return Reason.JSON
    present, text = "segment" in frame, frame.pop("segment", None)
    record = _ENCODER.encode(frame).encode()
    ends = np.array([0, len(record)])
    other = _Plain(GRR("1", 2), bytes(4) if any(mark) else b"\1\1\1\1")
    form = decode(other, record, ends[:1], ends[1:]).reasons[0]
    if form is not Reason.FINGERPRINT or (present and not isinstance(text, str)):
        return Reason.JSON
    return mark, (text or ":") if present else None, record


def _columns(
    buffer: bytes | bytearray | memoryview | npt.NDArray[np.uint8],
    begins: npt.NDArray[np.int64],
    ends: npt.NDArray[np.int64],
) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    data = _frozen(np.frombuffer(buffer, np.uint8) if len(buffer) else np.empty(0, np.uint8))
    begins, ends = np.asarray(begins), np.asarray(ends)
    for name, bounds in (("begins", begins), ("ends", ends)):
        if bounds.ndim != 1 or bounds.dtype != np.int64 or bounds.shape != begins.shape:
            raise ValueError(f"{name} must be (m,) int64, not {bounds.shape} {bounds.dtype}")
    if begins.size and not 0 <= int(begins[0]) <= int(ends[-1]) <= data.size:
        raise ValueError(_BOUNDS.format(data.size))
    return data, _frozen(begins), _frozen(ends)


def _reject(
    oracle: Oracle,
    reports: npt.NDArray[np.void],
    counts: npt.NDArray[np.int64],
    verdicts: npt.NDArray[np.uint8],
    check_weight: bool,
) -> Decoded:
    checks = {Reason.ONES: oracle.likely(reports)} if check_weight else {}
    checks |= {
        Reason.RATE: oracle.declared(reports),
        Reason.RANGE: oracle.check(reports),
    }  # a later reason overwrites an earlier one
    wrong = {reason: ~good for reason, good in checks.items() if not good.all()}
    if wrong:
        records = np.repeat(np.arange(counts.size), counts)  # the record of each report
        for reason, bad in wrong.items():
            verdicts[records[bad]] = VERDICTS.index(reason, 1)
        reports = reports[verdicts[records] == 0]
        counts[verdicts != 0] = 0
    return Decoded(reports, counts, verdicts)


# json.dumps creates a new encoder in each call that has arguments
_ENCODER = json.JSONEncoder(separators=(",", ":"))


def _items(oracle: Oracle, reports: npt.NDArray[np.void]) -> list[Any]:
    """Returns reports as JSON items: integers, lists of integers, or base64."""
    rows = _sendable(oracle, reports)
    if oracle.length is not None:
        return [b64encode(row.tobytes()).decode() for row in rows]
    if len(oracle.fields) == 1:
        return [number for (number,) in rows.tolist()]
    return [list(numbers) for numbers in rows.tolist()]


def _frame(stream: Stream, items: list[Any]) -> str:
    return _ENCODER.encode({"fingerprint": stream.fingerprint.hex(), "reports": items})


def _sendable(oracle: Oracle, reports: npt.NDArray[np.void]) -> npt.NDArray[np.void]:
    good = oracle.check(reports)
    if reports.size == 0:
        raise ValueError("a frame has at least one report")
    if not good.all():
        raise ValueError(f"report {int(good.argmin())} is malformed: {reports[good.argmin()]}")
    return reports


def _frozen(array: npt.NDArray[_T]) -> npt.NDArray[_T]:
    """Returns a contiguous read-only view, the only type that kernels accept."""
    view = np.ascontiguousarray(array).view()
    view.flags.writeable = False
    return view
