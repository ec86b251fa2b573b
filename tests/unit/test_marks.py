"""Tests that need services are marked, so that `-m "not integration"` starts none."""

import pytest

SERVICES = {"services", "local_services", "own_services"}
"""Fixtures of tests/conftest.py that find or start a server; indirect users have them, too."""


def test_tests_that_use_services_are_marked(request: pytest.FixtureRequest) -> None:
    items = request.session.items
    assert items
    unmarked = [
        item.nodeid
        for item in items
        if SERVICES & set(getattr(item, "fixturenames", ())) and not item.get_closest_marker("integration")
    ]
    assert unmarked == []
