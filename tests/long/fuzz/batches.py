"""Compares the reading of batches with kafka-python's and a slow one."""

from collections import Counter

import numpy as np

from tests.support import decoding
from tests.support.batches import Maker, by_kafka_python, damaged, drain, same_as_slowly, spoilt
from worker.kafka.decoding.records import Arena

LOG = 50  # batches of a log
CAPS = [None, 40, 100, 300]


def whole(rng, arena):
    """Compares a log of whole batches with kafka-python's fetcher."""
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
    """Compares a log of mostly damaged batches with a slow reading."""
    maker = Maker(rng, most=4)
    harm = spoilt if rng.random() < 0.5 else damaged
    log = [harm(one, rng) for one in maker.log(LOG)]
    start = int(rng.integers(maker.first, maker.offset)) if rng.random() < 0.1 else 0
    aborted = [one[:2] for one in maker.aborted] if rng.random() < 0.5 else None
    caps = [(0, CAPS[int(rng.integers(4))]), (int(rng.integers(maker.offset)), CAPS[int(rng.integers(4))])]
    _, bad = same_as_slowly(b"".join(log), start, aborted, caps, arena)
    told = Counter(f"of {one.why}" for one in bad)
    return told + Counter({"read alike": LOG - told.total()})


def fuzz(n, compare, seed):
    """Compares batches, counts outcomes; prints the seed of a difference."""
    arena, told = Arena(), Counter()
    for k in range(0, n, LOG):
        try:
            told += compare(np.random.default_rng([seed, k]), arena)
        except BaseException:
            print(f"seed {[seed, k]}")
            raise
    return told
