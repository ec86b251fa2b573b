"""Measures workers: memory, open files, commit and snapshot times."""

import contextlib
import os
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tests.support.harness.processes import Worker

_SECONDS = 1.0
WARM_SECONDS = 60.0
"""Warm-up before the slope is measured: modules, compiled code and buffers."""
_MIB = 1 << 20


@dataclass(frozen=True)
class Slope:
    """Growth of one value of a process."""

    first: float  # once warm
    last: float
    most: float
    hourly: float  # slope of the best line
    hourly_after: float  # the same over the second half: caches stop growing, leaks continue


class Watch:
    """Measures processes each second on its own thread; `pids` are the current ones, the permanent one first."""

    def __init__(self, pids: Callable[[], Sequence[int]]) -> None:
        self._pids = pids
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._seen: dict[int, list[tuple[float, float, float]]] = defaultdict(list)

    def __enter__(self) -> "Watch":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def memory(self) -> Slope:
        """Resident set of the first process, in MiB."""
        return self._slope(1)

    def peaks(self) -> list[float]:
        """The largest resident set of each process that there was, in MiB."""
        return [round(max(resident for _, resident, _ in seen), 1) for seen in self._seen.values()]

    def files(self) -> Slope:
        """Number of open files of the first process."""
        return self._slope(2)

    def _slope(self, column: int) -> Slope:
        seen = np.array(next(iter(self._seen.values())))
        began, ended = seen[0, 0], seen[-1, 0]
        warm = seen[seen[:, 0] >= began + min(WARM_SECONDS, (ended - began) / 2)]
        after = seen[seen[:, 0] >= (began + ended) / 2]
        hourly, hourly_after = (
            3600 * float(np.polyfit(some[:, 0], some[:, column], 1)[0]) for some in (warm, after)
        )
        values = warm[:, column]
        return Slope(float(values[0]), float(values[-1]), float(seen[:, column].max()), hourly, hourly_after)

    def _run(self) -> None:
        pages = os.sysconf("SC_PAGE_SIZE")
        while not self._stop.wait(_SECONDS):
            for pid in self._pids():
                folder = Path(f"/proc/{pid}")
                with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                    resident = int((folder / "statm").read_text().split()[1]) * pages / _MIB
                    files = sum(1 for _ in (folder / "fd").iterdir())
                    if resident:  # a killed process has none
                        self._seen[pid].append((time.monotonic(), resident, files))


class Latencies:
    """Merged histograms of all workers; `metric` is the name without its prefix."""

    def __init__(self, metric: str) -> None:
        self._metric = metric
        self._said: dict[Path, dict[float, float]] = {}

    def note(self, worker: Worker) -> None:
        """Records a worker's current metrics."""
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
