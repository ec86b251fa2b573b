"""Pairs of values that expose a weak hash: random, structured, or chosen from mul32's words."""

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
from numba import njit, uint32

from tests.long.attack.collisions import words_of_mul32

VALUES = 1 << 24
"""The largest domain."""
MOST = 1 << 19
"""Pairs of one family."""

Pairs = npt.NDArray[np.int64]
Words = npt.NDArray[np.uint32]

_WORD = 0xFFFFFFFF


def blind(rng: np.random.Generator) -> Iterator[tuple[str, Pairs]]:
    """Yields (name, (n, 2) pairs) of values, independent of the hash."""
    yield "random", rng.integers(VALUES, size=(2 * MOST, 2))
    v = rng.integers(VALUES, size=MOST)
    one, two = rng.integers(24, size=(2, v.size))
    yield "XOR of one or two bits", np.stack([v, v ^ (1 << one | 1 << two)], axis=1)
    sign = rng.choice([-1, 1], size=v.size)
    yield "difference of ±2^i ± 2^j", np.stack([v, (v + sign * (1 << one) + (1 << two)) % VALUES], axis=1)
    yield "neighbours", np.stack([v, (v + rng.integers(1, 17, size=v.size)) % VALUES], axis=1)
    powers = 1 << np.arange(24)
    round_values = [powers, powers - 1, powers + 1, VALUES - powers, 3 * powers, 10 ** np.arange(8)]
    round_values += [
        np.arange(256),
        np.arange(256) << 16,
        np.arange(256) * 0x010101,
        np.arange(256) * 0x10001,
    ]
    special = np.unique(np.concatenate(round_values) % VALUES)
    i, j = np.triu_indices(special.size, 1)
    yield "round numbers, all pairs", np.stack([special[i], special[j]], axis=1)


def chosen(rng: np.random.Generator) -> Iterator[tuple[str, Pairs]]:
    """Yields (name, (n, 2) pairs) of values whose words e, a, b, c are close or related."""
    e, a, b, c = (np.ascontiguousarray(column) for column in words_of_mul32(np.arange(VALUES)).T)
    kinds = c >> np.uint32(2) & np.uint32(0x33333333)  # the 16 bits in which c's differ, brought together
    for by, mask in ((2, 0x0F0F0F0F), (4, 0x00FF00FF), (8, 0x0000FFFF)):
        kinds = (kinds | kinds >> np.uint32(by)) & np.uint32(mask)
    for name, word in (("e", e), ("b", b), ("a", a)):
        yield f"{name} closest in its upper or lower bits", _closest(word)
        yield f"c equal, {name} closest in its upper or lower bits", _closest(word, kinds)

    flips = np.uint32(1) << np.arange(32, dtype=np.uint32)
    two = rng.choice(flips, size=(64, 2)).sum(axis=1, dtype=np.uint32)
    flips = np.concatenate([flips, ~flips, two[two != 0], np.array([_WORD], np.uint32)])
    yield "e differs in one or two bits, or in all", _some([_inside(before(e ^ flip)) for flip in flips], rng)
    yield (
        "b differs in one or two bits, or in all",
        _some([_inside(before(before(b ^ flip))) for flip in flips], rng),
    )

    fewest: dict[str, list[Pairs]] = {"e": [], "c": [], "e and c": []}
    near = []
    for k in range(16, 24):
        low = np.arange(VALUES - (1 << k))
        pairs = np.stack([low, low + (1 << k)], axis=1)
        near.append(rng.choice(pairs, size=MOST // 8))
        of_e, of_c = (np.bitwise_count(word[: low.size] ^ word[1 << k :]) for word in (e, c))
        for name, bits in (("e", of_e), ("c", of_c), ("e and c", of_e + of_c)):
            fewest[name].append(_least(pairs, bits, MOST // 16))
    yield "a equal modulo 2^18 … 2^25", np.concatenate(near)
    for name, parts in fewest.items():
        yield f"a equal modulo 2^18 … 2^25, {name} in fewest bits", np.concatenate(parts)

    powers = [1 + sign * (1 << k) for k in range(2, 31) for sign in (1, -1)]
    odd = range(-15, 16, 2)
    quotients = [i * pow(j, -1, 1 << 32) for i in odd for j in odd if j > 0 and i != j and (i - j) % 4 == 0]
    for name, ratios in (("1 ± 2^k", powers), ("i/j, odd and below 16", rng.choice(quotients, 32).tolist())):
        related = [_with_a(a * np.uint32(r % (1 << 32))) for r in ratios]
        yield f"a' = a·({name})", _some(related, rng)
        each = MOST // 2 // len(related)
        parts = [_least(pairs, np.bitwise_count(e[pairs[:, 0]] ^ e[pairs[:, 1]]), each) for pairs in related]
        yield f"a' = a·({name}), e in fewest bits", np.concatenate(parts)

    drawn = rng.choice(most_linear(1 << 14), size=(1 << 23, 2))
    bits = np.bitwise_count(e[drawn[:, 0]] ^ e[drawn[:, 1]])
    yield "c most linear, e in fewest bits", _least(drawn, bits, MOST // 2)

    drawn = rng.integers(VALUES, size=(1 << 23, 2))
    bits = sum(np.bitwise_count(word[drawn[:, 0]] ^ word[drawn[:, 1]]) for word in (e, a, b, c))
    yield "all words in fewest bits, of 2^23 pairs", _least(drawn, bits, MOST // 2)


def most_linear(number: int) -> Pairs:
    """Values whose product with c is closest to linear over XOR: x's upper bit is most like a parity of T's bits."""
    # The upper bit has the Fourier coefficients 2/(πk) at odd k, and a wave of T·c of frequency k has with the best
    # parity of T's bits the correlation Π max(|cos|, |sin|)(π·k·c·2^j / 2³²) over the bits j.
    c = words_of_mul32(np.arange(VALUES))[:, 3]
    different, where = np.unique(c, return_inverse=True)
    best = np.zeros(different.size)
    for k in (1, 3, 5, 7):
        correlation = np.full(different.size, 2 / np.pi / k)
        for j in range(32):
            turn = np.pi * ((different.astype(np.uint64) * np.uint64(k) << np.uint64(j)) % (1 << 32)) / 2**32
            correlation *= np.maximum(np.abs(np.cos(turn)), np.abs(np.sin(turn)))
        best = np.maximum(best, correlation)
    return np.argsort(-best[where], kind="stable")[:number]


def _closest(word: Words, kinds: Words | None = None) -> Pairs:
    """The pairs of values with the closest words, in their upper or lower bits; only one kind, if given."""
    parts = []
    for key in (word, _reversed(word)):
        packed = (
            key.astype(np.uint64)
            if kinds is None
            else kinds.astype(np.uint64) << np.uint64(24) | key >> np.uint64(8)
        )
        packed = np.sort(packed << np.uint64(24) | np.arange(VALUES, dtype=np.uint64))
        order = (packed & np.uint64(VALUES - 1)).astype(np.int64)
        pairs = np.stack([order[:-1], order[1:]], axis=1)
        parts.append(_least(pairs, np.diff(packed >> np.uint64(24)), MOST // 4))
    return np.concatenate(parts)


def _least(pairs: Pairs, badness: npt.NDArray[np.generic], most: int) -> Pairs:
    """The pairs with the least badness."""
    if len(pairs) <= most:
        return pairs
    return pairs[np.argpartition(badness, most)[:most]]


def _some(parts: list[Pairs], rng: np.random.Generator) -> Pairs:
    """At most ``MOST`` of all pairs, drawn alike from each part."""
    each = -(-MOST // len(parts))
    return np.concatenate([part if len(part) <= each else rng.permutation(part)[:each] for part in parts])


def _with_a(wanted: Words) -> Pairs:
    """The pairs of a value and the value below 2²⁴ that has the wanted a."""
    quarter = (wanted - np.uint32(0xC2B2AE3D)) >> np.uint32(2)
    inverse = np.uint32(pow(0x78DDE6C4 >> 2, -1, 1 << 30))
    return _inside(quarter * inverse & np.uint32((1 << 30) - 1))


def _inside(other: Words) -> Pairs:
    """The pairs of each value and another number, where that is a value."""
    first = np.flatnonzero(other < VALUES)
    return np.stack([first, other[first].astype(np.int64)], axis=1)


@njit(cache=True, nogil=True)
def before(words: Words) -> Words:
    """Inverts mix and the step before it."""
    made = np.empty_like(words)
    for i in range(words.size):
        x = words[i]
        x = uint32(x ^ x >> uint32(16))
        x = uint32(x * uint32(0x43021123))  # the inverse of 0x846CA68B
        x = uint32(x ^ x >> uint32(15) ^ x >> uint32(30))
        x = uint32(x * uint32(0x1D69E2A5))  # the inverse of 0x7FEB352D
        made[i] = uint32(uint32(x ^ x >> uint32(16)) - uint32(0x9E3779B1))
    return made


def _reversed(word: Words) -> Words:
    """The bits of each word, last first."""
    swapped = word.byteswap()
    for by, mask in ((4, 0x0F0F0F0F), (2, 0x33333333), (1, 0x55555555)):
        swapped = swapped >> np.uint32(by) & np.uint32(mask) | (swapped & np.uint32(mask)) << np.uint32(by)
    return swapped
