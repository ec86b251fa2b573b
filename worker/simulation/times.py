"""Times: when simulated users would have sent, where that is spread over hours that are over."""

from collections.abc import Callable

import numpy as np


def spread(users: int, *, begin: int, end: int, jitter: int, seed: int) -> Callable[[int], int]:
    """Returns what says when a record is sent, given how many users have sent before it.

    The users are spread evenly from begin to end. A record is up to the jitter earlier than that, never before the
    begin: so no record's time is further behind that of any record before it.

    Args:
        users: how many.
        begin: when the first one sends, in milliseconds since the epoch.
        end: when all have.
        jitter: in milliseconds.
        seed: of the jitter.

    Example:
        >>> at = spread(4, begin=1000, end=3000, jitter=0, seed=1)
        >>> [at(before) for before in range(5)]
        [1000, 1500, 2000, 2500, 3000]
    """
    rng = np.random.default_rng([seed, 2])  # another draw than the crowd's, and than the records'

    def at(before: int) -> int:
        due = begin + (end - begin) * min(before, users) // users
        return max(begin, due - int(rng.integers(0, jitter, endpoint=True)))

    return at
