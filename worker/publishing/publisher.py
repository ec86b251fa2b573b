"""Publishes consistent cuts of the store, each in one transaction.

One message of each transaction is the head, with the snapshot's number and offsets. A publisher that starts, or does
not know the outcome of a transaction, reads the head and continues from it. Partitions do not depend on each other, so
any set of partition states, each read in one step, is a consistent cut.
"""

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import NoReturn

import numpy as np

import ldp
from ldp.fleet import FleetEstimate
from ldp.snapshot import Period, assemble
from worker.counting.changed import NEW_NAME
from worker.counting.claim import foreign, peek
from worker.counting.head import Head
from worker.counting.ports import Events, SnapshotProducer, StateLost, StateReader, Unavailable
from worker.publishing import release, released_cells, stored_cut, taking
from worker.publishing.comparing import Comparer
from worker.publishing.planning import Content, Plan, Written, closed
from worker.publishing.recommender import Recommender
from worker.publishing.recorded import Recorded, queries_of
from worker.publishing.release import Counts, Rest, Shown
from worker.publishing.releasing import Published, releasing
from worker.publishing.stored_cut import StoredCut
from worker.publishing.taking import Taken
from worker.publishing.window_progress import Due

PARTITION = 0
"""The owner of this partition publishes the stream's snapshots."""
_SOON_SECONDS = 0.2
"""Interval of ticks until this worker owns partition 0 and has published its first snapshot."""
_BEHIND_SECONDS = 60.0
"""Interval of warnings that the counts are behind the head."""
_HEARD_SECONDS = 10.0
"""Time for owners to read a head that admits partitions. Then the publisher checks the head, and doubles the time."""


@dataclass(frozen=True)
class Group:
    """Access to the topic and its consumer group.

    Attributes:
        partitions: returns the topic's partitions.
        uncounted: returns the partitions that should have counts, but have none. Its argument maps each partition
            without counts to whether it was claimed. See `worker.kafka.reports.group`.
        epoch: returns the epoch of this worker's last claim of partition 0, or None; thread-safe.
    """

    partitions: Callable[[], Sequence[int]]
    uncounted: Callable[[Mapping[int, bool]], Sequence[int]]
    epoch: Callable[[], int | None]


class Publisher:
    """Publishes one stream's snapshots while its worker owns partition 0.

    Args:
        fleet: the configured documents.
        content: the configured content of the snapshots.
        state_reader: reads the counts.
        snapshot_producer: publishes the snapshots.
        group: the topic and its consumer group.
        recommender: recommends a method for each query.
        events: receives events.
        clock: returns monotonic seconds.
    """

    def __init__(
        self,
        fleet: ldp.Fleet,
        content: Content,
        state_reader: StateReader,
        snapshot_producer: SnapshotProducer,
        group: Group,
        recommender: Recommender,
        events: Events,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._fleet, self._content = fleet, content
        self._state_reader, self._snapshot_producer, self._group = state_reader, snapshot_producer, group
        self._recommender, self._events, self._clock = recommender, events, clock
        self._comparer = Comparer(content.queries, content.changed_level, content.changed_at_least)
        self._head: Head | None = None
        self._published: Published | None = None
        self._taken_over: float | None = None
        self._warned: Sequence[int] = ()
        self._unnamed: Sequence[str] | None = None
        self._behind_due: float | None = None
        self._recommended: Mapping[str, str] = {}
        self._moved: dict[int, tuple[object, float]] = {}
        self._heard, self._patience = 0.0, _HEARD_SECONDS
        self._written: dict[Period, Written] = {}
        self._parts: Mapping[str, int] = {}
        self._heartbeat: Callable[[], object] = lambda: None

    def run(self, stopping: threading.Event, every: float, heartbeat: Callable[[], object]) -> None:
        """Ticks until ``stopping`` is set, then once more for the last commit.

        Calls ``heartbeat`` between ticks and during long ticks. The commit of a transaction can block indefinitely.
        """
        self._heartbeat = heartbeat
        while not stopping.wait(self._seconds_until_tick(every)):
            self.tick()
            self._events.ticked()
            heartbeat()
        self.tick()
        self._let_go()

    def _seconds_until_tick(self, every: float) -> float:
        waits_for_epoch = self._group.epoch() is None
        new = self._taken_over is not None and self._clock() < self._taken_over + every
        return min(every, _SOON_SECONDS) if waits_for_epoch or new else every

    def tick(self) -> None:
        """Publishes a snapshot if it is new and this worker owns partition 0.

        Exactly-once publishing depends on the order of the steps. After a failure, readers see all of a snapshot or
        none of it, and the next tick reads the head first.

        1. Check in the store that this worker owns partition 0.
        2. Open the snapshot producer if it is closed. That fences older publishers, aborts an open transaction, and
           reads the head once no transaction below the topic's end is open.
        3. Read the cut, each partition in one step.
        4. Compare the cut with the head. Continue only if there is new content, or if the head was deleted.
        5. Take the snapshot: compute the estimate by each method, and encode messages.
        6. Check in the store again that this worker owns partition 0.
        7. Begin a transaction, and send each message.
        8. Wait for the acknowledgement of each message.
        9. Commit the transaction.
        10. Store the snapshot as the head.

        Raises:
            StateLost: the stored counts or the published snapshots belong to another stream.
        """
        try:
            # Step 1.
            lineage = self._owns()
            self._events.publishing(lineage is not None)
            if lineage is None:
                self._let_go()
                return
            # Step 2.
            if opens := self._head is None:
                self._head = self._open(lineage)
            began = time.perf_counter()
            # Step 3.
            partitions = self._group.partitions()  # read once, because the topic may grow in the meantime
            stored = self._read(partitions)
            # Step 4.
            if (plan := self._plan(self._head, stored, partitions, opens=opens)) is None:
                return
            otherwise = self._recommender.methods != self._recommended or not self._content.rows.is_recorded(
                self._head
            )
            new, seconds = plan.is_new(self._content, otherwise=otherwise), None
            if new or self._is_gone(plan):
                # Steps 5 to 10.
                if not self._publish(lineage, plan):
                    return
                seconds = time.perf_counter() - began
            self._emit_windows_closed(plan.stored)
            if seconds is not None or not plan.is_held_back:
                self._events.checked(seconds)
        except Unavailable as error:
            self._events.publish_failed(error)
            self._let_go()

    def _owns(self) -> str | None:
        """Returns partition 0's lineage, or None if this worker does not own it."""
        epoch = self._group.epoch()
        if epoch is None:
            return None
        metadata = peek(self._fleet, self._state_reader, PARTITION)
        return metadata.lineage if metadata is not None and metadata.epoch == epoch else None

    def _open(self, lineage: str) -> Head:
        head = self._snapshot_producer.open()
        if head.sequence and (differing := head.foreign(self._fleet, lineage)):
            raise foreign(self._fleet, head, differing)
        self._events.info("publisher.opened", sequence=head.sequence)
        self._taken_over = self._clock()
        return head

    def _read(self, partitions: Sequence[int]) -> StoredCut:
        stored = stored_cut.read(
            self._fleet, self._state_reader, partitions, self._group.uncounted, self._heartbeat
        )
        if stored.uncounted != self._warned:
            self._warned = stored.uncounted
            if stored.uncounted:
                self._events.warning("snapshot.uncounted", partitions=stored.uncounted)
        return stored

    def _plan(self, head: Head, stored: StoredCut, partitions: Sequence[int], *, opens: bool) -> Plan | None:
        """Compares a cut with the head; None if the publisher has to wait."""
        recorded = Recorded.of(head, stored.states.values(), self._fleet)
        if self._waits_for(recorded.unnamed):
            return None
        plan = Plan.of(recorded, head, stored, partitions, self._still(stored, partitions))
        self._warn_if_renumbered(plan, opens=opens)
        if head.behind(plan.cut):
            # the store was rolled back: the owners detect that, and read the log again
            self._warn_behind(plan)
            return None
        self._behind_due = None
        plan.demand_consistent(self._fleet)
        fewest = stored.fewest_new
        return releasing(plan, self._newest(head), fewest) if fewest > 1 else plan

    def _waits_for(self, unnamed: Sequence[str]) -> bool:
        """Reports recorded documents that are not configured, if any."""
        remedy = "list it in documents or retired"
        if unnamed != self._unnamed:
            self._unnamed = unnamed
            self._events.documents_unnamed(unnamed, remedy)
        if unnamed:
            why = f"document {', '.join(unnamed)} is recorded and the configuration does not name it"
            self._events.publish_failed(Unavailable(why, remedy))
        return bool(unnamed)

    def _newest(self, head: Head) -> Published | None:
        """Returns the published counts, or None if the messages do not show them.

        After a take-over they are read from the snapshot topic, where they were published together with the head.
        Without a limit, only the messages of a single document show its newest counts.
        """
        if self._published is not None:
            return self._published
        name, producer = self._fleet.name, self._snapshot_producer
        if not head.reports:
            self._published = {}
        elif head.released is not None:
            read = partial(released_cells.assemble, name, head.counted)
            self._published = producer.newest(f"{name}@", read) or self._demand_newest(head)
        else:
            documents = [one for one in self._fleet.documents if one.fingerprint.hex() in head.documents]
            if len(documents) > 1 or documents[0].segment is not None:
                return None
            newest = producer.newest(f"{name}/", partial(assemble, name))
            if newest is None or newest.sequence != head.sequence:
                self._demand_newest(head)
            counts = Counts(newest.reports, newest.estimate().known_counts().astype(np.int64))
            rest = Rest(0, head.offsets, release.lost_offsets(head.gaps))
            self._published = {(documents[0].fingerprint.hex(), ""): Shown(counts, counts, rest)}
        return self._published

    def _demand_newest(self, head: Head) -> NoReturn:
        """Raises the error for missing messages of a snapshot."""
        if self._snapshot_producer.head(decided=True).sequence != head.sequence:
            raise Unavailable(f"another publisher has replaced snapshot {head.sequence}")
        raise StateLost(
            f"stream {self._fleet.name!r}: the messages of snapshot {head.sequence} are missing on the snapshot"
            " topic, so the size of the next increment is unknown.",
            f"delete the message {self._fleet.name}/head, or {NEW_NAME}. Either can publish a difference of fewer"
            f" reports than fewest_new",
        )

    def _is_gone(self, plan: Plan) -> bool:
        """Returns whether the head was deleted before all owners read it."""
        states = plan.stored.states
        named = [states[p] for p in plan.head.floors if p in states]
        if all(state.waits_at is None for state in named):
            self._heard, self._patience = self._clock(), _HEARD_SECONDS
            return False
        if self._clock() < self._heard + self._patience:
            return False
        self._heard, self._patience = self._clock(), 2 * self._patience
        return self._snapshot_producer.head(decided=True).sequence < plan.head.sequence

    def _warn_behind(self, plan: Plan) -> None:
        if self._behind_due is None or self._clock() >= self._behind_due:
            self._behind_due = self._clock() + _BEHIND_SECONDS
            head, cut = dict(plan.head.offsets), dict(plan.cut.offsets)
            self._events.warning("snapshot.behind", head=head, cut=cut)

    def _warn_if_renumbered(self, plan: Plan, *, opens: bool) -> None:
        enough = plan.reports >= max(1, plan.stored.fewest_new)
        if opens and not plan.head.sequence and enough and (self._group.epoch() or 0) > 1:
            self._events.warning(
                "snapshot.renumbered",
                reports=plan.reports,
                why="the snapshot topic has no head of the stream: it was deleted or never published. Numbers restart"
                " at 1",
                remedy="set cleanup.policy=compact on the snapshot topic",
            )

    def _emit_windows_closed(self, stored: StoredCut) -> None:
        marks = [
            state.windows.watermark for state in stored.states.values() if state.windows.watermark is not None
        ]
        names = [{*state.windows.first_start} for state in stored.states.values()]
        if self._head is not None and marks and (shared := set.intersection(*names)):
            ends = closed(self._head.progress)
            ends = {name: ends[name] for name in sorted(shared & ends.keys())}
            self._events.windows_closed(ends, max(marks))

    def _still(self, stored: StoredCut, partitions: Sequence[int]) -> Callable[[int], bool]:
        """Returns a function that decides whether a partition is idle.

        A partition is idle if its watermark has not advanced for `idle_timeout`, even if its offset has.
        """
        now = self._clock()
        for partition in partitions:
            state = stored.states.get(partition)
            at = None if state is None else ("begun", state.windows.watermark)
            if self._moved.get(partition, (-1, now))[0] != at:
                self._moved[partition] = at, now
        most = self._content.idle_timeout
        return lambda partition: now - self._moved.get(partition, (None, now))[1] >= most

    def _publish(self, lineage: str, plan: Plan) -> bool:
        """Publishes a planned snapshot; returns False if ownership was lost."""
        # Step 5.
        due = list[Due]()
        if plan.announces:
            taken = taking.announce(plan, self._content, lineage)
        else:
            # a limit of increments has deleted the open windows
            shown = (
                set() if plan.release or plan.windows is None else {one.period for one in plan.windows.due}
            )
            self._written = {period: by for period, by in self._written.items() if period in shown}
            due, recommended = plan.due(self._written), self._recommender.latest
            queries = queries_of(tuple(self._content.queries), self._fleet, plan.recorded.fleet)
            content, rows = replace(self._content, queries=queries), self._snapshot_producer.rows
            taken = taking.take(plan, due, content, lineage, recommended, self._parts, rows, self._heartbeat)
        # Step 6.
        if self._owns() != lineage:
            return False
        # Steps 7 to 9 are in the snapshot producer.
        sequence = taken.snapshot.sequence
        self._snapshot_producer.publish(sequence, taken.messages, taken.rows)
        # Step 10.
        self._taken_over = None
        self._head = Head.of(taken.snapshot)
        released = plan.release
        self._published = None if released is None else {key: own.shown for key, own in released.items()}
        self._heard = self._clock()
        if taken.estimate is not None:
            self._written |= {one.period: plan.written(one) for one in due}
            self._parts = taken.parts
            self._recommended = {name: found.method for name, found in taken.snapshot.recommended.items()}
            self._show(taken)
        return True

    def _show(self, taken: Taken) -> None:
        """Reports a snapshot; with one document, compares its final windows."""
        estimate = taken.estimate
        if isinstance(estimate, FleetEstimate):
            deviation = max((one.sum_deviation for one in estimate.counted), key=abs)
            self._events.published(taken.snapshot, deviation, taken.rest_ratio)
        elif estimate is not None:
            self._events.published(taken.snapshot, estimate.sum_deviation, taken.rest_ratio)
            if len(self._fleet.documents) == 1:  # otherwise configured queries can have other indices
                self._recommender.offer(taken.snapshot.sequence, estimate)
                finals = [(window, one) for window, one in taken.finals if isinstance(one, ldp.Estimate)]
                self._comparer.compare(finals, self._events.compared)

    def _let_go(self) -> None:
        self._head = self._published = self._taken_over = None
        self._written.clear()
        self._parts = {}
        self._snapshot_producer.close()
