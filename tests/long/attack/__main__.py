"""Attack on OLH's default hash: searches pairs of values that share a bucket more or less often than 1 in g seeds.

``python -m tests.long.attack [PART ...]`` prints tables: ``named`` (30 s), ``blind`` and ``chosen`` (10 min each),
``demonstration`` (2 min), ``predecessor`` (3 min). One core, up to 3 GiB.

C is the share of all 2³² seeds under which two values share a bucket. For a random function, C − 1/g has mean 0 and
standard deviation √((1/g)(1−1/g)/2³²), 7.6·10⁻⁶ at g = 2. The bias of OLH's estimate of a value w is the sum of
f_v·(C − 1/g)·g/(g−1) over the other values v. A tournament counts all pairs of a family under 2¹⁴ random seeds, the
farthest from 1/g under 2¹⁸ others, then 2²⁴ others, and the finalists under all seeds. Each line has the largest
deviation and the median of the largest of as many standard normal numbers.
"""

import sys
import time
from collections.abc import Callable, Iterable
from statistics import NormalDist

import numpy as np
import numpy.typing as npt

from tests.long.attack import pairs as families
from tests.long.attack.collisions import (
    BUCKETS,
    collisions,
    exact_collisions,
    far_pairs,
    top_bits,
    words_of_mix32,
    words_of_mul32,
)

NAMED = [
    *((223, 584543), (1311, 585631), (28682, 49754), (4194304, 12582912), (12345, 8400953)),
    *((8890994, 1781247), (467640, 572654), (0, 16777215)),
]
"""Weak pairs of the predecessor, pairs of close words, and the ends of the largest domain."""
ROUNDS = ((1 << 14, 256), (1 << 18, 64), (1 << 24, 16))
"""The seeds of each round, and the fraction of pairs that remain."""
FINALISTS = 2  # pairs of a family that are counted under every seed

Words = npt.NDArray[np.uint32]
Pairs = npt.NDArray[np.int64]
WordsOf = Callable[[Pairs], Words]


def deviations(counts: npt.NDArray[np.int64], seeds: int) -> npt.NDArray[np.float64]:
    """(n, m) the standard deviations from 1/g, for the first m numbers of buckets."""
    buckets = BUCKETS[: counts.shape[1]]
    return (counts - seeds / buckets) / np.sqrt(seeds / buckets * (1 - 1 / buckets))


def usual_largest(numbers: int) -> float:
    """The median of the largest of n standard normal numbers, in absolute value."""
    return NormalDist().inv_cdf((1 + 0.5 ** (1 / max(numbers, 1))) / 2)


def largest_usual(z: npt.NDArray[np.float64]) -> str:
    """Formats the largest deviation next to the usual one."""
    return f"{np.abs(z).max():5.2f} ({usual_largest(z.size):.2f})"


def count(pairs: Pairs, words_of: WordsOf, seeds: Words) -> npt.NDArray[np.int64]:
    """Returns (n, m) collisions of the pairs, for the m numbers of buckets with a normal law."""
    buckets = BUCKETS[seeds.size // BUCKETS >= 256]
    return collisions(words_of(pairs[:, 0]), words_of(pairs[:, 1]), seeds, buckets)


def exact(pair: tuple[int, int], words_of: WordsOf) -> npt.NDArray[np.int64]:
    """(len(BUCKETS),) the collisions under every seed."""
    v, w = words_of(np.array(pair))
    return exact_collisions(v, w, BUCKETS, 0, 1 << 32)


def tournament(name: str, pairs: Pairs, words_of: WordsOf, rng: np.random.Generator) -> float:
    """Print a line about a family of pairs, and return its largest exact |C − 1/g|."""
    pairs = pairs[pairs[:, 0] != pairs[:, 1]]
    met, number = [], len(pairs)
    for seeds_drawn, one_of in ROUNDS:
        seeds = rng.integers(1 << 32, size=seeds_drawn, dtype=np.uint32)
        z = deviations(count(pairs, words_of, seeds), seeds_drawn)
        met.append(largest_usual(z))
        keep = max(min(len(pairs), FINALISTS), len(pairs) // one_of)
        pairs = pairs[np.argsort(-np.abs(z).max(axis=1))[:keep]]
    finalists = [tuple(pair) for pair in pairs[:FINALISTS].tolist()]
    return final(name, number, met, finalists, words_of)


def final(
    name: str, number: int, met: list[str], finalists: list[tuple[int, int]], words_of: WordsOf
) -> float:
    """Count the finalists under every seed, print the family's line, and return its largest |C − 1/g|."""
    counts = np.array([exact(pair, words_of) for pair in finalists])
    z = deviations(counts, 1 << 32)
    off = np.abs(counts / 2**32 - 1 / BUCKETS)
    pair, g = np.unravel_index(off.argmax(), off.shape)
    print(
        f"{name:58} {number:11,d}  {'  '.join(met):44}  {len(finalists):3d}  {off.max():.1e} g={BUCKETS[g]:<5d} "
        f"{finalists[pair]!s:22} {largest_usual(z)}",
        flush=True,
    )
    return float(off.max())


def all_pairs(
    name: str, values: Pairs, seeds_drawn: int, mask: int, words_of: WordsOf, rng: np.random.Generator
) -> float:
    """Compares every pair of values by one bit of the hash; counts the farthest under all seeds."""
    seeds = rng.integers(1 << 32, size=seeds_drawn, dtype=np.uint32)
    bits = top_bits(words_of(values), seeds, mask)
    number = len(values) * (len(values) - 1) // 2
    beyond = int(0.8 * usual_largest(number) * seeds_drawn**0.5 / 2)
    found = far_pairs(bits, beyond, 1 << 20)
    found = found[np.argsort(-np.abs(found[:, 2]))]
    z = abs(found[0, 2]) / (seeds_drawn**0.5 / 2)
    finalists = [(int(values[i]), int(values[j])) for i, j, _ in found[:FINALISTS].tolist()]
    return final(name, number, [f"{z:5.2f} ({usual_largest(number):.2f})"], finalists, words_of)


def climb(words_of: WordsOf, rng: np.random.Generator, climbers: int = 64, steps: int = 600) -> float:
    """Changes pairs step by step and keeps those farther from 1/g at 2²⁰ seeds."""
    seeds = rng.integers(1 << 32, size=1 << 20, dtype=np.uint32)

    def heights(pairs: Pairs) -> npt.NDArray[np.float64]:
        z: npt.NDArray[np.float64] = np.abs(deviations(count(pairs, words_of, seeds), seeds.size)).max(axis=1)
        return z

    here = rng.integers(families.VALUES, size=(climbers, 2))
    height = heights(here)
    for _ in range(steps):
        step = np.where(rng.integers(2, size=here.shape), 1 << rng.integers(24, size=here.shape), 0)
        there = np.where(rng.integers(2, size=(climbers, 1)), here ^ step, (here + step) % families.VALUES)
        there = np.where(there[:, :1] == there[:, 1:], here, there)
        new = heights(there)
        better = new > height
        here[better], height[better] = there[better], new[better]
    met = [f"{height.max():5.2f} ({usual_largest(climbers * (steps + 1) * 6):.2f})"]
    finalists = [tuple(pair) for pair in here[np.argsort(-height)[: 4 * FINALISTS]].tolist()]
    return final("climbing at 2^20 seeds", climbers * (steps + 1), met, finalists, words_of)


def heading(what: str) -> None:
    """Print a table's head."""
    seeds = "  ".join(f"2^{n.bit_length() - 1} seeds    " for n, _ in ROUNDS)
    print(
        f"\n{what}\n{'pairs of values':58} {'how many':>11}  {seeds:44}  all seeds: |C-1/g| and its σ",
        flush=True,
    )


def named(words_of: WordsOf = words_of_mul32) -> None:
    """Print the deviations of the named pairs under every seed."""
    print("C - 1/g under all seeds; the last column: the most standard deviations of a random function")
    print(f"{'pair':24}" + "".join(f"{'g = ' + str(g):>11}" for g in BUCKETS), flush=True)
    for pair in NAMED:
        counts = exact(pair, words_of)
        off = counts / 2**32 - 1 / BUCKETS
        z = deviations(counts[None], 1 << 32)
        print(f"{pair!s:24}" + "".join(f"{x:11.1e}" for x in off) + f"  {np.abs(z).max():.2f}", flush=True)
        if words_of is words_of_mul32 and np.abs(off).max() > 1e-4:
            sys.exit(
                f"{pair} collide too often or too seldom: |C - 1/g| is {np.abs(off).max():.1e}, allowed is 1e-4"
            )


def blind() -> None:
    """Print the table of the families that do not depend on mul32."""
    rng = np.random.default_rng(8)
    heading("mul32")
    worst = [tournament(name, pairs, words_of_mul32, rng) for name, pairs in families.blind(rng)]
    worst += every_pair(words_of_mul32, rng, 1 << 16)
    worst.append(climb(words_of_mul32, rng))
    print(f"largest of all: {max(worst):.1e}")


def chosen() -> None:
    """Print the table of the families that were made from mul32's own words."""
    rng = np.random.default_rng(9)
    heading("mul32, by its words")
    worst = [tournament(name, pairs, words_of_mul32, rng) for name, pairs in families.chosen(rng)]
    linear = families.most_linear(1 << 14)
    name = "every pair of the 16384 values of most linear c"
    worst.append(all_pairs(name, linear, 1 << 15, 1 << 31, words_of_mul32, rng))
    print(f"largest of all: {max(worst):.1e}")


def every_pair(words_of: WordsOf, rng: np.random.Generator, d: int) -> Iterable[float]:
    """Every pair of a domain of d, and of some values of the largest domain, by the buckets of g = 2 and g = 4."""
    spread = rng.choice(families.VALUES, size=d, replace=False)
    top, second, both = 1 << 31, 1 << 30, 3 << 30
    yield all_pairs(f"every pair below {d}, upper bit, 2^15 seeds", np.arange(d), 1 << 15, top, words_of, rng)
    yield all_pairs(f"every pair of {d} values, upper bit, 2^15 seeds", spread, 1 << 15, top, words_of, rng)
    few = np.arange(d // 2)
    yield all_pairs(f"every pair below {d // 2}, second bit, 2^15 seeds", few, 1 << 15, second, words_of, rng)
    yield all_pairs(f"every pair below {d // 2}, both bits, 2^15 seeds", few, 1 << 15, both, words_of, rng)


def predecessor() -> None:
    """Print the results of the same attack on mix32."""
    rng = np.random.default_rng(8)
    heading("mix32")
    for name, pairs in families.blind(rng):
        tournament(name, pairs[: 1 << 20], words_of_mix32, rng)
    for _ in every_pair(words_of_mix32, rng, 1 << 15):
        pass
    climb(words_of_mix32, rng, steps=100)
    named(words_of_mix32)


def demonstration() -> None:
    """Print the estimates with the largest error: d = 2²⁰, n = 10⁶, ε = 1, 30 % of the users on one value."""
    import ldp

    d, n, heavy = 1 << 20, 1_000_000, 223
    rng = np.random.default_rng(21)
    weights = (1.0 + np.arange(d)) ** -1.1
    values = rng.choice(d, size=n, p=weights / weights.sum())
    values[rng.random(n) < 0.3] = heavy
    oracle = ldp.OLH("1", d)
    state = oracle.zeros()
    oracle.accumulate(state, oracle.perturb(values, rng=rng))
    p, q = float(oracle.p), float(oracle.q)
    truth = np.bincount(values, minlength=d)
    mean, variance = truth * p + (n - truth) * q, truth * p * (1 - p) + (n - truth) * q * (1 - q)
    z = (oracle.support(state) - mean) / np.sqrt(variance)
    sigma = np.sqrt(variance) / n / (p - q)
    print(
        f"d = 2^20, n = 10^6, g = {oracle.g}: 30 % on the value {heavy}, the others by a power law; {d:,} estimates"
    )
    for v in [*np.argsort(-np.abs(z))[:3].tolist(), heavy, 584543]:
        print(f"  value {v:>7}: off by {z[v] * sigma[v]:+.4f}, {z[v]:+.2f} standard deviations")
    print(
        f"  the largest of as many normal numbers: {usual_largest(d):.2f}; mean {z.mean():+.4f}, σ {z.std():.4f}"
    )


def main() -> None:
    """Runs the named parts, or all."""
    parts = {
        "named": named,
        "blind": blind,
        "chosen": chosen,
        "demonstration": demonstration,
        "predecessor": predecessor,
    }
    for name in sys.argv[1:] or parts:
        if name not in parts:
            sys.exit(f"{name!r} is no part of the attack; there are {', '.join(parts)}")
        start = time.perf_counter()
        parts[name]()
        print(f"{time.perf_counter() - start:.0f} s  {name}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
