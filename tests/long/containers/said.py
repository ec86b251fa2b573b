"""Findings: a line each, and the overall verdict."""

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).parents[3]


class CannotError(RuntimeError):
    """Missing prerequisite of the next step; the message names it."""


class Findings:
    """Prints each finding as it is made, with the seconds since the start."""

    def __init__(self) -> None:
        self._start = time.monotonic()
        self.wrong: list[str] = []
        """Failed findings."""

    def say(self, text: str) -> None:
        """A line without a finding: the next step, or a size."""
        self._line("      ", text)

    def see(self, holds: bool, text: str, otherwise: str = "") -> None:
        """A finding: the expected state, and the actual one if it differs."""
        if not holds:
            self.wrong.append(text)
        self._line(
            "ok    " if holds else "FAILED", text if holds or not otherwise else f"{text}: {otherwise}"
        )

    def _line(self, verdict: str, text: str) -> None:
        print(f"{time.monotonic() - self._start:6.1f} s  {verdict}  {text}", flush=True)


def run(
    *command: str | Path, more: dict[str, str] | None = None, typed: str | None = None, must: bool = True
) -> subprocess.CompletedProcess[str]:
    """Runs a command to its end, from the root of the tree."""
    done = subprocess.run(
        [str(part) for part in command],
        cwd=ROOT,
        env=os.environ | (more or {}),
        input=typed,
        stdin=None if typed is not None else subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    )
    if must and done.returncode != 0:
        tail = "\n".join((done.stdout + done.stderr).splitlines()[-30:])
        raise CannotError(f"{' '.join(map(str, command))} ended with {done.returncode}:\n{tail}")
    return done


def until(holds: Callable[[], bool], seconds: float) -> float | None:
    """Waits until it holds; returns the seconds, or None after the time limit."""
    start = time.monotonic()
    while not holds():
        if time.monotonic() - start > seconds:
            return None
        time.sleep(0.25)
    return time.monotonic() - start


def complain(text: str) -> None:
    """A line on stderr."""
    print(text, file=sys.stderr, flush=True)
