"""Exactly once: how a worker claims partitions, counts them and commits the counts.

Written once, against two narrow interfaces, the log and the store. Kafka and Redis implement them in
`worker.kafka.log` and `worker.store.redis`; an in-memory pair under a seeded scheduler runs the same code through
crashes, lost replies and zombies.

Why it is exactly once: a partition's state is a pure function of the log's prefix, its offset is stored in the same
atomic step as its counts, and a commit is let in only if the stored (offset, flush) is the one that its writer started
from. The epoch, raised by every claim, is for liveness: it tells an old owner early that it is one.
"""

import random
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from uuid import uuid4

import ldp
from worker.counting import layout, rules
from worker.counting.columns import Batch
from worker.counting.head import Head, foreign
from worker.counting.partition import PartitionState
from worker.counting.ports import (
    CLAIMED,
    COUNTED,
    Answer,
    DeadLetters,
    Log,
    Metadata,
    NotOwner,
    StateLost,
    Store,
    Unavailable,
    Witness,
)
from worker.counting.rejections import Rejections
from worker.counting.rules import Configured, Older, Rule
from worker.observe.metrics import Metrics

_FIRST_WAIT, _LONGEST_WAIT = 0.1, 5.0


@dataclass
class _Flush:
    """One commit under way; tried again, the same, until its outcome is known."""

    after: Metadata
    blobs: Mapping[str, bytes]


@dataclass
class _HeldPartition:
    """A partition that this worker counts: what is stored, and the state beyond it."""

    metadata: Metadata
    state: PartitionState
    flush: _Flush | None = None

    @property
    def ahead(self) -> bool:
        """Whether the state is beyond what is stored: by records, or by a rule, if records were judged before it."""
        ruled = self.metadata.flush != "" and self.metadata.totals != layout.totals(self.state)
        return self.state.offset != self.metadata.offset or ruled


@dataclass
class _Wait:
    until: float = 0.0
    length: float = field(default=_FIRST_WAIT / 2)


class Ownership:
    """The partitions of one stream that this worker counts.

    Args:
        group: the consumer group, part of the lineage.
        stream: what is counted.
        configured: the rule that the configuration asks for.
        log: the stream's topic and group.
        store: where the counts are kept.
        dead_letters: where malformed records go.
        witness: where the head of what was published is read.
        recount_after: the operator's word that counts of snapshots up to this number may be given up: where they are
            lost, counting begins again with what the log still has, and the rest is a gap. None: the stream stops.
        metrics: where what happened is counted.
        clock: seconds, for back-off and for how often something is said.
        report: called with an event's name and its facts.
    """

    def __init__(
        self,
        group: str,
        stream: ldp.Stream,
        configured: Configured,
        log: Log,
        store: Store,
        dead_letters: DeadLetters,
        witness: Witness,
        recount_after: int | None,
        metrics: Metrics,
        clock: Callable[[], float],
        report: Callable[..., object],
    ) -> None:
        self._group, self._stream, self._configured = group, stream, configured
        self._log, self._store, self._dead_letters = log, store, dead_letters
        self._witness, self._recount_after = witness, recount_after
        self._metrics, self._clock, self._report = metrics, clock, report
        self._rejections = Rejections(clock, report)
        self._held: dict[int, _HeldPartition] = {}
        self._waits: dict[int, _Wait] = {}

    def epoch(self, partition: int) -> int | None:
        """Returns the epoch under which this worker holds a partition, as far as it knows; safe from any thread."""
        held = self._held.get(partition)
        return None if held is None else held.metadata.epoch

    def counted(self) -> dict[int, int]:
        """Returns the offset up to which each held partition is counted in memory."""
        return {partition: held.state.offset for partition, held in self._held.items()}

    def stored(self) -> dict[int, int]:
        """Returns the offset up to which each held partition's counts stand in the store."""
        return {partition: held.metadata.offset for partition, held in self._held.items()}

    def watermarks(self) -> dict[int, int]:
        """Returns the highest accepted timestamp of each held partition that has one, in milliseconds."""
        marks = {partition: held.state.watermark for partition, held in self._held.items()}
        return {partition: mark for partition, mark in marks.items() if mark is not None}

    def claim(self) -> None:
        """Claims the assigned partitions that are not held; one that cannot be claimed now is tried again later.

        Steps, in the only safe order: read Kafka's offsets, then the store's metadata, then the head of what was
        published; decide where each partition goes on; have Kafka confirm the ownership by committing just that; raise
        the epoch and load in one step; start there.

        Raises:
            StateLost: counts are missing, of another lineage, ahead of the log, or behind it though more of them was
                published; or the published head is of another lineage.
        """
        generation = self._log.generation()
        if generation is None:
            return
        now = self._clock()
        assigned = self._log.assigned()
        wanted = sorted(p for p in assigned if p not in self._held and now >= self._wait(p).until)
        if not wanted:
            return
        try:
            lineage = layout.lineage(self._group, self._stream, self._log.topic_id())
            # Kafka's offsets first: they follow the store, so counts that they speak of must be found after them
            committed = self._log.committed(wanted)
            found = {p: self._peek(p) for p in wanted}
            head = self._witness.head(decided=False)
            if any(self._doubtful(p, lineage, found[p], head) for p in wanted):
                head = self._witness.head(decided=True)
            firsts = {p: first for p, (first, _) in self._log.bounds(wanted).items()}
            starts = {
                p: self._decide(p, lineage, found[p], committed.get(p), firsts[p], head) for p in wanted
            }
            self._log.confirm(starts)
            if self._log.generation() != generation or not self._log.assigned() >= set(wanted):
                return
            for p in wanted:
                self._adopt(p, lineage, found[p], starts[p], head)
        except NotOwner:
            self._postpone(wanted)
        except Unavailable as error:
            self._metrics.errors.labels(self._stream.name, "claim").inc()
            self._report("claim.retry", partitions=wanted, error=str(error))
            self._postpone(wanted)

    def _peek(self, partition: int) -> Metadata | None:
        try:
            return self._store.peek(partition)
        except StateLost as error:
            raise self._lost(partition, str(error)) from None

    def _doubtful(self, partition: int, lineage: str, metadata: Metadata | None, head: Head) -> bool:
        """Returns whether what was published could contradict what is stored, so that a decided head is needed."""
        if metadata is None or head.foreign(lineage):
            return True
        return head.offsets.get(partition, 0) > metadata.offset

    def _decide(
        self,
        partition: int,
        lineage: str,
        metadata: Metadata | None,
        committed: tuple[int, str] | None,
        first: int,
        head: Head,
    ) -> tuple[int, str]:
        """Returns the offset at which counting goes on, and the word that Kafka is to remember with it."""
        counted = committed is not None and committed[1] != CLAIMED
        if metadata is not None and metadata.lineage != lineage:
            raise self._lost(partition, f"the stored counts are of {metadata.lineage}; this is {lineage}")
        if differing := head.foreign(lineage):
            raise StateLost(foreign(self._stream.name, head, differing))
        if metadata is not None:
            if committed is not None and counted:
                # never lowered: it tells a store that was set back from records that nobody counted
                return max(metadata.offset, committed[0]), COUNTED
            return metadata.offset, COUNTED if metadata.flush else CLAIMED
        why = None
        if committed is not None and counted:
            why = (
                f"Redis has no counts, but group {self._group!r} has offset {committed[0]} committed in Kafka"
                f" ({committed[1] or 'by another program'!r})"
            )
        elif (published := head.offsets.get(partition, 0)) > (0 if committed is None else committed[0]):
            why = f"Redis has no counts, but snapshot {head.sequence} was published with those up to offset {published}"
        if why is not None:
            self._give_up(partition, why, head)
            # from where counting began, as far as the head says: what the log has no longer becomes a gap
            return next((rule.offset for rule in head.judged(partition)), 0), CLAIMED
        if committed is None and partition in head.uncounted:
            return 0, CLAIMED  # snapshots said that it had records: those deleted since are a gap
        return (first if committed is None else committed[0]), CLAIMED

    def _give_up(self, partition: int, why: str, head: Head) -> None:
        """Goes on without counts that were lost, if the operator said so of the newest snapshot; else stops."""
        if self._recount_after is None or head.sequence > self._recount_after:
            raise self._lost(
                partition,
                why,
                f" To go on without them, set recount_after = {head.sequence} for the stream: what the topic still"
                " holds is counted again, and the rest is recorded as a gap.",
            )
        self._report("partition.given_up", partition=partition, why=why)

    def _adopt(
        self, partition: int, lineage: str, found: Metadata | None, confirmed: tuple[int, str], head: Head
    ) -> None:
        """Raises the epoch, loads the state and starts the partition where the loaded state ends."""
        fresh = PartitionState.fresh(self._stream, confirmed[0], self._configured)
        # what is stored must not contradict what was published, by an earlier version too
        unsaid = head.offsets.get(partition, 0) > confirmed[0]
        fresh.rules = head.judged(partition) or ([rules.before(confirmed[0])] if unsaid else fresh.rules)
        initial = layout.initial(lineage, fresh)
        loaded = self._store.claim(partition, None if found is None else found.epoch, initial)
        if loaded is None:
            self._postpone([partition])
            return
        try:
            state = layout.load(self._stream, loaded.metadata, loaded.blobs)
        except StateLost as error:
            raise self._lost(partition, str(error)) from None
        # asked only now: until the epoch was raised another owner may have counted on
        first, end = self._log.bounds([partition])[partition]
        known = confirmed[0] if confirmed[1] == COUNTED else 0
        if (reached := max(state.offset, known, head.offsets.get(partition, 0))) > end:
            raise self._lost(
                partition,
                f"the counts reach offset {reached}, but the log ends at {end}: it was truncated or made anew",
            )
        how = "fresh" if found is None else "resume"
        if state.offset < first:
            # what was counted once is not lost to retention: its counts are lost
            head = self._witness.head(decided=True)
            again = (state.offset, first) in head.gaps.get(partition, [])  # as was published: nobody had it
            if (counted := max(known, head.offsets.get(partition, 0))) > state.offset and not again:
                why = (
                    f"the counts reach offset {state.offset}, those up to {counted} were there once (says snapshot"
                    f" {head.sequence} or the group's offset), and the log begins at {first}: Redis was set back too"
                    " far to count them again"
                )
                self._give_up(partition, why, head)
            how = "gap"
            self._report("partition.gap", partition=partition, lost_from=state.offset, lost_to=first)
            state.skip(first)
        self._follow(partition, state, head, loaded.metadata, known)
        self._held[partition] = _HeldPartition(loaded.metadata, state)
        self._waits.pop(partition, None)
        self._log.start(partition, state.offset)
        self._metrics.claims.labels(self._stream.name, how).inc()
        self._report(
            "partition.claimed",
            partition=partition,
            start=how,
            offset=state.offset,
            epoch=loaded.metadata.epoch,
        )

    def _follow(
        self, partition: int, state: PartitionState, head: Head, stored: Metadata, known: int
    ) -> None:
        """Adds the configuration's rule to a loaded state, if it is new; where it is older, what is recorded holds.

        What was published was judged by the head's rules: where the state lacks some, because the store was set back,
        they are taken over at just those offsets; and nothing that was published is judged by a new rule.
        """
        new = isinstance(rules.decide(state.rules, self._configured, state.offset), Rule)
        behind = state.offset < head.offsets.get(partition, 0)
        if new or behind or not rules.continues(state.rules, head.judged(partition)):
            head = self._witness.head(decided=True)  # now that no other owner commits
        published = head.judged(partition)
        # a rule that begins below what was counted without it cannot be taken over
        late = any(rule.offset < stored.offset for rule in published[len(state.rules) :])
        if published and (not stored.flush or (rules.continues(published, state.rules) and not late)):
            state.rules = published
        elif not rules.continues(state.rules, published):
            theirs, ours = ([rule.as_json() for rule in listed] for listed in (published, state.rules))
            raise self._lost(
                partition,
                f"snapshot {head.sequence} was published with counts by {theirs}, Redis has some by {ours}",
            )
        since = max(
            state.offset, head.offsets.get(partition, 0), known
        )  # a cut up to there may be on its way
        match rules.decide(state.rules, self._configured, since):
            case Rule() as rule:
                state.rules.append(rule)
                self._report("rules.added", partition=partition, **rule.as_json())
            case Older(why, todo):
                self._report("rules.older", partition=partition, why=why, todo=todo)

    def apply(self, batch: Batch, beat: Callable[[], object] = lambda: None) -> None:
        """Counts a polled batch, and sends its malformed records to the dead letters; only of what is held.

        ``beat`` is called again and again while that takes long.
        """
        held = self._held.get(batch.partition)
        if held is None:
            return
        if batch.start != held.state.offset:
            # a batch before this one did not reach us: the store knows where to go on
            self._report(
                "partition.moved", partition=batch.partition, counted=held.state.offset, polled=batch.start
            )
            self.drop([batch.partition])
            return
        name = self._stream.name
        before = sum(window.reports for window in held.state.windows.values())
        reasons = held.state.apply(self._stream, batch, beat)
        try:
            for index, reason in reasons.items():
                self._dead_letters.add(batch, index, reason)
                self._metrics.rejected.labels(name, reason).inc()
        except Unavailable:
            self.drop([batch.partition])  # its offset is past letters that were never sent
            raise
        self._rejections.add(batch, reasons)
        self._metrics.records.labels(name, "rejected").inc(len(reasons))
        self._metrics.records.labels(name, "accepted").inc(len(batch.columns) - len(reasons))
        after = sum(window.reports for window in held.state.windows.values())
        self._metrics.reports.labels(name).inc(after - before)

    def commit(self, partitions: Iterable[int] | None = None) -> None:
        """Commits what is counted and not stored yet; a commit whose outcome is unknown is tried again next time.

        Steps, in the only safe order: the dead letters are safe; the changed blobs are staged under keys of this
        attempt; one script compares and promotes them; Kafka gets the offsets as a mirror.

        Raises:
            StateLost: the store no longer holds this partition, or of another lineage, or the topic was created again.
        """
        chosen = {
            p: self._held[p] for p in (self._held if partitions is None else partitions) if p in self._held
        }
        for held in chosen.values():
            if held.flush is None and held.ahead:
                held.flush = _Flush(*layout.dump(held.state, held.metadata, uuid4().hex))
                held.state.changed.clear()
        due = {p: held for p, held in chosen.items() if held.flush is not None}
        if not due:
            return
        lineage = layout.lineage(self._group, self._stream, self._log.topic_id())
        mirror = {}
        try:
            self._dead_letters.flush()
            for partition, held in due.items():
                if held.metadata.lineage != lineage:
                    raise self._lost(
                        partition, f"the counts are of {held.metadata.lineage}; this is {lineage}"
                    )
                if self._promote(partition, held):
                    mirror[partition] = (held.metadata.offset, COUNTED)
        except Unavailable as error:
            self._metrics.errors.labels(self._stream.name, "commit").inc()
            self._report("commit.retry", error=str(error))
        if mirror:
            self._log.mirror(mirror)

    def _promote(self, partition: int, held: _HeldPartition) -> bool:
        """Runs one attempt of a partition's commit; returns whether it is done."""
        flush = held.flush
        assert flush is not None
        attempt = uuid4().hex
        with self._metrics.commit_seconds.labels(self._stream.name).time():
            if flush.blobs:
                self._store.stage(partition, attempt, flush.blobs)
            answer = self._store.promote(partition, attempt, held.metadata, flush.after)
        self._metrics.commits.labels(self._stream.name, answer.value).inc()
        if answer is Answer.DONE:
            held.metadata, held.flush = flush.after, None
            return True
        self._refused(partition, answer)
        return False

    def compare(self) -> None:
        """Asks the store whether what is held and committed still stands there, so that an idle owner notices, too.

        Raises:
            StateLost: the store no longer holds a partition, or of another lineage.
        """
        self._rejections.say()
        for partition, held in list(self._held.items()):
            if held.flush is None and not held.ahead:
                try:
                    answer = self._store.compare(partition, held.metadata)
                except Unavailable as error:
                    self._metrics.errors.labels(self._stream.name, "compare").inc()
                    self._report("compare.retry", error=str(error))
                    return
                if answer is not Answer.DONE:
                    self._refused(partition, answer)

    def _refused(self, partition: int, answer: Answer) -> None:
        """Acts on an answer other than DONE: the memory is dropped, and claimed again while Kafka still assigns it."""
        self._report("commit.refused", partition=partition, verdict=answer.value)
        if answer is Answer.LINEAGE:
            raise self._lost(
                partition, "the counts in Redis vanished or were replaced while this worker counted"
            )
        if (
            answer is not Answer.UNSTAGED
        ):  # the staged blobs' time ran out: only the attempt is to be made anew
            self.drop([partition])

    def release(self, partitions: Collection[int]) -> None:
        """Lets go of partitions that Kafka took away, told or untold.

        What is counted is committed if the store still lets it in.
        """
        gone = {*partitions, *(self._held.keys() - self._log.assigned())}
        if gone:
            self.commit(gone)
        for partition in gone:
            if self._held.pop(partition, None) is not None:
                self._metrics.forget_partition(self._stream.name, partition)
                self._report("partition.released", partition=partition)
            self._waits.pop(partition, None)

    def rewind(self) -> None:
        """Has the log go on where counting stopped: what a failed step had polled may not have been counted."""
        for partition, held in self._held.items():
            self._log.start(partition, held.state.offset)

    def drop(self, partitions: Collection[int]) -> None:
        """Forgets what was counted beyond the store; the partitions are claimed again after a wait."""
        for partition in partitions:
            if self._held.pop(partition, None) is not None:
                self._log.stop(partition)
                self._metrics.forget_partition(self._stream.name, partition)
        self._postpone(partitions)

    def _wait(self, partition: int) -> _Wait:
        return self._waits.setdefault(partition, _Wait())

    def _postpone(self, partitions: Iterable[int]) -> None:
        for partition in partitions:
            wait = self._wait(partition)
            wait.length = min(2 * wait.length, _LONGEST_WAIT)
            wait.until = self._clock() + wait.length * (0.5 + random.random() / 2)  # noqa: S311  # spreads retries

    def _lost(self, partition: int, why: str, more: str = "") -> StateLost:
        return StateLost(
            f"stream {self._stream.name!r}, partition {partition}: {why}. Going on would lose or mix counts."
            " Undo a change of the configuration, restore Redis, or give the stream another name in the configuration:"
            f" it is then counted anew from what the topic holds.{more}"
        )
