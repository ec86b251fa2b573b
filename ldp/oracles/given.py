"""Given channels: where the probabilities are what is known, and ε is what they come to."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

from ldp.oracles.described import INFINITE
from ldp.oracles.oracle import Oracle
from ldp.sampling import epsilon_above, written


class Given(Oracle):
    """A channel whose document gives probabilities in the place of ε.

    Attributes:
        E: the largest ratio of the probabilities of one report for two values, exact: e^ε. Not there where ε is
            infinite, because some report is impossible for one value and not for another.
        epsilon: ln E, rounded up to a millionth; infinity where there is no E.
    """

    def _spends(self, ratio: tuple[Fraction, Fraction], told: str | None) -> None:
        """Sets what a report spends: the largest ratio of its probabilities, as two numbers.

        Raises:
            TypeError: an ε that is no text.
            ValueError: an infinite ε that the document does not tell, or a finite one that it does.
        """
        if self.q == 0:
            raise ValueError(
                "q is 0: a report never supports a value that is not its user's, so that there is nothing to estimate; "
                "count such reports"
            )
        more, less = ratio
        if told is not None and not isinstance(told, str):
            raise TypeError(f"epsilon is {told!r}; of {self.name} it is computed, and 'infinite' at most")
        if told not in (None, INFINITE):
            raise ValueError(
                f"epsilon is {told[:80]!r}; of {self.name} it follows from the probabilities, so leave it out"
            )
        if less == 0:
            if told is None:
                raise ValueError(
                    "these probabilities make epsilon infinite: a report can tell its value. "
                    "Say epsilon = 'infinite' where that is meant"
                )
            self.epsilon = math.inf
            return
        self.E = more / less
        self.epsilon = epsilon_above(self.E)
        if told is not None:
            raise ValueError(f"epsilon is 'infinite', but these probabilities give {self.promise}")

    @property
    def spent(self) -> str:
        """ε of one report as documents have it: "num/den", rounded up to a millionth, or "infinite"."""
        return INFINITE if isinstance(self.epsilon, float) else written(self.epsilon)

    def parameters(self) -> dict[str, Any]:
        """The protocol's part of a stream's public document: see `Oracle.parameters`."""
        return super().parameters() | ({"epsilon": INFINITE} if self.epsilon == math.inf else {})

    @property
    def promise(self) -> str:
        """What one report spends, for people: see `Oracle.promise`.

        Example:
            >>> import ldp
            >>> ldp.Response("3/4", domain_size=2).promise
            'ε ≤ 1.098613'
        """
        return "ε is infinite: no privacy" if self.epsilon == math.inf else f"ε ≤ {float(self.epsilon)}"
