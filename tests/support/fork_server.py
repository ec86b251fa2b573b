"""Forks workers from a process that has imported all modules, which saves 3 s of CPU a worker.

``python -m tests.support.fork_server N`` receives the options of workers as JSON on the socket with descriptor N. It
answers with the process id, and later with the exit code. It has one thread. It kills its workers when the socket
closes.
"""

import gc
import importlib
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

ROOT = Path(__file__).resolve().parents[2]
_MOST = 1 << 17
"""The largest message in bytes."""


class ForkedWorker:
    """A forked worker with the interface of `subprocess.Popen`."""

    def __init__(self, fork_server: "ForkServer", pid: int, command: str) -> None:
        self.pid, self.args = pid, command
        self.returncode: int | None = None
        self._fork_server = fork_server

    def poll(self) -> int | None:
        self._fork_server.listen(0)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        deadline = None if timeout is None else time.monotonic() + timeout
        while (code := self.poll()) is None:
            if deadline is not None and time.monotonic() > deadline:
                raise subprocess.TimeoutExpired(self.args, timeout or 0.0)
            self._fork_server.listen(0.1)
        return code

    def send_signal(self, number: int) -> None:
        """Sends a signal, unless the process has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


class ForkServer:
    """A client of the forking process; a context manager."""

    def __init__(self) -> None:
        self._alive: dict[int, ForkedWorker] = {}  # an id is another process's once its own has ended
        self._lock = threading.Lock()

    def __enter__(self) -> Self:
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", __name__, str(theirs.fileno())],
                cwd=ROOT,
                env=os.environ
                | {"OPENBLAS_NUM_THREADS": "1"},  # its pool would be threads that are not forked
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
            )
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()
        self._process.wait()

    def fork(
        self, module: str, options: list[str], environ: Mapping[str, str], log: Path, command: str = "run"
    ) -> ForkedWorker:
        """Starts `python -m module command options` with its output in a file."""
        told = {"module": module, "options": [command, *options], "environ": dict(environ), "log": str(log)}
        log.write_bytes(b"")
        with self._lock:
            self._socket.sendall(json.dumps(told).encode())
            while (pid := self._hear().get("forked")) is None:
                pass
            forked = self._alive[pid] = ForkedWorker(
                self, pid, f"python -m {module} {command} {' '.join(options)}"
            )
        return forked

    def listen(self, seconds: float) -> None:
        """Receives the exit code of a worker, if one ends within these seconds."""
        with self._lock:
            if select.select([self._socket], [], [], seconds)[0]:
                self._hear()

    def _hear(self) -> dict[str, Any]:
        message = self._socket.recv(_MOST)
        if not message:
            raise ChildProcessError(f"what forks workers ended with exit code {self._process.wait()}")
        said: dict[str, Any] = json.loads(message)
        if "ended" in said:
            self._alive.pop(said["ended"]).returncode = said["code"]
        return said


def _load() -> None:
    """Imports the worker and loads its compiled kernels."""
    from ldp import kernels
    from worker.counting import lateness
    from worker.kafka.decoding import records

    importlib.import_module("worker.service.run")
    importlib.import_module("worker.service.processes")
    kernels.warm()
    records.warm()
    lateness.warm()
    gc.collect()
    gc.freeze()


def _forked(ours: socket.socket) -> dict[str, Any]:
    """Forks a worker for each message; returns its options, in the worker only."""
    woken, wakes = os.pipe()
    os.set_blocking(woken, False)
    os.set_blocking(wakes, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wakes, warn_on_full_buffer=False)
    alive = set[int]()
    while True:
        ready = select.select([ours.fileno(), woken], [], [])[0]
        if woken in ready:
            os.read(woken, 4096)
            while alive and (ended := os.waitpid(-1, os.WNOHANG))[0]:
                alive.discard(ended[0])
                code = os.waitstatus_to_exitcode(ended[1])
                ours.sendall(json.dumps({"ended": ended[0], "code": code}).encode())
        if ours.fileno() not in ready:
            continue
        message = ours.recv(_MOST)
        if not message:
            for pid in alive:
                os.kill(pid, signal.SIGKILL)
            sys.exit()
        if pid := os.fork():
            alive.add(pid)
            ours.sendall(json.dumps({"forked": pid}).encode())
            continue
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for descriptor in (woken, wakes):
            os.close(descriptor)
        ours.close()
        told: dict[str, Any] = json.loads(message)
        return told


def main() -> None:
    """Forks workers and runs each of them."""
    ours = socket.socket(fileno=int(sys.argv[1]))
    _load()
    told = _forked(ours)
    log = os.open(told["log"], os.O_WRONLY)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.close(log)
    os.environ.clear()
    os.environ.update(told["environ"])
    sys.argv = [told["module"], *told["options"]]
    runpy.run_module(told["module"], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
