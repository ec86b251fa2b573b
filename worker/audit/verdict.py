"""Verdicts on a partition and on a stream."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from worker.audit.records import Range

VERDICTS = ("different", "gap", "not recountable", "equal", "none yet")
"""Verdicts in descending severity. A stream has the most severe verdict of its partitions and snapshots."""


@dataclass(frozen=True)
class PartitionVerdict:
    """Verdict on one partition."""

    partition: int
    start: int | None  # offset at which counting began; None if nothing is counted
    offset: int  # the stored offset
    lag: int  # uncounted offsets up to the last stable offset
    records: int = 0  # recounted records
    reports: int = 0  # recounted reports
    rejected: Mapping[str, int] = field(default_factory=dict)  # malformed records by reason
    gaps: tuple[Range, ...] = ()  # ranges recorded as lost, if all else is equal
    deleted: tuple[Range, ...] = ()  # ranges counted and then deleted, if all else is equal
    difference: str | None = None  # first difference, else the reason for another verdict than equal
    late: int = 0  # accepted late records
    panes: int = 0  # stored panes

    @property
    def counted(self) -> bool:
        """Whether an offset is stored."""
        return self.start is not None

    @property
    def malformed(self) -> int:
        """Recounted malformed records."""
        return sum(self.rejected.values())

    @property
    def verdict(self) -> str:
        """One of `VERDICTS`."""
        if self.gaps:
            return "gap"
        if self.deleted:
            return "not recountable"
        if self.difference is not None:
            return "different"
        return "equal" if self.counted else "none yet"


def _sum_over_partitions(name: str) -> Any:
    return property(lambda self: sum(getattr(each, name) for each in self.partitions))


@dataclass(frozen=True, kw_only=True)
class Compared:
    """Outcome of the comparison of all snapshots."""

    finals: int = 0  # final windows on the topic
    recounted: int = 0  # recounted and compared final windows
    published: str | None = None  # first difference between the snapshots and the log
    provisional: int = 0  # provisional windows on the topic
    provisional_recounted: int = 0
    unknown: str | None = None  # reason why snapshots are not recountable
    gone: int = 0  # closed windows with reports, missing from the topic; `retain` deletes them
    parts: int = 0  # snapshots of documents and segments on the topic
    parts_recounted: int = 0


@dataclass(frozen=True)
class StreamVerdict(Compared):
    """Verdict on one stream.

    Example:
        >>> good = PartitionVerdict(0, start=0, offset=9, lag=2, records=9, reports=18)
        >>> StreamVerdict("colours", (good,)).equal
        True
        >>> bad = PartitionVerdict(1, 0, 5, 0, difference="late: 3 in Redis, 0 recounted")
        >>> StreamVerdict("colours", (good, bad)).difference
        'partition 1: late: 3 in Redis, 0 recounted'
    """

    stream: str
    partitions: tuple[PartitionVerdict, ...]

    records = _sum_over_partitions("records")
    reports = _sum_over_partitions("reports")
    late = _sum_over_partitions("late")
    panes = _sum_over_partitions("panes")
    malformed = _sum_over_partitions("malformed")
    lag = _sum_over_partitions("lag")

    @property
    def difference(self) -> str | None:
        """The first difference of the most severe kind, or None."""
        if self.published is not None and all(each.verdict != "different" for each in self.partitions):
            return self.published
        gravest = (each for each in self.partitions if each.difference and each.verdict == self.verdict)
        return next((f"partition {each.partition}: {each.difference}" for each in gravest), self.unknown)

    @property
    def verdict(self) -> str:
        """The most severe verdict of the partitions and the snapshots."""
        if self.published is not None:
            return "different"
        found = {each.verdict for each in self.partitions} | ({"not recountable"} if self.unknown else set())
        return next((verdict for verdict in VERDICTS if verdict in found), "none yet")

    @property
    def equal(self) -> bool:
        """Whether everything was recounted and nothing differs."""
        return self.difference is None

    @property
    def counted(self) -> bool:
        """Whether any partition has been counted."""
        return any(each.counted for each in self.partitions)

    @property
    def rejected(self) -> dict[str, int]:
        """Malformed records by reason."""
        rejected = sum((Counter(each.rejected) for each in self.partitions), Counter[str]())
        return dict(sorted(rejected.items()))
