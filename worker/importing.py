"""Import: turns counts of another program into the state of a partition.

The history is that of a log's prefix, counted for all time by one rule, by Spark or Beam over an archive for example.
The worker that claims the partition adds the configured rule at the import's offset, and a head admits the partition
before it counts in windows, so they begin beyond all that was imported. An import never changes existing counts.
"""

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from uuid import uuid4

import ldp
from ldp.offset_range import OffsetRange
from ldp.state import State
from worker.counting import invariants, layout, rejections
from worker.counting.changed import NEW_NAME
from worker.counting.claim import foreign, peek
from worker.counting.head import Head
from worker.counting.lineage import differing, lineage_of
from worker.counting.partition_state import Cell, PartitionState
from worker.counting.ports import (
    CLAIMED,
    COUNTED,
    Answer,
    HeadReader,
    Metadata,
    NonMemberLog,
    Store,
    Unavailable,
)
from worker.counting.rules import RecordLimits, Rule
from worker.counting.window_state import WindowState
from worker.counting.windows import ALL


class Refused(Exception):  # noqa: N818  # what became of it
    """A history cannot be a partition's state: it is of something else, or there are or were counts."""


@dataclass(frozen=True)
class Prefix:
    """A history to import, and the part of the log that it counts."""

    history: State
    covered: OffsetRange

    @property
    def commit_id(self) -> str:
        """The commit id to store it under, a digest: a second import of the same history finds the first."""
        return hashlib.sha256(self.history.to_bytes()).hexdigest()[:32]

    def rule(self, start: int) -> Rule:
        """Returns the rule of its records; its revision is older than any that is configured."""
        return Rule(start, 0, RecordLimits(self.covered.most_reports, hamming_weight=True))

    def state(self, start: int) -> PartitionState:
        """Returns the state of a worker that counted its records by that rule, from ``start`` on."""
        history, covered = self.history, self.covered
        return PartitionState(
            start=start,
            offset=covered.offset,
            rules=[self.rule(start)],
            accepted=history.records,
            rejected=dict(history.rejected),
            windows=WindowState(watermark=covered.max_timestamp),
            cells={ALL: Cell(history.reports, history.counters)},
            changed={ALL},
        )

    def is_in(self, found: Metadata) -> bool:
        """Returns whether stored counts contain it, as imported or counted on since.

        Counts are a function of the log and the rules, so a first rule that is the import's shows that its records
        are among them.
        """
        if (found.offset, found.commit_id) == (self.covered.offset, self.commit_id):
            return True
        first, *others = layout.recorded(found)
        ours = first.offset <= self.covered.start and first == self.rule(first.offset)
        return ours and any(rule.offset >= self.covered.offset for rule in others[:1])


def prefix_of(stream: ldp.Stream, topic: str, history: State) -> Prefix:
    """Returns a history as a prefix of a stream's topic; raises Refused if it is none.

    Example:
        >>> stream = ldp.Stream("colours", ldp.GRR("1", domain_size=3))
        >>> log = (OffsetRange("reports", 0, 5, 9, max_timestamp=70),)
        >>> counted = State(stream, 3, [0, 1, 2], records=2, rejected={"json": 1}, log=log)
        >>> state = prefix_of(stream, "reports", counted).state(start=5)
        >>> state.offset, state.accepted, state.windows.watermark
        (9, 2, 70)
    """
    if history.stream.document() != stream.document():
        ours, theirs = stream.fingerprint.hex(), history.stream.fingerprint.hex()
        raise Refused(f"it is of another document: fingerprint {theirs} there, {ours} here")
    if history.windows:
        raise Refused("it is of windows; a partition begins with the counts of all time")
    if len(history.log) != 1:
        said = "; ".join(map(str, history.log)) or "of no log"
        raise Refused(f"it is {said}; an import is of one range of one partition's log")
    (covered,) = history.log
    if covered.topic != topic:
        raise Refused(f"it is of {covered}; the stream's topic is {topic}")
    if (covered.max_timestamp is None) != (not history.records):
        raise Refused(
            f"it says {'no' if history.records else 'a'} highest timestamp of its {history.records:,} accepted records;"
            " windows begin beyond that, so it is needed where there are any"
        )
    if unknown := sorted(history.rejected.keys() - rejections.REASONS.keys()):
        raise Refused(f"records were rejected for {', '.join(unknown)}, which workers do not know")
    prefix = Prefix(history, covered)
    if (why := next(invariants.impossible(stream, prefix.state(covered.start)), None)) is not None:
        raise Refused(f"no records of {covered} count so: {why}")
    return prefix


def mirrored(
    stream: ldp.Stream, partition: int, counted: PartitionState | None, end: int, topic: str, mirror_end: int
) -> State | None:
    """Returns the counts of a whole partition as the history of its mirror, which has the same records.

    Args:
        stream: the stream.
        partition: its number, the same in the mirror.
        counted: its state; None if nothing was claimed.
        end: of its log.
        topic: the mirror's.
        mirror_end: of the mirror's log.

    Returns:
        The history; None if the mirror has no record and nothing was counted.

    Raises:
        Refused: the counts are not those of the whole log, or not by one rule; or the mirror lacks the beginning.
    """
    offset = 0 if counted is None else counted.offset
    if left := end - offset:
        raise Refused(f"partition {partition}: {left} offset{'s are' if left > 1 else ' is'} not counted yet")
    if counted is None or not mirror_end:
        if counted is not None and counted.total().reports:
            raise Refused(f"partition {partition}: the mirror is empty")
        return None
    if counted.gaps:
        raise Refused(
            f"partition {partition}: its counts lack lost records, and the mirror would call them complete"
        )
    if len(most := {rule.limits.most_reports for rule in counted.rules}) > 1:
        raise Refused(
            f"partition {partition}: records were counted under several bounds, {most}; import one rule's counts"
        )
    total, (most_reports,) = counted.total(), most
    read = counted.accepted + sum(counted.rejected.values())
    if read > mirror_end:
        raise Refused(
            f"partition {partition}: {read} records were counted, and the mirror has {mirror_end} offsets: it does not"
            " begin with the first record"
        )
    return State(
        stream,
        total.reports,
        total.state,
        counted.accepted,
        counted.rejected,
        log=(OffsetRange(topic, partition, 0, mirror_end, counted.windows.watermark, most_reports),),
    )


@dataclass(frozen=True)
class Import:
    """The import of histories into one stream.

    Attributes:
        group: the consumer group that counts it.
        stream: whose partitions.
        topic: the stream's.
        log: the topic and the group, from outside.
        store: where the counts are kept.
        head_reader: where the head of what was published is read.
    """

    group: str
    stream: ldp.Stream
    topic: str
    log: NonMemberLog
    store: Store
    head_reader: HeadReader

    def run(self, histories: Mapping[str, State], on_done: Callable[[Prefix, bool], object]) -> None:
        """Makes each history its partition's state; all are checked before the first is stored.

        The steps have this order for safety. After a failure a partition has nothing or all of its import, and the
        same import can be run again:

        1. Compare each history with the stream: document and topic, and one history a partition.
        2. Read the topic's id and its partitions.
        3. Read Kafka's offsets: they follow the store, so the counts that they name must be found after them.
        4. Read the decided head: the counts that it names must be found after it, too.
        5. Read the log's bounds: the log must go on where an import ends, and have no record before its start. A
           second answer must agree, about the topic's id, too.
        6. Read the store's metadata. Anything there except this import is an obstacle.
        7. Stage the counts under a key of this attempt, a partition at a time.
        8. One script moves them into place with the metadata, if there are none yet.
        9. Kafka gets the offset as a mirror, so that a loss is noticed; members of the group do it themselves.

        A worker that claims meanwhile is first, and step 8 changes nothing; or it finds the import, and resumes at
        its offset.

        Args:
            histories: one for each partition, by the name that errors use.
            on_done: called for each stored import, with whether it was stored before.

        Raises:
            Refused: why any of them cannot be imported, a line each. None is, unless a worker claimed one just now.
            StateLost: what is stored cannot be read.
            Unavailable: the outside does not answer; what was done stays.
        """
        # Step 1.
        prefixes = self._prefixes(histories)
        # Step 2.
        lineage = lineage_of(self.group, self.stream, topic := self.log.topic_id())
        if missing := sorted(prefixes.keys() - self.log.partitions()):
            raise Refused(f"topic {self.topic} has no partition {', '.join(map(str, missing))}")
        # Step 3.
        committed = self.log.committed(prefixes)
        # Step 4.
        head = self.head_reader.head(decided=True)
        # Step 5.
        bounds = self.log.bounds(prefixes)
        starts = {p: self._start(prefix, bounds[p]) for p, prefix in prefixes.items()}
        # both are stored: no single answer decides them
        again = self.log.bounds(prefixes)
        if self.log.topic_id() != topic or any(again[p][0] != bounds[p][0] for p in prefixes):
            raise Unavailable("Kafka: two answers about the topic's id or where its logs begin do not agree")
        # Step 6.
        found = {p: peek(self.stream, self.store, p) for p in prefixes}
        self._demand_free(prefixes, lineage, starts, bounds, committed, head, found)
        for p, prefix in prefixes.items():
            if (there := found[p]) is None:
                self._install(p, prefix, starts[p], lineage)
            if there is None or there.commit_id == prefix.commit_id:
                self._mirror(p, prefix, committed.get(p))
            on_done(prefix, there is not None)

    def _prefixes(self, histories: Mapping[str, State]) -> dict[int, Prefix]:
        """Returns the prefix of each partition, in their order."""
        prefixes, names = dict[int, Prefix](), dict[int, str]()
        for name, history in histories.items():
            try:
                prefix = prefix_of(self.stream, self.topic, history)
            except Refused as error:
                raise Refused(f"{name}: {error}") from None
            partition = prefix.covered.partition
            if partition in prefixes:
                raise Refused(f"{names[partition]} and {name} are of one partition, {partition}; merge them")
            prefixes[partition], names[partition] = prefix, name
        return dict(sorted(prefixes.items()))

    def _start(self, prefix: Prefix, bounds: tuple[int, int]) -> int:
        """Returns where the log begins, if it has no record between that and the history's start; else that start."""
        first, start = bounds[0], prefix.covered.start
        # asked twice, as a wrong no would leave records out
        if start <= first or any(
            self.log.has_records(prefix.covered.partition, first, start) for _ in range(2)
        ):
            return start
        return first

    def _demand_free(
        self,
        prefixes: Mapping[int, Prefix],
        lineage: str,
        starts: Mapping[int, int],
        bounds: Mapping[int, tuple[int, int]],
        committed: Mapping[int, tuple[int, str]],
        head: Head,
        found: Mapping[int, Metadata | None],
    ) -> None:
        """Raises Refused if a partition has counts, or had some that its history lacks."""
        if others := head.foreign(lineage):
            raise Refused(str(foreign(self.stream, head, others)))
        faults = []
        for p, prefix in prefixes.items():
            there = found[p]
            if there is not None:
                why = _taken(prefix, there, lineage)
            else:
                why = _misses(prefix, starts[p], bounds[p]) or _lost(
                    prefix, starts[p], committed.get(p), head, self.group
                )
            if why:
                faults.append(f"partition {p}: {why}")
        if faults:
            raise Refused("\n".join(faults))

    def _install(self, partition: int, prefix: Prefix, start: int, lineage: str) -> None:
        state = prefix.state(start)
        metadata, blobs = layout.dump(state, layout.initial(lineage, state), prefix.commit_id)
        attempt = uuid4().hex
        # Step 7.
        self.store.stage(partition, attempt, blobs)
        # Step 8.
        answer = self.store.install(partition, attempt, metadata)
        if answer is Answer.STAGING_EXPIRED:
            raise Unavailable(
                f"Redis: the staged counts of partition {partition} are gone; import them again"
            )
        if answer is not Answer.DONE:
            raise Refused(f"partition {partition}: a worker has claimed it just now; {_NEVER}")

    def _mirror(self, partition: int, prefix: Prefix, committed: tuple[int, str] | None) -> None:
        offset = prefix.covered.offset
        # never lowered: it may speak of counts beyond
        if committed is None or committed[1] == CLAIMED or committed[0] < offset:
            # Step 9.
            self.log.mirror({partition: (offset, COUNTED)})


_NEVER = "an import never touches counts that are there"


def _taken(prefix: Prefix, found: Metadata, lineage: str) -> str | None:
    """Returns how stored counts obstruct an import; None if they are the import itself."""
    if others := differing(found.lineage, lineage):
        return f"it has counts of another history, {'; '.join(others)}; {_NEVER}"
    if prefix.is_in(found):
        return None
    what = f"counts up to offset {found.offset}" if found.commit_id else "been claimed by a worker"
    return f"it has {what} already; {_NEVER}"


def _misses(prefix: Prefix, start: int, bounds: tuple[int, int]) -> str | None:
    """Returns which records would never be counted, or are not in the log; None if there are none."""
    (first, end), covered = bounds, prefix.covered
    if start > first:
        return f"the counts begin at offset {start}, and the log has records before that, from {first} on"
    if covered.offset > end:
        return (
            f"the counts reach offset {covered.offset}, and the log ends at {end}: it is another log, or what is there"
            " is not decided yet"
        )
    if covered.offset < first:
        return (
            f"the counts end at offset {covered.offset}, and the log begins at {first}: what is between is in neither;"
            " count the archive up to an offset that the log still has"
        )
    return None


def _lost(
    prefix: Prefix, start: int, committed: tuple[int, str] | None, head: Head, group: str
) -> str | None:
    """Returns why counts were lost that a history does not restore; None if it restores all."""
    partition, offset = prefix.covered.partition, prefix.covered.offset
    if committed is not None and committed[1] != CLAIMED and committed[0] > offset:
        return (
            f"Redis has no counts, but group {group!r} has offset {committed[0]} committed in Kafka"
            f" ({committed[1] or 'by another program'!r}): they were lost, or another Redis has"
            " them, and reached beyond these"
        )
    if partition in head.uncounted and start > 0:
        return (
            f"snapshot {head.sequence} was published without its records, and those before offset {start} would be"
            " missing without a word"
        )
    published = head.rules_of(partition)
    # as a store that was set back to just this import
    again = published[:1] == [prefix.rule(start)] and all(rule.offset >= offset for rule in published[1:])
    if not again and (published or head.offsets.get(partition, 0)):
        return (
            f"Redis has no counts, but snapshot {head.sequence} was published with those up to offset"
            f" {head.offsets.get(partition, 0)}: they were lost, or another Redis has them."
            f" Remedy: restore Redis, or {NEW_NAME}"
        )
    return None
