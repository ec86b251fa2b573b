"""Verifies the first available offset of a log by fetching.

A broker's wrong answer about a log's first offset would lose reports permanently. Records therefore count as lost only
after the partition's leader has rejected two fetches of these records, at least 1 s apart.
"""

import time
from collections.abc import Callable, Mapping
from typing import Any

from kafka import KafkaConsumer, TopicPartition
from kafka.errors import NoError, OffsetOutOfRangeError, for_code
from kafka.protocol.consumer import FetchRequest

from worker.kafka.client import quirks

_LOOK_AGAIN_SECONDS = 1.0  # Shortest time between the two rejected fetches


class Firsts:
    """Finds the first available offset of each log in one topic."""

    def __init__(self, consumer: Any, ms: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._consumer, self._ms, self._clock = consumer, ms, clock
        self._refused: dict[tuple[TopicPartition, int], float] = {}
        """(partition, offset) -> time when the leader first rejected a fetch at this offset."""

    def of(self, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Returns each log's first available offset at or after a given offset.

        Logs whose first offset is not confirmed yet are left out. Raises `KafkaError`: the brokers do not answer.
        """
        there = fetchable(self._consumer, offsets, self._ms)
        found = {tp: offsets[tp] for tp, fetched in there.items() if fetched}
        refused = [tp for tp, fetched in there.items() if not fetched]
        begins = (
            quirks.bounds(self._consumer, self._consumer.beginning_offsets, refused, self._ms)
            if refused
            else {}
        )
        begins = {tp: begin for tp, begin in begins.items() if begin > offsets[tp]}
        before = fetchable(self._consumer, {tp: begin - 1 for tp, begin in begins.items()}, self._ms)
        at = fetchable(self._consumer, begins, self._ms)
        now = self._clock()
        for tp in there:
            if before.get(tp) is False and at.get(tp):
                if now - self._refused.setdefault((tp, offsets[tp]), now) >= _LOOK_AGAIN_SECONDS:
                    found[tp] = begins[tp]
            else:
                self._refused.pop((tp, offsets[tp]), None)
        return found


def fetchable(
    consumer: KafkaConsumer, offsets: Mapping[TopicPartition, int], ms: int
) -> dict[TopicPartition, bool]:
    """Tests with a fetch whether each offset is within the range of its log.

    It sends its own request, because the library fetches only at the positions of assigned partitions.

    `offsets`: partition -> offset. A log's end counts as in range. Raises `KafkaError`: the brokers do not answer.

    Returns:
        Partition -> whether the offset is in range. Partitions without a clear answer are left out.
    """
    if not offsets:
        return {}
    manager, cluster = consumer._manager, consumer._cluster
    # the request carries the leader epoch, so a former leader rejects it
    manager.run(manager.wait_for, cluster.request_update(), ms)
    by_leader: dict[int, dict[TopicPartition, int]] = {}
    for tp in offsets:
        if (leader := cluster.leader_for_partition(tp)) not in (None, -1):
            by_leader.setdefault(leader, {})[tp] = offsets[tp]
    in_range = dict[TopicPartition, bool]()
    for leader, asked in by_leader.items():
        request = _request(asked, cluster)

        async def answer(request: Any = request, leader: int = leader) -> Any:
            return await manager.wait_for(manager.send(request, leader), ms)

        for topic in manager.run(answer).responses:
            for found in topic.partitions:
                if (error := for_code(found.error_code)) in (NoError, OffsetOutOfRangeError):
                    in_range[TopicPartition(topic.topic, found.partition_index)] = error is NoError
    return in_range


def _request(offsets: Mapping[TopicPartition, int], cluster: Any) -> FetchRequest:
    topics: dict[str, list[Any]] = {}
    for tp, offset in offsets.items():
        epoch = cluster.leader_epoch_for_partition(tp)
        wanted = FetchRequest.FetchTopic.FetchPartition(
            partition=tp.partition,
            current_leader_epoch=-1 if epoch is None else epoch,
            fetch_offset=offset,
            partition_max_bytes=1,  # a broker returns one complete batch anyway
        )
        topics.setdefault(tp.topic, []).append(wanted)
    return FetchRequest(
        max_wait_ms=0,
        min_bytes=0,
        max_bytes=1,
        topics=[FetchRequest.FetchTopic(topic=topic, partitions=wanted) for topic, wanted in topics.items()],
        forgotten_topics_data=[],
        max_version=12,  # later versions identify topics by id
    )
