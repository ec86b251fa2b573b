"""Score intervals of the mixture f̃ = Σ w_r·f̃_r of several documents.

Document r has the variance (out_r + f_r·(in_r − out_r))/(n_r(p_r−q_r)²), where in_r and out_r are the
variances of a report's support for users with and without the value (p(1−p) and q(1−q)). Therefore

    n·Var f̃ = Σ w_r·V_r,  V_r = A_r + B_r·f_r,  A_r = out_r/(p_r−q_r)²,  B_r = (in_r − out_r)/(p_r−q_r)².

For one value, B = (1−p−q)/(p−q). It is 1 for OUE, 0 for SUE, −1 for Hadamard, from −1 to about 2 for OLH, Subset
Selection and PGR, and (d−2)/(e^ε−1) for GRR. The largest B of all documents gives a bound, which is loose if one
document uses GRR. The interval uses V = Σ w_r·V_r with the documents' own estimates, clipped to [0, 1]. An
error x of f̃ changes V by B·x on average, where B is the mean of B_r, weighted by w_r·V_r: documents contribute to the
error in proportion to their variances. The result is the score interval with the variance (V + B·(f − c))/n at f,
where c is the mixture of the clipped estimates.

The shares of all documents are in [0, 1], so V at f is limited to the range from Σ w_r·min(A_r, A_r + B_r) to
Σ w_r·max(A_r, A_r + B_r). This matters for a document of few reports and a large B, whose own estimate is far outside
[0, 1]. For one document, the ends in [0, 1] are the ends of its own interval.

If users are a sample of a population, and devices have k_r reports of document r, the sample adds the variance
Σ w_r·k_r·E_r(x − f)²/n, where x is 1 for a user with the value and 0 for others: E_r(x − f)² = f_r(1−f)² + (1−f_r)f².
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from ldp.intervals import score
from ldp.intervals.score import Of

Vector = npt.NDArray[np.float64]
Mix = Callable[[Iterable[Vector]], Vector]
"""Returns Σ w_r·x_r for one vector of each document."""

_LEAST = 1e-300  # Least variance, so that weights by variance exist
_RARE = 1e-9  # Least share of users with and without a value, for the same reason


@dataclass(frozen=True)
class Part:
    """One document's estimate of k frequencies.

    Attributes:
        frequencies: (k,) f̃_r.
        inside: variance of a report's support for users with the value, with repeats (`Repeated.repeated_variance`).
        outside: the variance for other users.
        difference: p − q.
        per_device: k_r, the number of reports of a device.
    """

    frequencies: Vector
    inside: float
    outside: float
    difference: float
    per_device: int


def interval(mix: Mix, parts: Sequence[Part], n: Vector, level: float, of: Of) -> tuple[Vector, Vector]:
    """Returns score intervals of a mixture; see the equations of the module.

    `n` is (k,), the number of reports. Level, estimand and result are as for `score.interval`.
    """
    shares, steep, variances, least, most = [], [], [], [], []
    for part in parts:
        share = np.clip(part.frequencies, 0.0, 1.0)
        present, absent = (np.full_like(share, x / part.difference**2) for x in (part.inside, part.outside))
        shares.append(share)
        steep.append(present - absent)
        variances.append(np.maximum((1.0 - share) * absent + share * present, _LEAST))
        least.append(np.minimum(absent, present))
        most.append(np.maximum(absent, present))
    estimated, variance = mix(part.frequencies for part in parts), mix(variances)
    bend = mix(b * v for b, v in zip(steep, variances, strict=True)) / variance
    absent = variance - bend * mix(shares)
    per_device = _per_device(mix, parts) if of == "population" else np.ones(1)
    ends = (
        score.interval(estimated, 1, Fraction(1), v1 / n, v0 / n, level, of, per_device / n)
        for v0, v1 in ((absent, absent + bend), (mix(least),) * 2, (mix(most),) * 2)
    )
    (low, high), (least_low, least_high), (most_low, most_high) = ends
    low, high = np.minimum(low, least_low), np.maximum(high, least_high)
    return np.maximum(low, most_low), np.minimum(high, most_high)


def _per_device(mix: Mix, parts: Sequence[Part]) -> Vector:
    """Returns the mean of k_r, weighted by Σ w_r·E_r(x − f)²."""
    present = [np.clip(part.frequencies, _RARE, 1.0 - _RARE) for part in parts]
    repeats = [part.per_device for part in parts]
    f = mix(present)
    with_value = mix(k * each for k, each in zip(repeats, present, strict=True))
    without = mix(k * (1.0 - each) for k, each in zip(repeats, present, strict=True))
    return np.asarray((1.0 - f) / f * with_value + f / (1.0 - f) * without)
