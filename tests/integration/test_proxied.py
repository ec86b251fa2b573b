"""The page behind a reverse proxy: a real nginx, configured as `worker/README.md` says, with its default buffering."""

import contextlib
import http.client
import subprocess
import time
from collections.abc import Iterator
from types import SimpleNamespace

import pytest

from deploy.local.services import free_ports, program
from tests.integration.harness import TIMEOUT_SECONDS
from worker.http import page as pages
from worker.http import server
from worker.observe.metrics import Metrics

pytestmark = pytest.mark.integration

NAME = "ldp.example.org"
CONFIG = """
daemon off;
master_process off;
pid nginx.pid;
error_log stderr;
events {}
http {
    access_log off;
    client_body_temp_path temp/body;
    proxy_temp_path temp/proxy;
    fastcgi_temp_path temp/fastcgi;
    uwsgi_temp_path temp/uwsgi;
    scgi_temp_path temp/scgi;
    server {
        listen 127.0.0.1:%d;
        location / {
            proxy_pass http://127.0.0.1:%d;
            proxy_set_header Host $host;
        }
    }
}
"""


@pytest.fixture
def proxied(tmp_path, monkeypatch):
    """The port of an nginx in front of a page whose event streams say every half second that they live."""
    monkeypatch.setattr(pages, "KEEP_ALIVE_SECONDS", 1.0)  # at which no buffer of nginx fills
    snapshots = SimpleNamespace(newest=lambda _: {}, wait=lambda _: True)
    page = pages.Page(SimpleNamespace(document=list), snapshots, ["s"])
    ok = lambda: (True, {})  # noqa: E731
    running = server.serve("127.0.0.1", 0, Metrics().registry, ok, ok, page, frozenset({NAME}))
    try:
        with nginx(tmp_path, running.server_port) as port:
            yield port
    finally:
        running.shutdown()


@contextlib.contextmanager
def nginx(folder, port) -> Iterator[int]:
    """An nginx, one process; gives its port."""
    path = program("nginx", "nginx")
    if path is None:
        pytest.fail("there is no nginx on PATH: install nginx (Debian: apt-get install nginx)", pytrace=False)
    (ours,) = free_ports(1)
    config, log = folder / "nginx.conf", folder / "nginx.log"
    config.write_text(CONFIG % (ours, port), encoding="utf-8")
    (folder / "temp").mkdir()
    command = [path, "-p", str(folder), "-c", str(config), "-e", "stderr"]
    with log.open("wb") as out, subprocess.Popen(command, stdout=out, stderr=out) as process:
        try:
            deadline = time.monotonic() + TIMEOUT_SECONDS
            while True:
                with contextlib.suppress(OSError), asked(ours, "/healthz"):
                    break
                assert process.poll() is None, log.read_text()
                assert time.monotonic() < deadline, log.read_text()
                time.sleep(0.02)
            yield ours
        finally:
            process.kill()


@contextlib.contextmanager
def asked(port, path, host=NAME):
    """The answer to a GET, while it comes."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=TIMEOUT_SECONDS)
    with contextlib.closing(connection):
        connection.request("GET", path, headers={"Host": host})
        with connection.getresponse() as answer:
            yield answer


def test_point_7_events_pass_through_nginx_as_they_come(proxied):
    with asked(proxied, "/events") as answer:
        heard = [line for line, _ in zip(iter(answer.readline, b""), range(8), strict=False)]
    assert heard[:6] == [b":\n", b"\n", b"event: streams\n", b"data: []\n", b"\n", b"event: alive\n"]
    with asked(proxied, "/streams", "elsewhere.example.org") as answer:
        assert answer.status == 421
