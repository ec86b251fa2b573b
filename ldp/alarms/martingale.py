"""Base class of the alarms' tests, which use a mean of martingales."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, ClassVar

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

    from ldp.oracles import Oracle


class Martingale(ABC):
    """Tests one property of honest reports, block by block.

    `evidence` is the logarithm of the mean of non-negative (super)martingales that start at 1. By Ville's inequality
    (1939) the mean reaches 1/level with a probability of at most `level`. This bounds the probability of a false alarm
    between two calls of `begin`. The constructor raises ValueError if the test does not apply to the oracle, or if
    `level` is not in (0, 1).
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
        """Returns whether the test applies to the oracle's reports."""

    @staticmethod
    @abstractmethod
    def _refusal(oracle: Oracle) -> str:
        """Returns the error message for an oracle that the test does not apply to."""

    def begin(self) -> None:
        """Restarts the test with the full false-alarm risk."""
        self.evidence = 0.0

    @abstractmethod
    def look(self, reports: npt.NDArray[np.void]) -> bool:
        """Adds a block of n valid reports; returns whether to raise an alarm."""

    @property
    @abstractmethod
    def found(self) -> str:
        """The evidence since `begin` as text."""

    def _reaches(self, logs: npt.NDArray[np.float64]) -> bool:
        """Sets `evidence` from logarithms; returns whether to raise an alarm."""
        self.evidence = float(np.logaddexp.reduce(logs) - math.log(logs.size))
        return self.evidence >= self._bound
