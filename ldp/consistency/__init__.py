"""Base, the ten methods of the paper (Section IV), and empirical Bayes."""

from __future__ import annotations

from ldp.consistency.baseline import base, base_cut, base_pos, clamped, post_pos
from ldp.consistency.empirical_bayes import empirical_bayes
from ldp.consistency.likelihood import mle_apx
from ldp.consistency.method import Method
from ldp.consistency.normalization import norm, norm_cut, norm_mul, norm_sub
from ldp.consistency.power import power, power_ns

_ALL = (
    Method("base", base, non_negative=False, sums_to_one=False),
    Method("base-pos", base_pos, non_negative=True, sums_to_one=False),
    Method("post-pos", post_pos, non_negative=True, sums_to_one=False, answer=clamped),
    Method("base-cut", base_cut, non_negative=True, sums_to_one=False),
    Method("norm", norm, non_negative=False, sums_to_one=True),
    Method("norm-mul", norm_mul, non_negative=True, sums_to_one=True),
    Method("norm-cut", norm_cut, non_negative=True, sums_to_one=False),
    Method("norm-sub", norm_sub, non_negative=True, sums_to_one=True),
    Method("mle-apx", mle_apx, non_negative=True, sums_to_one=True),
    Method("power", power, non_negative=True, sums_to_one=False),
    Method("power-ns", power_ns, non_negative=True, sums_to_one=True),
    Method("empirical-bayes", empirical_bayes, non_negative=True, sums_to_one=True, of_paper=False),
)

METHODS: dict[str, Method] = {method.name: method for method in _ALL if method.of_paper}
"""Name -> method, in the paper's order.

Example:
    >>> import ldp
    >>> estimate = ldp.Estimate([0.75, 0.5, -0.25], 1000, ldp.oracle("grr", epsilon="1", domain_size=3))
    >>> METHODS["norm-sub"](estimate)
    array([0.625, 0.375, 0.   ])
"""

EXTRA: dict[str, Method] = {method.name: method for method in _ALL if not method.of_paper}
"""Name -> method that is not in the paper."""

__all__ = ["EXTRA", "METHODS", "Method"]
