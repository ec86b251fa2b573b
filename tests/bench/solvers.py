"""The methods that solve something, against scipy's generic solvers of the same equations, programs and sums.

Norm, Norm-Mul, Norm-Cut, Norm-Sub and MLE-Apx have one unknown each (δ, γ, θ, δ, x), which a root finder finds at any
size. Norm-Sub and MLE-Apx are also constrained programs of d unknowns (Sections IV.C and IV.D); steps of such a solver
cost d³, so it runs at small sizes only. Power is a ratio of two sums of n terms. What is left, Base and its clamps, has
nothing to solve.
"""

from collections.abc import Callable, Iterator

import numpy as np
from scipy.integrate import nsum
from scipy.optimize import bisect, brentq, minimize

import ldp
from ldp.consistency import METHODS
from ldp.consistency.power import prior_exponent
from ldp.estimate import Vector
from tests.bench.consistency import described, estimated, estimates, zipf
from tests.bench.measure import Line, compare

CLOSE = 1e-14  # how near a root is found
PROGRAM_SIZES, HOPELESS = (100, 300), 1_000
SUMS = 64  # values whose sums scipy is asked for in one call


def lines() -> Iterator[Line]:
    """Seconds for one unknown and for d unknowns; values a second for Power."""
    for estimate in estimates():
        for name, (solve, peer) in ROOTS.items():
            yield against(name, estimate, solve, peer.split()[0], f"scipy.optimize.{peer}", 1e-9)
    for d in PROGRAM_SIZES:
        estimate = estimated(ldp.OLH("1", domain_size=d), zipf(d, 1_000_000))
        for name, solve in PROGRAMS.items():
            peer_name = f"scipy.optimize.minimize, SLSQP, {d} unknowns"
            yield against(name, estimate, solve, "SLSQP", peer_name, 1e-4)
    for name in PROGRAMS:
        yield {
            "bench": f"method {name} by SLSQP, d={HOPELESS}",
            "skipped": "a call takes most of a minute, and ten times the size a thousand times that",
        }
    yield from map(power, estimates())


def against(
    name: str,
    estimate: ldp.Estimate,
    solve: Callable[[ldp.Estimate], Vector],
    peer: str,
    peer_name: str,
    tolerance: float,
) -> Line:
    """One comparison, after a check that both find the same up to `tolerance` in σ."""
    method = METHODS[name]
    difference = float(np.abs(method(estimate) - solve(estimate)).max()) / estimate.sigma
    assert difference <= tolerance, f"{peer_name} finds another {name}, {difference:g} σ away"
    return compare(
        f"method {name} by {peer}, d={len(estimate.frequencies)}",
        lambda: method(estimate),
        lambda: solve(estimate),
        peer_name=peer_name,
        setup=described(estimate),
    )


# One unknown


def norm(estimate: ldp.Estimate) -> Vector:
    """δ, between what makes all estimates negative and what makes each at least 1."""
    f = estimate.frequencies
    return f + root(lambda delta: np.sum(f + delta) - 1.0, -f.max(), 1.0 - f.min())


def norm_mul(estimate: ldp.Estimate) -> Vector:
    """γ, between what makes every estimate 0 and what makes the largest 1."""
    f = estimate.frequencies
    gamma = root(lambda gamma: np.sum(np.maximum(gamma * f, 0.0)) - 1.0, 0.0, 1.0 / f.max())
    return np.maximum(gamma * f, 0.0)


def norm_cut(estimate: ldp.Estimate) -> Vector:
    """θ, where the sum of what is kept jumps over 1; the estimate at the jump is cut."""
    f = estimate.frequencies
    theta = float(bisect(lambda theta: np.sum(f[f >= theta]) - 1.0, 0.0, 2.0 * f.max(), xtol=CLOSE))
    return np.where(f > theta + CLOSE, f, 0.0)


def norm_sub(estimate: ldp.Estimate) -> Vector:
    """δ, between what makes the largest estimate 0 and what makes it 1."""
    f = estimate.frequencies
    delta = root(lambda delta: np.sum(np.maximum(f + delta, 0.0)) - 1.0, -f.max(), 1.0 - f.max())
    return np.maximum(f + delta, 0.0)


def mle_apx(estimate: ldp.Estimate) -> Vector:
    """x of Appendix B, between what makes the largest estimate 0 and what makes it 1."""
    f, (A, B, Q) = estimate.frequencies, constants(estimate)

    def solution(x: float) -> Vector:
        return np.maximum((A * f + Q * x) / (A - B * x), 0.0)

    low, high = -A * f.max() / Q, A * (1.0 - f.max()) / (Q + B)
    return solution(root(lambda x: np.sum(solution(x)) - 1.0, low, high))


def root(excess: Callable[[float], np.float64], low: float, high: float) -> float:
    """Where a continuous function is 0."""
    return float(brentq(excess, low, high, xtol=CLOSE))


ROOTS: dict[str, tuple[Callable[[ldp.Estimate], Vector], str]] = {
    "norm": (norm, "brentq for δ"),
    "norm-mul": (norm_mul, "brentq for γ"),
    "norm-cut": (norm_cut, "bisect for θ"),  # brentq has no use for a sum that jumps
    "norm-sub": (norm_sub, "brentq for δ"),
    "mle-apx": (mle_apx, "brentq for x"),
}


# d unknowns


def least_squares(estimate: ldp.Estimate) -> Vector:
    """Norm-Sub as the program of Section IV.C."""
    f = estimate.frequencies
    return on_simplex(lambda x: float(np.sum((x - f) ** 2)), lambda x: 2.0 * (x - f), len(f))


def likelihood(estimate: ldp.Estimate) -> Vector:
    """MLE-Apx as the program of Appendix B."""
    f, (_, B, Q) = estimate.frequencies, constants(estimate)

    def slope(x: Vector) -> Vector:
        relative = (x - f) / (Q + B * x)
        return 2.0 * relative - B * relative**2

    return on_simplex(lambda x: float(np.sum((x - f) ** 2 / (Q + B * x))), slope, len(f))


PROGRAMS: dict[str, Callable[[ldp.Estimate], Vector]] = {"norm-sub": least_squares, "mle-apx": likelihood}


def on_simplex(objective: Callable[[Vector], float], gradient: Callable[[Vector], Vector], d: int) -> Vector:
    """The non-negative x with sum 1 that minimises the objective, from the middle."""
    found: Vector = minimize(
        objective,
        np.full(d, 1.0 / d),
        jac=gradient,
        method="SLSQP",
        bounds=[(0.0, 1.0)] * d,
        constraints={"type": "eq", "fun": lambda x: np.sum(x) - 1.0, "jac": np.ones_like},
        options={"ftol": 1e-15, "maxiter": 500},
    ).x
    return found


def constants(estimate: ldp.Estimate) -> tuple[float, float, float]:
    """A = p − q, B = (p − q)(1 − p − q), Q = q(1 − q)."""
    p, q = estimate.oracle.p, estimate.oracle.q
    return float(p - q), float((p - q) * (1 - p - q)), float(q * (1 - q))


# n terms


def power(estimate: ldp.Estimate) -> Line:
    """Power's sums over all counts k = 1..n, for values from the most to the least frequent."""
    n, d = estimate.n, len(estimate.frequencies)
    alpha, s = prior_exponent(n, d), n * estimate.sigma
    some = np.argsort(estimate.frequencies)[np.linspace(0, d - 1, SUMS).astype(np.intp)]
    t = n * estimate.frequencies[some]
    nearest = np.clip(t, 1.0, n)

    def weight(k: Vector, t: Vector, nearest: Vector) -> Vector:
        found: Vector = np.exp(-alpha * np.log(k) - ((k - t) ** 2 - (nearest - t) ** 2) / (2.0 * s**2))
        return found

    def total(term: Callable[..., Vector]) -> Vector:
        found: Vector = nsum(term, 1, n, args=(t, nearest), maxterms=1024).sum
        return found

    def solve() -> Vector:
        return total(lambda k, t, nearest: k * weight(k, t, nearest)) / total(weight) / n

    difference = float(np.abs(METHODS["power"](estimate)[some] - solve()).max()) / estimate.sigma
    assert difference <= 1e-3, f"scipy.integrate.nsum finds another Power, {difference:g} σ away"
    return compare(
        f"method power by nsum, d={d}",
        lambda: METHODS["power"](estimate),
        solve,
        peer_name="scipy.integrate.nsum of the posterior's terms, k = 1..n, α given",
        setup=f"{described(estimate)}; {SUMS} of the values for the peer, {difference:.0e} σ apart at most",
        rate=(d, "values"),
        peer_handles=SUMS,
    )
