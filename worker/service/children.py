"""Child processes with a socket pair that closes when either side ends."""

import contextlib
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path


def python() -> list[str]:
    """Returns the Python command; adds -P unless the cwd is in sys.path."""
    return [sys.executable, *([] if str(Path.cwd()) in sys.path else ["-P"])]


def start(
    command: Sequence[str], environ: Mapping[str, str] | None = None
) -> tuple[subprocess.Popen[bytes], socket.socket]:
    """Starts a process; returns the process and this side's socket.

    The last argument of the command is the descriptor of the child's socket. If `environ` is None, the child inherits
    the environment of this process. Raises `OSError` if the system cannot start another process.
    """
    ours, theirs = socket.socketpair()
    with theirs:
        try:
            started = subprocess.Popen(
                [*command, str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                env=environ,
                pass_fds=[theirs.fileno()],
                process_group=0,  # only the parent handles a terminal's Ctrl-C
            )
        except OSError:
            ours.close()
            raise
    return started, ours


class Parent:
    """A child's connection to its parent process."""

    def __init__(self, descriptor: int) -> None:
        self._line = socket.socket(fileno=descriptor)

    def serving(self, port: int) -> None:
        """Reports the HTTP port at which this process answers."""
        with contextlib.suppress(OSError):  # `on_gone` handles the parent's end
            self._line.sendall(f"{port}\n".encode())

    def on_gone(self, callback: Callable[[], None]) -> None:
        """Runs a callback in a separate thread once the parent has ended."""

        def wait() -> None:
            with contextlib.suppress(OSError):
                while self._line.recv(1):
                    pass
            callback()

        threading.Thread(target=wait, name="parent", daemon=True).start()
