"""Base and the ten methods: how many sorts of the estimates one costs."""

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

import ldp
from ldp.consistency import METHODS
from tests.bench.measure import Line, compare


def lines() -> Iterator[Line]:
    """Seconds, at two sizes of the domain."""
    for d, n in ((1_000, 1_000_000), (1_000_000, 10_000_000)):
        estimate = estimated(ldp.OLH("1", domain_size=d), zipf(d, n))
        unsorted = estimate.frequencies
        for name, method in METHODS.items():
            yield compare(
                f"method {name}, d={d}",
                lambda method=method, estimate=estimate: method(estimate),  # type: ignore[misc]
                lambda unsorted=unsorted: np.sort(unsorted),  # type: ignore[misc]
                peer_name="np.sort of the estimates",
                setup=f"OLH, ε=1, n={n}, Zipf 1.1",
            )


def zipf(d: int, n: int) -> npt.NDArray[np.int64]:
    """How many of n users have each value, drawn from Zipf's distribution with exponent 1.1, as in the paper."""
    weights = np.arange(1, d + 1) ** -1.1
    return np.random.default_rng(3).multinomial(n, weights / weights.sum())


def estimated(oracle: ldp.Oracle, histogram: npt.NDArray[np.int64]) -> ldp.Estimate:
    """An estimate as the users' reports would give it: each value's support drawn by itself, from p and q."""
    rng, n = np.random.default_rng(4), int(histogram.sum())
    support = rng.binomial(histogram, float(oracle.p)) + rng.binomial(n - histogram, float(oracle.q))
    return oracle.estimate(support, n)
