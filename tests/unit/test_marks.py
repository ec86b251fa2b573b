"""What needs services says so, so that `-m "not integration"` starts nothing."""

import pytest

SERVICES = {"services", "local_services", "own_services"}
"""The fixtures of tests/conftest.py that find or start a server; one that asks for them indirectly has them, too."""


def test_whoever_asks_for_services_is_marked(request: pytest.FixtureRequest) -> None:
    items = request.session.items
    assert items
    unmarked = [
        item.nodeid
        for item in items
        if SERVICES & set(getattr(item, "fixturenames", ())) and not item.get_closest_marker("integration")
    ]
    assert unmarked == []
