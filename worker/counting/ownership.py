"""Exactly once: how a worker claims partitions, counts them and commits the counts.

Written once, against narrow interfaces, the ports. Kafka and Redis implement them in `worker.kafka` and
`worker.store.redis`; an in-memory world under a seeded scheduler runs the same code through crashes, lost replies and
zombies, and through a fault at each of the steps that are numbered here.

Why it is exactly once: a partition's state is a pure function of the log's prefix, its offset is stored in the same
atomic step as its counts, and a commit is let in only if the stored (offset, flush) is the one that its writer started
from. The epoch, raised by every claim, is for liveness: it tells an old owner early that it is one.

What a claim and a commit do to what is held can be followed on one page; that is why it is longer than others.
"""

import contextlib
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from uuid import uuid4

import ldp
from worker.counting import layout
from worker.counting.claim import Claim, lost
from worker.counting.columns import Batch
from worker.counting.head import Head, foreign
from worker.counting.held import Flush, Held, Wait
from worker.counting.lateness import Late
from worker.counting.lineage import differing, lineage_of
from worker.counting.partition import PartitionState
from worker.counting.ports import (
    COUNTED,
    Answer,
    DeadLetters,
    Events,
    Log,
    Metadata,
    NotOwner,
    StateLost,
    Store,
    Unavailable,
    Witness,
)
from worker.counting.rules import Configured
from worker.counting.telling import LeftOut, Standing, Telling
from worker.counting.watching import Watching

_SHARE, _LONGEST_READ = 0.1, 2.0
"""What part of the time reading heads may take; and how long one takes at most: what took longer hung."""
_NO_LEADER = "Kafka: no leader", "start the broker that leads the partition"
"""Cause and remedy where a partition's log cannot be asked."""


class Ownership:
    """The partitions of one stream that this worker counts.

    Args:
        group: the consumer group, part of the lineage.
        stream: what is counted.
        configured: the rule that the configuration asks for.
        log: the stream's topic and group.
        store: where the counts are kept.
        dead_letters: where malformed records go, and late ones if they are to.
        witness: where the head of what was published is read.
        recount_after: the operator's word that counts of snapshots up to this number may be given up: where they are
            lost, counting begins again with what the log still has, and the rest is a gap. None: the stream stops.
        clock: seconds, for back-off and for how often something is said.
        events: told what happens.
        late_letters: whether late records leave a letter; each worker may choose, as it changes no count.
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
        clock: Callable[[], float],
        events: Events,
        late_letters: bool = False,
    ) -> None:
        self._group, self._stream, self._configured = group, stream, configured
        self._log, self._store, self._dead_letters = log, store, dead_letters
        self._witness, self._recount_after = witness, recount_after
        self._clock, self._events, self._late_letters = clock, events, late_letters
        self._telling, self._watching = Telling(events, clock), Watching(stream.oracle, clock, events)
        self._held: dict[int, Held] = {}
        self._waits: dict[int, Wait] = {}
        self._failed: dict[int, float] = {}
        """Partition -> when an attempt on it failed last, where one did: the others come first."""
        self._heed_at = 0.0

    def epoch(self, partition: int) -> int | None:
        """Returns the epoch under which this worker holds a partition, as far as it knows; safe from any thread."""
        return None if (held := self._held.get(partition)) is None else held.metadata.epoch

    def counted(self) -> dict[int, int]:
        """Returns the offset up to which each held partition is counted in memory."""
        return {partition: held.state.offset for partition, held in self._held.items()}

    def stored(self) -> dict[int, int]:
        """Returns the offset up to which each held partition's counts stand in the store."""
        return {partition: held.metadata.offset for partition, held in self._held.items()}

    def states(self) -> dict[int, PartitionState]:
        """Returns the held partitions as they are counted in memory, to be looked at by who counts them."""
        return {partition: held.state for partition, held in self._held.items()}

    def reading(self) -> set[int]:
        """Returns the held partitions that do not wait: what was polled of others is polled again."""
        return {partition for partition, held in self._held.items() if not held.waiting}

    def claim(self) -> None:
        """Claims the assigned partitions that are not held; one that cannot be claimed now is tried again later.

        The steps, in the only safe order. Whatever becomes of one, what is stored is whole, and the next claim begins
        again at the first:

        1. The membership is noted: its generation, what it assigns, and the topic's id.
        2. Kafka's offsets are read: they follow the store, so counts that they speak of must be found after them.
        3. The store's metadata are read.
        4. The head of what was published is read; where it could contradict them, one that is decided, and then the
           metadata once more: counts that it speaks of must be found after it, too.
        5. The logs' beginnings are read, and where each partition goes on is decided.
        6. Kafka confirms the ownership, by committing just that for a member of the noted generation.
        7. The membership is still the noted one.
        8. A partition at a time, the store raises its epoch, has it go on in this worker's layout if it was of an older
           one, and loads it: no older owner can commit any more.
        9. The log's bounds are read, and what was loaded is judged by them and by the head; what seems lost is so only
            if the store still has what was loaded.
        10. The partition is held, and read from where the loaded state ends; with windows, once a head names it.

        Raises:
            StateLost: counts are missing, ahead of the log or too far behind; they or the head are of another lineage.
        """
        # Step 1.
        generation = self._log.generation()
        wanted = [] if generation is None else self._wanted()
        if not wanted:
            return
        try:
            lineage = lineage_of(self._group, self._stream, self._log.topic_id())
            told = self._configured, self._recount_after, self._witness, self._events
            claim = Claim(self._group, self._stream, *told, lineage)
            # Step 2.
            committed = self._log.committed(wanted)
            # Step 3.
            if not (wanted := list(found := self._peek(claim, wanted))):
                return
            # Step 4.
            head = self._witness.head(decided=False)
            if any(claim.doubtful(p, found[p], head) for p in wanted):
                head = self._witness.head(decided=True)
                wanted = list(found := self._peek(claim, wanted))
            # Step 5.
            if not (wanted := list(firsts := self._firsts(wanted))):
                return
            starts = {p: claim.decide(p, found[p], committed.get(p), firsts[p], head) for p in wanted}
            # Step 6.
            self._log.confirm(starts)
            # Step 7.
            if self._log.generation() != generation or not self._log.assigned() >= set(wanted):
                return
            for p in wanted:
                with self._trying(p):
                    self._adopt(claim, p, found[p], starts[p], head)
            self._heed(wanted)
        except NotOwner:
            self._postpone(wanted)
        except Unavailable as error:
            self._put_off([p for p in wanted if p not in self._held], error)

    def _wanted(self) -> list[int]:
        """Returns the assigned partitions that are not held and whose wait is over, in the order of their turns."""
        now, assigned = self._clock(), self._log.assigned()
        return self._in_turn(
            p for p in sorted(assigned) if p not in self._held and now >= self._wait(p).until
        )

    def _in_turn(self, partitions: Iterable[int]) -> list[int]:
        """Returns partitions with those that failed last behind the others, the one that failed latest at the end.

        The first failure ends a round, as a store that does not answer costs a time-out each time; so a partition whose
        part of the store alone fails would keep those behind it from their turns.
        """
        return sorted(partitions, key=lambda p: self._failed.get(p, 0.0))

    @contextlib.contextmanager
    def _trying(self, partition: int) -> Iterator[None]:
        """Notes that an attempt on a partition failed; from any thread, as nothing but an order follows from it."""
        try:
            yield
        except Unavailable:
            self._failed[partition] = self._clock()
            raise

    def _put_off(self, partitions: Sequence[int], error: Unavailable) -> None:
        """Has partitions that could not be claimed wait."""
        self._events.claim_failed(partitions, error)
        self._postpone(partitions)

    def _firsts(self, wanted: Collection[int]) -> dict[int, int]:
        """Returns where the logs begin; those without a leader wait."""
        bounds = self._log.bounds(wanted)
        if missing := [p for p in wanted if p not in bounds]:
            self._put_off(missing, Unavailable(*_NO_LEADER))
        return {p: bounds[p][0] for p in wanted if p in bounds}

    def _peek(self, claim: Claim, wanted: Sequence[int]) -> dict[int, Metadata | None]:
        """Returns the stored metadata of partitions; from the first on for which the store fails they wait."""
        found = dict[int, Metadata | None]()
        for partition in wanted:
            try:
                with self._trying(partition):
                    found[partition] = self._store.peek(partition)
            except StateLost as error:
                raise claim.unreadable(partition, error) from None
            except Unavailable as error:
                self._put_off(wanted[len(found) :], error)
                break
        return found

    def _adopt(
        self, claim: Claim, partition: int, found: Metadata | None, confirmed: tuple[int, str], head: Head
    ) -> None:
        """Claims one partition whose ownership Kafka has confirmed."""
        # Step 8.
        loaded = self._store.claim(partition, found, claim.initial(partition, confirmed[0], head, found))
        if loaded is None:
            self._postpone([partition])
            return
        state = claim.load(partition, loaded)
        # Step 9. Asked again, as until the epoch was raised another owner may have counted on.
        if (bounds := self._log.bounds([partition]).get(partition)) is None:
            raise Unavailable(*_NO_LEADER)
        known = confirmed[0] if confirmed[1] == COUNTED else 0
        try:
            gap = claim.resume(partition, state, loaded.metadata, known, bounds, head)
        except StateLost:
            # who claimed it meanwhile may have published what this state lacks: then nothing is lost
            if self._store.compare(partition, loaded.metadata) is Answer.DONE:
                raise
            self._postpone([partition])
            return
        # Step 10.
        waiting = state.waits_at == state.offset
        self._held[partition] = Held(loaded.metadata, state, waiting=waiting)
        self._waits.pop(partition, None)
        if not waiting:
            self._log.start(partition, state.offset, state.rules)
        how = "gap" if gap else "fresh" if found is None else "resume"
        self._events.claimed(partition, how, state.offset, loaded.metadata.epoch)

    def apply(self, batch: Batch, on_alive: Callable[[], object] = lambda: None) -> None:
        """Counts a polled batch, and sends the letters that are due; only of what is held.

        ``on_alive`` is called again and again while that takes long.
        """
        if (held := self._held.get(batch.partition)) is None or held.waiting:
            return
        if batch.start != held.state.offset:
            # a batch before this one did not reach us: the store knows where to go on
            self._events.moved(batch.partition, held.state.offset, batch.start)
            self.drop([batch.partition])
            return
        polled, batch = batch.end, batch if (line := held.state.waits_at) is None else batch.until(line)
        before, late = Standing.of(held.state), list[Late]()
        on_late = late.append if self._late_letters else None
        verdicts = held.state.apply(self._stream, batch, on_alive, on_late, self._watching.of(batch))
        if held.state.offset < polled or held.state.waits_at == polled:
            # the rest is read again once there is room, or a head names the partition
            batch, held.waiting = batch.until(held.state.offset), True
            self._log.stop(batch.partition)
            if held.state.full:
                self._events.full(batch.partition, len(held.state.cells) - 1)
        try:
            left_out = LeftOut.sending(self._dead_letters, batch, verdicts, late)
        except Unavailable:
            self.drop([batch.partition])  # its offset is past letters that were never sent
            raise
        self._telling.counted(before, held.state, batch, verdicts, left_out)

    def commit(self, partitions: Iterable[int] | None = None) -> None:
        """Commits what is counted and not stored yet; a commit whose outcome is unknown is tried again next time.

        The steps, in the only safe order. Whatever becomes of one, the store has all of a flush or nothing of it, and
        the next commit begins again at the first with the same flush:

        1. What is counted becomes a flush, which stays the same until its outcome is known.
        2. The topic's id is asked for, now that all of it was polled: a topic made anew is another history.
        3. The dead letters are safe.
        4. A partition at a time, the changed blobs are staged under keys of this attempt.
        5. One script compares what is stored with what the flush started from, and puts it in its place.
        6. Kafka gets the offsets as a mirror.

        `prepare`, `write` and `settle` are these steps for who counts on while they are written.

        Raises:
            StateLost: the store no longer holds this partition, or of another lineage, or the topic was created again.
        """
        self.settle(self.write(self.prepare(partitions)))

    def prepare(self, partitions: Iterable[int] | None = None) -> list[Flush]:
        """Returns what is to be written: steps 1 to 3 of a commit.

        Raises:
            StateLost: the topic was created again.
        """
        named = self._in_turn(self._held if partitions is None else partitions)
        chosen = {p: self._held[p] for p in named if p in self._held}
        # Step 1.
        for partition, held in chosen.items():
            if held.flush is None and held.ahead:
                dumped = layout.dump(held.state, held.metadata, uuid4().hex)
                held.flush = Flush(partition, held.metadata, *dumped)
                held.state.changed.clear()
        due = [held.flush for held in chosen.values() if held.flush is not None]
        if not due:
            return []
        try:
            # Step 2.
            lineage = lineage_of(self._group, self._stream, self._log.topic_id())
            for flush in due:
                if differing(flush.before.lineage, lineage):
                    why = f"the counts are of {flush.before.lineage}; this is {lineage}"
                    raise lost(self._stream, flush.partition, why)
            # Step 3.
            self._dead_letters.flush()
        except Unavailable as error:
            self._events.commit_failed(error)
            return []
        return due

    def write(self, flushes: Iterable[Flush]) -> list[tuple[Flush, Answer]]:
        """Writes flushes, steps 4 and 5 of a commit, and returns what the store said to each of them.

        It touches nothing of what is held, and may run on another thread: that the same flush is written twice, late or
        by two threads changes nothing.
        """
        written = []
        try:
            for flush in flushes:
                written.append((flush, self._promote(flush)))  # noqa: PERF401  # what was written before a failure counts
        except Unavailable as error:
            self._events.commit_failed(error)
        return written

    def _promote(self, flush: Flush) -> Answer:
        """Runs one attempt of a partition's commit."""
        attempt, began, answer = uuid4().hex, time.perf_counter(), None
        try:
            with self._trying(flush.partition):
                # Step 4.
                if flush.blobs:
                    self._store.stage(flush.partition, attempt, flush.blobs)
                # Step 5.
                answer = self._store.promote(flush.partition, attempt, flush.before, flush.after)
        finally:
            self._events.commit_ended(answer, time.perf_counter() - began)
        return answer

    def settle(self, written: Iterable[tuple[Flush, Answer]]) -> None:
        """Takes up what the store said: step 6 of a commit, for those flushes whose outcome nobody knew yet.

        Raises:
            StateLost: the store no longer holds a partition, or of another lineage.
        """
        mirror = {}
        for flush, answer in written:
            held = self._held.get(flush.partition)
            if held is None or held.flush is not flush:
                continue  # let go of meanwhile, or committed by another attempt
            if answer is not Answer.DONE:
                self._refused(flush.partition, answer)
                continue
            held.metadata, held.flush = flush.after, None
            mirror[flush.partition] = (flush.after.offset, COUNTED)
        # Step 6.
        if mirror:
            self._log.mirror(mirror)

    def compare(self) -> None:
        """Asks the store whether what is held and committed still stands there, so that an idle owner notices, too.

        Raises:
            StateLost: the store no longer holds a partition, or of another lineage.
        """
        self._telling.rejections.say()
        self._heed(self._held)
        for partition in self._in_turn(self._held):
            held = self._held[partition]
            if held.flush is None and not held.ahead:
                try:
                    with self._trying(partition):
                        answer = self._store.compare(partition, held.metadata)
                except Unavailable as error:
                    self._events.compare_failed(error)
                    return
                if answer is not Answer.DONE:
                    self._refused(partition, answer)

    def _heed(self, partitions: Collection[int]) -> None:
        """Takes from the decided head what it says of partitions of a stream of windows; asks only where that matters.

        One that it names for the first time begins with the floor that it states. Panes that no window needs any more
        are let go of. Who waited for either goes on.

        Raises:
            StateLost: it is another deployment's, or does not name a partition that an earlier one did.
        """
        named = {p: self._held[p] for p in partitions if p in self._held}
        states = {p: held.state for p, held in named.items() if held.state.windowing or held.waiting}
        began = self._clock()
        heeds = any(self._held[p].waiting or state.closed_panes for p, state in states.items())
        if not heeds or began < self._heed_at:
            return
        try:
            decided = self._witness.head(decided=True)
        except Unavailable as error:
            self._events.compare_failed(error)
            return
        finally:
            # of many heads most say nothing new of these partitions
            self._heed_at = self._clock() + min(self._clock() - began, _LONGEST_READ) / _SHARE
        for partition, state in states.items():
            if others := decided.foreign(self._held[partition].metadata.lineage):
                raise StateLost(foreign(self._stream.name, decided, others))
            if state.floor is None and (floor := decided.floors.get(partition)) is not None:
                state.admit(floor)
                self._events.admitted(partition, floor)
            if state.floor is None:
                continue
            if partition not in decided.floors:
                why = f"snapshot {decided.sequence} does not name it, though an earlier one did: heads were deleted"
                raise lost(self._stream, partition, why)
            state.drop(min(state.closed, decided.needed_from(state.since)))
            held = self._held[partition]
            if held.waiting and not state.full:
                held.waiting = False
                self._log.start(partition, state.offset, state.rules)

    def _refused(self, partition: int, answer: Answer) -> None:
        """Acts on an answer other than DONE: the memory is dropped, and claimed again while Kafka still assigns it."""
        self._events.refused(partition, answer)
        if answer is Answer.LINEAGE:
            try:
                found, held = self._store.peek(partition), self._held[partition].metadata
                ours = found is not None and not differing(found.lineage, held.lineage)
            except StateLost:
                ours = True
            except Unavailable as error:
                self._events.compare_failed(error)
                return
            # set back across an upgrade it may have ours in an older layout: what it has of ours a claim judges
            if not ours:
                why = "the counts in Redis vanished or were replaced while this worker counted"
                raise lost(self._stream, partition, why)
        # where the staged blobs' time ran out, only the attempt is to be made anew
        if answer is not Answer.UNSTAGED:
            self.drop([partition])

    def release(self, partitions: Collection[int]) -> None:
        """Lets go of partitions that Kafka took away, told or untold.

        What is counted is committed if that can be done now; what is not, its next owner counts again. None is kept for
        that: the log has forgotten where it read them. A commit that is under way comes first, then what was counted
        behind it; where it fails nothing else is tried, so a store that does not answer costs one time-out.
        """
        gone = {*partitions, *(self._held.keys() - self._log.assigned())}
        if gone:
            behind = [p for p in gone if p in self._held and self._held[p].flush is not None]
            self.commit(gone)
            self.commit(p for p in behind if p in self._held and self._held[p].flush is None)
        for partition in gone:
            if self._held.pop(partition, None) is not None:
                self._log.stop(partition)  # it does not know of one that was lost without a word
                self._events.released(partition)
            self._waits.pop(partition, None)
            self._failed.pop(partition, None)

    def rewind(self) -> None:
        """Has the log go on where counting stopped: what a failed step had polled may not have been counted."""
        for partition, held in self._held.items():
            if not held.waiting:
                self._log.start(partition, held.state.offset, held.state.rules)

    def drop(self, partitions: Collection[int]) -> None:
        """Forgets what was counted beyond the store; the partitions are claimed again after a wait."""
        for partition in partitions:
            if self._held.pop(partition, None) is not None:
                self._log.stop(partition)
                self._events.dropped(partition)
        self._postpone(partitions)

    def _wait(self, partition: int) -> Wait:
        return self._waits.setdefault(partition, Wait())

    def _postpone(self, partitions: Iterable[int]) -> None:
        for partition in partitions:
            self._wait(partition).again(self._clock())
