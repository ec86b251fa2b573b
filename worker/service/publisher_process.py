"""Publisher in a separate process, with its own interpreter lock.

The parent sends the epoch of partition 0 and the partitions. The child sends its events, and the parent emits them. On
a stop, the child publishes once more and ends. If the parent has ended, the child ends at once, and the next publisher
aborts the open transaction. The parent restarts a child that ends without a stop.
"""

import os
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from functools import partial
from multiprocessing.connection import Connection
from typing import cast

from ldp.snapshot import Snapshot
from worker.config import Config, Served
from worker.counting.ports import Events, StateLost, Unavailable
from worker.observe import logs
from worker.observe.answers import Shown
from worker.observe.events import StreamEvents
from worker.redis.connecting import connect
from worker.service import publishing
from worker.service.children import python, start
from worker.store.redis import RedisStore

_TURN_SECONDS = 0.1
_FIRST_RETRY, _LONGEST_RETRY = 1.0, 60.0
ENDED = (
    "read the worker's log; exit code -9 usually means that memory ran out. The worker restarts the process"
)
_END_SECONDS = 5.0

Update = tuple[int | None, Sequence[int], bool]
"""Epoch of partition 0 or None without a claim, all partitions, and whether to stop."""


class PublisherProcess:
    """Publisher in a child process, with the interface of `Publisher.run`."""

    def __init__(
        self,
        config: Config,
        served: Served,
        partitions: Callable[[], Sequence[int]],
        epoch: Callable[[], int | None],
        events: StreamEvents,
    ) -> None:
        self._config, self._served, self._events = config, served, events
        self._partitions, self._epoch = partitions, epoch

    def run(self, stopping: threading.Event, every: float, heartbeat: Callable[[], object]) -> None:
        """Publishes until stopped, then once more; see `Publisher.run`.

        Raises `StateLost`; see `Publisher.tick`. Raises `RuntimeError` for any other failure of the publisher, with the
        traceback in its notes.
        """
        wait = _FIRST_RETRY
        while True:
            began = time.monotonic()
            code = self._process(stopping, every, heartbeat)
            self._events.publishing(False)
            if stopping.is_set():
                return
            if time.monotonic() - began > _LONGEST_RETRY:
                wait = _FIRST_RETRY
            self._events.publish_failed(
                Unavailable(f"the publisher's process ended with exit code {code}", ENDED)
            )
            self._events.ticked()
            heartbeat()
            if stopping.wait(wait):
                return
            wait = min(2 * wait, _LONGEST_RETRY)

    def _process(self, stopping: threading.Event, every: float, heartbeat: Callable[[], object]) -> int | str:
        try:
            process, ours = start([*python(), "-m", __name__])
        except OSError as error:
            return f"none, as it could not be started ({error.strerror})"
        self._events.info("publisher.started", pid=process.pid)
        try:
            with Connection(ours.detach()) as line, suppress(EOFError, OSError):
                line.send((self._config, self._served.stream.name, every))
                self._listen(line, stopping, heartbeat)
            return process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            return "none, as it hung"
        finally:
            process.kill()
            process.wait()

    def _listen(self, line: Connection, stopping: threading.Event, heartbeat: Callable[[], object]) -> None:
        before: Update | None = None
        while True:
            update = self._epoch(), [*self._partitions()], stopping.is_set()
            if update != before:
                with suppress(OSError):  # an ended child may have sent its error, which is read below
                    line.send(update)
                before = update
            if not line.poll(_TURN_SECONDS):
                continue
            match line.recv():
                case "alive":
                    heartbeat()
                case BaseException() as error:
                    raise error
                case name, args, facts:
                    getattr(self._events, name)(*args, **facts)


class _RemoteEvents:
    def __init__(self, send: Callable[[object], None]) -> None:
        self._send = send

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *args, **facts: self._send((name, args, facts))

    def published(self, snapshot: Snapshot, sum_deviation: float, rest_ratio: float | None = None) -> None:
        """Sends the values of a snapshot that the parent exports."""
        self._send(("shown", (Shown.of(snapshot, sum_deviation, rest_ratio),), {}))

    def recommend_failed(self, sequence: int, error: Exception) -> None:
        """Sends the error in a form that can be unpickled."""
        self._send(("recommend_failed", (sequence, _portable(error)), {}))


class _Line:
    """Thread-safe connection to the parent."""

    def __init__(self, connection: Connection) -> None:
        self._connection, self._lock = connection, threading.Lock()
        self.epoch: int | None = None
        self.partitions: Sequence[int] = ()
        self.stopping = threading.Event()

    def send(self, what: object) -> None:
        """Sends an object; ignores a closed connection."""
        with self._lock, suppress(OSError):
            self._connection.send(what)

    def listen(self) -> None:
        """Receives updates; exits this process once the parent has ended."""
        while True:
            try:
                self.epoch, self.partitions, stop = cast(Update, self._connection.recv())
            except (EOFError, OSError):
                os._exit(0)  # the next publisher aborts the open transaction
            if stop:
                self.stopping.set()


def main(descriptor: int) -> None:
    """Publishes a stream until the parent requests a stop or ends."""
    for number in (signal.SIGTERM, signal.SIGINT):  # only the parent handles these signals
        signal.signal(number, signal.SIG_IGN)
    connection = Connection(descriptor)
    config, name, every = cast(tuple[Config, str, float], connection.recv())
    logs.configure(config.log_level)
    line = _Line(connection)
    threading.Thread(target=line.listen, name="parent", daemon=True).start()
    try:
        _publish(config, config.served(name), every, line)
    except Exception as error:
        line.send(_portable(error))


def _publish(config: Config, served: Served, every: float, line: _Line) -> None:
    client, heartbeat = connect(config.redis), partial(line.send, "alive")
    events = _RemoteEvents(line.send)
    snapshot_producer = publishing.snapshot_producer_of(config, served, heartbeat, events.passed_over)
    with closing(client), closing(snapshot_producer), closing(publishing.group_of(config, served)) as group:
        publisher = publishing.publisher(
            config,
            served,
            RedisStore(client, served.name),
            snapshot_producer,
            group,
            lambda: line.partitions,
            lambda: line.epoch,
            cast(Events, events),
        )
        publisher.run(line.stopping, every, heartbeat)


def _portable(error: Exception) -> Exception:
    """Returns StateLost unchanged, other errors as a picklable RuntimeError."""
    if isinstance(error, StateLost):
        return error
    portable = RuntimeError(f"{type(error).__name__}: {error}")
    portable.add_note("".join(traceback.format_exception(error)))
    return portable


if __name__ == "__main__":
    main(int(sys.argv[1]))
