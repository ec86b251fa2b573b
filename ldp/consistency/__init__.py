"""Base, the ten methods of the paper (Section IV), and empirical Bayes."""

from __future__ import annotations

from collections.abc import Sequence

from ldp.consistency.baseline import base, base_cut, base_pos, clamped, post_pos
from ldp.consistency.empirical_bayes import empirical_bayes
from ldp.consistency.likelihood import mle_apx
from ldp.consistency.method import FOR_ONE_VALUE, Method, Methods, one_value
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

METHODS = Methods({method.name: method for method in _ALL if method.of_paper})
"""Name -> method, in the paper's order.

Example:
    >>> import ldp
    >>> estimate = ldp.Estimate([0.75, 0.5, -0.25], 1000, ldp.oracle("grr", epsilon="1", domain_size=3))
    >>> METHODS["norm-sub"](estimate)
    array([0.625, 0.375, 0.   ])
"""

EXTRA = Methods({method.name: method for method in _ALL if not method.of_paper})
"""Name -> method that is not in the paper."""


def applicable(domain_size: int, among: Sequence[str] = tuple(METHODS)) -> tuple[str, ...]:
    """Returns the methods that apply to a domain size, in order.

    Example:
        >>> applicable(1), len(applicable(2))
        (('base', 'base-pos', 'post-pos', 'base-cut'), 11)
    """
    return tuple(name for name in among if domain_size > 1 or name in FOR_ONE_VALUE)


def chosen(names: Sequence[str] | None, domain_size: int) -> tuple[str, ...]:
    """Returns the named methods, by default all that apply to a domain size.

    Raises:
        ValueError: no name, an unknown name, or a method that does not apply to one value.
    """
    if names is None:
        return applicable(domain_size)
    if not names or not METHODS.keys() >= {*names}:
        raise ValueError(f"methods are {', '.join(names) or 'none'}; allowed are {', '.join(METHODS)}")
    if others := [name for name in names if name not in applicable(domain_size)]:
        raise ValueError(one_value(others))
    return tuple(names)


__all__ = ["EXTRA", "FOR_ONE_VALUE", "METHODS", "Method", "applicable", "chosen"]
