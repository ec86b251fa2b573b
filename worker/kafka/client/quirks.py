"""Works around defects and missing interfaces of kafka-python 3.0.12.

Each piece names the defect and the sign that it is fixed; ``tests/unit/worker/test_quirks.py`` shows each in the
library itself, and fails when it is gone. A new version of the library has to pass these tests first.
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
HANDSHAKE_SECONDS = 5.0  # Longest TLS handshake


class _Heard:
    """A transport that reads large pieces, and returns the last bytes before the end.

    Upstream reads 4 KiB at a time and joins them, half the cost of a fetch. Gone when it reads into a buffer.
    It drops data that arrives together with the end, such as the reason of a refused login. Gone when
    ``_read_from_sock`` returns the data before the error; here the next read meets the end.
    """

    _sock: Any
    _room = memoryview(b"")
    """Each transport's own buffer: data is copied only after the next transport's turn."""

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
        # an idle connection keeps a small buffer
        filled = received == room.nbytes < _MOST_RECEIVED
        self._room = memoryview(bytearray(_MOST_RECEIVED)) if filled else room
        if isinstance(self._sock, ssl.SSLSocket) and (left := self._sock.pending()):
            # drain already decrypted bytes: the selector does not signal them
            return b"".join((room[:received], self._sock.recv(left))), None
        return room[:received], None if received else error


class Plain(_Heard, KafkaTCPTransport):  # type: ignore[misc]  # kafka-python carries no types
    """A connection without TLS."""


class Tls(_Heard, KafkaSSLTransport):  # type: ignore[misc]  # kafka-python carries no types
    """A connection with TLS, whose handshake ends.

    Upstream waits for ever for a silent listener. Gone when ``handshake`` waits with a time-out.
    """

    async def handshake(self) -> None:
        """Shakes hands.

        Raises `TimeoutError`: the handshake takes longer than `HANDSHAKE_SECONDS`. Raises `OSError`: the
        other side refused, or speaks no TLS.
        """
        deadline = time.monotonic() + HANDSHAKE_SECONDS
        try:
            while (wait := self._step()) is not None:
                await wait(self._sock, timeout_at=deadline)
        except KafkaTimeoutError:
            self._sock.close()
            raise TimeoutError(f"no TLS from the other side in {HANDSHAKE_SECONDS:g} s") from None
        except BaseException:
            self._sock.close()  # it has no other owner yet
            raise

    def _step(self) -> Any:
        """Continues the handshake; returns the function to wait with, or None at its end."""
        try:
            self._sock.do_handshake()
        except ssl.SSLWantReadError:
            return self._net.wait_read
        except ssl.SSLWantWriteError:
            return self._net.wait_write
        return None


class Answer(KafkaBytes):  # type: ignore[misc]  # kafka-python carries no types
    """The bytes of an answer, without copies.

    Upstream copies all of them twice. Gone when ``read`` copies once.
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


CONNECTIONS = logging.getLogger("kafka.net.manager")  # The client's log of failed connections


def why_not_connected(record: logging.LogRecord) -> str | None:
    """Returns the reason of a failed connection from a record of `CONNECTIONS`; None from other records.

    Upstream raises only a time-out, and logs the reason. Gone when the error has the reason.

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
"""Setting of a producer that survives a refused record.

With idempotence, one record that is too large for its topic ends the producer for good. Gone when an idempotent
producer fails only that record.
"""


def commit_transaction(producer: KafkaProducer, sent: Iterable[Any], timeout_seconds: float) -> None:
    """Commits a transaction whose every record was acknowledged.

    Upstream commits the rest of a transaction when one of its records expired: a retriable error of a batch
    does not fail the transaction. And `flush` fails when a batch too large for the topic is split, even if
    its halves succeed. Gone when neither is so. Raises `KafkaError`: a record was not acknowledged, or the
    commit failed.
    """
    deadline = time.monotonic() + timeout_seconds
    with contextlib.suppress(UnknownError):
        producer.flush(timeout_seconds)
    for future in sent:
        future.get(max(0.0, deadline - time.monotonic()))
    producer.commit_transaction()


_AGAIN_SECONDS = 0.1  # Pause before a producer without a connection retries


def ask_again(producer: KafkaProducer) -> None:
    """Makes a transactional producer repeat a request whose connection was lost before it was sent.

    Upstream's sender forgets such a request: it expects False of `await_ready`, which raises. Records then wait until
    they expire, and the end of a transaction for ever. Gone when a producer whose connections are cut commits within
    seconds.
    """
    client = producer._sender._client
    await_ready = client.await_ready

    def is_ready(node_id: Any, timeout_ms: float) -> bool:
        try:
            return bool(await_ready(node_id, timeout_ms=timeout_ms))
        except KafkaError:
            time.sleep(_AGAIN_SECONDS)  # the sender retries at once
            return False

    client.await_ready = is_ready


def end_once(producer: KafkaProducer) -> None:
    """Makes a transactional producer fail instead of repeating the end of a transaction.

    Upstream repeats it after a lost connection, in the epoch of the next transaction: a late first request may then
    commit that one's first part. And it repeats without end on retriable codes. After the failure a new producer has a
    new epoch, and reads whether the commit succeeded. Gone when each transaction has an epoch of its own (EndTxn,
    version 5) and a commit has a time-out.
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
    """Closes a producer at once, without flushing; its successor aborts the open transaction.

    Upstream's ``close(timeout=0)`` first flushes, and raises before closing if something is unsent or was split. Gone
    when it closes.
    """
    producer._sender.force_close()
    with contextlib.suppress(KafkaTimeoutError, UnknownError):
        producer.close(timeout=0)


# --- consumers ----------------------------------------------------------------------------------------------


def hold(consumer: KafkaConsumer, partition: TopicPartition) -> None:
    """Pauses a newly assigned partition; for the rebalance listener.

    Upstream gives even a paused partition the group's offset as its position, or with the reset policy `none` raises
    out of `poll`. Gone when a paused partition is left alone.
    """
    consumer.seek(partition, 0)
    consumer.pause(partition)


def go_on_joining(consumer: KafkaConsumer) -> None:
    """Makes a consumer complete an unfinished join at its next poll.

    Upstream, a leader that rejoins because the topic's partitions changed never completes a join that outlasts a poll,
    and stops its heartbeat. Gone when a join in progress goes on by itself.
    """
    if consumer.group_metadata().state is MemberState.REBALANCING:
        consumer._coordinator.request_rejoin()


def leave_at_the_end(consumer: KafkaConsumer) -> None:
    """Makes a member with a name leave its group when it is closed.

    Upstream it never does, as Kafka's own client: after an orderly end the group waits as after a kill. Gone when
    ``close`` takes whether to leave.
    """
    consumer._coordinator.is_dynamic_member = lambda: not displaced(consumer)


def displaced(consumer: KafkaConsumer) -> bool:
    """Returns whether another process joined the group under this member's name.

    Upstream only logs it, stops the heartbeat, and polls on as if it had its partitions. Gone when ``poll`` raises it.
    """
    coordinator = consumer._coordinator
    with coordinator._lock:  # a join ends in several steps
        waits = coordinator.need_rejoin() or not coordinator.stable()
        return not waits and not coordinator._heartbeat_enabled


def join_again(consumer: KafkaConsumer) -> None:
    """Makes a member join its group again at its next poll.

    Upstream, a leader that returns under its name does not learn that it leads (by the version of the join request), so
    no member notices new partitions. When it joins again, the broker assigns all again. Gone when the client joins by
    version 9.
    """
    consumer._coordinator.request_rejoin()


def known_partitions(consumer: KafkaConsumer, topic: str, since_ms: float) -> set[int] | None:
    """Returns all partitions of a topic, none if it is missing, None while unknown.

    Upstream's ``partitions_for_topic`` requests an unknown topic without a time-out. Gone when it takes one.
    `since_ms` is the time of subscribing, by the monotonic clock: earlier metadata lack the topic. Raises
    `TopicAuthorizationFailedError`: the client may not describe the topic; upstream drops that.
    """
    cluster = consumer._cluster
    if topic in cluster.unauthorized_topics:
        raise TopicAuthorizationFailedError(topic)
    partitions: set[int] | None = cluster.partitions_for_topic(topic)
    asked = cluster._last_successful_refresh_ms > since_ms
    return set() if partitions is None and asked else partitions


def topic_id(consumer: KafkaConsumer, topic: str, ms: int) -> str | None:
    """Requests the id of a topic; None if there is none of that name.

    Upstream's consumer fetches by name: of a topic that was deleted and created again it reads on at the same
    offsets until its next metadata request, minutes later perhaps. Gone when fetches name the id (from
    version 13 on), or the consumer has a way to ask. Raises `KafkaError`: the brokers do not answer.
    """
    manager = consumer._manager
    asked = MetadataRequest(
        topics=[MetadataRequest.MetadataRequestTopic(name=topic)],
        allow_auto_topic_creation=False,
        include_cluster_authorized_operations=False,
        include_topic_authorized_operations=False,
    )

    async def answer() -> Any:
        # a broker answers a request behind a fetch only once that has records: prefer the group's own connection, whose
        # node is no number
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
    """Returns a group's committed offsets with metadata, by one request.

    Upstream's ``committed`` takes one partition. Gone when it takes several. Raises `KafkaError`: the group's
    coordinator does not answer.
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
    """Returns the beginnings or ends of the partitions that have a leader.

    Upstream (3.0.12) raises `KeyError` if only some partitions have a leader, and retries until time is up if none has.
    Gone when it answers without them.

    `refused`: filled meanwhile with the refused partitions, see `refusals`; they are left out. Raises
    `KafkaError`: the brokers do not answer.
    """
    cluster = consumer._cluster
    if not (led := _led(cluster, tps)):
        # the metadata may be old; waiting longer would delay the other partitions
        consumer._manager.run(consumer._manager.wait_for, cluster.request_update(), ms)
        led = _led(cluster, tps)
    elif len(led) < len(tps):
        cluster.request_update()
    try:
        return ask(led, timeout_ms=ms) if led else {}
    except KeyError:  # another one lost its leader, or was refused
        led = [tp for tp in _led(cluster, tps) if tp not in refused]
    try:
        return ask(led, timeout_ms=ms) if led and refused else {}
    except KeyError:
        return {}


def whole_bounds(
    consumer: KafkaConsumer, tps: Collection[TopicPartition], ms: int
) -> dict[TopicPartition, tuple[int, int]]:
    """Returns the beginning and end of every given partition; see `bounds`.

    Raises `KafkaError`: some have no leader, or the brokers do not answer.
    """
    begins, ends = (
        bounds(consumer, ask, tps, ms) for ask in (consumer.beginning_offsets, consumer.end_offsets)
    )
    if missing := sorted(tp for tp in tps if tp not in begins or tp not in ends):
        said = ", ".join(str(tp.partition) for tp in missing)
        raise LeaderNotAvailableError(f"topic {missing[0].topic}: no leader of partition {said}")
    return {tp: (begins[tp], ends[tp]) for tp in tps}


def _led(cluster: Any, tps: Iterable[TopicPartition]) -> list[TopicPartition]:
    """Returns the partitions that have a leader in the client's metadata."""
    return [tp for tp in tps if cluster.leader_for_partition(tp) not in (None, -1)]
