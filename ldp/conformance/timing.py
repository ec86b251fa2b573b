"""Detects a timing side channel: report times that depend on the value."""

from __future__ import annotations

import select
import subprocess
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from scipy import stats

from ldp.conformance.running import ClientError

if TYPE_CHECKING:
    import numpy.typing as npt

    from ldp.conformance.running import Command

WAIT_SECONDS = 5.0  # Time limit for the answer to one line
APART = 1.2  # Smallest reported ratio of medians: an observer on a network cannot resolve smaller ones


@dataclass(frozen=True)
class Times:
    """Median seconds per value, and the p-value of a Kruskal–Wallis test."""

    medians: dict[int, float]
    p_value: float

    @property
    def ratio(self) -> float:
        """The ratio of the largest to the smallest median."""
        return max(self.medians.values()) / min(self.medians.values())

    @property
    def summary(self) -> str:
        """The values with the largest and the smallest median, as text."""
        slow, fast = (pick(self.medians, key=self.medians.__getitem__) for pick in (max, min))
        return f"time: a report of value {slow} takes {self.ratio:.2f} times as long as one of value {fast}"


def times(command: Command, order: npt.NDArray[np.int64]) -> Times | None:
    """Times the client's answers to lines; None if an answer is too late."""
    seconds = np.empty(order.size)
    with subprocess.Popen(
        command.arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as client:
        assert client.stdin is not None and client.stdout is not None
        try:
            for i, value in enumerate(order.tolist()):
                line = f"{command.name(value)}\n".encode()
                began = time.perf_counter()
                try:
                    client.stdin.write(line)
                    client.stdin.flush()
                except BrokenPipeError:
                    raise ClientError("the client exited before the end of its input") from None
                if (
                    not select.select([client.stdout], [], [], WAIT_SECONDS)[0]
                    or not client.stdout.readline()
                ):
                    return None
                seconds[i] = time.perf_counter() - began
        finally:
            client.kill()
    settled = slice(order.size // 10, None)  # the first answers include the time to load and compile
    parts = {int(v): seconds[settled][order[settled] == v] for v in np.unique(order)}
    medians = {v: float(np.median(part)) for v, part in parts.items()}
    return Times(medians, float(stats.kruskal(*parts.values()).pvalue) if len(parts) > 1 else 1.0)
