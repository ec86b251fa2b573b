"""Verdicts on a partition and on a stream."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from worker.audit.records import Range

VERDICTS = ("different", "gap", "not recountable", "equal", "none yet")
"""Verdicts on a partition, the gravest first; the stream's is the gravest of its partitions'."""


@dataclass(frozen=True)
class PartitionVerdict:
    """Verdict on one partition."""

    partition: int
    start: int | None  # the offset that counting began at; None where nothing was counted yet
    offset: int  # the stored offset
    lag: int  # offsets not counted yet, up to the last stable one
    records: int = 0  # records read again
    reports: int = 0  # reports counted again
    rejected: Mapping[str, int] = field(default_factory=dict)  # malformed records by reason
    gaps: tuple[Range, ...] = ()  # recorded as lost, if nothing else differs
    deleted: tuple[Range, ...] = ()  # counted and then deleted, if nothing else differs
    difference: str | None = None  # the first one, else what keeps the partition from being equal
    late: int = 0  # accepted records that came too late for their pane
    panes: int = 0  # panes kept

    @property
    def counted(self) -> bool:
        """Whether an offset is stored."""
        return self.start is not None

    @property
    def malformed(self) -> int:
        """Malformed records among those read again."""
        return sum(self.rejected.values())

    @property
    def verdict(self) -> str:
        """The verdict, one of `VERDICTS`."""
        if self.gaps:
            return "gap"
        if self.deleted:
            return "not recountable"
        if self.difference is not None:
            return "different"
        return "equal" if self.counted else "none yet"


def _total(name: str) -> Any:
    """Returns a property that sums an attribute over the partitions."""
    return property(lambda self: sum(getattr(each, name) for each in self.partitions))


@dataclass(frozen=True)
class StreamVerdict:
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
    finals: int = 0  # final windows on the topic
    recounted: int = 0  # how many of them were recounted and compared
    published: str | None = None  # the first difference between what is published and the log
    provisional: int = 0  # windows on the topic that are not final
    provisional_recounted: int = 0
    unknown: str | None = None  # published, but not recountable because records are gone
    gone: int = 0  # closed windows with reports that are not on the topic; retention deletes them

    records = _total("records")
    reports = _total("reports")
    late = _total("late")
    panes = _total("panes")
    malformed = _total("malformed")
    lag = _total("lag")

    @property
    def difference(self) -> str | None:
        """The first difference of the gravest kind, or None if all are equal."""
        if self.published is not None and all(each.verdict != "different" for each in self.partitions):
            return self.published
        gravest = (each for each in self.partitions if each.difference and each.verdict == self.verdict)
        return next((f"partition {each.partition}: {each.difference}" for each in gravest), self.unknown)

    @property
    def verdict(self) -> str:
        """The gravest verdict of the partitions and of what is published."""
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
        """Whether any partition was counted yet."""
        return any(each.counted for each in self.partitions)

    @property
    def rejected(self) -> dict[str, int]:
        """Malformed records by reason."""
        rejected = sum((Counter(each.rejected) for each in self.partitions), Counter[str]())
        return dict(sorted(rejected.items()))
