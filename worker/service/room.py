"""Room: how much is left of Redis's memory and of what the topics keep. The counting never waits for it."""

import contextlib
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
        """Asks once."""
        self._metrics.forget_room()
        with contextlib.suppress(*ERRORS):
            if self._redis is None:
                self._redis = connect(self._config.redis)
            for name, server in servers(self._redis):
                said: Any = server.info("memory")
                where = name or redacted(self._config.redis.url)
                self._metrics.redis_used.labels(where).set(said["used_memory"])
                self._metrics.redis_limit.labels(where).set(said["maxmemory"])
        try:
            if self._admin is None:
                self._admin = topics.connect(self._config.kafka.client())
            for served in self._config.streams:
                self._first_offsets(self._admin, served.stream.name, served.topic)
        except BrokerError:
            self.close()

    def _first_offsets(self, admin: Any, stream: str, topic: str) -> None:
        described = topics.describe(admin, [topic])
        partitions = range(described[topic].partitions) if topic in described else range(0)
        for partition, (first, _) in topics.bounds(admin, topic, partitions).items():
            self._metrics.first_offset.labels(stream, str(partition)).set(first)

    def close(self) -> None:
        """Closes the connection to the brokers; the next question opens one."""
        admin, self._admin = self._admin, None
        if admin is not None:
            admin.close()
