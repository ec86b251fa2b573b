"""What the worker says over HTTP: ``/metrics`` for Prometheus, ``/healthz`` and ``/readyz`` for probes.

Whoever reaches the port can neither hold it nor fill the process: a connection is for one request, a request has
seconds to come and a bounded head, and where there are too many connections the oldest makes room for the newest. So a
probe, which asks at once, is answered while others only hold on.
"""

import contextlib
import io
import json
import socket
import sys
import threading
import time
from collections.abc import Callable, Mapping
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder

from worker.config import PREFIX, Config, ConfigError

MOST_CONNECTIONS = 64
REQUEST_SECONDS = 5.0
"""How long a connection may last, from its beginning to the last byte of its answer."""
MOST_HEAD_BYTES = 8192
"""Of a request line and its headers."""

Facts = Mapping[str, object]
Probe = Callable[[], tuple[bool, Facts]]


class _Server(ThreadingHTTPServer):
    """A server that ends connections that last too long, and the oldest where there are too many."""

    request_queue_size = 128

    def __init__(
        self, address: tuple[str, int], registry: CollectorRegistry, probes: Mapping[str, Probe]
    ) -> None:
        self.registry, self.probes = registry, probes
        self._since: dict[Any, float] = {}  # the open connections, the oldest first
        self._lock = threading.Lock()
        super().__init__(address, _Handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        with self._lock:
            self._since[request] = time.monotonic()
            if len(self._since) > MOST_CONNECTIONS:
                self._end(next(iter(self._since)))
        super().process_request(request, client_address)

    def service_actions(self) -> None:
        """Ends what lasts too long; called twice a second, and after each new connection."""
        with self._lock:
            began = time.monotonic() - REQUEST_SECONDS
            for request in [request for request, since in self._since.items() if since < began]:
                self._end(request)

    def _end(self, request: Any) -> None:
        """Wakes the thread that waits for a connection, which then closes it."""
        del self._since[request]
        with contextlib.suppress(OSError):
            request.shutdown(socket.SHUT_RDWR)

    def shutdown_request(self, request: Any) -> None:
        with self._lock:
            self._since.pop(request, None)
            super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        if not isinstance(sys.exc_info()[1], OSError):  # which is the other side's going away
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    """Reads one request and answers it."""

    default_request_version = "HTTP/1.0"  # also what cannot be read gets a status
    server: _Server

    def handle(self) -> None:
        head = b""
        while not head.endswith((b"\r\n\r\n", b"\n\n")):
            line = self.rfile.readline(MOST_HEAD_BYTES - len(head) + 1)
            head += line
            if len(head) > MOST_HEAD_BYTES:
                self.requestline, self.request_version, self.command = "", self.protocol_version, ""
                return self.send_error(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)
            if not line:
                return None  # it hung up, or was told to
        self.rfile = io.BytesIO(head)
        return self.handle_one_request()

    def do_HEAD(self) -> None:
        """Answers as to GET, without the body."""
        self.do_GET()

    def do_GET(self) -> None:
        """Answers a probe or a scrape."""
        if self.path == "/metrics":
            encode, content_type = choose_encoder(self.headers.get("Accept", ""))
            self._send(HTTPStatus.OK, content_type, encode(self.server.registry))
        elif self.path in self.server.probes:
            good, facts = self.server.probes[self.path]()
            status = HTTPStatus.OK if good else HTTPStatus.SERVICE_UNAVAILABLE
            self._send(status, "application/json", json.dumps(facts).encode() + b"\n")
        else:
            known = ", ".join(["/metrics", *self.server.probes])
            self._send(HTTPStatus.NOT_FOUND, "text/plain", f"not here; {known} are\n".encode())

    def send_response(self, code: int, message: str | None = None) -> None:
        """Begins an answer, with no word about what runs here."""
        self.send_response_only(code, message)
        self.send_header("Date", self.date_time_string())

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:  # noqa: ARG002
        """Says that a request cannot be answered, and nothing of what it was."""
        self._send(HTTPStatus(code), "text/plain", f"{HTTPStatus(code).phrase}\n".encode())

    def _send(self, status: HTTPStatus, content_type: str, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Says nothing: probes come every few seconds."""


def serve(
    host: str, port: int, registry: CollectorRegistry, healthy: Probe, ready: Probe
) -> ThreadingHTTPServer:
    """Answers on a thread of its own until `shutdown` is called on what it returns.

    Args:
        host: the address to listen at.
        port: the port; 0 takes a free one, see ``server_port`` of what is returned.
        registry: the metrics.
        healthy: whether the process lives as it should, and facts to show; false asks a supervisor to restart it.
        ready: whether every stream is served, and facts to show.

    Raises:
        OSError: the port is taken.
    """
    server = _Server((host, port), registry, {"/healthz": healthy, "/readyz": ready})
    threading.Thread(target=server.serve_forever, name="http", daemon=True).start()
    return server


def listen(config: Config, registry: CollectorRegistry, healthy: Probe, ready: Probe) -> ThreadingHTTPServer:
    """Answers as `serve` does, where the configuration says.

    Raises:
        ConfigError: the configured address cannot be listened on.
    """
    try:
        return serve(config.http.host, config.http.port, registry, healthy, ready)
    except OSError as error:
        raise ConfigError(
            f"http.port: {config.http.host}:{config.http.port} cannot be listened on ({error.strerror}); if it is"
            f" another worker's, set {PREFIX}HTTP__PORT, 0 takes a free one"
        ) from None
