"""axe-core, which finds accessibility violations; downloaded once from npm and verified."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.support import npm

if TYPE_CHECKING:
    from playwright.sync_api import Page

VERSION = "4.10.3"
INTEGRITY = "Xm7bpRXnDSX2YE2YFfBk2FnF0ep6tmG7xPh8iHee8MIcrgq762Nkce856dYtJYLkuIoYZvGfTs/PbZhideTcEg=="
"""The SHA-512 of the package in npm's format."""


def script() -> str:
    """Returns the text of axe.min.js."""
    return npm.text("axe-core", VERSION, INTEGRITY, "axe.min.js")


def violations(page: Page) -> dict[str, list[Any]]:
    """Returns the violations of a page: rule -> elements."""
    page.evaluate(f"() => {{ {script()} }}")  # the page's policy forbids inserted scripts
    found: dict[str, list[Any]] = page.evaluate(
        """async () => {
            const { violations } = await axe.run();
            return Object.fromEntries(violations.map(({ id, nodes }) => [id, nodes.map((node) => node.html)]));
        }"""
    )
    return found
