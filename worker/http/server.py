"""HTTP server for a worker's metrics, probes and web page.

One thread handles all connections. Probes and metrics use a separate thread pool, so page requests cannot delay them.
"""

import asyncio
import contextlib
import ipaddress
import json
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from http import HTTPStatus
from typing import Any, TypeVar
from urllib.parse import urlsplit

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from worker.config import PREFIX, Config, ConfigError
from worker.http import page as pages
from worker.http.answers import MOST_BYTES, Answers, Busy, Dropped, Packed, TooLarge
from worker.http.connections import PIECE_BYTES, Connection, Server
from worker.http.page import Answer, Page, Refused
from worker.http.streams import Streams
from worker.kafka.client.reading import OnPassed
from worker.kafka.snapshots.follower import Follower

HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:;"
    " connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
}
MOST_LISTENERS = 32
"""Maximum number of event streams."""
_METHODS = "GET, HEAD"
_TEXT = "text/plain"
_TOO_LARGE = f"the response exceeds {MOST_BYTES >> 20} MiB; request fewer methods: ?method=base"
_LOCAL = frozenset({"localhost"})

Facts = Mapping[str, object]
Probe = Callable[[], tuple[bool, Facts]]
T = TypeVar("T")


class HttpServer:
    """HTTP server on its own threads; raises OSError if it cannot listen.

    If `healthy` returns False, a supervisor should restart the process.
    """

    def __init__(
        self,
        host: str,
        port: int,
        registry: CollectorRegistry,
        healthy: Probe,
        ready: Probe,
        page: Page | None = None,
        names: frozenset[str] = frozenset(),
    ) -> None:
        self._registry, self._page = registry, page
        self._probes = probes = {"/healthz": healthy, "/readyz": ready}
        self._probe_pool = ThreadPoolExecutor(4, thread_name_prefix="probe")
        self._page_pool = ThreadPoolExecutor(8, thread_name_prefix="page")
        self._event_pool = ThreadPoolExecutor(2, thread_name_prefix="events")
        self.answers = Answers()
        self.listeners = set[Connection]()
        routes = [Route("/metrics", self._metrics), *(Route(path, self._probe) for path in probes)]
        routes += [] if page is None else [Route(pages.EVENTS, self._event_stream)]
        routes.append(Route("/{rest:path}", self._answer))
        application = Starlette(
            routes=routes,
            middleware=[Middleware(_HostFilter, names=names, unfiltered=frozenset({"/metrics", *probes}))],
            exception_handlers={404: self._not_found, 405: _refuse},
        )
        application.router.redirect_slashes = False
        self._server = Server(host, port, application, HEADERS)
        self.server_port = self._server.server_port

    def shutdown(self) -> None:
        """Closes all connections and stops the threads."""
        self.answers.end()
        for pool in (self._probe_pool, self._page_pool, self._event_pool):
            pool.shutdown(wait=False, cancel_futures=True)
        self._server.shutdown()

    async def _metrics(self, request: Request) -> Response:
        try:
            encode, content_type = choose_encoder(request.headers.get("Accept", ""))
        except (TypeError, ValueError):  # the library cannot parse some versions, such as version=1e9
            encode, content_type = choose_encoder("")
        body = await _on(self._probe_pool, lambda: encode(self._registry))
        return Response(body, headers={"Content-Type": content_type})

    async def _probe(self, request: Request) -> Response:
        good, facts = await _on(self._probe_pool, self._probes[request.url.path])
        status = HTTPStatus.OK if good else HTTPStatus.SERVICE_UNAVAILABLE
        return Response(json.dumps(facts).encode() + b"\n", status, {"Content-Type": "application/json"})

    async def _not_found(self, request: Request, error: Exception) -> Response:  # noqa: ARG002  # Starlette's
        shown = [] if self._page is None else ["/", "/streams", pages.EVENTS]
        known = ", ".join([*shown, "/metrics", *self._probes])
        return Response(
            f"path not found; the paths are {known}\n", HTTPStatus.NOT_FOUND, {"Content-Type": _TEXT}
        )

    async def _answer(self, request: Request) -> Response:
        target, known, page = _target(request), request.headers.get("If-None-Match", ""), self._page
        answer = None if page is None else await _on(self._page_pool, lambda: page.answer(target, known))
        if answer is None:
            raise HTTPException(404)
        answer, packed = await self._with_body(answer)
        headers = {"Content-Type": answer.content_type, "Vary": "Accept-Encoding", **answer.headers}
        if answer.status == HTTPStatus.NOT_MODIFIED:
            return Response(None, answer.status, headers)
        zipped = answer.status == HTTPStatus.OK and "gzip" in request.headers.get("Accept-Encoding", "")
        headers["Content-Length"] = str(packed.size if zipped else packed.length)
        if zipped:
            headers["Content-Encoding"] = "gzip"
            if (tag := headers.get("ETag")) is not None:
                headers["ETag"] = tag.removesuffix('"') + '-gzip"'
        return _Pieces(answer.status, headers, packed.gzipped() if zipped else packed.plain())

    async def _with_body(self, answer: Answer) -> tuple[Answer, Packed]:
        if isinstance(asked := answer.body, Packed):
            return answer, asked
        try:
            return answer, await self.answers.get(asked.key, asked.parts, asked.kind)
        except Refused as refused:
            why = refused
        except TooLarge:
            why = Refused(_TOO_LARGE)
        except Busy as busy:
            why = Refused(str(busy), HTTPStatus.SERVICE_UNAVAILABLE)
        return await self._with_body(pages.refusal(why))

    async def _event_stream(self, request: Request) -> Response:
        assert self._page is not None
        page = self._page
        try:
            events = await _on(self._event_pool, lambda: page.events(_target(request)))
        except Refused as refused:
            body = json.dumps(refused.document).encode()
            return Response(body, refused.status, {"Content-Type": "application/json"})
        headers = {
            "Content-Type": "text/event-stream",
            "Cache-Control": "no-store",
            "X-Accel-Buffering": "no",
        }
        return _EventStream(headers, events, self._event_pool, self.listeners)


class _Pieces(Response):
    """A response that sends its body in pieces, with backpressure."""

    def __init__(self, status: int, headers: Mapping[str, str], pieces: Iterator[bytes]) -> None:
        super().__init__(None, status, headers)
        self._pieces = pieces

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002
        connection: Connection = scope["state"]["connection"]
        await send(_start(self))
        try:
            for piece in self._pieces if scope["method"] != "HEAD" else ():
                if connection.ending:
                    break
                await send({"type": "http.response.body", "body": piece, "more_body": True})
        except Dropped:
            connection.abort()  # by Content-Length, the client notices that a part is missing
        if connection.ending:
            await connection.lost.wait()
        else:
            await send({"type": "http.response.body", "body": b""})


class _EventStream(Response):
    """A response of server-sent events; limits the number of open streams."""

    def __init__(
        self,
        headers: Mapping[str, str],
        events: Iterator[bytes],
        pool: ThreadPoolExecutor,
        listeners: set[Connection],
    ) -> None:
        super().__init__(None, HTTPStatus.OK, headers)
        del self.headers["Content-Length"]
        self._events, self._event_pool, self._listeners = events, pool, listeners

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        listeners, connection = self._listeners, scope["state"]["connection"]
        if scope["method"] == "HEAD":
            await send(_start(self))
            return await send({"type": "http.response.body", "body": b""})
        if len(listeners) >= MOST_LISTENERS:
            full = f"{MOST_LISTENERS} event streams are open; retry later\n"
            headers = {"Retry-After": "5", "Content-Type": _TEXT}
            refused = Response(full, HTTPStatus.SERVICE_UNAVAILABLE, headers)
            return await refused(scope, receive, send)
        listeners.add(connection)
        connection.stay()
        try:
            await send(_start(self))
            part = b":\n\n"  # sent at once, so that proxies forward the head
            while not connection.ending:
                for at in range(0, len(part), PIECE_BYTES):
                    piece = part[at : at + PIECE_BYTES]
                    await send({"type": "http.response.body", "body": piece, "more_body": True})
                part = await _on(self._event_pool, lambda: next(self._events))
                if not part:
                    with contextlib.suppress(TimeoutError):
                        await asyncio.wait_for(connection.lost.wait(), pages.TURN_SECONDS)
            await connection.lost.wait()
        finally:
            listeners.remove(connection)


class _HostFilter:
    """Refuses foreign origins and unknown hosts, to prevent DNS rebinding."""

    def __init__(self, application: ASGIApp, names: frozenset[str], unfiltered: frozenset[str]) -> None:
        self._application, self._names, self._unfiltered = application, names | _LOCAL, unfiltered

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = dict(scope["headers"])
        host, origin = headers.get(b"host", b"").decode("latin-1"), headers.get(b"origin")
        answer = self._application
        if origin is not None and not self._same_host(origin.decode("latin-1"), host):
            answer = Response("origin not allowed\n", HTTPStatus.FORBIDDEN, {"Content-Type": _TEXT})
        elif scope["path"] not in self._unfiltered and not self._named(_hostname(f"//{host}")):
            unknown = f"host not allowed; to allow it, add its name to http.names ({PREFIX}HTTP__NAMES)\n"
            answer = Response(unknown, HTTPStatus.MISDIRECTED_REQUEST, {"Content-Type": _TEXT})
        await answer(scope, receive, send)

    def _named(self, name: str) -> bool:
        return name in self._names or _is_address(name)

    def _same_host(self, origin: str, host: str) -> bool:
        """Returns whether an origin has the requested host or a configured name."""
        with contextlib.suppress(ValueError):
            return (
                urlsplit(origin).netloc.lower() == host.lower() or _hostname(origin) in self._names - _LOCAL
            )
        return False


def _hostname(url: str) -> str:
    """Returns the host of a URL in lower case, or an empty string.

    Example:
        >>> _hostname("//[::1]:9464"), _hostname("http://Worker.example.:80"), _hostname("//["), _hostname("null")
        ('::1', 'worker.example', '', '')
    """
    try:
        return (urlsplit(url).hostname or "").removesuffix(".")
    except ValueError:
        return ""


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


async def _refuse(request: Request, error: Exception) -> Response:  # noqa: ARG001  # Starlette's
    """Refuses methods other than GET and HEAD."""
    return Response(
        f"{_METHODS}\n", HTTPStatus.METHOD_NOT_ALLOWED, {"Allow": _METHODS, "Content-Type": _TEXT}
    )


async def _on(pool: ThreadPoolExecutor, run: Callable[[], T]) -> T:
    return await asyncio.get_running_loop().run_in_executor(pool, run)


def _start(response: Response) -> dict[str, Any]:
    return {"type": "http.response.start", "status": response.status_code, "headers": response.raw_headers}


def _target(request: Request) -> str:
    path, query = request.scope["raw_path"].decode(), request.scope["query_string"].decode("latin-1")
    return f"{path}?{query}" if query else path


def listen(
    config: Config, registry: CollectorRegistry, healthy: Probe, ready: Probe, on_passed: OnPassed
) -> HttpServer:
    """Starts the configured server; raises ConfigError if it cannot listen.

    The page reads the snapshot topic after the first request.
    """
    http, page = config.http, None
    if http.page:
        follower = Follower(config, on_passed=on_passed)
        streams = Streams(config, registry, ready, follower)
        parts = [part for served in config.streams for part in served.parts]
        page = Page(streams, follower, [served.name for served in config.streams], parts)
    try:
        return HttpServer(
            http.host, http.port, registry, healthy, ready, page, frozenset({http.host, *http.names})
        )
    except OSError as error:
        raise ConfigError(
            f"http.port: cannot listen on {http.host}:{http.port} ({error.strerror}); if another worker"
            f" uses the port, set {PREFIX}HTTP__PORT (0 selects a free port)"
        ) from None
