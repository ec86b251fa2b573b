"""The methods that the paper solves in steps, against those steps as its text has them.

Written in numpy from Sections IV.B to IV.E and Appendices A and B alone, with the slips of the printed formulas put
right: with them the answers would be others. The other methods are formulas; there the text and the code are the same.
"""

from collections.abc import Callable, Iterator

import numpy as np
import numpy.typing as npt

import ldp
from ldp.consistency import METHODS
from ldp.consistency.power import prior_exponent
from ldp.estimate import Vector
from tests.bench.consistency import described, estimates
from tests.bench.measure import Line, compare
from tests.bench.solvers import constants

SOME = 20  # values whose posterior means one call makes
REACH = 8.0  # no count that matters lies further from the estimated one than this many s


def lines() -> Iterator[Line]:
    """Seconds for a method; for Power values a second."""
    for estimate in estimates():
        d = len(estimate.frequencies)
        for name, procedure in PROCEDURES.items():
            yield whole(name, estimate, procedure)
        line = posterior_means(estimate)
        yield line
        seconds = d / line["peer"]
        if seconds < 1.0:
            yield whole("power-ns", estimate, power_ns)
        else:
            skipped = f"Power alone takes about {seconds:.0f} s"
            yield {"bench": title("power-ns", estimate), "skipped": skipped}


def title(name: str, estimate: ldp.Estimate) -> str:
    """What a line is called."""
    return f"method {name} by the paper's procedure, d={len(estimate.frequencies)}"


def whole(name: str, estimate: ldp.Estimate, procedure: Callable[[ldp.Estimate], Vector]) -> Line:
    """One comparison, after a check that both give the same."""
    method = METHODS[name]
    difference = float(np.abs(method(estimate) - procedure(estimate)).max()) / estimate.sigma
    assert difference <= 1e-6, f"the procedure gives another {name}, {difference:g} σ away"
    return compare(
        title(name, estimate),
        lambda: method(estimate),
        lambda: procedure(estimate),
        peer_name="the paper's procedure in numpy",
        setup=described(estimate),
    )


def posterior_means(estimate: ldp.Estimate) -> Line:
    """Power; for the peer some of the values, from the least to the most frequent, as each costs it the same."""
    d = len(estimate.frequencies)
    some = np.argsort(estimate.frequencies)[np.linspace(0, d - 1, SOME).astype(np.intp)]
    difference = (
        float(np.abs(METHODS["power"](estimate)[some] - power(estimate, some)).max()) / estimate.sigma
    )
    assert difference <= 1e-6, f"the procedure gives another power, {difference:g} σ away"
    return compare(
        title("power", estimate),
        lambda: METHODS["power"](estimate),
        lambda: power(estimate, some),
        peer_name="the sums of Equation 11 in numpy, α given",
        setup=f"{described(estimate)}; {SOME} of the values for the peer",
        rate=(d, "values"),
        peer_handles=SOME,
    )


def norm_cut(estimate: ldp.Estimate) -> Vector:
    """Section IV.B: each positive estimate in turn is θ, from the smallest, until what is not below it fits."""
    positive = np.maximum(estimate.frequencies, 0.0)
    rest, theta = float(positive.sum()), 0.0
    for smallest in np.sort(positive[positive > 0.0]).tolist():
        if rest <= 1.0:
            theta = smallest
            break
        rest -= smallest
    return np.where(positive >= theta, positive, 0.0)


def norm_sub(estimate: ldp.Estimate) -> Vector:
    """Appendix A: D₁ is the whole domain; solve; move what came out negative to D₀; until nothing did."""
    return on_simplex(estimate.frequencies)


def on_simplex(values: Vector) -> Vector:
    """`norm_sub` of any vector."""
    kept = np.ones(len(values), np.bool_)
    while True:
        found = values - (values[kept].sum() - 1.0) / kept.sum()
        negative = kept & (found < 0.0)
        if not negative.any():
            return np.where(kept, found, 0.0)
        kept &= ~negative


def mle_apx(estimate: ldp.Estimate) -> Vector:
    """Appendix B: the same with its own solution on D₁."""
    f, (A, B, Q) = estimate.frequencies, constants(estimate)
    kept = np.ones(len(f), np.bool_)
    while True:
        x = A * (1.0 - f[kept].sum()) / (kept.sum() * Q + B)
        found = (A * f + Q * x) / (A - B * x)
        negative = kept & (found < 0.0)
        if not negative.any():
            return np.where(kept, found, 0.0)
        kept &= ~negative


def power(estimate: ldp.Estimate, some: npt.NDArray[np.intp] | slice) -> Vector:
    """Equation 11 for some of the values, over the counts that have weight, O(√n) of them."""
    n, s = estimate.n, estimate.n * estimate.sigma
    alpha = prior_exponent(n, len(estimate.frequencies))
    means = []
    for t in (n * estimate.frequencies[some]).tolist():
        nearest = min(max(t, 1.0), float(n))
        k = np.arange(max(1.0, np.ceil(nearest - REACH * s)), min(n, nearest + REACH * s) + 1.0)
        exponent = -((k - t) ** 2) / (2.0 * s**2)
        weights = np.exp(exponent - exponent.max()) * k**-alpha
        means.append(float(weights @ k) / float(weights.sum()) / n)
    return np.array(means)


def power_ns(estimate: ldp.Estimate) -> Vector:
    """Section IV.E: Norm-Sub of Power."""
    return on_simplex(power(estimate, slice(None)))


PROCEDURES: dict[str, Callable[[ldp.Estimate], Vector]] = {
    "norm-cut": norm_cut,
    "norm-sub": norm_sub,
    "mle-apx": mle_apx,
}
