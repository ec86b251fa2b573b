r"""Encodes and decodes frames of reports, binary (`ldp.wire`) or JSON.

A record whose first byte is ``{`` is JSON::

    {"fingerprint": "9f86d081", "reports": [...]}

A report of one integer is a JSON integer, and a report of several integers is a list (OLH: ``[seed, bucket]``). Bits
and subsets are the base64 of their binary form (RFC 4648, section 4, padded). A record is accepted or rejected as a
unit, and `decode` raises no error for a rejected record. If the document has the key ``segment``, the frame has a third
key, ``segment``.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from ldp import wire
from ldp.frame_tables import marks_table, segments_table
from ldp.oracles.unary import UnaryEncoding
from ldp.segments import Segments, required

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
    Reason.JSON: "the JSON frame is malformed",
}
"""Explanation of each reason."""


VERDICTS: tuple[Reason, ...] = (Reason.EMPTY, *Reason)
"""Reason for each verdict; the first is a placeholder, because verdict 0 means accepted."""

_NO_LIMIT = 1 << 62
_ALIGNED = 64  # bytes
_NO_SEGMENTS = Segments(())
_Columns = tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64], npt.NDArray[np.int64]]
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
        reports: the reports of each document, in the records' order.
        found: `document` and `segment`; None if all accepted records have the first document, without segments.
    """

    verdicts: npt.NDArray[np.uint8]
    counts: npt.NDArray[np.int64]
    reports: tuple[npt.NDArray[np.void], ...]
    found: tuple[npt.NDArray[np.int16], npt.NDArray[np.int32]] | None = None

    @property
    def document(self) -> npt.NDArray[np.int16]:
        """(m,) indices of the records' documents; -1 for a rejected record."""
        return self.found[0] if self.found else -(self.verdicts != 0).astype(np.int16)

    @property
    def segment(self) -> npt.NDArray[np.int32]:
        """(m,) indices into `Segments.cells`; 0 for a rejected record."""
        return self.found[1] if self.found else np.zeros(self.verdicts.size, np.int32)


def encode(stream: Stream, reports: npt.NDArray[np.void], segment: str | None = None) -> bytes:
    """Returns one binary frame of one or more reports.

    Args:
        stream: the stream of the reports.
        reports: an array of the oracle's ``report_dtype``.
        segment: the segment, which a stream with segments requires, and no other stream allows.

    Raises:
        TypeError: reports of another type.
        ValueError: no report, a malformed report, or a segment that is malformed, missing or not allowed.

    Example:
        >>> import ldp
        >>> stream = ldp.Stream("colours", ldp.GRR("1", domain_size=3))
        >>> encode(stream, stream.oracle.perturb([0, 1, 2]))[:5].hex()
        '018e9f39d0'
    """
    header = wire.header(stream.fingerprint, required(stream.segment, segment))
    return header + _sendable(stream.oracle, reports).tobytes()


def encode_json(stream: Stream, reports: npt.NDArray[np.void], segment: str | None = None) -> bytes:
    """Returns one JSON frame of one or more reports; see `encode`.

    Example:
        >>> import ldp
        >>> stream = ldp.Stream("colours", ldp.GRR("1", domain_size=3))
        >>> encode_json(stream, np.array([(0,), (2,)], stream.oracle.report_dtype))
        b'{"fingerprint":"8e9f39d0","reports":[0,2]}'
    """
    return _frame(stream, _items(stream.oracle, reports), segment).encode()


def encode_lines(stream: Stream, reports: npt.NDArray[np.void], segment: str | None = None) -> bytes:
    """Returns a JSON frame and a line feed for each report; see `encode`."""
    return "".join(_frame(stream, [item], segment) + "\n" for item in _items(stream.oracle, reports)).encode()


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

    A rejected record gets the first reason that applies: empty, version, length (of the header), fingerprint, retired,
    segment, length (of the reports), many, range, ones. The order for JSON is: json (not a frame of any
    protocol), fingerprint, retired, segment, length, many, json (a malformed report), range, ones. O(bytes): a
    few nanoseconds per binary record, and about 50 per JSON record.

    Args:
        stream: the stream of the records. Segments are checked, and their reports counted together.
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
    limits = _NO_LIMIT if most_reports is None else most_reports, check_weight
    batch = _decode((stream,), _columns(buffer, begins, ends), (), None, *limits)
    return Decoded(batch.reports[0], batch.counts, batch.verdicts)


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
        retired: fingerprints of documents that the stream no longer accepts, also if they are in `documents`.
        segments: the cells of segments; None if no segment is declared.
        most_reports: as for `decode`.
        check_weight: as for `decode`.
    """
    limits = _NO_LIMIT if most_reports is None else most_reports, check_weight
    return _decode(documents, _columns(buffer, begins, ends), retired, segments, *limits)


def _decode(
    documents: Sequence[Decodable],
    columns: _Columns,
    retired: Collection[bytes],
    segments: Segments | None,
    most: int,
    check_weight: bool,
) -> DecodedBatch:
    batch = None
    data, begins, _ = columns
    json_first = begins.size > 0 and data[begins[0] : begins[0] + 1].tobytes() == bytes([wire.JSON_BEGINS])
    if len(documents) == 1 and documents[0].segment is None and not retired and not json_first:
        batch = _decode_binary(documents[0], columns, most)
    if batch is None:
        batch = _decode_any(documents, columns, tuple(retired), segments or _NO_SEGMENTS, most)
    for i, document in enumerate(documents):
        batch = _reject(document.oracle, batch, i, check_weight)
    return batch


def _decode_binary(document: Decodable, columns: _Columns, most: int) -> DecodedBatch | None:
    """Decodes the records of one document; returns None if one is JSON."""
    from ldp import kernels

    data, begins, ends = columns
    size, m = document.oracle.report_bytes, begins.size
    span = int(ends[-1] - begins[0]) if m else 0
    body = np.empty(kernels.frames_capacity(span, size, 0), np.uint8)
    counts, verdicts = np.empty(m, np.int64), np.empty(m, np.uint8)
    header = np.frombuffer(wire.header(document.fingerprint), np.uint8)
    total = kernels.read_frames(*columns, header, (size, most), body, counts, verdicts)
    if total == -1:
        raise ValueError(_BOUNDS.format(data.size))
    if total < 0:
        return None
    reports = body[: total * size].view(document.oracle.report_dtype)
    return DecodedBatch(verdicts, counts, (reports,))


def _decode_any(
    documents: Sequence[Decodable],
    columns: _Columns,
    retired: tuple[bytes, ...],
    segments: Segments,
    most: int,
) -> DecodedBatch:
    from ldp import kernels

    data, begins, ends = columns
    m, span = begins.size, int(ends[-1] - begins[0]) if begins.size else 0
    rules: list[tuple[int, ...]] = []
    fields: list[tuple[int, int]] = []
    place = 0
    for document in documents:
        oracle = document.oracle
        bounds = [] if oracle.length is not None else [*oracle.fields.values()]
        size, numbers = oracle.report_bytes, len(bounds)
        last = len(fields) + numbers
        rules.append(
            (size, kernels.least_text(size, numbers), document.segment is not None, place, len(fields), last)
        )
        fields += [(bound, wire.bytes_below(bound)) for bound in bounds]
        place += -(-kernels.frames_capacity(span, size, numbers) // _ALIGNED) * _ALIGNED
    counts, verdicts = np.ones(m, np.int64), np.zeros(m, np.uint8)  # the values of a short record
    of_document, of_segment = np.empty(m, np.int16), np.zeros(m, np.int32)
    body = np.empty(place, np.uint8)
    cells = segments_table(segments) if any(document.segment is not None for document in documents) else None
    marks = marks_table(tuple(document.fingerprint for document in documents), retired)
    table, integers = np.array(rules, np.int64), np.array(fields, np.int64).reshape(-1, 2)
    text = np.empty(kernels.TEXT_BYTES, np.uint8)
    sizes, starts = table[:, 0], table[:, 3]
    slots, known, multiplier = marks
    short, first = np.column_stack((known[: len(documents)], sizes, starts)), 0
    if cells is None and most:
        first = kernels.read_short(data, begins, ends, slots, multiplier, short, body, of_document)
    totals, before = (short[:, 2] - starts) // sizes, int(ends[first - 1]) if first else 0
    begins, ends = begins[first:], ends[first:]
    rest = counts[first:], verdicts[first:], of_document[first:], of_segment[first:]
    outputs = body, text, rest, totals
    if not kernels.read_documents(data, begins, ends, before, marks, table, integers, cells, most, *outputs):
        raise ValueError(_BOUNDS.format(data.size))
    reports = tuple(
        body[start : start + total * size].view(document.oracle.report_dtype)
        for document, (size, _, _, start, *_), total in zip(documents, rules, totals.tolist(), strict=True)
    )
    return DecodedBatch(verdicts, counts, reports, (of_document, of_segment))


def _columns(
    buffer: bytes | bytearray | memoryview | npt.NDArray[np.uint8],
    begins: npt.NDArray[np.int64],
    ends: npt.NDArray[np.int64],
) -> _Columns:
    data = _frozen(np.frombuffer(buffer, np.uint8) if len(buffer) else np.empty(0, np.uint8))
    begins, ends = np.asarray(begins), np.asarray(ends)
    for name, bounds in (("begins", begins), ("ends", ends)):
        if bounds.ndim != 1 or bounds.dtype != np.int64 or bounds.shape != begins.shape:
            raise ValueError(f"{name} must be (m,) int64, not {bounds.shape} {bounds.dtype}")
    if begins.size and not 0 <= int(begins[0]) <= int(ends[-1]) <= data.size:
        raise ValueError(_BOUNDS.format(data.size))
    return data, _frozen(begins), _frozen(ends)


def _reject(oracle: Oracle, batch: DecodedBatch, i: int, check_weight: bool) -> DecodedBatch:
    """Rejects records of document i with a report that is not allowed."""
    reports = batch.reports[i]
    checks = {}  # a later reason overwrites an earlier one; an array of ones takes 2 µs, so other oracles have none
    if check_weight and isinstance(oracle, UnaryEncoding):
        checks[Reason.ONES] = oracle.likely(reports)
    checks[Reason.RANGE] = oracle.check(reports)
    wrong = {reason: ~good for reason, good in checks.items() if not good.all()}
    if not wrong:
        return batch
    of_document, of_segment = batch.document, batch.segment
    records = np.repeat(np.flatnonzero(of_document == i), batch.counts[of_document == i])
    for reason, bad in wrong.items():
        batch.verdicts[records[bad]] = VERDICTS.index(reason, 1)
    kept = reports[batch.verdicts[records] == 0]
    rejected = batch.verdicts != 0
    of_document[rejected], of_segment[rejected], batch.counts[rejected] = -1, 0, 0
    return replace(batch, reports=(*batch.reports[:i], kept, *batch.reports[i + 1 :]))


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


def _frame(stream: Stream, items: list[Any], segment: str | None) -> str:
    segment = required(stream.segment, segment)
    last = {} if segment is None else {"segment": segment}
    return _ENCODER.encode({"fingerprint": stream.fingerprint.hex(), "reports": items, **last})


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
