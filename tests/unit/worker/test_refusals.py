"""Every error code of the answers that a worker acts on, and what follows: an error of one partition is its own.

`docs.generate.broker_errors` has the outcomes, from which docs/reference/broker-errors.md is generated.
The tests inject the answers where the client's own handlers take them.
"""

import contextlib
import socket
from types import SimpleNamespace

import pytest
from kafka import KafkaConsumer, TopicPartition
from kafka import errors as kafka_errors
from kafka.consumer.fetcher import CompletedFetch
from kafka.errors import for_code
from kafka.producer.transaction_manager import (
    EndTxnHandler,
    ProducerIdAndEpoch,
    TransactionManager,
    TransactionState,
)
from kafka.protocol.consumer import ListOffsetsResponse, OffsetCommitResponse, OffsetFetchResponse
from kafka.protocol.metadata import MetadataResponse
from kafka.structs import OffsetAndMetadata

from docs.generate.broker_errors import (
    ALL_WAIT,
    CLAIMED,
    CLOSED,
    KEPT,
    MISSING,
    NOT_OWNER,
    OTHERS,
    OUTCOMES,
    RETRIED,
    SESSION,
    WAITS,
)
from worker.counting.ports import NotOwner, Unavailable
from worker.kafka.client import quirks
from worker.kafka.client.refusals import Answers, Refusals
from worker.kafka.reports.offsets import Offsets

TOPIC, BAD, GOOD = "t", 1, 2
TPS = [TopicPartition(TOPIC, partition) for partition in (BAD, GOOD)]
CODES = {code: error.__name__ for code, error in kafka_errors.kafka_errors.items() if code}


@pytest.fixture(scope="module")
def consumer():
    """A consumer with scripted answers instead of a broker."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        consumer = KafkaConsumer(
            bootstrap_servers=address,
            group_id="g",
            api_version=(3, 0),
            bootstrap_timeout_ms=300,
            auto_offset_reset="none",
        )
        consumer.assign(TPS)
        for tp in TPS:
            consumer.seek(tp, 7)
        yield consumer, Answers(consumer)
        consumer.close(autocommit=False, timeout_ms=0)


def fetch_of_a_partition(consumer, answers, code):
    tp = TPS[0]
    data = SimpleNamespace(error_code=code, high_watermark=9, current_leader=None, diverging_epoch=None)
    try:
        assert consumer._fetcher._parse_fetched_data(CompletedFetch(tp, 7, 12, data, None)) is None
    except kafka_errors.OffsetOutOfRangeError as error:
        assert error.args == ({tp: 7},)
        return CLAIMED
    ((partition, error),) = answers.fetched()
    assert (partition, type(error)) == (BAD, for_code(code))
    return WAITS


def fetch_as_a_whole(consumer, answers, code):
    response = SimpleNamespace(API_VERSION=12, error_code=code, session_id=1, responses=[])
    consumer._fetcher._session_handlers[1] = SimpleNamespace(handle_response=lambda _: False)
    consumer._fetcher._handle_fetch_response(1, dict.fromkeys(TPS, 7), 0.0, response)
    if not (found := answers.fetched()):
        return SESSION
    assert [(partition, type(error)) for partition, error in found] == [
        (p, for_code(code)) for p in (BAD, GOOD)
    ]
    return ALL_WAIT


def list_offsets(consumer, answers, code):
    topic = ListOffsetsResponse.ListOffsetsTopicResponse
    of = topic.ListOffsetsPartitionResponse
    partitions = [
        of(partition_index=p, error_code=c, offset=5, timestamp=-1, leader_epoch=-1)
        for p, c in ((BAD, code), (GOOD, 0))
    ]
    response = ListOffsetsResponse(version=6, topics=[topic(name=TOPIC, partitions=partitions)])
    with answers.errors() as errors:
        found, again = consumer._fetcher._handle_list_offsets_response(response)
    assert (found.keys(), again) == ({TPS[1]}, set())
    assert {tp: type(error) for tp, error in errors.items()} == {TPS[0]: for_code(code)}
    return WAITS


def asked(consumer, answers, handle):
    """Outcome of an answer for a claim: see `worker.kafka.reports.offsets`."""
    offsets = Offsets(SimpleNamespace(commit=lambda *_, **__: handle()), TOPIC, answers)
    try:
        confirmed = offsets.confirm({BAD: (7, ""), GOOD: (7, "")})
    except NotOwner:
        return NOT_OWNER
    except Unavailable:
        return RETRIED
    assert confirmed[GOOD] is None
    assert isinstance(confirmed[BAD], Unavailable)
    return WAITS


def offset_fetch(consumer, answers, whole, code):
    topic = OffsetFetchResponse.OffsetFetchResponseTopic
    of = topic.OffsetFetchResponsePartition
    partitions = [
        of(partition_index=p, committed_offset=5, committed_leader_epoch=-1, metadata="m", error_code=c)
        for p, c in ((BAD, code), (GOOD, 0))
    ]
    response = OffsetFetchResponse(
        version=7, topics=[topic(name=TOPIC, partitions=partitions)], error_code=whole, throttle_time_ms=0
    )

    def handle():
        found = consumer._coordinator._handle_offset_fetch_response(response)
        assert found == {TPS[1]: OffsetAndMetadata(5, "m", -1)}

    return asked(consumer, answers, handle)


def offset_commit(consumer, answers, code):
    topic = OffsetCommitResponse.OffsetCommitResponseTopic
    of = topic.OffsetCommitResponsePartition
    partitions = [of(partition_index=p, error_code=c) for p, c in ((BAD, code), (GOOD, 0))]
    said = OffsetCommitResponse[8](topics=[topic(name=TOPIC, partitions=partitions)], throttle_time_ms=0)
    response = OffsetCommitResponse[8].decode(said.encode())
    offsets = dict.fromkeys(TPS, OffsetAndMetadata(7, "", -1))
    return asked(
        consumer,
        answers,
        lambda: consumer._coordinator._handle_offset_commit_response(offsets, 0.0, response),
    )


def described(topic):
    broker = MetadataResponse.MetadataResponseBroker(node_id=1, host="127.0.0.1", port=1, rack=None)
    answer = MetadataResponse[7](brokers=[broker], cluster_id="c", controller_id=1, topics=[topic])
    return MetadataResponse[7].decode(answer.encode())


def metadata(consumer, answers, code):
    """A topic that is known, and then answered for with an error."""
    cluster, topic = consumer._cluster, MetadataResponse.MetadataResponseTopic
    of = topic.MetadataResponsePartition
    for error_code in (0, code):
        partitions = [
            of(
                partition_index=p,
                leader_id=1,
                leader_epoch=1,
                replica_nodes=[],
                isr_nodes=[],
                offline_replicas=[],
            )
            for p in (BAD, GOOD)
        ]
        said = topic(
            error_code=error_code, name=TOPIC, is_internal=False, partitions=[] if error_code else partitions
        )
        cluster._topics = {TOPIC}
        with contextlib.suppress(kafka_errors.TopicAuthorizationFailedError):
            cluster.update_metadata(described(said))
    if TOPIC in cluster.unauthorized_topics:
        return CLOSED
    if cluster.partitions_for_topic(TOPIC) is None:
        return MISSING
    assert cluster.partitions_for_topic(TOPIC) == {BAD, GOOD}
    assert cluster._topics == {TOPIC}
    assert type(answers.undescribed(TOPIC)) is for_code(code)
    return KEPT


ANSWERED = {
    "Fetch, of a partition": fetch_of_a_partition,
    "Fetch, as a whole": fetch_as_a_whole,
    "ListOffsets": list_offsets,
    "OffsetFetch, of a partition": lambda c, a, code: offset_fetch(c, a, 0, code),
    "OffsetFetch, as a whole": lambda c, a, code: offset_fetch(c, a, code, 0),
    "OffsetCommit": offset_commit,
    "Metadata, of a topic": metadata,
}


@pytest.mark.parametrize("answer", OUTCOMES)
def test_each_error_code_has_the_outcome_of_the_table(consumer, answer):
    expected = {code: OUTCOMES[answer].get(code, OUTCOMES[answer][OTHERS]) for code in CODES}
    found = {code: ANSWERED[answer](*consumer, code) for code in CODES}
    assert {CODES[c]: one for c, one in found.items()} == {CODES[c]: one for c, one in expected.items()}


class Committing:
    """A producer whose transaction holds acknowledged records; its coordinator's answers to EndTxn are given."""

    def __init__(self, *codes):
        self._transaction_manager, self.codes = TransactionManager("t", 1000), list(codes)
        self._transaction_manager.set_producer_id_and_epoch(ProducerIdAndEpoch(7, 1))
        self._transaction_manager._current_state = TransactionState.IN_TRANSACTION
        self._transaction_manager._transaction_started = True

    def flush(self, _seconds):
        pass

    def commit_transaction(self):
        result = self._transaction_manager.begin_commit()
        while (
            handler := self._transaction_manager.next_request_handler(has_incomplete_batches=False)
        ) is not None:
            if isinstance(handler, EndTxnHandler):  # and not one that asks for the coordinator
                handler.handle_response(SimpleNamespace(error_code=self.codes.pop(0)))
        assert result.wait(0)


def test_each_endtxn_error_ends_the_producer_despite_a_later_success():
    """A publisher replaces a producer whose commit failed; see `KafkaSnapshotProducer.publish`."""
    committed = []
    for code, error in CODES.items():
        producer = Committing(code, 0)
        quirks.refuse_end_retries(producer)
        with contextlib.suppress(kafka_errors.KafkaError):
            quirks.commit_transaction(producer, [], 1.0)
            committed.append(error)
    assert committed == []
    producer = Committing(0)
    quirks.refuse_end_retries(producer)
    quirks.commit_transaction(producer, [], 1.0)


@pytest.mark.parametrize("code", [code for code in CODES if for_code(code).retriable])
def test_a_commit_ends_despite_endless_retriable_errors(code):
    producer = Committing(*[code] * 50)
    quirks.refuse_end_retries(producer)
    with pytest.raises(kafka_errors.KafkaConnectionError, match="is unknown"):
        quirks.commit_transaction(producer, [], 1.0)
    assert len(producer.codes) == 49


def test_an_unknown_topic_is_requested_again_after_any_error(consumer):
    consumer, _ = consumer
    consumer._cluster._partitions.clear()
    consumer._cluster._topics = {TOPIC}
    said = MetadataResponse.MetadataResponseTopic(error_code=17, name=TOPIC, is_internal=False, partitions=[])
    consumer._cluster.update_metadata(described(said))
    assert consumer._cluster._topics == {TOPIC}
    assert consumer._cluster._need_update


def test_refused_partitions_back_off_until_they_succeed():
    now = [100.0]
    refusals, error = Refusals(lambda: now[0]), kafka_errors.UnknownError()
    waits = []
    for _ in range(9):
        refusals.add(3, error)
        began = now[0]
        while refusals.waiting() == {3}:
            now[0] += 0.05
        waits.append(round(now[0] - began, 1))
    assert waits == [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0, 5.0]
    ((found, seconds),) = refusals.take_new().values()
    assert found is error and seconds > 10
    assert refusals.take_new() == {}
    assert refusals.lasting() == {3}
    now[0] += 10.1
    assert refusals.lasting() == set()
    refusals.add(3, error)
    refusals.forget([3])
    assert (refusals.lasting(), refusals.take_new()) == (set(), {})
