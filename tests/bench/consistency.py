"""Base, the ten methods and the extra one: how many sorts of the estimates one costs; below 10 at a million values."""

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

import ldp
from ldp.consistency import EXTRA, METHODS
from tests.bench.measure import Line, compare

SIZES = {1_000: 1_000_000, 10_000: 1_000_000, 100_000: 1_000_000, 1_000_000: 10_000_000}
"""Domain -> users."""


def lines() -> Iterator[Line]:
    """Seconds, at four sizes of the domain."""
    for estimate in estimates():
        unsorted = estimate.frequencies
        for name, method in (METHODS | EXTRA).items():
            yield compare(
                f"method {name}, d={len(unsorted)}",
                lambda method=method, estimate=estimate: method(estimate),  # type: ignore[misc]
                lambda unsorted=unsorted: np.sort(unsorted),  # type: ignore[misc]
                peer_name="np.sort of the estimates",
                setup=described(estimate),
            )


def estimates() -> Iterator[ldp.Estimate]:
    """What the methods are measured on: one estimate for each of `SIZES`."""
    for d, n in SIZES.items():
        yield estimated(ldp.OLH("1", domain_size=d), zipf(d, n))


def described(estimate: ldp.Estimate) -> str:
    """The setup of a line about one of `estimates`."""
    return f"OLH, ε=1, n={estimate.n}, Zipf 1.1"


def zipf(d: int, n: int) -> npt.NDArray[np.int64]:
    """How many of n users have each value, drawn from Zipf's distribution with exponent 1.1."""
    weights = np.arange(1, d + 1) ** -1.1
    return np.random.default_rng(3).multinomial(n, weights / weights.sum())


def estimated(oracle: ldp.Oracle, histogram: npt.NDArray[np.int64]) -> ldp.Estimate:
    """An estimate as the users' reports would give it."""
    return oracle.estimate(oracle.simulate(histogram, np.random.default_rng(4)), int(histogram.sum()))
