"""Ownership: how a worker claims partitions, counts them and commits the counts exactly once.

A partition's state is a pure function of the log's prefix. Its offset is stored in the same atomic step as its counts,
and the store accepts a commit only if the stored (offset, flush) is the one that its writer started from. The epoch,
which every claim raises, is for liveness: it tells an old owner early that another one took over.

One answer of a broker can be wrong, so nothing final follows from one answer: counts are lost if two claims, with a
pause between them, find so; a partition begins where two answers agree; a gap is recorded if `Log.firsts` proves it.

Kafka and Redis implement the ports that this code uses; the simulation implements them in memory and injects a fault
at each numbered step. One page shows what a claim and a commit do; that is why it is longer than others.
"""

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import TypeVar
from uuid import uuid4

import ldp
from worker.counting import layout
from worker.counting.claim import Claim, lost, unreadable
from worker.counting.columns import Batch
from worker.counting.head import Head
from worker.counting.lineage import differing, lineage_of
from worker.counting.owned_partition import Backoff, OwnedPartition, PendingCommit
from worker.counting.partition_state import PartitionState
from worker.counting.ports import (
    COUNTED,
    Answer,
    DeadLetters,
    Events,
    Failure,
    HeadReader,
    Log,
    Metadata,
    NewerState,
    NotOwner,
    StateLost,
    Store,
    StoredPartition,
    Unavailable,
)
from worker.counting.rejections import Rejections
from worker.counting.rules import RequestedRule
from worker.counting.watching import Watching

_MOST, _MOST_BYTES = 100, 32 << 20
"""How many partitions, and how many bytes of their states, one request to the store covers."""
_LOOK_AGAIN_SECONDS = 1.0
"""The pause before a second claim of counts that seem lost, and before a second try to read the head."""
_SHARE, _LONGEST_READ = 0.1, 2.0
"""The share of time that reading heads may take, and the longest read that counts: a longer one hung."""

_T = TypeVar("_T")


class Ownership:
    """The partitions of one stream that this worker counts.

    Args:
        group: the consumer group, part of the lineage.
        stream: the stream to count.
        configured: the configured rule.
        log: the stream's topic and group.
        store: the store of the counts.
        dead_letters: the sink of malformed and late records.
        head_reader: the reader of the newest head.
        recount_after: the operator's permission to give up lost counts of snapshots up to this number: counting begins
            again with what the log has, and the rest is a gap; gaps that the log has again are counted. None: stop.
        clock: seconds.
        events: the observer.
        late_letters: whether late records leave a dead letter.
    """

    def __init__(
        self,
        group: str,
        stream: ldp.Stream,
        configured: RequestedRule,
        log: Log,
        store: Store,
        dead_letters: DeadLetters,
        head_reader: HeadReader,
        recount_after: int | None,
        clock: Callable[[], float],
        events: Events,
        late_letters: bool = False,
    ) -> None:
        self._group, self._stream, self._configured = group, stream, configured
        self._log, self._store, self._dead_letters = log, store, dead_letters
        self._head_reader, self._recount_after = head_reader, recount_after
        self._clock, self._events, self._late_letters = clock, events, late_letters
        self._rejections = Rejections(clock, events)
        self._watching = Watching(stream.oracle, clock, events)
        self._held: dict[int, OwnedPartition] = {}
        self._waits: dict[int, Backoff] = {}
        self._failed: dict[int, float] = {}
        """Partition -> when an attempt on it failed last."""
        self._heed_at = self._look_at = 0.0
        self._cell_bytes = stream.oracle.zeros().nbytes
        self._doubted: dict[int, float] = {}
        """Partition -> when its counts first seemed lost; until it is held."""

    def epoch(self, partition: int) -> int | None:
        """Returns the epoch under which this worker believes to own a partition; safe from any thread."""
        return None if (held := self._held.get(partition)) is None else held.metadata.epoch

    def counted(self) -> dict[int, int]:
        """Returns the offset up to which each held partition is counted in memory."""
        return {partition: held.state.offset for partition, held in self._held.items()}

    def stored(self) -> dict[int, int]:
        """Returns the offset up to which each held partition's counts stand in the store."""
        return {partition: held.metadata.offset for partition, held in self._held.items()}

    def states(self) -> dict[int, PartitionState]:
        """Returns the state of each held partition in memory, for the counting thread."""
        return {partition: held.state for partition, held in self._held.items()}

    def reading(self) -> set[int]:
        """Returns the held partitions that do not wait."""
        return {partition for partition, held in self._held.items() if not held.waiting}

    def claim(self, on_alive: Callable[[], object] = lambda: None) -> None:
        """Claims the first `_MOST` assigned partitions that are not held; the next call claims the next ones.

        A partition that cannot be claimed is tried again later. The steps have this order for safety. After a failure
        what is stored is whole, and the next claim begins again at the first step:

        1. Note the membership: its generation, its assignment, and the topic's id.
        2. Read Kafka's offsets: they follow the store, so the counts that they name must be found after them.
        3. Read the store's metadata. Where it has less than Kafka's offset says, read the topic's id and Kafka's offset
           once more: the next steps record them.
        4. Read the head. If it could contradict the metadata, read the decided one, and then the metadata once more.
           Without a readable head, only partitions go on whose metadata suffice (`Claim.certain`).
        5. Read where the logs begin, and decide where each partition goes on. A new one waits until two answers about
           its log's beginning agree.
        6. Kafka confirms the ownership, by committing those offsets for a member of the noted generation.
        7. The membership is still the noted one.
        8. The store raises each partition's epoch and loads it, in one script a partition. From here on no older owner
           can commit.
        9. Read the log's bounds, and judge the loaded state by them and by the head. State that seems lost is lost only
           if the store still has what was loaded. A partition waits until a gap is proven. One with gaps to take back
           begins again if the log is proven to have all records from its start on.
        10. The partition is held, and read from where the loaded state ends; with windows, once a head names it. One
            that went on without the head is claimed again when there is a head to read (`_heed`).

        Raises:
            StateLost: counts are missing, ahead of the log, too far behind, or of another lineage.
        """
        # Step 1.
        generation = self._log.generation()
        wanted = self._in_turn(filter(self._is_due, sorted(self._log.assigned())))[:_MOST]
        if generation is None or not wanted:
            return
        try:
            topic = self._log.topic_id()
            lineage = lineage_of(self._group, self._stream, topic)
            told = self._configured, self._recount_after, self._head_reader, self._events
            claim = Claim(self._group, self._stream, *told, lineage)
            found, starts, head = self._decide(claim, wanted, topic)
            if not (wanted := list(starts)):
                return
            # Step 6.
            wanted = list(self._came(self._log.confirm(starts)))
            # Step 7.
            if self._log.generation() != generation or not self._log.assigned() >= set(wanted):
                return
            for some in self._slices(wanted, lambda p: self._bytes(found[p])):
                if not self._adopt(claim, {p: found[p] for p in some}, starts, head, on_alive):
                    break
            self._heed(wanted)
        except NotOwner:
            self._postpone(wanted)
        except Unavailable as error:
            self._put_off([p for p in wanted if self._is_due(p)], error)
        except StateLost as error:
            self._demand_doubted([p for p in wanted if self._is_due(p)], error)

    def _decide(
        self, claim: Claim, wanted: Sequence[int], topic: str
    ) -> tuple[dict[int, Metadata | None], dict[int, tuple[int, str]], Head | None]:
        """Runs steps 2 to 5: returns the stored metadata, where each partition goes on, and the head if readable."""
        # Step 2.
        committed = self._came(self._log.committed(wanted))
        # Step 3.
        if not (wanted := list(found := self._came(self._store.peek_all(committed)))):
            return found, {}, Head()
        # Kafka's offset decides where the store has nothing or less, and step 6 records it
        if by_kafka := [
            p for p in wanted if (at := found[p]) is None or (committed[p] or (0, ""))[0] > at.offset
        ]:
            again = self._came(self._log.committed(by_kafka))
            if self._log.topic_id() != topic or any(again[p] != committed[p] for p in again):
                raise Unavailable(
                    "Kafka: two answers about the group's offsets or the topic's id do not agree"
                )
            wanted = [p for p in wanted if found[p] is not None or p in again]
        # Step 4.
        head: Head | None = None
        try:
            head = self._read_head()
        except Unavailable as error:
            certain = [p for p in wanted if p not in self._doubted and claim.certain(found[p], committed[p])]
            if uncertain := [p for p in wanted if p not in certain]:
                self._put_off(uncertain, error)
            wanted = certain
        if head is not None and any(p in self._doubted or claim.doubtful(p, found[p], head) for p in wanted):
            head = self._head_reader.head(decided=True)
            wanted = list(found := self._came(self._store.peek_all(wanted)))
        # Step 5.
        bounds = self._came(self._log.bounds(wanted))
        new = [p for p in bounds if found[p] is None and committed[p] is None]
        bounds = self._proven(bounds, dict.fromkeys(new, 0), agreeing=True)
        return (
            found,
            {p: claim.decide(p, found[p], committed[p], bounds[p][0], head or Head()) for p in bounds},
            head,
        )

    def _read_head(self) -> Head:
        """Returns the newest head that was sent; after a failure, notes when to try again."""
        began = self._clock()
        try:
            return self._head_reader.head(decided=False)
        except Unavailable:
            now = self._clock()
            self._look_at = now + max(_LOOK_AGAIN_SECONDS, (now - began) / _SHARE)
            raise

    def _demand_doubted(self, partitions: Sequence[int], error: StateLost) -> None:
        """Postpones partitions whose counts seem lost; raises the error if this is the second claim to find so."""
        now = self._clock()
        since = [self._doubted.setdefault(p, now) for p in partitions]
        if isinstance(error, NewerState) or all(now - first >= _LOOK_AGAIN_SECONDS for first in since):
            raise error
        self._put_off(partitions, Unavailable(f"{error} A second look follows."))

    def _is_due(self, partition: int) -> bool:
        """Returns whether a partition is not held, and its wait is over."""
        return partition not in self._held and self._clock() >= self._wait(partition).until

    def _in_turn(self, partitions: Iterable[int]) -> list[int]:
        """Returns partitions with the latest failures last: the first failure ends a round, and each needs a turn."""
        return sorted(partitions, key=lambda p: self._failed.get(p, 0.0))

    def _slices(self, partitions: Iterable[int], size: Callable[[int], int]) -> Iterator[list[int]]:
        """Yields as many partitions at a time as one request to the store covers."""
        some, together = list[int](), 0
        for partition in partitions:
            if some and (len(some) == _MOST or together + size(partition) > _MOST_BYTES):
                yield some
                some, together = [], 0
            some.append(partition)
            together += size(partition)
        if some:
            yield some

    def _bytes(self, stored: Metadata | None) -> int:
        """Returns the most bytes that the blobs of a partition have."""
        return 0 if stored is None else len(stored.blobs) * self._cell_bytes

    def _sorted(self, outcomes: Mapping[int, _T | Failure]) -> tuple[dict[int, _T], dict[int, Unavailable]]:
        """Returns each partition's result, and each failure, which is noted; raises a StateLost. From any thread."""
        came, failed = dict[int, _T](), dict[int, Unavailable]()
        for partition, outcome in outcomes.items():
            if isinstance(outcome, StateLost):
                raise unreadable(self._stream, partition, outcome)
            if isinstance(outcome, Unavailable):
                failed[partition] = outcome
                self._failed[partition] = self._clock()
            else:
                came[partition] = outcome
        return came, failed

    def _put_off(self, partitions: Sequence[int], error: Unavailable) -> None:
        self._events.claim_failed(partitions, error)
        self._postpone(partitions)

    def _proven(
        self, bounds: Mapping[int, tuple[int, int]], begins: Mapping[int, int], *, agreeing: bool = False
    ) -> dict[int, tuple[int, int]]:
        """Returns bounds with a proven first offset for each of ``begins``; partitions without a proof wait.

        ``agreeing``: the bounds must agree, as a wrong answer to the first fetch of a proof makes a log seem whole.
        """
        firsts = self._log.firsts(begins) if begins else {}
        if agreeing:
            firsts = {p: first for p, first in firsts.items() if first == bounds[p][0]}
        if missing := [p for p in begins if p not in firsts]:
            self._put_off(missing, Unavailable("Kafka: where the log begins is not confirmed yet"))
        return {p: (firsts.get(p, bounds[p][0]), bounds[p][1]) for p in bounds if p not in missing}

    def _came(self, outcomes: Mapping[int, _T | Failure]) -> dict[int, _T]:
        """Returns each partition's result of a step of a claim; failed partitions wait. Raises a StateLost."""
        came, failed = self._sorted(outcomes)
        by_reason = dict[str, list[int]]()
        for partition, error in failed.items():
            by_reason.setdefault(str(error), []).append(partition)
        for partitions in by_reason.values():
            self._put_off(partitions, failed[partitions[0]])
        return came

    def _adopt(
        self,
        claim: Claim,
        found: Mapping[int, Metadata | None],
        confirmed: Mapping[int, tuple[int, str]],
        head: Head | None,
        on_alive: Callable[[], object],
    ) -> bool:
        """Runs steps 8 to 10 for confirmed partitions; returns whether the store answered for all of them."""
        on_alive()
        # Step 8.
        wanted = {p: (found[p], claim.initial(p, confirmed[p][0], head or Head())) for p in found}
        loaded = self._came(self._store.claim_all(wanted))
        ours = {p: stored for p, stored in loaded.items() if stored is not None}
        self._postpone(loaded.keys() - ours.keys())
        states = {p: claim.load(p, stored) for p, stored in ours.items()}
        # Step 9. Asked again, as until the epoch was raised another owner may have counted on.
        bounds = self._came(self._log.bounds(states))
        bounds = self._proven(
            bounds, {p: states[p].offset for p in bounds if bounds[p][0] > states[p].offset}
        )
        # both answers have to say that a log has all from the start on: what is stored is replaced
        gapped = {
            p: states[p].start for p in bounds if head is not None and claim.may_recount(p, states[p], head)
        }
        gapped = {p: start for p, start in gapped.items() if bounds[p][0] <= start}
        firsts = self._log.firsts(gapped) if gapped else {}
        for p in bounds:
            known = confirmed[p][0] if confirmed[p][1] == COUNTED else 0
            try:
                gap = claim.resume(p, states[p], ours[p].metadata, known, bounds[p], head)
                again = claim.recount(p, states[p]) if firsts.get(p) == states[p].start else None
            except Unavailable:
                self._failed[p] = self._clock()  # the others come first next time
                raise
            except StateLost:
                # a worker that claimed it meanwhile may have published what this state lacks
                answer = self._store.compare_all({p: ours[p].metadata})[p]
                if isinstance(answer, Unavailable):
                    raise answer from None
                if answer is Answer.DONE:
                    raise
                self._postpone([p])
                continue
            # Step 10.
            how = "recount" if again else "gap" if gap else "fresh" if found[p] is None else "resume"
            self._hold(p, ours[p], again or states[p], how, headless=head is None)
        on_alive()
        return loaded.keys() == found.keys()

    def _hold(
        self, partition: int, stored: StoredPartition, state: PartitionState, how: str, *, headless: bool
    ) -> None:
        """Starts to count a partition, unless it has to wait for a head."""
        waiting = state.waits_at == state.offset
        self._held[partition] = OwnedPartition(stored.metadata, state, waiting=waiting, headless=headless)
        self._waits.pop(partition, None)
        self._doubted.pop(partition, None)
        if not waiting:
            self._log.start(partition, state.offset, state.rules)
        self._events.claimed(partition, how, state.offset, stored.metadata.epoch)

    def apply(self, batch: Batch, on_alive: Callable[[], object] = lambda: None) -> None:
        """Counts a polled batch of a held partition, and sends its dead letters."""
        if (held := self._held.get(batch.partition)) is None or held.waiting:
            return
        if batch.start != held.state.offset:
            # a batch before this one did not reach us: the store knows where to go on
            self._events.warning(
                "partition.moved", partition=batch.partition, counted=held.state.offset, polled=batch.start
            )
            self.drop([batch.partition])
            return
        polled, batch = batch.end, batch if (line := held.state.waits_at) is None else batch.until(line)
        applied = held.state.apply(self._stream, batch, on_alive, name_late=self._late_letters)
        if held.state.offset < polled or held.state.waits_at == polled:
            # the rest is read again once there is room, or a head names the partition
            batch, held.waiting = batch.until(held.state.offset), True
            self._log.stop(batch.partition)
            if held.state.full:
                self._events.warning(
                    "partition.full", partition=batch.partition, panes=len(held.state.cells) - 1
                )
        self._watching.look(batch, applied.reports)
        try:
            # safe with step 3 of the commit
            malformed = self._dead_letters.add(batch, applied.verdicts) if applied.rejected else 0
            late = sum(self._dead_letters.add_late(batch, some) for some in applied.late_records)
        except Unavailable:
            self.drop([batch.partition])  # its offset is past dead letters that were never sent
            raise
        if applied.rejected:
            self._events.malformed(applied.rejected, malformed)
        self._rejections.add(batch, applied, malformed)
        if batch.keyed:
            self._events.keyed(batch.keyed)
        if applied.late or applied.undated:
            self._events.misplaced(applied.late, applied.undated, late)
        reports = sum(map(len, applied.reports))
        self._events.counted(applied.accepted, applied.rejected.total(), reports)

    def commit(
        self, partitions: Iterable[int] | None = None, on_alive: Callable[[], object] = lambda: None
    ) -> None:
        """Commits what is counted and not stored; a commit of unknown outcome is retried next time.

        The steps have this order for safety. After a failure the store has all of a flush or nothing of it, and the
        next commit begins again at the first step with the same flush:

        1. The counted state becomes a flush, which stays the same until its outcome is known.
        2. Ask for the topic's id, after all of it was polled: a topic that was created again is another history, and
           its counts are dropped. The claim that follows stops the stream if the id still differs.
        3. Wait until the dead letters are safe.
        4. Stage the changed blobs under keys of this attempt, those of many partitions together.
        5. One script a partition compares what is stored with what the flush started from, and replaces it.
        6. Kafka gets the offsets as a mirror.

        `prepare`, `write` and `settle` are these steps for a caller that counts on while they are written.

        Raises:
            StateLost: the store no longer holds this partition, or of another lineage.
        """
        self.settle(self.write(self.prepare(partitions), on_alive))

    def prepare(self, partitions: Iterable[int] | None = None) -> list[PendingCommit]:
        """Runs steps 1 to 3 of a commit; returns what to write."""
        named = self._in_turn(self._held if partitions is None else partitions)
        chosen = {p: self._held[p] for p in named if p in self._held}
        # Step 1.
        for partition, held in chosen.items():
            if held.flush is None and held.ahead:
                dumped = layout.dump(held.state, held.metadata, uuid4().hex)
                held.flush = PendingCommit(partition, held.metadata, *dumped)
                held.state.changed.clear()
        due = [held.flush for held in chosen.values() if held.flush is not None]
        if not due:
            return []
        try:
            # Step 2.
            lineage = lineage_of(self._group, self._stream, self._log.topic_id())
            foreign = {flush.partition for flush in due if differing(flush.before.lineage, lineage)}
            self._doubt(foreign)
            due = [flush for flush in due if flush.partition not in foreign]
            # Step 3.
            self._dead_letters.flush()
        except Unavailable as error:
            self._events.commit_failed(error)
            return []
        return due

    def write(
        self, flushes: Iterable[PendingCommit], on_alive: Callable[[], object] = lambda: None
    ) -> list[tuple[PendingCommit, Answer]]:
        """Runs steps 4 and 5 of a commit; returns the store's answer to each flush.

        May run on another thread: it uses nothing of what is held, and writing a flush twice or late changes nothing.
        """
        due, written = {flush.partition: flush for flush in flushes}, list[tuple[PendingCommit, Answer]]()
        for some in self._slices(due, lambda p: sum(map(len, due[p].blobs.values()))):
            on_alive()
            attempts, began, answers = (
                {p: uuid4().hex for p in some},
                time.perf_counter(),
                dict[int, Answer](),
            )
            try:
                # Step 4.
                changed = {p: (attempts[p], due[p].blobs) for p in some if due[p].blobs}
                _, unstaged = self._sorted(self._store.stage_all(changed) if changed else {})
                # Step 5.
                staged = {p: (attempts[p], due[p].before, due[p].after) for p in some if p not in unstaged}
                answers, unknown = self._sorted(self._store.promote_all(staged) if staged else {})
            finally:
                for partition in some:
                    self._events.commit_ended(answers.get(partition), time.perf_counter() - began)
            written += [(due[p], answer) for p, answer in answers.items()]
            for error in [*unstaged.values(), *unknown.values()]:
                self._events.commit_failed(error)
                return written  # what was written before a failure counts
        return written

    def settle(self, written: Iterable[tuple[PendingCommit, Answer]]) -> None:
        """Runs step 6 of a commit for the flushes that are still pending; raises StateLost as `commit` does."""
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

    def compare(self, on_alive: Callable[[], object] = lambda: None) -> None:
        """Compares what is held with the store, so that an idle owner notices a loss; raises StateLost as `commit`."""
        self._rejections.say()
        self._heed(self._held)
        stored = {p: h.metadata for p, h in self._held.items() if h.flush is None and not h.ahead}
        for some in self._slices(self._in_turn(stored), lambda _: 0):
            on_alive()
            answers, failed = self._sorted(self._store.compare_all({p: stored[p] for p in some}))
            for partition, answer in answers.items():
                if answer is not Answer.DONE:
                    self._refused(partition, answer)
            for error in failed.values():
                self._events.compare_failed(error)
                return

    def _heed(self, partitions: Collection[int]) -> None:
        """Reads the decided head where windows need it: admits partitions, drops panes, and ends their wait.

        A partition is claimed again if the head is another deployment's or no longer names it (that claim stops the
        stream if it finds the same), and if it is headless and a head is readable.
        """
        if headless := [p for p in partitions if p in self._held and self._held[p].headless]:
            if self._clock() >= self._look_at:
                try:
                    self._read_head()
                except Unavailable as error:
                    self._events.compare_failed(error)
                else:
                    self.drop(headless)
            partitions = [p for p in partitions if p not in headless]
        named = {p: self._held[p] for p in partitions if p in self._held}
        states = {p: held.state for p, held in named.items() if held.state.windowing or held.waiting}
        began = self._clock()
        heeds = any(self._held[p].waiting or state.closed_panes for p, state in states.items())
        if not heeds or began < self._heed_at:
            return
        try:
            decided = self._head_reader.head(decided=True)
        except Unavailable as error:
            self._events.compare_failed(error)
            return
        finally:
            self._heed_at = self._clock() + min(self._clock() - began, _LONGEST_READ) / _SHARE
        for partition, state in states.items():
            if decided.foreign(self._held[partition].metadata.lineage):
                self._doubt([partition])
                continue
            if state.windows.admitted_from is None and (floor := decided.floors.get(partition)) is not None:
                state.windows.admit(floor)
                self._events.info("partition.admitted", partition=partition, floor=floor)
            if state.windows.admitted_from is None:
                continue
            if partition not in decided.floors:
                self._doubt([partition])
                continue
            state.drop(min(state.windows.closed, decided.needed_from(state.windows.first_start)))
            held = self._held[partition]
            if held.waiting and not state.full:
                held.waiting = False
                self._log.start(partition, state.offset, state.rules)

    def _refused(self, partition: int, answer: Answer) -> None:
        """Acts on an answer of the store other than DONE.

        ================  ====================================================================================
        answer            what follows
        ================  ====================================================================================
        UNSTAGED          the staged blobs expired: the next commit writes the same flush again
        FENCED, FORKED    the state in memory is dropped, and claimed again while Kafka assigns the partition
        LINEAGE           the same if the store has counts of this history; otherwise the stream stops (StateLost)
        ================  ====================================================================================
        """
        self._events.warning("commit.refused", partition=partition, verdict=answer.value)
        if answer is Answer.LINEAGE:
            try:
                found, held = self._store.peek(partition), self._held[partition].metadata
                ours = found is not None and not differing(found.lineage, held.lineage)
            except StateLost:
                ours = True
            except Unavailable as error:
                self._events.compare_failed(error)
                return
            # a claim judges stored counts of this history
            if not ours:
                why = "the counts in Redis vanished or were replaced while this worker counted"
                raise lost(self._stream, partition, why)
        if answer is not Answer.UNSTAGED:
            self.drop([partition])

    def release(self, partitions: Collection[int], on_alive: Callable[[], object] = lambda: None) -> None:
        """Commits and forgets partitions that Kafka took away, with or without notice.

        A pending commit comes first, then what was counted after it; if it fails, nothing else is tried, so a store
        that does not answer costs one time-out. The next owner counts the rest again.
        """
        gone = {*partitions, *(self._held.keys() - self._log.assigned())}
        if gone:
            behind = [p for p in gone if p in self._held and self._held[p].flush is not None]
            self.commit(gone, on_alive)
            self.commit([p for p in behind if p in self._held and self._held[p].flush is None], on_alive)
        for partition in gone:
            if self._held.pop(partition, None) is not None:
                self._log.stop(partition)  # it does not know of one that was lost without a word
                self._events.released(partition)
            self._waits.pop(partition, None)
            self._failed.pop(partition, None)
            self._doubted.pop(partition, None)

    def rewind(self) -> None:
        """Makes the log go on where counting stopped, as a failed step may have lost polled records."""
        for partition, held in self._held.items():
            if not held.waiting:
                self._log.start(partition, held.state.offset, held.state.rules)

    def drop(self, partitions: Collection[int]) -> None:
        """Forgets partitions with what was counted beyond the store; they are claimed again after a wait."""
        for partition in partitions:
            if self._held.pop(partition, None) is not None:
                self._log.stop(partition)
                self._events.dropped(partition)
        self._postpone(partitions)

    def _doubt(self, partitions: Collection[int]) -> None:
        """Drops partitions whose counts seem lost: the claim that follows stops the stream if it finds the same."""
        now = self._clock()
        self.drop(partitions)
        for partition in partitions:
            self._doubted.setdefault(partition, now)

    def _wait(self, partition: int) -> Backoff:
        return self._waits.setdefault(partition, Backoff())

    def _postpone(self, partitions: Iterable[int]) -> None:
        for partition in partitions:
            self._wait(partition).again(self._clock())
