"""Parent of several worker processes, members of the same groups.

The parent starts, restarts and ends the children, and serves their probes and metrics. It does not use Redis, and reads
only the snapshot topic, for the page. A child ends when its parent ends.
"""

import json
import os
import signal
import socket
import subprocess
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException

import structlog

from worker.config import Config
from worker.http import server as health
from worker.observe import merged
from worker.observe.events import PassedOver
from worker.service.children import start

_TURN_SECONDS = 0.1
_ANSWER_SECONDS = 2.0  # Maximum wait for a child's answer to a probe
_STOP_SECONDS = 8.0  # Time until the parent kills stopping children, shorter than that of container engines
_FIRST_RETRY, _LONGEST_RETRY = 1.0, 60.0
_CONFIGURATION = 2  # Exit code for a wrong configuration, after which a restart does not help

Answer = tuple[int, str]
"""Status and text of an HTTP answer."""

logger = structlog.get_logger("worker.service")


def run(config: Config, count: int, command: Sequence[str]) -> int:
    """Runs child processes until SIGTERM or SIGINT; returns the exit code.

    If a child refuses the configuration, all children end and the code is 2. Otherwise the code is 0 if all exit with
    0, else 1. Other children that end restart after a growing wait. Raises `ConfigError` if the parent cannot listen.
    """
    asked: list[int] = []  # not an Event, because a signal can arrive while its lock is held
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda number, _: asked.append(number))
    processes = Processes(count, command)
    registry = merged.registry(processes.metrics, processes.restarts)
    server = health.listen(config, registry, processes.healthy, processes.ready, PassedOver(logger))
    logger.info(
        "worker.started",
        host=config.http.host,
        port=server.server_port,
        streams=[served.name for served in config.streams],
        processes=count,
    )
    while not asked and not processes.refused():
        processes.turn()
        time.sleep(_TURN_SECONDS)
    code = processes.stop()
    server.shutdown()
    return code


class Process:
    """One child process."""

    def __init__(self, number: int, command: Sequence[str], threads: int) -> None:
        self.number, self._command = number, command
        # by default, libraries start one thread per core in each process
        self._environ = {"OMP_NUM_THREADS": str(threads), "NUMBA_NUM_THREADS": str(threads)} | os.environ
        self._running: subprocess.Popen[bytes] | None = None
        self._line: socket.socket | None = None
        self._began = self._due = time.monotonic()
        self._wait = _FIRST_RETRY
        self.port: int | None = None  # HTTP port; None unless the child serves
        self.restarts = 0
        self.code: int | None = None  # last exit code; None before the first end
        self.state = "starting"  # shown while the child does not answer

    def turn(self) -> None:
        """Starts the process, receives its port, or schedules a restart."""
        if self._running is None:
            if time.monotonic() >= self._due:
                self._start()
        elif (code := self._running.poll()) is not None:
            self._forget(code)
            self._put_off(f"ended with exit code {code}")
        elif self.port is None:
            self._hear()

    def _start(self) -> None:
        self._began = time.monotonic()
        try:
            self._running, self._line = start([*self._command, "--child", str(self.number)], self._environ)
        except OSError as error:
            self._put_off(f"could not be started ({error.strerror})")
            return
        self.restarts += self.code is not None
        self.state = "starting"
        logger.info("process.started", process=self.number, pid=self._running.pid, restarts=self.restarts)

    def _hear(self) -> None:
        """Receives the port: its short line always arrives in one piece."""
        assert self._line is not None
        try:
            said = self._line.recv(16, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return
        if said:
            self.port, self.state = int(said), "does not answer"

    def _put_off(self, why: str) -> None:
        """Schedules the restart; the wait doubles unless the process ran long."""
        now = time.monotonic()
        if now - self._began > _LONGEST_RETRY:
            self._wait = _FIRST_RETRY
        self.state = f"{why}; starts again after {self._wait:.0f} s"
        logger.error("process.ended", process=self.number, why=why, wait_seconds=self._wait)
        self._due, self._wait = now + self._wait, min(2 * self._wait, _LONGEST_RETRY)

    def _forget(self, code: int) -> None:
        assert self._line is not None
        self._line.close()
        self._running, self._line, self.port, self.code = None, None, None, code

    def ask(self, path: str, accept: str) -> Answer | None:
        """Returns the HTTP answer of the process; None without one."""
        if (port := self.port) is None:
            return None
        # urllib would use a proxy from the environment
        with closing(HTTPConnection("127.0.0.1", port, timeout=_ANSWER_SECONDS)) as connection:
            try:
                connection.request("GET", path, headers={"Accept": accept})
                reply = connection.getresponse()
                return reply.status, reply.read().decode()
            except (OSError, HTTPException):
                return None

    def terminate(self) -> None:
        """Requests a stop; kills the process if it does not serve yet."""
        if self._running is not None and self.port is not None:
            self._running.terminate()
        elif self._running is not None:
            self._running.kill()

    def end(self, deadline: float) -> int:
        """Kills the process at the deadline; returns its code (not serving: 0)."""
        if self._running is None:
            return self.code or 0
        serves = self.port is not None
        try:
            code = self._running.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            self._running.kill()
            code = self._running.wait()
        self._forget(code)
        return code if serves else 0


class Processes:
    """All child processes."""

    def __init__(self, count: int, command: Sequence[str]) -> None:
        threads = max(1, len(os.sched_getaffinity(0)) // count)
        self._all = [Process(number, command, threads) for number in range(count)]
        self._asking = ThreadPoolExecutor(count, thread_name_prefix="ask")

    def turn(self) -> None:
        """Starts children; the first compiles the kernels that the others load."""
        first, *others = self._all
        first.turn()
        if first.port is not None or first.code is not None:
            for process in others:
                process.turn()

    def refused(self) -> bool:
        """Returns whether a child refused the configuration."""
        return any(process.code == _CONFIGURATION for process in self._all)

    def stop(self) -> int:
        """Ends all children; returns the parent's exit code."""
        deadline = time.monotonic() + _STOP_SECONDS
        refused = self.refused()
        for process in self._all:
            process.terminate()
        codes = [process.end(deadline) for process in self._all]
        logger.info("worker.stopped", codes=codes)
        return _CONFIGURATION if refused else int(any(codes))

    def restarts(self) -> list[int]:
        """Returns each child's number of restarts."""
        return [process.restarts for process in self._all]

    def metrics(self) -> list[str | None]:
        """Returns each child's metrics; None if the child does not answer."""
        return [answer and answer[1] for answer in self._ask("/metrics", merged.ACCEPTS)]

    def healthy(self) -> tuple[bool, health.Facts]:
        """Returns whether all serving children are healthy, and each one's facts."""
        good, facts = self._facts("/healthz")
        return all(well for well, process in zip(good, self._all, strict=True) if process.port), facts

    def ready(self) -> tuple[bool, health.Facts]:
        """Returns whether all children are ready, and each child's facts."""
        good, facts = self._facts("/readyz")
        return all(good), facts

    def _facts(self, path: str) -> tuple[list[bool], health.Facts]:
        """Returns which children answer a probe with 200, and each one's facts."""
        answers = self._ask(path, "application/json")
        facts = {
            str(process.number): process.state if answer is None else json.loads(answer[1])
            for process, answer in zip(self._all, answers, strict=True)
        }
        good = [answer is not None and answer[0] == HTTPStatus.OK for answer in answers]
        return good, {"processes": facts}

    def _ask(self, path: str, accept: str) -> list[Answer | None]:
        return list(self._asking.map(lambda process: process.ask(path, accept), self._all))
