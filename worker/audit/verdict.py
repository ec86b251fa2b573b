"""The verdicts: on a partition, and on a stream what those on its partitions come to."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from worker.audit.records import Stretch

VERDICTS = ("different", "gap", "not recountable", "equal", "none yet")
"""What can be said of a partition; of several, the first in this order is the stream's."""


@dataclass(frozen=True)
class PartitionVerdict:
    """The verdict on one partition.

    Attributes:
        partition: its number.
        start: the offset that counting began at, or None where nothing was counted yet.
        offset: the stored offset, up to which was recounted; 0 where nothing was counted yet.
        lag: offsets between the stored one, or else the log's start, and the log's last stable one.
        records: records read again.
        reports: reports counted again.
        rejected: malformed records among them, by reason.
        gaps: the stretches [from, to) that are recorded as lost, if nothing else differs.
        deleted: the stretches [from, to) that were counted and then deleted, if nothing else differs.
        difference: the first disagreement, else what cannot be recounted or is recorded as lost, or None.
        late: accepted records among them that came too late for their pane.
        panes: how many panes are kept.
    """

    partition: int
    start: int | None
    offset: int
    lag: int
    records: int = 0
    reports: int = 0
    rejected: Mapping[str, int] = field(default_factory=dict)
    gaps: tuple[Stretch, ...] = ()
    deleted: tuple[Stretch, ...] = ()
    difference: str | None = None
    late: int = 0
    panes: int = 0

    @property
    def counted(self) -> bool:
        """Whether anything was counted yet: an offset is stored."""
        return self.start is not None

    @property
    def malformed(self) -> int:
        """Malformed records among those read again."""
        return sum(self.rejected.values())

    @property
    def verdict(self) -> str:
        """The verdict in a word or two."""
        if self.difference is not None and not self.gaps and not self.deleted:
            return "different"
        if self.gaps:
            return "gap"
        if self.deleted:
            return "not recountable"
        return "equal" if self.counted else "none yet"


@dataclass(frozen=True)
class StreamVerdict:
    """What an audit of one stream found.

    Attributes:
        stream: its name.
        partitions: the verdicts on its partitions.
        finals: how many final windows are published.
        recounted: how many of them were recounted, to the offsets that they name, and compared.
        published: the first disagreement between what is published and the log, or None.
        provisional: how many windows are published that are not final.
        provisional_recounted: how many of them were recounted and compared.
        unknown: what of all that is published cannot be recounted, as records are gone, or None.
        gone: how many windows that are over, with reports, are not on the topic; retention deletes them, and whether it
            was that cannot be told. 0 where it is not known.

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
    finals: int = 0
    recounted: int = 0
    published: str | None = None
    provisional: int = 0
    provisional_recounted: int = 0
    unknown: str | None = None
    gone: int = 0

    @property
    def difference(self) -> str | None:
        """What the first partition of the stream's verdict says, or what is published, or None where all are equal."""
        if self.published is not None and all(each.verdict != "different" for each in self.partitions):
            return self.published
        gravest = (each for each in self.partitions if each.difference and each.verdict == self.verdict)
        return next((f"partition {each.partition}: {each.difference}" for each in gravest), self.unknown)

    @property
    def verdict(self) -> str:
        """The verdict on the stream: the gravest of its partitions', or of what is published."""
        if self.published is not None:
            return "different"
        found = {each.verdict for each in self.partitions} | ({"not recountable"} if self.unknown else set())
        return next((verdict for verdict in VERDICTS if verdict in found), "none yet")

    @property
    def equal(self) -> bool:
        """Whether all was recounted and nothing differs."""
        return self.difference is None

    @property
    def counted(self) -> bool:
        """Whether anything was counted yet."""
        return any(each.counted for each in self.partitions)

    @property
    def records(self) -> int:
        """Records read again."""
        return sum(each.records for each in self.partitions)

    @property
    def reports(self) -> int:
        """Reports counted again."""
        return sum(each.reports for each in self.partitions)

    @property
    def late(self) -> int:
        """Accepted records among those read again that came too late for their pane."""
        return sum(each.late for each in self.partitions)

    @property
    def panes(self) -> int:
        """How many panes are kept."""
        return sum(each.panes for each in self.partitions)

    @property
    def malformed(self) -> int:
        """Malformed records among those read again."""
        return sum(each.malformed for each in self.partitions)

    @property
    def rejected(self) -> dict[str, int]:
        """Malformed records among those read again, by reason."""
        rejected = sum((Counter(each.rejected) for each in self.partitions), Counter[str]())
        return dict(sorted(rejected.items()))

    @property
    def lag(self) -> int:
        """Offsets that were not counted yet."""
        return sum(each.lag for each in self.partitions)
