"""Privacy amplification by shuffling, for readers of results or reports.

A snapshot is a function of the multiset of reports. A shuffler of the reports that were released together would show a
reader of snapshots at least as much. The bound is the privacy blanket of Balle, Bell, Gascón and Nissim ("The Privacy
Blanket of the Shuffle Model", CRYPTO 2019), with the blanket of each protocol.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from typing import TYPE_CHECKING

import numpy as np

from ldp.oracles import (
    GRR,
    OLH,
    PGR,
    HadamardResponse,
    Oracle,
    Response,
    SubsetSelection,
)
from ldp.oracles.unary import UnaryEncoding

if TYPE_CHECKING:
    import numpy.typing as npt

ADVERSARIES = {
    "snapshots": "sees every snapshot, row and page; knows the values of all other users; sent none of the reports of"
    " an increment; and does not see the topics, dead letters, Redis or metrics by partition",
    "batches": "sees all shuffled reports, also in aborted batches and backups; knows the batch of each upload and the"
    " values of all other users; sent none of the uploads of a batch; and does not see the gateway or the intake topic",
}
"""Adversaries of the bound, as text, by the readers of `ldp.privacy.summary`."""

_POINTS = 1 << 17  # cells of the grid
_ROUNDING = 1e-15  # bound on the rounding error of a cell
_NEGLIGIBLE = 1e-16  # largest Chernoff bound that replaces the sum over cells
_LARGEST_EXPONENT = 700.0  # e^700 is below the largest float
_EXPONENT = 60.0  # cells from 60/θ on have a weight below e^−60
_DEVIATIONS = 10.0  # standard deviations of the sum below 0 on the grid


@dataclass(frozen=True)
class Blanket:
    """The part of a report's distribution that does not depend on its value.

    With probability γ, a report is drawn from the blanket, a distribution that is the same for all values. For two
    values, a report from the blanket is E times likelier under one value than the blanket with probability a, under the
    other with a, under both with c, and under neither with 1 − 2a − c.

    Attributes:
        E: the largest ratio of a report's probabilities under two values; at least 1.
        gamma: γ.
        a: probability for only the first of two values, and for only the second.
        c: probability for both values.

    Example:
        >>> blanket = Blanket.of_ratio(Fraction(271828, 100000))
        >>> blanket.epsilon(10**4, 1e-8)
        0.057
    """

    E: Fraction
    gamma: Fraction
    a: Fraction
    c: Fraction

    @classmethod
    def of_ratio(cls, E: Fraction) -> Blanket:
        """Returns the blanket that bounds every protocol with ratio E."""
        return cls(E, 2 / (E + 1), Fraction(1, 2), Fraction(0))

    def delta(self, n: int, epsilon: float) -> float:
        """Returns an upper bound on δ(ε) for one of n reports released together.

        δ(ε) ≤ E[(Z₁ + … + Z_n)₊]/n. Z is E − e^ε or 1 − E·e^ε, each with probability γa; 1 − e^ε with γ(1 − 2a − c);
        E(1 − e^ε) with γc; and otherwise 0. Rounding increases the bound: Z is rounded to the two nearest points of a
        grid, with its mean kept, and each cell of the sum's distribution gets 10⁻¹⁵ more. The distribution comes from a
        Fourier transform of 2¹⁷ points after exponential tilting. Below 10⁻¹⁶ the method returns the Chernoff bound.

        Raises:
            ValueError: n below 1.

        Example:
            >>> f"{Blanket.of_ratio(Fraction(271828, 100000)).delta(1000, 0.1):.4e}"
            '8.2013e-05'
        """
        if n < 1:
            raise ValueError(f"n is {n}; allowed is at least 1")
        values, chances = self._law(epsilon)
        if values.max() <= 0:
            return 0.0
        tilt = _tilt(values, chances, n)
        chernoff = math.exp(min(0.0, n * _log_mean(values, chances, tilt) - 1 - math.log(n * tilt)))
        if chernoff < _NEGLIGIBLE:
            return chernoff
        return min(1.0, chernoff, _on_grid(values, chances, n, tilt))

    def epsilon(self, n: int, delta: float) -> float:
        """Returns the least multiple of 0.001 with δ(ε) ≤ `delta`, at most ln E.

        Raises:
            ValueError: n below 1, or a `delta` outside 0 to 1.
        """
        if not 0 < delta < 1:
            raise ValueError(f"delta is {delta}; allowed is a number above 0 and below 1")
        most = math.log(self.E)
        low, high = -1, math.ceil(1000 * most)
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if self.delta(n, middle / 1000) <= delta else (middle, high)
        return min(high / 1000, most)

    def _law(self, epsilon: float) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
        """Returns the values of Z and their probabilities."""
        E, gamma, a, c = map(float, (self.E, self.gamma, self.a, self.c))
        e = math.exp(epsilon)
        values = np.array([E - e, 1 - E * e, 1 - e, E * (1 - e), 0.0])
        b = float(1 - 2 * self.a - self.c)
        return values, np.array([gamma * a, gamma * a, gamma * b, gamma * c, float(1 - self.gamma)])


def blanket(oracle: Oracle) -> Blanket | None:
    """Returns the blanket of a protocol; None if ε is infinite.

    Example:
        >>> import ldp
        >>> blanket(ldp.GRR("1", domain_size=1024)).epsilon(10**4, 1e-8)
        0.004
    """
    if oracle.epsilon == math.inf:
        return None
    d, p, q, E = oracle.domain_size, oracle.p, oracle.q, oracle.E
    if d == 1:
        return Blanket.of_ratio(E)
    match oracle:
        case GRR() | Response():
            gamma, a, c = d * q, Fraction(1, d), Fraction(0)
        case OLH():
            gamma, a, c = oracle.g / (E + oracle.g - 1), Fraction(1, oracle.g), Fraction(0)
        case UnaryEncoding():
            gamma, a, c = (1 - p) / (1 - q), q * (1 - q), q * q
        case SubsetSelection():
            k, pairs = oracle.k, d * (d - 1)
            gamma, a, c = (1 - p) * d / (d - k), Fraction(k * (d - k), pairs), Fraction(k * (k - 1), pairs)
        case HadamardResponse():
            gamma, a, c = 2 * (1 - p), Fraction(1, 4), Fraction(1, 4)
        case PGR():
            K, prime, t = oracle.state_size, oracle.prime, oracle.dimension
            s, both = ((prime ** (t - i) - 1) // (prime - 1) for i in (1, 2))
            gamma, a, c = K * (1 - p) / (K - s), Fraction(s - both, K), Fraction(both, K)
        case _:
            return Blanket.of_ratio(E)
    return Blanket(E, gamma, a, c)


def of_group(epsilon: float, delta: float, k: int) -> tuple[float, float]:
    """Returns (ε, δ) of a user with k of n reports released together."""
    if k * epsilon > _LARGEST_EXPONENT:
        return k * epsilon, 1.0
    return k * epsilon, min(1.0, delta * (math.expm1(k * epsilon) / math.expm1(epsilon) if epsilon else k))


def _log_mean(values: npt.NDArray[np.float64], chances: npt.NDArray[np.float64], tilt: float) -> float:
    """Returns ln E[e^(θZ)]."""
    top = float(values.max()) * tilt
    return top + math.log(float(np.sum(chances * np.exp(tilt * values - top))))


def _tilt(values: npt.NDArray[np.float64], chances: npt.NDArray[np.float64], n: int) -> float:
    """Returns the θ with the least Chernoff bound (tilted mean 1/θ)."""
    top = float(values.max())
    low, high = math.log(1 / (2 * n * top)), math.log(_LARGEST_EXPONENT / top)
    for _ in range(60):
        middle = (low + high) / 2
        tilt = math.exp(middle)
        tilted = chances * np.exp(tilt * (values - top))
        above = n * float(tilted @ values) * tilt > float(tilted.sum())
        low, high = (low, middle) if above else (middle, high)
    return math.exp(low)


@cache
def _turns() -> npt.NDArray[np.complex128]:
    """Returns e^(−2πij/N) − 1 for each point j of the grid."""
    angles = 2 * np.pi / _POINTS * np.arange(_POINTS)
    turns: npt.NDArray[np.complex128] = -2 * np.sin(angles / 2) ** 2 - 1j * np.sin(angles)
    return turns


def _on_grid(values: npt.NDArray[np.float64], chances: npt.NDArray[np.float64], n: int, tilt: float) -> float:
    """Returns E[(Z₁ + … + Z_n)₊]/n with Z rounded to a grid."""
    top = _EXPONENT / tilt
    values = values.clip(-top)  # a larger Z only increases the bound
    tilted = chances * np.exp(tilt * (values - values.max()))
    tilted /= tilted.sum()
    variance = float(tilted @ values**2 - (tilted @ values) ** 2)
    below = _DEVIATIONS * math.sqrt(n * variance) - 3 * float(values.min())
    step = (top + below) / _POINTS
    floors = np.floor(values / step)
    above = values / step - floors
    cells = np.concatenate((floors, floors + 1))
    chances = np.concatenate((chances * (1 - above), chances * above))
    log_mean = _log_mean(step * cells, chances, tilt)
    tilted = chances * np.exp(tilt * step * cells - log_mean)
    # φ − 1 instead of φ keeps the precision of φⁿ
    excess = np.zeros(_POINTS // 2 + 1, np.complex128)
    for cell, chance in zip(cells.astype(int).tolist(), tilted.tolist(), strict=True):
        if cell and chance:
            excess += chance * _turns()[cell * np.arange(excess.size) % _POINTS]
    sums = np.fft.irfft(np.exp(n * np.log1p(excess)), _POINTS)
    positive = step * np.arange(1, int(top / step) + 1)
    weights = positive * np.exp(n * log_mean - tilt * positive)
    # sums beyond the grid: s ≤ top·e^(θ(s − top)) for s ≥ top ≥ 1/θ
    rest = top * math.exp(n * log_mean - _EXPONENT)
    return (float((sums[1 : positive.size + 1].clip(0) + _ROUNDING) @ weights) + rest) / n
