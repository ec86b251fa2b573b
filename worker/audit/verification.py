"""The audit of a stream: each of its partitions read, recounted and compared."""

from collections.abc import Callable
from functools import partial

from worker.audit import reading
from worker.audit.comparison import judge
from worker.audit.verdict import PartitionVerdict, StreamVerdict
from worker.config import Config, Served


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
        published = reading.published_offsets(consumer, config.snapshots.topic, name)
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
                    published=published.get(tp.partition, 0),
                )
            )
            passed += ends[tp] - begins[tp]
            advanced(ends[tp])
        beyond = len(topic)
        if client.exists(f"{{{name}:{beyond}}}:meta"):
            said = "counted in Redis, but the topic has no such partition"
            verdicts.append(PartitionVerdict(beyond, None, 0, 0, difference=said))
    return StreamVerdict(name, tuple(verdicts))
