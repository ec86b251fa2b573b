"""Mergeable counts of a stream, and their file format.

Counts are linear in the reports, so states of disjoint sets of reports can be added. Workers, ``ldp aggregate``, Spark
and Beam can count reports. docs/reference/state-files.md defines the file format. Equal states have equal files.
"""

from __future__ import annotations

import hashlib
import os
import re
import secrets
import struct
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ldp.arguments import as_integer, as_json, joined_windows
from ldp.counts import checked_state
from ldp.estimate import Estimate, Window
from ldp.offset_range import OffsetRange, joined
from ldp.stream import Stream, canonical

if TYPE_CHECKING:
    from ldp.files import Aggregator

Counts = npt.NDArray[np.int64]

MAGIC = b"LDPSTATE"  # First bytes of a state file
VERSION = 1  # Version of the file format; every change increments it
NAME = "state"  # Default name of the stream when a state is read

_PREFIX = struct.Struct("<8sBI")
_SHA256_BYTES = 32
_WIDTHS = (1, 2, 4, 8)
_MOST = (1 << 63) - 1
_KEYS = ("document", "log", "records", "rejected", "reports", "width", "windows")
_REASON = re.compile(r"[a-z][a-z0-9_-]{0,63}", re.ASCII)


@dataclass(frozen=True, eq=False)
class State:
    """Counts of a subset of a stream's reports.

    Attributes:
        stream: the stream; its name is not part of the state.
        reports: n, the number of counted reports.
        counters: read-only copy of the oracle's (state_size,) int64 state.
        records: number of accepted records; each has one or more reports.
        rejected: reason -> number of rejected records, 1 or more.
        windows: disjoint ranges [start, end) of the reports' event time, ascending, in milliseconds since the epoch;
            empty for all time.
        log: disjoint offset ranges that contain the records, if known.

    Raises:
        TypeError: an attribute of the wrong type.
        ValueError: counters that n reports cannot have, fewer reports than records, more records than offsets in `log`,
            overlapping windows, or overlapping ranges.

    Two states are equal if their files are equal.

    Example:
        >>> import ldp
        >>> stream = ldp.Stream("colours", ldp.GRR("1", domain_size=3))
        >>> monday = State(stream, 6, [1, 2, 3], records=2, rejected={"json": 1})
        >>> both = monday.merge(State(stream, 4, [4, 0, 0], records=4))
        >>> both.reports, both.counters.tolist(), both.records, both.rejected
        (10, [5, 2, 3], 6, {'json': 1})
        >>> State.from_bytes(both.to_bytes()) == both
        True
    """

    stream: Stream
    reports: int
    counters: Counts
    records: int
    rejected: Mapping[str, int] = field(default_factory=dict)
    windows: tuple[Window, ...] = ()
    log: tuple[OffsetRange, ...] = ()

    def __post_init__(self) -> None:
        reports = as_integer("reports", self.reports, 0, _MOST)
        records = as_integer("records", self.records, min(reports, 1), reports)
        state = checked_state(self.stream.oracle, reports, self.counters)
        if reports:
            self.stream.oracle.estimate(
                self.stream.oracle.support(state), reports
            )  # raises ValueError for impossible counters
        counters = np.array(self.counters, np.int64)
        counters.flags.writeable = False
        rejected = _checked_reasons(self.rejected)
        log = joined(self.log)
        span, read = sum(one.offset - one.start for one in log), records + sum(rejected.values())
        if log and read > span:
            raise ValueError(f"{read} records in {span} offsets of the log: some were counted twice")
        checked = {
            "reports": reports,
            "records": records,
            "counters": counters,
            "rejected": rejected,
            "log": log,
        }
        for name, value in checked.items():
            object.__setattr__(self, name, value)
        object.__setattr__(self, "windows", joined_windows(self.windows))

    @classmethod
    def of(
        cls, aggregator: Aggregator, windows: Sequence[Window] = (), log: Sequence[OffsetRange] = ()
    ) -> State:
        """Returns the state of an aggregator, with windows and log ranges."""
        rejected = {str(reason): n for reason, n in aggregator.rejected.items()}
        records = aggregator.records - sum(rejected.values())
        return cls(
            aggregator.stream,
            aggregator.reports,
            aggregator.state,
            records,
            rejected,
            tuple(windows),
            tuple(log),
        )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, State) and self.to_bytes() == other.to_bytes()

    def __hash__(self) -> int:
        return hash(self.to_bytes())

    def merge(self, *others: State) -> State:
        """Returns the sum of states of disjoint sets of reports. O(state) each.

        The states are added one after the other. If a state covers the same windows as the sum before it, or both cover
        all time, the new sum has the log ranges of both. If their windows are disjoint, it has no log ranges.

        Args:
            others: states that have no report in common with this state or with each other.

        Raises:
            TypeError: an argument that is not a State.
            ValueError: states of different documents, windows that overlap (unless the sum before has the same
                windows), overlapping log ranges, more than 2⁶³ − 1 reports in total, or a state of all time and one of
                windows.
        """
        merged = self
        for other in others:
            merged = merged._plus(other)
        return merged

    def _plus(self, other: State) -> State:
        if not isinstance(other, State):
            raise TypeError(f"merge needs a State, not {type(other).__name__}")
        ours, theirs = self.stream.fingerprint.hex(), other.stream.fingerprint.hex()
        if other.stream.document() != self.stream.document():
            raise ValueError(
                f"the states have the documents {ours} and {theirs}; only states of one document can be merged"
            )
        if bool(other.windows) != bool(self.windows):
            raise ValueError(
                "a state of all time contains the reports of every window; it cannot be merged with a state of windows"
            )
        reports = as_integer("the total of reports", self.reports + other.reports, 0, _MOST)
        same = other.windows == self.windows
        return State(
            self.stream,
            reports,
            self.counters + other.counters,
            self.records + other.records,
            Counter(self.rejected) + Counter(other.rejected),
            self.windows if same else self.windows + other.windows,
            self.log + other.log if same else (),
        )

    def estimate(self) -> Estimate:
        """Returns Base with windows and labels. Raises ValueError for 0 reports."""
        stream = self.stream
        estimate = stream.oracle.estimate(stream.oracle.support(self.counters), self.reports)
        return replace(estimate, windows=self.windows, labels=stream.labels, privacy=stream.privacy)

    # The file

    def to_bytes(self) -> bytes:
        """Returns the content of a state file."""
        counters = narrowest(self.counters)
        header = canonical(
            {
                "document": self.stream.document(),
                "log": [covered.document() for covered in self.log],
                "records": self.records,
                "rejected": self.rejected,
                "reports": self.reports,
                "width": counters.itemsize,
                "windows": [list(window) for window in self.windows],
            }
        )
        content = _PREFIX.pack(MAGIC, VERSION, len(header)) + header + counters.tobytes()
        return content + hashlib.sha256(content).digest()

    @classmethod
    def from_bytes(cls, data: bytes, name: str = NAME) -> State:
        """Parses the content of a state file. `name` becomes the stream's name.

        Raises:
            ValueError: data that are not a state, or a state that is damaged, inconsistent or of another version.
        """
        if data[: len(MAGIC)] != MAGIC:
            raise ValueError(f"not a state file: a state file begins with {MAGIC.decode()}")
        if len(data) < _PREFIX.size + _SHA256_BYTES:
            raise ValueError(f"the state file is truncated: it has only {len(data)} bytes")
        _, version, length = _PREFIX.unpack_from(data)
        if version != VERSION:
            raise ValueError(f"the state file has version {version}; supported is version {VERSION}")
        if hashlib.sha256(memoryview(data)[:-_SHA256_BYTES]).digest() != data[-_SHA256_BYTES:]:
            raise ValueError("the state file is truncated or damaged: its checksum does not match")
        body = data[_PREFIX.size : -_SHA256_BYTES]
        try:
            state = _read(body[:length], body[length:], name)
        except (TypeError, ValueError) as error:
            raise ValueError(f"the state file is inconsistent: {error}") from None
        if state.to_bytes() != data:
            raise ValueError("the state file is not in canonical form; write it with State.write")
        return state

    def write(self, path: Path) -> None:
        """Writes the file atomically. An OSError leaves an old file unchanged."""
        path = path.resolve()
        if path.exists() and not path.is_file():
            raise FileExistsError(f"{path} exists and is not a file")
        partial = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
        try:
            with partial.open("xb") as file:
                file.write(self.to_bytes())
                file.flush()
                os.fsync(file.fileno())
            partial.replace(path)
        finally:
            partial.unlink(missing_ok=True)

    @classmethod
    def read(cls, path: Path, name: str = NAME) -> State:
        """Reads a state file. Raises OSError, or ValueError as `from_bytes` does."""
        try:
            return cls.from_bytes(path.read_bytes(), name)
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from None


def narrowest(counters: Counts) -> npt.NDArray[np.unsignedinteger[Any]]:
    """Converts counters to the narrowest unsigned little-endian integers."""
    least, most = int(counters.min(initial=0)), int(counters.max(initial=0))
    if least < 0:
        raise ValueError(f"a count is {least}; allowed is 0 or more")
    width = next(width for width in _WIDTHS if most < 1 << 8 * width)
    return counters.astype(f"<u{width}")


def _checked_reasons(rejected: Mapping[str, int]) -> dict[str, int]:
    if not isinstance(rejected, Mapping):
        raise TypeError(f"rejected is {rejected!r}; it must be an object that maps reasons to numbers")
    checked = {}
    for reason, n in sorted(rejected.items()):
        if not _REASON.fullmatch(reason):
            raise ValueError(f"a reason is {reason!r}; allowed are 1 to 64 of a-z 0-9 _ -")
        checked[str(reason)] = as_integer(f"rejected for {reason}", n, 1, _MOST)
    return checked


def _read(header: bytes, counters: bytes, name: str) -> State:
    fields = as_json(header)
    if not isinstance(fields, dict) or sorted(fields) != list(_KEYS):
        raise ValueError(f"the header must have exactly the keys {', '.join(_KEYS)}")
    stream = Stream.from_document(name, fields["document"])
    width = fields["width"]
    if width not in _WIDTHS:
        raise ValueError(f"width is {width!r}; allowed are 1, 2, 4 and 8")
    if len(counters) != width * stream.oracle.state_size:
        raise ValueError(
            f"the counters have {len(counters)} bytes; {stream.oracle.state_size} counters need {width} bytes each"
        )
    return State(
        stream,
        fields["reports"],
        np.frombuffer(counters, f"<u{width}"),
        fields["records"],
        fields["rejected"],
        tuple(tuple(window) for window in fields["windows"]),
        tuple(OffsetRange(**covered) for covered in fields["log"]),
    )
