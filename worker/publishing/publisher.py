"""Snapshots out: a consistent cut of the store becomes one transaction on the snapshot topic.

What was published is itself the record of what was published: the head, a message of the same transaction, carries the
sequence and the offsets. A publisher that starts, or that is in any doubt, reads the head back and goes on from there.
Partitions do not depend on each other, so any set of per-partition states, each read in one step, is a consistent cut.
"""

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from uuid import uuid4

import numpy as np

import ldp
from ldp import snapshot
from ldp.query import Query
from ldp.snapshot import Cut
from worker.counting import layout
from worker.counting.head import Head, foreign, named
from worker.counting.lineage import identity
from worker.counting.ports import Cuts, Events, Outbox, StateLost, Unavailable
from worker.counting.windows import ALL
from worker.publishing.recommender import Recommender

PARTITION = 0
"""Who counts this partition of a stream's topic publishes its snapshots."""


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
        fewest_new: a snapshot with fewer new reports than that, but some, is held back.
        recommender: what knows the method for each query.
        events: told what happens.
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
    ) -> None:
        self._stream, self._queries, self._level = stream, queries, level
        self._cuts, self._outbox = cuts, outbox
        self._fewest_new, self._recommender = fewest_new, recommender
        self._partitions, self._uncounted, self._epoch = partitions, uncounted, epoch
        self._events = events
        self._head: Head | None = None
        self._warned: Sequence[int] = ()
        self._methods: Mapping[str, str] = {}

    def run(self, stopping: threading.Event, every: float, on_alive: Callable[[], object]) -> None:
        """Ticks until stopped, then once more, so that what was committed last is published, too.

        ``on_alive`` is called between ticks: a commit of a transaction can wait for ever, and a watchdog has to see it.
        """
        while not stopping.wait(every):
            self.tick()
            on_alive()
        self.tick()
        self._let_go()

    def tick(self) -> None:
        """Publishes a snapshot if there is something new to say and this worker is the one to say it.

        Raises:
            StateLost: the stored counts, or the snapshots already published, are of another stream.
        """
        try:
            lineage = self._owns()
            self._events.publishing(lineage is not None)
            if lineage is None:
                self._let_go()
                return
            if self._head is None:
                self._head = self._open(lineage)
            began = time.perf_counter()
            cut, counts, reports = self._read()
            if self._head.behind(cut):
                # the store went back: its owners notice, read the log again and catch up
                self._events.behind(self._head, cut)
                return
            seconds = None
            if self._is_new(cut, reports):
                self._publish(self._head.sequence + 1, lineage, cut, counts, reports)
                seconds = time.perf_counter() - began
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
        metadata = self._cuts.peek(PARTITION)
        return metadata.lineage if metadata is not None and metadata.epoch == epoch else None

    def _open(self, lineage: str) -> Head:
        head = self._outbox.open()
        if head.sequence and (differing := head.foreign(lineage)):
            raise StateLost(foreign(self._stream.name, head, differing))
        self._events.opened(head.sequence)
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
                f" rules than snapshot {head.sequence} says. Restore Redis, or give the stream another name."
            )
        if reports < head.reports and cut.gaps == head.gaps:
            raise StateLost(
                f"stream {self._stream.name!r}: Redis has {reports} reports, but snapshot {head.sequence} has"
                f" {head.reports} and no more of the log is lost. Restore Redis, or give the stream another name."
            )
        changed = reports != head.reports or cut.gaps != head.gaps
        if not reports or reports < self._fewest_new:
            return False
        if changed and abs(reports - head.reports) < self._fewest_new:
            return False
        if self._recommender.methods != self._methods:
            return True
        said = head.offsets, head.gaps, head.uncounted, head.rules
        return (cut.offsets, cut.gaps, cut.uncounted, cut.rules) != said

    def _read(self) -> tuple[Cut, Any, int]:
        """Reads all partitions; returns the cut, the sum of their states and of their reports."""
        offsets, gaps, without, ruled = {}, {}, {}, {}
        total = self._stream.oracle.zeros()
        reports, lineages = 0, list[str]()
        for partition in sorted(self._partitions()):
            stored = self._cuts.cut(partition)
            if stored is None or not stored.metadata.flush:
                without[partition] = stored is not None
            if stored is None:
                continue
            lineages.append(stored.metadata.lineage)
            if identity(lineages[-1]) != identity(lineages[0]):
                raise StateLost(
                    f"the partitions of stream {self._stream.name!r} are counted as {sorted({*lineages})}"
                )
            state = layout.load(self._stream, stored.metadata, stored.blobs)
            offsets[partition], gaps[partition] = state.offset, state.gaps
            ruled[partition] = [rule.as_json() for rule in state.rules]
            np.add(total, state.cells[ALL].state, out=total)
            reports += state.cells[ALL].reports
        asked = self._uncounted(without) if without else []
        # one that was committed meanwhile is no longer without
        uncounted = [p for p in asked if (found := self._cuts.peek(p)) is None or not found.flush]
        if uncounted != self._warned:
            self._warned = uncounted
            if uncounted:
                self._events.uncounted(uncounted)
        return Cut(offsets, gaps, uncounted, ruled), total, reports

    def _publish(self, sequence: int, lineage: str, cut: Cut, total: Any, reports: int) -> None:
        oracle = self._stream.oracle
        estimate = oracle.estimate(oracle.support(total), reports)
        taken = snapshot.take(
            self._stream,
            estimate,
            cut,
            sequence,
            self._queries,
            self._level,
            recommended=self._recommender.latest,
            lineage=named(lineage),
            identity=uuid4().hex,
        )
        messages = snapshot.encode(taken)
        if self._owns() != lineage:
            return
        self._outbox.publish(sequence, messages)
        self._head = Head.of(taken)
        self._methods = {name: found.method for name, found in taken.recommended.items()}
        self._events.published(taken, ldp.query.sum_deviation(estimate))
        self._recommender.offer(sequence, estimate)

    def _let_go(self) -> None:
        self._head = None
        self._outbox.close()
