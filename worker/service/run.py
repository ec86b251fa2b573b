"""Worker process: streams, probes, watchdog and shutdown."""

import faulthandler
import gc
import os
import signal
import threading
import time
from collections.abc import Sequence

import structlog

from ldp import compiling, kernels
from worker.config import Config
from worker.config.streams import Served
from worker.counting import lateness
from worker.http import server as health
from worker.kafka.decoding import records
from worker.observe.events import PassedOver
from worker.observe.metrics import Metrics
from worker.observe.progress import SERVING
from worker.service.capacity import Capacity
from worker.service.children import Parent
from worker.service.loop import STOP_SECONDS
from worker.service.stream import StreamWorker

_STUCK_SECONDS = 120  # Maximum duration of a loop step; a longer one means that the Kafka client hangs
_COMPILING_SECONDS = 5  # CPU time of an installation's first start until the streams count
LOADING = "compiling kernels or loading compiled kernels"

logger = structlog.get_logger("worker.service")


def run(config: Config, parent: Parent | None = None) -> int:
    """Serves every stream until SIGTERM or SIGINT; returns the exit code.

    If a stream's counts are lost, only that stream stops. The worker runs on, not ready, and later exits with 1. After
    a signal, the worker ends within 5 s, even if Kafka and Redis do not answer. A watchdog ends a process that hangs.
    """
    stopping = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopping.set())
    metrics = Metrics()
    workers = [StreamWorker(config, served, metrics, stopping) for served in config.streams]
    probes = _Probes(workers, config.snapshots.every_seconds)
    server = health.listen(config, metrics.registry, probes.healthy, probes.ready, PassedOver(logger))
    logger.info(
        "worker.started",
        host=config.http.host,
        port=server.server_port,
        streams=[worker.name for worker in workers],
    )
    _warm(probes, config.streams)
    if parent is not None:
        parent.serving(server.server_port)
        parent.on_gone(stopping.set)
    for worker in workers:
        worker.start()
    Capacity(config, metrics, stopping).start()
    for warm in (compiling.warm_json, records.warm_codecs):  # compiled while the streams count
        if not stopping.is_set():
            warm()
    while not stopping.wait(1):
        good, facts = probes.healthy()
        if not good:
            logger.critical("worker.stuck", **facts)
            faulthandler.dump_traceback()
            os._exit(1)  # the stuck thread cannot be interrupted; a supervisor starts a new process
    return _stop(workers, server)


def _warm(probes: "_Probes", streams: Sequence[Served]) -> None:
    """Compiles or loads the kernels of the streams' protocols."""
    logger.info("kernels.loading", compiling_seconds=0 if kernels.is_compiled() else _COMPILING_SECONDS)
    began = time.monotonic()
    gc.disable()  # collections take a tenth of the time, and the compiler leaves little garbage
    records.warm()
    for served in streams:
        compiling.warm(*served.fleet.documents)
    if any(served.cost.panes for served in streams):
        lateness.warm()
    documents = [each.fleet.documents for each in streams]
    if any(len(some) > 1 or some[0].segment is not None for some in documents):
        lateness.warm_spread()
    gc.enable()
    probes.begin()
    logger.info("kernels.loaded", seconds=round(time.monotonic() - began, 1))


class _Probes:
    def __init__(self, workers: Sequence[StreamWorker], every: float) -> None:
        self._workers, self._every, self._begun = workers, every, False

    def begin(self) -> None:
        """Starts the measurement of time since heartbeats."""
        for worker in self._workers:
            worker.progress.heartbeat()
            worker.progress.publisher_heartbeat()
        self._begun = True

    def healthy(self) -> tuple[bool, health.Facts]:
        """Returns whether threads respond, and the seconds since their last steps."""
        if not self._begun:
            return True, {"kernels": LOADING}
        now, idle = time.monotonic(), dict[str, float]()
        for worker in self._workers:
            if not (progress := worker.progress).ended:
                last = min(progress.heartbeat_at, progress.publisher_heartbeat_at + self._every)
                idle[worker.name] = round(now - last, 1)
        return max(idle.values(), default=0) < _STUCK_SECONDS, {"seconds_since_step": idle}

    def ready(self) -> tuple[bool, health.Facts]:
        """Returns whether every stream is served, and the state of each stream."""
        if not self._begun:
            return False, {"streams": {worker.name: LOADING for worker in self._workers}}
        states = {worker.name: worker.progress.describe() for worker in self._workers}
        return all(state == SERVING for state in states.values()), {"streams": states}


def _stop(workers: Sequence[StreamWorker], server: health.HttpServer) -> int:
    """Waits for the streams; returns the exit code, or exits if one hangs."""
    deadline = time.monotonic() + STOP_SECONDS
    for worker in workers:
        worker.join(max(0.0, deadline - time.monotonic()))
    failed = {worker.name: worker.progress.error for worker in workers if worker.progress.error}
    unfinished = [worker.name for worker in workers if not worker.progress.ended]
    logger.info("worker.stopped", failed=failed, unfinished=unfinished)
    if unfinished:  # a waiting client cannot be interrupted; incomplete commits have no effect
        os._exit(1 if failed else 0)
    server.shutdown()
    return 1 if failed else 0
