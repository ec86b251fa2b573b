"""Snapshots out: a consistent cut of the store becomes one transaction on the snapshot topic.

What was published is itself the record of what was published: the head, a message of the same transaction, carries the
sequence and the offsets. A publisher that starts, or that is in any doubt, reads the head back and goes on from there.
Partitions do not depend on each other, so any set of per-partition states, each read in one step, is a consistent cut.
"""

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import ldp
from ldp.snapshot import Period
from worker.counting.claim import foreign, peek
from worker.counting.head import Head
from worker.counting.ports import Events, SnapshotProducer, StateReader, Unavailable
from worker.publishing import cuts, taking
from worker.publishing.comparing import Comparer
from worker.publishing.cuts import StoredCut
from worker.publishing.lines import Due
from worker.publishing.planning import Content, Plan, Written, closed
from worker.publishing.recommender import Recommender

PARTITION = 0
"""Who counts this partition of a stream's topic publishes its snapshots."""
_SOON_SECONDS = 0.2
"""How often is looked whether this worker has become the publisher, and then, for a while, what is new."""
_BEHIND_SECONDS = 60.0
"""How often is said that the counts are behind what was published."""
_HEARD_SECONDS = 10.0
"""How soon owners have taken from a head what they wait for; then it is looked for, and next after twice as long."""


@dataclass(frozen=True)
class Group:
    """The topic and its consumer group, as a publisher sees them at the moment.

    Attributes:
        partitions: returns the topic's partitions.
        uncounted: given the partitions that have no counts, each with whether it was claimed, returns those that ought
            to have some; see `worker.kafka.reports.group`.
        epoch: returns the epoch under which this worker holds partition 0 as far as it knows, or None; safe from any
            thread.
    """

    partitions: Callable[[], Sequence[int]]
    uncounted: Callable[[Mapping[int, bool]], Sequence[int]]
    epoch: Callable[[], int | None]


class Publisher:
    """Publishes one stream's snapshots while its worker owns partition 0.

    Args:
        stream: whose snapshots.
        content: what they have beside the counts.
        cuts: where the counts are read.
        snapshot_producer: where the snapshots go.
        group: the topic's partitions, and who counts them.
        recommender: what knows the method for each query.
        events: told what happens.
        clock: seconds.
    """

    def __init__(
        self,
        stream: ldp.Stream,
        content: Content,
        cuts: StateReader,
        snapshot_producer: SnapshotProducer,
        group: Group,
        recommender: Recommender,
        events: Events,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._stream, self._content = stream, content
        self._cuts, self._snapshot_producer, self._group = cuts, snapshot_producer, group
        self._recommender, self._events, self._clock = recommender, events, clock
        self._comparer = Comparer(content.queries, content.changed_level, content.changed_at_least)
        self._head: Head | None = None
        self._taken_over: float | None = None
        self._warned: Sequence[int] = ()
        self._behind_due: float | None = None
        self._recommended: Mapping[str, str] = {}
        self._moved: dict[int, tuple[object, float]] = {}
        self._heard, self._patience = 0.0, _HEARD_SECONDS
        self._written: dict[Period, Written] = {}
        self._on_alive: Callable[[], object] = lambda: None

    def run(self, stopping: threading.Event, every: float, on_alive: Callable[[], object]) -> None:
        """Ticks until stopped, then once more, so that what was committed last is published, too.

        ``on_alive`` is called between ticks, and within those that take long: a commit of a transaction can wait for
        ever, and a watchdog has to see it.
        """
        self._on_alive = on_alive
        while not stopping.wait(self._wait(every)):
            self.tick()
            self._events.ticked()
            on_alive()
        self.tick()
        self._let_go()

    def _wait(self, every: float) -> float:
        """Returns the seconds until the next tick: few before the first snapshot of a publisher that took over.

        Readers have waited since the one before went away. Where nothing is new, that ends after ``every`` seconds.
        """
        waits_for_epoch = self._group.epoch() is None
        new = self._taken_over is not None and self._clock() < self._taken_over + every
        return min(every, _SOON_SECONDS) if waits_for_epoch or new else every

    def tick(self) -> None:
        """Publishes a snapshot if there is something new to say and this worker is the one to say it.

        The steps, in the only safe order. Whatever becomes of one, readers have all of a snapshot or nothing of it, and
        after any doubt the next tick begins with the head:

        1. The store says whether this worker holds partition 0.
        2. The snapshot producer is opened, if it is not: every older publisher is fenced off, what one left open is
           aborted, and the head is read, once all below the topic's end is decided.
        3. The cut is read, each partition as it stands at one moment.
        4. The head says whether the cut is behind it, contradicts it, or has something new; or it was deleted.
        5. The snapshot is taken: the estimate, by each method, as messages.
        6. The store says once more whether this worker holds partition 0.
        7. A transaction begins, and each message is sent.
        8. Each message's own acknowledgement has come.
        9. The transaction is committed.
        10. The snapshot is the head.

        Raises:
            StateLost: the stored counts, or the snapshots already published, are of another stream.
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
            plan = self._plan(self._head)
            self._warn_of_numbers(plan, opens=opens)
            # Step 4.
            if self._head.behind(plan.cut):
                # the store went back: its owners notice, read the log again and catch up
                self._warn_behind(plan)
                return
            self._behind_due = None
            plan.demand_consistent(self._stream)
            otherwise = self._recommender.methods != self._recommended or not self._content.rows.is_said(
                self._head
            )
            new, seconds = plan.is_new(self._content, otherwise=otherwise), None
            held_back = new and not plan.admits and plan.is_held_back(self._content)
            if (new and not held_back) or self._is_gone(plan):
                # Steps 5 to 10.
                if not self._publish(lineage, plan):
                    return
                held_back, seconds = False, time.perf_counter() - began
            self._tell(plan.stored)
            if not held_back:
                self._events.checked(seconds)
        except Unavailable as error:
            self._events.publish_failed(error)
            self._let_go()

    def _owns(self) -> str | None:
        """Returns the lineage of partition 0 if it is ours in the store, too, else None.

        A fenced publisher must not fence its successor.
        """
        epoch = self._group.epoch()
        if epoch is None:
            return None
        metadata = peek(self._stream, self._cuts, PARTITION)
        return metadata.lineage if metadata is not None and metadata.epoch == epoch else None

    def _open(self, lineage: str) -> Head:
        head = self._snapshot_producer.open()
        if head.sequence and (differing := head.foreign(lineage)):
            raise foreign(self._stream, head, differing)
        self._events.info("publisher.opened", sequence=head.sequence)
        self._taken_over = self._clock()
        return head

    def _plan(self, head: Head) -> Plan:
        """Reads a cut, and plans its snapshot."""
        partitions = self._group.partitions()  # asked once: the topic may grow meanwhile
        stored = cuts.read(self._stream, self._cuts, partitions, self._group.uncounted, self._on_alive)
        if stored.uncounted != self._warned:
            self._warned = stored.uncounted
            if stored.uncounted:
                self._events.warning("snapshot.uncounted", partitions=stored.uncounted)
        return Plan.of(head, stored, partitions, self._still(stored, partitions))

    def _is_gone(self, plan: Plan) -> bool:
        """Returns whether the head was deleted before the partitions that it names for the first time had read it.

        They would wait for ever: nothing new is counted before they are named.
        """
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
        """Emits the event once, then once a minute: there are several ticks a second until the owners caught up."""
        if self._behind_due is None or self._clock() >= self._behind_due:
            self._behind_due = self._clock() + _BEHIND_SECONDS
            head, cut = dict(plan.head.offsets), dict(plan.cut.offsets)
            self._events.warning("snapshot.behind", head=head, cut=cut)

    def _warn_of_numbers(self, plan: Plan, *, opens: bool) -> None:
        """Warns if numbers restart at 1, though an owner before this one had reports enough for a snapshot."""
        enough = plan.reports >= max(1, self._content.fewest_new)
        if opens and not plan.head.sequence and enough and (self._group.epoch() or 0) > 1:
            self._events.warning(
                "snapshot.renumbered",
                reports=plan.reports,
                why="no head of the stream is on the snapshot topic: deleted, or none was published; numbers restart at"
                " 1",
                remedy="set cleanup.policy=compact on the snapshot topic",
            )

    def _tell(self, stored: StoredCut) -> None:
        """Tells how far the windows are closed that every partition counts."""
        marks = [
            state.windows.watermark for state in stored.states.values() if state.windows.watermark is not None
        ]
        names = [{*state.windows.first_start} for state in stored.states.values()]
        if self._head is not None and marks and (shared := set.intersection(*names)):
            ends = closed(self._head.lines)
            self._events.lines({name: ends[name] for name in sorted(shared & ends.keys())}, max(marks))

    def _still(self, stored: StoredCut, partitions: Sequence[int]) -> Callable[[int], bool]:
        """Returns what says whether a partition has stood still for so long that it is idle, by this one's clock.

        Only time moves a line: what is malformed or late, or a transaction's marker, moves the offset alone.
        """
        now = self._clock()
        for partition in partitions:
            state = stored.states.get(partition)
            at = None if state is None else ("begun", state.windows.watermark)
            if self._moved.get(partition, (-1, now))[0] != at:
                self._moved[partition] = at, now
        return lambda partition: now - self._moved.get(partition, (None, now))[1] >= self._content.idle_after

    def _publish(self, lineage: str, plan: Plan) -> bool:
        """Publishes a planned snapshot, if this worker still is the one to; returns whether it did."""
        # Step 5.
        due = list[Due]()
        if plan.announces(self._content):
            taken = taking.announce(self._stream, plan, self._content, lineage)
        else:
            open_now = set() if plan.windows is None else {one.period for one in plan.windows.due}
            self._written = {period: by for period, by in self._written.items() if period in open_now}
            due, recommended = plan.due(self._written), self._recommender.latest
            what = plan, due, self._content, lineage, recommended
            taken = taking.take(self._stream, *what, self._snapshot_producer.rows, self._on_alive)
        # Step 6.
        if self._owns() != lineage:
            return False
        # Steps 7 to 9 are the snapshot producer's.
        sequence = taken.snapshot.sequence
        self._snapshot_producer.publish(sequence, taken.messages, taken.rows)
        # Step 10.
        self._taken_over = None
        self._head = Head.of(taken.snapshot)
        self._heard = self._clock()
        if taken.estimate is not None:
            self._written |= {one.period: plan.written(one) for one in due}
            self._recommended = {name: found.method for name, found in taken.snapshot.recommended.items()}
            self._events.published(taken.snapshot, ldp.query.sum_deviation(taken.estimate))
            self._recommender.offer(sequence, taken.estimate)
            self._comparer.compare(taken.finals, self._events.compared)
        return True

    def _let_go(self) -> None:
        self._head = self._taken_over = None
        self._written.clear()
        self._snapshot_producer.close()
