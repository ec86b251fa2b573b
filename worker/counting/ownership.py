"""Claims partitions, counts them and commits the counts exactly once.

A partition's state depends only on its log, rules and heads. The store writes counts and offset in one atomic step. It
accepts a commit only if the stored offset and commit id are those that the writer started from. Every claim raises the
epoch, so that an old owner notices early that another worker took over.

A single answer of a broker can be wrong, so no final decision depends on one answer. The worker reports lost counts
only if two claims, with a pause in between, agree. The first offset of a new partition needs two equal answers. A gap
needs a proof by `Log.firsts`. This file has all steps of a claim and of a commit; that is why it is longer than others.
"""

import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import TypeVar
from uuid import uuid4

import ldp
from worker.counting import layout, ports
from worker.counting.claim import Claim, lost, unreadable
from worker.counting.columns import Batch
from worker.counting.head import Head
from worker.counting.lineage import differing, lineage_of
from worker.counting.owned_partition import Backoff, OwnedPartition, PendingCommit
from worker.counting.partition_state import PartitionState
from worker.counting.ports import COUNTED, Answer, Metadata, NotOwner, StateLost, Unavailable
from worker.counting.rejections import Rejections
from worker.counting.rules import RequestedRule
from worker.counting.watching import Watching

_T = TypeVar("_T")
_MOST, _MOST_BYTES = 100, 32 << 20  # limits of one request to the store: partitions, bytes of their states
_RECLAIM_SECONDS = 1.0  # pause before a second claim of counts that seem lost, or a second read of the head
_SHARE, _LONGEST_READ = 0.1, 2.0  # maximum share of time for reading heads; one read counts as at most 2 s


class Ownership:
    """The partitions of one stream that this worker counts.

    ``recount_after``: the operator gives up lost counts up to the snapshot of this number. The worker then recounts the
    log, records lost offsets as a gap, and counts gaps that the log has again. If None, lost counts stop the stream.
    """

    def __init__(
        self,
        group: str,
        fleet: ldp.Fleet,
        configured: RequestedRule,
        log: ports.Log,
        store: ports.Store,
        dead_letters: ports.DeadLetters,
        head_reader: ports.HeadReader,
        recount_after: int | None,
        clock: Callable[[], float],
        events: ports.Events,
        late_dead_letters: bool = False,
    ) -> None:
        self._group, self._fleet, self._configured = group, fleet, configured
        self._log, self._store, self._dead_letters = log, store, dead_letters
        self._head_reader, self._recount_after = head_reader, recount_after
        self._clock, self._events, self._late_dead_letters = clock, events, late_dead_letters
        self._rejections = Rejections(clock, events)
        self._watching = Watching(clock, events)
        self._held: dict[int, OwnedPartition] = {}
        self._waits: dict[int, Backoff] = {}
        self._failed: dict[int, float] = {}  # time of the last failed attempt
        self._apply_head_at = self._read_head_at = 0.0
        self._cell_bytes = max(each.oracle.zeros().nbytes for each in fleet.documents)
        self._doubted: dict[int, float] = {}  # time when the counts first seemed lost

    def epoch(self, partition: int) -> int | None:
        """Returns the epoch of a held partition, or None; thread-safe."""
        return None if (held := self._held.get(partition)) is None else held.metadata.epoch

    def counted(self) -> dict[int, int]:
        """Returns the offset of each held partition's counts in memory."""
        return {partition: held.state.offset for partition, held in self._held.items()}

    def stored(self) -> dict[int, int]:
        """Returns the offset of each held partition's counts in the store."""
        return {partition: held.metadata.offset for partition, held in self._held.items()}

    def states(self) -> dict[int, PartitionState]:
        """Returns each held partition's state; only for the counting thread."""
        return {partition: held.state for partition, held in self._held.items()}

    def reading(self) -> set[int]:
        """Returns the held partitions that are not waiting."""
        return {partition for partition, held in self._held.items() if not held.waiting}

    def claim(self, heartbeat: Callable[[], object] = lambda: None) -> None:
        """Claims the next assigned partitions, at most `_MOST`.

        After a failure, the next claim starts at step 1. Exactly-once counting depends on the order of the steps:

        1. Note the membership (generation and assignment) and the topic's id.
        2. Read the group's offsets. A COUNTED offset follows a commit, so the store must have counts up to this offset.
        3. Read the store's metadata. If missing or behind the group's offset, reread that offset and the topic's id.
        4. Read the head. If it could contradict the metadata, read the newest committed head and the metadata again.
           If the head cannot be read, continue only with partitions that do not need it (`Claim.certain`).
        5. Read the logs' first offsets, and decide each start offset. A new partition needs two equal answers.
        6. Commit these offsets to Kafka as a member of the noted generation. Kafka thus confirms the ownership.
        7. Check that the membership is still the noted one.
        8. Raise each epoch in the store and load the partition, in one script. Older owners can no longer commit.
        9. Read the logs' bounds. Check each state against the bounds and the head. A loss is real only if the store has
           not changed since step 8. A gap needs a proof. A recount of gaps needs a proof that the log is complete.
        10. Hold the partition. With windows, wait until a head names the partition. Read from the state's offset.

        Raises StateLost if counts are missing, ahead of the log, too far behind it, or of another lineage.
        """
        # Step 1.
        generation = self._log.generation()
        wanted = self._in_turn(filter(self._is_claimable, sorted(self._log.assigned())))[:_MOST]
        if generation is None or not wanted:
            return
        try:
            topic = self._log.topic_id()
            lineage = lineage_of(self._group, topic)
            settings = self._configured, self._recount_after, self._head_reader, self._events
            claim = Claim(self._group, self._fleet, *settings, lineage)
            found, starts, head = self._decide(claim, wanted, topic)
            if not (wanted := list(starts)):
                return
            # Step 6.
            wanted = list(self._succeeded(self._log.confirm(starts)))
            # Step 7.
            if self._log.generation() != generation or not self._log.assigned() >= set(wanted):
                return
            sizes = {p: self._cell_bytes * len(at.blobs) if (at := found[p]) else 0 for p in wanted}
            for some in self._slices(wanted, sizes.__getitem__):
                if not self._adopt(claim, {p: found[p] for p in some}, starts, head, heartbeat):
                    break
            self._apply_head(wanted)
        except NotOwner:
            self._postpone(wanted)
        except Unavailable as error:
            self._put_off([p for p in wanted if self._is_claimable(p)], error)
        except StateLost as error:
            self._raise_if_doubted([p for p in wanted if self._is_claimable(p)], error)

    def _decide(
        self, claim: Claim, wanted: Sequence[int], topic: str
    ) -> tuple[dict[int, Metadata | None], dict[int, tuple[int, str]], Head | None]:
        """Runs steps 2 to 5; returns metadata, start offsets and the head."""
        # Step 2.
        committed = self._succeeded(self._log.committed(wanted))
        # Step 3.
        if not (wanted := list(found := self._succeeded(self._store.peek_all(committed)))):
            return found, {}, Head()
        reached = {p: (committed[p] or (0, ""))[0] for p in wanted}
        if by_kafka := [p for p in wanted if (at := found[p]) is None or reached[p] > at.offset]:
            again = self._succeeded(self._log.committed(by_kafka))
            if self._log.topic_id() != topic or any(again[p] != committed[p] for p in again):
                why = "Kafka: two answers about the group's offsets or the topic's id do not agree"
                raise Unavailable(why)
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
            wanted = list(found := self._succeeded(self._store.peek_all(wanted)))
        # Step 5.
        bounds = self._succeeded(self._log.bounds(wanted))
        new = [p for p in bounds if found[p] is None and committed[p] is None]
        bounds = self._proven(bounds, dict.fromkeys(new, 0), agreeing=True)
        starts = {p: claim.decide(p, found[p], committed[p], bounds[p][0], head or Head()) for p in bounds}
        return found, starts, head

    def _read_head(self) -> Head:
        """Returns the newest sent head; a failure delays the next attempt."""
        began = self._clock()
        try:
            return self._head_reader.head(decided=False)
        except Unavailable:
            now = self._clock()
            self._read_head_at = now + max(_RECLAIM_SECONDS, (now - began) / _SHARE)
            raise

    def _raise_if_doubted(self, partitions: Sequence[int], error: StateLost) -> None:
        """Postpones partitions that seem lost; raises if a second claim agrees."""
        now = self._clock()
        since = [self._doubted.setdefault(p, now) for p in partitions]
        if isinstance(error, ports.NewerState) or all(now - first >= _RECLAIM_SECONDS for first in since):
            raise error
        self._put_off(partitions, Unavailable(f"{error} A second claim follows."))

    def _is_claimable(self, partition: int) -> bool:
        return partition not in self._held and self._clock() >= self._wait(partition).until

    def _in_turn(self, partitions: Iterable[int]) -> list[int]:
        """Sorts partitions by last failure, because one failure ends a round."""
        return sorted(partitions, key=lambda p: self._failed.get(p, 0.0))

    def _slices(self, partitions: Iterable[int], size: Callable[[int], int]) -> Iterator[list[int]]:
        """Splits partitions into requests to the store, by number and size."""
        some, together = list[int](), 0
        for partition in partitions:
            if some and (len(some) == _MOST or together + size(partition) > _MOST_BYTES):
                yield some
                some, together = [], 0
            some.append(partition)
            together += size(partition)
        if some:
            yield some

    def _sorted(
        self, outcomes: Mapping[int, _T | ports.Failure]
    ) -> tuple[dict[int, _T], dict[int, Unavailable]]:
        """Separates results from `Unavailable`; raises StateLost. Thread-safe."""
        results, failed = dict[int, _T](), dict[int, Unavailable]()
        for partition, outcome in outcomes.items():
            if isinstance(outcome, StateLost):
                raise unreadable(self._fleet, partition, outcome)
            if isinstance(outcome, Unavailable):
                failed[partition] = outcome
                self._failed[partition] = self._clock()
            else:
                results[partition] = outcome
        return results, failed

    def _put_off(self, partitions: Sequence[int], error: Unavailable) -> None:
        self._events.claim_failed(partitions, error)
        self._postpone(partitions)

    def _proven(
        self, bounds: Mapping[int, tuple[int, int]], begins: Mapping[int, int], *, agreeing: bool = False
    ) -> dict[int, tuple[int, int]]:
        """Returns bounds with proven first offsets; postpones unproven partitions."""
        firsts = self._log.firsts(begins) if begins else {}
        if agreeing:
            firsts = {p: first for p, first in firsts.items() if first == bounds[p][0]}
        if missing := [p for p in begins if p not in firsts]:
            self._put_off(missing, Unavailable("Kafka: the first offset of the log is not confirmed yet"))
        return {p: (firsts.get(p, bounds[p][0]), bounds[p][1]) for p in bounds if p not in missing}

    def _succeeded(self, outcomes: Mapping[int, _T | ports.Failure]) -> dict[int, _T]:
        """Returns the results of a claim's step; postpones failed partitions."""
        results, failed = self._sorted(outcomes)
        by_reason = dict[str, list[int]]()
        for partition, error in failed.items():
            by_reason.setdefault(str(error), []).append(partition)
        for partitions in by_reason.values():
            self._put_off(partitions, failed[partitions[0]])
        return results

    def _adopt(
        self,
        claim: Claim,
        found: Mapping[int, Metadata | None],
        confirmed: Mapping[int, tuple[int, str]],
        head: Head | None,
        heartbeat: Callable[[], object],
    ) -> bool:
        """Runs steps 8 to 10; returns False if the store failed for a partition."""
        heartbeat()
        # Step 8.
        wanted = {p: (found[p], claim.initial(p, confirmed[p][0], head or Head())) for p in found}
        loaded = self._succeeded(self._store.claim_all(wanted))
        ours = {p: stored for p, stored in loaded.items() if stored is not None}
        self._postpone(loaded.keys() - ours.keys())
        states = {p: claim.load(p, stored) for p, stored in ours.items()}
        # Step 9. Read again: another owner may have counted until the epoch was raised.
        bounds = self._succeeded(self._log.bounds(states))
        behind = {p: states[p].offset for p in bounds if bounds[p][0] > states[p].offset}
        bounds = self._proven(bounds, behind)
        # a recount replaces stored counts, so the bounds and a proof must agree that the log is complete
        whole = [p for p in bounds if bounds[p][0] <= states[p].start] if head is not None else []
        gapped = {p: states[p].start for p in whole if claim.may_recount(p, states[p], head or Head())}
        firsts = self._log.firsts(gapped) if gapped else {}
        for p in bounds:
            known = confirmed[p][0] if confirmed[p][1] == COUNTED else 0
            try:
                gap = claim.resume(p, states[p], ours[p].metadata, known, bounds[p], head)
                again = claim.recount(p, states[p]) if firsts.get(p) == states[p].start else None
            except Unavailable:
                self._failed[p] = self._clock()  # the next round begins with the others
                raise
            except StateLost:
                # another worker may have claimed it since, and published counts that this state lacks
                answer = self._store.compare_all({p: ours[p].metadata})[p]
                if isinstance(answer, Unavailable):
                    raise answer from None
                if answer is Answer.DONE:
                    raise
                self._postpone([p])
                continue
            # Step 10.
            how = "recount" if again else "gap" if gap else "fresh" if found[p] is None else "resume"
            state, metadata = again or states[p], ours[p].metadata
            waiting = state.waits_at == state.offset
            self._held[p] = OwnedPartition(metadata, state, waiting=waiting, headless=head is None)
            self._waits.pop(p, None)
            self._doubted.pop(p, None)
            if not waiting:
                self._log.start(p, state.offset, state.rules)
            self._events.claimed(p, how, state.offset, metadata.epoch)
        heartbeat()
        return loaded.keys() == found.keys()

    def apply(self, batch: Batch, heartbeat: Callable[[], object] = lambda: None) -> None:
        """Counts a polled batch of a held partition, and sends its dead letters."""
        if (held := self._held.get(batch.partition)) is None or held.waiting:
            return
        if batch.start != held.state.offset:
            # an earlier batch did not arrive: the next claim continues at the stored offset
            moved = {"counted": held.state.offset, "polled": batch.start}
            self._events.warning("partition.moved", partition=batch.partition, **moved)
            self.drop([batch.partition])
            return
        polled, batch = batch.end, batch if (line := held.state.waits_at) is None else batch.until(line)
        applied = held.state.apply(batch, heartbeat, name_late=self._late_dead_letters)
        if held.state.offset < polled or held.state.waits_at == polled:
            batch, held.waiting = batch.until(held.state.offset), True
            self._log.stop(batch.partition)
            if held.state.full:
                panes = len(held.state.panes)
                self._events.warning("partition.full", partition=batch.partition, panes=panes)
        self._watching.look(batch, held.state.documents, applied.reports)
        try:  # step 3 of the commit waits for them
            malformed = self._dead_letters.add(batch, applied.verdicts) if applied.rejected else 0
            late = sum(self._dead_letters.add_late(batch, some) for some in applied.late_records)
        except Unavailable:
            self.drop([batch.partition])  # its state is past dead letters that were not sent
            raise
        if applied.rejected:
            self._events.malformed(applied.rejected, malformed)
        self._rejections.add(batch, applied, malformed)
        if batch.with_key_or_headers:
            self._events.with_key_or_headers(batch.with_key_or_headers)
        if applied.late or applied.undated:
            self._events.late_or_undated(applied.late, applied.undated, late)
        reports = Counter[str]()
        for document, some in applied.reports:
            reports[document] += len(some)
        self._events.counted(applied.accepted, applied.rejected.total(), reports)

    def commit(
        self, partitions: Iterable[int] | None = None, heartbeat: Callable[[], object] = lambda: None
    ) -> None:
        """Commits counts that the store lacks, and retries pending commits.

        After a failure, the next call retries the same commit. Exactly-once counting depends on the order of the steps:

        1. Turn the state into a pending commit, which stays unchanged until its outcome is known.
        2. Read the topic's id, after the records were polled. Drop the partitions if the topic was created again.
        3. Wait until all dead letters are acknowledged.
        4. Stage the changed blobs of many partitions together, under keys of this attempt.
        5. Run one script per partition. It replaces the stored counts if the commit started from them.
        6. Commit the offsets to Kafka, without waiting.

        Raises StateLost if the store lost a partition, or has counts of another lineage.
        """
        self.settle(self.write(self.prepare(partitions), heartbeat))

    def prepare(self, partitions: Iterable[int] | None = None) -> list[PendingCommit]:
        """Runs steps 1 to 3 of a commit; returns the commits to write."""
        named = self._in_turn(self._held if partitions is None else partitions)
        chosen = {p: self._held[p] for p in named if p in self._held}
        # Step 1.
        for partition, held in chosen.items():
            if held.pending is None and held.ahead:
                dumped = layout.dump(held.state, held.metadata, uuid4().hex)
                held.pending = PendingCommit(partition, held.metadata, *dumped)
                held.state.changed.clear()
        due = [held.pending for held in chosen.values() if held.pending is not None]
        if not due:
            return []
        try:
            # Step 2.
            lineage = lineage_of(self._group, self._log.topic_id())
            foreign = {one.partition for one in due if differing(one.before.lineage, lineage)}
            self._doubt(foreign)
            due = [one for one in due if one.partition not in foreign]
            # Step 3.
            self._dead_letters.flush()
        except Unavailable as error:
            self._events.commit_failed(error)
            return []
        return due

    def write(
        self, commits: Iterable[PendingCommit], heartbeat: Callable[[], object] = lambda: None
    ) -> list[tuple[PendingCommit, Answer]]:
        """Runs steps 4 and 5 on any thread; returns the store's answers."""
        due, written = {one.partition: one for one in commits}, list[tuple[PendingCommit, Answer]]()
        for some in self._slices(due, lambda p: sum(map(len, due[p].blobs.values()))):
            heartbeat()
            attempts, began = {p: uuid4().hex for p in some}, time.perf_counter()
            answers = dict[int, Answer]()
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
                return written  # commits before the failure are settled
        return written

    def settle(self, written: Iterable[tuple[PendingCommit, Answer]]) -> None:
        """Acts on the store's answers to pending commits, and runs step 6."""
        mirror = {}
        for pending, answer in written:
            held = self._held.get(pending.partition)
            if held is None or held.pending is not pending:
                continue  # dropped since, or settled by another attempt
            if answer is not Answer.DONE:
                self._refused(pending.partition, answer)
                continue
            held.metadata, held.pending = pending.after, None
            mirror[pending.partition] = (pending.after.offset, COUNTED)
        # Step 6.
        if mirror:
            self._log.mirror(mirror)

    def compare(self, heartbeat: Callable[[], object] = lambda: None) -> None:
        """Checks that the store still has the committed counts."""
        self._rejections.emit()
        self._apply_head(self._held)
        stored = {p: h.metadata for p, h in self._held.items() if h.pending is None and not h.ahead}
        for some in self._slices(self._in_turn(stored), lambda _: 0):
            heartbeat()
            answers, failed = self._sorted(self._store.compare_all({p: stored[p] for p in some}))
            for partition, answer in answers.items():
                if answer is not Answer.DONE:
                    self._refused(partition, answer)
            for error in failed.values():
                self._events.compare_failed(error)
                return

    def _apply_head(self, partitions: Collection[int]) -> None:
        """Applies the head: admits or drops partitions, and evicts panes."""
        if headless := [p for p in partitions if p in self._held and self._held[p].headless]:
            if self._clock() >= self._read_head_at:
                try:
                    self._read_head()
                except Unavailable as error:
                    self._events.compare_failed(error)
                else:
                    self.drop(headless)
            partitions = [p for p in partitions if p not in headless]
        named = [(p, self._held[p]) for p in partitions if p in self._held]
        states = {p: held.state for p, held in named if held.state.windowing or held.waiting}
        began = self._clock()
        closed = {p for p, s in states.items() if any(pane.end <= s.windows.closed for pane in s.panes)}
        needed = closed or any(self._held[p].waiting for p in states)
        if not needed or began < self._apply_head_at:
            return
        try:
            decided = self._head_reader.head(decided=True)
        except Unavailable as error:
            self._events.compare_failed(error)
            return
        finally:
            self._apply_head_at = self._clock() + min(self._clock() - began, _LONGEST_READ) / _SHARE
        for partition, state in states.items():
            if decided.foreign(self._fleet, self._held[partition].metadata.lineage):
                self._doubt([partition])
                continue
            if state.windows.admitted_from is None and (line := decided.floors.get(partition)) is not None:
                state.windows.admit(line)
                self._events.info("partition.admitted", partition=partition, admitted_from=line)
            if state.windows.admitted_from is None:
                continue
            if partition not in decided.floors:
                self._doubt([partition])
                continue
            # an admission lifts `closed`, but windows of a later rule begin right after the watermark
            counted = min(state.windows.closed, state.windows.watermark or 0)
            state.evict(min(counted, decided.needed_from(state.windows.first_start)))
            held = self._held[partition]
            if held.waiting and not state.full:
                held.waiting = False
                self._log.start(partition, state.offset, state.rules)

    def _refused(self, partition: int, answer: Answer) -> None:
        """Acts on an answer of the store other than DONE.

        ================  ====================================================================================
        answer            action
        ================  ====================================================================================
        STAGING_EXPIRED   none: the next call stages the same commit again
        FENCED, CONFLICT  drop the partition, and claim it again while the group assigns it
        LINEAGE           drop the partition if the stored lineage is still the same; otherwise raise StateLost
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
            if not ours:
                why = "the counts in Redis were deleted or replaced while this worker counted"
                raise lost(self._fleet, partition, why)
        if answer is not Answer.STAGING_EXPIRED:
            self.drop([partition])

    def release(self, partitions: Collection[int], heartbeat: Callable[[], object] = lambda: None) -> None:
        """Commits and forgets revoked partitions, pending commits first."""
        gone = {*partitions, *(self._held.keys() - self._log.assigned())}
        if gone:
            behind = [p for p in gone if p in self._held and self._held[p].pending is not None]
            self.commit(gone, heartbeat)
            self.commit([p for p in behind if p in self._held and self._held[p].pending is None], heartbeat)
        for partition in gone:
            if self._held.pop(partition, None) is not None:
                self._log.stop(partition)  # the partition may have been revoked without a callback
                self._events.released(partition)
            for noted in (self._waits, self._failed, self._doubted):
                noted.pop(partition, None)

    def rewind(self) -> None:
        """Returns to the counted offsets; a failed step may have skipped records."""
        for partition, held in self._held.items():
            if not held.waiting:
                self._log.start(partition, held.state.offset, held.state.rules)

    def drop(self, partitions: Collection[int]) -> None:
        """Forgets partitions and their uncommitted counts, and postpones claims."""
        for partition in partitions:
            if self._held.pop(partition, None) is not None:
                self._log.stop(partition)
                self._events.dropped(partition)
        self._postpone(partitions)

    def _doubt(self, partitions: Collection[int]) -> None:
        """Drops partitions that seem lost; the next claim may raise StateLost."""
        now = self._clock()
        self.drop(partitions)
        for partition in partitions:
            self._doubted.setdefault(partition, now)

    def _wait(self, partition: int) -> Backoff:
        return self._waits.setdefault(partition, Backoff())

    def _postpone(self, partitions: Iterable[int]) -> None:
        for partition in partitions:
            self._wait(partition).again(self._clock())
