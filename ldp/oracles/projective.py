"""Projective Geometry Response: the report is a point, most likely on the hyperplane of the value.

Source: Feldman, Nelson, Nguyen and Talwar, "Private Frequency Estimation via Projective Geometry", ICML 2022.

Points are those of the projective space PG(t−1, q̄) over the integers modulo a prime q̄: vectors of t coordinates, not
all zero, up to a factor. Each is represented by the vector whose first non-zero coordinate is 1, read as a number in
base q̄, its "word"; in the order of their words the points are numbered 0..K−1, which makes every subspace of vanishing
first coordinates a prefix. A word of m+1 digits lies in q̄^m..2q̄^m−1 and is the point numbered
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

EXCESS = 4  # the state is at most this many times the domain
ALWAYS = (
    1 << 16
)  # or this large: more points than a small domain has, of which an index still takes two bytes
NEAR = Fraction(51, 50)  # of the least variance: what fewer points may cost
MAX_POINTS = EXCESS * MAX_DOMAIN
EXACT = 1 << 33  # counters of this sum are decoded exactly by one pass of float transforms


class PGR(PreferredMessages):
    """Projective Geometry Response: about OLH's variance, at one increment a report.

    Values and reports are the K points of PG(t−1, q̄). Two points are orthogonal when the sum of the products of their
    coordinates is 0 modulo q̄; c = (q̄^(t−1)−1)/(q̄−1) points are orthogonal to one, and (q̄^(t−2)−1)/(q̄−1) to two.
    With π = 1/((E−1)c + K) the user reports each point orthogonal to the own value with probability E·π and any other
    with π, so the ratio of two users' probabilities for one report is at most E ≤ e^ε. A report supports the values
    orthogonal to it.

    The default prime and dimension have the fewest points within 2 % of the least variance with d ≤ K ≤ max(4d, 2¹⁶).
    If no such K has a prime near E + 1, the variance is larger: at ε = 8 and d = 30,000 it is 2.7 times OLH's. `ldp
    plan` compares the protocols.

    Report: ``index``, the number of a point, 1, 2 or 4 bytes. State: K counters. Server: one increment a report;
    decoding is O(K log K) and takes about 50 bytes a counter.

    Args:
        epsilon: ε as "1", "0.5", "1/3", an int or a Fraction; 0 < ε ≤ 64.
        domain_size: d, 1 ≤ d ≤ 2²⁴.
        prime: q̄, with d ≤ K ≤ 2²⁶; given together with the dimension or not at all.
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
            raise TypeError("prime and dimension are given together or not at all")
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
        """The number of points, K."""
        return self.points

    def perturb_one(self, value: int) -> tuple[int, ...]:
        """(index,): a uniform point of the value's hyperplane with probability (E−1)c/((E−1)c + K), else of all."""
        value = self._checked_value(value)
        near, place = sampling.coin(self._near), sampling.integer(self.hyperplane)
        other = sampling.integer(self.points)  # all three always drawn: the work is the same
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
        """Number of reports that support each value: (d,) int64, exact; see `Oracle.support`.

        Counters that sum to more than 2³³ are decoded in parts, some binary digits at a time, so that no rounding
        error comes near 1/2: see `hyperplane_sums`.

        Raises:
            TypeError: a state that is not int64.
            ValueError: a state of another shape or with a negative counter.
        """
        check_state(state, self.state_size)
        if state.min() < 0:
            raise ValueError(f"state has the counter {state.min()}; counters are 0 or more")
        return self._sums(state)[: self.domain_size].copy()

    @property
    def most_supported(self) -> int:
        """Of the point 1, 0, …, 0, to which the first c values are orthogonal: see `Oracle.most_supported`."""
        return min(self.domain_size, self.hyperplane)

    def _messages(
        self, values: npt.NDArray[np.int64], places: npt.NDArray[np.int64]
    ) -> npt.NDArray[np.int64]:
        return orthogonals(values, places, self.prime, self.dimension)

    def _supported(self, subset: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Orthogonality is symmetric: `support` of the set as if it were a state, for all points."""
        members = self.zeros()
        members[subset] = 1
        return self._sums(members)

    def _sums(self, state: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """For each point the sum of the counters of all points orthogonal to it: (K,) int64, exact."""
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
        """(F[v] + n)/2: the only multiple of a point is itself, and word v+1 is that of point v."""
        import numpy as np

        from ldp import kernels

        lifted = np.concatenate([[0], state])
        kernels.walsh_hadamard(lifted)
        doubled = lifted[0] + lifted[1:]
        counts: npt.NDArray[np.int64] = (doubled.view(np.uint64) >> 1).view(np.int64)  # 2n is below 2⁶⁴
        return counts


def points(prime: int, dimension: int) -> int:
    """The number of points with t coordinates: (q̄^t − 1)/(q̄ − 1)."""
    vectors: int = prime**dimension
    return (vectors - 1) // (prime - 1)


def best_geometry(E: Fraction, domain_size: int) -> tuple[int, int]:
    """The prime q̄ and dimension t of the fewest points whose variance at f = 0 is within 2 % of the least.

    Allowed are d ≤ K ≤ max(4d, 2¹⁶) points.

    Example:
        >>> best_geometry(Fraction(2), 1024), best_geometry(Fraction(150), 1024), best_geometry(Fraction(150), 10**6)
        ((3, 7), (113, 3), (127, 4))
    """
    candidates = []
    for dimension in count(2):
        most = max(EXCESS * domain_size, ALWAYS)
        if points(2, dimension) > most:
            break
        # a point of the line has one orthogonal point: that is GRR over K values, best for the smallest K
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
    """q(1−q)/(p−q)²: n times the variance of the estimate of a value that nobody has."""
    everything, one, two = (points(prime, dimension - k) for k in range(3))
    support = (E - 1) * two + one  # q and 1 − q, times the weight 1/π
    rest = (E - 1) * (one - two) + everything - one
    return support * rest / ((E - 1) * (one - two)) ** 2


def _is_prime(number: int) -> bool:
    return number >= 2 and all(number % divisor for divisor in range(2, math.isqrt(number) + 1))


def word(index: int, prime: int, dimension: int) -> int:
    """The word of a point: its t coordinates as the digits of a number in base q̄, the first of them 1.

    With m digits after the 1 it is the index + 1 and q̄^i − 2q̄^(i−1) more for each i = 1..m. The steps do not depend
    on the index: their time must not reveal it.

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
    """The number of the point with a word, by the same steps for every word."""
    found, head = word - 1, 1
    for _ in range(dimension - 1):
        found -= (prime - 2) * head * (word >= head * prime)
        head *= prime
    return found


def orthogonal(value: int, place: int, prime: int, dimension: int) -> int:
    """The point at a place 0..c−1 of a value's hyperplane; every point of it has exactly one place.

    With l the last non-zero coordinate of the value, the other coordinates of an orthogonal point are those of any
    point of one dimension less, and they determine the one at l. If all before l are 0, so is the one at l. The value
    is the user's secret: no branch or number of steps depends on it.

    Example:
        >>> [orthogonal(5, place, 3, 3) for place in range(4)]  # value 5 is 101: of 011 and so on
        [1, 6, 9, 12]
    """
    own, others = word(value, prime, dimension), word(place, prime, dimension - 1)
    passed, last, at, product, found = False, 0, 0, 0, 0
    unit, after = 1, 0  # after: the coordinate of the place's point that is next to this one, towards the end
    for _ in range(dimension):
        own, a = divmod(own, prime)
        others, b = divmod(others, prime)
        before, here = passed, (a != 0) > passed  # l is nearer to the end; it is this one
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
    """`orthogonal` for each of (n,) values and places. O(t) a value."""
    import numpy as np

    heads = prime ** np.arange(dimension, dtype=np.int64)
    firsts = np.array([points(prime, m) for m in range(dimension)], np.int64)  # the points with these heads

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
    """1/a modulo the prime, as a^(q̄−2), of each a that is not 0."""
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
    """For each point the sum of the counters of all points orthogonal to it, for an odd prime.

    The sum is linear in the Fourier transform F of the counters lifted to all q̄^t − 1 multiples of the points:
    (F[v] + n)/q̄. The lift is q̄ − 1 times as long as the counters, so it is never made. The points (1, a) are all
    vectors a of one dimension less, the points (0, u) the points u of one dimension less, and

        sum(0, v) = Σ counter(1, a), <a, v> = 0         + sum(v) among the points (0, u)
        sum(1, λv) = Σ counter(1, a), <a, v> = −1/λ     + sum(v) among the points (0, u)
        sum(1, 0) = Σ counter(0, u).

    The first sums, for one v over all right sides s, are the transform of length q̄ of s -> Σ_{<a, v> = s}, and by the
    slice theorem that is the transform of counter(1, ·) at the multiples λv: one transform over q̄^(t−1) vectors, then
    one of length q̄ for each direction v. Half of the multiples are enough, since the counters are real.

    The error of a result is at most C·2⁻⁵³·n. An axis adds to C at most 2(q̄ + 3) where it is summed directly, and
    600·√q̄ where it is a convolution with a chirp (q̄ above 80): C < 2¹⁸ for K ≤ 2²⁶, an error below 1/4 for n up to
    2³³.

    Args:
        counters: (K,) int64, 0 or more, with a sum up to `EXACT`.
        prime: q̄ ≥ 3.
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
    """The sums of the counters at all vectors a with <a, v> = s: (q̄, directions) for s and v."""
    import numpy as np
    from scipy import fft

    if affine.ndim == 1:
        return affine.astype(np.float64)[:, None]
    prime, half = affine.shape[0], affine.shape[0] // 2
    # the first axis is the halved one: the multiples of a direction by 1..half begin with 0 or 1..half
    spectrum = fft.rfftn(affine, axes=(*range(1, affine.ndim), 0)).ravel()
    lines = np.empty((half + 1, multiples.shape[1]), np.complex128)
    lines[0] = spectrum[0]
    lines[1:] = spectrum[multiples[:half]]
    del spectrum
    sums: npt.NDArray[np.float64] = fft.irfft(lines, prime, axis=0)
    return np.rint(sums, out=sums)


def _multiples(prime: int, dimension: int) -> npt.NDArray[np.int64]:
    """λv as a number in base q̄, for λ = 1..q̄−1 and the points v in their order: (q̄−1, points)."""
    import numpy as np

    factors = np.arange(1, prime)[:, None]
    # λw for all vectors w of m coordinates; a point of m+1 coordinates is 1 and then one of them
    vectors = np.zeros((prime - 1, 1), np.int64)
    blocks = []
    for m in range(dimension):
        blocks.append(factors * prime**m + vectors)
        if m + 1 < dimension:
            digits = factors * np.arange(prime) % prime * prime**m
            vectors = (digits[:, :, None] + vectors[:, None, :]).reshape(prime - 1, -1)
    return np.concatenate(blocks, axis=1)
