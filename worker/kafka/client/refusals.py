"""Separates one partition's errors from the other partitions' answers.

Upstream (kafka-python 3.0.12) raises one partition's error for all partitions, or retries all partitions until the
time-out. Gone when its calls return errors by partition. Like `quirks` and `raw_fetch`, this module uses private names
of the library.
"""

import contextlib
from collections import deque
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from typing import Any

from kafka import KafkaConsumer, TopicPartition
from kafka import errors as kafka_errors
from kafka.errors import KafkaError, for_code

# Errors about the group or the member that a partition's field reports; the library handles them
_OF_THE_GROUP = (
    kafka_errors.CoordinatorLoadInProgressError,
    kafka_errors.CoordinatorNotAvailableError,
    kafka_errors.FencedInstanceIdError,
    kafka_errors.FencedMemberEpochError,
    kafka_errors.GroupAuthorizationFailedError,
    kafka_errors.GroupIdNotFoundError,
    kafka_errors.IllegalGenerationError,
    kafka_errors.InvalidGroupIdError,
    kafka_errors.NotCoordinatorError,
    kafka_errors.RebalanceInProgressError,
    kafka_errors.StaleMemberEpochError,
    kafka_errors.UnknownMemberIdError,
)
# Errors of an expired fetch session: the library starts a new session
_OF_THE_SESSION = (
    kafka_errors.FetchSessionIdNotFoundError,
    kafka_errors.FetchSessionTopicIdError,
    kafka_errors.InvalidFetchSessionEpochError,
)
_OF_THE_TOPIC = (kafka_errors.UnknownTopicOrPartitionError, kafka_errors.TopicAuthorizationFailedError)
"""Errors which mean that the topic is missing or forbidden. After other errors the topic's partitions are unknown."""
_FIRST_WAIT, _LONGEST_WAIT = 0.1, 5.0
_FORGIVEN_SECONDS = 10.0
"""Time without an error after which a refused partition counts as healthy, even without new records."""


class Answers:
    """Removes and keeps the errors of single partitions in brokers' responses."""

    def __init__(self, consumer: KafkaConsumer) -> None:
        self._fetches = deque[tuple[int, KafkaError]]()
        self._asked: dict[TopicPartition, KafkaError] = {}
        self._topics: dict[str, KafkaError] = {}
        cluster = consumer._cluster
        cluster.update_metadata = self._describing(cluster.update_metadata, cluster)
        fetcher, coordinator = consumer._fetcher, consumer._coordinator
        fetcher._parse_fetched_data = self._parsing(fetcher._parse_fetched_data)
        fetcher._handle_fetch_response = self._fetching(fetcher._handle_fetch_response)
        fetcher._handle_list_offsets_response = self._listing(fetcher._handle_list_offsets_response, cluster)
        coordinator._handle_offset_fetch_response = self._reading(coordinator._handle_offset_fetch_response)
        coordinator._handle_offset_commit_response = self._writing(coordinator._handle_offset_commit_response)

    @contextlib.contextmanager
    def errors(self) -> Iterator[dict[TopicPartition, KafkaError]]:
        """Yields a dict that collects errors of offset requests by partition."""
        self._asked = {}
        yield self._asked

    def fetched(self) -> list[tuple[int, KafkaError]]:
        """Returns (partition, error) of each failed fetch since the last call."""
        return [self._fetches.popleft() for _ in range(len(self._fetches))]

    def undescribed(self, topic: str) -> KafkaError | None:
        """Returns the topic's error in the last metadata, or None."""
        return self._topics.get(topic)

    def _describing(self, update: Callable[[Any], Any], cluster: Any) -> Callable[[Any], Any]:
        # keeps the partitions of a topic with an error: upstream drops the partitions, so members lose them. After
        # INVALID_TOPIC_EXCEPTION upstream never retries

        def updated(metadata: Any) -> Any:
            self._topics, known = {}, dict(cluster._partitions)
            for topic in metadata.topics:
                if not topic.error_code or (error := for_code(topic.error_code)) in _OF_THE_TOPIC:
                    continue
                self._topics[topic.name] = error()
                if topic.name in known:
                    topic.error_code, topic.partitions = 0, list(known[topic.name].values())
                else:
                    topic.error_code = kafka_errors.LeaderNotAvailableError.errno
            found = update(metadata)
            if self._topics:
                cluster._need_update = True
            return found

        return updated

    def _parsing(self, parse: Callable[[Any], Any]) -> Callable[[Any], Any]:
        def parsed(fetch: Any) -> Any:
            code, partition = fetch.partition_data.error_code, fetch.topic_partition.partition
            try:
                records = parse(fetch)
            except kafka_errors.OffsetOutOfRangeError:
                raise
            except KafkaError as error:
                self._fetches.append((partition, error))
                return None
            if code and for_code(code) is not kafka_errors.OffsetOutOfRangeError:
                self._fetches.append((partition, for_code(code)()))
            return records

        return parsed

    def _fetching(self, handle: Callable[..., Any]) -> Callable[..., Any]:
        def handled(node: Any, offsets: Any, sent: Any, response: Any) -> Any:
            if (code := response.error_code) and (error := for_code(code)) not in _OF_THE_SESSION:
                self._fetches.extend((tp.partition, error()) for tp in offsets)
            return handle(node, offsets, sent, response)

        return handled

    def _listing(self, handle: Callable[[Any], Any], cluster: Any) -> Callable[[Any], Any]:
        def handled(response: Any) -> Any:
            refused = self._take_out([(topic.name, topic.partitions) for topic in response.topics], ())
            if any(isinstance(error, kafka_errors.InvalidMetadataError) for error in refused.values()):
                cluster.request_update()
            return handle(response)

        return handled

    def _reading(self, handle: Callable[[Any], Any]) -> Callable[[Any], Any]:
        def handled(response: Any) -> Any:
            topics = response.groups[0].topics if response.API_VERSION >= 8 else response.topics
            self._take_out([(topic.name, topic.partitions) for topic in topics], _OF_THE_GROUP)
            return handle(response)

        return handled

    def _writing(self, handle: Callable[..., Any]) -> Callable[..., Any]:
        def handled(offsets: Any, sent: Any, response: Any) -> Any:
            self._take_out([(topic.name, topic.partitions) for topic in response.topics], _OF_THE_GROUP)
            return handle(offsets, sent, response)

        return handled

    def _take_out(
        self, topics: list[tuple[str, list[Any]]], kept: tuple[type[KafkaError], ...]
    ) -> dict[TopicPartition, KafkaError]:
        """Removes partitions with an error outside `kept`; returns the errors."""
        refused = {}
        for topic, partitions in topics:
            for one in list(partitions):
                if one.error_code and (error := for_code(one.error_code)) not in kept:
                    refused[TopicPartition(topic, one.partition_index)] = error()
                    partitions.remove(one)
        self._asked.update(refused)
        return refused


@dataclass
class Refusal:
    """The backoff of a refused partition; all times are in seconds."""

    since: float  # time of the first refusal
    until: float  # end of the newest wait
    wait: float  # length of the newest wait


class Refusals:
    """Delays the next fetch of a refused partition by an exponential backoff."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._of: dict[int, Refusal] = {}
        self._new: dict[int, tuple[KafkaError, float]] = {}

    def add(self, partition: int, error: KafkaError) -> None:
        """Records the error of a fetch, and doubles the partition's wait."""
        now, known = self._clock(), self._of.get(partition)
        wait = _FIRST_WAIT if known is None else min(2 * known.wait, _LONGEST_WAIT)
        since = now if known is None else known.since
        self._of[partition] = Refusal(since, now + wait, wait)
        self._new[partition] = error, now - since

    def take_new(self) -> dict[int, tuple[KafkaError, float]]:
        """Returns new errors: partition -> (error, seconds since the first error)."""
        new, self._new = self._new, {}
        return new

    def forget(self, partitions: Collection[int]) -> None:
        """Forgets partitions that delivered records or are no longer read."""
        for partition in partitions:
            self._of.pop(partition, None)
            self._new.pop(partition, None)

    def waiting(self) -> set[int]:
        """Returns the partitions that wait before their next fetch."""
        now = self._clock()
        return {partition for partition, refusal in self._of.items() if now < refusal.until}

    def lasting(self) -> set[int]:
        """Returns the partitions whose last fetch was refused."""
        now = self._clock()
        self.forget([p for p, one in self._of.items() if now >= one.until + _FORGIVEN_SECONDS])
        return {*self._of}
