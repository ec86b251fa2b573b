"""Optimized Local Hashing (paper, Section III-B)."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import TYPE_CHECKING, ClassVar

from ldp import sampling
from ldp.arguments import as_integer
from ldp.oracles.oracle import Oracle

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

MAX_G = 1 << 16
_WORD = 0xFFFFFFFF
_STEP = 0x9E3779B1


def mul32(seed: int, value: int, g: int) -> int:
    """Returns the "mul32" bucket of a value below 2²⁴ under a 32-bit seed.

    Four 32-bit words e, a, b and c are derived from the value. They map the seed s to x = (y XOR y>>11 XOR b)·c with
    y = (s XOR e)·a, modulo 2³². The bucket is ⌊x·g / 2³²⌋. For each value, this map is a bijection of 32-bit words, so
    exactly ⌊2³²/g⌋ or ⌈2³²/g⌉ seeds lead to each bucket. `python -m tests.long.attack` searches for pairs of values
    that collide under more than 1/g of the seeds.

    Example:
        >>> [mul32(12345, v, 3) for v in range(6)]
        [0, 2, 1, 1, 2, 2]
    """
    e = _mixed(value + _STEP & _WORD)
    b = _mixed(e + _STEP & _WORD)
    c = _mixed(b + _STEP & _WORD) & 0xCCCCCCCC | 0x11111111
    x = (seed ^ e) * (0xC2B2AE3D + 0x78DDE6C4 * value) & _WORD
    x ^= x >> 11 ^ b
    return (x * c & _WORD) * g >> 32


def _mixed(x: int) -> int:
    """Mixes x bijectively, so that each output bit depends on all bits of x."""
    x ^= x >> 16
    x = x * 0x7FEB352D & _WORD
    x ^= x >> 15
    x = x * 0x846CA68B & _WORD
    return x ^ x >> 16


def xxh32(seed: int, value: int, g: int) -> int:
    """Returns the xxHash32 of a value's decimal string, modulo g.

    The value must be below 10¹⁵. pure-ldp, multi-freq-ldpy and the paper's authors use the same function.

    Example:
        >>> [xxh32(12345, v, 3) for v in range(6)]
        [0, 1, 0, 0, 1, 0]
    """
    text = str(value).encode()
    lanes = len(text) // 4 * 4
    h = seed + 0x165667B1 + len(text) & _WORD
    for start in range(0, lanes, 4):
        h = h + int.from_bytes(text[start : start + 4], "little") * 0xC2B2AE3D & _WORD
        h = ((h << 17 | h >> 15) & _WORD) * 0x27D4EB2F & _WORD
    for byte in text[lanes:]:
        h = h + byte * 0x165667B1 & _WORD
        h = ((h << 11 | h >> 21) & _WORD) * 0x9E3779B1 & _WORD
    h ^= h >> 15
    h = h * 0x85EBCA77 & _WORD
    h ^= h >> 13
    h = h * 0xC2B2AE3D & _WORD
    h ^= h >> 16
    return h % g


HASHES: dict[str, Callable[[int, int, int], int]] = {"mul32": mul32, "xxh32": xxh32}


class OLH(Oracle):
    """Optimized Local Hashing, or Binary Local Hashing if g is 2.

    The device draws a 32-bit seed, which selects a hash function H from the domain to g buckets. It reports the seed
    and a bucket. The bucket is H(v) for the user's value v with probability p = E/(E+g−1). Each other bucket has
    probability 1/(E+g−1). For every H, the ratio of a bucket's probabilities under two values is at most E ≤ e^ε. A
    report supports each value that H maps to the reported bucket. It supports its user's value with probability p, and
    any other value with q = 1/g. The variance does not depend on d. It is lowest for g = h+1, where h is the smallest
    integer with E ≤ √(h(h+1)). The paper's "closest integer to E+1" differs in narrow ranges of ε. Binary Local Hashing
    is also called random matrix projection.

    Report: ``seed`` (4 bytes) and ``bucket`` (1 byte, or 2 if g > 256). State: d counters. Server: d hashes per report.

    Args:
        epsilon: ε as "1", "0.5", "1/3", an int or a Fraction; 0 < ε ≤ 64.
        domain_size: d, 1 ≤ d ≤ 2²⁴.
        hash: "mul32", which counts faster, or "xxh32", which other implementations use.
        g: the number of buckets, 2 ≤ g ≤ 65536; by default the best for ε.

    Example:
        >>> olh = OLH("1", domain_size=100)
        >>> olh.g, round(float(olh.p), 4), olh.q
        (4, 0.4754, Fraction(1, 4))
    """

    name: ClassVar[str] = "olh"
    own_parameters: ClassVar[tuple[str, ...]] = ("g", "hash")

    def __init__(
        self,
        epsilon: str | int | Fraction,
        domain_size: int,
        *,
        hash: str = "mul32",  # noqa: A002 - the name in the stream's document
        g: int | None = None,
    ) -> None:
        super().__init__(epsilon, domain_size)
        if not isinstance(hash, str) or hash not in HASHES:
            raise ValueError(f"hash is {hash!r}; allowed are {', '.join(HASHES)}")
        self.hash = hash
        self.g = best_g(self.E) if g is None else as_integer("g", g, 2, MAX_G)
        self.p = self.E / (self.E + self.g - 1)
        self.q = Fraction(1, self.g)
        self.fields = {"seed": 1 << 32, "bucket": self.g}

    @property
    def cost(self) -> int:
        """Steps to count one report: one hash per value."""
        return self.domain_size

    def perturb_one(self, value: int) -> tuple[int, ...]:
        """Returns a report (seed, bucket); see `Oracle.perturb_one`."""
        value = self._checked_value(value)
        seed = sampling.integer(1 << 32)
        return seed, sampling.respond(self._bucket(seed, value), self.g, self.E)

    def _bucket(self, seed: int, value: int) -> int:
        """Returns H(v) in a time that does not depend on the secret value."""
        bucket = HASHES[self.hash]
        if self.hash != "xxh32":
            return bucket(seed, value, self.g)
        found, digits = 0, len(str(value))
        for length in range(1, len(str(self.domain_size - 1)) + 1):  # one hash for each number of digits
            own = length == digits
            found += own * bucket(seed, (10 ** (length - 1), value)[own], self.g)
        return found

    def _perturb(
        self, values: npt.NDArray[np.int64], reports: npt.NDArray[np.void], rng: np.random.Generator | None
    ) -> None:
        import numpy as np

        from ldp import kernels

        seeds = sampling.integers(1 << 32, values.size, rng=rng).astype(np.uint32)
        buckets = kernels.HASH[self.hash](seeds, values, self.g)
        reports["seed"] = seeds
        reports["bucket"] = sampling.responses(buckets, self.g, self.E, rng=rng)

    @property
    def most_supported(self) -> int:
        """Expected size of the largest of the 2³²·g buckets of an ideal hash."""
        from scipy.stats import binom

        return int(binom.isf(1 / (self.g << 32), self.domain_size, 1 / self.g))

    def supported_of(self, subset: npt.NDArray[np.int64]) -> tuple[int, int]:
        """Returns the expected extremes over all seeds and buckets."""
        from scipy.stats import binom

        once = 1 / (self.g << 32)
        least, most = binom.ppf(once, subset.size, 1 / self.g), binom.isf(once, subset.size, 1 / self.g)
        return int(least), int(most)

    def accumulate_runs(
        self, addresses: npt.NDArray[np.int64], runs: npt.NDArray[np.int64], reports: npt.NDArray[np.void]
    ) -> None:
        """Counts as `Oracle.accumulate_runs`."""
        import numpy as np

        from ldp import kernels
        from ldp.oracles.partitioned import grouped

        reports, ends = grouped(reports, runs, addresses.size)
        seeds, buckets = (reports[name].astype(np.uint32) for name in ("seed", "bucket"))
        kernels.COUNT[self.hash](addresses, ends, seeds, buckets, (self.domain_size, self.g))


def best_g(E: Fraction) -> int:
    """Returns the g with the lowest variance, at most `MAX_G`; see `OLH`.

    Example:
        >>> best_g(Fraction(3)), best_g(Fraction(7, 5)), best_g(Fraction(3, 2))
        (4, 2, 3)
    """
    h = E.numerator // E.denominator
    if h * (h + 1) < E * E:
        h += 1
    return min(h + 1, MAX_G)
