"""A proxy that delays, swallows, cuts or refuses connections."""

import contextlib
import socket
import threading
import time
from dataclasses import dataclass
from typing import Self


@dataclass(eq=False)
class _Link:
    """The sockets of a client and of the proxy."""

    near: socket.socket
    far: socket.socket
    silent: bool = False

    def close(self) -> None:
        for each in (self.near, self.far):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)  # wakes who reads it
            each.close()


class Proxy:
    """Forwards from `port` to `target` after `delay` seconds."""

    def __init__(self, target: tuple[str, int]) -> None:
        self.target, self.delay = target, 0.0
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._swallowing = self._refusing = False
        self._lock = threading.Lock()
        self._links: set[_Link] = set()

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.refuse()

    def swallow(self) -> None:
        """Drops all answers of the server."""
        self._swallowing = True

    def cut(self) -> None:
        """Closes every connection; accepts new ones."""
        with self._lock:
            links, self._links = self._links, set()
        for link in links:
            link.close()

    def refuse(self) -> None:
        """Closes every connection, new ones at once."""
        self._refusing = True
        self.cut()

    def mend(self) -> None:
        """Forwards everything again without delay; closes silent connections."""
        self._swallowing = self._refusing = False
        self.delay = 0.0
        with self._lock:
            silent = [link for link in self._links if link.silent]
        for link in silent:
            link.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                try:
                    link = _Link(near, socket.create_connection(self.target, timeout=5))
                except OSError:
                    near.close()
                    continue
                link.far.settimeout(None)
                with self._lock:
                    self._links.add(link)
                if self._refusing:
                    self.cut()
                for back in (False, True):
                    threading.Thread(target=self._pass, args=(link, back), daemon=True).start()

    def _pass(self, link: _Link, back: bool) -> None:
        source, sink = (link.far, link.near) if back else (link.near, link.far)
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                if self.delay:
                    time.sleep(self.delay)
                if back and (link.silent or self._swallowing):
                    link.silent = True
                else:
                    sink.sendall(data)
        link.close()
        with self._lock:
            self._links.discard(link)
