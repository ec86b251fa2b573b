"""A publisher in a process of its own, so that what it computes holds no lock that counting waits for.

That process runs the same `Publisher`, with clients of its own. It is told which epoch of partition 0 is held, and
which partitions there are; it tells what happens, which its parent shows as if it had happened there. It ends when it
is told to, once it has published what there is, and at once when its parent does, in whatever way: then nothing is
published, as the successor aborts what is open. One that ends by itself is started again.
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
from worker.service.starting import python, start
from worker.store.redis import RedisStore

_TURN_SECONDS = 0.1
"""How soon it is told what changes."""
_FIRST_RETRY, _LONGEST_RETRY = 1.0, 60.0
ENDED = "read the log of the worker: -9 is mostly a machine without memory. The process is started again"
"""The remedy where a publisher's process ended by itself."""
_END_SECONDS = 5.0
"""What a process that has let go of its line may take to end."""

Told = tuple[int | None, Sequence[int], bool]
"""The epoch under which partition 0 is held, or None; all partitions; and whether it is to stop."""


class Apart:
    """A stream's publisher, as its worker has it: what another process does.

    Args:
        config: the worker's configuration.
        served: the stream.
        partitions: its topic's, at the moment.
        epoch: the epoch under which this worker holds partition 0 as far as it knows, or None.
        events: told what happens.
    """

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

    def run(self, stopping: threading.Event, every: float, on_alive: Callable[[], object]) -> None:
        """Publishes until stopped, then once more; see `Publisher.run`.

        Raises:
            StateLost: see `Publisher.tick`.
            RuntimeError: the publisher failed otherwise; the message and the notes say how.
        """
        wait = _FIRST_RETRY
        while True:
            began = time.monotonic()
            code = self._process(stopping, every, on_alive)
            self._events.publishing(False)
            if stopping.is_set():
                return
            if time.monotonic() - began > _LONGEST_RETRY:
                wait = _FIRST_RETRY
            self._events.publish_failed(
                Unavailable(f"the publisher's process ended with exit code {code}", ENDED)
            )
            self._events.ticked()
            on_alive()
            if stopping.wait(wait):
                return
            wait = min(2 * wait, _LONGEST_RETRY)

    def _process(self, stopping: threading.Event, every: float, on_alive: Callable[[], object]) -> int | str:
        """Runs a process until it ends; returns its exit code, or why there is none."""
        try:
            process, ours = start([*python(), "-m", __name__])
        except OSError as error:
            return f"none, as it could not be started ({error.strerror})"
        self._events.info("publisher.started", pid=process.pid)
        try:
            with Connection(ours.detach()) as line, suppress(EOFError, OSError):
                line.send((self._config, self._served.stream.name, every))
                self._listen(line, stopping, on_alive)
            return process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            return "none, as it hung"
        finally:
            process.kill()
            process.wait()

    def _listen(self, line: Connection, stopping: threading.Event, on_alive: Callable[[], object]) -> None:
        """Tells what changes, and shows what is told."""
        before: Told | None = None
        while True:
            told = self._epoch(), [*self._partitions()], stopping.is_set()
            if told != before:
                with suppress(OSError):  # one that has ended may have told why
                    line.send(told)
                before = told
            if not line.poll(_TURN_SECONDS):
                continue
            match line.recv():
                case "alive":
                    on_alive()
                case BaseException() as error:
                    raise error
                case name, given, facts:
                    getattr(self._events, name)(*given, **facts)


class _Telling:
    """The parent's `StreamEvents`, as the publisher has them."""

    def __init__(self, tell: Callable[[object], None]) -> None:
        self._tell = tell

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *given, **facts: self._tell((name, given, facts))

    def published(self, snapshot: Snapshot, sum_deviation: float) -> None:
        """Tells no more of it than is shown."""
        self._tell(("shown", (Shown.of(snapshot, sum_deviation),), {}))

    def recommend_failed(self, sequence: int, error: Exception) -> None:
        """Tells it as an error that each process knows."""
        self._tell(("recommend_failed", (sequence, _portable(error)), {}))


class _Line:
    """The line to the parent, from any thread."""

    def __init__(self, connection: Connection) -> None:
        self._connection, self._lock = connection, threading.Lock()
        self.epoch: int | None = None
        self.partitions: Sequence[int] = ()
        self.stopping = threading.Event()

    def tell(self, what: object) -> None:
        """Tells the parent, unless it is gone; then this process is about to end."""
        with self._lock, suppress(OSError):
            self._connection.send(what)

    def listen(self) -> None:
        """Hears what the parent tells; ends this process when there is none any more."""
        while True:
            try:
                self.epoch, self.partitions, stop = cast(Told, self._connection.recv())
            except (EOFError, OSError):
                os._exit(0)  # whoever comes next aborts what is open
            if stop:
                self.stopping.set()


def main(descriptor: int) -> None:
    """Publishes a stream until the parent says to stop, or is gone."""
    for number in (
        signal.SIGTERM,
        signal.SIGINT,
    ):  # whoever ends a whole group of processes ends the parent, too
        signal.signal(number, signal.SIG_IGN)
    connection = Connection(descriptor)
    config, name, every = cast(tuple[Config, str, float], connection.recv())
    logs.configure(config.log_level)
    line = _Line(connection)
    threading.Thread(target=line.listen, name="parent", daemon=True).start()
    try:
        _publish(config, config.served(name), every, line)
    except Exception as error:
        line.tell(_portable(error))


def _publish(config: Config, served: Served, every: float, line: _Line) -> None:
    client, on_alive = connect(config.redis), partial(line.tell, "alive")
    events = _Telling(line.tell)
    snapshot_producer = publishing.snapshot_producer_of(config, served, on_alive, events.passed_over)
    with closing(client), closing(snapshot_producer), closing(publishing.group_of(config, served)) as group:
        publisher = publishing.publisher(
            config,
            served,
            RedisStore(client, served.stream.name),
            snapshot_producer,
            group,
            lambda: line.partitions,
            lambda: line.epoch,
            cast(Events, events),
        )
        publisher.run(line.stopping, every, on_alive)


def _portable(error: Exception) -> Exception:
    """Returns an error that can be told: of the same kind where it matters which."""
    if isinstance(error, StateLost):
        return error
    told = RuntimeError(f"{type(error).__name__}: {error}")
    told.add_note("".join(traceback.format_exception(error)))
    return told


if __name__ == "__main__":
    main(int(sys.argv[1]))
