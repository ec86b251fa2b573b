"""What the worker says over HTTP: ``/metrics`` for Prometheus, ``/healthz`` and ``/readyz`` for probes, and the page.

Whoever reaches the port can neither hold it nor fill the process: a connection is for one request, a request has
seconds to come and a bounded head, and where there are too many connections the oldest makes room for the newest. So a
probe, which asks at once, is answered while others only hold on. Who hears events may stay, but few may, and only as
long as they take what they are sent.
"""

import contextlib
import io
import json
import re
import select
import socket
import sys
import threading
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import MappingProxyType
from typing import Any

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder

from worker.config import PREFIX, Config, ConfigError
from worker.http import page as pages
from worker.http.page import Page
from worker.http.streams import Streams
from worker.kafka.following import Follower

MOST_CONNECTIONS = 64
MOST_LISTENERS = 16
"""Who hear events, beside those connections."""
LISTENER_SECONDS = 20.0
"""How long a piece of them may take one that hears events: a kernel says in large steps that there is room again."""
_LISTENER_BYTES = 1 << 16
"""What lies at most between us and one that hears events, on our side."""
_PIECE_BYTES = 1 << 14
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
        self,
        address: tuple[str, int],
        registry: CollectorRegistry,
        probes: Mapping[str, Probe],
        page: Page | None,
    ) -> None:
        self.registry, self.probes, self.page = registry, probes, page
        self._since: dict[Any, float] = {}  # the open connections, the oldest first
        self._listeners: set[Any] = set()
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

    def hears(self, request: Any) -> bool:
        """Lets a connection last that is to hear events, if there are not too many; returns whether it may."""
        with self._lock:
            if len(self._listeners) >= MOST_LISTENERS or self._since.pop(request, None) is None:
                return False
            self._listeners.add(request)
            return True

    def _end(self, request: Any) -> None:
        """Wakes the thread that waits for a connection, which then closes it."""
        del self._since[request]
        with contextlib.suppress(OSError):
            request.shutdown(socket.SHUT_RDWR)

    def shutdown_request(self, request: Any) -> None:
        with self._lock:
            self._since.pop(request, None)
            self._listeners.discard(request)
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
        path = self.path.partition("?")[0]
        if path == "/metrics":
            encode, content_type = choose_encoder(self.headers.get("Accept", ""))
            self._send(HTTPStatus.OK, content_type, encode(self.server.registry))
        elif path in self.server.probes:
            good, facts = self.server.probes[path]()
            status = HTTPStatus.OK if good else HTTPStatus.SERVICE_UNAVAILABLE
            self._send(status, "application/json", json.dumps(facts).encode() + b"\n")
        elif self.server.page is None or not self._show(self.server.page):
            shown = [] if self.server.page is None else ["/", "/streams", pages.EVENTS]
            known = ", ".join([*shown, "/metrics", *self.server.probes])
            self._send(HTTPStatus.NOT_FOUND, "text/plain", f"not here; {known} are\n".encode())

    def _refuse(self) -> None:
        """Answers what would change something."""
        allowed = "GET, HEAD"
        self._send(HTTPStatus.METHOD_NOT_ALLOWED, "text/plain", f"{allowed}\n".encode(), {"Allow": allowed})

    do_POST = do_PUT = do_PATCH = do_DELETE = do_OPTIONS = _refuse  # noqa: N815

    def _show(self, page: Page) -> bool:
        """Answers the page; returns whether what was asked for is there."""
        if self.path.partition("?")[0] == pages.EVENTS:
            self._listen(page)
            return True
        answer = page.answer(self.path, self.headers.get("If-None-Match", ""))
        if answer is None:
            return False
        packed = answer.status == HTTPStatus.OK and _takes_gzip(self.headers.get("Accept-Encoding", ""))
        headers = dict(answer.headers) | {"Vary": "Accept-Encoding"}
        if packed:
            headers["Content-Encoding"] = "gzip"
            headers = {
                name: said.removesuffix('"') + '-gzip"' if name == "ETag" else said
                for name, said in headers.items()
            }
        parts = _gzip(answer.body) if packed else answer.body
        if self.request_version == "HTTP/1.1" and answer.status != HTTPStatus.NOT_MODIFIED:
            # whoever gets a part of it sees that it is one
            self.protocol_version = "HTTP/1.1"
            headers |= {"Transfer-Encoding": "chunked", "Connection": "close"}
            parts = _chunked(parts)
        self._begin(answer.status, answer.content_type, headers)
        if self.command != "HEAD":
            for part in parts:
                self.wfile.write(part)
        return True

    def _listen(self, page: Page) -> None:
        """Says what happens, until the other side hangs up or leaves it lying."""
        try:
            events = page.events(self.path)
        except pages.Refused as refused:
            return self._send(refused.status, "application/json", json.dumps(refused.said).encode())
        headers = {"Cache-Control": "no-store"}
        if self.command == "HEAD":
            return self._begin(HTTPStatus.OK, "text/event-stream", headers)
        if not self.server.hears(self.connection):
            self._begin(HTTPStatus.SERVICE_UNAVAILABLE, "text/plain", headers | {"Retry-After": "5"})
            self.wfile.write(f"{MOST_LISTENERS} hear events already\n".encode())
            return None
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _LISTENER_BYTES)
        self.connection.settimeout(LISTENER_SECONDS)
        if hasattr(socket, "TCP_USER_TIMEOUT"):
            # else one that is gone without a word keeps its place for minutes
            gone = int(1000 * (LISTENER_SECONDS + pages.KEEP_ALIVE_SECONDS))
            self.connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, gone)
        self._begin(HTTPStatus.OK, "text/event-stream", headers)
        for part in events:
            # the time is for each piece: who is slow takes all, one after the other
            for at in range(0, len(part), _PIECE_BYTES):
                self.wfile.write(part[at : at + _PIECE_BYTES])
            if not part and self._hung_up():
                break
        return None

    def _hung_up(self) -> bool:
        """Returns whether the other side is gone; one that hears events has nothing more to say."""
        readable, _, _ = select.select([self.connection], [], [], 0)
        return bool(readable) and not self.connection.recv(1024)

    def _begin(self, status: HTTPStatus, content_type: str, headers: Mapping[str, str]) -> None:
        """Sends the head of an answer to the page."""
        self.send_response(status)
        for name, said in {"Content-Type": content_type, **pages.HEADERS, **headers}.items():
            self.send_header(name, said)
        self.end_headers()

    def send_response(self, code: int, message: str | None = None) -> None:
        """Begins an answer, with no word about what runs here."""
        self.send_response_only(code, message)
        self.send_header("Date", self.date_time_string())

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:  # noqa: ARG002
        """Says that a request cannot be answered, and nothing of what it was."""
        self._send(HTTPStatus(code), "text/plain", f"{HTTPStatus(code).phrase}\n".encode())

    def _send(
        self,
        status: HTTPStatus,
        content_type: str,
        body: bytes,
        headers: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self.send_response(status)
        for name, said in {"Content-Type": content_type, "Content-Length": str(len(body)), **headers}.items():
            self.send_header(name, said)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Says nothing: probes come every few seconds."""


def _takes_gzip(accepted: str) -> bool:
    """Returns whether an ``Accept-Encoding`` allows gzip.

    Example:
        >>> _takes_gzip("gzip, deflate, br"), _takes_gzip("gzip;q=0, br"), _takes_gzip("")
        (True, False, False)
    """
    for one in accepted.lower().split(","):
        coding, _, weight = (part.strip() for part in one.partition(";"))
        if coding == "gzip":
            return re.fullmatch(r"q\s*=\s*0(\.0*)?", weight) is None
    return False


def _gzip(parts: Iterable[bytes]) -> Iterator[bytes]:
    """Compresses parts as they come, fast rather than well."""
    packing = zlib.compressobj(1, wbits=31)
    for part in parts:
        yield packing.compress(part)
    yield packing.flush()


def _chunked(parts: Iterable[bytes]) -> Iterator[bytes]:
    """Writes parts as chunks, and that they are all.

    Example:
        >>> b"".join(_chunked([b"twelve-bytes", b"", b"!"])).split()
        [b'c', b'twelve-bytes', b'1', b'!', b'0']
    """
    for part in parts:
        if part:  # an empty one would be the end
            yield b"%x\r\n%b\r\n" % (len(part), part)
    yield b"0\r\n\r\n"


def serve(
    host: str,
    port: int,
    registry: CollectorRegistry,
    healthy: Probe,
    ready: Probe,
    page: Page | None = None,
) -> ThreadingHTTPServer:
    """Answers on a thread of its own until `shutdown` is called on what it returns.

    Args:
        host: the address to listen at.
        port: the port; 0 takes a free one, see ``server_port`` of what is returned.
        registry: the metrics.
        healthy: whether the process lives as it should, and facts to show; false asks a supervisor to restart it.
        ready: whether every stream is served, and facts to show.
        page: what answers the page; None where there is none.

    Raises:
        OSError: the port is taken.
    """
    server = _Server((host, port), registry, {"/healthz": healthy, "/readyz": ready}, page)
    threading.Thread(target=server.serve_forever, name="http", daemon=True).start()
    return server


def page_of(config: Config, registry: CollectorRegistry, ready: Probe) -> Page:
    """Returns what answers the page of a configuration; it reads nothing before somebody asks."""
    follower = Follower(config)
    streams = Streams(config, registry, ready, follower)
    return Page(streams, follower, [served.stream.name for served in config.streams])


def listen(config: Config, registry: CollectorRegistry, healthy: Probe, ready: Probe) -> ThreadingHTTPServer:
    """Answers as `serve` does, where the configuration says.

    Raises:
        ConfigError: the configured address cannot be listened on.
    """
    try:
        page = page_of(config, registry, ready) if config.http.page else None
        return serve(config.http.host, config.http.port, registry, healthy, ready, page)
    except OSError as error:
        raise ConfigError(
            f"http.port: {config.http.host}:{config.http.port} cannot be listened on ({error.strerror}); if it is"
            f" another worker's, set {PREFIX}HTTP__PORT, 0 takes a free one"
        ) from None
