"""What is measured of the workers meanwhile: memory and open files by time, and how long commits and snapshots take."""

import contextlib
import os
import threading
import time
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tests.integration.harness.processes import Worker

_SECONDS = 1.0
WARM_SECONDS = 60.0
"""How long a worker may grow before its slope is taken: what it loads, compiles and makes room for once."""
_MIB = 1 << 20


@dataclass(frozen=True)
class Slope:
    """How something of one process grew.

    Attributes:
        first: at the beginning, once warm.
        last: at the end.
        hourly: the slope of the straight line that fits best, an hour.
    """

    first: float
    last: float
    hourly: float


class Watch:
    """Looks at a process again and again, on a thread of its own; a context manager.

    Args:
        pid: the process.
    """

    def __init__(self, pid: int) -> None:
        self._folder = Path(f"/proc/{pid}")
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._seen: list[tuple[float, float, float]] = []

    def __enter__(self) -> "Watch":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def memory(self) -> Slope:
        """Of the resident set, in MiB."""
        return self._slope(1)

    def files(self) -> Slope:
        """Of the open files."""
        return self._slope(2)

    def _slope(self, column: int) -> Slope:
        seen = np.array(self._seen)
        began = seen[0, 0] + min(WARM_SECONDS, (seen[-1, 0] - seen[0, 0]) / 2)
        warm = seen[seen[:, 0] >= began]
        hourly = 3600 * float(np.polyfit(warm[:, 0], warm[:, column], 1)[0])
        return Slope(float(warm[0, column]), float(warm[-1, column]), hourly)

    def _run(self) -> None:
        pages = os.sysconf("SC_PAGE_SIZE")
        while not self._stop.wait(_SECONDS):
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                resident = int((self._folder / "statm").read_text().split()[1]) * pages / _MIB
                files = sum(1 for _ in (self._folder / "fd").iterdir())
                self._seen.append((time.monotonic(), resident, files))


class Latencies:
    """How long something took, over all workers that there were: their histograms, as they last said them.

    Args:
        metric: the name of the histogram, without its prefix.
    """

    def __init__(self, metric: str) -> None:
        self._metric = metric
        self._said: dict[Path, dict[float, float]] = {}

    def note(self, worker: Worker) -> None:
        """Takes up what a worker says now."""
        with contextlib.suppress(OSError):
            buckets: dict[float, float] = defaultdict(float)
            for sample in worker.samples(f"{self._metric}_bucket"):
                buckets[float(sample.labels["le"])] += sample.value
            self._said[worker.log] = buckets

    def quantile(self, q: float) -> float:
        """Returns the upper bound of the bucket that has a quantile, in seconds."""
        total: dict[float, float] = defaultdict(float)
        for buckets in self._said.values():
            for bound, count in buckets.items():
                total[bound] += count
        most = max(total.values(), default=0.0)
        return next((bound for bound in sorted(total) if total[bound] >= q * most), float("nan"))
