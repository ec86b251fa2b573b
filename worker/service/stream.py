"""Polling and publishing threads of one stream."""

import contextlib
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import structlog

from worker.config import Config, Served
from worker.counting import layout
from worker.counting.ownership import Ownership
from worker.counting.ports import Displaced, StateLost, Unavailable
from worker.kafka.client import brokers, topics
from worker.kafka.client.errors import BrokerError, remedy
from worker.kafka.dead_letters.writer import KafkaDeadLetters, connect_producer
from worker.kafka.reports.group import KafkaGroup
from worker.kafka.reports.log import KafkaLog
from worker.kafka.snapshots.producer import KafkaSnapshotProducer
from worker.observe.events import StreamEvents
from worker.observe.metrics import Metrics
from worker.observe.progress import Progress, Step
from worker.publishing.publisher import Publisher
from worker.redis import reaching
from worker.redis.connecting import Client
from worker.service import publishing
from worker.service.commits import Commits
from worker.service.loop import Loop
from worker.service.publisher_process import PublisherProcess
from worker.store.redis import RedisStore

_FIRST_RETRY, _LONGEST_RETRY = 1.0, 60.0
_CLOSE_SECONDS = 15  # Maximum wait for the publishing thread before the stream restarts

logger = structlog.get_logger("worker.service")


class StreamWorker:
    """Serves one stream with a polling thread and a publishing thread."""

    def __init__(self, config: Config, served: Served, metrics: Metrics, stopping: threading.Event) -> None:
        self._config, self._served, self._metrics, self._stopping = config, served, metrics, stopping
        self.name = served.name
        self.progress = Progress()
        self._logger = logger.bind(stream=self.name)
        self._events = StreamEvents(self.name, metrics, self.progress, self._logger)
        self._thread = threading.Thread(target=self._run, name=f"poll-{self.name}", daemon=True)

    def start(self) -> None:
        """Starts the threads of the stream."""
        documents = self._served.fleet.documents
        self._metrics.begin(self.name, [document.fingerprint.hex() for document in documents])
        self.progress.heartbeat()
        self.progress.publisher_heartbeat()
        self._thread.start()

    def join(self, timeout: float) -> None:
        """Waits for the end of the polling thread."""
        self._thread.join(timeout)

    def _run(self) -> None:
        """Serves until a stop, `StateLost` or `Displaced`; retries other errors."""
        wait = _FIRST_RETRY
        try:
            while not self._stopping.is_set():
                began = time.monotonic()
                try:
                    self._serve()
                except (StateLost, Displaced) as error:
                    self._stop(error)
                    return
                except Exception as error:
                    if time.monotonic() - began > _LONGEST_RETRY:
                        wait = _FIRST_RETRY
                    self._metrics.errors.labels(self.name, "serve").inc()
                    self.progress.failed(Step.SERVE, f"{type(error).__name__}: {error}", _remedy(error))
                    self._logger.exception("serve.retry", error=str(error), wait_seconds=wait)
                    self._pause(wait)
                    wait = min(2 * wait, _LONGEST_RETRY)
        finally:
            self.progress.ended = True

    def _stop(self, error: StateLost | Displaced) -> None:
        """Logs that the stream stopped; the remedy precedes the cause."""
        self._metrics.up.labels(self.name).set(0)
        name = type(error).__name__
        if isinstance(error, StateLost) and error.remedy:
            remedy = f"{error.remedy}. Then restart the worker"
            self.progress.error = f"{name}: Remedy: {remedy}. Cause: {error.cause}"
            self._logger.error("stream.stopped", remedy=remedy, error=error.cause)
        else:
            self.progress.error = f"{name}: {error}"
            self._logger.error("stream.stopped", error=str(error))

    def _pause(self, seconds: float) -> bool:
        """Sends heartbeats and waits; returns whether a stop was requested."""
        self.progress.heartbeat()
        self.progress.publisher_heartbeat()
        return self._stopping.wait(seconds)

    def _serve(self) -> None:
        self.progress.state, self.progress.partitions = "joining", None
        while (client := self._reach()) is None:
            if self._pause(1):
                return
        try:
            self._count(client)
        finally:
            self._close(client.close)

    def _count(self, client: Client) -> None:
        config, stream = self._config, self._served.stream
        group, settings = config.consumer_group(stream.name), config.kafka.client()
        while (connected := self._connect(settings, group)) is None:
            if self._pause(1):
                return
        log, dead_letters = connected
        kafka_group = publishing.group_of(config, self._served)
        # each thread has a head reader, because a reader calls the heartbeat of its thread
        head_reader = publishing.snapshot_producer_of(
            config, self._served, self.progress.heartbeat, self._events.passed_over
        )
        snapshot_producer = publishing.snapshot_producer_of(
            config, self._served, self.progress.publisher_heartbeat, self._events.passed_over
        )
        with contextlib.ExitStack() as ending:
            # closed in reverse order
            for close in (log.close, dead_letters.close, kafka_group.close, snapshot_producer.close):
                ending.callback(self._close, close)
            store = RedisStore(client, stream.name)
            ownership = self._ownership(group, log, store, dead_letters, head_reader)
            publisher = self._publisher(store, snapshot_producer, kafka_group, ownership)
            executor = ending.enter_context(ThreadPoolExecutor(1, thread_name_prefix="commit"))
            commits = Commits(ownership, config.commit_every_seconds, executor)
            loop = self._loop(log, ownership, commits)
            ended, errors = threading.Event(), list[Exception]()

            def publish() -> None:
                try:
                    self._warn_of_policy(settings)
                    publisher.run(ended, config.snapshots.every_seconds, self.progress.publisher_heartbeat)
                except Exception as error:
                    errors.append(error)

            thread = threading.Thread(target=publish, name=f"publish-{self.name}", daemon=True)
            self.progress.publisher_heartbeat()
            thread.start()
            try:
                loop.run(errors)
                loop.finish()
            finally:
                ended.set()
                thread.join(_CLOSE_SECONDS)
                for partition in ownership.counted():
                    self._events.dropped(partition)
                self._events.publishing(False)
        if errors:
            raise errors[0]

    def _ownership(
        self,
        group: str,
        log: KafkaLog,
        store: RedisStore,
        dead_letters: KafkaDeadLetters,
        head_reader: KafkaSnapshotProducer,
    ) -> Ownership:
        return Ownership(
            group,
            self._served.fleet,
            self._served.configured,
            log,
            store,
            dead_letters,
            head_reader,
            self._served.recount_after,
            time.monotonic,
            self._events,
            self._served.late_dead_letters,
        )

    def _warn_of_policy(self, settings: dict[str, object]) -> None:
        """Warns of a cleanup policy that can delete the newest snapshot."""
        topic = self._config.snapshots.topic
        policy = topics.cleanup_policy(settings, topic)
        if policy not in (None, "compact"):
            remedy = f"set cleanup.policy=compact on topic {topic}"
            self._events.warning("snapshot.expires", topic=topic, policy=policy, remedy=remedy)

    def _publisher(
        self,
        store: RedisStore,
        snapshot_producer: KafkaSnapshotProducer,
        kafka_group: KafkaGroup,
        ownership: Ownership,
    ) -> Publisher | PublisherProcess:
        config, served, events = self._config, self._served, self._events

        def partitions() -> list[int]:
            return sorted(self.progress.partitions or ())

        def epoch() -> int | None:
            # a cut needs the list of all partitions
            return ownership.epoch(0) if self.progress.partitions else None

        if publishing.is_large(config, served):
            return PublisherProcess(config, served, partitions, epoch, events)
        return publishing.publisher(
            config, served, store, snapshot_producer, kafka_group, partitions, epoch, events
        )

    def _loop(self, log: KafkaLog, ownership: Ownership, commits: Commits) -> Loop:
        return Loop(
            self._served.fleet,
            self._served.topic,
            log,
            ownership,
            commits,
            self.progress,
            self._events,
            self._config.snapshots.every_seconds,
            self._stopping,
        )

    def _close(self, close: Callable[[], None]) -> None:
        """Closes a client; logs a failure, so that the others are closed, too."""
        try:
            close()
        except Exception as error:
            self._logger.warning("close.failed", error=f"{type(error).__name__}: {error}")

    def _reach(self) -> Client | None:
        """Returns a connected Redis client, or logs the error and returns None."""
        try:
            with self.progress.attempt(Step.REACH):
                return reaching.reach(self._config.redis, layout.meta_key(self.name, 0))
        except reaching.Unreachable as error:
            self._metrics.errors.labels(self.name, "reach").inc()
            self._logger.warning("redis.unavailable", error=str(error), remedy=error.remedy)
            return None

    def _connect(self, settings: dict[str, object], group: str) -> tuple[KafkaLog, KafkaDeadLetters] | None:
        stream, topic, codec = self._served.stream, self._served.topic, self._config.snapshots.compression
        with brokers.listening() as reason:
            try:
                with self.progress.attempt(Step.CONNECT):
                    member = settings | self._config.kafka.membership()
                    log = KafkaLog.connect(member, group, topic, self._config.kafka.memory_bytes)
                    try:
                        producer = connect_producer(settings, stream.name, codec)
                    except Exception:
                        log.close()
                        raise
                dead_letters = KafkaDeadLetters(
                    producer,
                    stream,
                    topic,
                    self._config.dead_letters.topic,
                    self._metrics.dead_letters.labels(self.name).inc,
                    partial(self.progress.attempt, Step.DEAD_LETTERS),
                )
                return log, dead_letters
            except Unavailable as error:
                self._metrics.errors.labels(self.name, "connect").inc()
                self._logger.warning("kafka.unavailable", error=f"{error}{reason}", remedy=reason.advice)
                return None


def _remedy(error: Exception) -> str:
    again = (
        "none if the error passes: the stream restarts from the stored counts. The log has the complete error"
    )
    return (
        remedy(f"{type(error).__name__}: {error}", unknown=again) if isinstance(error, BrokerError) else again
    )
