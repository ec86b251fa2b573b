"""Recommends the best method for each query, on a background thread.

`ldp.analysis.method_selection` chooses the method by simulation, which takes seconds. Snapshots contain the newest
recommendation, or none if no method is clearly best.
"""

import math
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial

import numpy as np

import ldp
from ldp.analysis.method_selection import choose_all
from ldp.consistency import METHODS
from ldp.query import Query
from ldp.snapshot import Recommended
from worker.counting.ports import Events

REPEATS = 50
"""Simulated collections per recommendation."""
LARGEST = 10 << 20
"""Maximum number of values in all simulated collections of a recommendation. Large domains get fewer collections."""
EVERY_SECONDS = 60.0
"""Minimum time from one recommendation to the next."""
FEWEST = 10
"""Minimum number of collections for a recommendation. Domains of one value, or too large for this number, get none."""
SHARE = 0.1
"""Maximum share of one core for a stream's recommendations."""


def in_background(work: Callable[[], None]) -> None:
    """Runs work on a daemon thread."""
    threading.Thread(target=work, name="recommend", daemon=True).start()


class Recommender:
    """Keeps the recommendations for a stream's queries up to date.

    Args:
        queries: the queries; without any, nothing is computed.
        events: receives failures.
        clock: returns monotonic seconds.
        start: runs work in the background.
        methods: the published methods, which may be recommended.
    """

    def __init__(
        self,
        queries: Sequence[Query],
        events: Events,
        clock: Callable[[], float] = time.monotonic,
        start: Callable[[Callable[[], None]], None] = in_background,
        methods: Sequence[str] = tuple(METHODS),
    ) -> None:
        self._events, self._clock, self._start = events, clock, start
        self._queries, self._among = queries, tuple(methods)
        self._due, self._busy, self._reports = -math.inf, False, 0
        self._latest: Mapping[str, Recommended] = {}

    @property
    def latest(self) -> Mapping[str, Recommended]:
        """The newest recommendations by query name."""
        return self._latest

    @property
    def methods(self) -> Mapping[str, str]:
        """The methods of `latest` by query name."""
        return {name: found.method for name, found in self._latest.items()}

    def offer(self, sequence: int, estimate: ldp.Estimate) -> None:
        """Starts a recommendation, unless one is running or was made recently.

        Args:
            sequence: the snapshot's number, which is also the simulation's seed.
            estimate: the published estimate, which no longer changes.
        """
        d = estimate.oracle.domain_size
        repeats = min(REPEATS, LARGEST // d) if d > 1 else 0
        if not self._queries or repeats < FEWEST:
            return
        if not self._busy and self._clock() >= self._due and estimate.n != self._reports:
            self._busy = True
            self._start(partial(self._recommend, sequence, estimate, repeats))

    def _recommend(self, sequence: int, estimate: ldp.Estimate, repeats: int) -> None:
        began = self._clock()
        try:
            rng = np.random.default_rng(sequence)
            rankings = choose_all(estimate, self._queries, rng, repeats, self._among)
            self._latest = {
                query.name: Recommended(ranking.best, sequence)
                for query, ranking in zip(self._queries, rankings, strict=True)
                if ranking.clear
            }
            self._reports = estimate.n
        except Exception as error:  # any error: snapshots continue without a recommendation
            self._events.recommend_failed(sequence, error)
        finally:
            ended = self._clock()
            self._due = max(began + EVERY_SECONDS, ended + (ended - began) * (1 / SHARE - 1))
            self._busy = False
