"""Waiting for what must come."""

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

TIMEOUT_SECONDS = 90.0
"""Seconds until a condition must hold: far more than it takes, so that only what never comes fails."""


def until(condition: Callable[[], T | None], what: str, seconds: float = TIMEOUT_SECONDS) -> T:
    """Waits until a condition gives something true, and returns that."""
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < deadline, f"{what}: not within {seconds:g} s"
        time.sleep(0.03)
    return found
