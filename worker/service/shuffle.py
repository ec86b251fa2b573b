"""Shuffler process: moves the uploads of all streams to the topics of reports."""

import os
import signal
import threading
import time
from collections.abc import Callable
from typing import Any

import structlog

from ldp import compiling
from worker.config import Config, ConfigError, Served
from worker.counting.ports import NotOwner, Unavailable
from worker.counting.rules import MOST_REPORTS
from worker.counting.windows import milliseconds
from worker.kafka.decoding import records
from worker.kafka.intake.group import IntakeGroup
from worker.kafka.intake.partition import KafkaIntake
from worker.observe.events import PassedOver
from worker.shuffling.partition import OwnedIntake

STOP_SECONDS = 4.0
_RETRY_SECONDS = 1.0
_IDLE_MS = 50

logger = structlog.get_logger("worker.service")


def run(config: Config) -> int:
    """Shuffles every stream that has an intake, until SIGTERM or SIGINT.

    An interrupted release has no effect: the next owner repeats it. Raises `ConfigError`: no stream has an intake.
    """
    streams = [served for served in config.streams if served.intake is not None]
    if not streams:
        raise ConfigError(
            "streams.intake: no stream has one; the shuffler needs a stream with an intake topic"
        )
    stopping = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopping.set())
    records.warm()
    records.warm_codecs()
    for served in streams:
        compiling.warm(served.stream)
    threads = [threading.Thread(target=StreamShuffler(config, served, stopping).run) for served in streams]
    for thread in threads:
        thread.daemon = True
        thread.start()
    logger.info("shuffler.started", streams=[served.stream.name for served in streams])
    stopping.wait()
    deadline = time.monotonic() + STOP_SECONDS
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))
    logger.info("shuffler.stopped")
    if any(thread.is_alive() for thread in threads):
        os._exit(0)  # a waiting client cannot be interrupted
    return 0


class StreamShuffler:
    """Shuffles one stream on one thread."""

    def __init__(self, config: Config, served: Served, stopping: threading.Event) -> None:
        self._config, self._served, self._stopping = config, served, stopping
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
            except Unavailable as error:
                self._logger.warning("kafka.unavailable", error=str(error), remedy=error.remedy)
            except Exception as error:
                self._logger.exception("serve.retry", error=str(error), wait_seconds=_RETRY_SECONDS)
            self._stopping.wait(_RETRY_SECONDS)

    def _serve(self, group: IntakeGroup) -> None:
        noted = None
        while not self._stopping.is_set():
            # Step 1.
            if (membership := group.poll(0 if self._owned else _IDLE_MS)) is None:
                continue
            if membership != noted:
                self._drop(self._owned.copy())
                noted = membership
            for partition in group.assigned():
                if partition in self._owned:
                    self._attempt(partition, self._step)
                elif time.monotonic() >= self._retry_at.get(partition, 0.0):
                    self._attempt(partition, lambda p: self._claim(group, membership, p))

    def _attempt(self, partition: int, action: Callable[[int], None]) -> None:
        try:
            action(partition)
        except (Unavailable, NotOwner) as error:
            remedy = getattr(error, "remedy", "")
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
            config.release_id(served.stream.name, partition),
            served.release_least * config.gateway.max_body_bytes,
            PassedOver(self._logger),
            lambda error: self._logger.warning("uploads.undeleted", partition=partition, error=str(error)),
        )
        owned = OwnedIntake(
            served.stream,
            intake,
            served.release_least,
            milliseconds(config.shuffle.deduplicate_for),
            served.configured.limits.most_reports or MOST_REPORTS,
        )
        self._owned[partition] = owned, intake
        owned.claim()
        self._logger.info("intake.claimed", partition=partition, expired=owned.expired)

    def _step(self, partition: int) -> None:
        owned, _ = self._owned[partition]
        if (release := owned.step()) is not None:
            self._logger.info(
                "uploads.released",
                partition=partition,
                offset=release.offset,
                uploads=release.uploads,
                reports=release.reports,
                duplicates=release.duplicates,
                rejected=release.rejected,
            )
        owned.tidy()

    def _drop(self, partitions: Any) -> None:
        for partition in partitions:
            if (found := self._owned.pop(partition, None)) is not None:
                found[1].close()
