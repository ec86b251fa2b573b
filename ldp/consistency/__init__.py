"""Base and the paper's ten ways to make an estimate consistent (Section IV)."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from ldp.consistency.baseline import base, base_cut, base_pos, post_pos
from ldp.consistency.empirical_bayes import empirical_bayes
from ldp.consistency.likelihood import mle_apx
from ldp.consistency.normalization import norm, norm_cut, norm_mul, norm_sub
from ldp.consistency.power import power, power_ns
from ldp.estimate import Estimate, Vector


class Promise(NamedTuple):
    """What a method's vector always satisfies (Table I)."""

    non_negative: bool
    sums_to_one: bool


METHODS: dict[str, Callable[[Estimate], Vector]] = {
    "base": base,
    "base-pos": base_pos,
    "post-pos": post_pos,
    "base-cut": base_cut,
    "norm": norm,
    "norm-mul": norm_mul,
    "norm-cut": norm_cut,
    "norm-sub": norm_sub,
    "mle-apx": mle_apx,
    "power": power,
    "power-ns": power_ns,
}
"""Name -> method, in the paper's order. Each maps an Estimate to a new (d,) float64 vector and keeps the
weak order of the estimates: a larger one never becomes the smaller, equal ones stay equal.

Example:
    >>> import ldp
    >>> estimate = ldp.Estimate([0.75, 0.5, -0.25], 1000, ldp.oracle("grr", epsilon="1", domain_size=3))
    >>> METHODS["norm-sub"](estimate)
    array([0.625, 0.375, 0.   ])
"""

EXTRA: dict[str, Callable[[Estimate], Vector]] = {"empirical-bayes": empirical_bayes}
"""Name -> method that is not the paper's. It keeps the weak order, is non-negative and sums to 1."""

PROMISES: dict[str, Promise] = {
    "base": Promise(non_negative=False, sums_to_one=False),
    "base-pos": Promise(non_negative=True, sums_to_one=False),
    "post-pos": Promise(non_negative=True, sums_to_one=False),
    "base-cut": Promise(non_negative=True, sums_to_one=False),
    "norm": Promise(non_negative=False, sums_to_one=True),
    "norm-mul": Promise(non_negative=True, sums_to_one=True),
    "norm-cut": Promise(non_negative=True, sums_to_one=False),
    "norm-sub": Promise(non_negative=True, sums_to_one=True),
    "mle-apx": Promise(non_negative=True, sums_to_one=True),
    "power": Promise(non_negative=True, sums_to_one=False),
    "power-ns": Promise(non_negative=True, sums_to_one=True),
}

__all__ = ["EXTRA", "METHODS", "PROMISES", "Promise"]
