"""Subset Selection (paper, Section III-B): the report is a random subset."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING, ClassVar

from ldp import sampling
from ldp.arguments import MAX_DOMAIN, as_integer, exact_total
from ldp.oracles.oracle import Oracle
from ldp.wire import bytes_below

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

_CROWD = 900_000_000  # users simulated together: numpy can draw without replacement from fewer than 10⁹
_SCRATCH = 1 << 20  # limit of reports × d that `perturb` draws together, to bound its memory


class SubsetSelection(Oracle):
    """Subset Selection: the report is a random subset of k values.

    A subset that contains the user's value is E times as likely as a subset that does not. A report supports its k
    members. The user's value is a member with probability p = kE/(kE+d−k), and any other value with probability
    q = [p(k−1)+(1−p)k]/(d−1). The estimates sum to exactly 1. By default, k is one of the two integers next to d/(E+1),
    whichever has the lower variance. The paper uses the integer nearest to d/(E+1). If the paper's k is 2 although 1 is
    better, the variance is up to 17 % higher.

    Report: the smaller of two forms, or ``indices`` if the sizes are equal. ``indices`` are the k members in strictly
    ascending order, because the order of drawing could reveal the user's value. Each index has the smallest unsigned
    integer type for d−1. ``bits`` are ⌈d/8⌉ bytes with exactly k bits set. Value v is bit v mod 8 of byte v div 8, and
    padding is 0. State: d counters. Server: k increments or d additions per report.

    Args:
        epsilon: ε as "1", "0.5", "1/3", an int or a Fraction; 0 < ε ≤ 64.
        domain_size: d, 2 ≤ d ≤ 2²⁴.
        k: the size of the subset, 1 ≤ k < d.

    Example:
        >>> subset = SubsetSelection("1", domain_size=100)
        >>> subset.k, round(float(subset.p), 4), subset.report_dtype.names
        (27, 0.5013, ('bits',))
    """

    name: ClassVar[str] = "subset"
    own_parameters: ClassVar[tuple[str, ...]] = ("k",)

    def __init__(self, epsilon: str | int | Fraction, domain_size: int, *, k: int | None = None) -> None:
        super().__init__(epsilon, domain_size)
        d = as_integer("domain_size", domain_size, 2, MAX_DOMAIN)
        self.k = best_k(self.E, d) if k is None else as_integer("k", k, 1, d - 1)
        self.p, self.q = _probabilities(self.E, d, self.k)
        self._as_indices = self.k * bytes_below(d) <= -(-d // 8)
        if self._as_indices:
            self.fields = {"indices": d}
            self.length = self.k
        else:
            self.fields = {"bits": 256}
            self.length = -(-d // 8)

    def perturb_one(self, value: int) -> tuple[int, ...]:
        """Returns the indices, or the bytes of the bits; see `Oracle.perturb_one`."""
        members = sampling.subset(self._checked_value(value), self.domain_size, self.k, self.E)
        if self._as_indices:
            return members
        bits = bytearray(-(-self.domain_size // 8))
        for member in members:
            bits[member // 8] |= 1 << member % 8
        return tuple(bits)

    def _perturb(
        self, values: npt.NDArray[np.int64], reports: npt.NDArray[np.void], rng: np.random.Generator | None
    ) -> None:
        import numpy as np

        rows = max(1, _SCRATCH // self.domain_size)
        for start in range(0, values.size, rows):
            part = slice(start, start + rows)
            members = sampling.subsets(values[part], self.domain_size, self.k, self.E, rng=rng)
            if self._as_indices:
                reports["indices"][part] = members
            else:
                chosen = np.zeros((len(members), self.domain_size), np.bool_)
                np.put_along_axis(chosen, members, True, axis=1)
                reports["bits"][part] = np.packbits(chosen, axis=1, bitorder="little")

    def accumulate_runs(
        self, addresses: npt.NDArray[np.int64], runs: npt.NDArray[np.int64], reports: npt.NDArray[np.void]
    ) -> None:
        """Counts as `Oracle.accumulate_runs`."""
        from ldp import kernels
        from ldp.oracles.partitioned import grouped

        if self._as_indices:
            indices = self.column(reports, "indices").reshape(-1)
            kernels.count_indices(addresses, runs[0], runs[1] * self.k, indices)
        else:
            reports, ends = grouped(reports, runs, addresses.size)
            kernels.count_bits(addresses, ends, self.column(reports, "bits"), self.domain_size)

    def _simulate(self, histogram: npt.NDArray[np.int64], rng: np.random.Generator) -> npt.NDArray[np.int64]:
        import numpy as np

        crowds = -(-int(histogram.sum()) // _CROWD)
        share, rest = np.divmod(histogram, crowds)
        counts = np.zeros_like(histogram)
        for crowd in range(crowds):
            counts += self._simulate_crowd(share + (crowd < rest), rng)
        return counts

    def _simulate_crowd(
        self, histogram: npt.NDArray[np.int64], rng: np.random.Generator
    ) -> npt.NDArray[np.int64]:
        """Draws for each value in turn how many users select it.

        A report is drawn from a mixture. With probability (pd−k)/(d−k), it is the user's value and a uniform
        (k−1)-subset of the other values. This user is "waiting" until the user's value is next, and then "free".
        Otherwise, the report is a uniform k-subset of all values, and the user is free. Users are grouped by the number
        j of members that are still missing, except the value of a waiting user. When r values are left, a free user
        selects the next value with probability j/r, and a waiting user with probability j/(r−1). The users whose value
        is next are drawn without replacement from all waiting users.
        """
        import numpy as np

        d, k = self.domain_size, self.k
        counts = rng.binomial(histogram, float((self.p * d - k) / (d - k)))
        members = np.arange(k + 1)  # missing members of each group
        waiting, free = groups = np.zeros((2, k + 1), np.int64)  # users by missing members
        waiting[k - 1] = counts.sum()
        free[k] = histogram.sum() - waiting[k - 1]
        low, high = k - 1, k + 1  # only groups in this range have users
        for v, own in enumerate(counts.tolist()):
            while low < high - 1 and not (waiting[low] or free[low]):
                low += 1
            while low < high - 1 and not (waiting[high - 1] or free[high - 1]):
                high -= 1
            arrived = rng.multivariate_hypergeometric(waiting[low:high], own, method="marginals")
            waiting[low:high] -= arrived
            left = np.array([[max(d - v - 1, 1)], [d - v]])
            some = max(low, 1)
            # only empty groups have more missing members than values are left
            taking = rng.binomial(groups[:, some:high], np.minimum(members[some:high] / left, 1.0))
            groups[:, some:high] -= taking
            groups[:, some - 1 : high - 1] += taking
            free[low:high] += arrived
            counts[v] += taking.sum()
            low = some - 1
        return counts

    def _check_sums(self, counts: npt.NDArray[np.int64], n: int) -> None:
        if (total := exact_total(counts)) != self.k * n:
            raise ValueError(
                f"counts sum to {total}; each report supports k = {self.k} values: the sum must be k·n = {self.k * n}"
            )

    @property
    def most_supported(self) -> int:
        """k, the size of a subset; see `Oracle.most_supported`."""
        return self.k

    def _two_variances(self, m: int) -> tuple[Fraction, Fraction]:

        def variance(own: int) -> Fraction:
            """Applies the law of total variance; `own` is 1 if the set contains u."""
            rest = m - own
            shift = own - Fraction(rest, others)  # change of the mean if u is a member
            return (
                self.p * _hypergeometric_variance(others, rest, self.k - 1)
                + (1 - self.p) * _hypergeometric_variance(others, rest, self.k)
                + self.p * (1 - self.p) * shift**2
            )

        others = self.domain_size - 1
        return variance(1), variance(0)

    def supported_of(self, subset: npt.NDArray[np.int64]) -> tuple[int, int]:
        """Returns the fewest and the most members of a report that are in a set."""
        outside = self.domain_size - subset.size
        return max(0, self.k - outside), min(subset.size, self.k)

    def _well_formed(self, reports: npt.NDArray[np.void]) -> npt.NDArray[np.bool_]:
        from ldp import kernels

        if self._as_indices:
            indices = self.column(reports, "indices")
            good: npt.NDArray[np.bool_] = kernels.ascends(indices) & (indices[:, -1] < self.domain_size)
            return good
        bits = self.column(reports, "bits")
        good = kernels.count_ones(bits) == self.k
        if self.domain_size % 8:
            good &= bits[:, -1] < 1 << self.domain_size % 8
        return good

    def _allowed(self) -> str:
        if self._as_indices:
            return f"it must be {self.k} indices below {self.domain_size}, strictly ascending"
        return f"it must have {self.k} bits set, all below {self.domain_size}"


def best_k(E: Fraction, d: int) -> int:
    """Returns the k in 1..d−1, next to d/(E+1), with the lower variance."""
    below = int(d / (E + 1))
    return min((max(below, 1), min(below + 1, d - 1)), key=lambda k: _variance(*_probabilities(E, d, k)))


def _probabilities(E: Fraction, d: int, k: int) -> tuple[Fraction, Fraction]:
    p = k * E / (k * E + d - k)
    return p, (p * (k - 1) + (1 - p) * k) / (d - 1)


def _variance(p: Fraction, q: Fraction) -> Fraction:
    """Returns n times the variance of f̃ at frequency 0 (Equation 5)."""
    return q * (1 - q) / (p - q) ** 2


def _hypergeometric_variance(size: int, marked: int, draws: int) -> Fraction:
    spread = draws * marked * (size - marked) * (size - draws)
    return Fraction(spread, size * size * max(size - 1, 1))  # for size 1 the spread is 0
