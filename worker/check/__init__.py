"""Check of configuration, machine, Kafka, Redis and stored counts.

Only `kafka.look` and `redis.look` connect. The `assess_...` functions need no cluster.
"""

import os
from collections.abc import Callable

from worker.check import kafka, machine, redis
from worker.check.finding import Finding, Level
from worker.config import Config

__all__ = ["Finding", "Level", "findings"]


def findings(config: Config, on_waiting: Callable[[str], object] = lambda _: None) -> list[Finding]:
    """Returns all findings, from the configuration to the stored counts.

    Calls `on_waiting` with a message if no broker accepts the client within a second.
    """
    here = [
        Finding(Level.OK, "configuration", _summary(config)),
        *assess_streams(config),
        machine.assess_cache(os.environ.get("NUMBA_CACHE_DIR"), machine.cache_folder()),
    ]
    in_kafka, cluster, heads = kafka.look(config, on_waiting)
    return [*here, *in_kafka, *redis.look(config, cluster, heads)]


def assess_streams(config: Config) -> list[Finding]:
    """Returns a warning for each probable mistake in a stream's document."""
    return [
        Finding(
            Level.WARNING, f"stream {served.stream.name}", text, "change the stream before devices report"
        )
        for served in config.streams
        for text in served.stream.warnings
    ]


def _summary(config: Config) -> str:
    streams = ", ".join(
        f"{s.stream.name} ({s.stream.oracle.name}, {s.stream.oracle.promise}, d = {s.stream.oracle.domain_size})"
        for s in config.streams
    )
    return f"read; group {config.group}, serving {streams}"
