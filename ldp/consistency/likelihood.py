"""MLE-Apx: approximate maximum likelihood (Section IV.D, Appendix B)."""

from __future__ import annotations

import numpy as np

from ldp.estimate import Estimate, Vector, check_estimate
from ldp.summation import exact_sum


def mle_apx(estimate: Estimate) -> Vector:
    """MLE-Apx: the f' on the simplex that minimizes Σ (f' − f̃)²/(Q + f'·B).

    With Q = q(1−q) and B = (p−q)(1−p−q), Q + f'·B is proportional to the variance of f̃ (Equation 3). As in the paper,
    the likelihood omits the logarithm of the variance. Let m be the number of estimates that are kept (f' > 0), S the
    sum of these estimates, and β = B/Q. Then the Karush-Kuhn-Tucker conditions give

        f' = ((m + β)·f̃ + 1 − S) / (m + β·S)    for kept estimates, else 0.

    The solution printed in the paper has sign errors. The correct form is f' = (A·f̃ + Q·x)/(A − B·x) with A = p − q
    and x = A(1 − S)/(m·Q + B). Let u_j be the j-th largest estimate, and N_j the numerator for f̃ = u_j if the j
    largest estimates are kept. Then N_{j+1} − N_j = −(j + β)·(u_j − u_{j+1}) ≤ 0, because β > −1. Therefore, the kept
    estimates are the u_j with N_j > 0. An f̃ that is impossible for counts in 0..n is first moved to the nearest
    possible f̃. Returns (d,) float64, non-negative, with sum 1. O(d log d).

    Example:
        >>> import ldp
        >>> oracle = ldp.oracle("olh", epsilon="1", domain_size=4)
        >>> mle_apx(ldp.Estimate([0.75, 0.5, -0.25, -0.125], 1000, oracle)).round(4)
        array([0.6207, 0.3793, 0.    , 0.    ])
    """
    check_estimate(estimate)
    p, q = estimate.oracle.p, estimate.oracle.q
    beta = float((p - q) * (1 - p - q) / (q * (1 - q)))
    possible = np.clip(estimate.frequencies, float(-q / (p - q)), float((1 - q) / (p - q)))
    top = float(possible.max())
    shifted = possible - top
    # The numerator at the largest estimate is positive, but can round to 0 if p is nearly 1.
    at_top = max(1.0 + beta * top, float(np.finfo(np.float64).tiny))

    ordered = np.sort(shifted)[::-1]
    falls = (np.arange(1, len(ordered)) + beta) * (ordered[:-1] - ordered[1:])
    kept = 1 + int(np.count_nonzero(np.cumsum(falls) < at_top))
    total = exact_sum(ordered[:kept])
    numerator = at_top - total + (kept + beta) * shifted
    return np.maximum(numerator / (kept * at_top + beta * total), 0.0)
