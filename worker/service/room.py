"""Room: memory of Redis, and the offsets of every partition, whoever owns it. Counting never waits for these."""

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


class Room(threading.Thread):
    """Asks Redis and the brokers from time to time, and shows what they say; what does not answer is not shown.

    Args:
        config: where they are, and the streams.
        metrics: where it is shown.
        stopping: set once the process is asked to stop.
    """

    def __init__(self, config: Config, metrics: Metrics, stopping: threading.Event) -> None:
        super().__init__(name="room", daemon=True)
        self._config, self._metrics, self._stopping = config, metrics, stopping
        self._redis: Client | None = None
        self._admin: Any = None

    def run(self) -> None:
        """Asks until the process stops."""
        while True:
            self.ask()
            if self._stopping.wait(_EVERY_SECONDS):
                return

    def ask(self) -> None:
        """Asks once; what was heard before is shown until then, so that no scrape misses it."""
        try:
            if self._redis is None:
                self._redis = connect(self._config.redis)
            memory = {name: server.info("memory") for name, server in servers(self._redis)}
        except ERRORS:
            memory = {}
        try:
            if self._admin is None:
                self._admin = topics.connect(self._config.kafka.client())
            logs = {served.stream.name: self._offsets(self._admin, served) for served in self._config.streams}
        except BrokerError:
            logs = {}
            self.close()
        self._metrics.room(
            {name or redacted(self._config.redis.url): said for name, said in memory.items()}, logs
        )

    def _offsets(self, admin: Any, served: Served) -> dict[int, tuple[int, int, int]]:
        """Returns partition -> first offset, last stable offset, and the offset that the group has committed."""
        described = topics.describe(admin, [served.topic])
        partitions = range(described[served.topic].partitions) if served.topic in described else range(0)
        bounds = topics.bounds(admin, served.topic, partitions, stable=True)
        group = self._config.consumer_group(served.stream.name)
        committed = topics.committed(admin, group, served.topic)
        return {
            p: (first, end, committed[p].offset if p in committed else first)
            for p, (first, end) in bounds.items()
        }

    def close(self) -> None:
        """Closes the connection to the brokers; the next question opens one."""
        admin, self._admin = self._admin, None
        if admin is not None:
            admin.close()
