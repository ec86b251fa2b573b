"""Import of another program's counts as the state of a partition.

The counts cover a prefix of the partition's log, under one rule and without windows. Spark or Beam can compute such
counts from an archive. The worker that claims the partition adds the configured rule at the import's end. Windows begin
after all imported records. An import never changes existing counts.
"""

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from uuid import uuid4

import ldp
from ldp.offset_range import OffsetRange
from ldp.state import State
from worker.counting import invariants, layout, rejections
from worker.counting.cells import Cell, CellKey
from worker.counting.changed import NEW_NAME
from worker.counting.claim import foreign, peek
from worker.counting.documents import Document, unnamed
from worker.counting.head import Head
from worker.counting.lineage import differing, lineage_of
from worker.counting.partition_state import PartitionState
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
from worker.counting.rules import RecordLimits, Rule, Status
from worker.counting.window_state import WindowState


class Refused(Exception):  # noqa: N818  # an outcome, not an error
    """The import does not fit, or the partition has or had counts."""


@dataclass(frozen=True)
class Prefix:
    """Counts to import, and the range of the log that they cover."""

    history: State
    covered: OffsetRange

    @property
    def commit_id(self) -> str:
        """Digest of the counts; identifies an import that is run again."""
        return hashlib.sha256(self.history.to_bytes()).hexdigest()[:32]

    def rule(self, start: int) -> Rule:
        """Returns the rule of the imported records; revision 0 is the lowest."""
        limits = RecordLimits(self.covered.most_reports, hamming_weight=True)
        return Rule(start, 0, limits, {self.history.stream.fingerprint.hex(): Status()})

    def state(self, start: int) -> PartitionState:
        """Returns the state that counting from `start` on would produce."""
        history, covered = self.history, self.covered
        key = CellKey(None, history.stream.fingerprint.hex())
        return PartitionState(
            start=start,
            offset=covered.offset,
            documents={key.fingerprint: Document.of(history.stream)},
            rules=[self.rule(start)],
            accepted=history.records,
            rejected=dict(history.rejected),
            windows=WindowState(watermark=covered.max_timestamp),
            cells={key: {"": Cell(history.reports, history.counters)}},
            changed={key},
        )

    def is_in(self, found: Metadata) -> bool:
        """Returns whether stored counts contain this import.

        Counts depend only on the log and the rules. Stored counts therefore contain the import if the import's rule
        applied up to the import's end.
        """
        if (found.offset, found.commit_id) == (self.covered.offset, self.commit_id):
            return True
        first, *others = layout.recorded(found)
        ours = first.offset <= self.covered.start and first == self.rule(first.offset)
        return ours and any(rule.offset >= self.covered.offset for rule in others[:1])


def prefix_of(fleet: ldp.Fleet, topic: str, history: State) -> Prefix:
    """Returns counts as a valid import; raises `Refused` if they do not fit.

    Example:
        >>> stream = ldp.Stream("colours", ldp.GRR("1", domain_size=3))
        >>> log = (OffsetRange("reports", 0, 5, 9, max_timestamp=70),)
        >>> counted = State(stream, 3, [0, 1, 2], records=2, rejected={"json": 1}, log=log)
        >>> state = prefix_of(ldp.Fleet((stream,)), "reports", counted).state(start=5)
        >>> state.offset, state.accepted, state.windows.watermark
        (9, 2, 70)
    """
    if not any(history.stream.document() == each.document() for each in fleet.documents):
        ours, theirs = (each.fingerprint.hex() for each in fleet.documents), history.stream.fingerprint.hex()
        raise Refused(f"the fingerprint is {theirs}; this stream has {', '.join(ours)}")
    if history.windows:
        raise Refused("the counts have windows; an import has only all-time counts")
    if len(history.log) != 1:
        ranges = "; ".join(map(str, history.log)) or "no offset range"
        raise Refused(f"the counts cover {ranges}; an import covers one offset range of one partition")
    (covered,) = history.log
    if covered.topic != topic:
        raise Refused(f"the counts cover {covered}; the stream's topic is {topic}")
    if (covered.max_timestamp is None) != (not history.records):
        raise Refused(
            f"the counts have {'no' if history.records else 'a'} highest timestamp, but {history.records:,} accepted"
            " records; a highest timestamp requires accepted records, and vice versa"
        )
    if unknown := sorted(history.rejected.keys() - rejections.REASONS.keys()):
        raise Refused(
            f"records are rejected for {', '.join(unknown)}; allowed are {', '.join(rejections.REASONS)}"
        )
    prefix = Prefix(history, covered)
    if (why := next(invariants.impossible(prefix.state(covered.start)), None)) is not None:
        raise Refused(f"records of {covered} cannot have these counts: {why}")
    return prefix


@dataclass(frozen=True)
class Import:
    """Import of counts into one stream.

    Attributes:
        group: the stream's consumer group.
        log: reads the topic and the group's offsets without joining the group.
        store: the store of the counts.
        head_reader: the reader of the newest head.
    """

    group: str
    fleet: ldp.Fleet
    topic: str
    log: NonMemberLog
    store: Store
    head_reader: HeadReader

    def run(self, histories: Mapping[str, State], on_done: Callable[[Prefix, bool], object]) -> None:
        """Checks all imports, then stores each as the state of its partition.

        The order of the steps is essential. After a failure, a partition has all of its import or none of it, and you
        can run the same import again.

        1. Compare each import with the stream: document, topic, and at most one import per partition.
        2. Read the topic's id and its partitions.
        3. Read the group's offsets in Kafka. Workers write the store first: step 6 must find counts up to the offsets.
        4. Read the newest committed head. Step 6 must also find the counts that the head includes.
        5. Read the log's bounds twice: the log must have no record before an import, and must reach the import's
           end. Both answers must have the same start, and the topic's id must be unchanged.
        6. Read the store's metadata. Counts other than those of this import prevent the import.
        7. Stage the counts of a partition under a key that only this attempt uses.
        8. Promote the staged counts and the metadata in one script, unless metadata exist.
        9. Commit the offset to Kafka, so that a later loss of the counts is detected.

        If a worker claims a partition before step 8, that step changes nothing. If it claims the partition later, it
        continues at the import's offset.

        Args:
            histories: the imports by name; error messages contain the name.
            on_done: called with each stored import, and with True if an earlier run had stored it.

        Raises:
            Refused: an import does not fit. Nothing is stored, unless a worker claimed a partition during the import.
            StateLost: stored counts are unreadable.
            Unavailable: Kafka or Redis does not respond. Imports that are already stored remain.
        """
        # Step 1.
        prefixes = self._prefixes(histories)
        # Step 2.
        lineage = lineage_of(self.group, topic := self.log.topic_id())
        if missing := sorted(prefixes.keys() - self.log.partitions()):
            raise Refused(f"topic {self.topic} has no partition {', '.join(map(str, missing))}")
        # Step 3.
        committed = self.log.committed(prefixes)
        # Step 4.
        head = self.head_reader.head(decided=True)
        # Step 5.
        bounds = self.log.bounds(prefixes)
        starts = {p: self._start(prefix, bounds[p]) for p, prefix in prefixes.items()}
        # the decision needs two equal answers, because a broker can return outdated bounds
        again = self.log.bounds(prefixes)
        if self.log.topic_id() != topic or any(again[p][0] != bounds[p][0] for p in prefixes):
            raise Unavailable("Kafka: two answers on the topic's id or the starts of its logs differ")
        # Step 6.
        found = {p: peek(self.fleet, self.store, p) for p in prefixes}
        self._expect_free(prefixes, lineage, starts, bounds, committed, head, found)
        for p, prefix in prefixes.items():
            if (there := found[p]) is None:
                self._install(p, prefix, starts[p], lineage)
            if there is None or there.commit_id == prefix.commit_id:
                self._mirror(p, prefix, committed.get(p))
            on_done(prefix, there is not None)

    def _prefixes(self, histories: Mapping[str, State]) -> dict[int, Prefix]:
        prefixes, names = dict[int, Prefix](), dict[int, str]()
        for name, history in histories.items():
            try:
                prefix = prefix_of(self.fleet, self.topic, history)
            except Refused as error:
                raise Refused(f"{name}: {error}") from None
            partition = prefix.covered.partition
            if partition in prefixes:
                raise Refused(f"{names[partition]} and {name} both cover partition {partition}; merge them")
            prefixes[partition], names[partition] = prefix, name
        return dict(sorted(prefixes.items()))

    def _start(self, prefix: Prefix, bounds: tuple[int, int]) -> int:
        """Returns the import's start; the log's start if no records are between."""
        first, start = bounds[0], prefix.covered.start
        # checked twice, because a wrong answer would omit records
        if start <= first or any(
            self.log.has_records(prefix.covered.partition, first, start) for _ in range(2)
        ):
            return start
        return first

    def _expect_free(
        self,
        prefixes: Mapping[int, Prefix],
        lineage: str,
        starts: Mapping[int, int],
        bounds: Mapping[int, tuple[int, int]],
        committed: Mapping[int, tuple[int, str]],
        head: Head,
        found: Mapping[int, Metadata | None],
    ) -> None:
        """Raises `Refused` if an import conflicts with its partition."""
        if others := head.foreign(self.fleet, lineage):
            raise Refused(str(foreign(self.fleet, head, others)))
        faults = []
        for p, prefix in prefixes.items():
            there = found[p]
            if there is not None:
                why = _taken(self.fleet, prefix, there, lineage)
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
                f"Redis: the staged counts of partition {partition} have expired; import them again"
            )
        if answer is not Answer.DONE:
            raise Refused(f"partition {partition}: a worker claimed it during the import; {_NEVER}")

    def _mirror(self, partition: int, prefix: Prefix, committed: tuple[int, str] | None) -> None:
        offset = prefix.covered.offset
        # never lower the offset: a higher one may refer to more counts
        if committed is None or committed[1] == CLAIMED or committed[0] < offset:
            # Step 9.
            self.log.mirror({partition: (offset, COUNTED)})


_NEVER = "an import never changes existing counts"


def _taken(fleet: ldp.Fleet, prefix: Prefix, found: Metadata, lineage: str) -> str | None:
    """Returns why stored counts prevent an import, or None."""
    if others := [*differing(found.lineage, lineage), *unnamed(layout.documents(found), fleet)]:
        return f"it has other counts ({'; '.join(others)}); {_NEVER}"
    if prefix.is_in(found):
        return None
    what = f"counts up to offset {found.offset}" if found.commit_id else "a claim by a worker"
    return f"it already has {what}; {_NEVER}"


def _misses(prefix: Prefix, start: int, bounds: tuple[int, int]) -> str | None:
    """Returns why missing records prevent an import, or None."""
    (first, end), covered = bounds, prefix.covered
    if start > first:
        return f"the counts begin at offset {start}, but the log has earlier records from offset {first} on"
    if covered.offset > end:
        return (
            f"the counts reach offset {covered.offset}, but the log ends at {end}: it is another log, or its last"
            " transactions are open"
        )
    if covered.offset < first:
        return (
            f"the counts end at offset {covered.offset}, but the log begins at {first}: both lack the records between;"
            " count the archive up to an offset that the log still has"
        )
    return None


def _lost(
    prefix: Prefix, start: int, committed: tuple[int, str] | None, head: Head, group: str
) -> str | None:
    """Returns why lost counts prevent an import, or None."""
    partition, offset = prefix.covered.partition, prefix.covered.offset
    if committed is not None and committed[1] != CLAIMED and committed[0] > offset:
        return (
            f"Redis has no counts, but group {group!r} has offset {committed[0]} committed in Kafka"
            f" ({committed[1] or 'by another program'!r}): they were lost, or another Redis has"
            " them, and the import lacks some of them"
        )
    if partition in head.uncounted and start > 0:
        return (
            f"snapshot {head.sequence} was published without this partition; a later one would silently lack the"
            f" records before offset {start}"
        )
    published = head.rules_of(partition)
    # True if the store was reset to a backup that has only this import
    again = published[:1] == [prefix.rule(start)] and all(rule.offset >= offset for rule in published[1:])
    if not again and (published or head.offsets.get(partition, 0)):
        return (
            f"Redis has no counts, but snapshot {head.sequence} was published with counts up to offset"
            f" {head.offsets.get(partition, 0)}: they were lost, or another Redis has them."
            f" Remedy: restore Redis, or {NEW_NAME}"
        )
    return None
