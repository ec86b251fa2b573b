"""Shuffler process: moves uploads to the topics of reports."""

import faulthandler
import os
import signal
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import structlog

from ldp import compiling
from worker.config import Config, ConfigError, Served
from worker.counting.ports import Displaced, NotOwner, Unavailable
from worker.counting.rules import MOST_REPORTS
from worker.counting.windows import milliseconds
from worker.http import server as health
from worker.kafka.decoding import records
from worker.kafka.intake.group import IntakeGroup
from worker.kafka.intake.partition import KafkaIntake
from worker.observe.events import PassedOver
from worker.observe.progress import SERVING
from worker.observe.uploads import ShuffleMetrics
from worker.shuffling.partition import OwnedIntake

STOP_SECONDS = 4.0
_RETRY_SECONDS = 1.0
_IDLE_MS = 50
_STUCK_SECONDS = 300  # Longest turn: a batch of 1 GiB and its time-outs

logger = structlog.get_logger("worker.service")


def run(config: Config) -> int:
    """Shuffles every stream that has an intake, until SIGTERM or SIGINT.

    An interrupted batch has no effect: the next owner repeats it. Raises `ConfigError`: no stream has an intake, or
    the HTTP port is taken.
    """
    streams = [served for served in config.streams if served.intake is not None]
    if not streams:
        raise ConfigError(
            "streams.intake: no stream has one; the shuffler needs a stream with an intake topic"
        )
    stopping = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopping.set())
    names = [served.stream.name for served in streams]
    metrics = ShuffleMetrics(names)
    shufflers = [StreamShuffler(config, served, metrics, stopping) for served in streams]
    without_page = replace(config, http=config.http.model_copy(update={"page": False}))
    server = health.listen(
        without_page,
        metrics.registry,
        partial(_healthy, shufflers),
        partial(_ready, shufflers),
        PassedOver(logger),
    )
    records.warm()
    records.warm_codecs()
    for served in streams:
        compiling.warm(served.stream)
    threads = [threading.Thread(target=shuffler.run, daemon=True) for shuffler in shufflers]
    for thread in threads:
        thread.start()
    logger.info("shuffler.started", host=config.http.host, port=server.server_port, streams=names)
    while not stopping.wait(1):
        good, facts = _healthy(shufflers)
        if not good:
            logger.critical("worker.stuck", **facts)
            faulthandler.dump_traceback()
            os._exit(1)  # the stuck thread cannot be interrupted; a supervisor starts a new process
    deadline = time.monotonic() + STOP_SECONDS
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))
    logger.info("shuffler.stopped")
    if any(thread.is_alive() for thread in threads):
        os._exit(0)  # a waiting client cannot be interrupted
    server.shutdown()
    return 0


def _healthy(shufflers: Sequence["StreamShuffler"]) -> tuple[bool, health.Facts]:
    now = time.monotonic()
    idle = {shuffler.name: round(now - shuffler.turned_at, 1) for shuffler in shufflers if shuffler.turned_at}
    return max(idle.values(), default=0) < _STUCK_SECONDS, {"seconds_since_step": idle}


def _ready(shufflers: Sequence["StreamShuffler"]) -> tuple[bool, health.Facts]:
    states = {shuffler.name: shuffler.state for shuffler in shufflers}
    return all(state == SERVING for state in states.values()), {"streams": states}


class StreamShuffler:
    """Shuffles one stream on one thread."""

    def __init__(
        self, config: Config, served: Served, metrics: ShuffleMetrics, stopping: threading.Event
    ) -> None:
        self._config, self._served, self._stopping, self._metrics = config, served, stopping, metrics
        self.name = served.stream.name
        self.state, self.turned_at = "joining", 0.0
        """State for `/readyz`, and monotonic time of the newest turn of the loop, or 0."""
        self._logger = logger.bind(stream=served.stream.name)
        self._owned = dict[int, tuple[OwnedIntake, KafkaIntake]]()
        self._retry_at = dict[int, float]()

    def run(self) -> None:
        """Shuffles until a stop; retries after errors."""
        config, served = self._config, self._served
        while not self._stopping.is_set():
            try:
                settings = config.kafka.client() | config.kafka.membership()
                group = IntakeGroup(settings, config.shuffle_group(served.stream.name), str(served.intake))
                try:
                    self._serve(group)
                finally:
                    self._drop(self._owned.copy())
                    group.close()
            except Displaced as error:
                self.state, self.turned_at = f"Displaced: {error}", 0.0
                self._logger.error("stream.stopped", error=str(error))
                return
            except Unavailable as error:
                self._metrics.errors.labels(self.name, "claim").inc()
                self._logger.warning("kafka.unavailable", error=str(error), remedy=error.remedy)
            except Exception as error:
                self._logger.exception("serve.retry", error=str(error), wait_seconds=_RETRY_SECONDS)
            self._stopping.wait(_RETRY_SECONDS)

    def _serve(self, group: IntakeGroup) -> None:
        noted, missing = None, f"topic {group.topic} is missing"
        while not self._stopping.is_set():
            self.turned_at = time.monotonic()
            # Step 1.
            membership = group.poll(0 if self._owned else _IDLE_MS)
            if not self._owned and group.missing():
                before, self.state = self.state, missing
                if before != missing:
                    remedy = "run ldp-worker create-topics"
                    self._logger.warning("topic.missing", topic=group.topic, remedy=remedy)
                continue
            if membership is None:
                self.state = "joining"
                continue
            if membership != noted:
                self._drop(self._owned.copy())
                noted = membership
            for partition in group.assigned():
                if partition in self._owned:
                    self._attempt(partition, self._step)
                elif time.monotonic() >= self._retry_at.get(partition, 0.0):
                    self._attempt(partition, partial(self._claim, group, membership))
            self.state = SERVING if group.assigned() == self._owned.keys() else "claiming"

    def _attempt(self, partition: int, action: Callable[[int], None]) -> None:
        try:
            action(partition)
        except (Unavailable, NotOwner) as error:
            remedy = getattr(error, "remedy", "")
            step = "batch" if partition in self._owned and self._owned[partition][0].claimed else "claim"
            self._metrics.errors.labels(self.name, step).inc()
            self._logger.warning("intake.retry", partition=partition, error=str(error), remedy=remedy)
            self._retry_at[partition] = time.monotonic() + _RETRY_SECONDS
            self._drop([partition])

    def _claim(self, group: IntakeGroup, membership: Any, partition: int) -> None:
        config, served = self._config, self._served
        intake = KafkaIntake(
            config.kafka.client(),
            group,
            membership,
            partition,
            served.topic,
            config.shuffle_id(served.stream.name, partition),
            served.shuffle_batch_size * config.gateway.max_body_bytes,
            PassedOver(self._logger),
            partial(self._undeleted, partition),
        )
        owned = OwnedIntake(
            served.stream,
            intake,
            served.shuffle_batch_size,
            milliseconds(config.shuffle.deduplicate_for),
            served.configured.limits.most_reports or MOST_REPORTS,
        )
        self._owned[partition] = owned, intake
        owned.claim()
        self._metrics.uploads.labels(self.name, "expired").inc(owned.expired)
        self._logger.info("intake.claimed", partition=partition, expired=owned.expired)

    def _undeleted(self, partition: int, error: Exception) -> None:
        self._metrics.errors.labels(self.name, "delete").inc()
        self._logger.warning("uploads.undeleted", partition=partition, error=str(error))

    def _step(self, partition: int) -> None:
        owned, _ = self._owned[partition]
        if (batch := owned.step()) is not None:
            outcomes = {
                "shuffled": batch.uploads,
                "duplicate": batch.duplicates,
                "rejected": batch.rejected,
            }
            for outcome, number in outcomes.items():
                self._metrics.uploads.labels(self.name, outcome).inc(number)
            self._logger.info(
                "uploads.shuffled",
                partition=partition,
                offset=batch.offset,
                uploads=batch.uploads,
                reports=batch.reports,
                duplicates=batch.duplicates,
                rejected=batch.rejected,
            )
        self._metrics.held.labels(self.name, str(partition)).set(owned.held)
        self._metrics.oldest.labels(self.name, str(partition)).set(owned.oldest / 1000)
        owned.tidy()

    def _drop(self, partitions: Any) -> None:
        for partition in partitions:
            if (found := self._owned.pop(partition, None)) is not None:
                found[1].close()
                for gauge in (self._metrics.held, self._metrics.oldest):
                    gauge.remove(self.name, str(partition))
