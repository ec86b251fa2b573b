"""The service: the loops that wire log, counts, store and publisher; nothing else knows more than two of them."""

import faulthandler
import os
import signal
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import structlog

from ldp import kernels
from worker import brokers, health
from worker.config import PREFIX, Config, ConfigError, Served
from worker.consumer import KafkaLog
from worker.dead_letters import KafkaDeadLetters
from worker.group import KafkaGroup
from worker.layout import StateLost
from worker.metrics import Metrics
from worker.ownership import Ownership, Unavailable
from worker.publisher import KafkaOutbox, Publisher
from worker.recommender import Recommender
from worker.store import RedisStore, connect

_POLL_MS = 200
_STOP_SECONDS = 15
_STUCK_SECONDS = 120
"""A step of the loop takes milliseconds; one this long means that the client spins or hangs: only a restart helps."""

log = structlog.get_logger()


@dataclass
class _Progress:
    """What the polling thread says of itself to the other threads."""

    stepped: float = field(default_factory=time.monotonic)
    ticked: float = field(default_factory=time.monotonic)
    partitions: frozenset[int] | None = None
    state: str = "joining"
    error: str | None = None
    ended: bool = False


class StreamWorker:
    """Serves one stream: a polling thread that claims, counts and commits, and a publishing thread.

    Args:
        config: the worker's configuration.
        served: the stream and its topic.
        metrics: the worker's metrics.
        stopping: set when the worker is asked to stop.
    """

    def __init__(self, config: Config, served: Served, metrics: Metrics, stopping: threading.Event) -> None:
        self._config, self._served, self._metrics, self._stopping = config, served, metrics, stopping
        self.name = served.stream.name
        self.progress = _Progress()
        self._log = log.bind(stream=self.name)
        self._thread = threading.Thread(
            target=self._guard, args=(self._serve,), name=f"poll-{self.name}", daemon=True
        )

    def start(self) -> None:
        """Starts serving, on threads of its own."""
        self._metrics.begin(self.name)
        self._thread.start()

    def join(self, timeout: float) -> None:
        """Waits for the polling thread's end."""
        self._thread.join(timeout)

    def _guard(self, work: Callable[[], None]) -> None:
        """Runs a thread's work; an error that waiting does not mend stops the stream, and says why."""
        try:
            work()
        except StateLost as error:
            self.progress.error = f"StateLost: {error}"
            self._metrics.up.labels(self.name).set(0)
            self._log.error("stream.stopped", error=str(error))
        except Exception as error:
            self.progress.error = f"{type(error).__name__}: {error}"
            self._metrics.up.labels(self.name).set(0)
            self._log.exception("stream.stopped", error=str(error))
        finally:
            if threading.current_thread() is self._thread:
                self.progress.ended = True

    def _serve(self) -> None:
        config, stream = self._config, self._served.stream
        group, settings = config.consumer_group(stream), config.kafka.client()
        while (connected := self._connect(settings, group)) is None:
            if self._stopping.wait(1):
                return
        kafka, letters = connected
        store = RedisStore(connect(config.redis), stream.name)
        known = KafkaGroup(settings, group, self._served.topic)
        outbox = KafkaOutbox(settings, config.transactional_id(stream), config.snapshots.topic, stream)
        ownership = Ownership(
            group,
            stream,
            self._served.configured,
            kafka,
            store,
            letters,
            outbox,
            self._served.recount_after,
            self._metrics,
            time.monotonic,
            self._report,
        )
        publisher = Publisher(
            stream,
            store,
            outbox,
            lambda: sorted(self.progress.partitions or ()),
            known.uncounted,
            lambda: ownership.epoch(0),
            config.snapshots.level,
            config.snapshots.fewest_new,
            Recommender(stream, config.snapshots.recommend_every_seconds, self._metrics, self._report),
            self._metrics,
            self._report,
        )
        ended = threading.Event()
        publishing = threading.Thread(
            target=self._guard,
            args=(lambda: publisher.run(ended, config.snapshots.every_seconds, self._tick),),
            name=f"publish-{self.name}",
            daemon=True,
        )
        publishing.start()
        try:
            self._poll(kafka, ownership)
            self._finish(ownership)
        finally:
            ended.set()
            publishing.join(_STOP_SECONDS)
            known.close()
            try:
                letters.close()
            finally:
                kafka.close()

    def _report(self, event: str, **facts: object) -> None:
        """Logs what happened; what should not happen often, as a warning."""
        usual = event.endswith((".claimed", ".released", ".published", ".opened", ".added"))
        (self._log.info if usual else self._log.warning)(event, **facts)

    def _tick(self) -> None:
        self.progress.ticked = time.monotonic()

    def _connect(self, settings: dict[str, object], group: str) -> tuple[KafkaLog, KafkaDeadLetters] | None:
        stream, topic = self._served.stream, self._served.topic
        dead_letters = self._config.dead_letters.topic
        with brokers.listening() as reason:
            try:
                kafka = KafkaLog(settings, group, topic)
                try:
                    return kafka, KafkaDeadLetters(settings, stream, topic, dead_letters, self._metrics)
                except Unavailable:
                    kafka.close()
                    raise
            except Unavailable as error:
                self.progress.stepped = self.progress.ticked = time.monotonic()
                self._log.warning("kafka.unavailable", error=f"{error}{reason}", todo=reason.advice)
                return None

    def _poll(self, kafka: KafkaLog, ownership: Ownership) -> None:
        """Polls, counts, claims and commits until asked to stop or an error that waiting does not mend."""
        commit_at = look_at = time.monotonic()
        while not self._stopping.is_set() and self.progress.error is None:
            try:
                batches = kafka.poll(_POLL_MS)
                ownership.release(kafka.take_revoked())
                for batch in batches:
                    with self._metrics.count_seconds.labels(self.name).time():
                        ownership.apply(batch)
                    self.progress.stepped = time.monotonic()
                ownership.claim()
                now = time.monotonic()
                if now >= commit_at:
                    ownership.commit()
                    commit_at = now + self._config.commit_every_seconds
                if now >= look_at or self.progress.partitions is None:
                    ownership.compare()
                    self._look(kafka, ownership)
                    look_at = now + self._config.snapshots.every_seconds
            except Unavailable as error:
                self._metrics.errors.labels(self.name, "poll").inc()
                self._log.warning("poll.retry", error=str(error))
                ownership.rewind()
                self._stopping.wait(0.5)
            self.progress.state = self._state(kafka, ownership)
            self.progress.stepped = time.monotonic()

    def _state(self, kafka: KafkaLog, ownership: Ownership) -> str:
        """Returns what readiness says: serving is to count every partition that the group assigns to this worker."""
        if self.progress.partitions is None:
            return f"not known yet whether topic {self._served.topic} exists"
        if not self.progress.partitions:
            return f"topic {self._served.topic} is missing"
        if kafka.generation() is None:
            return "joining"
        return "serving" if kafka.assigned() <= ownership.counted().keys() else "claiming"

    def _look(self, kafka: KafkaLog, ownership: Ownership) -> None:
        """Brings the gauges up to date."""
        partitions = kafka.partitions()
        self.progress.partitions = None if partitions is None else frozenset(partitions)
        if partitions is not None and not partitions:
            self._log.warning("topic.missing", topic=self._served.topic, todo="ldp-worker create-topics")
        counted, stored, watermarks = ownership.counted(), ownership.stored(), ownership.watermarks()
        for partition, lag in kafka.lags(counted).items():
            labels = (self.name, str(partition))
            self._metrics.owned.labels(*labels).set(1)
            self._metrics.offset.labels(*labels).set(stored[partition])
            self._metrics.lag.labels(*labels).set(lag + counted[partition] - stored[partition])
            if partition in watermarks:
                self._metrics.watermark.labels(*labels).set(watermarks[partition] / 1000)

    def _finish(self, ownership: Ownership) -> None:
        """Commits what is counted; a store that does not answer is asked again, but not forever."""
        deadline = time.monotonic() + _STOP_SECONDS
        ownership.commit()
        while ownership.counted() != ownership.stored() and time.monotonic() < deadline:
            time.sleep(0.2)
            self.progress.stepped = time.monotonic()
            ownership.commit()
        behind = {p: n for p, n in ownership.counted().items() if n != ownership.stored()[p]}
        self._log.info("stream.finished", committed=not behind)


def run(config: Config) -> int:
    """Serves every stream of the configuration until SIGTERM or SIGINT; returns the exit code.

    A stream that stops on an error leaves the others running and the worker not ready; when none is left, or on a stop
    after such an error, the exit code is 1. A watchdog ends the process if a polling thread hangs.
    """
    stopping = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopping.set())
    metrics = Metrics()
    workers = [StreamWorker(config, served, metrics, stopping) for served in config.streams]

    every = config.snapshots.every_seconds

    def healthy() -> tuple[bool, health.Facts]:
        now = time.monotonic()
        idle = {
            worker.name: round(now - min(worker.progress.stepped, worker.progress.ticked + every), 1)
            for worker in workers
            if not worker.progress.ended
        }
        return max(idle.values(), default=0) < _STUCK_SECONDS, {"seconds_since_step": idle}

    def ready() -> tuple[bool, health.Facts]:
        states = {worker.name: worker.progress.error or worker.progress.state for worker in workers}
        return all(state == "serving" for state in states.values()), {"streams": states}

    try:
        server = health.serve(config.http.host, config.http.port, metrics.registry, healthy, ready)
    except OSError as error:
        raise ConfigError(
            f"http.port: {config.http.host}:{config.http.port} cannot be listened on ({error.strerror}); if it is"
            f" another worker's, set {PREFIX}HTTP__PORT, 0 takes a free one"
        ) from None
    log.info(
        "worker.started",
        host=config.http.host,
        port=server.server_port,
        streams=[worker.name for worker in workers],
    )
    kernels.warm()  # compiled or loaded before anything waits for them
    for worker in workers:
        worker.start()
    while not stopping.wait(1) and not all(worker.progress.ended for worker in workers):
        good, facts = healthy()
        if not good:
            log.critical("worker.stuck", **facts)
            faulthandler.dump_traceback()
            os._exit(1)  # the stuck thread cannot be asked; a supervisor starts a new process
    stopping.set()
    for worker in workers:
        worker.join(3 * _STOP_SECONDS)
    server.shutdown()
    failed = {worker.name: worker.progress.error for worker in workers if worker.progress.error}
    log.info("worker.stopped", failed=failed)
    return 1 if failed else 0
