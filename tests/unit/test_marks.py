"""Tests that need services are marked, so that `-m "not integration"` starts none."""

import pytest

SERVICES = {"services", "local_services", "own_services"}
"""Fixtures of tests/conftest.py that find or start a server; indirect users have them, too."""


def test_whoever_asks_for_services_is_marked(request: pytest.FixtureRequest) -> None:
    items = request.session.items
    assert items
    unmarked = [
        item.nodeid
        for item in items
        if SERVICES & set(getattr(item, "fixturenames", ())) and not item.get_closest_marker("integration")
    ]
    assert unmarked == []
