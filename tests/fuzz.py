"""Record batches by the million: whole ones against kafka-python, damaged ones against a slow reading of the rules.

Run as ``python -m tests.fuzz``; one line each. What differs ends it, with the seed that shows it.
"""

import argparse
import time
from collections import Counter

import numpy as np

from tests import decoding
from tests.batches import Maker, by_kafka_python, damaged, drain, same_as_slowly
from worker.kafka.records import Arena

LOG = 50  # batches of a log
CAPS = [None, 40, 100, 300]


def whole(rng, arena):
    """One log of whole batches, as kafka-python's fetcher reads it; the outcomes."""
    maker = Maker(rng, most=6)
    log = maker.log(LOG)
    start = int(rng.integers(maker.first, maker.offset)) if rng.random() < 0.5 else 0
    aborted = [one[:2] for one in maker.aborted if one[2] >= start] if rng.random() < 0.5 else None
    fetched = b"".join(one for one in log if decoding.end_of(one, b"") > start)
    read, bad, end, _ = drain(fetched, start, aborted, arena=arena)
    assert not bad
    assert (read, end) == by_kafka_python(fetched, start, aborted)
    return Counter({"read alike": LOG})


def harmed(rng, arena):
    """One log of which most batches are damaged, read by the same words slowly; the outcomes."""
    maker = Maker(rng, most=4)
    log = [damaged(one, rng) for one in maker.log(LOG)]
    start = int(rng.integers(maker.first, maker.offset)) if rng.random() < 0.1 else 0
    aborted = [one[:2] for one in maker.aborted] if rng.random() < 0.5 else None
    caps = [(0, CAPS[int(rng.integers(4))]), (int(rng.integers(maker.offset)), CAPS[int(rng.integers(4))])]
    _, bad = same_as_slowly(b"".join(log), start, aborted, caps, arena)
    told = Counter(f"of {one.why}" for one in bad)
    return told + Counter({"read alike": LOG - told.total()})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--whole", type=int, default=1_000_000, help="how many whole batches")
    parser.add_argument("--damaged", type=int, default=1_000_000, help="how many damaged ones")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    for title, n, compare in (("whole", arguments.whole, whole), ("damaged", arguments.damaged, harmed)):
        arena, told, start = Arena(), Counter(), time.process_time()
        for k in range(0, n, LOG):
            seed = [arguments.seed, k]
            try:
                told += compare(np.random.default_rng(seed), arena)
            except BaseException:
                print(f"{title}: seed {seed}")
                raise
        outcomes = ", ".join(f"{count} {outcome}" for outcome, count in sorted(told.items()))
        print(
            f"{-(-n // LOG) * LOG} {title} batches: {outcomes}; {time.process_time() - start:.0f} s",
            flush=True,
        )


if __name__ == "__main__":
    main()
