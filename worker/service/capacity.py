"""Exporter of Redis memory and partition offsets, on a separate thread."""

import threading
from typing import Any

from worker.config import Config, Served
from worker.config.redaction import redacted
from worker.kafka.client import topics
from worker.kafka.client.errors import BrokerError
from worker.observe.metrics import Metrics
from worker.redis.connecting import Client, connect, servers
from worker.redis.errors import ERRORS

_EVERY_SECONDS = 15.0


class Capacity(threading.Thread):
    """Queries Redis and brokers every 15 s, and exports the newest answers."""

    def __init__(self, config: Config, metrics: Metrics, stopping: threading.Event) -> None:
        super().__init__(name="capacity", daemon=True)
        self._config, self._metrics, self._stopping = config, metrics, stopping
        self._redis: Client | None = None
        self._admin: Any = None

    def run(self) -> None:
        """Queries until the process stops."""
        while True:
            self._query()
            if self._stopping.wait(_EVERY_SECONDS):
                return

    def _query(self) -> None:
        try:
            if self._redis is None:
                self._redis = connect(self._config.redis)
            memory = {name: server.info("memory") for name, server in servers(self._redis)}
        except ERRORS:
            memory = {}
        try:
            if self._admin is None:
                self._admin = topics.connect(self._config.kafka.client())
            logs = {served.name: self._offsets(self._admin, served) for served in self._config.streams}
        except BrokerError:
            logs = {}
            admin, self._admin = self._admin, None
            if admin is not None:
                admin.close()
        url = redacted(self._config.redis.url)
        self._metrics.capacity({name or url: info for name, info in memory.items()}, logs)

    def _offsets(self, admin: Any, served: Served) -> dict[int, tuple[int, int, int]]:
        """Returns partition -> first, last stable and committed offset."""
        described = topics.describe(admin, [served.topic])
        partitions = range(described[served.topic].partitions) if served.topic in described else range(0)
        bounds = topics.bounds(admin, served.topic, partitions, stable=True)
        committed = topics.committed(admin, self._config.consumer_group(served.name), served.topic)
        return {
            p: (first, end, committed[p].offset if p in committed else first)
            for p, (first, end) in bounds.items()
        }
