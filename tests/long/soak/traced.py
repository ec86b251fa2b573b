"""``ldp-worker`` that logs its threads at SIGUSR2, and shifts its clock at SIGUSR1.

Run as ``python -m tests.long.soak.traced run --config worker.toml --clock FILE``. The file has the seconds by which
Python's clock is wrong; it is read at SIGUSR1.
"""

import json
import os
import signal
import sys
import time
import traceback
from pathlib import Path

_true, _true_ns = time.time, time.time_ns


class _Clock:
    """The wall clock, and by how much it is wrong."""

    def __init__(self, file: Path) -> None:
        self._file, self._wrong = file, 0.0

    def jump(self, *_: object) -> None:
        """Reads the clock's error, and logs it."""
        self._wrong = float(self._file.read_text())
        os.write(2, (json.dumps({"event": "clock.jumped", "seconds": self._wrong}) + "\n").encode())

    def seconds(self) -> float:
        return _true() + self._wrong

    def nanoseconds(self) -> int:
        return _true_ns() + int(1e9 * self._wrong)


def _say_where(*_: object) -> None:
    """Logs all stacks; faulthandler would crash among running threads."""
    for thread, frame in sys._current_frames().items():
        said = "".join(traceback.format_stack(frame))
        os.write(2, f"Thread {thread}:\n{said}\n".encode())


def main() -> None:
    """Runs the worker."""
    at = sys.argv.index("--clock")
    clock = _Clock(Path(sys.argv[at + 1]))
    del sys.argv[at : at + 2]
    time.time, time.time_ns = clock.seconds, clock.nanoseconds
    signal.signal(signal.SIGUSR1, clock.jump)
    signal.signal(signal.SIGUSR2, _say_where)
    from worker import cli

    cli.main()


if __name__ == "__main__":
    main()
