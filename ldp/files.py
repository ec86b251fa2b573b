r"""Reads and writes files of values and frames with bounded memory.

A file of values has one value per line: a label, or an index if the stream has no labels. The first byte of a file of
frames determines its format:

- 0x01: the file is one binary frame with any number of reports. Do not append to it: a second frame would be
  read as reports.
- any other byte: JSON lines, one JSON frame per line. Blank lines are skipped. A line that begins with 0x01 is
  rejected, because a binary frame may contain line feeds.

A record is a line or a binary frame. It is accepted or rejected as a unit.
"""

from __future__ import annotations

import codecs
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import repeat
from typing import TYPE_CHECKING, Protocol

import numpy as np
import numpy.typing as npt

from ldp import frames, wire
from ldp.frames import Reason

if TYPE_CHECKING:
    from pathlib import Path

    from ldp.estimate import Estimate
    from ldp.stream import Stream

BLOCK = 1 << 20
"""Block size of binary frames and of encoded reports in bytes."""
LINES_BLOCK = 1 << 16
"""Block size of JSON lines in bytes. It is smaller, because a line takes longer than a binary report."""
LONGEST_LINE = 1 << 26  # Longest accepted line in bytes; longer lines are skipped without buffering

PLACES = 3  # Places that `Aggregator` keeps per reason

_LINE_FEED = 0x0A
_VERSIONS = [wire.VERSION, wire.SEGMENT_VERSION]
_BINARY = [bytes([version]) for version in _VERSIONS]
_DIGITS = 9  # Most digits of an index


class Readable(Protocol):
    """A file that is open for reading bytes."""

    def read(self, size: int, /) -> bytes:
        """Returns the next `size` bytes; fewer only at the end."""


# Values and their reports


def labels(path: Path) -> list[str]:
    """Returns the labels in a UTF-8 file with one label per line.

    Raises OSError, or UnicodeDecodeError if the file is not UTF-8.
    """
    return path.read_text(encoding="utf-8-sig").removesuffix("\n").split("\n")


def values(stream: Stream, file: Readable, source: str) -> Iterator[npt.NDArray[np.int64]]:
    r"""Yields the values of a file as indices, a block of lines at a time.

    The file is UTF-8 with one value per line: a label or, in a stream without labels, 0 to d−1 in decimal. Lines end
    with ``\n`` or ``\r\n``. `source` names the file in errors.

    Raises:
        ValueError: a line that is not a value. No value of the line's block is yielded. The error contains the line's
            number but not the line's content, because values are secret.

    Example:
        >>> import io, ldp
        >>> stream = ldp.Stream("colours", ldp.GRR("1", domain_size=2), labels=["red", "blue"])
        >>> [block.tolist() for block in values(stream, io.BytesIO(b"blue\nred\nblue\n"), "stdin")]
        [[1, 0, 1]]
    """
    d = stream.oracle.domain_size
    wanted = f"not an index from 0 to {d - 1}" if stream.labels is None else f"not one of the {d} labels"
    known = {label.encode(): index for index, label in enumerate(stream.labels or ())}
    before = 0
    for block in _lines(file, file.read(LINES_BLOCK)):
        if block is None:
            raise ValueError(f"{source}, line {before + 1} is {wanted}")
        if not before:
            block = block.removeprefix(codecs.BOM_UTF8)  # noqa: PLW2901
        lines = block.removesuffix(b"\n").split(b"\n")
        if b"\r" in block:
            lines = [line.removesuffix(b"\r") for line in lines]
        found = map(_index, lines) if stream.labels is None else map(known.get, lines, repeat(-1))
        indices = np.fromiter(found, np.int64, len(lines))
        wrong = (indices < 0) | (indices >= d)
        if wrong.any():
            first = int(wrong.argmax())
            what = wanted if lines[first] else f"blank, {wanted}"
            raise ValueError(f"{source}, line {before + first + 1} is {what}")
        yield indices
        before += len(lines)


def perturbed(
    stream: Stream,
    values: Iterable[npt.NDArray[np.int64]],
    *,
    binary: bool,
    segment: str | None = None,
    rng: np.random.Generator | None = None,
) -> Iterator[tuple[bytes, int]]:
    """Yields the parts of a file of reports, with each part's report count.

    The file has one report per value. It is one binary frame if `binary`, else JSON lines with one report per line.
    `rng` is only for simulation (see `Oracle.perturb`).
    """
    header = 0
    most = max(1, BLOCK // stream.oracle.report_dtype.itemsize)
    for some in values:
        for start in range(0, len(some), most):
            reports = stream.oracle.perturb(some[start : start + most], rng=rng)
            if binary:
                frame = frames.encode(stream, reports, segment)
                yield frame[header:], reports.size
                header = wire.header_bytes(frame)
            else:
                yield frames.encode_lines(stream, reports, segment), reports.size


# Counting of reports


class Aggregator:
    r"""Counts the reports of one stream in files, as a worker does.

    Args:
        stream: the stream of the reports.
        most_reports: limit of reports per record; None for no limit. A file that is a binary frame is one record.

    Attributes:
        state: the oracle's (K,) int64 state.
        reports: n, the number of counted reports.
        records: the number of records read, including rejected records.
        rejected: reason -> number of rejected records.
        places: reason -> the source and the line of the first rejected records.

    Memory: two states, a block, and a line.

    Example:
        >>> import io, ldp
        >>> aggregator = Aggregator(ldp.Stream("colours", ldp.GRR("1", domain_size=3)))
        >>> lines = b'{"fingerprint":"8e9f39d0","reports":[0,2]}\n{"fingerprint":"8e9f39d0","reports":[3]}\n'
        >>> aggregator.read(io.BytesIO(lines), "a")
        >>> aggregator.state.tolist(), aggregator.reports, aggregator.records, dict(aggregator.rejected)
        ([1, 0, 1], 2, 2, {<Reason.RANGE: 'range'>: 1})
    """

    def __init__(self, stream: Stream, most_reports: int | None = None) -> None:
        self.stream = stream
        self.state = stream.oracle.zeros()
        self.reports = 0
        self.records = 0
        self.rejected: Counter[Reason] = Counter()
        self.places: dict[Reason, list[str]] = {}
        self._most = most_reports

    def read(self, file: Readable, source: str) -> None:
        """Counts a file of frames in either format.

        Raises:
            OSError: the file cannot be read to its end. Earlier lines are counted; an incomplete binary frame is not.
        """
        block = file.read(LINES_BLOCK)
        if block[:1] in _BINARY:
            self._read_frame(file, source, block)
        else:
            self._read_lines(file, source, block)

    def count(
        self,
        buffer: bytes | npt.NDArray[np.uint8],
        begins: npt.NDArray[np.int64],
        ends: npt.NDArray[np.int64],
    ) -> frames.Decoded:
        r"""Counts the records in a buffer, but does not call `on_rejected`."""
        decoded = self._count(buffer, begins, ends)
        for verdict, n in enumerate(np.bincount(decoded.verdicts).tolist()):
            if verdict and n:
                self.rejected[frames.VERDICTS[verdict]] += n
        return decoded

    def estimate(self) -> Estimate:
        """Returns Base with the stream's labels. Raises ValueError for 0 reports."""
        stream = self.stream
        estimate = stream.oracle.estimate(stream.oracle.support(self.state), self.reports)
        return estimate.labelled(stream.labels).declared(stream.privacy)

    def _read_frame(self, file: Readable, source: str, block: bytes) -> None:
        oracle = self.stream.oracle
        size = oracle.report_dtype.itemsize
        state, reports, length, reason = oracle.zeros(), 0, 0, ""
        header = wire.header_bytes(block)
        for record in _parts(file, block, header, size):
            length += len(record) - header
            if reason in ("", Reason.ONES):
                decoded = frames.decode(self.stream, record, np.array([0]), np.array([len(record)]))
                reason = decoded.reasons.get(0, reason)
                oracle.accumulate(state, decoded.reports)
                reports += decoded.reports.size
        if reason in ("", Reason.RANGE, Reason.ONES):  # the order of reasons of `frames.decode`
            if length % size:
                reason = Reason.LENGTH
            elif self._most is not None and length // size > self._most:
                reason = Reason.MANY
        self.records += 1
        if reason:
            self._reject(Reason(reason), f"{source}, one binary frame")
        else:
            self.state += state
            self.reports += reports

    def _read_lines(self, file: Readable, source: str, block: bytes) -> None:
        before = 0
        for lines in _lines(file, block):
            if lines is None:
                self.records += 1
                before += 1
                self._reject(Reason.LENGTH, f"{source}, line {before:,}")
                continue
            data = np.frombuffer(lines, np.uint8)
            # a line keeps its line feed: JSON may end with white space
            ends = np.flatnonzero(data == _LINE_FEED) + 1
            bounds = np.concatenate([[0], ends, [] if lines.endswith(b"\n") else [data.size]]).astype(
                np.int64
            )
            binary = bounds[:-1][np.isin(data[bounds[:-1]], _VERSIONS)]
            if binary.size:
                data = data.copy()
                data[binary] = 0  # an unknown version, so that the line is rejected
            decoded = self._count(data, bounds[:-1], bounds[1:])
            for i, reason in decoded.reasons.items():
                if lines[bounds[i] : bounds[i + 1]].removesuffix(b"\n").removesuffix(b"\r"):
                    self._reject(Reason(reason), f"{source}, line {before + i + 1:,}")
                else:
                    self.records -= 1
            before += decoded.counts.size

    def _count(
        self,
        buffer: bytes | npt.NDArray[np.uint8],
        begins: npt.NDArray[np.int64],
        ends: npt.NDArray[np.int64],
    ) -> frames.Decoded:
        decoded = frames.decode(self.stream, buffer, begins, ends, most_reports=self._most)
        self.stream.oracle.accumulate(self.state, decoded.reports)
        self.reports += decoded.reports.size
        self.records += decoded.counts.size
        return decoded

    def _reject(self, reason: Reason, place: str) -> None:
        self.rejected[reason] += 1
        places = self.places.setdefault(reason, [])
        if len(places) < PLACES:
            places.append(place)


def _parts(file: Readable, block: bytes, header_bytes: int, size: int) -> Iterator[bytes]:
    """Yields frames of complete reports, then a frame with remaining bytes."""
    header, rest, whole = block[:header_bytes], block[header_bytes:], 0
    while block:
        if whole := len(rest) // size * size:
            yield header + rest[:whole]
        block = file.read(BLOCK)
        rest = rest[whole:] + block
    if rest or not whole:
        yield header + rest


def _lines(file: Readable, block: bytes) -> Iterator[bytes | None]:
    """Yields blocks of complete lines and None for each line that is too long."""
    rest = bytearray()
    passing = False
    while block:
        if passing:
            _, feed, block = block.partition(b"\n")
            passing = not feed
        elif end := block.rfind(b"\n") + 1:
            yield bytes(rest + block[:end])
            rest[:] = block[end:]
            block = b""
        else:
            rest += block
            block = b""
            if len(rest) > LONGEST_LINE:
                rest.clear()
                passing = True
                yield None
        block = block or file.read(LINES_BLOCK)
    if rest:
        yield bytes(rest)


def _index(line: bytes) -> int:
    return int(line) if line.isdigit() and len(line) <= _DIGITS else -1
