"""Final windows: what was published of each, and what the log says of it up to the offsets that it names.

A final window is the sum of the panes within it, over the offsets of its own snapshot; by then no partition had to
count anything in it any more. So those that the rules no longer have are recounted, too.
"""

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import numpy.typing as npt

from worker.audit.decoding import frequencies, support
from worker.audit.errors import Difference
from worker.audit.hashes import State
from worker.audit.parsing import Limits
from worker.audit.records import Records
from worker.audit.recount import Mark, Recount
from worker.audit.windows import ends_of, shape_of

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Final:
    """What was published of a final window.

    Attributes:
        name: of its windows, as they are configured.
        start: its first millisecond.
        end: the first one behind it.
        reports: how many it says there are.
        offsets: partition -> the offset up to which it was counted.
        frequencies: (d,) by the plain estimate.
        bounded: whether it was closed before every partition had passed it.
    """

    name: str
    start: int
    end: int
    reports: int
    offsets: Mapping[int, int]
    frequencies: npt.NDArray[np.float64]
    bounded: bool = False

    def __str__(self) -> str:
        return f"window {self.name}/{self.start}"

    def has(self, pane: str) -> bool:
        """Returns whether a pane is within it."""
        begin, end = ends_of(pane)
        return self.start <= begin and end <= self.end


def finals_of(
    messages: Mapping[str, bytes], head: Mapping[str, Any], fingerprint: bytes, most: int
) -> tuple[list[Final], int]:
    """Reads what was published of final windows.

    Args:
        messages: the newest ones of the plain estimate, by their keys without the stream: `1h/7200000/base`, and
            `1h/7200000/base/frequencies/0` for a part of a longer vector.
        head: the newest head's document, which knows what was bounded.
        fingerprint: the stream's.
        most: so many are wanted, those that end last.

    Returns:
        Those that are wanted, and how many there are.

    Raises:
        Difference: one contradicts its key, or it cannot be read.
    """
    found = list[tuple[int, int, str, dict[str, Any]]]()
    for key, value in messages.items():
        name, start, *rest = key.split("/")
        if rest == ["base"]:
            try:
                said = json.loads(value)
                if said["fingerprint"] == fingerprint.hex() and said["window"]["final"]:
                    found.append((_milliseconds(said["window"]["end"]), int(start), name, said))
            except (KeyError, ValueError, TypeError) as error:
                raise Difference(
                    f"window {name}/{start}: {value[:99]!r}... is published ({error!r})"
                ) from None
    newest = sorted(found, key=lambda each: each[:3])[-most:]
    return [_final(messages, name, start, said, head) for _, start, name, said in newest], len(found)


def _final(
    messages: Mapping[str, bytes], name: str, start: int, said: Mapping[str, Any], head: Mapping[str, Any]
) -> Final:
    """Returns what one window's message says, and those with the parts of its vector."""
    try:
        window, (length, hop) = said["window"], shape_of(name)
        begin, end = (_milliseconds(window[which]) for which in ("start", "end"))
        if (window["name"], begin, end) != (name, start, start + length) or begin % hop:
            raise Difference(f"window {name}/{start}: published as {window}")
        vector = np.array(said["frequencies"] or (), np.float64)
        if parts := [messages[f"{name}/{start}/base/frequencies/{i}"] for i in range(said["chunks"])]:
            vector = np.frombuffer(b"".join(parts), "<f8")
        bounded = head.get("windows", {}).get(name, {}).get("bounded", ())
        return Final(
            name,
            begin,
            end,
            int(said["reports"]),
            {int(partition): int(offset) for partition, offset in said["offsets"].items()},
            vector,
            any(first <= end < last for first, last in bounded),
        )
    except (KeyError, ValueError, TypeError) as error:
        raise Difference(f"window {name}/{start}: what is published cannot be read ({error!r})") from None


def _milliseconds(date: str) -> int:
    return (datetime.fromisoformat(date) - _EPOCH) // timedelta(milliseconds=1)


@dataclass
class _Count:
    """What a final window's panes amount to, in the partitions that are counted so far."""

    reports: int
    state: State
    partitions: set[int] = field(default_factory=set)
    early: list[tuple[int, int]] = field(default_factory=list)
    """The partitions whose closed line had not reached its end, each with the line."""


class Finals:
    """The final windows of a stream, which are counted while its partitions are.

    Args:
        document: the stream's public document.
        published: what was published of them.
        entries: of a state.

    Attributes:
        spoiled: the partitions that cannot be recounted; what they have of a final window is not known.
    """

    def __init__(self, document: Mapping[str, Any], published: Sequence[Final], entries: int) -> None:
        self._document = document
        self.published = published
        self.spoiled = set[int]()
        self._counts = [_Count(0, np.zeros(entries, np.int64)) for _ in published]

    def of(self, partition: int, rules: Iterable[tuple[int, Limits]], kept: Collection[str]) -> "Partly":
        """Returns what counts them in one partition.

        Args:
            partition: its number.
            rules: by which it is counted, each with its offset.
            kept: the panes that are wanted beside those of final windows.
        """
        lengths = {limits.windows.pane for _, limits in rules if limits.windows is not None}
        return Partly(self, partition, lengths, kept)

    def add(self, i: int, partition: int, counted: Recount) -> None:
        """Adds what a partition has of a final window, where it is counted up to the window's offset."""
        final, count = self.published[i], self._counts[i]
        if counted.closed < final.end and not final.bounded:
            count.early.append((partition, counted.closed))
        for pane, cell in counted.panes.items():
            if final.has(pane):
                assert cell.state is not None  # not released before its last window is counted
                count.reports += cell.reports
                count.state += cell.state
        count.partitions.add(partition)

    def compare(self) -> tuple[int, str | None]:
        """Compares what was published with what was counted.

        Returns:
            How many final windows are compared, and the first difference, or None.
        """
        whole = 0
        for final, count in zip(self.published, self._counts, strict=True):
            if count.partitions == final.offsets.keys() and not self.spoiled & count.partitions:
                try:
                    _compare(final, count, self._document)
                except Difference as difference:
                    return whole, str(difference)
                whole += 1
        return whole, None


def _compare(final: Final, count: _Count, document: Mapping[str, Any]) -> None:
    """Compares a final window to the last bit.

    Raises:
        Difference: it is another, or it was not final yet.
    """
    for partition, line in count.early:
        at = f"final at offset {final.offsets[partition]} of partition {partition}"
        raise Difference(f"{final}: {at}, where the closed line is {line}")
    if final.reports != count.reports:
        raise Difference(f"{final}: {final.reports} reports published, {count.reports} recounted")
    counts = support(document, count.state)
    if counts is None or not count.reports:
        return
    due = frequencies(document, counts, count.reports)
    if len(due) != len(final.frequencies):
        raise Difference(f"{final}: {len(final.frequencies)} frequencies published, {len(due)} are due")
    differing = np.flatnonzero(final.frequencies != due)
    if len(differing):
        v = int(differing[0])
        raise Difference(
            f"{final}: frequency[{v}] is {float(final.frequencies[v])} as published, {float(due[v])} recounted;"
            f" {len(differing)} of {len(due)} differ"
        )


class Partly:
    """The final windows of a stream in one partition: what is wanted of its recount, and until when.

    Args:
        finals: of the stream.
        partition: its number.
        lengths: how long the panes of its rules are.
        kept: the panes that are wanted in any case.

    Attributes:
        wanted: the panes whose states are wanted still.
    """

    def __init__(
        self, finals: Finals, partition: int, lengths: Collection[int], kept: Collection[str]
    ) -> None:
        self._finals, self._partition, self._kept = finals, partition, kept
        self._due: dict[int, list[int]] = {}
        self._last: dict[str, int] = {}
        for i, final in enumerate(finals.published):
            offset = final.offsets.get(partition)
            if offset is None:
                continue
            self._due.setdefault(offset, []).append(i)
            for length in lengths:
                for start in range(-(-final.start // length) * length, final.end - length + 1, length):
                    pane = f"{start}+{length}"
                    self._last[pane] = max(offset, self._last.get(pane, 0))
        self.wanted = {*kept, *self._last}

    def cut(self, records: Iterable[Records], end: int) -> Iterator[Records | Mark]:
        """Yields records up to an offset, with a mark at each one that final windows name."""
        marks = sorted(offset for offset in self._due if offset <= end)
        for read in records:
            rest = read
            while marks and len(rest.offsets) and marks[0] <= rest.offsets[-1]:
                first, rest = rest.split(marks[0])
                yield first
                yield self._mark(marks.pop(0))
            yield rest
        for offset in marks:
            yield self._mark(offset)

    def end(self, counted: Recount) -> None:
        """Lets go of what is wanted for windows whose offsets are not counted yet."""
        for pane in self.wanted.difference(self._kept):
            counted.release(pane)

    def _mark(self, offset: int) -> Mark:
        def reached(counted: Recount) -> None:
            for i in self._due.pop(offset):
                self._finals.add(i, self._partition, counted)
            for pane in [pane for pane, last in self._last.items() if last <= offset]:
                del self._last[pane]
                if pane not in self._kept:
                    self.wanted.discard(pane)
                    counted.release(pane)

        return Mark(reached)
