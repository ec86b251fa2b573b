"""Explicit channels: the document contains probabilities that determine ε."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

from ldp.oracles.described import INFINITE
from ldp.oracles.oracle import Oracle
from ldp.sampling import epsilon_above, written


class ExplicitChannel(Oracle):
    """A protocol that is configured with probabilities instead of ε.

    Attributes:
        E: the exact largest ratio of a report's probabilities under two values. It is not set if ε is infinite.
        epsilon: ln E rounded up to six decimal places, or infinity if a report can reveal its value.
    """

    def _set_epsilon(self, ratio: tuple[Fraction, Fraction], given: str | None) -> None:
        """Sets E and ε from the numerator and denominator of the largest ratio."""
        if self.q == 0:
            raise ValueError(
                "q is 0; it must be above 0, because with q = 0 a report supports only its user's value and needs no "
                "estimate"
            )
        more, less = ratio
        if given is not None and not isinstance(given, str):
            raise TypeError(f"epsilon is {given!r}; for {self.name} omit it, or pass 'infinite'")
        if given not in (None, INFINITE):
            raise ValueError(
                f"epsilon is {given[:80]!r}; for {self.name} omit it, because the probabilities determine it"
            )
        if less == 0:
            if given is None:
                raise ValueError(
                    "these probabilities make epsilon infinite: a report can reveal its value; set "
                    "epsilon = 'infinite' if this is intended"
                )
            self.epsilon = math.inf
            return
        self.E = more / less
        self.epsilon = epsilon_above(self.E)
        if given is not None:
            raise ValueError(f"epsilon is 'infinite'; these probabilities give {self.promise}, so omit it")

    @property
    def spent(self) -> str:
        """The ε of one report as written in documents: "num/den" or "infinite"."""
        return INFINITE if isinstance(self.epsilon, float) else written(self.epsilon)

    def parameters(self) -> dict[str, Any]:
        """Returns the protocol's part of the document; see `Oracle.parameters`."""
        return super().parameters() | ({"epsilon": INFINITE} if self.epsilon == math.inf else {})

    @property
    def promise(self) -> str:
        """The ε of one report as text, such as 'ε ≤ 1.098613'."""
        return "ε is infinite: no privacy" if self.epsilon == math.inf else f"ε ≤ {float(self.epsilon)}"
