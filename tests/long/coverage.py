"""Error rates of pointwise and anytime-valid intervals on simulated days: ``python -m tests.long.coverage [DAYS]``.

Prints a line for each protocol or explicit channel, ε and question, by default of 400 days. A day has 10⁶ reports and
17,280 snapshots, one each 5 s. The share of users with the value, or with a value of the set, moves from a twentieth to
a fifth and back.

``misled`` is the share of days with a snapshot whose 95 % interval misses the frequency among the reports so far.
``wide`` is the mean width of the anytime-valid intervals divided by the mean pointwise width, both within [0, 1], at a
hundredth, a tenth and the end of the day. A pointwise interval of less than 6 users counts as 6 users wide: if a
channel changes fewer than one report, the pointwise interval is narrower than a user.

Each report is drawn from its law: p or q for a value, the enumerated law of the protocol for a set. OLH's hash counts
as a random function. The reports between two snapshots are one multinomial draw.
"""

import sys
from collections.abc import Iterator
from fractions import Fraction
from functools import lru_cache

import numpy as np
import numpy.typing as npt
from scipy.stats import binom, hypergeom

import ldp
from ldp.intervals import score
from ldp.intervals.confidence_sequence import of_sets, of_values
from ldp.oracles import ORACLES
from ldp.oracles.preferred import PreferredMessages
from ldp.set_variance import SetVariance

Vector = npt.NDArray[np.float64]

REPORTS, SNAPSHOTS, LEVEL, Z = 10**6, 17_280, 0.95, 1.959963984540054
D, SET = 60, 12
LOOKS = (SNAPSHOTS // 100, SNAPSHOTS // 10, SNAPSHOTS)
RARE = ("1/1000", "1/1000000", "1/1000000000", "1/1000000000000")
USERS = 6


def laws(oracle: ldp.Oracle, m: int) -> tuple[Vector, Vector]:
    """Returns the probabilities that a report supports 0..m values of a set, for users inside and outside."""
    p, q = float(oracle.p), float(oracle.q)
    if m == 1:
        return np.array([1 - p, p]), np.array([1 - q, q])
    if isinstance(oracle, PreferredMessages):
        supported = oracle._supported(np.arange(m))
        pi = 1 / float((oracle.E - 1) * oracle.preferred + oracle.state_size)

        def law(user: int) -> Vector:
            chances = np.full(oracle.state_size, pi)
            places = np.arange(oracle.preferred)
            chances[oracle._messages(np.full(places.size, user), places)] *= float(oracle.E)
            return np.bincount(supported, chances, minlength=m + 1)

        return law(0), law(m)
    if isinstance(oracle, ldp.GRR):
        rest = np.zeros(m - 1)
        return np.concatenate([[1 - p - (m - 1) * q, p + (m - 1) * q], rest]), np.concatenate(
            [[1 - m * q, m * q], rest]
        )
    sizes = np.arange(m + 1)
    if isinstance(oracle, ldp.SubsetSelection):

        def drawn(others: int, k: int) -> Vector:  # k draws from the other values
            chances: Vector = hypergeom(D - 1, others, k).pmf(sizes)
            return chances

        with_own, without = drawn(m - 1, oracle.k - 1), drawn(m - 1, oracle.k)
        return (
            p * np.append(0.0, with_own[:-1]) + (1 - p) * without,
            p * drawn(m, oracle.k - 1) + (1 - p) * drawn(m, oracle.k),
        )
    others: Vector = binom(m - 1, q).pmf(sizes)  # the bits, or buckets, of the other values
    return p * np.append(0.0, others[:-1]) + (1 - p) * others, binom(m, q).pmf(sizes)


@lru_cache
def users() -> npt.NDArray[np.int64]:
    """Returns the reports between two snapshots by users inside and outside the set: (snapshots, 2)."""
    reports = np.diff(np.linspace(0, REPORTS, SNAPSHOTS + 1).astype(np.int64))
    share = 0.125 - 0.075 * np.cos(np.linspace(0, 4 * np.pi, SNAPSHOTS))
    inside = np.diff(np.floor(np.cumsum(share * reports)).astype(np.int64), prepend=0)
    return np.stack([inside, reports - inside], axis=1)


def day(oracle: ldp.Oracle, m: int, days: int) -> tuple[float, float, list[float]]:
    """Returns the share of days with an error for both intervals, and the relative widths."""
    rng = np.random.default_rng(22)
    inside, outside = laws(oracle, m)
    p, q, sizes = float(oracle.p), float(oracle.q), np.arange(m + 1.0)
    variances = [float(law @ (sizes - law @ sizes) ** 2) for law in (inside, outside)]
    variance = SetVariance(oracle, range(m))
    total, n, having = np.zeros(days), 0, 0
    misled = np.zeros((2, days), bool)
    wide = []
    for look, (own, others) in enumerate(users().tolist(), 1):
        total += rng.multinomial(own, inside, days) @ sizes + rng.multinomial(others, outside, days) @ sizes
        n, having = n + own + others, having + own
        f = having / n
        estimated = (total / n - m * q) / (p - q)
        low, high = score.interval(estimated, n, oracle.p - oracle.q, *variances, LEVEL, "reports")
        misled[0] |= (f < low) | (f > high)
        bounds = anytime(variance, m, total, n)
        misled[1] |= (f < bounds[0]) | (f > bounds[1])
        if look in LOOKS:
            pointwise = float(np.mean(np.clip(high, 0, 1) - np.clip(low, 0, 1)))
            wide.append(float(np.mean(bounds[1] - bounds[0])) / max(pointwise, USERS / n))
    return float(misled[0].mean()), float(misled[1].mean()), wide


def anytime(variance: SetVariance, m: int, total: Vector, n: int) -> tuple[Vector, Vector]:
    """Returns the anytime-valid intervals of all days."""
    if m == 1:
        (p, _), (q, _) = variance.moments()
        return of_values(total, n, p, q, LEVEL)
    return of_sets(total, n, *variance.moments(), variance.laws(), LEVEL)


def oracles() -> Iterator[tuple[str, ldp.Oracle]]:
    """Yields the protocols at three ε, and explicit channels with rare support or rare absence of it."""
    for name in ORACLES:
        for epsilon in ("0.5", "1", "4"):
            yield f"{name} {epsilon}", ldp.oracle(name, epsilon, domain_size=D)
    for rare in map(Fraction, RARE):
        for p, q in ((Fraction(1, 2), rare), (1 - rare, Fraction(1, 4)), (1 - rare, rare)):
            yield f"unary {'1-' * (p > 0.9)}{float(min(p, 1 - p)):g} {float(q):g}", ldp.Unary(p, q, D)


def lines(days: int) -> Iterator[str]:
    """Yields the lines of the table."""
    title = f"{'protocol and ε, or p and q':26} {'of':>4}  {'pointwise misled':>16} {'anytime misled':>14}"
    yield f"{title}  wide at 1/100, 1/10, 1"
    for name, oracle in oracles():
        for m, of in ((1, "one"), (SET, "set")):
            pointwise, anytime, wide = day(oracle, m, days)
            ratios = ", ".join(f"{ratio:.2f}" for ratio in wide)
            yield f"{name:26} {of:>4}  {pointwise:16.2%} {anytime:14.2%}  {ratios}"


if __name__ == "__main__":
    for line in lines(int(sys.argv[1]) if len(sys.argv) > 1 else 400):
        print(line, flush=True)
