"""Audit of one stream: its partitions, snapshots and rows."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from worker.audit import reading, rows
from worker.audit.comparison import assess
from worker.audit.errors import Difference
from worker.audit.parsing import Documents, by_fingerprint
from worker.audit.published import Published
from worker.audit.snapshots import UNTIMED, Message
from worker.audit.topic import Snapshots
from worker.audit.verdict import Compared, PartitionVerdict, StreamVerdict
from worker.config import Config, Served

_MOST_BYTES = 1 << 30  # Memory for windows; the windows that end last are recounted


def verify(
    served: Served,
    config: Config,
    on_progress: Callable[[int, int], None] | None = None,
    on_passed: Callable[[str], object] = lambda _: None,
) -> StreamVerdict:
    """Recounts a stream's topic up to the stored offsets; returns the verdict.

    Calls `on_progress` with the number of read offsets and the total, and `on_passed` with a message for each invalid
    head. Raises `AuditError` if the topic is missing, the protocol is unknown, or reading makes no progress. Raises
    `KafkaError` or `RedisError` if Kafka or Redis does not respond.
    """
    name, documents = served.name, _documents(served)
    with (
        reading.connect_kafka(config) as consumer,
        reading.connect_kafka(config) as log,
        reading.connect_redis(config) as client,
    ):
        topic, group = reading.partitions_of(consumer, served.topic, config), config.consumer_group(name)
        topic_id = reading.topic_id(config.kafka.client(), served.topic)
        committed = reading.committed(config.kafka.client(), group, served.topic)
        head, published, differing, wrong = _read_published(consumer, served, config, on_passed)
        verdicts, progress = list[PartitionVerdict](), _Progress(consumer, topic, on_progress)
        for tp in topic:
            try:
                cut = reading.cut_of(client, f"{{{name}:{tp.partition}}}:")
            except Difference as difference:
                verdicts.append(PartitionVerdict(tp.partition, None, 0, 0, difference=str(difference)))
                progress.finish(tp)
                continue
            verdicts.append(
                assess(
                    documents,
                    tp.partition,
                    stream=name,
                    group=group,
                    cut=cut,
                    bounds=reading.bounds_of(consumer, [tp])[
                        tp
                    ],  # after the cut, because workers continue to count
                    read=partial(reading.read, log, tp, partial(progress.move, tp)),
                    topic_id=topic_id,
                    committed=committed.get(tp.partition, (0, "")),
                    head=head,
                    published=published,
                )
            )
            progress.finish(tp)
        if client.exists(f"{{{name}:{len(topic)}}}:meta"):
            missing = "counted in Redis, but the topic has no such partition"
            verdicts.append(PartitionVerdict(len(topic), None, 0, 0, difference=missing))
    there = _partitions(published, {tp.partition for tp in topic}, served, config)
    compared = published.compare(there) if differing is None else Compared(published=differing)
    return StreamVerdict(
        name, tuple(verdicts), **{**vars(compared), "published": compared.published or wrong}
    )


def _read_published(
    consumer: Any, served: Served, config: Config, on_passed: Callable[[str], object]
) -> tuple[Mapping[str, Any], Published, str | None, str | None]:
    """Returns (head, snapshots, difference in snapshots, difference in rows)."""
    name, documents, passed = served.name, _documents(served), dict[str, None]()
    head, at = reading.newest_head(consumer, config.snapshots.topic, name)
    parted = "segments" in head or "released" in head or len(head.get("documents", ())) > 1
    begin = 0 if parted or _has_windows(head) or served.configured.limits.windowing else at

    def messages() -> Iterator[Message]:
        return reading.published(
            consumer, config.snapshots.topic, name, begin, lambda one: passed.update({one: None})
        )

    published, differing = published_of(documents, messages) if head else headless(documents, messages)
    wrong = None
    if (configured := head.get("rows")) is not None:
        wrong = rows.differing(head, reading.rows(consumer, configured["topic"], name), messages)
    for one in passed:  # once each, although the topic is read several times
        on_passed(one)
    return head, published, differing, wrong


def _documents(served: Served) -> Documents:
    """Returns the configured documents of a stream."""
    return by_fingerprint(*(each.document() for each in served.fleet.documents))


def _partitions(published: Published, there: set[int], served: Served, config: Config) -> set[int]:
    """Returns the topic's partitions; reads them again if a snapshot has more."""
    if not published.named - there:
        return there
    with reading.connect_kafka(config) as consumer:
        return {tp.partition for tp in reading.partitions_of(consumer, served.topic, config)}


class _Progress:
    def __init__(
        self, consumer: Any, topic: Sequence[Any], on_progress: Callable[[int, int], None] | None
    ) -> None:
        self._bounds = reading.bounds_of(consumer, topic)
        self._total, self._before = sum(end - begin for begin, end in self._bounds.values()), 0
        self._on_progress = on_progress

    def move(self, tp: Any, position: int) -> None:
        if self._on_progress is not None:
            self._on_progress(min(self._before + position - self._bounds[tp][0], self._total), self._total)

    def finish(self, tp: Any) -> None:
        begin, end = self._bounds[tp]
        self.move(tp, end)
        self._before += end - begin


def _has_windows(head: Mapping[str, Any]) -> bool:
    rules = (rule for listed in head.get("rules", {}).values() for rule in listed)
    return "windows" in head or any("windows" in rule for rule in rules)


def published_of(
    documents: Documents, messages: Callable[[], Iterable[Message]]
) -> tuple[Published, str | None]:
    """Returns (snapshots, difference found in them or None).

    Reads the topic again after a difference, because compaction may have removed a superseded message during the read.
    """
    found = None
    for _ in range(2):
        try:
            snapshots = Snapshots(documents, _MOST_BYTES)
            for message in messages():
                snapshots.take(message)
            there, unknown = snapshots.finish(), None
            if unnamed := ", ".join(sorted(snapshots.unnamed)):
                unknown = f"snapshots of document {unnamed}: the configuration does not name it, so none is compared"
            return Published(documents, there, snapshots.head, unknown, snapshots.cells()), None
        except Difference as difference:
            found = str(difference)
    return Published(documents, ()), found


def headless(documents: Documents, messages: Callable[[], Iterable[Message]]) -> tuple[Published, str | None]:
    """Returns the result of `published_of` for a topic without a head."""
    there = dict[str, bytes]()
    for message in messages():
        if (
            not message.part
            and message.key != "head"
            and message.key.partition("/")[0] not in (*UNTIMED, "domain")
        ):
            there[message.key] = message.value
    if not (windows := {tuple(key.split("/")[:2]) for key, value in there.items() if value}):
        return Published(documents, ()), None
    unknown = f"windows: {len(windows)} on the topic without a head, so none is compared"
    return Published(documents, (), unknown=unknown), None
