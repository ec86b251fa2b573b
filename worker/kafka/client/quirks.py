"""Works around defects and missing interfaces of kafka-python 3.0.12.

Each docstring describes a defect of the library ("upstream"). The fix follows after "Gone when". The tests in
``tests/unit/worker/test_quirks.py`` demonstrate each defect, and fail once it is fixed. Run them before an upgrade.
This file has all defects of the library; that is why it is longer than others.
"""

import contextlib
import logging
import re
import ssl
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial
from typing import Any

from kafka import KafkaConsumer, KafkaProducer, OffsetAndMetadata, TopicPartition
from kafka.codec import gzip_encode
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
from kafka.protocol.producer import EndTxnRequest, TxnOffsetCommitRequest
from kafka.record import default_records
from kafka.structs import MemberState

from worker.login import Tokens

# --- connections --------------------------------------------------------------------------------------------

_FIRST_RECEIVED, _MOST_RECEIVED = 1 << 16, 1 << 20
HANDSHAKE_SECONDS = 5.0  # Longest TLS handshake


class _BufferedTransport:
    """A transport that reads large pieces and keeps the last received data.

    Upstream reads and joins pieces of 4 KiB, which takes half the time of a fetch. Gone when it reads into a buffer.

    Upstream drops data that arrives just before the connection ends, such as the reason for a rejected login. This
    class returns the data first, and raises the error at the next read. Gone when ``_read_from_sock`` does the same.
    """

    _sock: Any
    _buffer = memoryview(b"")
    """Each transport has its own buffer, because the client copies data only after it has read other transports."""

    def _sock_recv(self) -> tuple[bytes | memoryview, Exception | None]:
        buffer = self._buffer or memoryview(bytearray(_FIRST_RECEIVED))
        received, error = 0, None
        while received < buffer.nbytes and error is None:
            try:
                read = self._sock.recv_into(buffer[received:])
                error = None if read else KafkaConnectionError("socket disconnected")
                received += read
            except (BlockingIOError, InterruptedError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
                break
            except OSError as failed:
                error = KafkaConnectionError(failed)
        # an idle connection keeps a small buffer
        filled = received == buffer.nbytes < _MOST_RECEIVED
        self._buffer = memoryview(bytearray(_MOST_RECEIVED)) if filled else buffer
        if isinstance(self._sock, ssl.SSLSocket) and (left := self._sock.pending()):
            # drain already decrypted bytes: the selector does not signal them
            return b"".join((buffer[:received], self._sock.recv(left))), None
        return buffer[:received], None if received else error


class Plain(_BufferedTransport, KafkaTCPTransport):  # type: ignore[misc]  # kafka-python carries no types
    """A connection without TLS."""


class Tls(_BufferedTransport, KafkaSSLTransport):  # type: ignore[misc]  # kafka-python carries no types
    """A connection with TLS and a time limit for the handshake.

    Upstream waits forever for a listener that does not answer. Gone when ``handshake`` waits with a time-out.
    """

    async def handshake(self) -> None:
        """Performs the TLS handshake.

        Raises `TimeoutError`: the handshake takes longer than `HANDSHAKE_SECONDS`. Raises `OSError`: the
        server rejected the handshake, or does not use TLS.
        """
        deadline = time.monotonic() + HANDSHAKE_SECONDS
        try:
            while (wait := self._step()) is not None:
                await wait(self._sock, timeout_at=deadline)
        except KafkaTimeoutError:
            self._sock.close()
            raise TimeoutError(f"no TLS handshake in {HANDSHAKE_SECONDS:g} s") from None
        except BaseException:
            self._sock.close()  # the client does not own the socket yet
            raise

    def _step(self) -> Any:
        try:
            self._sock.do_handshake()
        except ssl.SSLWantReadError:
            return self._net.wait_read
        except ssl.SSLWantWriteError:
            return self._net.wait_write
        return None


class Answer(KafkaBytes):  # type: ignore[misc]  # kafka-python carries no types
    """A broker's response, readable without a copy.

    Upstream copies each response twice. Gone when ``read`` copies at most once.
    """

    def read(self, nbytes: int | None = None) -> bytes | memoryview:
        """Returns the next `nbytes` bytes, or all remaining bytes for None."""
        if nbytes is not None:
            return bytes(super().read(nbytes))
        start: int = self.tell()
        self.seek(len(self))
        return memoryview(self)[start:]


def mend_connections() -> None:
    """Makes all clients use `Plain`, `Tls` and `Answer`, and accept `Tokens`.

    It replaces classes of the library, because no client accepts a class as an argument. Call it before you create a
    client. Repeated calls change nothing.
    """
    AbstractTokenProvider.register(Tokens)
    manager.KafkaTCPTransport, manager.KafkaSSLTransport = Plain, Tls
    parser.KafkaBytes = Answer


CONNECTIONS = logging.getLogger("kafka.net.manager")  # Logger of the client's failed connections


def why_not_connected(record: logging.LogRecord) -> str | None:
    """Returns the reason for a failed connection from a log record, or None.

    Upstream logs the reason and raises only a time-out. Gone when the error contains the reason.

    Example:
        >>> why_not_connected(logging.makeLogRecord({"msg": "Connection failed: 111 ECONNREFUSED"}))
        '111 ECONNREFUSED'
    """
    pattern = r"failed: (?:KafkaConnectionError: )?(.+?)(?: \(backoff .*)?$"
    found = re.search(pattern, record.getMessage())
    return None if found is None or "KafkaTimeoutError: Unable" in found[1] else found[1]


# --- producers ----------------------------------------------------------------------------------------------

TOPIC_MISSING = ValueError
"""Exception of ``KafkaProducer.send`` if the topic was just deleted, or lacks the partition.

Upstream raises a plain ValueError. Gone when it is a ``KafkaError``.
"""

OUTLIVES_REFUSALS = {"enable_idempotence": False}
"""Setting that lets a producer continue after a rejected record.

Upstream, one record that is too large for its topic makes an idempotent producer fail permanently. Gone when only that
record fails.
"""


_GZIP_LEVEL = 1


def compress(codec: str) -> dict[str, Any]:
    """Returns a producer's argument for a codec; gzip has level 1.

    Upstream compresses with level 9, which takes 7 times the CPU and saves 7 to 12 % of the bytes. The level
    holds for the process, because no producer has an argument for it. Gone when a producer has one.
    """
    default_records.gzip_encode = partial(gzip_encode, compresslevel=_GZIP_LEVEL)
    return {"compression_type": None if codec == "none" else codec}


def commit_transaction(producer: KafkaProducer, sent: Iterable[Any], timeout_seconds: float) -> None:
    """Commits a transaction after all its records were acknowledged.

    Upstream commits a transaction even if a record expired after retriable errors. The record is then missing. Also,
    `flush` fails if the producer splits a batch that is too large for the topic, even if its halves succeed. Gone when
    both defects are fixed. Raises `KafkaError`: a record was not acknowledged, or the commit failed.
    """
    await_acknowledgements(producer, sent, timeout_seconds)
    producer.commit_transaction()


def await_acknowledgements(producer: KafkaProducer, sent: Iterable[Any], timeout_seconds: float) -> None:
    """Raises `KafkaError` unless all records are acknowledged."""
    deadline = time.monotonic() + timeout_seconds
    with contextlib.suppress(UnknownError):
        producer.flush(timeout_seconds)
    for future in sent:
        future.get(max(0.0, deadline - time.monotonic()))


def send_offsets(
    producer: KafkaProducer,
    offsets: Mapping[TopicPartition, OffsetAndMetadata],
    member: Any,
    timeout_seconds: float,
) -> None:
    """Adds a group's offsets to a transaction, as a group member.

    Upstream's ``send_offsets_to_transaction`` waits without a time-out. Gone when it has one. Raises `KafkaError`: the
    membership ended, or the coordinator did not confirm the offsets.
    """
    result = producer._transaction_manager.send_offsets_to_transaction(offsets, member)
    producer._sender.wakeup()
    if not result.wait(1000 * timeout_seconds):
        raise KafkaTimeoutError("the coordinator of the group did not confirm the offsets")


_AGAIN_SECONDS = 0.1  # Pause of a producer without a connection before it retries


def retry_lost_requests(producer: KafkaProducer) -> None:
    """Makes a transactional producer retry requests that were not sent.

    Upstream's sender drops a request if the connection was lost, because `await_ready` raises instead of returning
    False. Records then wait until they expire, and the end of a transaction waits forever. Gone when a producer whose
    connections are cut commits within seconds.
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


def refuse_end_retries(producer: KafkaProducer) -> None:
    """Makes a producer fail instead of retrying transaction ends or offsets.

    Upstream repeats the EndTxn request after a lost connection. If the first request was only delayed, it may commit a
    part of the next transaction, which has the same epoch. Upstream also repeats the request without limit after
    retriable errors. After a failure, the worker starts a producer with a new epoch, and reads whether the commit
    succeeded. Gone when each transaction has its own epoch (EndTxn, version 5) and a commit has a time-out.

    Upstream repeats the TxnOffsetCommit request, too. A delayed first request may set an old offset in the next
    transaction.
    """
    manager = producer._transaction_manager
    enqueue, retry = manager._enqueue_request, manager.retry

    def enqueue_first(request: Any) -> None:
        if request.is_retry and isinstance(request.request, EndTxnRequest | TxnOffsetCommitRequest):
            request.fatal_error(
                KafkaConnectionError(
                    "the outcome of a transaction is unknown: the coordinator did not confirm its end"
                )
            )
            return
        enqueue(request)

    def retry_unsent(request: Any) -> None:
        # the first request for offsets waits for the group's coordinator
        (enqueue if isinstance(request.request, TxnOffsetCommitRequest) else retry)(request)

    manager._enqueue_request, manager.retry = enqueue_first, retry_unsent


def drop(producer: KafkaProducer) -> None:
    """Closes a producer without a flush; the next one aborts the transaction.

    Upstream's ``close(timeout=0)`` first flushes. If a record is unsent or a batch was split, it raises and does not
    close. Gone when it closes anyway.

    Upstream sends the offsets of an aborted transaction again with the next one. So drop a producer after a failure
    instead of aborting its transaction. Gone when an abort clears ``_pending_txn_offset_commits``.
    """
    producer._sender.force_close()
    with contextlib.suppress(KafkaTimeoutError, UnknownError):
        producer.close(timeout=0)


# --- consumers ----------------------------------------------------------------------------------------------


def hold(consumer: KafkaConsumer, partition: TopicPartition) -> None:
    """Pauses a newly assigned partition; called by the rebalance listener.

    Upstream's `poll` moves even a paused partition without a position to the group's committed offset. Without such an
    offset it raises under the reset policy `none`. The seek prevents this. Gone when `poll` ignores paused partitions.
    """
    consumer.seek(partition, 0)
    consumer.pause(partition)


def resume_join(consumer: KafkaConsumer) -> None:
    """Makes a consumer complete an unfinished join at its next poll.

    The group's leader rejoins if the number of partitions changes. Upstream never completes this join if it takes
    longer than one poll, and the heartbeat stops. Gone when the next poll continues a join in progress.
    """
    if consumer.group_metadata().state is MemberState.REBALANCING:
        consumer._coordinator.request_rejoin()


def leave_on_close(consumer: KafkaConsumer) -> None:
    """Makes a static member leave its group on close.

    Upstream, like Kafka's Java client, stays in the group. Even after an orderly stop, the group then waits for the
    session time-out. Gone when ``close`` has an option to leave.
    """
    consumer._coordinator.is_dynamic_member = lambda: not displaced(consumer)


def displaced(consumer: KafkaConsumer) -> bool:
    """Returns whether another process joined the group as this static member.

    Upstream logs this and stops the heartbeat, but continues to poll the old partitions. Gone when ``poll`` raises.
    """
    coordinator = consumer._coordinator
    with coordinator._lock:  # a join changes several fields
        waits = coordinator.need_rejoin() or not coordinator.stable()
        return not waits and not coordinator._heartbeat_enabled


def rejoin(consumer: KafkaConsumer) -> None:
    """Makes a member join its group again at its next poll.

    With upstream's version of the join request, a restarted static member does not learn that it is still the group's
    leader. No member then notices new partitions. A second join makes the broker assign all partitions again. Gone when
    the client sends version 9 of the request.
    """
    consumer._coordinator.request_rejoin()


def known_partitions(consumer: KafkaConsumer, topic: str, since_ms: float) -> set[int] | None:
    """Returns a topic's partitions, or None before the first metadata arrives.

    The set is empty if the topic is missing.

    Upstream's ``partitions_for_topic`` requests an unknown topic without a time-out. Gone when it has a time-out.
    `since_ms`: monotonic time of the subscription in ms. Older metadata does not contain the topic. Raises
    `TopicAuthorizationFailedError`: the client may not describe the topic. Upstream drops this error.
    """
    cluster = consumer._cluster
    if topic in cluster.unauthorized_topics:
        raise TopicAuthorizationFailedError(topic)
    partitions: set[int] | None = cluster.partitions_for_topic(topic)
    asked = cluster._last_successful_refresh_ms > since_ms
    return set() if partitions is None and asked else partitions


def topic_id(consumer: KafkaConsumer, topic: str, ms: int) -> str | None:
    """Requests the id of a topic; returns None if the topic does not exist.

    Upstream's consumer fetches by name. If a topic was deleted and created again, the consumer continues at the same
    offsets until its next metadata request, perhaps minutes later. Gone when fetches contain the id (version 13), or
    the consumer has a method that returns the id. Raises `KafkaError`: the brokers do not answer.
    """
    manager = consumer._manager
    asked = MetadataRequest(
        topics=[MetadataRequest.MetadataRequestTopic(name=topic)],
        allow_auto_topic_creation=False,
        include_cluster_authorized_operations=False,
        include_topic_authorized_operations=False,
    )

    async def answer() -> Any:
        # a connection answers in order, so a request waits for a pending fetch: prefer the group's connection, whose
        # node id is not a number
        ready = [
            (len(one.in_flight_requests), isinstance(node, int), node)
            for node, one in manager._conns.items()
            if one.connected and not one.paused
        ]
        _, _, free = min(ready, default=(0, True, None))
        if free is None and (free := manager.least_loaded_node()) is None:
            raise NodeNotReadyError("no broker is connected")
        return await manager.wait_for(manager.send(asked, free), ms)

    (found,) = manager.run(answer).topics
    return None if found.error_code else str(found.topic_id)


def committed(
    consumer: KafkaConsumer, tps: Collection[TopicPartition], ms: int
) -> Mapping[TopicPartition, Any]:
    """Requests committed offsets and their metadata for several partitions.

    Upstream's ``committed`` accepts only one partition. Gone when it accepts several. Raises `KafkaError`: the group's
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
    """Returns the first or end offsets of the partitions that have a leader.

    Upstream raises `KeyError` if some partitions have no leader, and retries until the time-out if no partition has a
    leader. Gone when it leaves out partitions without a leader.

    `ask`: the consumer's ``beginning_offsets`` or ``end_offsets``. `refused`: partitions with an error, which
    `refusals` adds during the request. The result leaves out these partitions. Raises `KafkaError`: the brokers do not
    answer.
    """
    cluster = consumer._cluster
    if not (led := _with_leader(cluster, tps)):
        # the metadata may be outdated; retrying longer would delay the other partitions
        consumer._manager.run(consumer._manager.wait_for, cluster.request_update(), ms)
        led = _with_leader(cluster, tps)
    elif len(led) < len(tps):
        cluster.request_update()
    try:
        return ask(led, timeout_ms=ms) if led else {}
    except KeyError:  # another partition lost its leader or was refused
        led = [tp for tp in _with_leader(cluster, tps) if tp not in refused]
    try:
        return ask(led, timeout_ms=ms) if led and refused else {}
    except KeyError:
        return {}


def whole_bounds(
    consumer: KafkaConsumer, tps: Collection[TopicPartition], ms: int
) -> dict[TopicPartition, tuple[int, int]]:
    """Returns the (first, end) offset of every given partition; see `bounds`.

    Raises `KafkaError`: a partition has no leader, or the brokers do not answer.
    """
    begins, ends = (
        bounds(consumer, ask, tps, ms) for ask in (consumer.beginning_offsets, consumer.end_offsets)
    )
    if missing := sorted(tp for tp in tps if tp not in begins or tp not in ends):
        numbers = ", ".join(str(tp.partition) for tp in missing)
        raise LeaderNotAvailableError(f"topic {missing[0].topic}: no leader of partition {numbers}")
    return {tp: (begins[tp], ends[tp]) for tp in tps}


def _with_leader(cluster: Any, tps: Iterable[TopicPartition]) -> list[TopicPartition]:
    return [tp for tp in tps if cluster.leader_for_partition(tp) not in (None, -1)]
