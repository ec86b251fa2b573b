"""Timing side channel: the time that a client takes for a report, by value."""

from __future__ import annotations

import select
import subprocess
import time
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING

import numpy as np
from scipy import stats

from ldp.conformance.running import ClientError

if TYPE_CHECKING:
    import numpy.typing as npt

    from ldp.conformance.running import Command

WAIT_SECONDS = 5.0  # Within which a client answers a line, if it answers lines and not the whole
APART = 1.2  # Medians that differ by less are not told: what listens over a network sees less than this


@dataclass(frozen=True)
class Times:
    """Median seconds of a report by value, and Kruskal and Wallis's p-value that all values take the same time."""

    medians: dict[int, float]
    p_value: float

    @property
    def ratio(self) -> float:
        """The ratio of the largest to the smallest median."""
        return max(self.medians.values()) / min(self.medians.values())

    @property
    def said(self) -> str:
        """The values that are furthest apart."""
        slow, fast = (pick(self.medians, key=self.medians.__getitem__) for pick in (max, min))
        return f"time: a report of value {slow} takes {self.ratio:.2f} times as long as one of {fast}"


def times(command: Command, order: npt.NDArray[np.int64]) -> Times | None:
    """Times a client line by line, over mixed values; None if it does not answer line by line."""
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
                    raise ClientError("it ended before its input did") from None
                if not _answers(client.stdout):
                    return None
                seconds[i] = time.perf_counter() - began
        finally:
            client.kill()
    settled = slice(order.size // 10, None)  # the first ones compile and load
    parts = {int(v): seconds[settled][order[settled] == v] for v in np.unique(order)}
    medians = {v: float(np.median(part)) for v, part in parts.items()}
    return Times(medians, float(stats.kruskal(*parts.values()).pvalue) if len(parts) > 1 else 1.0)


def _answers(stdout: IO[bytes]) -> bool:
    """Whether a line arrives in time."""
    return bool(select.select([stdout], [], [], WAIT_SECONDS)[0]) and bool(stdout.readline())
