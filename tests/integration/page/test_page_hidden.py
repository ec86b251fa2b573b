"""A hidden tab of Chromium holds no connection."""

import contextlib
import http.client

import pytest
from playwright.sync_api import expect

from tests.support.chromium import tabs_of
from tests.support.harness import TIMEOUT_SECONDS, World, until
from worker.http.server import MOST_LISTENERS

pytestmark = [pytest.mark.integration, pytest.mark.long, pytest.mark.usefixtures("patient")]


def hear(port):
    """Opens an event stream; the answer holds the connection."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=TIMEOUT_SECONDS)
    connection.request("GET", "/events")
    return connection.getresponse()


def is_free(port):
    """Returns whether one more event stream is accepted."""
    with hear(port) as answer:
        return answer.status == 200


def test_a_hidden_tab_closes_its_event_stream(kafka, redis_url, tmp_path, chromium):
    with World(kafka, redis_url, tmp_path, partitions=1) as world, contextlib.ExitStack() as held:
        (worker,) = world.start()
        world.send(10)
        world.covered()
        context = held.enter_context(tabs_of(chromium))
        (page,) = context.pages
        port = worker.port()
        # the address names the stream: otherwise the page first receives events of all streams
        page.goto(f"http://127.0.0.1:{port}/#stream={world.name}")
        expect(page.locator("#reports")).to_have_text("10")
        expect(page.locator("#connection")).to_have_text("Live")
        for _ in range(MOST_LISTENERS - 1):
            assert held.enter_context(hear(port)).status == 200
        assert not is_free(port)

        other = context.new_page()
        other.bring_to_front()
        until(lambda: page.evaluate("document.hidden"), "it is hidden")
        until(lambda: is_free(port), "its place is free")
        world.send(5)
        world.covered()
        assert page.locator("#reports").inner_text() == "10"

        page.bring_to_front()
        expect(page.locator("#reports")).to_have_text("15")
        world.send(5)
        expect(page.locator("#reports")).to_have_text("20")
        expect(page.locator("#connection")).to_have_text("Live")
        assert not is_free(port)
