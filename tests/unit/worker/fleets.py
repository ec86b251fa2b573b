"""A stream of several documents and segments in memory: counted partitions, the worker's publisher, and its topic.

The worker's code counts and publishes frames. This file's own code recounts the published counts.
"""

import json
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, cast

import numpy as np

import ldp
from ldp import frames
from ldp.snapshot import Incomplete, Message, Received, Snapshot, assemble, assemble_window
from worker.audit.comparison import assess
from worker.audit.parsing import by_fingerprint
from worker.audit.records import Records
from worker.audit.snapshots import Message as Audited
from worker.audit.verdict import Compared, StreamVerdict
from worker.audit.verification import published_of
from worker.counting import layout
from worker.counting.columns import Batch, Columns
from worker.counting.documents import Document
from worker.counting.head import Head
from worker.counting.lineage import lineage_of
from worker.counting.partition_state import PartitionState
from worker.counting.ports import Metadata, Read, StoredPartition
from worker.counting.rules import RecordLimits, RequestedRule, Rule, Status
from worker.counting.windows import Windowing
from worker.observe.events import StreamEvents
from worker.observe.metrics import Metrics
from worker.observe.progress import SERVING, Progress
from worker.publishing.planning import Content
from worker.publishing.publisher import Group, Publisher
from worker.publishing.recommender import Recommender

SECOND = 1000
HOPPING = Windowing(("all", "1s", "2s every 1s"), grace=500, max_out_of_orderness=500)
OLD = ldp.Stream("fleet", ldp.GRR("1", 3), ["red", "green", "blue"])
NEW = ldp.Stream("fleet", ldp.GRR("2", 4), ["blue", "grey", "red", "pink"])
OTHER = ldp.Stream("fleet", ldp.GRR("1/2", 2), ["pink", "cyan"])


Sending = tuple[str, dict[str, bytes], bytes]
"""Key, headers and value of a message."""


@dataclass(frozen=True)
class Sent:
    """A counted report; `pane` is the start of its pane, or None if it is late."""

    document: ldp.Stream
    value: int
    segment: str
    pane: int | None


class Fleet:
    """Partitions that count reports of several documents, and their publisher."""

    def __init__(
        self, documents: Sequence[ldp.Stream], fewest_new: int = 0, windows: bool = True, **content: Any
    ) -> None:
        windowing = HOPPING if windows else None
        self.limits = RecordLimits(None, True, None, windowing, fewest_new)
        self.oldest, self.sent = documents[0], list[Sent]()
        self.topic, self.messages = dict[str, tuple[dict[str, bytes], bytes]](), list[list[Message]]()
        self.states = [self._fresh() for _ in range(2)]
        self.metadata = [layout.initial(lineage_of("g", "t"), state) for state in self.states]
        self.blobs: list[dict[str, bytes]] = [{} for _ in self.states]
        self.clock, self.commits, self.closed = 0.0, 0, [0, 0]
        self.logs: list[list[tuple[int, bytes]]] = [[], []]
        self.told = list[tuple[str, dict[str, Any]]]()
        self.content = {"retain": 3 * SECOND, "parts_fewest": 4, **content}
        self.configured = [OTHER, NEW, OLD]
        for document in documents[1:]:
            self.add(document)
        self.progress = Progress(lambda: self.clock)
        self.progress.state = SERVING
        self.restart()

    def _fresh(self) -> PartitionState:
        return PartitionState.fresh(ldp.Fleet((self.oldest,)), 0, RequestedRule(1, self.limits))

    def restart(self) -> None:
        """Starts a publisher that takes over."""
        logger = SimpleNamespace(
            info=lambda *_, **__: None, warning=lambda event, **facts: self.told.append((event, facts))
        )
        self.metrics = Metrics()
        events = StreamEvents("fleet", self.metrics, self.progress, cast(Any, logger))
        fleet = ldp.Fleet(tuple(self.configured))
        self.publisher = Publisher(
            fleet,
            Content(**self.content),
            cast(Any, self),
            cast(Any, self),
            Group(lambda: range(len(self.states)), lambda _: (), lambda: 1),
            Recommender((), events),
            events,
        )

    def exported(self, name: str) -> float | None:
        """Returns the value of a gauge of the publisher."""
        return self.metrics.registry.get_sample_value(f"ldp_worker_{name}", {"stream": "fleet"})

    # rules

    def record(self, partitions: Sequence[int] = (0, 1), **names: Any) -> None:
        """Adds a rule that names documents or segments."""
        for partition in partitions:
            state = self.states[partition]
            rule = Rule(state.offset, state.rules[-1].revision + 1, self.limits, **names)
            state.set_rules([*state.rules, rule])

    def add(self, document: ldp.Stream, partitions: Sequence[int] = (0, 1), *, retired: bool = False) -> None:
        """Records a document in some partitions."""
        name = document.fingerprint.hex()
        for partition in partitions:
            self.states[partition].documents[name] = Document.of(document)
        self.record(partitions, documents={name: Status(0, retired)})

    def limit(self, fewest_new: int) -> None:
        self.limits = RecordLimits(None, True, None, self.limits.windowing, fewest_new)
        self.record()

    # counting

    def count(self, partition: int, document: ldp.Stream, value: int, time: int, segment: str = "") -> None:
        """Counts a report whose response is a value."""
        state = self.states[partition]
        reports = np.array([(value,)], document.oracle.report_dtype)
        frame = frames.encode(document, reports, segment) if segment else frames.encode(document, reports)
        at = state.offset
        assert not state.apply(Batch(partition, at, at + 1, Columns.of([at], [time], [frame]))).rejected
        self.logs[partition].append((time, frame))
        start, windowing = time // SECOND * SECOND, self.limits.windowing
        in_pane = windowing is not None and start + SECOND > self.closed[partition]
        if windowing is not None:
            self.closed[partition] = max(self.closed[partition], time - windowing.hold)
        self.sent.append(Sent(document, value, segment, start if in_pane else None))

    def tick(self) -> None:
        """Commits, publishes, and applies the newest head."""
        self._commit()
        self.publisher.tick()
        head = self.open()
        for partition, state in enumerate(self.states):
            if state.windows.admitted_from is None and partition in head.floors:
                state.windows.admit(head.floors[partition])
                self.closed[partition] = max(self.closed[partition], head.floors[partition])
            if state.windows.admitted_from is not None:
                state.evict(min(state.windows.closed, head.needed_from(state.windows.first_start)))
        self._commit()

    def _commit(self) -> None:
        for partition, state in enumerate(self.states):
            before = self.metadata[partition]
            self.commits += 1
            commit_id = f"{self.commits:032x}"
            self.metadata[partition], blobs = layout.dump(state, before, commit_id)
            kept = self.blobs[partition] | blobs
            self.blobs[partition] = {n: b for n, b in kept.items() if n in self.metadata[partition].blobs}
            state.changed = set()

    # the ports of the publisher

    def peek(self, partition: int) -> Metadata:
        return self.metadata[partition]

    def cut_all(self, partitions: Sequence[int]) -> dict[int, StoredPartition]:
        return {p: StoredPartition(self.metadata[p], dict(self.blobs[p])) for p in partitions}

    def open(self) -> Head:
        return self.head(decided=True)

    def head(self, *, decided: bool) -> Head:
        assert decided
        value = self.topic.get("fleet/head", ({}, b""))[1]
        return Head.read(value, "fleet") if value else Head()

    def newest(self, begin: str, read: Callable[[Received], Read]) -> Read | None:
        try:
            return read(self.topic)
        except Incomplete:
            return None

    def rows(self) -> list[bytes]:
        return []

    def close(self) -> None:
        pass

    def publish(self, sequence: int, messages: Sequence[Message], rows: Sequence[object]) -> None:
        assert not rows
        self.messages.append(list(messages))
        for message in messages:
            self.topic.pop(message.key, None)  # compaction keeps the place of the newest message
            self.topic[message.key] = dict(message.headers(sequence)), message.body

    # the published content, and its recount

    @property
    def keys(self) -> set[str]:
        """Keys on the compacted topic."""
        return {key for key, (_, value) in self.topic.items() if value}

    @property
    def document(self) -> dict[str, Any]:
        """The newest head."""
        head: dict[str, Any] = json.loads(self.topic["fleet/head"][1])
        return head

    def read(self, name: str = "fleet") -> Snapshot:
        return assemble(name, self.topic)

    def window(self, name: str, window: str, start: int) -> Snapshot:
        return assemble_window(name, self.topic, window, start)

    @property
    def compacted(self) -> list[Sending]:
        """The newest message of each key."""
        return [(key, headers, value) for key, (headers, value) in self.topic.items()]

    def audit(self, topic: Sequence[Sending] | None = None) -> StreamVerdict:
        """Returns the verdict of the audit on all counts, and on the messages of a topic."""
        documents = by_fingerprint(*(document.document() for document in self.configured))
        sent = []
        for key, headers, value in self.compacted if topic is None else topic:
            name, _, place = key.partition("/")
            sent.append(Audited(place, headers, value, name.removeprefix("fleet")))
        published, differing = published_of(documents, lambda: sent)
        verdicts = []
        for partition, log in enumerate(self.logs):
            key = layout.meta_key("fleet", partition)
            facts: dict[str, Any] = {
                "cut": (layout.fields(self.metadata[partition], key), dict(self.blobs[partition])),
                "bounds": (0, len(log)),
                "read": lambda first, last, _, log=log: [Records.of(log[first:last], first)],
                "published": published,
                "head": self.document,
            }
            verdicts.append(assess(documents, partition, stream="fleet", group="g", **facts))
        compared = Compared(published=differing) if differing else published.compare(range(2))
        return StreamVerdict("fleet", tuple(verdicts), **vars(compared))

    def recount(
        self, of: Callable[[Sent], bool] = lambda _: True
    ) -> tuple[int, dict[str, float], dict[str, int]]:
        """Returns n, and by label the estimate and the reports of the documents that have it."""
        sent = [one for one in self.sent if of(one)]
        shares, known = dict[str, float](), Counter[str]()
        reports = Counter(one.document for one in sent)
        for document, n in reports.items():
            p, q = float(document.oracle.p), float(document.oracle.q)
            counts = Counter(one.value for one in sent if one.document == document)
            for value, label in enumerate(document.labels or ()):
                shares[label] = shares.get(label, 0.0) + (counts[value] - n * q) / (p - q)
                known[label] += n
        return len(sent), {label: share / known[label] for label, share in shares.items()}, dict(known)

    def demand(self, snapshot: Snapshot, of: Callable[[Sent], bool] = lambda _: True) -> None:
        """Compares a snapshot with the recount."""
        n, shares, known = self.recount(of)
        assert snapshot.reports == n
        assert snapshot.labels is not None
        there = snapshot.known if snapshot.known is not None else np.full(len(snapshot.labels), n)
        assert (
            dict(zip(snapshot.labels, there.tolist(), strict=True))
            == dict.fromkeys(snapshot.labels, 0) | known
        )
        expected = [shares.get(label, np.nan) for label in snapshot.labels]
        np.testing.assert_allclose(snapshot.bodies["base"].frequencies, expected, atol=1e-12)
