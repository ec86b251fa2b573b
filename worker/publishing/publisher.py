"""Snapshots out: a consistent cut of the store becomes one transaction on the snapshot topic.

What was published is itself the record of what was published: the head, a message of the same transaction, carries the
sequence and the offsets. A publisher that starts, or that is in any doubt, reads the head back and goes on from there.
Partitions do not depend on each other, so any set of per-partition states, each read in one step, is a consistent cut.
"""

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any
from uuid import uuid4

import ldp
from ldp import snapshot
from ldp.consistency import METHODS
from ldp.query import Query
from ldp.snapshot import Cut, Line, Message, Period, Row, Snapshot
from worker.counting.changed import NEW_NAME
from worker.counting.claim import foreign, peek
from worker.counting.head import Head, named
from worker.counting.partition import Cell
from worker.counting.ports import Cuts, Events, Outbox, StateLost, Unavailable
from worker.publishing import cuts, lines
from worker.publishing.comparing import Comparer
from worker.publishing.cuts import StoredCut
from worker.publishing.lines import Due, Lines
from worker.publishing.recommender import Recommender
from worker.publishing.rows import RowTopic

Written = tuple[frozenset[tuple[int, str, str]], bool]

PARTITION = 0
"""Who counts this partition of a stream's topic publishes its snapshots."""
IDLE_SECONDS = 300.0
"""For how long a partition stands still before it is called idle, where the configuration does not say."""
_SOON_SECONDS = 0.2
"""How often is looked whether this worker has become the publisher, and then, for a while, what is new."""
_BEHIND_SECONDS = 60.0
"""How often is said that the counts are behind what was published."""
_HEARD_SECONDS = 10.0
"""How soon owners have taken from a head what they wait for; then it is looked for, and next after twice as long."""


class Publisher:
    """Publishes one stream's snapshots while its worker owns partition 0.

    Args:
        stream: whose snapshots.
        queries: what they answer.
        cuts: where the counts are read.
        outbox: where the snapshots go.
        partitions: the topic's partitions, at the moment.
        uncounted: given the partitions that have no counts, each with whether it was claimed, returns those that ought
            to have some; see `worker.kafka.group`.
        epoch: the epoch under which this worker holds partition 0 as far as it knows, or None; safe from any thread.
        level: confidence level of Base's intervals.
        fewest_new: a snapshot with fewer new reports than that, but some, is held back, unless who has no room waits.
        recommender: what knows the method for each query.
        events: told what happens.
        idle_after: for how many seconds a partition stands still before it is called idle.
        retain: for how long after its end the messages of a window stay, in milliseconds; None for ever.
        clock: seconds.
        rows: the topic of rows; None for none.
        methods: those whose bodies a snapshot has, Base among them.
        comparer: what finds what changed from window to window; None for nobody.
        compact: whether long vectors are rounded and in short chunks, which schema 1's readers refuse.
    """

    def __init__(
        self,
        stream: ldp.Stream,
        queries: Sequence[Query],
        cuts: Cuts,
        outbox: Outbox,
        partitions: Callable[[], Sequence[int]],
        uncounted: Callable[[Mapping[int, bool]], Sequence[int]],
        epoch: Callable[[], int | None],
        level: float,
        fewest_new: int,
        recommender: Recommender,
        events: Events,
        idle_after: float = IDLE_SECONDS,
        retain: int | None = None,
        clock: Callable[[], float] = time.monotonic,
        rows: RowTopic | None = None,
        methods: Sequence[str] = tuple(METHODS),
        comparer: Comparer | None = None,
        compact: bool = False,
    ) -> None:
        self._stream, self._queries, self._level = stream, queries, level
        self._cuts, self._outbox = cuts, outbox
        self._fewest_new, self._recommender = fewest_new, recommender
        self._partitions, self._uncounted, self._epoch = partitions, uncounted, epoch
        self._events = events
        self._rows = RowTopic(stream.name) if rows is None else rows
        self._comparer = Comparer() if comparer is None else comparer
        self._head: Head | None = None
        self._taken_over: float | None = None
        self._warned: Sequence[int] = ()
        self._behind_due: float | None = None
        self._recommended: Mapping[str, str] = {}
        self._methods, self._compact = tuple(methods), compact
        self._idle_after, self._retain, self._clock = idle_after, retain, clock
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
        waits_for_epoch = self._epoch() is None
        new = self._taken_over is not None and self._clock() < self._taken_over + every
        return min(every, _SOON_SECONDS) if waits_for_epoch or new else every

    def tick(self) -> None:
        """Publishes a snapshot if there is something new to say and this worker is the one to say it.

        The steps, in the only safe order. Whatever becomes of one, readers have all of a snapshot or nothing of it, and
        after any doubt the next tick begins with the head:

        1. The store says whether this worker holds partition 0.
        2. The outbox is opened, if it is not: every older publisher is fenced off, what one left open is aborted, and
           the head is read, once all below the topic's end is decided.
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
            partitions = self._partitions()  # asked once: the topic may grow meanwhile
            stored = cuts.read(self._stream, self._cuts, partitions, self._uncounted, self._on_alive)
            self._warn(stored.uncounted)
            still = self._still(stored, partitions)
            planned = lines.decide(self._head, stored.states, partitions, still)
            cut, reports = _cut(stored, planned), sum(state.reports for state in stored.states.values())
            self._warn_of_numbers(reports, opens=opens)
            # Step 4.
            if self._head.behind(cut):
                # the store went back: its owners notice, read the log again and catch up
                self._warn_behind(cut)
                return
            self._behind_due = None
            new, seconds = self._is_new(cut, reports), None
            admits = cut.floors.keys() > self._head.floors.keys()
            held_back = new and not admits and self._is_held_back(cut, stored, reports)
            if (new and not held_back) or self._is_gone(stored):
                if not self._publish(lineage, cut, stored, planned, reports):
                    return
                held_back, seconds = False, time.perf_counter() - began
            self._tell(stored)
            if not held_back:
                self._events.checked(seconds)
        except Unavailable as error:
            self._events.publish_failed(error)
            self._let_go()

    def _owns(self) -> str | None:
        """Returns the lineage of partition 0 if it is ours in the store, too, else None.

        A fenced publisher must not fence its successor.
        """
        epoch = self._epoch()
        if epoch is None:
            return None
        metadata = peek(self._stream, self._cuts, PARTITION)
        return metadata.lineage if metadata is not None and metadata.epoch == epoch else None

    def _open(self, lineage: str) -> Head:
        head = self._outbox.open()
        if head.sequence and (differing := head.foreign(lineage)):
            raise foreign(self._stream, head, differing)
        self._events.opened(head.sequence)
        self._taken_over = self._clock()
        return head

    def _is_new(self, cut: Cut, reports: int) -> bool:
        """Returns whether there is something to say that the head does not: by a cut that is not behind it, or beside.

        Raises:
            StateLost: it has fewer reports though no more of the log is lost, or counts by other rules.
        """
        head = self._head
        assert head is not None
        if differing := head.contradicts(cut):
            raise StateLost(
                f"stream {self._stream.name!r}: partition {', '.join(map(str, differing))} is counted in Redis by other"
                f" rules than snapshot {head.sequence} says.",
                f"restore Redis, or {NEW_NAME}",
            )
        if reports < head.reports and cut.gaps == head.gaps:
            raise StateLost(
                f"stream {self._stream.name!r}: Redis has {reports} reports, but snapshot {head.sequence} has"
                f" {head.reports} and no more of the log is lost.",
                f"restore Redis, or {NEW_NAME}",
            )
        if not reports:
            return cut.floors.keys() > head.floors.keys()
        if self._recommender.methods != self._recommended or not self._rows.is_said(head):
            return True
        if {*head.methods} != {*self._methods}:
            return True
        said = head.offsets, head.gaps, head.uncounted, head.rules, head.floors, _closed(head.lines)
        return (cut.offsets, cut.gaps, cut.uncounted, cut.rules, cut.floors, _closed(cut.lines)) != said

    def _is_held_back(self, cut: Cut, stored: StoredCut, reports: int) -> bool:
        """Returns whether too little is new; but who has no room for more panes waits for windows to be final."""
        assert self._head is not None
        if any(state.full for state in stored.states.values()):
            return False
        changed = reports != self._head.reports or cut.gaps != self._head.gaps
        few = changed and abs(reports - self._head.reports) < self._fewest_new
        return few or reports < self._fewest_new

    def _is_gone(self, stored: StoredCut) -> bool:
        """Returns whether the head was deleted before the partitions that it names for the first time had read it.

        They would wait for ever: nothing new is counted before they are named.
        """
        assert self._head is not None
        named = [stored.states[p] for p in self._head.floors if p in stored.states]
        if all(state.waits_at is None for state in named):
            self._heard, self._patience = self._clock(), _HEARD_SECONDS
            return False
        if self._clock() < self._heard + self._patience:
            return False
        self._heard, self._patience = self._clock(), 2 * self._patience
        return self._outbox.head(decided=True).sequence < self._head.sequence

    def _warn_behind(self, cut: Cut) -> None:
        """Emits the event once, then once a minute: there are several ticks a second until the owners caught up."""
        assert self._head is not None
        if self._behind_due is None or self._clock() >= self._behind_due:
            self._behind_due = self._clock() + _BEHIND_SECONDS
            self._events.behind(self._head, cut)

    def _warn(self, uncounted: Sequence[int]) -> None:
        if uncounted != self._warned:
            self._warned = uncounted
            if uncounted:
                self._events.uncounted(uncounted)

    def _warn_of_numbers(self, reports: int, *, opens: bool) -> None:
        """Warns if numbers restart at 1, though an owner before this one had reports enough for a snapshot."""
        assert self._head is not None
        if (
            opens
            and not self._head.sequence
            and reports >= max(1, self._fewest_new)
            and (self._epoch() or 0) > 1
        ):
            self._events.renumbered(reports)

    def _tell(self, stored: StoredCut) -> None:
        """Tells how far the windows are closed that every partition counts."""
        marks = [state.watermark for state in stored.states.values() if state.watermark is not None]
        names = [{*state.since} for state in stored.states.values()]
        if self._head is not None and marks and (shared := set.intersection(*names)):
            closed = _closed(self._head.lines)
            self._events.lines({name: closed[name] for name in sorted(shared & closed.keys())}, max(marks))

    def _still(self, stored: StoredCut, partitions: Sequence[int]) -> Callable[[int], bool]:
        """Returns what says whether a partition has stood still for so long that it is idle, by this one's clock.

        Only time moves a line: what is malformed or late, or a transaction's marker, moves the offset alone.
        """
        now = self._clock()
        for partition in partitions:
            state = stored.states.get(partition)
            at = None if state is None else ("begun", state.watermark)
            if self._moved.get(partition, (-1, now))[0] != at:
                self._moved[partition] = at, now
        return lambda partition: now - self._moved.get(partition, (None, now))[1] >= self._idle_after

    def _publish(
        self, lineage: str, cut: Cut, stored: StoredCut, planned: Lines | None, reports: int
    ) -> bool:
        """Publishes the snapshot of all time, and those of the windows that are final now, or open and changed.

        Returns whether it did.
        """
        assert self._head is not None
        # so early that only partitions are admitted
        if not reports or (not self._head.reports and self._is_held_back(cut, stored, reports)):
            return self._announce(lineage, cut)
        stream, sequence, unique = self._stream, self._head.sequence + 1, uuid4().hex
        due = [] if planned is None else self._due(planned, stored)
        periods, come = [one.period for one in due], 0 if planned is None else planned.come
        after, gone = lines.kept(cut.lines, periods, self._retain, come, self._rows.most_windows)
        plan = self._rows.plan(self._head, after, periods, self._retain, come, self._outbox.rows)
        take = partial(
            self._taken,
            cut=replace(cut, lines=after, rows=plan.rows, methods=_said(self._methods)),
            sequence=sequence,
            queries=self._queries,
            level=self._level,
            methods=self._methods,
            lineage=named(self._stream, lineage),
            identity=unique,
        )
        # Step 5.
        estimate = self._estimate(stored.total(stream))
        taken = take(estimate=estimate, recommended=self._recommender.latest)
        # the head lists whose bodies there may be: those that are not written any more go, also of the open windows
        former = [method for method in self._head.methods if method not in self._methods]
        messages = snapshot.encode(taken, compact=self._compact)
        messages += snapshot.delete_window(taken, taken.window, former)
        rows = [*plan.of(taken), *plan.stale]
        finals = list[tuple[Period, ldp.Estimate]]()
        for one in due:
            self._on_alive()
            part = self._estimate(stored.total(stream, one.period.start, one.period.end))
            whole = one.complete and not cut.uncounted
            of_window = take(estimate=part, window=one.period, complete=whole)
            # tombstones first: whoever lists windows by their messages forgets one at a tombstone
            messages += snapshot.delete_window(taken, one.period, former)
            messages += snapshot.encode_window(of_window, compact=self._compact)
            rows += plan.of(of_window)
            finals += [(one.period, part)] if one.period.final and whole else []
        for period in gone:
            messages += snapshot.delete_window(taken, period)
            rows += plan.deleted(period)
        if not self._send(lineage, taken, messages, rows):
            return False
        self._written |= {one.period: _written(stored, one) for one in due}
        self._recommended = {name: found.method for name, found in taken.recommended.items()}
        self._events.published(taken, ldp.query.sum_deviation(estimate))
        self._recommender.offer(sequence, estimate)
        self._comparer.compare(finals, self._events.compared)
        return True

    def _announce(self, lineage: str, cut: Cut) -> bool:
        """Publishes a head alone, which admits partitions and says what the one before it said of windows and rows."""
        assert self._head is not None
        head = self._head
        rows, methods = self._rows.carried(head), _said(head.methods)
        cut = replace(cut, lines=head.lines, reached=head.reached, rows=rows, methods=methods)
        said = named(self._stream, lineage)
        taken = snapshot.announce(self._stream, cut, head.sequence + 1, said, uuid4().hex)
        return self._send(lineage, taken, snapshot.encode(taken))

    def _taken(self, **given: Any) -> Snapshot:
        """Takes a snapshot, whose numbers are as the messages and the rows have them."""
        taken = snapshot.take(self._stream, **given)
        return snapshot.rounded(taken) if self._compact else taken

    def _due(self, planned: Lines, stored: StoredCut) -> list[Due]:
        """Returns the windows that are final now, and of those that are open the ones that have changed."""
        planned_open = {due.period for due in planned.due}
        self._written = {period: by for period, by in self._written.items() if period in planned_open}
        return [due for due in planned.due if self._written.get(due.period) != _written(stored, due)]

    def _estimate(self, counts: Cell) -> ldp.Estimate:
        return self._stream.oracle.estimate_state(counts.state, counts.reports)

    def _send(
        self, lineage: str, taken: Snapshot, messages: Sequence[Message], rows: Sequence[Row] = ()
    ) -> bool:
        """Sends a snapshot, if this worker still is the one to; returns whether it did."""
        # Step 6.
        if self._owns() != lineage:
            return False
        # Steps 7 to 9 are the outbox's.
        self._outbox.publish(taken.sequence, messages, rows)
        # Step 10.
        self._taken_over = None
        self._head = Head.of(taken)
        self._heard = self._clock()
        return True

    def _let_go(self) -> None:
        self._head = self._taken_over = None
        self._written.clear()
        self._outbox.close()


def _cut(stored: StoredCut, planned: Lines | None) -> Cut:
    """Returns where a snapshot cuts the stream."""
    return Cut(
        {partition: state.offset for partition, state in stored.states.items()},
        {partition: state.gaps for partition, state in stored.states.items()},
        stored.uncounted,
        {partition: [rule.as_json() for rule in state.rules] for partition, state in stored.states.items()},
        {} if planned is None else planned.floors,
        {} if planned is None else planned.lines,
        reached=None if planned is None else planned.reached,
    )


def _written(stored: StoredCut, due: Due) -> Written:
    """Returns what tells a window from itself at another time: its panes' commits, and whether they are all."""
    assert due.period.start is not None
    assert due.period.end is not None
    return stored.written(due.period.start, due.period.end), due.complete and not stored.uncounted


def _said(methods: tuple[str, ...]) -> tuple[str, ...] | None:
    """Returns what a head says of methods: those there can be, unless that is all."""
    return methods if len(methods) < len(METHODS) else None


def _closed(listed: Mapping[str, Line]) -> dict[str, int]:
    return {name: line.closed for name, line in listed.items()}
