"""Runs histories, on two processes; stops at the first that is wrong.

``python -m tests.simulation [HISTORIES [FIRST]]``: so many, from a seed on.
"""

import collections
import sys
import time
from concurrent.futures import ProcessPoolExecutor

from tests.simulation.history import history

BLOCK = 100


def block(first: int) -> collections.Counter[str]:
    """Runs a block of histories."""
    total: collections.Counter[str] = collections.Counter()
    for seed in range(first, first + BLOCK):
        total.update(history(seed))
    return total


def main() -> None:
    count, first = (int(said) for said in (*sys.argv[1:], *("20000", "0")[len(sys.argv) - 1 :]))
    began, total = time.monotonic(), collections.Counter[str]()
    with ProcessPoolExecutor(2) as pool:
        for done, some in enumerate(pool.map(block, range(first, first + count, BLOCK)), 1):
            total.update(some)
            seconds = time.monotonic() - began
            print(f"\r{done * BLOCK} histories, {done * BLOCK / seconds:.0f} a second", end="", flush=True)
    print()
    for what, often in sorted(total.items()):
        print(f"{often:9} {what}")


if __name__ == "__main__":
    main()
