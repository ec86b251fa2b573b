"""Each quirk of kafka-python fails there, and works here: a test fails if either changes.

No broker is needed: the clients are the library's own, with injected broker answers.
"""

import contextlib
import heapq
import inspect
import socket
import ssl
import subprocess
import sys
from types import SimpleNamespace

import pytest
from kafka import KafkaConsumer, KafkaProducer, TopicPartition, errors
from kafka.codec import gzip_encode
from kafka.consumer.fetcher import Fetcher
from kafka.coordinator.base import Generation
from kafka.future import Future
from kafka.net import manager, transport
from kafka.producer.sender import Sender
from kafka.producer.transaction_manager import (
    EndTxnHandler,
    FindCoordinatorHandler,
    ProducerIdAndEpoch,
    TransactionalRequestResult,
    TransactionManager,
    TransactionState,
    TxnOffsetCommitHandler,
)
from kafka.protocol.frame import KafkaBytes
from kafka.record import default_records
from kafka.structs import ConsumerGroupMetadata, MemberState, OffsetAndMetadata, OffsetAndTimestamp

from worker.kafka.client import quirks

TP = TopicPartition("t", 0)
NO_BROKER = {"api_version": (3, 0), "bootstrap_timeout_ms": 300}


@pytest.fixture
def silent():
    """An address that accepts connections and sends nothing."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"127.0.0.1:{server.getsockname()[1]}"


@pytest.fixture
def consumer(silent):
    consumer = KafkaConsumer(bootstrap_servers=silent, group_id="g", **NO_BROKER)
    yield consumer
    consumer.close(autocommit=False, timeout_ms=0)


@pytest.fixture
def producer(silent):
    producer = KafkaProducer(bootstrap_servers=silent, **NO_BROKER)
    yield producer
    quirks.drop(producer)
    producer._sender.join(30)


class Net:
    """Selector of a transport: never waits, and notes whether a time-out was given."""

    def __init__(self):
        self.timed = []

    async def wait_read(self, sock, timeout_at=None):
        self.timed.append(timeout_at is not None)
        if len(self.timed) > 3:
            raise errors.KafkaTimeoutError

    wait_write = wait_read

    def unregister_event(self, *_):
        pass

    cancel = unregister_event


def to_end(coroutine):
    """Runs a coroutine that never waits."""
    with pytest.raises(StopIteration):
        coroutine.send(None)


# --- connections --------------------------------------------------------------------------------------------


def last_words(made):
    """Bytes that a protocol receives from a broker that writes and closes, and then the end."""
    heard = []
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.setblocking(False)
        theirs.sendall(b"because")
        theirs.close()
        connection = made(Net(), ours)
        connection.set_protocol(
            SimpleNamespace(
                _sensors=None,
                data_received=heard.append,
                connection_lost=lambda error: heard.append(str(error)),
            )
        )
        connection._read = True
        to_end(connection._read_from_sock())
    return heard


def test_the_last_message_of_a_broker_is_discarded_upstream():
    (lost,) = last_words(transport.KafkaTCPTransport)
    assert "disconnected" in lost
    words, lost = last_words(quirks.Plain)
    assert bytes(words) == b"because"
    assert "disconnected" in lost


def received(made, size):
    """Number of available bytes that a transport takes, turn by turn."""
    sent = bytes(i * 7 % 251 for i in range(size))
    ours, theirs = socket.socketpair()
    with ours, theirs:
        for end in (ours, theirs):
            end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4 << 20)
        ours.setblocking(False)
        theirs.sendall(sent)
        connection, turns = made(Net(), ours), []
        while sum(map(len, turns)) < size:
            data, error = connection._sock_recv()
            assert data and not error
            turns.append(bytes(data))
    assert b"".join(turns) == sent
    return turns


def test_received_data_is_joined_from_small_chunks_upstream():
    assert ".recv(4096)" in inspect.getsource(transport.KafkaTCPTransport._sock_recv)
    size = 100_000  # more than the first buffer, less than the second
    assert len(received(transport.KafkaTCPTransport, size)) == 1
    first, _ = received(quirks.Plain, size)
    assert len(first) == 1 << 16
    # a transport's bytes are its own until its own next turn
    ours, theirs = socket.socketpair()
    others = socket.socketpair()
    with ours, theirs, others[0], others[1]:
        for end in (ours, others[0]):
            end.setblocking(False)
        theirs.sendall(b"mine")
        others[1].sendall(b"hers")
        mine, _ = quirks.Plain(Net(), ours)._sock_recv()
        quirks.Plain(Net(), others[0])._sock_recv()
        assert bytes(mine) == b"mine"


def test_an_answer_is_copied_before_parsing_upstream():
    views = []
    for made in (KafkaBytes, quirks.Answer):
        answer = made(8)
        answer.write(b"12345678")
        answer.seek(0)
        assert answer.read(3) == b"123"
        rest = answer.read()
        assert bytes(rest) == b"45678"
        assert (answer.tell(), bytes(answer.read())) == (8, b"")
        answer[7] = 0
        views.append(bytes(rest) == b"4567\x00")
    assert views == [False, True]


def shake_hands(made):
    """Whether a handshake with a silent listener has a time-out, and the error that ends it here."""
    net = Net()
    ours, theirs = socket.socketpair()
    with theirs:
        ours.setblocking(False)
        connection = made(net, ours, host="localhost", ssl_context=ssl.create_default_context())
        with contextlib.closing(connection._sock):
            try:
                connection.handshake().send(None)
            except Exception as error:
                return set(net.timed), error
    raise AssertionError("a handshake with nobody")


def test_a_handshake_has_no_timeout_upstream():
    assert shake_hands(transport.KafkaSSLTransport)[0] == {False}
    timed, error = shake_hands(quirks.Tls)
    assert timed == {True}
    assert isinstance(error, TimeoutError)
    assert "no TLS handshake in 5 s" in str(error)


def test_every_client_connects_with_the_patched_transports():
    quirks.mend_connections()
    assert (manager.KafkaTCPTransport, manager.KafkaSSLTransport) == (quirks.Plain, quirks.Tls)
    made = inspect.getsource(manager.KafkaConnectionManager._build_transport)
    assert made.count("KafkaTCPTransport(") == made.count("KafkaSSLTransport(") == 1


def test_gzip_has_the_fast_level_as_no_producer_has_an_argument_for_it(monkeypatch):
    monkeypatch.setattr(default_records, "gzip_encode", gzip_encode)
    assert not [name for name in KafkaProducer.DEFAULT_CONFIG if "level" in name]
    levels = [_extra_flags(), quirks.compress("gzip"), _extra_flags()]  # XFL: 2 for level 9, 4 for level 1
    assert levels == [2, {"compression_type": "gzip"}, 4]
    assert quirks.compress("none") == {"compression_type": None}


def _extra_flags():
    batch = default_records.DefaultRecordBatchBuilder(2, 1, False, -1, -1, -1, 1 << 20)
    batch.append(0, 0, None, b"0" * 1000, [])
    return batch.build()[batch.header_size_in_bytes() + 8]


REFUSED = """
import sys
from kafka.admin import KafkaAdminClient
from kafka.errors import KafkaTimeoutError
from worker.kafka.client import brokers
with brokers._quiet(), brokers.listening() as heard:
    try:
        KafkaAdminClient(bootstrap_servers=sys.argv[1], bootstrap_timeout_ms=1000)
    except KafkaTimeoutError as error:
        print(error)
print(heard)
"""


@pytest.mark.slow
def test_connection_errors_are_logged_only_by_the_client():
    """In its own process, as the client leaves its thread and its sockets open."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))  # and does not listen
        address = f"127.0.0.1:{held.getsockname()[1]}"
        command = [sys.executable, "-c", REFUSED, address]
        done = subprocess.run(command, capture_output=True, text=True, timeout=180, check=True)
    raised, heard = done.stdout.splitlines()
    assert address in raised
    assert "ECONNREFUSED" not in raised
    assert "ECONNREFUSED" in heard


# --- producers ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("partition", [None, 0])
def test_a_missing_topic_raises_no_kafka_error_upstream(producer, monkeypatch, partition):
    known = [{0}] if partition is None else [{0}, set()]  # as `send` asks, metadata may come in between
    monkeypatch.setattr(producer._metadata, "partitions_for_topic", lambda _: known.pop(0))
    monkeypatch.setattr(producer._metadata, "topics", lambda: {"t"} if partition == 0 else set())
    with pytest.raises(quirks.TOPIC_MISSING) as raised:
        producer.send("t", b"value", partition=partition)
    assert not isinstance(raised.value, errors.KafkaError)


@pytest.mark.parametrize("refused", [errors.MessageSizeTooLargeError, errors.RecordListTooLargeError])
def test_an_oversized_record_ends_an_idempotent_producer_upstream(refused):
    upstream = TransactionManager(api_version=(3, 0))
    assert not upstream.is_transactional()
    assert upstream.classify_batch_error(refused(), None) == TransactionManager.ERROR_CLASS_FATAL


def test_a_producer_that_outlives_refusals_has_no_transaction_manager(silent):
    with contextlib.closing(
        KafkaProducer(bootstrap_servers=silent, **NO_BROKER, **quirks.OUTLIVES_REFUSALS)
    ) as producer:
        assert producer._transaction_manager is None


def test_an_expired_record_is_retriable_in_a_transaction_upstream():
    upstream = TransactionManager(transactional_id="id", api_version=(3, 0))
    found = upstream.classify_batch_error(errors.KafkaTimeoutError("expired"), None)
    assert found == TransactionManager.ERROR_CLASS_RETRIABLE  # so the sender leaves the transaction as it is


class Acknowledged:
    """A record's future."""

    def __init__(self, error=None):
        self._error = error

    def get(self, timeout):
        assert 0 <= timeout <= 30
        if self._error is not None:
            raise self._error


def test_committed_offsets_are_requested_one_by_one_upstream() -> None:
    assert [*inspect.signature(KafkaConsumer.committed).parameters] == [
        "self",
        "partition",
        "metadata",
        "timeout_ms",
    ]


@pytest.mark.parametrize("last", [Acknowledged(), Acknowledged(errors.KafkaTimeoutError("expired"))])
def test_a_transaction_is_committed_only_when_every_record_is_acknowledged(last):
    done = []
    producer = SimpleNamespace(flush=done.append, commit_transaction=lambda: done.append("commit"))
    with contextlib.suppress(errors.KafkaTimeoutError):
        quirks.commit_transaction(producer, [Acknowledged(), last], 30)
    assert done == ([30, "commit"] if last._error is None else [30])


class Asking:
    """A sender that has a request for a coordinator, to which the connection is lost before it is ready."""

    def __init__(self):
        self.retried = []
        manager = SimpleNamespace(
            is_completing=lambda: False,
            next_request_handler=lambda _: SimpleNamespace(
                request="the end of a transaction",
                needs_coordinator=lambda: True,
                coordinator_type="transaction",
            ),
            coordinator=lambda _: "coordinator-1",
            lookup_coordinator_for_request=lambda _: None,
            retry=self.retried.append,
        )
        self.sender = SimpleNamespace(
            _transaction_manager=manager,
            _accumulator=SimpleNamespace(has_incomplete=False),
            _client=SimpleNamespace(await_ready=self.lose),
            _running=True,
            _force_close=False,
            config={"request_timeout_ms": 1000, "retry_backoff_ms": 1},
        )

    def lose(self, node_id, timeout_ms):
        raise errors.KafkaConnectionError(f"Node {node_id} not ready after {timeout_ms} ms")

    def ask(self):
        assert Sender._maybe_send_pending_request(self.sender)
        return [handler.request for handler in self.retried]


def test_a_request_with_a_lost_connection_is_forgotten_upstream():
    assert Asking().ask() == []


def test_a_request_with_a_lost_connection_is_retried():
    asking = Asking()
    quirks.retry_lost_requests(SimpleNamespace(_sender=asking.sender))
    assert asking.ask() == ["the end of a transaction"]


class Ending:
    """A producer that loses its connection when it has asked for the end of a transaction, or does not."""

    def __init__(self, *, lost):
        self.lost = lost
        self._transaction_manager = TransactionManager(transactional_id="id", api_version=(4, 0))
        self._transaction_manager.set_producer_id_and_epoch(ProducerIdAndEpoch(7, 1))

    def commit_transaction(self):
        manager = self._transaction_manager
        handler = EndTxnHandler(manager, committed=True)
        manager._enqueue_request(handler)
        if self.lost:
            manager._pending_requests.pop()
            manager._in_flight_request_correlation_id = 1
            handler.on_complete(1, errors.KafkaConnectionError())
        handler.result.wait(0)


def test_the_end_of_a_transaction_is_resent_in_its_epoch_upstream():
    ending = Ending(lost=True)
    ending.commit_transaction()
    (request,) = (
        handler.request
        for *_, handler in ending._transaction_manager._pending_requests
        if isinstance(handler, EndTxnHandler)
    )
    assert (request.producer_id, request.producer_epoch) == (7, 1)
    assert "max_version=3" in inspect.getsource(
        EndTxnHandler
    )  # from version 5 on the brokers change the epoch


@pytest.mark.parametrize("lost", [False, True])
def test_the_end_of_a_transaction_is_requested_once(lost):
    ending = Ending(lost=lost)
    quirks.refuse_end_retries(ending)
    with pytest.raises(errors.KafkaConnectionError, match="is unknown") if lost else contextlib.nullcontext():
        ending.commit_transaction()
    asked = [handler for *_, handler in ending._transaction_manager._pending_requests]
    assert any(isinstance(handler, EndTxnHandler) for handler in asked) is not lost


def test_a_transaction_waits_for_both_halves_of_a_split_batch():
    done = []

    def flush(_timeout):
        raise errors.UnknownError("Future not done")

    producer = SimpleNamespace(flush=flush, commit_transaction=lambda: done.append("commit"))
    quirks.commit_transaction(producer, [Acknowledged(), Acknowledged()], 30)
    assert done == ["commit"]
    with pytest.raises(errors.MessageSizeTooLargeError):
        quirks.commit_transaction(producer, [Acknowledged(errors.MessageSizeTooLargeError())], 30)
    assert done == ["commit"]


def unsent(producer, monkeypatch):
    """Has a producer hold a record that it cannot send."""
    monkeypatch.setattr(producer._metadata, "partitions_for_topic", lambda _: {0})
    monkeypatch.setattr(producer._metadata, "topics", lambda: {"t"})
    producer.send("t", b"value", partition=0)


def test_a_split_batch_blocks_flush_and_close_upstream(producer, monkeypatch):
    unsent(producer, monkeypatch)
    (batch,) = producer._accumulator._incomplete.all()
    batch.produce_future._latch.set()  # as of one whose records are in two others now
    with pytest.raises(errors.UnknownError, match="not done"):
        producer.flush(0)
    with pytest.raises(errors.UnknownError, match="not done"):
        producer.close(timeout=0)
    quirks.drop(producer)
    producer._sender.join(30)
    assert not producer._sender.is_alive()


def test_a_producer_with_unsent_records_closes_slowly_upstream(producer, monkeypatch):
    unsent(producer, monkeypatch)
    with pytest.raises(errors.KafkaTimeoutError):
        producer.close(timeout=0)
    assert producer._sender.is_alive()
    assert not producer._closed
    quirks.drop(producer)
    producer._sender.join(30)
    assert not producer._sender.is_alive()


# --- consumers ----------------------------------------------------------------------------------------------


def test_a_paused_partition_is_given_a_position_upstream(consumer):
    consumer.assign([TP])
    consumer.pause(TP)
    assert consumer._subscription.missing_fetch_positions() == {TP}  # the metadata that a poll requires
    consumer.resume(TP)
    quirks.hold(consumer, TP)
    assert consumer._subscription.missing_fetch_positions() == set()
    assert consumer.paused() == {TP}


def join(consumer):
    """Polls once for the group; returns whether the consumer takes itself to be joined."""
    joined = []

    async def poll():
        joined.append(await consumer._coordinator.join_group_async(timeout_ms=0))

    to_end(poll())
    return joined == [True]


def test_a_group_leader_forgets_that_it_is_joining_upstream(consumer, monkeypatch):
    consumer.subscribe(["t"])
    coordinator = consumer._coordinator

    async def ready(timeout_ms):
        return True

    async def wait_for(task, timeout_ms):
        raise errors.KafkaTimeoutError

    monkeypatch.setattr(coordinator, "ensure_coordinator_ready_async", ready)
    monkeypatch.setattr(coordinator._manager, "wait_for", wait_for)
    # the topic's partitions changed, so the leader rejoined; it has just assigned them, and its poll ended before
    # the answer to that came
    coordinator.rejoin_needed = False
    coordinator.rejoining, coordinator.state = True, MemberState.REBALANCING
    coordinator._join_task = SimpleNamespace(is_done=False)
    coordinator._assignment_snapshot = coordinator._metadata_snapshot
    coordinator._joined_subscription = {"t"}
    assert join(consumer)  # it considers itself joined, and no longer waits for the answer
    assert consumer.group_metadata().state is MemberState.REBALANCING
    quirks.resume_join(consumer)
    assert not join(consumer)


def test_resuming_a_join_leaves_a_joined_member_unchanged(consumer):
    coordinator = consumer._coordinator
    coordinator.rejoin_needed, coordinator.state = False, MemberState.STABLE
    quirks.resume_join(consumer)
    assert not coordinator.rejoin_needed


@pytest.fixture
def named(silent):
    """A member with a name that considers itself joined; `answers` answers its requests to the group."""
    member = KafkaConsumer(
        "t", bootstrap_servers=silent, group_id="g", group_instance_id="worker-1", **NO_BROKER
    )
    coordinator = member._coordinator
    coordinator.rejoin_needed, coordinator.state = False, MemberState.STABLE
    coordinator._joined_subscription = {"t"}
    coordinator._generation = Generation(1, "worker-1-id", "cooperative-sticky")
    coordinator._heartbeat_enabled = True
    yield member
    coordinator.reset_generation()
    member.close(autocommit=False, timeout_ms=0)


def send_heartbeat(member, monkeypatch, answer):
    """Lets a member send a heartbeat, and its coordinator answer."""

    async def answered():
        if answer is not None:
            raise answer

    monkeypatch.setattr(member._coordinator, "_send_heartbeat_request", answered)
    to_end(member._coordinator._do_heartbeat())


@pytest.mark.parametrize(
    ("answer", "lost"),
    [(None, False), (errors.RebalanceInProgressError(), False), (errors.FencedInstanceIdError(), True)],
)
def test_a_displaced_member_believes_it_is_joined_upstream(named, monkeypatch, answer, lost):
    send_heartbeat(named, monkeypatch, answer)
    assert named.group_metadata().state is MemberState.STABLE
    assert not named._coordinator.need_rejoin()
    named._coordinator.poll_heartbeat()  # as `poll` then does: no exception
    assert quirks.displaced(named) == lost


def test_a_joining_member_is_not_displaced(named):
    coordinator = named._coordinator
    coordinator._disable_heartbeat()
    quirks.rejoin(named)
    assert coordinator.need_rejoin()
    assert not quirks.displaced(named)
    coordinator.state = MemberState.REBALANCING
    assert not quirks.displaced(named)


def left(member, monkeypatch):
    """Requests of a closing member to its coordinator."""
    sent = []
    coordinator = member._coordinator

    async def answered(future, timeout_ms):
        raise errors.KafkaTimeoutError

    monkeypatch.setattr(coordinator, "coordinator_unknown", lambda: False)
    monkeypatch.setattr(coordinator._manager, "send", lambda request, node_id: sent.append(request))
    monkeypatch.setattr(coordinator._manager, "wait_for", answered)
    to_end(coordinator.maybe_leave_group_async())
    return [(one.member_id, one.group_instance_id) for request in sent for one in request.members]


def test_a_named_member_does_not_leave_upstream(named, monkeypatch):
    assert left(named, monkeypatch) == []


def test_a_named_member_leaves_at_the_end(named, monkeypatch):
    quirks.leave_on_close(named)
    assert left(named, monkeypatch) == [("worker-1-id", "worker-1")]


def test_a_displaced_member_does_not_remove_its_successor(named, monkeypatch):
    quirks.leave_on_close(named)
    send_heartbeat(named, monkeypatch, errors.FencedInstanceIdError())
    assert left(named, monkeypatch) == []


def test_cached_metadata_of_a_topic_needs_internal_access(consumer):
    assert "timeout" not in str(inspect.signature(KafkaConsumer.partitions_for_topic))
    cluster = consumer._cluster
    cluster._last_successful_refresh_ms = 900.0
    assert quirks.known_partitions(consumer, "t", 1000.0) is None
    cluster._last_successful_refresh_ms = 1001.0
    assert quirks.known_partitions(consumer, "t", 1000.0) == set()
    cluster._partitions = {"t": {0: None, 1: None}}
    assert quirks.known_partitions(consumer, "t", 1000.0) == {0, 1}


def test_the_topic_id_is_requested_separately_because_fetches_omit_it(consumer, monkeypatch):
    assert not hasattr(KafkaConsumer, "topic_id")
    asking = inspect.getsource(Fetcher._create_fetch_requests)
    assert "max_version = 12" in asking  # the id comes with 13
    sent = []
    said = SimpleNamespace(error_code=0, topic_id="7")

    def send(request, node):
        sent.append((request, node))
        return Future().success(SimpleNamespace(topics=[said]))

    manager = consumer._manager
    monkeypatch.setattr(manager, "least_loaded_node", lambda: 1)
    monkeypatch.setattr(manager, "send", send)
    assert quirks.topic_id(consumer, "t", 1000) == "7"
    ((request, node),) = sent
    assert ([topic.name for topic in request.topics], request.allow_auto_topic_creation, node) == (
        ["t"],
        False,
        1,
    )

    def connection(waiting, connected=True, paused=()):
        return SimpleNamespace(connected=connected, paused=paused, in_flight_requests=[None] * waiting)

    # not of one that has a fetch before it, nor of one that is not connected
    connections = {1: connection(1), 2: connection(0, connected=False), "coordinator-1": connection(0)}
    connections[3] = connection(0, paused={"throttle"})
    monkeypatch.setattr(manager, "_conns", connections)
    assert quirks.topic_id(consumer, "t", 1000) == "7"
    assert sent[-1][1] == "coordinator-1"
    # each answer has an earlier one queued, and the group's answer is not a fetch
    monkeypatch.setattr(manager, "_conns", {1: connection(1), "coordinator-1": connection(1)})
    assert quirks.topic_id(consumer, "t", 1000) == "7"
    assert sent[-1][1] == "coordinator-1"
    connections |= {1: connection(1), "coordinator-1": connection(2)}
    monkeypatch.setattr(manager, "_conns", connections)
    assert quirks.topic_id(consumer, "t", 1000) == "7"
    assert sent[-1][1] == 1
    monkeypatch.setattr(manager, "_conns", {})
    said.error_code = errors.UnknownTopicOrPartitionError.errno
    assert quirks.topic_id(consumer, "t", 1000) is None
    monkeypatch.setattr(manager, "send", lambda *_: Future())
    with pytest.raises(errors.KafkaTimeoutError):
        quirks.topic_id(consumer, "t", 10)
    monkeypatch.setattr(manager, "least_loaded_node", lambda: None)
    with pytest.raises(errors.NodeNotReadyError):
        quirks.topic_id(consumer, "t", 1000)


def to_its_end(steps):
    """Returns the result of a coroutine that never waits: a browser's loop may be running already."""
    with pytest.raises(StopIteration) as ended:
        steps.send(None)
    return ended.value.value


def test_only_bounds_of_leaderless_partitions_are_omitted():
    leaders = {0: 1, 1: -1, 2: 1, 3: None}

    class Heard(Fetcher):
        """Coroutine up to the request to a broker."""

        def __init__(self):
            async def wait_for(step, _ms):
                return await step

            cluster = SimpleNamespace(
                leader_for_partition=lambda tp: leaders[tp.partition],
                request_update=lambda: None,
                add_topic=lambda _: None,
                need_update=False,
            )
            self._manager = SimpleNamespace(
                cluster=cluster, call_soon=lambda step, *more: step(*more), wait_for=wait_for
            )
            self._net = SimpleNamespace(run=lambda step, *more: to_its_end(step(*more)))

        async def _send_list_offsets_request(self, _node, offsets):
            return {tp: OffsetAndTimestamp(7, -1, -1) for tp in offsets}, set()

    fetcher, tps = Heard(), [TopicPartition("t", p) for p in leaders]
    consumer = SimpleNamespace(_cluster=fetcher._manager.cluster)
    with pytest.raises(KeyError):
        fetcher.end_offsets(tps, 1000)
    for ask in (fetcher.beginning_offsets, fetcher.end_offsets):
        assert quirks.bounds(consumer, ask, tps, 1000) == {tps[0]: 7, tps[2]: 7}

    def lost(some, timeout_ms):
        raise KeyError(some)

    assert quirks.bounds(consumer, lost, tps, 1000) == {}

    # a caller that needs all of them learns which lack a leader
    consumer.beginning_offsets, consumer.end_offsets = fetcher.beginning_offsets, fetcher.end_offsets
    assert quirks.whole_bounds(consumer, [tps[0], tps[2]], 1000) == {tps[0]: (7, 7), tps[2]: (7, 7)}
    with pytest.raises(errors.LeaderNotAvailableError, match="topic t: no leader of partition 1, 3"):
        quirks.whole_bounds(consumer, tps, 1000)


def hears(consumer, monkeypatch, said):
    """Answers a client's metadata requests with a partition's leader, or an error; returns the log lines."""
    asked = []

    def request_update():
        asked.append(said)
        if isinstance(said, Exception):
            return Future().failure(said)
        consumer._cluster._partitions = {"t": {0: SimpleNamespace(leader_id=said)}}
        return Future().success(consumer._cluster)

    monkeypatch.setattr(consumer._cluster, "request_update", request_update)
    return asked


def test_a_lone_leaderless_partition_is_retried_until_timeout_upstream(consumer, monkeypatch):
    asked = hears(consumer, monkeypatch, -1)
    with pytest.raises(errors.KafkaTimeoutError):
        consumer.end_offsets([TopicPartition("t", 0)], timeout_ms=500)
    assert len(asked) > 1


def test_a_lone_leaderless_partition_is_omitted_after_an_answer(consumer, monkeypatch):
    found = [TopicPartition("t", 0)]

    def answered(tps, timeout_ms):
        return dict.fromkeys(tps, 7)

    with pytest.raises(errors.KafkaTimeoutError):  # no broker answered
        quirks.bounds(consumer, answered, found, 50)
    asked = hears(consumer, monkeypatch, -1)
    assert quirks.bounds(consumer, consumer.end_offsets, found, 1000) == {}
    assert asked == [-1]
    hears(consumer, monkeypatch, 1)  # it has one by now, or the topic grew
    assert quirks.bounds(consumer, answered, found, 1000) == {found[0]: 7}
    consumer._cluster._partitions = {}
    hears(consumer, monkeypatch, errors.KafkaConnectionError())
    with pytest.raises(errors.KafkaConnectionError):  # no broker reported a missing leader
        quirks.bounds(consumer, answered, found, 1000)


class Offsets:
    """The transaction manager of a producer, and a coordinator's answers to its requests."""

    MEMBER = ConsumerGroupMetadata("g", 3, "m")

    def __init__(self, *, mended):
        self._transaction_manager = self.manager = TransactionManager(
            transactional_id="id", api_version=(4, 0)
        )
        self._sender = SimpleNamespace(wakeup=self.wake)
        self.for_offsets = []
        self.manager.set_producer_id_and_epoch(ProducerIdAndEpoch(7, 1))
        for state in (TransactionState.INITIALIZING, TransactionState.READY):
            self.manager._transition_to(state)
        if mended:
            quirks.refuse_end_retries(self)

    def send(self, offsets, answer=errors.NoError, *, seconds=0.0):
        """Sends offsets in a new transaction; all requests but the last succeed."""
        self.answer = answer
        self.manager.begin_transaction()
        quirks.send_offsets(
            self, {tp: OffsetAndMetadata(at, "", -1) for tp, at in offsets.items()}, self.MEMBER, seconds
        )

    def wake(self):
        """Answers all requests, at most 4 for offsets; does not answer those for offsets if the answer is None."""
        while self.manager._pending_requests and len(self.for_offsets) < 4:
            *_, handler = heapq.heappop(self.manager._pending_requests)
            code = 0
            if isinstance(handler, FindCoordinatorHandler):
                continue
            if isinstance(handler, TxnOffsetCommitHandler):
                self.for_offsets.append(handler.request)
                if self.answer is None:
                    return
                code = getattr(self.answer, "errno", 0)
            tps = [(tp.topic, [(tp.partition, code)]) for tp in handler.offsets]
            self.manager._in_flight_request_correlation_id = 1
            lost = isinstance(handler, TxnOffsetCommitHandler) and self.answer is errors.KafkaConnectionError
            handler.on_complete(1, self.answer() if lost else SimpleNamespace(error_code=0, topics=tps))

    @property
    def committed(self):
        """Partition and offset of each offset in the last request."""
        found = (part for topic in self.for_offsets[-1].topics for part in topic.partitions)
        return [(part.partition_index, part.committed_offset) for part in found]


def test_the_offsets_of_an_aborted_transaction_are_sent_again_upstream():
    group = Offsets(mended=False)
    with pytest.raises(errors.CommitFailedError):
        group.send({TP: 5}, errors.IllegalGenerationError)
    group.manager.begin_abort()
    group.manager._pending_requests.clear()
    group.manager._complete_transaction()
    group.send({TopicPartition("t", 1): 8})
    assert group.committed == [(0, 5), (1, 8)]


def test_offsets_are_confirmed_in_time():
    group = Offsets(mended=True)
    with pytest.raises(errors.KafkaTimeoutError, match="did not confirm"):
        group.send({TP: 5}, None)


@pytest.mark.parametrize("mended", [False, True])
def test_offsets_with_a_lost_connection_are_sent_again_upstream(mended):
    group = Offsets(mended=mended)
    with pytest.raises(errors.KafkaConnectionError if mended else errors.KafkaTimeoutError):
        group.send({TP: 5}, errors.KafkaConnectionError)
    assert len(group.for_offsets) == (1 if mended else 4)


def test_unsent_offsets_wait_for_the_coordinator():
    group = Offsets(mended=True)
    handler = TxnOffsetCommitHandler(group.manager, Offsets.MEMBER, {}, TransactionalRequestResult())
    group.manager.retry(handler)
    assert [pending is handler for *_, pending in group.manager._pending_requests] == [True]
    assert not handler.result.is_done
