"""Timestamps of simulated records."""

from collections.abc import Callable

import numpy as np


def spread(users: int, *, begin: int, end: int, jitter: int, seed: int) -> Callable[[int], int]:
    """Returns a function from a user's index to a record's timestamp.

    Spreads users evenly from `begin` to `end`, in milliseconds since the epoch. A record is up to `jitter`
    milliseconds earlier, but not before `begin`.

    Example:
        >>> at = spread(4, begin=1000, end=3000, jitter=0, seed=1)
        >>> [at(before) for before in range(5)]
        [1000, 1500, 2000, 2500, 3000]
    """
    rng = np.random.default_rng([seed, 2])  # independent of the draws of crowd and records

    def at(before: int) -> int:
        due = begin + (end - begin) * min(before, users) // users
        return max(begin, due - int(rng.integers(0, jitter, endpoint=True)))

    return at
