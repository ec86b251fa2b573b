"""Base, and methods that remove insignificant estimates (Section IV.A)."""

from __future__ import annotations

import numpy as np
from scipy.special import ndtri

from ldp.consistency.method import Indices
from ldp.estimate import Estimate, Vector, check_estimate
from ldp.fleet import FleetEstimate
from ldp.summation import exact_sum

FALSE_POSITIVES = 2
"""Base-Cut's α: expected number of absent values above the threshold (Section IV.A)."""


def base(estimate: Estimate) -> Vector:
    """Base: a copy of the unbiased estimates (Section IV). O(d).

    Example:
        >>> import ldp
        >>> estimate = ldp.Estimate([0.75, 0.5, -0.25, -0.125], 1000, ldp.oracle("olh", epsilon="1", domain_size=4))
        >>> base(estimate), base_pos(estimate), base_cut(estimate)
        (array([ 0.75 ,  0.5  , -0.25 , -0.125]), array([0.75, 0.5 , 0.  , 0.  ]), array([0.75, 0.5 , 0.  , 0.  ]))
    """
    check_estimate(estimate)
    return estimate.frequencies.copy()


def base_pos(estimate: Estimate) -> Vector:
    """Base-Pos: sets negative estimates to 0 (Section IV.A). O(d).

    Returns (d,) float64. The sum is usually above 1.
    """
    check_estimate(estimate)
    return np.maximum(estimate.frequencies, 0.0)


def post_pos(estimate: Estimate) -> Vector:
    """Post-Pos: sets negative answers of queries to 0 (Section IV.A). O(d).

    The result contains the answers for single values, which are the same as under Base-Pos. The answer for a set is the
    sum of Base over the set, or 0 if this sum is negative. `ldp.answer` computes it.
    """
    check_estimate(estimate)
    return np.maximum(estimate.frequencies, 0.0)


def clamped(estimate: Estimate | FleetEstimate, indices: Indices, _frequencies: Vector) -> float:
    """Returns Post-Pos's answer for a set: the sum of Base, or 0 if negative."""
    return max(exact_sum(estimate.frequencies[indices]), 0.0)


def base_cut(estimate: Estimate) -> Vector:
    """Base-Cut: sets estimates below T = max(0, F⁻¹(1 − α/d)·σ) to 0. O(d).

    Returns (d,) float64. Source: Section IV.A, Equation 7, with α = 2. For d ≤ 4 the quantile is not positive (or does
    not exist) and T is 0.
    """
    check_estimate(estimate)
    frequencies = estimate.frequencies
    return np.where(frequencies >= threshold(len(frequencies)) * estimate.sigma, frequencies, 0.0)


def threshold(d: int) -> float:
    """Returns T/σ of Base-Cut, which two of d absent values exceed on average."""
    return -float(ndtri(FALSE_POSITIVES / d)) if d > 2 * FALSE_POSITIVES else 0.0
