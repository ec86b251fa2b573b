"""Client for devices: randomizes a value and encodes it as a frame.

This module needs only the standard library. docs/reference/wire-format.md defines the frames for other languages, and
lists what a client must not do.
"""

from __future__ import annotations

import json
import time
import warnings
from base64 import b64encode
from collections.abc import Callable, Iterable, Mapping
from os import PathLike
from typing import Any

from ldp import wire
from ldp.arguments import as_integer
from ldp.budget import Budget
from ldp.segments import required
from ldp.stream import Stream

_MOST = (1 << 31) - 1
_NO_STORE = (
    "the document declares how often a device reports, but the client has no store: it neither counts reports nor keeps"
    " memoised noise. Pass store"
)


class Client:
    """Makes the reports of one stream.

    With a store, the client refuses to send more than the document declares, and stores memoised noise. Without one,
    each report has fresh noise, and the client warns once if the document has a declaration.

    Args:
        document: the stream's public document, from `Stream.document` or parsed from JSON.
        segment: the segment of all reports, with a value for each level of the document's key ``segment``. The server
            sees it in the clear, so it must not depend on the secret value. A document without the key allows none.
        store: path of a SQLite file, which the client creates. It contains values of the user (`ldp.budget`). Losing or
            restoring the file loses the record of the spent reports.
        clock: returns seconds since 1970-01-01T00:00Z.

    Raises:
        TypeError: a part of the document that has the wrong type.
        ValueError: a key that is missing or unknown, or a value that is not allowed; a store, but no declaration; a
            segment that is malformed, missing or not allowed.
        OSError: a store that cannot be created.
        sqlite3.Error: a store that cannot be read or written.

    Example:
        >>> client = Client({"protocol": "grr", "epsilon": "1/1", "domain_size": 3, "labels": ["red", "green", "blue"]})
        >>> frame = client.report("green")
        >>> frame[:5].hex(), frame[5] in (0, 1, 2)
        ('019e54f8ba', True)

        With a store, one report a day:

        >>> import os, tempfile
        >>> declared = {"unit": "device", "reports": 1, "period": "24h", "noise": "fresh", "horizon": "365d"}
        >>> document = {"protocol": "grr", "epsilon": "1/1", "domain_size": 3, "privacy": declared}
        >>> daily = Client(document, store=os.path.join(tempfile.mkdtemp(), "spent"), clock=lambda: 0.0)
        >>> frame = daily.report(1)
        >>> daily.report(1)
        Traceback (most recent call last):
        ldp.budget.Spent: all reports of this period are spent; the next period begins at 1970-01-02T00:00:00+00:00
    """

    def __init__(
        self,
        document: Mapping[str, Any],
        *,
        segment: str | None = None,
        store: str | PathLike[str] | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        stream = Stream.from_document("unnamed", document)
        self._oracle = stream.oracle
        self._segment = required(stream.segment, segment)
        self._header = wire.header(stream.fingerprint, self._segment)
        self._fingerprint = stream.fingerprint.hex()
        self._indices = {label: index for index, label in enumerate(stream.labels or ())}
        self._memoised = stream.privacy is not None and stream.privacy.memoised
        self._budget: Budget | None = None
        if store is not None:
            if stream.privacy is None:
                raise ValueError(
                    "a store is given; the document needs the key privacy, which declares the reports"
                )
            self._budget = Budget(store, stream.fingerprint.hex(), stream.privacy, clock)
        elif stream.privacy is not None:
            warnings.warn(_NO_STORE, stacklevel=2)

    def report(self, value: str | int) -> bytes:
        """Returns a frame with one report of a value, which spends ε.

        With a store, the report is recorded before it is made. Do not retry an error: the report may be spent.

        Args:
            value: the value's label, or its index 0 ≤ v < d.

        Raises:
            TypeError: a value that is neither a str nor an integer.
            ValueError: a label or index outside the domain. No error repeats the value, because it is secret.
            Spent: the device has sent all reports of the period; the attribute `until` is its end.
            sqlite3.Error: a store that cannot be read or written.
        """
        index = self._index(value)
        if self._budget is not None and self._memoised:
            noise = self._budget.spend_memoised(index, self._oracle.memoise)
            return self._header + self._oracle.recall(noise)
        if self._budget is not None:
            self._budget.spend()
        return self._header + self._oracle.pack(self._oracle.perturb_one(index))

    def pack(self, frames: Iterable[bytes], *, most_reports: int, as_json: bool = False) -> list[bytes]:
        """Packs the reports of many binary frames into fewer frames, in order.

        Use it on a device that stores its reports until it is online. Packing draws no coins and spends no ε. The
        reports in a frame are accepted or rejected together, share one timestamp, and show that one device sent them.
        `pack` checks only version, fingerprint, segment and length. Decode other senders' frames first
        (`ldp.frames.decode`). `most_reports` is the operator's limit of reports per record (`streams.most_reports`).
        Frames have at most 10⁶ bytes (`ldp.wire.LARGEST_FRAME`); a longer report gets its own frame. JSON frames are
        several times longer.

        Raises:
            TypeError: a frame that is not bytes, or a `most_reports` that is not an integer.
            ValueError: a frame that is not a binary frame of this stream and segment, or a `most_reports` below 1.

        Example:
            >>> client = Client({"protocol": "grr", "epsilon": "1/1", "domain_size": 3})
            >>> kept = [client.report(value) for value in (2, 0, 1, 1, 2)]
            >>> [len(frame) for frame in client.pack(kept, most_reports=4)]
            [9, 6]
        """
        most = as_integer("most_reports", most_reports, 1, _MOST)
        size = self._oracle.report_bytes
        bodies = b"".join(self._body(i, frame) for i, frame in enumerate(frames))
        reports = [bodies[at : at + size] for at in range(0, len(bodies), size)]
        if as_json:
            head = f'{{"fingerprint":"{self._fingerprint}","reports":['.encode()
            tail = "]}" if self._segment is None else f'],"segment":"{self._segment}"}}'
            return _joined(head, [self._json(report) for report in reports], b",", tail.encode(), most)
        return _joined(self._header, reports, b"", b"", most)

    def _body(self, i: int, frame: bytes) -> bytes:
        if not isinstance(frame, bytes):
            raise TypeError(
                f"frame {i} is of type {type(frame).__name__}; it must be bytes, as report returns them"
            )
        header, body = frame[: len(self._header)], frame[len(self._header) :]
        if header != self._header:
            # bytes that are not a frame may be the user's value, so the error does not repeat them
            given = (
                f"has fingerprint {header[1 : wire.HEADER_BYTES].hex()}"
                if header[:1] == self._header[:1]
                else "is not a frame"
            )
            raise ValueError(
                f"frame {i} {given}; a binary frame of this stream begins with {self._header.hex()}"
            )
        size = self._oracle.report_bytes
        if not body or len(body) % size:
            raise ValueError(
                f"frame {i} has {len(frame)} bytes; allowed are {len(self._header)} plus {size} for each of one or "
                "more reports"
            )
        return body

    def _json(self, report: bytes) -> bytes:
        if self._oracle.length is not None:
            return b'"' + b64encode(report) + b'"'
        numbers = wire.integers(report, self._oracle.fields.values())
        return json.dumps(numbers[0] if len(numbers) == 1 else numbers, separators=(",", ":")).encode()

    def _index(self, value: str | int) -> int:
        if isinstance(value, str):
            if value not in self._indices:
                raise ValueError(f"the value is not one of the stream's {len(self._indices)} labels")
            return self._indices[value]
        # the error of `as_integer` would repeat the value
        if isinstance(value, bool) or not isinstance(value, int):
            raise TypeError(f"the value is of type {type(value).__name__}; it must be a label or an index")
        if not 0 <= value < self._oracle.domain_size:
            raise ValueError(f"the value is an index outside 0 to {self._oracle.domain_size - 1}")
        return value


def _joined(head: bytes, items: list[bytes], between: bytes, tail: bytes, most: int) -> list[bytes]:
    """Joins items into as few frames as the limits of items and bytes allow."""
    frames: list[bytes] = []
    begin, size = 0, len(head) + len(tail)
    for end, item in enumerate(items):
        if end > begin and (end - begin == most or size + len(item) > wire.LARGEST_FRAME):
            frames.append(head + between.join(items[begin:end]) + tail)
            begin, size = end, len(head) + len(tail)
        size += len(item) + len(between)
    if items:
        frames.append(head + between.join(items[begin:]) + tail)
    return frames
