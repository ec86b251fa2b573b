"""Runs histories on several processes, in blocks."""

import collections
import gc
import multiprocessing
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor

from tests.simulation.history import history

PROCESSES = 2
BLOCK = 50
"""Histories that a process runs at a time."""


def run(seeds: Sequence[int]) -> Iterator[tuple[int, collections.Counter[str]]]:
    """Runs histories; yields the number and events of each block; raises Wrong at the first wrong history."""
    blocks = [seeds[begin : begin + BLOCK] for begin in range(0, len(seeds), BLOCK)]
    # spawned: a process that already has threads is not to be forked
    with ProcessPoolExecutor(PROCESSES, multiprocessing.get_context("spawn"), initializer=settle) as pool:
        try:
            for block, happened in zip(blocks, pool.map(_block, blocks), strict=True):
                yield len(block), happened
        finally:
            pool.shutdown(cancel_futures=True)


def settle() -> None:
    """Lowers the process's priority and tunes its garbage collector."""
    os.nice(10)
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)


def _block(seeds: Sequence[int]) -> collections.Counter[str]:
    happened: collections.Counter[str] = collections.Counter()
    for seed in seeds:
        happened.update(history(seed))
    return happened
