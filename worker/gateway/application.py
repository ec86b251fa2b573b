"""Validates uploads, and forwards only the frame and the upload's id.

Addresses, headers, times and rejected bodies reach neither Kafka nor logs nor metrics.
"""

import asyncio
import contextlib
import hashlib
import json
import re
import secrets
from collections.abc import Callable, Mapping
from typing import Protocol

import numpy as np
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from ldp import frames
from worker.config.schema import Gateway
from worker.config.streams import Served
from worker.shuffling.uploads import ID_BYTES

_KEY = "idempotency-key"
_TYPES = frozenset({"application/octet-stream", "application/json"})
_LONGEST_RETRY = 10  # Most seconds of Retry-After, which is random so that clients do not return together


class Sender(Protocol):
    """Sends uploads to the intake topics."""

    def send(self, topic: str, key: bytes, value: bytes, done: Callable[[bool], object]) -> None:
        """Sends a record without waiting.

        Calls `done` once, on any thread: whether all in-sync replicas have the record.
        """


class _Refused(HTTPException):
    """An answer other than 202; `outcome` is the label of the metric."""

    def __init__(self, status: int, outcome: str, reason: str = "") -> None:
        super().__init__(status)
        self.outcome, self.reason = outcome, reason


class Application:
    """The gateway's HTTP application, for one event loop.

    `streams`: streams with an intake, by name. `count`: called with a stream's name and the outcome of each upload.
    """

    def __init__(
        self,
        streams: Mapping[str, Served],
        limits: Gateway,
        sender: Sender,
        count: Callable[[str, str], object] = lambda _, __: None,
    ) -> None:
        self._streams, self._limits, self._sender, self._count = streams, limits, sender, count
        self._documents = {
            name: json.dumps(served.stream.document(), ensure_ascii=False).encode()
            for name, served in streams.items()
        }
        self.inflight = 0
        """Bytes reserved for uploads that are read or not acknowledged."""

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
        return Starlette(
            routes=routes,
            middleware=[cors] if origins else [],
            exception_handlers={_Refused: _refusal},  # type: ignore[dict-item]  # a handler of a subclass
        )

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
        # Step 1.
        reserved = self._limits.max_body_bytes
        if self.inflight + reserved > self._limits.max_inflight_bytes:
            raise _Refused(503, "refused")
        self.inflight += reserved
        try:
            key = _id(request)
            body = await self._body(request)
            # Step 4.
            frame = self._checked(served, body)
            acknowledged = asyncio.get_running_loop().create_future()
            self._send(served, key, frame, acknowledged)
        except BaseException:
            self.inflight -= reserved
            raise
        # Step 6.
        acknowledged.add_done_callback(lambda _: self._release(reserved))
        try:
            async with asyncio.timeout(self._limits.timeout_seconds):
                good = await asyncio.shield(acknowledged)
        except TimeoutError:
            good = False
        if not good:
            raise _Refused(503, "refused")
        return "accepted"

    def _release(self, reserved: int) -> None:
        self.inflight -= reserved

    def _send(self, served: Served, key: bytes, frame: bytes, acknowledged: "asyncio.Future[bool]") -> None:
        loop = asyncio.get_running_loop()

        def done(good: bool) -> None:
            with contextlib.suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(acknowledged.set_result, good)

        # Step 5.
        self._sender.send(str(served.intake), key, frame, done)

    async def _body(self, request: Request) -> bytes:
        # Step 2.
        if request.headers.get("content-type", "").partition(";")[0].strip().lower() not in _TYPES:
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

    def _checked(self, served: Served, body: bytes) -> bytes:
        """Returns the upload as one binary frame."""
        ends = np.array([len(body)])
        decoded = frames.decode(
            served.stream, body, np.array([0]), ends, most_reports=self._limits.most_reports
        )
        if reason := decoded.reasons.get(0):
            raise _Refused(400, "rejected", reason)
        return frames.encode(served.stream, decoded.reports)


def _id(request: Request) -> bytes:
    """Returns the id that the client sent, or a random id."""
    given = request.headers.get(_KEY)
    if given is None:
        return secrets.token_bytes(ID_BYTES)
    if not re.fullmatch(rf"[0-9A-Fa-f]{{{2 * ID_BYTES}}}", given, re.ASCII):
        raise _Refused(400, "rejected", "idempotency-key")
    return bytes.fromhex(given)


async def _refusal(_: Request, refused: _Refused) -> Response:
    headers = (
        {"Retry-After": str(1 + secrets.randbelow(_LONGEST_RETRY))} if refused.status_code == 503 else {}
    )
    if refused.reason:
        return JSONResponse({"reason": refused.reason}, refused.status_code)
    return Response(None, refused.status_code, headers)
