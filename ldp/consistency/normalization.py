"""The methods that make the estimates sum to 1 (Section IV.B); constrained least squares (Section IV.C)."""

from __future__ import annotations

import math

import numpy as np

from ldp.estimate import Estimate, Vector


def norm(estimate: Estimate) -> Vector:
    """Norm: add one δ to every estimate so that the sum is 1 (Section IV.B). Unbiased.

    Args:
        estimate: f̃ over the domain.

    Returns:
        (d,) float64 with sum 1; may be negative. O(d).

    Example:
        >>> import ldp
        >>> oracle = ldp.oracle("olh", epsilon="1", domain_size=4)
        >>> norm(ldp.Estimate([0.75, 0.5, -0.25, -0.125], 1000, oracle))
        array([ 0.78125,  0.53125, -0.21875, -0.09375])
    """
    # Relative to the largest, δ is computed from differences and does not inherit the size of the estimates.
    shifted = estimate.frequencies - float(estimate.frequencies.max())
    return shifted + (1.0 - math.fsum(shifted)) / len(shifted)


def norm_mul(estimate: Estimate) -> Vector:
    """Norm-Mul: negative estimates become 0, the others are multiplied by one γ > 0 so that the sum is 1.

    Source: Section IV.B. Where no estimate is positive there is no such γ and every value gets 1/d.

    Args:
        estimate: f̃ over the domain.

    Returns:
        (d,) float64, non-negative, with sum 1. O(d).

    Example:
        >>> import ldp
        >>> oracle = ldp.oracle("olh", epsilon="1", domain_size=4)
        >>> norm_mul(ldp.Estimate([0.75, 0.5, -0.25, -0.125], 1000, oracle))
        array([0.6, 0.4, 0. , 0. ])
    """
    positive = np.maximum(estimate.frequencies, 0.0)
    largest = float(positive.max())
    if largest == 0.0:
        return np.full(len(positive), 1.0 / len(positive))
    relative = positive / largest  # neither the sum nor the quotients can overflow or underflow together
    return relative / math.fsum(relative)


def norm_cut(estimate: Estimate) -> Vector:
    """Norm-Cut: keep estimates ≥ θ as they are, all others become 0 (Section IV.B).

    If the positive estimates sum to at most 1, only the negative ones go. Else θ is the smallest positive
    estimate for which the kept ones sum to at most 1; equal estimates are kept or cut together; nothing is
    rescaled, so the sum may be below 1. If even the largest does not fit, it alone is kept, at 1 (m equal
    ones at 1/m).

    Args:
        estimate: f̃ over the domain.

    Returns:
        (d,) float64, non-negative, with a sum of at most 1 (up to rounding). O(d log d).

    Example:
        >>> import ldp
        >>> oracle = ldp.oracle("olh", epsilon="1", domain_size=4)
        >>> norm_cut(ldp.Estimate([0.75, 0.5, -0.25, -0.125], 1000, oracle))
        array([0.75, 0.  , 0.  , 0.  ])
    """
    frequencies = estimate.frequencies
    # Estimates that sum to exactly 1 (GRR's do) must not fail the comparison by the rounding of f̃ itself.
    p, q = estimate.oracle.p, estimate.oracle.q
    one = 1.0 + 4.0 * np.finfo(np.float64).eps * (1.0 + len(frequencies) * float(q / (p - q)))
    positive = np.maximum(frequencies, 0.0)
    if positive.max() <= one and math.fsum(positive) <= one:
        return positive
    thetas, ties = np.unique(positive[positive > 0.0], return_counts=True)
    kept_sums = np.cumsum((thetas * ties)[::-1])
    fits = int(np.count_nonzero(kept_sums <= one))
    if fits == 0:
        return np.where(frequencies == thetas[-1], 1.0 / ties[-1], 0.0)
    return np.where(frequencies >= thetas[-fits], frequencies, 0.0)


def norm_sub(estimate: Estimate) -> Vector:
    """Norm-Sub: f' = max(f̃ + δ, 0) with the δ that makes the sum 1 (Section IV.B).

    It is the solution of constrained least squares (Section IV.C, Appendix A): the Euclidean projection of
    f̃ on the simplex. Negative estimates take part in finding δ: zeroing them first gives another answer
    when the positive ones sum to less than 1.

    Args:
        estimate: f̃ over the domain.

    Returns:
        (d,) float64, non-negative, with sum 1. O(d log d).

    Example:
        >>> import ldp
        >>> oracle = ldp.oracle("olh", epsilon="1", domain_size=4)
        >>> norm_sub(ldp.Estimate([0.75, 0.5, -0.25, -0.125], 1000, oracle))
        array([0.625, 0.375, 0.   , 0.   ])
    """
    return project_on_simplex(estimate.frequencies)


def project_on_simplex(values: Vector) -> Vector:
    """The point of the simplex {f ≥ 0, Σf = 1} nearest to `values`, exact up to rounding.

    Let u be the values in descending order. The j largest are all positive in the solution exactly if
    Σ_{i≤j} (u_i − u_j) < 1; that sum only grows with j, so the kept set is the longest such prefix.

    Args:
        values: (d,) finite numbers.

    Returns:
        (d,) float64, non-negative, with sum 1. O(d log d).
    """
    shifted = values - float(values.max())
    near = np.sort(shifted[shifted > -1.0])[::-1]  # one that is 1 below the largest cannot be kept
    steps = near[:-1] - near[1:]
    excess = np.cumsum(steps * np.arange(1, len(near)))  # Σ_{i≤j} (u_i − u_j) for j = 2, 3, …
    kept = 1 + int(np.count_nonzero(excess < 1.0))
    delta = (1.0 - math.fsum(near[:kept])) / kept
    return np.maximum(shifted + delta, 0.0)
