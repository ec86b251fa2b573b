"""A listener that behaves like a frozen server."""

import contextlib
import socket
import threading
from collections.abc import Iterator


@contextlib.contextmanager
def silent() -> Iterator[int]:
    """Accepts connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        held: list[socket.socket] = []

        def take() -> None:
            with contextlib.suppress(OSError):
                while True:
                    held.append(server.accept()[0])

        thread = threading.Thread(target=take)
        thread.start()
        try:
            port: int = server.getsockname()[1]
            yield port
        finally:
            server.shutdown(socket.SHUT_RDWR)
            thread.join()
            for connection in held:
                connection.close()
