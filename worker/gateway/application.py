"""Validates uploads, and forwards only the frame and the upload's id.

Addresses, headers, times and rejected bodies reach neither Kafka nor logs nor metrics.
"""

import asyncio
import contextlib
import hashlib
import json
import re
import secrets
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from email.utils import formatdate
from types import MappingProxyType
from urllib.parse import unquote

import numpy as np
from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import Message

from ldp import frames, wire
from worker.config.schema import Gateway
from worker.config.streams import Served
from worker.gateway import binary, ohttp
from worker.shuffling.uploads import ID_BYTES

_KEY, _ID = "idempotency-key", re.compile(rf"[0-9A-Fa-f]{{{2 * ID_BYTES}}}", re.ASCII)
_PATH = re.compile("/v1/streams/([^/]+)/(reports|document)")
_TYPES = frozenset({"application/octet-stream", "application/json"})
_SEALED = frozenset({"message/ohttp-req"})
_PROBLEMS = {"ohttp-key": "no key opens this request", "date": "the Date is missing or not within 10 minutes"}
"""Types of problem (RFC 9458, sections 5.3 and 6.5.2), with their titles."""
_MOST_DIFFERENCE = 600  # Seconds between an encapsulated request's Date and the gateway's clock
_BEGINS = np.zeros(1, np.int64)
_LONGEST_RETRY = 10  # Most seconds of Retry-After, which is random so that clients do not return together


class _Refused(HTTPException):
    """An answer other than 202; `outcome` is the label of the metric."""

    def __init__(self, status: int, outcome: str, reason: str = "") -> None:
        super().__init__(status)
        self.outcome, self.reason = outcome, reason

    def answer(self) -> Response:
        """Returns the answer as a response."""
        headers = dict[str, str]()
        if self.status_code == 503:
            headers["Retry-After"] = str(1 + secrets.randbelow(_LONGEST_RETRY))
        if self.reason == "date":
            headers["Date"] = formatdate(usegmt=True)
        if self.reason in _PROBLEMS:
            kind = f"https://iana.org/assignments/http-problem-types#{self.reason}"
            problem = {"type": kind, "title": _PROBLEMS[self.reason]}
            return JSONResponse(problem, 400, headers, "application/problem+json")
        if self.reason:
            return JSONResponse({"reason": self.reason}, self.status_code)
        return Response(None, self.status_code, headers)


class Application:
    """The gateway's HTTP application, for one event loop.

    `streams`: streams with an intake, by name. `send`: `IntakeSender.send`. `count`: called with a stream's name and
    the outcome of each upload.
    `keys`: keys of oblivious HTTP by id, the current one first. `count_sealed`: called with the key's id and the
    outcome of each encapsulated request.
    """

    def __init__(
        self,
        streams: Mapping[str, Served],
        limits: Gateway,
        send: Callable[[str, bytes, bytes, Callable[[bool], object]], object],
        count: Callable[[str, str], object] = lambda _, __: None,
        keys: Mapping[int, ohttp.Key] = MappingProxyType({}),
        count_sealed: Callable[[str, str], object] = lambda _, __: None,
    ) -> None:
        self._streams, self._limits, self._send, self._count = streams, limits, send, count
        self._keys, self._count_sealed = keys, count_sealed
        self._documents = {
            name: json.dumps(served.stream.document(), ensure_ascii=False).encode()
            for name, served in streams.items()
        }
        self.inflight = 0
        """Bytes reserved for uploads that are read or not acknowledged."""
        self._done = deque[tuple[asyncio.Future[bool], bool]]()  # filled by several threads
        self._filling = threading.Lock()

    def asgi(self) -> Starlette:
        """Returns the ASGI application."""
        origins = self._limits.allow_origins
        cors = Middleware(
            CORSMiddleware,
            allow_origins=origins,
            allow_methods=["GET", "POST"],
            allow_headers=["Content-Type", "Idempotency-Key"],
            expose_headers=["Retry-After"],
        )
        routes = [
            Route("/v1/streams/{stream}/reports", self._upload, methods=["POST"]),
            Route("/v1/streams/{stream}/document", self._document, methods=["GET"]),
        ]
        if self._keys:
            routes.append(Route("/ohttp", self._ohttp, methods=["POST"]))
            routes.append(Route("/ohttp-keys", self._ohttp_keys, methods=["GET"]))
        return Starlette(
            routes=routes,
            middleware=[cors] if origins else [],
            exception_handlers={_Refused: _refusal},  # type: ignore[dict-item]  # a handler of a subclass
        )

    async def _ohttp_keys(self, _: Request) -> Response:
        current = next(iter(self._keys.values()))
        return Response(current.published, media_type="application/ohttp-keys")

    async def _ohttp(self, request: Request) -> Response:
        """Decrypts a request, answers it, and encrypts the answer (RFC 9458)."""
        key, outcome = "unknown", "disconnected"
        try:
            self._reserve()
            try:
                body = await self._body(request, _SEALED)
            finally:
                self._release()
            try:
                opened = ohttp.opened(self._keys, body)
            except ohttp.UnopenedError:
                raise _Refused(400, "key", "ohttp-key") from None
            key = str(opened.key.id)
            try:
                inner = _checked(opened.message)
            except _Refused as refused:
                outcome, answer = refused.outcome, refused.answer()
            else:
                outcome, answer = "answered", await self._answered(inner)
            response = binary.write_response(answer.status_code, answer.raw_headers, bytes(answer.body))
        except _Refused as refused:
            outcome = refused.outcome
            raise
        finally:
            self._count_sealed(key, outcome)
        return Response(opened.seal(response), media_type="message/ohttp-res")

    async def _answered(self, inner: binary.BinaryRequest) -> Response:
        """Answers a decrypted request like one in plain HTTP."""
        handlers = {("POST", "reports"): self._upload, ("GET", "document"): self._document}
        found = _PATH.fullmatch(inner.path.partition("?")[0])
        handler = handlers.get((inner.method, found[2])) if found else None
        if found is None or handler is None:
            return Response(None, 404)

        async def receive() -> Message:
            return {"type": "http.request", "body": inner.content}

        params = {"stream": unquote(found[1])}
        try:
            return await handler(
                Request({"type": "http", "headers": inner.fields, "path_params": params}, receive)
            )
        except _Refused as refused:
            return refused.answer()
        except HTTPException as refused:
            return Response(None, refused.status_code)

    async def _document(self, request: Request) -> Response:
        body = self._documents.get(request.path_params["stream"])
        if body is None:
            raise HTTPException(404)
        etag = f'"{hashlib.sha256(body).hexdigest()[:32]}"'
        known = etag in request.headers.get("if-none-match", "")
        headers = {"ETag": etag, "Content-Type": "application/json"}
        return Response(None if known else body, 304 if known else 200, headers)

    async def _upload(self, request: Request) -> Response:
        served = self._streams.get(request.path_params["stream"])
        if served is None:
            raise HTTPException(404)
        outcome = "disconnected"
        try:
            outcome = await self._forward(served, request)
        except _Refused as refused:
            outcome = refused.outcome
            raise
        finally:
            self._count(served.stream.name, outcome)
        return Response(None, 202)

    async def _forward(self, served: Served, request: Request) -> str:
        loop = asyncio.get_running_loop()
        acknowledged = loop.create_future()

        def done(good: bool) -> None:
            with self._filling:  # one of two threads finds the other's answer
                self._done.append((acknowledged, good))
                first = len(self._done) == 1
            if first:  # else the loop will read this one, too
                with contextlib.suppress(RuntimeError):  # the loop has ended
                    loop.call_soon_threadsafe(self._acknowledge)

        self._reserve()
        try:
            key = _id(request)
            body = await self._body(request, _TYPES)
            # Step 4.
            frame = self._framed(served, body)
            # Step 5.
            self._send(str(served.intake), key, frame, done)
        except BaseException:
            self._release()
            raise
        # Step 6.
        timer = loop.call_later(self._limits.timeout_seconds, _answer, acknowledged, False)
        try:
            good = await acknowledged
        finally:
            timer.cancel()
        if not good:
            raise _Refused(503, "refused")
        return "accepted"

    def _acknowledge(self) -> None:
        """Ends the wait for uploads that Kafka has stored or refused."""
        while self._done:
            self._release()
            _answer(*self._done.popleft())

    def _reserve(self) -> None:
        # Step 1.
        if self.inflight + self._limits.max_body_bytes > self._limits.max_inflight_bytes:
            raise _Refused(503, "refused")
        self.inflight += self._limits.max_body_bytes

    def _release(self) -> None:
        self.inflight -= self._limits.max_body_bytes

    async def _body(self, request: Request, types: frozenset[str]) -> bytes:
        # Step 2.
        if request.headers.get("content-type", "").partition(";")[0].strip().lower() not in types:
            raise _Refused(415, "rejected")
        most, body = self._limits.max_body_bytes, bytearray()
        try:
            async with asyncio.timeout(self._limits.timeout_seconds):
                async for chunk in request.stream():
                    body += chunk
                    if len(body) > most:
                        raise _Refused(413, "rejected")
        except TimeoutError:
            raise _Refused(408, "timeout") from None
        except ClientDisconnect:
            raise _Refused(400, "disconnected") from None
        return bytes(body)

    def _framed(self, served: Served, body: bytes) -> bytes:
        """Returns the upload as one binary frame."""
        ends, most = np.array([len(body)]), self._limits.most_reports
        decoded = frames.decode(served.stream, body, _BEGINS, ends, most_reports=most)
        if not decoded.counts[0]:
            raise _Refused(400, "rejected", decoded.reasons[0])
        # an accepted binary frame is the encoding of its reports
        return body if body[0] == wire.VERSION else frames.encode(served.stream, decoded.reports)


def _id(request: Request) -> bytes:
    """Returns the id that the client sent, or a random id."""
    given = request.headers.get(_KEY)
    if given is None:
        return secrets.token_bytes(ID_BYTES)
    if not _ID.fullmatch(given):
        raise _Refused(400, "rejected", "idempotency-key")
    return bytes.fromhex(given)


def _checked(message: bytes) -> binary.BinaryRequest:
    """Parses a decrypted request.

    Requires a Date near the gateway's clock, and an id in each upload. A relay can therefore repeat an upload for 10
    minutes only, and the shuffler drops the duplicates.
    """
    try:
        request = binary.read_request(message)
    except binary.MalformedError:
        raise _Refused(400, "malformed", "message") from None
    # Step 3.
    headers = Headers(raw=request.fields)
    try:
        (text,) = headers.getlist("date")
        date = datetime.strptime(text, "%a, %d %b %Y %H:%M:%S GMT").replace(tzinfo=UTC)
        near = abs(date.timestamp() - time.time()) <= _MOST_DIFFERENCE
    except ValueError:
        near = False
    if not near:
        raise _Refused(400, "date", "date")
    if request.method == "POST" and _KEY not in headers:
        raise _Refused(400, "malformed", _KEY)
    return request


def _answer(acknowledged: asyncio.Future[bool], good: bool) -> None:
    if not acknowledged.done():
        acknowledged.set_result(good)


async def _refusal(_: Request, refused: _Refused) -> Response:
    return refused.answer()
