"""Room: how much is left of Redis's memory and of what the topics keep. The counting never waits for it."""

import threading
from typing import Any

from worker.config import Config
from worker.config.redaction import redacted
from worker.kafka import topics
from worker.kafka.errors import BrokerError
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
            firsts = {
                served.stream.name: self._first_offsets(self._admin, served.topic)
                for served in self._config.streams
            }
        except BrokerError:
            firsts = {}
            self.close()
        self._metrics.room(
            {name or redacted(self._config.redis.url): said for name, said in memory.items()}, firsts
        )

    @staticmethod
    def _first_offsets(admin: Any, topic: str) -> dict[int, int]:
        described = topics.describe(admin, [topic])
        partitions = range(described[topic].partitions) if topic in described else range(0)
        return {p: first for p, (first, _) in topics.bounds(admin, topic, partitions).items()}

    def close(self) -> None:
        """Closes the connection to the brokers; the next question opens one."""
        admin, self._admin = self._admin, None
        if admin is not None:
            admin.close()
