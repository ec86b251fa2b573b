"""Methods that normalize the sum to 1 (Sections IV.B and IV.C)."""

from __future__ import annotations

import numpy as np

from ldp.estimate import Estimate, Vector, check_estimate
from ldp.summation import exact_sum


def norm(estimate: Estimate) -> Vector:
    """Norm: adds one δ to all estimates so that the sum is 1 (IV.B). O(d).

    Returns (d,) float64, unbiased and possibly negative.

    Example:
        >>> import ldp
        >>> estimate = ldp.Estimate([0.75, 0.5, -0.25, -0.125], 1000, ldp.oracle("olh", epsilon="1", domain_size=4))
        >>> norm(estimate), norm_mul(estimate)
        (array([ 0.78125,  0.53125, -0.21875, -0.09375]), array([0.6, 0.4, 0. , 0. ]))
        >>> norm_cut(estimate), norm_sub(estimate)
        (array([0.75, 0.  , 0.  , 0.  ]), array([0.625, 0.375, 0.   , 0.   ]))
    """
    check_estimate(estimate)
    # Differences from the largest estimate keep the rounding error of δ independent of the size of the estimates.
    shifted = estimate.frequencies - float(estimate.frequencies.max())
    return shifted + (1.0 - exact_sum(shifted)) / len(shifted)


def norm_mul(estimate: Estimate) -> Vector:
    """Norm-Mul: sets negative estimates to 0, and multiplies the others by γ.

    Source: Section IV.B. If no estimate is positive, no γ > 0 makes the sum 1, and every value gets 1/d.
    Returns (d,) float64, non-negative, with sum 1. O(d).
    """
    check_estimate(estimate)
    positive = np.maximum(estimate.frequencies, 0.0)
    largest = float(positive.max())
    if largest == 0.0:
        return np.full(len(positive), 1.0 / len(positive))
    relative = positive / largest  # avoids overflow and underflow
    return relative / exact_sum(relative)


def norm_cut(estimate: Estimate) -> Vector:
    """Norm-Cut: sets estimates below θ to 0, and keeps the others (IV.B).

    If the positive estimates sum to at most 1, only negative estimates become 0. Otherwise θ is the smallest positive
    estimate for which the kept estimates sum to at most 1. Equal estimates are kept or cut together, and no estimate is
    rescaled, so the sum may be below 1. If the m ≥ 1 largest estimates are equal and sum to more than 1, they become
    1/m and the others become 0. Returns (d,) float64 ≥ 0 with a sum of at most 1 (up to rounding). O(d log d).
    """
    check_estimate(estimate)
    frequencies = estimate.frequencies
    # The rounding of f̃ must not make estimates that sum to exactly 1, as under GRR, fail the comparison.
    p, q = estimate.oracle.p, estimate.oracle.q
    one = 1.0 + 4.0 * np.finfo(np.float64).eps * (1.0 + len(frequencies) * float(q / (p - q)))
    positive = np.maximum(frequencies, 0.0)
    if positive.max() <= one and exact_sum(positive) <= one:
        return positive
    ordered = np.sort(positive)[::-1]
    fits = int(np.searchsorted(np.cumsum(ordered), one, side="right"))  # kept estimates, ignoring ties
    dropped = ordered[min(fits, len(ordered) - 1)]
    if dropped == ordered[0]:
        largest = frequencies == dropped
        return np.where(largest, 1.0 / np.count_nonzero(largest), 0.0)
    return np.where(frequencies > dropped, frequencies, 0.0)


def norm_sub(estimate: Estimate) -> Vector:
    """Norm-Sub: f' = max(f̃ + δ, 0) with the δ that makes the sum 1 (IV.B).

    The result solves constrained least squares (Section IV.C, Appendix A). It is the Euclidean projection of f̃ onto
    the simplex. Negative estimates influence δ: setting them to 0 first changes the result if the positive estimates
    sum to less than 1. Returns (d,) float64, non-negative, with sum 1. O(d log d).
    """
    check_estimate(estimate)
    return project_on_simplex(estimate.frequencies)


def project_on_simplex(values: Vector) -> Vector:
    """Projects d numbers onto the simplex {f ≥ 0, Σf = 1}. O(d log d).

    Let u be the values in descending order. The j largest values are all positive in the solution if and only if
    Σ_{i≤j} (u_i − u_j) < 1. This sum grows with j, so the positive values are the longest such prefix of u.
    """
    shifted = values - float(values.max())
    near = _may_be_kept(shifted)
    kept = len(near)
    smallest = float(near.min()) + (1.0 - float(near.sum())) / kept
    if smallest < 1e-9:  # otherwise all are kept in spite of rounding
        near = np.sort(near)[::-1]
        steps = near[:-1] - near[1:]
        steps *= np.arange(1.0, kept)
        excess = np.cumsum(steps, out=steps)  # Σ_{i≤j} (u_i − u_j) for j = 2, 3, …
        kept = 1 + int(np.count_nonzero(excess < 1.0))
    shifted += (1.0 - exact_sum(near[:kept])) / kept
    return np.maximum(shifted, 0.0, out=shifted)


def _may_be_kept(shifted: Vector) -> Vector:
    """Selects values that can be positive in the solution; the largest is 0."""
    # for any m values, Σ(value + δ) ≤ Σ max(value + δ, 0) ≤ 1, so −δ ≥ (Σ value − 1)/m
    near = shifted[shifted > -1.0]
    while True:
        least = (float(near.sum()) - 1.0) / len(near) - 1e-9  # the sum is rounded
        rest = near[near > least]
        if 2 * len(rest) > len(near):
            return rest
        near = rest
