"""The gateway's application over ASGI, with an intake in memory."""

import asyncio
import json
import threading
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from types import MappingProxyType, SimpleNamespace

import numpy as np
import pytest

import ldp
from ldp import frames
from worker.config.schema import Gateway
from worker.config.streams import Served
from worker.gateway.application import Application

STREAM = ldp.Stream("colours", ldp.GRR("1", domain_size=3))
SERVED = Served(ldp.Fleet((STREAM,)), "colour-reports", intake="colour-intake")
REPORTS = STREAM.oracle.perturb([0, 1, 2])
FRAME = frames.encode(STREAM, REPORTS)
KEY = "00112233445566778899aabbccddeeff"
PATH = "/v1/streams/colours/reports"
BINARY = {"content-type": "application/octet-stream"}


def in_a_loop(coroutine):
    """Runs a coroutine; a browser of another test can leave a loop in this thread."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, coroutine).result()


class Intake:
    """Acknowledges each upload at once, or when a test does."""

    def __init__(self, answer=True):
        self.answer, self.sent, self.waiting = answer, [], []

    def send(self, topic, key, value, done):
        self.sent.append((topic, key, value))
        if self.answer is None:
            self.waiting.append(done)
        else:
            done(self.answer)


class Gate:
    """An application, its intake and what it counts."""

    def __init__(self, answer=True, keys=MappingProxyType({}), count_sealed=None, **limits):
        self.intake, self.counted = Intake(answer), []
        table = Gateway(**({"timeout_seconds": 1.0} | limits))
        self.application = Application(
            {"colours": SERVED},
            table,
            self.intake.send,
            lambda *each: self.counted.append(each),
            keys,
            count_sealed,
        )
        self.asgi = self.application.asgi()

    async def request(self, body=b"", headers=None, path=PATH, method="POST", pause=0.0):
        """Returns status, headers and body of the answer; pauses before the body's second half."""
        half = len(body) // 2
        parts = [(body[:half], True), (body[half:], False)]
        answer = SimpleNamespace(status=0, headers={}, body=b"")

        async def receive():
            if not parts:
                await asyncio.sleep(60)
            if len(parts) == 1:
                await asyncio.sleep(pause)
            part, more = parts.pop(0)
            return {"type": "http.request", "body": part, "more_body": more}

        async def send(message):
            if message["type"] == "http.response.start":
                answer.status = message["status"]
                answer.headers = {name.decode(): value.decode() for name, value in message["headers"]}
            else:
                answer.body += message.get("body", b"")

        given = {**BINARY, **(headers or {})}
        scope = {
            "type": "http",
            "method": method,
            "path": path,
            "raw_path": path.encode(),
            "query_string": b"",
            "headers": [(name.encode(), value.encode()) for name, value in given.items()],
            "http_version": "1.1",
            "scheme": "http",
            "client": ("203.0.113.9", 1),
        }
        await self.asgi(scope, receive, send)
        await asyncio.sleep(0)  # acknowledgements release their bytes
        return answer

    def get(self, *given, **named):
        return in_a_loop(self.request(*given, **named))


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (FRAME, "application/octet-stream"),
        (frames.encode_json(STREAM, REPORTS), "Application/JSON; charset=utf-8"),
    ],
)
def test_an_upload_is_forwarded_as_one_binary_frame(body, kind):
    gate = Gate()
    answer = gate.get(body, {"idempotency-key": KEY, "content-type": kind})
    assert (answer.status, answer.body) == (202, b"")
    assert gate.intake.sent == [("colour-intake", bytes.fromhex(KEY), FRAME)]
    assert gate.counted == [("colours", "accepted")]
    assert gate.application.inflight == 0


def test_an_upload_without_an_id_gets_a_random_one():
    gate = Gate()
    assert [gate.get(FRAME).status for _ in range(2)] == [202, 202]
    first, second = (key for _, key, _ in gate.intake.sent)
    assert len(first) == len(second) == 16
    assert first != second


OTHER = frames.encode(ldp.Stream("colours", ldp.GRR("2", domain_size=3)), REPORTS)
MANY = frames.encode(STREAM, np.repeat(REPORTS, 4))


@pytest.mark.parametrize(
    ("body", "headers", "status", "reason"),
    [
        (b"", {}, 400, "empty"),
        (b"?", {}, 400, "version"),
        (OTHER, {}, 400, "fingerprint"),
        (MANY, {}, 400, "many"),
        (FRAME[:-3] + b"\xff" * 3, {}, 400, "range"),
        (b"{", {}, 400, "json"),
        (FRAME, {"idempotency-key": KEY[1:]}, 400, "idempotency-key"),
        (FRAME, {"idempotency-key": "x" * 32}, 400, "idempotency-key"),
        (FRAME, {"content-type": "text/plain"}, 415, None),
        (bytes(1025), {}, 413, None),
    ],
)
def test_an_invalid_upload_is_refused(body, headers, status, reason):
    gate = Gate(most_reports=11, max_body_bytes=1024)
    answer = gate.get(body, headers)
    assert answer.status == status
    assert (json.loads(answer.body)["reason"] if answer.body else None) == reason
    assert gate.intake.sent == []
    assert gate.counted == [("colours", "rejected")]
    assert gate.application.inflight == 0


def test_other_paths_and_methods_are_refused():
    gate = Gate()
    assert gate.get(FRAME, path="/v1/streams/other/reports").status == 404
    assert gate.get(FRAME, path="/v1/reports").status == 404
    assert gate.get(method="GET").status == 405
    assert gate.counted == []


def test_a_slow_body_is_refused_in_time():
    gate = Gate()
    assert gate.get(FRAME, pause=5).status == 408
    assert gate.counted == [("colours", "timeout")]
    assert gate.application.inflight == 0


def test_a_failed_send_is_refused_with_a_random_wait():
    gate = Gate(answer=False)
    waits = set()
    for _ in range(60):
        answer = gate.get(FRAME)
        assert answer.status == 503
        waits.add(int(answer.headers["retry-after"]))
    assert waits <= set(range(1, 11))
    assert len(waits) > 3  # equal with a probability below 1e-15
    assert gate.application.inflight == 0


def test_an_unacknowledged_upload_is_refused_but_stays_reserved():
    """The producer still has it, so its memory is not free."""

    async def both():
        gate = Gate(answer=None, max_body_bytes=1 << 19, max_inflight_bytes=1 << 20)
        first, second = await asyncio.gather(gate.request(FRAME), gate.request(FRAME))
        assert (first.status, second.status) == (503, 503)
        assert gate.application.inflight == 1 << 20
        assert (await gate.request(FRAME)).status == 503
        assert len(gate.intake.sent) == 2
        for done in gate.intake.waiting:
            done(True)
        await asyncio.sleep(0.01)
        assert gate.application.inflight == 0
        gate.intake.answer = True
        assert (await gate.request(FRAME)).status == 202

    in_a_loop(both())


def test_the_document_has_an_etag():
    gate = Gate()
    answer = gate.get(path="/v1/streams/colours/document", method="GET")
    assert (answer.status, json.loads(answer.body)) == (200, STREAM.document())
    known = gate.get(
        headers={"if-none-match": answer.headers["etag"]}, path="/v1/streams/colours/document", method="GET"
    )
    assert (known.status, known.body) == (304, b"")
    assert gate.get(path="/v1/streams/other/document", method="GET").status == 404


@pytest.mark.parametrize(
    ("origins", "allowed"), [([], None), (["https://app.example.org"], "https://app.example.org")]
)
def test_web_pages_of_configured_origins_may_upload(origins, allowed):
    gate = Gate(allow_origins=origins)
    headers = {"origin": "https://app.example.org", "access-control-request-method": "POST"}
    headers["access-control-request-headers"] = "idempotency-key"
    assert gate.get(headers=headers, method="OPTIONS").headers.get("access-control-allow-origin") == allowed
    answer = gate.get(FRAME, {"origin": "https://app.example.org"})
    assert (answer.status, answer.headers.get("access-control-allow-origin")) == (202, allowed)
    assert answer.headers.get("access-control-expose-headers") == (allowed and "Retry-After")


def test_acknowledgements_of_two_threads_at_once_end_both_uploads():
    class Overtaken(deque):
        """Lets another thread acknowledge the second upload before the first append returns."""

        def append(self, item):
            super().append(item)
            if others:
                thread = threading.Thread(target=others.pop(), args=(True,))
                thread.start()
                thread.join(0.5)

    async def both():
        uploads = [asyncio.create_task(gate.request(FRAME)) for _ in range(2)]
        while len(gate.intake.waiting) < 2:
            await asyncio.sleep(0)
        first, second = gate.intake.waiting
        others.append(second)
        await asyncio.to_thread(first, True)
        return [answer.status for answer in await asyncio.gather(*uploads)]

    others, gate = [], Gate(answer=None, timeout_seconds=5.0)
    gate.application._done = Overtaken()
    assert in_a_loop(both()) == [202, 202]
    assert gate.application.inflight == 0
