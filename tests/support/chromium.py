"""A Chromium for the tests: from PATH, else Debian's package if the user is root, else a failure."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from deploy.local.services import program

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, Page, Route

ROOT = Path(__file__).parents[2]
NAMES = (
    "google-chrome",
    "chromium",
    "chromium-browser",
)  # Ubuntu allows a sandbox for the first only
TREE = "http://localhost"
"""The origin of this tree; localhost counts as a secure context."""
_START_SECONDS = 60.0
_TYPES = {
    ".html": "text/html",
    ".js": "text/javascript",
    ".mjs": "text/javascript",
    ".json": "application/json",
}


def installed() -> str:
    """Returns the path of a Chromium."""
    path = next(filter(None, map(shutil.which, NAMES)), None) or program("chromium", "chromium")
    if path is None:
        pytest.fail(
            "there is no chromium on PATH: install Chromium (Debian: apt-get install chromium)", pytrace=False
        )
    return path


@contextlib.contextmanager
def launched() -> Iterator[Browser]:
    """Runs a headless browser; its sandbox does not work for root."""
    from playwright.sync_api import sync_playwright  # late, for all tests import this

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=installed(), chromium_sandbox=os.geteuid() != 0, args=["--disable-dev-shm-usage"]
        )
        try:
            yield browser
        finally:
            browser.close()


@contextlib.contextmanager
def tabs_of(browser: Browser) -> Iterator[BrowserContext]:
    """Runs a browser whose front tab hides the others; Playwright's own pages are always visible."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        options = ["--headless", "--remote-debugging-port=0", "--no-first-run", "--disable-dev-shm-usage"]
        sandbox = [] if os.geteuid() else ["--no-sandbox"]
        command = [installed(), *options, *sandbox, f"--user-data-dir={profile}", "about:blank"]
        with subprocess.Popen(command, stderr=subprocess.DEVNULL) as process:
            try:
                port, path = _debugged(Path(profile) / "DevToolsActivePort")
                address = f"ws://127.0.0.1:{port}{path}"
                with contextlib.closing(
                    browser.browser_type.connect_over_cdp(address, no_defaults=True)
                ) as another:
                    yield another.contexts[0]
            finally:
                process.terminate()


def _debugged(said: Path) -> tuple[str, str]:
    """Waits for port and path of Chromium's debugger."""
    deadline = time.monotonic() + _START_SECONDS
    while not said.is_file() or len(lines := said.read_text(encoding="utf-8").split()) < 2:
        assert time.monotonic() < deadline, f"Chromium did not say within {_START_SECONDS:g} s where it is"
        time.sleep(0.02)
    return lines[0], lines[1]


@contextlib.contextmanager
def page_of(browser: Browser, path: str | None = None) -> Iterator[Page]:
    """Opens a page in a new context, empty or of this tree; its script errors fail the test."""
    with contextlib.closing(browser.new_context()) as context:
        page = context.new_page()
        errors: list[str] = []
        page.on("pageerror", lambda error: errors.append(str(error)))
        if path is not None:
            page.route(f"{TREE}/**", _from_tree)  # allows requests to other origins
            page.goto(f"{TREE}/{path}")
        yield page
        assert not errors, errors


def _from_tree(route: Route) -> None:
    path = ROOT / route.request.url.removeprefix(TREE).lstrip("/")
    if path.is_file():
        route.fulfill(body=path.read_bytes(), content_type=f"{_TYPES[path.suffix]}; charset=utf-8")
    else:
        route.fulfill(body="<!doctype html><title>empty</title>", content_type="text/html")
