"""The parent, as a process that it started sees it: told where to ask, and missed when it is gone."""

import contextlib
import socket
import threading
from collections.abc import Callable


class Parent:
    """The other end of a line between two processes, which a process loses when the other one ends in whatever way.

    Args:
        descriptor: the line, a connected socket that was inherited.
    """

    def __init__(self, descriptor: int) -> None:
        self._line = socket.socket(fileno=descriptor)

    def serving(self, port: int) -> None:
        """Tells the parent that this process begins to serve, and at which port it answers."""
        with contextlib.suppress(OSError):  # a parent that is gone is noticed by `on_gone`
            self._line.sendall(f"{port}\n".encode())

    def on_gone(self, callback: Callable[[], None]) -> None:
        """Calls back, on a thread of its own, once the parent is gone."""

        def wait() -> None:
            with contextlib.suppress(OSError):
                while self._line.recv(1):
                    pass
            callback()

        threading.Thread(target=wait, name="parent", daemon=True).start()
