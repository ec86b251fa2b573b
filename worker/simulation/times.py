"""Timestamps of simulated records."""

from collections.abc import Callable


def spread(users: int, begin: int, end: int) -> Callable[[int], int]:
    """Returns a function from a user's index to a record's timestamp.

    Spreads users evenly from `begin` to `end`, in milliseconds since the epoch.

    Example:
        >>> at = spread(4, begin=1000, end=3000)
        >>> [at(before) for before in range(5)]
        [1000, 1500, 2000, 2500, 3000]
    """
    return lambda before: begin + (end - begin) * min(before, users) // users
