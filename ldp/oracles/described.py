"""Description of an oracle: public document, equality, and privacy."""

from __future__ import annotations

from fractions import Fraction
from typing import Any, ClassVar

from ldp.sampling import written

INFINITE = "infinite"  # the value of ε in the document of a channel without privacy


class Described:
    """Parameters of an oracle, for its document and for comparisons.

    Attributes:
        name: name of the protocol.
        exact: names of the rational parameters in the document: ε, or the probabilities of a channel.
        own_parameters: names of the protocol's other parameters, except d.
        epsilon: exact ε of one report; explicit channels round it up to six decimal places, or set it to infinity.
        domain_size: d; the values are 0..d−1.
    """

    name: ClassVar[str]
    exact: ClassVar[tuple[str, ...]] = ("epsilon",)
    own_parameters: ClassVar[tuple[str, ...]] = ()

    epsilon: Fraction | float
    domain_size: int

    def __repr__(self) -> str:
        given = ", ".join(repr(str(number)) for number in self._given().values())
        own = "".join(f", {key}={getattr(self, key)!r}" for key in self.own_parameters)
        return f"{type(self).__name__}({given}, domain_size={self.domain_size}{own})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Described) and self.parameters() == other.parameters()

    def __hash__(self) -> int:
        return hash(repr(self))

    def parameters(self) -> dict[str, Any]:
        """Returns the protocol's part of a stream's public document.

        Example:
            >>> import ldp
            >>> ldp.GRR("0.5", domain_size=10).parameters()
            {'protocol': 'grr', 'epsilon': '1/2', 'domain_size': 10}
        """
        return {
            "protocol": self.name,
            **{key: written(number) for key, number in self._given().items()},
            "domain_size": self.domain_size,
        } | {key: getattr(self, key) for key in self.own_parameters}

    def _given(self) -> dict[str, Fraction]:
        return {key: getattr(self, key) for key in self.exact}

    @property
    def promise(self) -> str:
        """The ε of one report as text, such as 'ε = 1/2'."""
        return f"ε = {self.epsilon}"
