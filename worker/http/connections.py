"""Runs uvicorn on a separate thread, with deadlines for connections.

uvicorn 0.54 has no deadline for the head of a request or for a stalled client. At its connection limit, uvicorn refuses
new connections. `Connection` adds deadlines to uvicorn's protocol, and drops the oldest connection to accept a new one.
granian 2.8 is not an alternative: it keeps connections of stalled clients, and its error responses lack our headers.
"""

import asyncio
import logging
import socket
import threading
from collections.abc import Mapping
from functools import partial
from typing import Any, cast

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

MOST_CONNECTIONS = 512
REQUEST_SECONDS = 5.0
"""Deadline for the head and body of a request, from the start of its connection."""
STALLED_SECONDS = 20.0
"""Deadline for a client that reads no data."""
MOST_HEAD_BYTES = 8192
"""Maximum size of a request line and its headers."""
PIECE_BYTES = 1 << 13
"""Size of the pieces of an answer; about three are buffered per client."""
_KERNEL_BYTES = 1 << 16
_BACKLOG = 128
_LOG = "uvicorn.error"


class Connection(H11Protocol):
    """A connection for one request.

    Above `MOST_CONNECTIONS`, a new connection replaces the oldest one. Probes can therefore always connect.
    """

    def __init__(
        self,
        opened: dict["Connection", None],
        config: uvicorn.Config,
        server_state: ServerState,
        app_state: dict[str, Any],  # noqa: ARG002
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, {"connection": self}, _loop)
        self._opened = opened
        self._timer: asyncio.TimerHandle | None = None
        self.lost = asyncio.Event()

    @property
    def ending(self) -> bool:
        """Whether the connection is closed or about to close."""
        return self.transport.is_closing()

    def abort(self) -> None:
        """Closes the connection at once, and drops unsent data."""
        self._opened.pop(self, None)
        self.transport.abort()

    def stay(self) -> None:
        """Exempts the connection from the connection limit."""
        self._opened.pop(self, None)

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Starts the deadline; above the limit, aborts the oldest connection."""
        super().connection_made(transport)
        transport.set_write_buffer_limits(high=PIECE_BYTES)
        self._opened[self] = None
        if len(self._opened) > MOST_CONNECTIONS:
            next(iter(self._opened)).abort()
        self._within(REQUEST_SECONDS)

    def data_received(self, data: bytes) -> None:
        """Processes request data; ends the deadline of a complete request."""
        super().data_received(data)
        if self.cycle is not None and not self.cycle.more_body and not self.flow.write_paused:
            self._within(None)

    def pause_writing(self) -> None:
        """Starts the deadline for a stalled client."""
        super().pause_writing()
        self._within(STALLED_SECONDS)

    def resume_writing(self) -> None:
        """Ends the deadline; restarts it if the connection is about to close."""
        super().resume_writing()
        self._within(STALLED_SECONDS if self.ending else None)

    def on_response_complete(self) -> None:
        """Starts the deadline for the client to read the buffered data."""
        super().on_response_complete()
        self._within(STALLED_SECONDS)

    def connection_lost(self, exc: Exception | None) -> None:
        """Ends the deadline and sets `lost`."""
        self._within(None)
        self._opened.pop(self, None)
        super().connection_lost(exc)
        self.lost.set()

    def send_400_response(self, msg: str) -> None:
        """Answers an invalid request; aborts if an answer has begun."""
        if self.conn.our_state is not h11.IDLE:
            self.abort()
        else:
            super().send_400_response(msg)

    def _within(self, seconds: float | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None if seconds is None else self.loop.call_later(seconds, self.abort)


class Server:
    """Serves an ASGI application on a separate thread until `shutdown`.

    Raises:
        OSError: the server cannot listen on the address.
    """

    def __init__(self, host: str, port: int, application: Any, headers: Mapping[str, str]) -> None:
        self._socket = _listening(host, port)
        self.server_port: int = self._socket.getsockname()[1]
        self._opened: dict[Connection, None] = {}
        self._loop = asyncio.new_event_loop()
        self._server = uvicorn.Server(
            uvicorn.Config(
                application,
                http=cast(type[asyncio.Protocol], partial(Connection, self._opened)),
                ws="none",
                lifespan="off",
                interface="asgi3",
                log_config=None,
                log_level="error",
                access_log=False,
                proxy_headers=False,
                server_header=False,
                headers=[*headers.items(), ("Connection", "close")],
                h11_max_incomplete_event_size=MOST_HEAD_BYTES,
                backlog=_BACKLOG,
                timeout_graceful_shutdown=1,
            )
        )
        self._thread = threading.Thread(target=self._run, name="http", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._server.serve([self._socket]))

    def shutdown(self) -> None:
        """Closes all connections and stops the thread."""
        logging.getLogger(_LOG).setLevel(logging.CRITICAL)  # uvicorn would log each aborted answer
        self._server.should_exit = True
        self._loop.call_soon_threadsafe(self._end)
        self._thread.join()

    def _end(self) -> None:
        for connection in list(self._server.server_state.connections):
            cast(Connection, connection).abort()


def _listening(host: str, port: int) -> socket.socket:
    """Returns a listening socket; connections inherit the socket's options."""
    listening = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        # unread data uses kernel memory, which counts against a container's limit
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _KERNEL_BYTES)
        if hasattr(socket, "TCP_USER_TIMEOUT"):
            # otherwise the connection of a lost client stays for minutes
            listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(2000 * STALLED_SECONDS))
        listening.bind((host, port))
        listening.listen(_BACKLOG)
    except OSError:
        listening.close()
        raise
    return listening
