"""Populations in which neighbouring values have similar frequencies.

Base is transformed to Haar wavelets at a random shift of the domain. A coefficient of scale 2^j contrasts the sums of
two neighbouring blocks of 2^j values, and its noise is σ at every scale. A smooth population with several peaks has
large coefficients at the coarse scales only, and a population with steps has large coefficients near the steps. If the
order of the values has no meaning, the structure is equally strong at all scales.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import numpy.typing as npt
from scipy.special import ndtri

from ldp.consistency.baseline import FALSE_POSITIVES
from ldp.consistency.normalization import project_on_simplex
from ldp.estimate import Estimate, Vector

RARE = 0.01  # expected number of coefficients of a transform without structure that are significant
ROOT = 2**0.5

Mask = npt.NDArray[np.bool_]


def draws(estimate: Estimate, rng: np.random.Generator) -> Iterator[Vector]:
    """Yields posterior draws of smooth populations: (d,), sum 1. O(d).

    The coefficients of a scale are normal around 0. Their variance is σ²/v − σ² with a flat prior for v, capped at 1
    (Strawderman 1971), except for significant coefficients, which have a flat prior.
    """

    def posterior(seen: Vector, significant: Mask) -> Vector:
        squares = float((seen**2).sum(where=~significant))
        shape = np.count_nonzero(~significant) / 2 + 1
        noise = min(1.0, 2 * rng.gamma(shape) / max(squares, 1e-300))
        share = np.where(significant, 1.0, 1.0 - noise)
        drawn: Vector = share * seen + np.sqrt(share) * rng.standard_normal(len(seen))
        return drawn

    return _populations(estimate, rng, posterior, FALSE_POSITIVES)


def significant(estimate: Estimate, rng: np.random.Generator) -> Iterator[Vector]:
    """Yields populations without insignificant structure: (d,), sum 1. O(d)."""
    return _populations(estimate, rng, lambda seen, significant: np.where(significant, seen, 0.0), RARE)


def _populations(
    estimate: Estimate,
    rng: np.random.Generator,
    changed: Callable[[Vector, Mask], Vector],
    false_positives: float,
) -> Iterator[Vector]:
    d = len(estimate.frequencies)
    size = 1 << (d - 1).bit_length()
    z = np.pad(estimate.frequencies / estimate.sigma, (0, size - d), "symmetric")
    least = -float(ndtri(min(false_positives / size, 1.0) / 2))
    while True:
        shift = int(rng.integers(size))
        rest, details = np.roll(z, shift), []
        while len(rest) > 1:
            left, right = rest[::2], rest[1::2]
            seen = (left - right) / ROOT
            details.append(changed(seen, abs(seen) > least))
            rest = (left + right) / ROOT
        for detail in reversed(details):
            rest = np.stack([rest + detail, rest - detail], axis=1).ravel() / ROOT
        yield project_on_simplex(estimate.sigma * np.roll(rest, -shift)[:d])
