"""CPU seconds and peak memory of processes, from Linux's /proc.

CPU seconds are utime, stime, cutime and cstime of ``/proc/PID/stat``, in hundredths of a second, for a process and its
descendants. Memory is the sum of VmHWM in ``/proc/PID/status``; each process counts the pages that it shares.
"""

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

PROC = Path("/proc")
_UTIME = 11
"""The index of utime among the fields behind the command's name."""


@dataclass(frozen=True)
class Usage:
    """Usage of a process and its descendants since their start."""

    cpu_seconds: float
    peak_bytes: int

    @classmethod
    def of(cls, pid: int) -> "Usage":
        """Current usage."""
        ticks = os.sysconf("SC_CLK_TCK")
        cpu, peak = 0, 0
        for each in family(pid):
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it just ended
                # the command's name is in parentheses and may have any character
                fields = (PROC / str(each) / "stat").read_text().rpartition(")")[2].split()
                cpu += sum(map(int, fields[_UTIME : _UTIME + 4]))
                status = (PROC / str(each) / "status").read_text()
                peak += 1024 * int(status.partition("VmHWM:")[2].split()[0])
        return cls(cpu / ticks, peak)


def family(pid: int) -> Iterator[int]:
    """A process and all below it."""
    yield pid
    for children in (PROC / str(pid) / "task").glob("*/children"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            for child in children.read_text().split():
                yield from family(int(child))


@dataclass(frozen=True)
class Cores:
    """Two cores: one for the measured process, the others for the broker, Redis and the bench."""

    measured: frozenset[int]
    others: frozenset[int]

    @classmethod
    def here(cls) -> "Cores":
        """Cores of this machine; with one core both are the same."""
        with on(frozenset(range(os.cpu_count() or 1))):
            *others, measured = sorted(os.sched_getaffinity(0))
        return cls(frozenset({measured}), frozenset(others or {measured}))


@contextlib.contextmanager
def on(cores: frozenset[int]) -> Iterator[None]:
    """Processes started meanwhile stay on these cores."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)
