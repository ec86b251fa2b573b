"""Explicit channels: the document gives the probabilities, and ε follows from them."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

from ldp.oracles.described import INFINITE
from ldp.oracles.oracle import Oracle
from ldp.sampling import epsilon_above, written


class ExplicitChannel(Oracle):
    """An explicit channel: the document has probabilities in place of ε.

    Attributes:
        E: the largest ratio of the probabilities of one report for two values, exact: e^ε. Missing if ε is infinite.
        epsilon: ln E, rounded up to a millionth; infinity without E.
    """

    def _set_epsilon(self, ratio: tuple[Fraction, Fraction], given: str | None) -> None:
        """Sets ε from the largest ratio of a report's probabilities, as two numbers; TypeError or ValueError."""
        if self.q == 0:
            raise ValueError(
                "q is 0: a report never supports a value that is not its user's, so that there is nothing to estimate; "
                "count such reports"
            )
        more, less = ratio
        if given is not None and not isinstance(given, str):
            raise TypeError(f"epsilon is {given!r}; of {self.name} it is computed, and 'infinite' at most")
        if given not in (None, INFINITE):
            raise ValueError(
                f"epsilon is {given[:80]!r}; of {self.name} it follows from the probabilities, so leave it out"
            )
        if less == 0:
            if given is None:
                raise ValueError(
                    "these probabilities make epsilon infinite: a report can tell its value. "
                    "Say epsilon = 'infinite' where that is meant"
                )
            self.epsilon = math.inf
            return
        self.E = more / less
        self.epsilon = epsilon_above(self.E)
        if given is not None:
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
        """The ε of one report as text, such as 'ε ≤ 1.098613'."""
        return "ε is infinite: no privacy" if self.epsilon == math.inf else f"ε ≤ {float(self.epsilon)}"
