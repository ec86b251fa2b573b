"""Projective Geometry Response: reports are points of a projective space.

Source: Feldman, Nelson, Nguyen and Talwar, "Private Frequency Estimation via Projective Geometry", ICML 2022.

The projective space is PG(t−1, q̄) over the integers modulo a prime q̄. A point is a non-zero vector of t coordinates,
and all its non-zero multiples are the same point. One multiple has 1 as its first non-zero coordinate. Read as a number
in base q̄, this multiple is the point's "word". The points are numbered 0..K−1 in the order of their words, so points
whose leading coordinates are 0 come first. A word of m+1 digits lies in q̄^m..2q̄^m−1. Its point has the number
word − q̄^m + (q̄^m − 1)/(q̄ − 1).
"""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import count
from typing import TYPE_CHECKING, ClassVar

from ldp import sampling
from ldp.arguments import MAX_DOMAIN, as_integer, check_state
from ldp.oracles.preferred import PreferredMessages

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

EXCESS = 4  # largest default ratio of state size to domain size
ALWAYS = 1 << 16  # number of points that the default may use for any domain size: their indices fit two bytes
NEAR = Fraction(51, 50)  # allowed ratio to the lowest variance, in exchange for fewer points
MAX_POINTS = EXCESS * MAX_DOMAIN
EXACT = 1 << 33  # largest sum of counters that one pass of float transforms decodes exactly


class PGR(PreferredMessages):
    """Projective Geometry Response: about OLH's variance at a lower cost.

    Reports are the K points of PG(t−1, q̄), and values are the first d points. Two points are orthogonal if their dot
    product is 0 modulo q̄. Any point has c = (q̄^(t−1)−1)/(q̄−1) orthogonal points, and (q̄^(t−2)−1)/(q̄−1) points are
    orthogonal to any two points. Let π = 1/((E−1)c + K). The device reports each point orthogonal to its user's value
    with probability E·π, and each other point with probability π. The ratio of a report's probabilities under two
    values is therefore at most E ≤ e^ε. A report supports the values orthogonal to it.

    By default, K is the smallest for which the variance is within 2 % of the lowest, among d ≤ K ≤ max(4d, 2¹⁶). If no
    such K has a prime near E + 1, the variance exceeds that of OLH, for example 2.7 times at ε = 8 and d = 30,000. `ldp
    plan` compares the protocols.

    Report: ``index``, the number of a point (1, 2 or 4 bytes). State: K counters. Server: one increment per report.
    Decoding takes O(K log K) time and about 50 bytes per counter.

    Args:
        epsilon: ε as "1", "0.5", "1/3", an int or a Fraction; 0 < ε ≤ 64.
        domain_size: d, 1 ≤ d ≤ 2²⁴.
        prime: q̄, with d ≤ K ≤ 2²⁶; pass both prime and dimension, or neither.
        dimension: t ≥ 2, the number of coordinates of a point.

    Example:
        >>> pgr = PGR("1", domain_size=1024)
        >>> pgr.prime, pgr.dimension, pgr.state_size, round(float(pgr.p), 4), round(float(pgr.q), 4)
        (3, 7, 1093, 0.5758, 0.3328)
    """

    name: ClassVar[str] = "pgr"
    own_parameters: ClassVar[tuple[str, ...]] = ("dimension", "prime")

    def __init__(
        self,
        epsilon: str | int | Fraction,
        domain_size: int,
        *,
        prime: int | None = None,
        dimension: int | None = None,
    ) -> None:
        super().__init__(epsilon, domain_size)
        if prime is None and dimension is None:
            prime, dimension = best_geometry(self.E, self.domain_size)
        elif prime is None or dimension is None:
            raise TypeError("only one of prime and dimension given; pass both or neither")
        self.prime = as_integer("prime", prime, 2, MAX_POINTS)
        self.dimension = as_integer("dimension", dimension, 2, MAX_POINTS.bit_length())
        if not _is_prime(self.prime):
            raise ValueError(f"prime is {self.prime}, which is not a prime number")
        self.points = points(self.prime, self.dimension)
        if not self.domain_size <= self.points <= MAX_POINTS:
            raise ValueError(
                f"prime {self.prime} and dimension {self.dimension} make {self.points} points; "
                f"allowed is domain_size = {self.domain_size} to {MAX_POINTS}"
            )
        self.hyperplane = self.preferred = points(self.prime, self.dimension - 1)
        weight = (self.E - 1) * self.hyperplane + self.points  # 1/π
        both = points(self.prime, self.dimension - 2)
        self.p = self.E * self.hyperplane / weight
        self.q = ((self.E - 1) * both + self.hyperplane) / weight
        self._near = (self.E - 1) * self.hyperplane / weight
        self.fields = {"index": self.points}

    @property
    def state_size(self) -> int:
        """K, the number of points."""
        return self.points

    def perturb_one(self, value: int) -> tuple[int, ...]:
        """Returns a report (index,); see `Oracle.perturb_one`."""
        value = self._checked_value(value)
        near, place = sampling.coin(self._near), sampling.integer(self.hyperplane)
        other = sampling.integer(self.points)  # all three are always drawn, so that the time is constant
        chosen = orthogonal(value, place, self.prime, self.dimension)
        return (chosen if near else other,)

    def _perturb(
        self, values: npt.NDArray[np.int64], reports: npt.NDArray[np.void], rng: np.random.Generator | None
    ) -> None:
        import numpy as np

        near = sampling.coins(self._near, values.size, rng=rng)
        places = sampling.integers(self.hyperplane, values.size, rng=rng)
        others = sampling.integers(self.points, values.size, rng=rng)
        chosen = orthogonals(values, places, self.prime, self.dimension)
        reports["index"] = np.where(near, chosen, others)

    def support(self, state: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Returns the exact support of each value, as (d,) int64.

        If the sum of the counters exceeds 2³³, groups of binary digits are decoded separately. Rounding errors then
        stay well below 1/2; see `hyperplane_sums`.

        Raises:
            TypeError: a state that is not int64.
            ValueError: a state of another shape or with a negative counter.
        """
        check_state(state, self.state_size)
        if state.min() < 0:
            raise ValueError(f"state has the counter {state.min()}; allowed is 0 or more")
        return self._sums(state)[: self.domain_size].copy()

    @property
    def most_supported(self) -> int:
        """min(c, d), the number of values that the point (1, 0, …, 0) supports."""
        return min(self.domain_size, self.hyperplane)

    def _messages(
        self, values: npt.NDArray[np.int64], places: npt.NDArray[np.int64]
    ) -> npt.NDArray[np.int64]:
        return orthogonals(values, places, self.prime, self.dimension)

    def _supported(self, subset: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        members = self.zeros()
        members[subset] = 1
        return self._sums(members)  # like a state, because orthogonality is symmetric

    def _sums(self, state: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Sums for each point the counters of all points orthogonal to it."""
        import numpy as np

        if self.prime == 2:
            return self._binary_sums(state)
        digits = 63 if state.sum(dtype=np.float64) <= EXACT else (EXACT // self.points).bit_length() - 1
        counts = np.zeros(self.points, np.int64)
        for shift in range(0, 63, digits):
            part = state >> shift & (1 << digits) - 1
            if part.any():
                sums = hyperplane_sums(part, self.prime, self.dimension)
                counts += sums.astype(np.int64) << shift
        return counts

    def _binary_sums(self, state: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        import numpy as np

        from ldp import kernels

        lifted = np.concatenate([[0], state])  # by word: point v has the word v + 1
        kernels.walsh_hadamard(lifted)
        doubled = lifted[0] + lifted[1:]
        counts: npt.NDArray[np.int64] = (doubled.view(np.uint64) >> 1).view(np.int64)  # 2n is below 2⁶⁴
        return counts


def points(prime: int, dimension: int) -> int:
    """Returns the number of points with t coordinates, (q̄^t − 1)/(q̄ − 1)."""
    vectors: int = prime**dimension
    return (vectors - 1) // (prime - 1)


def best_geometry(E: Fraction, domain_size: int) -> tuple[int, int]:
    """Returns the default prime q̄ and dimension t.

    The pair has the smallest K whose variance at f = 0 is within 2 % of the lowest, for d ≤ K ≤ max(4d, 2¹⁶).

    Example:
        >>> best_geometry(Fraction(2), 1024), best_geometry(Fraction(150), 1024), best_geometry(Fraction(150), 10**6)
        ((3, 7), (113, 3), (127, 4))
    """
    candidates = []
    for dimension in count(2):
        most = max(EXCESS * domain_size, ALWAYS)
        if points(2, dimension) > most:
            break
        # on a line each point has one orthogonal point, as in GRR over K values: the smallest K is best
        prime = max(2, domain_size - 1) if dimension == 2 else 2
        while points(prime, dimension) < domain_size:
            prime += 1
        while (size := points(prime, dimension)) <= most:
            if _is_prime(prime):
                candidates.append((size, _variance(E, prime, dimension), prime, dimension))
                if dimension == 2:
                    break
            prime += 1
    enough = NEAR * min(variance for _, variance, _, _ in candidates)
    return next(
        (prime, dimension) for _, variance, prime, dimension in sorted(candidates) if variance <= enough
    )


def _variance(E: Fraction, prime: int, dimension: int) -> Fraction:
    """Returns q(1−q)/(p−q)², n times the variance of an estimate at f = 0."""
    everything, one, two = (points(prime, dimension - k) for k in range(3))
    support = (E - 1) * two + one  # q/π; the next line is (1 − q)/π
    rest = (E - 1) * (one - two) + everything - one
    return support * rest / ((E - 1) * (one - two)) ** 2


def _is_prime(number: int) -> bool:
    return number >= 2 and all(number % divisor for divisor in range(2, math.isqrt(number) + 1))


def word(index: int, prime: int, dimension: int) -> int:
    """Returns the word of a point, in constant time.

    A word with m digits after its leading 1 is index + 1 plus the sum of q̄^i − 2q̄^(i−1) over i = 1..m. All indices
    take the same steps, so that the duration does not reveal a secret index.

    Example:
        >>> [word(index, 3, 3) for index in range(6)]
        [1, 3, 4, 5, 9, 10]
    """
    found, head, first = index + 1, 1, 1
    for _ in range(dimension - 1):
        found += (prime - 2) * head * (index >= first)
        head *= prime
        first += head
    return found


def number(word: int, prime: int, dimension: int) -> int:
    """Returns the number of the point with a given word, in constant time."""
    found, head = word - 1, 1
    for _ in range(dimension - 1):
        found -= (prime - 2) * head * (word >= head * prime)
        head *= prime
    return found


def orthogonal(value: int, place: int, prime: int, dimension: int) -> int:
    """Returns one of the c points that are orthogonal to a value.

    Each place in 0..c−1 selects a different point. Let l be the position of the value's last non-zero coordinate.
    Without coordinate l, the result is the point of PG(t−2, q̄) whose number is the place. The other coordinates
    determine coordinate l, which is 0 if all coordinates before it are 0. The value is secret, so no branch and no
    number of steps depends on it.

    Example:
        >>> [orthogonal(5, place, 3, 3) for place in range(4)]  # value 5 has the word 101, point 1 has the word 010
        [1, 6, 9, 12]
    """
    own, others = word(value, prime, dimension), word(place, prime, dimension - 1)
    passed, last, at, product, found = False, 0, 0, 0, 0
    unit, after = 1, 0  # after: the previously read coordinate of the place's point
    for _ in range(dimension):
        own, a = divmod(own, prime)
        others, b = divmod(others, prime)
        before, here = passed, (a != 0) > passed  # whether l was read earlier; whether this coordinate is l
        passed |= here
        last += a * here
        at += unit * here
        product += a * after * before
        found += unit * (after * before + b * (not passed))
        unit, after = unit * prime, b
    between = -product * pow(last, prime - 2, prime) % prime  # 1/a is a^(q̄−2)
    return number(found + between * at, prime, dimension)


def orthogonals(
    values: npt.NDArray[np.int64], places: npt.NDArray[np.int64], prime: int, dimension: int
) -> npt.NDArray[np.int64]:
    """Applies `orthogonal` to n pairs of value and place. O(t) per pair."""
    import numpy as np

    heads = prime ** np.arange(dimension, dtype=np.int64)
    firsts = np.array([points(prime, m) for m in range(dimension)], np.int64)  # first point with m+1 digits

    def words(indices: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        level = np.searchsorted(firsts, indices, side="right") - 1
        return indices - firsts[level] + heads[level]

    own, tail = words(values), np.ones_like(values)
    ends_in_zero = np.flatnonzero(own % prime == 0)
    while ends_in_zero.size:
        own[ends_in_zero] //= prime
        tail[ends_in_zero] *= prime
        ends_in_zero = ends_in_zero[own[ends_in_zero] % prime == 0]
    own, last = np.divmod(own, prime)
    head, rest = np.divmod(words(places), tail)
    product, digits = np.zeros_like(values), head
    for _ in range(dimension - 1):
        own, a = np.divmod(own, prime)
        digits, b = np.divmod(digits, prime)
        product += a * b
    between = -(product % prime) * _inverses(last, prime) % prime
    found: npt.NDArray[np.int64] = (head * prime + between) * tail + rest
    level = np.searchsorted(heads, found, side="right") - 1
    return found - heads[level] + firsts[level]


def _inverses(numbers: npt.NDArray[np.int64], prime: int) -> npt.NDArray[np.int64]:
    """Returns 1/a = a^(q̄−2) modulo the prime for each non-zero a."""
    import numpy as np

    powers, result = numbers, np.ones_like(numbers)
    exponent = prime - 2
    while exponent:
        if exponent & 1:
            result = result * powers % prime
        powers = powers * powers % prime
        exponent >>= 1
    return result


def hyperplane_sums(counters: npt.NDArray[np.int64], prime: int, dimension: int) -> npt.NDArray[np.float64]:
    """Sums for each point the counters of all points orthogonal to it.

    Let n be the sum of the counters. Suppose that each counter is copied to all multiples of its point, and that F is
    the Fourier transform of the copies. Then the sum at v is (F[v] + n)/q̄. The copies would take q̄ − 1 times the
    memory, so the function adds one dimension at a time. A point is (1, a) for a vector a, or (0, u) for a point u of
    one dimension less. For λ ≠ 0,

        sum(0, v) = Σ counter(1, a) over <a, v> = 0         + sum(v) among the points (0, u)
        sum(1, λv) = Σ counter(1, a) over <a, v> = −1/λ     + sum(v) among the points (0, u)
        sum(1, 0) = Σ counter(0, u).

    For a point v, let g(s) = Σ counter(1, a) over <a, v> = s. By the Fourier slice theorem, the transform of g (of
    length q̄) is the transform of counter(1, ·) at the multiples λv. One transform over q̄^(t−1) vectors is therefore
    enough, followed by one of length q̄ for each point v. Half of the multiples suffice, because the counters are real.

    The error of a result is at most C·2⁻⁵³·n. An axis adds at most 2(q̄ + 3) to C if it is summed directly, or 600·√q̄
    if it uses a chirp convolution (q̄ above 80). For K ≤ 2²⁶, C is below 2¹⁸, so the error is below 1/4 for n ≤ 2³³.

    Args:
        counters: (K,) int64, non-negative, with a sum of at most `EXACT`.
        prime: q̄, an odd prime.
        dimension: t.

    Returns:
        (K,) float64, whole numbers.
    """
    import numpy as np

    multiples = _multiples(prime, dimension - 1)
    right_sides = -_inverses(np.arange(1, prime), prime) % prime  # −1/λ
    sums = np.zeros(1)  # the one point of PG(0) is not orthogonal to itself
    for m in range(1, dimension):
        directions = points(prime, m)
        infinite, affine = np.split(counters[: directions + prime**m], [directions])
        at = multiples[:, :directions]
        slices = _slices(affine.reshape((prime,) * m), at)
        slices += sums
        sums = np.empty(directions + prime**m)
        sums[:directions] = slices[0]
        sums[directions] = infinite.sum()
        sums[directions:][at] = slices[right_sides]
    return sums


def _slices(affine: npt.NDArray[np.int64], multiples: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
    """Returns g(s) of `hyperplane_sums` for each s (row) and point v (column)."""
    import numpy as np
    from scipy import fft

    if affine.ndim == 1:
        return affine.astype(np.float64)[:, None]
    prime, half = affine.shape[0], affine.shape[0] // 2
    # rfftn keeps only 0..half of the first axis, which contains the multiples of each point by 1..half
    spectrum = fft.rfftn(affine, axes=(*range(1, affine.ndim), 0)).ravel()
    lines = np.empty((half + 1, multiples.shape[1]), np.complex128)
    lines[0] = spectrum[0]
    lines[1:] = spectrum[multiples[:half]]
    del spectrum
    sums: npt.NDArray[np.float64] = fft.irfft(lines, prime, axis=0)
    return np.rint(sums, out=sums)


def _multiples(prime: int, dimension: int) -> npt.NDArray[np.int64]:
    """Returns λv in base q̄ for each λ in 1..q̄−1 (row) and point v (column)."""
    import numpy as np

    factors = np.arange(1, prime)[:, None]
    # λw for all vectors w of m coordinates; a point of m+1 coordinates is 1 followed by a vector w
    vectors = np.zeros((prime - 1, 1), np.int64)
    blocks = []
    for m in range(dimension):
        blocks.append(factors * prime**m + vectors)
        if m + 1 < dimension:
            digits = factors * np.arange(prime) % prime * prime**m
            vectors = (digits[:, :, None] + vectors[:, None, :]).reshape(prime - 1, -1)
    return np.concatenate(blocks, axis=1)
