"""The audit of a stream: each of its partitions read, recounted and compared."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from worker.audit import reading
from worker.audit.comparison import Published, judge
from worker.audit.errors import Difference
from worker.audit.finals import Finals, finals_of
from worker.audit.parsing import fingerprint_of
from worker.audit.protocols import protocol_of
from worker.audit.verdict import PartitionVerdict, StreamVerdict
from worker.config import Config, Served

_MOST_BYTES = 1 << 30
"""What final windows are recounted in and compared with, in bytes: of more, those that end last."""


def verify(
    served: Served, config: Config, on_progress: Callable[[int, int], None] | None = None
) -> StreamVerdict:
    """Recounts a stream's topic up to the stored offsets and compares.

    Args:
        served: the stream and its topic.
        config: where Kafka and Redis are.
        on_progress: called with offsets passed and offsets in all, as the log is read.

    Raises:
        AuditError: the topic is missing, a protocol is unknown, or the log stands still.
        kafka.errors.KafkaError: the brokers do not answer.
        redis.RedisError: Redis does not answer.
    """
    name, document, group = served.stream.name, served.stream.document(), config.consumer_group(served.stream)
    with (
        reading.connect_kafka(config) as consumer,
        reading.connect_log(config) as log,
        reading.connect_redis(config) as client,
    ):
        topic = reading.partitions_of(consumer, served.topic, config)
        metadata = reading.offset_metadata(config.kafka.client(), group, served.topic)
        published = _published(head := reading.newest_head(consumer, config.snapshots.topic, name))
        messages = partial(reading.published_windows, consumer, config.snapshots.topic, name)
        finals, there, differing = _finals(document, head, messages)
        begins, ends = consumer.beginning_offsets(topic), consumer.end_offsets(topic)
        total, passed = sum(ends[tp] - begins[tp] for tp in topic), 0
        verdicts = []
        for tp in topic:

            def advanced(position: int, before: int = passed - begins[tp]) -> None:
                if on_progress is not None:
                    on_progress(min(before + position, total), total)

            cut = reading.cut_of(client, f"{{{name}:{tp.partition}}}:")
            # after the cut, so that a worker which counts on is never ahead of the log that we know
            bounds = consumer.beginning_offsets([tp])[tp], consumer.end_offsets([tp])[tp]
            verdicts.append(
                judge(
                    document,
                    tp.partition,
                    group=group,
                    cut=cut,
                    bounds=bounds,
                    read=partial(reading.read, log, tp, advanced),
                    offset_metadata=metadata.get(tp.partition, ""),
                    published=published.get(tp.partition, (0, None)),
                    finals=finals,
                )
            )
            passed += ends[tp] - begins[tp]
            advanced(ends[tp])
        if client.exists(f"{{{name}:{len(topic)}}}:meta"):
            said = "counted in Redis, but the topic has no such partition"
            verdicts.append(PartitionVerdict(len(topic), None, 0, 0, difference=said))
    if differing is None:
        recounted, differing = finals.compare()
    return StreamVerdict(name, tuple(verdicts), there, recounted, differing)


def _published(head: Mapping[str, Any]) -> dict[int, Published]:
    """Returns what a head says of the partitions."""
    offsets, floors = head.get("offsets", {}), head.get("floors", {})
    return {int(p): (offsets.get(p, 0), floors.get(p)) for p in {*offsets, *floors}}


def _finals(
    document: Mapping[str, Any], head: Mapping[str, Any], messages: Callable[[], Mapping[str, bytes]]
) -> tuple[Finals, int, str | None]:
    """Returns the final windows that are recounted, how many are published, and what differs before any counting.

    Those that a snapshot says nothing of are not looked for: the whole of its topic is read for them.
    """
    entries, windowed = protocol_of(document).entries, "windows" in head
    windowed = windowed or any(
        "windows" in rule for rules in head.get("rules", {}).values() for rule in rules
    )
    try:
        published, there = finals_of(
            messages() if windowed else {},
            head,
            fingerprint_of(document),
            max(1, _MOST_BYTES // (16 * entries)),
        )
    except Difference as difference:
        return Finals(document, (), entries), 0, str(difference)
    return Finals(document, published, entries), there, None
