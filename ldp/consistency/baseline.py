"""Base, and the methods that only remove negative or insignificant estimates (Section IV.A)."""

from __future__ import annotations

import numpy as np
from scipy.special import ndtri

from ldp.consistency.method import Indices
from ldp.consistency.summation import exact_sum
from ldp.estimate import Estimate, Vector, check_estimate

FALSE_POSITIVES = 2
"""Base-Cut's α: how many values that nobody has are expected to pass the threshold (Section IV.A)."""


def base(estimate: Estimate) -> Vector:
    """Base: the estimates as they are, unbiased (Section IV): (d,) float64, a copy. O(d).

    Example:
        >>> import ldp
        >>> estimate = ldp.Estimate([0.75, 0.5, -0.25, -0.125], 1000, ldp.oracle("olh", epsilon="1", domain_size=4))
        >>> base(estimate), base_pos(estimate), base_cut(estimate)
        (array([ 0.75 ,  0.5  , -0.25 , -0.125]), array([0.75, 0.5 , 0.  , 0.  ]), array([0.75, 0.5 , 0.  , 0.  ]))
    """
    check_estimate(estimate)
    return estimate.frequencies.copy()


def base_pos(estimate: Estimate) -> Vector:
    """Base-Pos: negative estimates become 0 (Section IV.A): (d,) float64. O(d).

    The sum is usually above 1.
    """
    check_estimate(estimate)
    return np.maximum(estimate.frequencies, 0.0)


def post_pos(estimate: Estimate) -> Vector:
    """Post-Pos: each query's answer, if negative, becomes 0 (Section IV.A): (d,) float64. O(d).

    This vector answers queries for single values, where Post-Pos is Base-Pos. A set's answer is the clamped sum of
    Base, which `ldp.answer` computes.
    """
    check_estimate(estimate)
    return np.maximum(estimate.frequencies, 0.0)


def clamped(estimate: Estimate, indices: Indices, _frequencies: Vector) -> float:
    """Post-Pos's answer for a set: the sum of Base over it, or 0 if that is negative. O(m)."""
    return max(exact_sum(estimate.frequencies[indices]), 0.0)


def base_cut(estimate: Estimate) -> Vector:
    """Base-Cut: estimates below T = max(0, F⁻¹(1 − α/d)·σ) become 0: (d,) float64. O(d).

    Source: Section IV.A, Equation 7, with α = 2. For d ≤ 4 the quantile is not positive (or does not exist) and T is 0.
    """
    check_estimate(estimate)
    frequencies = estimate.frequencies
    return np.where(frequencies >= threshold(len(frequencies)) * estimate.sigma, frequencies, 0.0)


def threshold(d: int) -> float:
    """T/σ of Base-Cut: d absent values are expected to put two above it; 0 for d ≤ 4."""
    return -float(ndtri(FALSE_POSITIVES / d)) if d > 2 * FALSE_POSITIVES else 0.0
