"""A real Chromium for the tests: from PATH, else Debian's package where we are root, else a clear failure."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from deploy.local.services import program

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page, Route

ROOT = Path(__file__).parents[1]
NAMES = (
    "google-chrome",
    "chromium",
    "chromium-browser",
)  # the first: Ubuntu gives a sandbox to that one alone
TREE = "http://localhost"
"""An origin at which a page finds this tree; as it is localhost, a page may do what needs a secure connection."""
_TYPES = {
    ".html": "text/html",
    ".js": "text/javascript",
    ".mjs": "text/javascript",
    ".json": "application/json",
}


def installed() -> str:
    """The path of a Chromium."""
    path = next(filter(None, map(shutil.which, NAMES)), None) or program("chromium", "chromium")
    if path is None:
        pytest.fail(
            "there is no chromium on PATH: install Chromium (Debian: apt-get install chromium)", pytrace=False
        )
    return path


@contextlib.contextmanager
def launched() -> Iterator[Browser]:
    """A running one, without a window. Its sandbox does not work for root."""
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
def page_of(browser: Browser, path: str | None = None) -> Iterator[Page]:
    """A page with nothing kept of others: empty, or a file of this tree; an error of its own fails the test."""
    with contextlib.closing(browser.new_context()) as context:
        page = context.new_page()
        errors: list[str] = []
        page.on("pageerror", lambda error: errors.append(str(error)))
        if path is not None:
            page.route(
                f"{TREE}/**", _from_tree
            )  # with a route Playwright answers what a page asks of other origins
            page.goto(f"{TREE}/{path}")
        yield page
        assert not errors, errors


def _from_tree(route: Route) -> None:
    path = ROOT / route.request.url.removeprefix(TREE).lstrip("/")
    if path.is_file():
        route.fulfill(body=path.read_bytes(), content_type=f"{_TYPES[path.suffix]}; charset=utf-8")
    else:
        route.fulfill(body="<!doctype html><title>empty</title>", content_type="text/html")
