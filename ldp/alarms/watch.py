"""Tests a sample of a stream's reports, and raises alarms."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ldp.alarms.hamming_weight import HammingWeight
from ldp.alarms.martingale import Martingale
from ldp.alarms.repeats import Repeats
from ldp.alarms.uniform import Uniform

if TYPE_CHECKING:
    import numpy.typing as npt

    from ldp.oracles import Oracle

RISK = 5e-7  # Probability of a false alarm of any test in one period; an hour overlaps at most two periods
HOUR = 3600.0
ENOUGH = 1_000_000
"""Smallest number of reports in a period without an alarm: enough to detect 0.1 % of poisoning reports."""
BLOCK, BLOCK_BYTES = 4096, 1 << 22
TESTS = (HammingWeight.name, Uniform.name, Repeats.name)


@dataclass(frozen=True)
class Alarm:
    """A failed test, with the number of tested reports and the evidence."""

    test: str
    reports: int
    found: str


class Watch:
    """Tests a sample of reports; false alarms are rarer than 1 in 10⁶ hours.

    The sample is at most one block of 4,096 reports or 4 MiB per second. It contains all reports of a slow stream. From
    each batch of a fast stream, it takes consecutive reports that start at a random place. `risk` is the probability of
    a false alarm of any test in one period. A period lasts at least an hour and, without an alarm, until at least 10⁶
    reports are tested. A test raises at most one alarm per period.

    Pass each report only once. The tests are not valid for reports that are passed again, for example after a failure.

    Example:
        >>> import ldp, time
        >>> olh = ldp.OLH("1", domain_size=10)
        >>> watch, rng = Watch(olh, time.monotonic, np.random.default_rng(1)), np.random.default_rng(2)
        >>> [alarm.test for alarm in watch.look(np.repeat(olh.perturb([3], rng=rng), 4096))]
        ['uniform', 'repeats']
    """

    def __init__(
        self,
        oracle: Oracle,
        clock: Callable[[], float],
        rng: np.random.Generator | None = None,
        risk: float = RISK,
    ) -> None:
        self._clock = clock
        self._rng = np.random.default_rng() if rng is None else rng
        kinds = [kind for kind in (HammingWeight, Uniform, Repeats) if kind.applies(oracle)]
        share = risk / max(len(kinds), 1)
        self._tests: list[Martingale] = [
            Uniform(oracle, share, self._rng) if kind is Uniform else kind(oracle, share) for kind in kinds
        ]
        self._block = np.empty(block_of(oracle) if kinds else 0, oracle.report_dtype)
        self._filled, self._place = 0, self._rng.random()
        self._then, self._due = clock(), float(self._block.size)
        self._begin()

    def _begin(self) -> None:
        self._began, self._looked, self._raised = self._clock(), 0, set[str]()
        for test in self._tests:
            test.begin()

    def look(self, reports: npt.NDArray[np.void]) -> list[Alarm]:
        """Tests a sample of n valid reports; returns new alarms. O(sample)."""
        if not self._tests or not reports.size:
            return []
        now, most = self._clock(), self._block.size
        self._due = min(most, self._due + (now - self._then) * most)
        self._then = now
        if (many := min(reports.size, int(self._due))) < 1:
            return []
        self._due -= many
        first = int(self._place * (reports.size - many + 1))
        chosen, alarms = reports[first : first + many], list[Alarm]()
        while chosen.size:
            room = self._block.size - self._filled
            some, chosen = chosen[:room], chosen[room:]
            self._block[self._filled : self._filled + some.size] = some
            self._filled += some.size
            if self._filled == self._block.size:
                alarms += self._test_block()
        return alarms

    def _test_block(self) -> list[Alarm]:
        self._filled, self._place = 0, self._rng.random()
        if self._clock() >= self._began + HOUR and (self._raised or self._looked >= ENOUGH):
            self._begin()
        self._looked += self._block.size
        alarms = []
        for test in self._tests:
            if test.look(self._block) and test.name not in self._raised:
                self._raised.add(test.name)
                alarms.append(Alarm(test.name, self._looked, test.found))
        return alarms


def block_of(oracle: Oracle) -> int:
    """Returns the number of reports in a block."""
    return max(2, min(BLOCK, BLOCK_BYTES // oracle.report_bytes))
