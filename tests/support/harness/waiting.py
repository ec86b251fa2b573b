"""Waiting for conditions."""

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

TIMEOUT_SECONDS = 90.0
"""Seconds until a condition must hold, far more than it takes."""


def until(condition: Callable[[], T | None], what: str, seconds: float = TIMEOUT_SECONDS) -> T:
    """Waits until a condition is true; returns its value."""
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < deadline, f"{what}: not within {seconds:g} s"
        time.sleep(0.03)
    return found
