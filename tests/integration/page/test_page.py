"""The page of the JavaScript client's README in Chromium: a worker counts its reports."""

import functools
import re
import shutil
import threading
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

import pytest

from tests.support.docs import ROOT, block
from tests.support.harness import until
from tests.support.harness.front import Front
from worker import audit

pytestmark = [pytest.mark.integration, pytest.mark.long]


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


def test_a_worker_counts_the_clicks_on_the_page(kafka, redis_url, tmp_path, chromium):
    site = tmp_path / "site"
    site.mkdir()
    copied = re.match(r"cp ldp/clients/javascript/\{(.*)\}\.js site", block("guides/javascript-client", "cp"))
    for module in copied[1].split(","):
        shutil.copy(ROOT / "ldp" / "clients" / "javascript" / f"{module}.js", site)
    with ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=site)) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            clicks(kafka, redis_url, tmp_path, chromium, site, f"localhost:{server.server_port}")
        finally:
            server.shutdown()
            thread.join()


def clicks(kafka, redis_url, folder, chromium, site, address):
    topic = folder.name
    guide = block("guides/javascript-client", "[gateway]").replace("localhost:8000", address)
    settings = {"gateway.allow_origins": re.findall('"(.*)"', guide)}
    table = (
        block("guides/receive-reports", "[[streams]]").replace("colour-", f"{topic}-").replace("1000", "3")
    )
    with (
        Front(kafka, folder, redis_url=redis_url, settings=settings, table=table) as front,
        chromium.new_context() as context,
    ):
        front.start("shuffle")
        front.start("run")
        text = block("ldp/clients/javascript/README.md", "<button")
        assert "localhost:8080" in text
        text = text.replace("localhost:8080", f"localhost:{front.port}")
        (site / "index.html").write_text(f"<!doctype html>\n{text}", encoding="utf-8")
        page = context.new_page()
        page.goto(f"http://{address}")
        page.wait_for_function("document.querySelector('button:last-of-type').onclick !== null")
        for name in ("red", "green", "green"):
            with page.expect_response(lambda answer: answer.status == 202, timeout=90_000):
                page.get_by_role("button", name=name).click()

        def counted():
            verdict = audit.verify(front.served, front.config)
            return (verdict.difference, verdict.lag, verdict.reports) == (None, 0, 3)

        until(counted, "the worker counts the clicks")
        assert len({record.key for record in front.records(front.served.intake)}) == 3
