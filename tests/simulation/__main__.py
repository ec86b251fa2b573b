"""Runs histories, on two processes; stops at the first that is wrong.

``python -m tests.simulation [HISTORIES [FIRST]]``: so many, from a seed on.
"""

import collections
import sys
import time

from tests.simulation.running import run


def main() -> None:
    count, first = (int(said) for said in (*sys.argv[1:], *("20000", "0")[len(sys.argv) - 1 :]))
    began, done, total = time.monotonic(), 0, collections.Counter[str]()
    for some, happened in run(count, first):
        total.update(happened)
        done += some
        print(f"\r{done} histories, {done / (time.monotonic() - began):.0f} a second", end="", flush=True)
    print()
    for what, often in sorted(total.items()):
        print(f"{often:9} {what}")


if __name__ == "__main__":
    main()
