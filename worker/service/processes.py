"""Several processes on one machine, each a member of the group, and their parent, which starts, shows and ends them.

The parent counts nothing and never speaks to Redis; of Kafka it reads the snapshot topic alone, for the page. A process
ends when its parent does, in whatever way: it loses the line between them, in a container as well as outside. Which
partitions it counts, the group says.
"""

import json
import os
import signal
import socket
import subprocess
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from http import HTTPStatus

import structlog

from worker.config import Config
from worker.http import server as health
from worker.http.client import Answer, ask
from worker.observe import merged
from worker.observe.events import PassedOver
from worker.service.starting import start

_TURN_SECONDS = 0.1
_ANSWER_SECONDS = 2.0
"""How long a process may be silent; a probe of the parent waits hardly longer."""
_STOP_SECONDS = 8.0
"""A worker ends within five seconds or a little more; one that hangs is killed before a container engine kills all."""
_FIRST_RETRY, _LONGEST_RETRY = 1.0, 60.0
_CONFIGURATION = 2
"""The exit code of a process whose configuration is wrong, which starting it again does not mend."""

logger = structlog.get_logger("worker.service")


def run(config: Config, count: int, command: Sequence[str]) -> int:
    """Keeps so many processes running until SIGTERM or SIGINT; returns the exit code, 1 if any of theirs is not 0.

    A process that ends by itself is started again, after a wait that grows; one with exit code 2 ends them all with it.

    Args:
        config: the configuration: where the parent answers for them all.
        count: how many.
        command: what each of them runs; ``--child NUMBER DESCRIPTOR`` is added.

    Raises:
        ConfigError: the configured address cannot be listened on.
    """
    asked: list[int] = []  # an Event could be locked where the signal comes
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda number, _: asked.append(number))
    processes = Processes(count, command)
    registry = merged.registry(processes.metrics, processes.restarts)
    server = health.listen(config, registry, processes.healthy, processes.ready, PassedOver(logger))
    logger.info(
        "worker.started",
        host=config.http.host,
        port=server.server_port,
        streams=[served.stream.name for served in config.streams],
        processes=count,
    )
    while not asked and not processes.refused():
        processes.turn()
        time.sleep(_TURN_SECONDS)
    code = processes.stop()
    server.shutdown()
    return code


class Process:
    """One of the processes.

    Attributes:
        port: where it answers; None before it serves, and after its end.
        restarts: how often it was started again.
        code: the exit code of its last end; None if it never ended.
        state: what is said of it where it does not answer itself.
    """

    def __init__(self, number: int, command: Sequence[str], threads: int) -> None:
        self.number, self._command = number, command
        # unless they are told, libraries start as many threads in each process as there are cores
        self._environ = {"OMP_NUM_THREADS": str(threads), "NUMBA_NUM_THREADS": str(threads)} | os.environ
        self._running: subprocess.Popen[bytes] | None = None
        self._line: socket.socket | None = None
        self._began = self._due = time.monotonic()
        self._wait = _FIRST_RETRY
        self.port: int | None = None
        self.restarts = 0
        self.code: int | None = None
        self.state = "starting"

    def turn(self) -> None:
        """Starts it when that is due, hears where it answers, and notices its end."""
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
        except OSError as error:  # no room for another process
            self._put_off(f"could not be started ({error.strerror})")
            return
        self.restarts += self.code is not None
        self.state = "starting"
        logger.info("process.started", process=self.number, pid=self._running.pid, restarts=self.restarts)

    def _hear(self) -> None:
        """Hears where it answers, if it has said so; that is one short line, which comes whole."""
        assert self._line is not None
        try:
            said = self._line.recv(16, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return
        if said:
            self.port, self.state = int(said), "does not answer"

    def _put_off(self, why: str) -> None:
        """Notes when it is to be started again: later each time, until it has run for a while."""
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
        """Returns what it answers over HTTP; None if it does not."""
        port = self.port
        return None if port is None else ask(port, path, accept, _ANSWER_SECONDS)

    def terminate(self) -> None:
        """Asks it to stop; one that does not serve yet holds nothing, and is ended at once."""
        if self._running is not None and self.port is not None:
            self._running.terminate()
        elif self._running is not None:
            self._running.kill()

    def end(self, deadline: float) -> int:
        """Waits for its end, or kills it at the deadline; returns its exit code, 0 if it never served."""
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
    """All of them.

    Args:
        count: how many.
        command: what each of them runs.
    """

    def __init__(self, count: int, command: Sequence[str]) -> None:
        threads = max(1, len(os.sched_getaffinity(0)) // count)  # together as many as one process would have
        self._all = [Process(number, command, threads) for number in range(count)]
        self._asking = ThreadPoolExecutor(count, thread_name_prefix="ask")

    def turn(self) -> None:
        """Starts what is due, and notices what has ended; the first one compiles kernels, the others then load them."""
        first, *others = self._all
        first.turn()
        if first.port is not None or first.code is not None:
            for process in others:
                process.turn()

    def refused(self) -> bool:
        """Returns whether one of them found that the configuration is wrong."""
        return any(process.code == _CONFIGURATION for process in self._all)

    def stop(self) -> int:
        """Ends them all; returns the exit code of all together."""
        deadline = time.monotonic() + _STOP_SECONDS
        refused = self.refused()
        for process in self._all:
            process.terminate()
        codes = [process.end(deadline) for process in self._all]
        logger.info("worker.stopped", codes=codes)
        return _CONFIGURATION if refused else int(any(codes))

    def restarts(self) -> list[int]:
        """Returns how often each of them was started again."""
        return [process.restarts for process in self._all]

    def metrics(self) -> list[str | None]:
        """Returns what each of them shows to Prometheus; None for one that does not answer."""
        return [None if answer is None else answer.text for answer in self._ask("/metrics", merged.ACCEPTS)]

    def healthy(self) -> tuple[bool, health.Facts]:
        """Returns whether each that serves answers, and that no thread hangs; and what each says."""
        good, facts = self._facts("/healthz")
        return all(well for well, process in zip(good, self._all, strict=True) if process.port), facts

    def ready(self) -> tuple[bool, health.Facts]:
        """Returns whether each serves every stream, and what each says."""
        good, facts = self._facts("/readyz")
        return all(good), facts

    def _facts(self, path: str) -> tuple[list[bool], health.Facts]:
        """Returns of each whether it says yes to a probe, and all that they say."""
        answers = self._ask(path, "application/json")
        facts = {
            str(process.number): process.state if answer is None else json.loads(answer.text)
            for process, answer in zip(self._all, answers, strict=True)
        }
        good = [answer is not None and answer.status == HTTPStatus.OK for answer in answers]
        return good, {"processes": facts}

    def _ask(self, path: str, accept: str) -> list[Answer | None]:
        """Asks all at the same time, so that one that is silent costs the others nothing."""
        return list(self._asking.map(lambda process: process.ask(path, accept), self._all))
