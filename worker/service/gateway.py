"""Gateway process: HTTP server, producer, probes and shutdown."""

import asyncio
import contextlib
import functools
import gc
import signal
from collections.abc import Mapping, Sequence
from typing import Any

import structlog
from granian.constants import HTTPModes, Interfaces
from granian.http import HTTP1Settings
from granian.server.embed import Server

from ldp import compiling
from worker.config import Config, ConfigError
from worker.counting.ports import Unavailable
from worker.gateway import ohttp
from worker.gateway.application import Application
from worker.http import server as health
from worker.kafka.intake.sender import IntakeSender
from worker.observe.uploads import GatewayMetrics

_LOOK_SECONDS = 1.0
_BACKLOG = 1024
_MOST_HEAD = 1 << 14  # Most bytes of a request's headers, and of a connection's buffer
_UNLIMITED = 1 << 16
"""Concurrent requests: granian would delay others, but `max_inflight_bytes` refuses them at once."""

logger = structlog.get_logger("worker.service")


def run(config: Config) -> int:
    """Accepts uploads until SIGTERM or SIGINT; returns the exit code.

    After a signal, `/readyz` returns 503, and uploads in flight finish. Raises `ConfigError`: no stream has an intake,
    a key cannot be used, or a port is taken.
    """
    streams = {served.stream.name: served for served in config.streams if served.intake is not None}
    if not streams:
        raise ConfigError(
            "streams.intake: no stream has one; the gateway needs a stream with an intake topic"
        )
    for served in streams.values():
        compiling.warm(served.stream)
    compiling.warm_json()
    try:
        keys = ohttp.read_keys(config.gateway.ohttp.key_files)
    except ValueError as error:
        raise ConfigError(f"gateway.ohttp.key_files: {error}") from None
    gc.freeze()  # the compiler's objects stay
    topics = [str(served.intake) for served in streams.values()]
    sender = IntakeSender(config.kafka.client(), topics, config.gateway.timeout_seconds)
    application = Application(
        streams,
        config.gateway,
        sender.send,
        lambda *labels: counter(*labels).inc(),
        keys,
        lambda *labels: metrics.sealed.labels(*labels).inc(),
    )
    metrics = GatewayMetrics(streams, lambda: application.inflight, keys)
    counter = functools.cache(metrics.uploads.labels)
    asyncio.run(_Gateway(config, application, sender, metrics).run())
    return 0


class _Gateway:
    def __init__(
        self, config: Config, application: Application, sender: IntakeSender, metrics: GatewayMetrics
    ) -> None:
        self._config, self._application, self._sender, self._metrics = config, application, sender, metrics
        self._stopping = asyncio.Event()

    async def run(self) -> None:
        """Serves until a signal."""
        config = self._config.gateway
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stopping.set)
        try:
            probes = health.HttpServer(
                config.host, config.metrics_port, self._metrics.registry, lambda: (True, {}), self._ready
            )
        except OSError as error:
            raise ConfigError(
                f"gateway.metrics_port: cannot listen on {config.metrics_port} ({error.strerror})"
            ) from None
        server = Server(
            self._application.asgi(),
            config.host,
            config.port,
            interface=Interfaces.ASGINL,
            http=HTTPModes.http1,
            http1_settings=HTTP1Settings(
                header_read_timeout=int(1000 * config.timeout_seconds), max_buffer_size=_MOST_HEAD
            ),
            websockets=False,
            backlog=_BACKLOG,
            backpressure=_UNLIMITED,
            log_enabled=False,
            ssl_cert=config.ssl_certfile,
            ssl_key=config.ssl_keyfile,
        )
        serving, keeping = asyncio.create_task(server.serve()), asyncio.create_task(self._keep_producer())
        logger.info("gateway.started", host=config.host, port=config.port, metrics_port=probes.server_port)
        stopping = asyncio.create_task(self._stopping.wait())
        await asyncio.wait([serving, keeping, stopping], return_when=asyncio.FIRST_COMPLETED)
        self._stopping.set()
        server.stop()  # type: ignore[no-untyped-call]
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(config.timeout_seconds):
                while self._application.inflight:
                    await asyncio.sleep(0.05)
        keeping.cancel()
        failed: Sequence[Any] = await asyncio.gather(serving, keeping, return_exceptions=True)
        self._sender.close()
        logger.info("gateway.stopped")
        if isinstance(failed[0], Exception):
            raise ConfigError(f"gateway.port: cannot listen on {config.port} ({failed[0]})")
        if isinstance(failed[1], Exception):
            raise failed[1]

    async def _keep_producer(self) -> None:
        """Step 7: starts a producer, and replaces it if it acknowledges nothing."""
        while True:
            if self._sender.due:
                try:
                    await asyncio.to_thread(self._sender.replace)
                except Unavailable as error:
                    logger.warning("kafka.unavailable", error=str(error), remedy=error.remedy)
            await asyncio.sleep(_LOOK_SECONDS)

    def _ready(self) -> tuple[bool, Mapping[str, Any]]:
        state = "stopping" if self._stopping.is_set() else "no producer" if self._sender.due else "serving"
        return state == "serving", {"state": state}
