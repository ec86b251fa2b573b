"""Applies several methods to one estimate."""

from __future__ import annotations

from collections.abc import Iterable

from ldp.consistency import METHODS
from ldp.consistency.normalization import project_on_simplex
from ldp.estimate import Estimate, Vector
from ldp.fleet import FleetEstimate


def by_method(estimate: Estimate | FleetEstimate, methods: Iterable[str]) -> dict[str, Vector]:
    """Applies several methods to an estimate; PowerNS reuses the costly Power.

    Args:
        estimate: f̃ over the domain, or a fleet's estimate.
        methods: keys of `METHODS`.

    Returns:
        The vector of each method, by name. It equals the result of the method bit for bit. O(d log d).

    Example:
        >>> import ldp
        >>> estimate = ldp.Estimate([0.75, 0.5, -0.25], 1000, ldp.oracle("grr", epsilon="1", domain_size=3))
        >>> {name: float(vector.sum().round(9)) for name, vector in by_method(estimate, ["base", "norm-sub"]).items()}
        {'base': 1.0, 'norm-sub': 1.0}
    """
    if isinstance(estimate, FleetEstimate):
        names = tuple(methods)
        each = [by_method(one, names) for one in estimate.counted]
        return {name: estimate.mixture(vectors[name] for vectors in each) for name in names}
    made: dict[str, Vector] = {}
    for name in methods:
        if name == "power-ns" and "power" in made:
            made[name] = project_on_simplex(made["power"])
        else:
            made[name] = METHODS[name](estimate)
    return made
