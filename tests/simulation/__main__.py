"""Runs histories on two processes, up to the first wrong one.

``python -m tests.simulation [HISTORIES [FIRST]]``: 20,000 from seed 0 by default. A run of 20,000 or more
adds 25 of each script, and fails if rare events are missing from it.
"""

import collections
import sys
import time

from tests.simulation.directed import SCRIPTS
from tests.simulation.happenings import OFTEN, RARE
from tests.simulation.running import run
from tests.simulation.themes import RUN, directed

HISTORIES = 20_000


def main() -> None:
    count, first = map(int, (*sys.argv[1:], *(str(HISTORIES), "0")[len(sys.argv) - 1 :]))
    began, done, total = time.monotonic(), 0, collections.Counter[str]()
    many = count >= HISTORIES
    for some, happened in run(sorted({*range(first, first + count), *(directed(RUN) if many else ())})):
        total.update(happened)
        done += some
        print(f"\r{done} histories, {done / (time.monotonic() - began):.0f} a second", end="", flush=True)
    print()
    for what, often in sorted(total.items()):
        print(f"{often:9} {what}")
    least = dict.fromkeys((*OFTEN, *RARE), 3) | {"as the script says": RUN * len(SCRIPTS) // 2}
    if many and (lacking := [what for what, often in least.items() if total[what] < often]):
        sys.exit(f"they prove little of what hardly happened in them: {', '.join(lacking)}")


if __name__ == "__main__":
    main()
