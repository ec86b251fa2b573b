"""Runs histories, on two processes; stops at the first that is wrong.

``python -m tests.simulation [HISTORIES [FIRST]]``: so many, from a seed on, 20,000 from 0 unless told otherwise. Where
so many are run, what is rare has to have happened among them, too.
"""

import collections
import sys
import time

from tests.simulation.happenings import RARE
from tests.simulation.running import run

HISTORIES = 20_000


def main() -> None:
    count, first = map(int, (*sys.argv[1:], *(str(HISTORIES), "0")[len(sys.argv) - 1 :]))
    began, done, total = time.monotonic(), 0, collections.Counter[str]()
    for some, happened in run(range(first, first + count)):
        total.update(happened)
        done += some
        print(f"\r{done} histories, {done / (time.monotonic() - began):.0f} a second", end="", flush=True)
    print()
    for what, often in sorted(total.items()):
        print(f"{often:9} {what}")
    if count >= HISTORIES and (lacking := [what for what in RARE if total[what] < 3]):
        sys.exit(f"they prove little of what hardly happened in them: {', '.join(lacking)}")


if __name__ == "__main__":
    main()
