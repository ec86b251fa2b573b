"""What kafka-python 3.0.12 gets wrong, or keeps to itself: a piece for each quirk, and no private name of it elsewhere.

Each says what goes wrong upstream and how we would see that it is mended; ``tests/unit/worker/test_quirks.py`` shows
each in the library itself, and fails when it is gone. The version is pinned: a new one has to pass these tests first.
"""

import contextlib
import logging
import re
import ssl
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.errors import (
    KafkaConnectionError,
    KafkaError,
    KafkaTimeoutError,
    LeaderNotAvailableError,
    NodeNotReadyError,
    TopicAuthorizationFailedError,
    UnknownError,
)
from kafka.net import manager
from kafka.net.sasl.oauth import AbstractTokenProvider
from kafka.net.transport import KafkaSSLTransport, KafkaTCPTransport
from kafka.protocol import parser
from kafka.protocol.frame import KafkaBytes
from kafka.protocol.metadata import MetadataRequest
from kafka.protocol.producer import EndTxnRequest
from kafka.structs import MemberState

from worker.login import Tokens

# --- connections --------------------------------------------------------------------------------------------

_FIRST_RECEIVED, _MOST_RECEIVED = 1 << 16, 1 << 20
HANDSHAKE_SECONDS = 5.0
"""How long the other side may take for the whole handshake: far longer than any that speaks TLS."""


class _Heard:
    """A transport that reads much at a time, and hands on the last bytes before the end.

    Upstream reads 4 KiB at a time and joins them: of what a fetch costs the half. Gone when it reads into a buffer.
    And it throws away what came together with the end: why a broker that hangs up refused a login. Gone when
    ``_read_from_sock`` hands the data on before it looks at the error; here the end is met at the next look.
    """

    _sock: Any
    _room = memoryview(b"")
    """What is read into; each transport's own, as what was read is copied only after the next transport's turn."""

    def _sock_recv(self) -> tuple[bytes | memoryview, Exception | None]:
        room = self._room or memoryview(bytearray(_FIRST_RECEIVED))
        received, error = 0, None
        while received < room.nbytes and error is None:
            try:
                read = self._sock.recv_into(room[received:])
                error = None if read else KafkaConnectionError("socket disconnected")
                received += read
            except (BlockingIOError, InterruptedError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
                break
            except OSError as failed:
                error = KafkaConnectionError(failed)
        # a connection on which little comes keeps a small one
        filled = received == room.nbytes < _MOST_RECEIVED
        self._room = memoryview(bytearray(_MOST_RECEIVED)) if filled else room
        if isinstance(self._sock, ssl.SSLSocket) and (left := self._sock.pending()):
            # what is deciphered already nobody would be woken for
            return b"".join((room[:received], self._sock.recv(left))), None
        return room[:received], None if received else error


class Plain(_Heard, KafkaTCPTransport):  # type: ignore[misc]  # kafka-python carries no types
    """A connection without TLS."""


class Tls(_Heard, KafkaSSLTransport):  # type: ignore[misc]  # kafka-python carries no types
    """A connection with TLS, whose handshake ends.

    Upstream waits for ever for a listener that says nothing. Gone when ``handshake`` waits with a time-out.
    """

    async def handshake(self) -> None:
        """Shakes hands.

        Raises:
            TimeoutError: the other side did not finish in `HANDSHAKE_SECONDS`.
            OSError: it refused, or speaks no TLS.
        """
        deadline = time.monotonic() + HANDSHAKE_SECONDS
        try:
            while (wait := self._step()) is not None:
                await wait(self._sock, timeout_at=deadline)
        except KafkaTimeoutError:
            self._sock.close()
            raise TimeoutError(f"no TLS from the other side in {HANDSHAKE_SECONDS:g} s") from None
        except BaseException:
            self._sock.close()  # nobody else knows it yet
            raise

    def _step(self) -> Any:
        """Goes on with the handshake; returns what to wait by, or None at its end."""
        try:
            self._sock.do_handshake()
        except ssl.SSLWantReadError:
            return self._net.wait_read
        except ssl.SSLWantWriteError:
            return self._net.wait_write
        return None


class Answer(KafkaBytes):  # type: ignore[misc]  # kafka-python carries no types
    """The bytes of an answer, read where they lie.

    Upstream copies all of them twice before it looks at them. Gone when ``read`` copies once.
    """

    def read(self, nbytes: int | None = None) -> bytes | memoryview:
        """Returns the next bytes; all that are left as a view."""
        if nbytes is not None:
            return bytes(super().read(nbytes))
        start: int = self.tell()
        self.seek(len(self))
        return memoryview(self)[start:]


def mend_connections() -> None:
    """Has every client of this process connect by `Plain` and `Tls`, read an `Answer`, and accept `Tokens`.

    No client takes a transport as an argument. Called before a client is made; a second call changes nothing.
    """
    AbstractTokenProvider.register(Tokens)
    manager.KafkaTCPTransport, manager.KafkaSSLTransport = Plain, Tls
    parser.KafkaBytes = Answer


CONNECTIONS = logging.getLogger("kafka.net.manager")
"""Where the client says why it cannot connect."""


def why_not_connected(record: logging.LogRecord) -> str | None:
    """Returns why the client failed to connect, from what it writes to `CONNECTIONS`; None from anything else.

    Upstream raises only that time was up, and tells the log alone why. Gone when the error that a client raises where
    no broker lets it in has the reason.

    Example:
        >>> why_not_connected(logging.makeLogRecord({"msg": "Connection failed: 111 ECONNREFUSED"}))
        '111 ECONNREFUSED'
    """
    pattern = r"failed: (?:KafkaConnectionError: )?(.+?)(?: \(backoff .*)?$"
    found = re.search(pattern, record.getMessage())
    return None if found is None or "KafkaTimeoutError: Unable" in found[1] else found[1]


# --- producers ----------------------------------------------------------------------------------------------

TOPIC_MISSING = ValueError
"""What ``KafkaProducer.send`` raises where the topic has just gone, or has no such partition.

A plain ValueError upstream, not one of its own errors. Gone when it is a ``KafkaError``.
"""

OUTLIVES_REFUSALS = {"enable_idempotence": False}
"""The setting of a producer that goes on after the brokers refused a record.

With idempotence, one record that is too large for its topic ends the producer for good, which is what only an error of
the producer's own sequence should do. Gone when a producer that is idempotent takes such a refusal for the record's.
"""


def commit_transaction(producer: KafkaProducer, sent: Iterable[Any], timeout_seconds: float) -> None:
    """Commits a transaction whose every record was acknowledged.

    Upstream commits without a word what is left of a transaction when a record of it expired, because the failure of a
    batch by an error that may pass puts the transaction into no state of error. And where a batch is too large for the
    topic, its `flush` fails as soon as that is cut in two, whatever becomes of the halves. Gone when neither is so.

    Args:
        producer: in a transaction.
        sent: what `send` returned for each of its records.
        timeout_seconds: how long to wait for the acknowledgements.

    Raises:
        KafkaError: a record was not acknowledged, or the commit failed.
    """
    deadline = time.monotonic() + timeout_seconds
    with contextlib.suppress(UnknownError):
        producer.flush(timeout_seconds)
    for future in sent:
        future.get(max(0.0, deadline - time.monotonic()))
    producer.commit_transaction()


_AGAIN_SECONDS = 0.1
"""After how long a producer that lost its connection is to ask again."""


def ask_again(producer: KafkaProducer) -> None:
    """Has a transactional producer ask again what it could not ask as its connection was lost meanwhile.

    Upstream's sender forgets a request if the connection to its coordinator is lost before it is ready: it expects
    False of `await_ready`, which raises. The records wait until their time is up then, and the end of
    a transaction for ever. Gone when a producer whose connections are cut commits within seconds.
    """
    client = producer._sender._client
    await_ready = client.await_ready

    def is_ready(node_id: Any, timeout_ms: float) -> bool:
        try:
            return bool(await_ready(node_id, timeout_ms=timeout_ms))
        except KafkaError:
            time.sleep(_AGAIN_SECONDS)  # the sender asks at once
            return False

    client.await_ready = is_ready


def end_once(producer: KafkaProducer) -> None:
    """Has a transactional producer fail where it would ask for the end of a transaction again.

    Upstream asks again when its connection is lost, in the same epoch as the next transaction: what was on its way
    before may come while that one is open, and commits its first part. And it asks again, without an end, as long as
    the coordinator answers a code that may pass. Who starts anew after the failure has a new epoch, of which the old
    request is none, and reads whether it was heard. Gone when each transaction has an epoch of its own (EndTxn, version
    5) and a commit has a time-out.
    """
    manager = producer._transaction_manager
    enqueue = manager._enqueue_request

    def enqueue_first(request: Any) -> None:
        if request.is_retry and isinstance(request.request, EndTxnRequest):
            request.fatal_error(
                KafkaConnectionError(
                    "the end of a transaction is in doubt: the coordinator did not confirm it"
                )
            )
            return
        enqueue(request)

    manager._enqueue_request = enqueue_first


def drop(producer: KafkaProducer) -> None:
    """Closes a producer at once, with all that it has not sent; its next owner aborts what it left open.

    Upstream's ``close(timeout=0)`` first flushes, and where something is unsent, or was cut in two, raises before it
    has closed anything. Gone when that closes.
    """
    producer._sender.force_close()
    with contextlib.suppress(KafkaTimeoutError, UnknownError):
        producer.close(timeout=0)


# --- consumers ----------------------------------------------------------------------------------------------


def hold(consumer: KafkaConsumer, partition: TopicPartition) -> None:
    """Keeps a partition that was just assigned still; for the rebalance listener.

    Upstream gives every partition without a position one, though it is paused: the group's offset, or with the reset
    policy `none` an error out of `poll`. Gone when a paused partition is left alone.
    """
    consumer.seek(partition, 0)
    consumer.pause(partition)


def go_on_joining(consumer: KafkaConsumer) -> None:
    """Has a consumer that is in the middle of joining its group go on with that at its next poll.

    Upstream, a leader that rejoins because the topic's partitions changed forgets that once it has assigned them: if a
    poll ends before the join does, it never completes it, nor beats again. Gone when a join in progress is reason
    enough to go on.
    """
    if consumer.group_metadata().state is MemberState.REBALANCING:
        consumer._coordinator.request_rejoin()


def leave_at_the_end(consumer: KafkaConsumer) -> None:
    """Has a member with a name leave its group when it is closed, as one without a name does.

    Upstream it never does, as Kafka's own client: whoever ends in order is waited for like one that was killed. Gone
    when ``close`` takes whether to leave.
    """
    consumer._coordinator.is_dynamic_member = lambda: not displaced(consumer)


def displaced(consumer: KafkaConsumer) -> bool:
    """Returns whether another process is known to have joined the group under this member's name.

    Upstream tells the log alone: it beats no more, and polls on as if it had its partitions. Gone when ``poll`` raises
    it.
    """
    coordinator = consumer._coordinator
    with coordinator._lock:  # a join ends in several steps
        waits = coordinator.need_rejoin() or not coordinator.stable()
        return not waits and not coordinator._heartbeat_enabled


def join_again(consumer: KafkaConsumer) -> None:
    """Has a member join its group again at its next poll.

    Upstream, a leader that comes back under its name is not told that it leads (by the version of the request to join),
    and so nobody notices that the topic's partitions changed. The broker knows who leads, and assigns all anew when
    that one joins again. Gone when the client asks to join by version 9.
    """
    consumer._coordinator.request_rejoin()


def known_partitions(consumer: KafkaConsumer, topic: str, since_ms: float) -> set[int] | None:
    """Returns all partitions of a topic, none if it is missing, or None while the client has not heard of it.

    Upstream's ``partitions_for_topic`` asks for a topic that it does not know, without a time-out. Gone when it takes
    one.

    Args:
        consumer: subscribed to the topic.
        topic: the topic's name.
        since_ms: when it subscribed, by the monotonic clock; what was heard before was not about this topic.

    Raises:
        TopicAuthorizationFailedError: the brokers do not say it to this client; upstream loses that on the way.
    """
    cluster = consumer._cluster
    if topic in cluster.unauthorized_topics:
        raise TopicAuthorizationFailedError(topic)
    partitions: set[int] | None = cluster.partitions_for_topic(topic)
    asked = cluster._last_successful_refresh_ms > since_ms
    return set() if partitions is None and asked else partitions


def topic_id(consumer: KafkaConsumer, topic: str, ms: int) -> str | None:
    """Asks the brokers for the id of a topic, of which they know one of that name; None if they know none.

    Upstream's consumer fetches by name, and tells nobody what it last heard of the id: of a topic that was deleted and
    made again it goes on reading at the same offsets, until it next asks for metadata, minutes later perhaps. Gone when
    fetches name the id (from version 13 on), or the consumer has a way to ask.

    Raises:
        KafkaError: the brokers do not answer.
    """
    manager = consumer._manager
    asked = MetadataRequest(
        topics=[MetadataRequest.MetadataRequestTopic(name=topic)],
        allow_auto_topic_creation=False,
        include_cluster_authorized_operations=False,
        include_topic_authorized_operations=False,
    )

    async def answer() -> Any:
        # a broker answers what comes behind a fetch only once that has records: first the group's own connection,
        # which has a name in the place of a number
        ready = [
            (len(one.in_flight_requests), isinstance(node, int), node)
            for node, one in manager._conns.items()
            if one.connected and not one.paused
        ]
        _, _, free = min(ready, default=(0, True, None))
        if free is None and (free := manager.least_loaded_node()) is None:
            raise NodeNotReadyError("no broker can be asked")
        return await manager.wait_for(manager.send(asked, free), ms)

    (found,) = manager.run(answer).topics
    return None if found.error_code else str(found.topic_id)


def committed(
    consumer: KafkaConsumer, tps: Collection[TopicPartition], ms: int
) -> Mapping[TopicPartition, Any]:
    """Returns a group's committed offsets, each with its metadata; asks for all partitions at once.

    Upstream's ``committed`` takes one partition. Gone when it takes several.

    Raises:
        KafkaError: the group's coordinator does not answer.
    """
    offsets: Mapping[TopicPartition, Any] = consumer._coordinator.fetch_committed_offsets(
        list(tps), timeout_ms=ms
    )
    return offsets


def bounds(
    consumer: KafkaConsumer,
    ask: Callable[..., Mapping[TopicPartition, int]],
    tps: Collection[TopicPartition],
    ms: int,
    refused: Collection[TopicPartition] = (),
) -> Mapping[TopicPartition, int]:
    """Returns the beginnings or ends of those of some partitions that have a leader.

    Upstream (3.0.12) leaves out one without a leader where another one has one, and then looks for it: a `KeyError`;
    where none has one, it asks for leaders until time is up. Gone when either is an answer without it.

    Args:
        consumer: the client.
        ask: its `beginning_offsets` or `end_offsets`.
        tps: which partitions.
        ms: for how long the brokers are asked.
        refused: filled meanwhile with the partitions that were refused, see `refusals`; they are left out.

    Raises:
        KafkaError: the brokers do not answer.
    """
    cluster = consumer._cluster
    if not (led := _led(cluster, tps)):
        # what the client heard last may be old, and who waits longer than for this counts no other partition meanwhile
        consumer._manager.run(consumer._manager.wait_for, cluster.request_update(), ms)
        led = _led(cluster, tps)
    elif len(led) < len(tps):
        cluster.request_update()
    try:
        return ask(led, timeout_ms=ms) if led else {}
    except KeyError:  # one more has none by now, or was refused
        led = [tp for tp in _led(cluster, tps) if tp not in refused]
    try:
        return ask(led, timeout_ms=ms) if led and refused else {}
    except KeyError:
        return {}


def whole_bounds(
    consumer: KafkaConsumer, tps: Collection[TopicPartition], ms: int
) -> dict[TopicPartition, tuple[int, int]]:
    """Returns the beginning and the end of each of some partitions, for who needs them all; see `bounds`.

    Raises:
        KafkaError: some have no leader, or the brokers do not answer.
    """
    begins, ends = (
        bounds(consumer, ask, tps, ms) for ask in (consumer.beginning_offsets, consumer.end_offsets)
    )
    if missing := sorted(tp for tp in tps if tp not in begins or tp not in ends):
        said = ", ".join(str(tp.partition) for tp in missing)
        raise LeaderNotAvailableError(f"topic {missing[0].topic}: no leader of partition {said}")
    return {tp: (begins[tp], ends[tp]) for tp in tps}


def _led(cluster: Any, tps: Iterable[TopicPartition]) -> list[TopicPartition]:
    """Returns those of some partitions that have a leader, as the client heard last."""
    return [tp for tp in tps if cluster.leader_for_partition(tp) not in (None, -1)]
