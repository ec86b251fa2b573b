"""Watch: reads the snapshot topic as any consumer would, and shows the latest complete snapshot of a stream."""

import json
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from kafka import KafkaConsumer, TopicPartition
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

import ldp
from ldp import frames
from ldp.snapshot import Incomplete, Snapshot, assemble
from ldp.table import most_frequent
from worker.config import Config, Served
from worker.counting import rejections
from worker.kafka import brokers, topics
from worker.kafka.newest import newest
from worker.kafka.outbox import PARTITION

_POLL_MS = 200


class Watch:
    """The snapshots of one stream, from the topic's beginning on; a context manager.

    A snapshot is one transaction in one partition, so a reader of committed records that keeps the newest message of
    each key has all of a snapshot or none of it.

    Args:
        config: where the snapshots are.
        stream: the stream's name.
    """

    def __init__(self, config: Config, stream: str) -> None:
        self._stream = stream
        self._newest: dict[str, tuple[dict[str, bytes], bytes]] = {}
        self._shown = 0
        self.published = 0.0
        """When the latest snapshot was published, by its message's timestamp, in seconds since the epoch."""
        self._partition = TopicPartition(config.snapshots.topic, PARTITION)
        self._consumer = KafkaConsumer(
            **config.kafka.client(),
            group_id=None,
            enable_auto_commit=False,
            isolation_level="read_committed",
            auto_offset_reset="earliest",
            allow_auto_create_topics=False,
        )
        self._consumer.assign([self._partition])
        self._consumer.seek_to_beginning(self._partition)

    def __enter__(self) -> "Watch":
        return self

    def __exit__(self, *_: object) -> None:
        self._consumer.close()

    def latest(self, timeout_seconds: float) -> Snapshot | None:
        """Returns the latest snapshot as soon as there is one not returned before, or None if none comes in time."""
        deadline = time.monotonic() + timeout_seconds
        while True:
            wait = int(max(0, min(_POLL_MS, 1000 * (deadline - time.monotonic()))))
            # older snapshots need not be put together, only what there is when nothing more comes at once
            more = self._read(wait) and not self._caught_up()
            if not more and (snapshot := self._fresh()) is not None:
                return snapshot
            if time.monotonic() >= deadline:
                return None

    def age(self) -> float:
        """Returns the seconds since the latest snapshot was published."""
        return max(0.0, time.time() - self.published)

    def _read(self, wait_ms: int) -> bool:
        """Takes in what has come; returns whether anything has."""
        polled = self._consumer.poll(timeout_ms=wait_ms)
        for records in polled.values():
            for record in records:
                key = (record.key or b"").decode(errors="replace")
                if not key.startswith(f"{self._stream}/"):
                    continue
                if record.value is None:
                    self._newest.pop(key, None)
                    continue
                self._newest[key] = (dict(record.headers), record.value)
                if key == f"{self._stream}/head":
                    self.published = record.timestamp / 1000
        return bool(polled)

    def _caught_up(self) -> bool:
        end = self._consumer.highwater(self._partition)
        return end is not None and self._consumer.position(self._partition) >= end

    def _fresh(self) -> Snapshot | None:
        head = self._newest.get(f"{self._stream}/head")
        if head is None or (sequence := int(head[0]["sequence"])) == self._shown:
            return None
        try:
            snapshot = assemble(self._stream, self._newest)
        except Incomplete:
            return None
        self._shown = sequence
        return snapshot


def document(snapshot: Snapshot, methods: Sequence[str]) -> str:
    """Returns a snapshot as one line of JSON: head, labels, and the bodies of the chosen methods."""
    bodies = {
        name: {key: value.tolist() if isinstance(value, np.ndarray) else value for key, value in body.items()}
        for name, body in snapshot.bodies.items()
        if name in methods
    }
    labels = None if snapshot.labels is None else list(snapshot.labels)
    return json.dumps({"head": dict(snapshot.head), "labels": labels, "bodies": bodies}, ensure_ascii=False)


def render(
    snapshot: Snapshot, methods: Sequence[str], top: int, age_seconds: float, width: int
) -> RenderableType:
    """Returns the most frequent values, by Base, as a table; frequencies in per cent of the reports.

    Args:
        snapshot: what to show.
        methods: which methods beside Base.
        top: how many values.
        age_seconds: since the snapshot was published.
        width: of the terminal; where the methods do not fit beside each other, they follow in further tables.
    """
    head = snapshot.head
    whole = "complete" if head["complete"] else f"NOT COMPLETE: {gaps(head)}"
    number, reports = head["sequence"], head["reports"]
    title = f"{head['stream']}: snapshot {number}, {reports:,} reports, {age_seconds:.0f} s old, {whole}"
    return Group(Text(title, style="bold"), most_frequent(snapshot, methods, top, width))


def foreign(snapshot: Snapshot, stream: ldp.Stream) -> str | None:
    """Returns a warning if a snapshot is of another stream under the configured one's name, else None."""
    theirs, ours = snapshot.head["fingerprint"], stream.fingerprint.hex()
    if theirs == ours:
        return None
    return (
        f"NOT THE CONFIGURED STREAM: this snapshot is of fingerprint {theirs}, the configuration's {stream.name} has"
        f" {ours}: another protocol, epsilon, domain or other labels"
    )


def why_none(config: Config, served: Served) -> str:
    """Says why there may be no snapshot of a stream, by the newest records of its topic.

    Raises:
        kafka.errors.KafkaError: the brokers do not answer.
    """
    with brokers.connect(config) as admin:
        try:
            topics.require(admin, served.topic)
        except topics.TopicError as error:
            return str(error)
    counted = "ldp-worker run publishes one once it has counted a report"
    records = newest(config, served.topic)
    if not records:
        return f"topic {served.topic} has no record yet; {counted}"
    reasons = rejections.reasons(served.stream, served.configured.terms, [record.value for record in records])
    if not reasons:
        return f"topic {served.topic} has reports; {counted}"
    which = "all" if reasons.total() == len(records) else f"{reasons.total():,}"
    rejected = f"{which} of the newest {len(records):,} records of topic {served.topic} are rejected"
    said = "\n".join(f"{reason} {n:,}: {frames.REASONS[reason]}" for reason, n in reasons.most_common())
    return f"{rejected}; {counted}\n{said}\nldp-worker dead-letters shows where they came from"


def live(snapshots: Watch, console: Console, show: Callable[[Snapshot], RenderableType]) -> None:
    """Keeps the latest snapshot on the terminal, until interrupted."""
    snapshot = None
    with Live(Text("waiting for the first snapshot ..."), console=console, auto_refresh=False) as screen:
        while True:
            snapshot = snapshots.latest(1.0) or snapshot
            if snapshot is not None:
                screen.update(show(snapshot), refresh=True)


def gaps(head: Any) -> str:
    """Says which stretches of the log are lost, and which partitions are left out.

    Example:
        >>> gaps({"gaps": {"0": [[5, 9]], "2": [[1, 2], [7, 10]]}, "uncounted": [3]})
        'partition 0 lost offsets 5–8, partition 2 lost offsets 1, 7–9, partition 3 is not counted'
    """

    def offsets(first: int, end: int) -> str:
        return str(first) if end == first + 1 else f"{first}–{end - 1}"

    lost = [
        f"partition {partition} lost offsets {', '.join(offsets(*stretch) for stretch in stretches)}"
        for partition, stretches in head["gaps"].items()
    ]
    left_out = [f"partition {partition} is not counted" for partition in head.get("uncounted", ())]
    return ", ".join(lost + left_out)
