"""Runs histories on several processes, in blocks."""

import collections
import gc
import multiprocessing
import os
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial

from tests.simulation.history import history

PROCESSES = 2
BLOCK = 50
"""Histories that a process runs at a time."""


def run(count: int, first: int = 0) -> Iterator[tuple[int, collections.Counter[str]]]:
    """Runs histories from a seed on; yields, block by block, how many were run and how often what happened in them.

    Raises:
        Wrong: one is not as it must be; those that were not begun are left.
    """
    end = first + count
    # spawned: a process that already has threads is not to be forked
    with ProcessPoolExecutor(PROCESSES, multiprocessing.get_context("spawn"), initializer=settle) as pool:
        try:
            for block, happened in enumerate(pool.map(partial(_block, end), range(first, end, BLOCK))):
                yield min(BLOCK, count - block * BLOCK), happened
        finally:
            pool.shutdown(cancel_futures=True)


def settle() -> None:
    """Has the collector of garbage leave out what stays, and others go first: tests on services have deadlines."""
    os.nice(10)
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)


def _block(end: int, first: int) -> collections.Counter[str]:
    happened: collections.Counter[str] = collections.Counter()
    for seed in range(first, min(first + BLOCK, end)):
        happened.update(history(seed))
    return happened
