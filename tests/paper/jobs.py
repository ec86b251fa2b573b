"""Runs an evaluation as jobs with separate seeds, in many processes."""

from __future__ import annotations

import os
import signal
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from multiprocessing import get_context, parent_process
from threading import Thread
from typing import TypeVar

import numpy as np

from ldp.estimate import Vector
from tests.paper.figures import BAR, Row

Point = TypeVar("Point")
Workers = Callable[[Callable[["Job"], list["Sample"]], Sequence["Job"]], Iterable[list["Sample"]]]


@dataclass(frozen=True)
class Scale:
    """Amount of work: repeats, runs of Figures 1 to 3, stride along an axis."""

    repeats: int
    runs: int
    stride: int

    def thin(self, points: Sequence[Point]) -> list[Point]:
        """Returns every `stride`-th point, and the last point."""
        return [*points[: -1 : self.stride], points[-1]]


FULL = Scale(repeats=30, runs=5000, stride=1)  # Scale of the paper

QUICK = Scale(repeats=5, runs=500, stride=4)  # Enough to see the shape of every figure


@dataclass(frozen=True, eq=False)
class Sample:
    """Mean and sum of squared deviations of `count` repeats at m points.

    `each` has the (count, m) values of the repeats, or is None if only the mean is known.
    """

    figure: str
    dataset: str
    case: str
    method: str
    x: Vector
    mean: Vector
    squares: Vector
    count: int
    each: Vector | None = None

    def __add__(self, other: Sample) -> Sample:
        """Adds a sample of the same points (Chan, Golub and LeVeque's update)."""
        count = self.count + other.count
        step = other.mean - self.mean
        mean = self.mean + step * (other.count / count)
        squares = self.squares + other.squares + step**2 * (self.count * other.count / count)
        kept = self.each is not None and other.each is not None
        each = np.concatenate([self.each, other.each]) if kept else None
        return replace(self, mean=mean, squares=squares, count=count, each=each)

    def rows(self) -> list[Row]:
        """Returns one row per x."""
        deviations = np.sqrt(self.squares / max(self.count - 1, 1))
        numbers = [self.x, self.mean, deviations]
        numbers += [] if self.each is None else list(np.quantile(self.each, BAR, axis=0))
        return [
            Row(self.figure, self.dataset, self.case, x, self.method, mean, deviation, self.count, *bar)
            for x, mean, deviation, *bar in zip(*(column.tolist() for column in numbers), strict=True)
        ]


def once(
    figure: str,
    dataset: str,
    method: str,
    x: float | Sequence[float] | Vector,
    value: float | Sequence[float] | Vector,
    case: str = "",
) -> Sample:
    """Returns the sample of one repeat, at one point or m points."""
    points, values = np.atleast_1d(np.asarray(x, np.float64)), np.atleast_1d(np.asarray(value, np.float64))
    return Sample(figure, dataset, case, method, points, values, np.zeros(len(values)), 1, values[None])


@dataclass(frozen=True)
class Job:
    """Picklable work with a unique key, which seeds the random numbers."""

    key: tuple[str | int, ...]
    work: Callable[[np.random.Generator], list[Sample]]

    def run(self, seed: int) -> list[Sample]:
        """Runs the work with a generator that is seeded by `seed` and the key."""
        key = [part if isinstance(part, int) else zlib.crc32(part.encode()) for part in self.key]
        return self.work(np.random.default_rng(np.random.SeedSequence(seed, spawn_key=key)))


def run(
    jobs: Sequence[Job], seed: int, work: Workers = map, on_done: Callable[[], object] = lambda: None
) -> list[Row]:
    """Runs jobs in order, and combines the samples of each curve.

    The same seed gives the same rows, bit for bit, with any number of processes. Calls `on_done` after each job.
    """
    merged: dict[tuple[str, str, str, str, bytes], Sample] = {}
    for samples in work(partial(Job.run, seed=seed), jobs):
        for sample in samples:
            key = (sample.figure, sample.dataset, sample.case, sample.method, sample.x.tobytes())
            merged[key] = merged[key] + sample if key in merged else sample
        on_done()
    return [row for sample in merged.values() for row in sample.rows()]


@contextmanager
def workers(processes: int) -> Iterator[Workers]:
    """Yields the map function of a process pool, or `map` for one process."""
    if processes == 1:
        yield map
        return
    # spawn, because a fork can hang: this process has threads (the progress bar, BLAS)
    pool = ProcessPoolExecutor(processes, get_context("spawn"), initializer=_start)
    try:
        yield pool.map
    finally:
        pool.shutdown(cancel_futures=True)


def _start() -> None:
    """Makes a process of `workers` ignore Ctrl-C and exit with its parent."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def cores() -> int:
    """Returns the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
