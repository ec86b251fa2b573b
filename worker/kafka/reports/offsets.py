"""Requests offsets as a group member, with a result for each partition."""

import contextlib
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial
from typing import Any, TypeVar

from kafka import KafkaConsumer, OffsetAndMetadata, TopicPartition
from kafka import errors as kafka_errors
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
from kafka.errors import KafkaError

from worker.counting.ports import NotOwner, Unavailable
from worker.kafka.client import quirks
from worker.kafka.client.errors import START, remedy, unavailable
from worker.kafka.client.refusals import Answers

_TIMEOUT_MS = 10_000
_NO_LEADER = "Kafka: no leader"
_T = TypeVar("_T")


class Offsets:
    """The offsets of a topic's logs and consumer group; a part of `ports.Log`."""

    def __init__(self, consumer: Any, topic: str, answers: Answers) -> None:
        self._consumer, self._topic, self._answers = consumer, topic, answers

    def committed(self, partitions: Collection[int]) -> dict[int, tuple[int, str] | Unavailable | None]:
        """Returns each partition's committed (offset, metadata), None or an error."""
        tps, operation = list(map(self._tp, partitions)), "asking for the group's offsets of"
        with self._answers.errors() as errors:
            found = ask(operation, partial(quirks.committed, self._consumer, tps, _TIMEOUT_MS), self._topic)
        refused = self._refused(operation, tps, errors)
        return {p: refused.get(p) or _committed(found.get(self._tp(p))) for p in partitions}

    def bounds(self, partitions: Collection[int]) -> dict[int, tuple[int, int] | Unavailable]:
        """Returns each log's (first offset, last stable offset), or an error."""
        firsts = self._bound(self._consumer.beginning_offsets, partitions)
        ends = self._stable_ends(partitions)
        found = dict[int, tuple[int, int] | Unavailable]()
        for partition, first in firsts.items():
            end = ends[partition]
            if isinstance(first, Unavailable):
                found[partition] = first
            else:
                found[partition] = end if isinstance(end, Unavailable) else (first, end)
        return found

    def confirm(self, offsets: Mapping[int, tuple[int, str]]) -> dict[int, Unavailable | None]:
        """Commits offsets as a member of the current generation.

        Raises `NotOwner`: a new generation has begun.
        """
        commit = partial(self._consumer.commit, self._offsets(offsets), timeout_ms=_TIMEOUT_MS)
        tps, operation = list(map(self._tp, offsets)), "committing the group's offsets of"
        with self._answers.errors() as errors:
            ask(operation, commit, self._topic)
        refused = self._refused(operation, tps, errors)
        return {partition: refused.get(partition) for partition in offsets}

    def _refused(
        self, operation: str, tps: Iterable[TopicPartition], errors: Mapping[TopicPartition, KafkaError]
    ) -> dict[int, Unavailable]:
        return {
            tp.partition: unavailable(errors[tp], operation, f"{self._topic}, partition {tp.partition}")
            for tp in tps
            if tp in errors
        }

    def mirror(self, offsets: Mapping[int, tuple[int, str]]) -> None:
        """Commits offsets without waiting; a later poll detects a lost membership."""
        with contextlib.suppress(kafka_errors.FencedInstanceIdError):
            self._consumer.commit_async(self._offsets(offsets))

    def _stable_ends(self, partitions: Collection[int]) -> dict[int, int | Unavailable]:
        return self._bound(self._consumer.end_offsets, partitions)

    def _tp(self, partition: int) -> TopicPartition:
        return TopicPartition(self._topic, partition)

    def _offsets(self, offsets: Mapping[int, tuple[int, str]]) -> dict[TopicPartition, OffsetAndMetadata]:
        return {
            self._tp(p): OffsetAndMetadata(offset, metadata, -1) for p, (offset, metadata) in offsets.items()
        }

    def _bound(
        self, ask_for: Callable[..., Mapping[TopicPartition, int]], partitions: Iterable[int]
    ) -> dict[int, int | Unavailable]:
        tps, operation = [self._tp(partition) for partition in partitions], "asking for the offsets of"
        if not tps:
            return {}
        with self._answers.errors() as errors:
            bounds = partial(quirks.bounds, self._consumer, ask_for, tps, _TIMEOUT_MS, errors)
            found = ask(operation, bounds, self._topic)
        refused = self._refused(operation, tps, errors)
        return {
            tp.partition: refused.get(
                tp.partition, found[tp] if tp in found else Unavailable(_NO_LEADER, remedy(_NO_LEADER))
            )
            for tp in tps
        }


def topic_id(consumer: Any, topic: str, ms: int) -> str:
    """Returns the topic's id, which changes if the topic is created again."""
    found = ask("asking for the id of", partial(quirks.topic_id, consumer, topic, ms), topic)
    if found is None:
        raise Unavailable(f"Kafka: the id of topic {topic!r} is unknown", START)
    return found


def _committed(committed: Any) -> tuple[int, str] | None:
    return None if committed is None or committed.offset < 0 else (committed.offset, committed.metadata)


def join(settings: Mapping[str, Any], group: str, **more: Any) -> Any:
    """Connects a member of a group, which commits its own offsets.

    Raises `Unavailable`: the brokers do not answer.
    """
    quirks.mend_connections()
    connect = partial(
        KafkaConsumer,
        **settings,
        client_id=f"ldp-worker-{group}",
        group_id=group,
        auto_offset_reset="none",
        enable_auto_commit=False,
        isolation_level="read_committed",  # so that a committed offset is not one of an open transaction
        allow_auto_create_topics=False,
        partition_assignment_strategy=[CooperativeStickyAssignor],
        metadata_max_age_ms=30_000,
        **more,
    )
    return ask("connecting", connect)


def ask(operation: str, step: Callable[[], _T], topic: str = "") -> _T:
    """Runs a step; converts Kafka errors to `NotOwner` or `Unavailable`."""
    try:
        return step()
    except (
        kafka_errors.CommitFailedError,
        kafka_errors.RebalanceInProgressError,
        kafka_errors.IllegalGenerationError,
        kafka_errors.UnknownMemberIdError,
        kafka_errors.FencedInstanceIdError,
    ) as error:
        raise NotOwner(str(error)) from error
    except KafkaError as error:
        raise unavailable(error, operation, topic) from error
