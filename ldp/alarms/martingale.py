"""The base of all tests: an anytime-valid test by a mean of martingales."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, ClassVar

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

    from ldp.oracles import Oracle


class Martingale(ABC):
    """A test of one law of honest reports after every block, at one risk for all blocks.

    The evidence, a logarithm, is that of the mean of non-negative (super)martingales that begin at 1. By Ville's
    inequality (1939) it ever reaches 1/level with probability `level` at most: the probability of a false alarm from
    one `begin` to the next. Raises ValueError for an oracle that the test does not apply to, or a level outside (0, 1).
    """

    name: ClassVar[str]

    def __init__(self, oracle: Oracle, level: float) -> None:
        if not self.applies(oracle):
            raise ValueError(self._refusal(oracle))
        if not 0 < level < 1:
            raise ValueError(f"level is {level}; it must be above 0 and below 1")
        self._oracle, self._bound = oracle, -math.log(level)
        self.begin()

    @staticmethod
    @abstractmethod
    def applies(oracle: Oracle) -> bool:
        """Whether the law is one of the oracle's reports."""

    @staticmethod
    @abstractmethod
    def _refusal(oracle: Oracle) -> str:
        """What is said of an oracle that it does not apply to."""

    def begin(self) -> None:
        """Begins anew, at the full risk."""
        self.evidence = 0.0

    @abstractmethod
    def look(self, reports: npt.NDArray[np.void]) -> bool:
        """Adds a block of (n,) well-formed reports; returns whether it is an alarm."""

    @property
    @abstractmethod
    def found(self) -> str:
        """What the reports since `begin` have, for people."""

    def _reaches(self, logs: npt.NDArray[np.float64]) -> bool:
        """Takes the logarithms of the (k,) martingales; returns whether their mean is an alarm. O(k)."""
        self.evidence = float(np.logaddexp.reduce(logs) - math.log(logs.size))
        return self.evidence >= self._bound
