"""Frequency of shared buckets of OLH's hash for two values: compiled loops over seeds, for one pair or many.

A hash under attack is four words of 32 bits for each value, (e, a, b, c), and x = T·c for y = (seed ^ e)·a and
T = y ^ y>>11 ^ b. The predecessor "mix32" has the same form; it shows that the attack finds known weaknesses.
"""

from typing import Any

import numpy as np
import numpy.typing as npt
from numba import njit, types, uint32, uint64
from numba.extending import intrinsic

Words = npt.NDArray[np.uint32]
Counts = npt.NDArray[np.int64]

BUCKETS = np.array([2, 3, 4, 16, 55, 256, 1 << 15, 1 << 16])
"""The numbers of buckets, g."""
CHUNK = 2048  # seeds hashed together: their words stay in the first-level cache


def _population_count(_typing: Any, _word: Any) -> Any:
    """The number of bits set in a word of 64 bits, by a compiler intrinsic."""

    def build(_context: Any, builder: Any, _signature: Any, operands: Any) -> Any:
        return builder.ctpop(*operands)

    return types.uint64(types.uint64), build


_ones: Any = intrinsic(_population_count)


@njit(cache=True, nogil=True)
def mix(x: np.uint32) -> np.uint32:
    """The finaliser of which the words of a value are made."""
    x = uint32(x ^ x >> uint32(16))
    x = uint32(x * uint32(0x7FEB352D))
    x = uint32(x ^ x >> uint32(15))
    x = uint32(x * uint32(0x846CA68B))
    return uint32(x ^ x >> uint32(16))


@njit(cache=True, nogil=True)
def words_of_mul32(values: Counts) -> Words:
    """(n, 4) the words e, a, b, c of each value."""
    words = np.empty((values.size, 4), np.uint32)
    step = uint32(0x9E3779B1)
    for i in range(values.size):
        v = uint32(values[i])
        e = mix(uint32(v + step))
        b = mix(uint32(e + step))
        c = mix(uint32(b + step))
        words[i, 0] = e
        words[i, 1] = uint32(uint32(0xC2B2AE3D) + uint32(v * uint32(0x78DDE6C4)))
        words[i, 2] = b
        words[i, 3] = c & uint32(0xCCCCCCCC) | uint32(0x11111111)
    return words


@njit(cache=True, nogil=True)
def words_of_mix32(values: Counts) -> Words:
    """(n, 4) of the predecessor: v·0x9E3779B1 and unused words; c = 0 marks it for `hashed`."""
    words = np.zeros((values.size, 4), np.uint32)
    for i in range(values.size):
        words[i, 0] = uint32(uint32(values[i]) * uint32(0x9E3779B1))
    return words


@njit(cache=True, nogil=True)
def hashed(x: Words, seeds: Words, e: np.uint32, a: np.uint32, b: np.uint32, c: np.uint32) -> None:
    """Write the word x of each seed, before it is scaled to a bucket."""
    if c == 0:
        for i in range(seeds.size):
            x[i] = mix(uint32(seeds[i] ^ e))
    else:
        for i in range(seeds.size):
            y = uint32(uint32(seeds[i] ^ e) * a)
            x[i] = uint32(uint32(y ^ y >> uint32(11) ^ b) * c)


@njit(cache=True, nogil=True)
def _add_collisions(counts: Counts, x: Words, y: Words, buckets: Counts) -> None:
    """Add for each g the places where x and y are in one bucket of g."""
    for j in range(buckets.size):
        g = buckets[j]
        same = uint32(0)
        if g & (g - 1) == 0:
            below = uint32((1 << 32) // g)
            for i in range(x.size):
                same += uint32(1) if uint32(x[i] ^ y[i]) < below else uint32(0)
        else:
            wide = uint64(g)
            for i in range(x.size):
                same += uint32(uint64(x[i]) * wide >> uint64(32) == uint64(y[i]) * wide >> uint64(32))
        counts[j] += same


@njit(cache=True, nogil=True)
def collisions(first: Words, second: Words, seeds: Words, buckets: Counts) -> Counts:
    """(n, len(buckets)) for each pair of rows of words, how many of the seeds give both one bucket of g."""
    counts = np.zeros((first.shape[0], buckets.size), np.int64)
    x, y = np.empty(CHUNK, np.uint32), np.empty(CHUNK, np.uint32)
    for i in range(first.shape[0]):
        v, w = first[i], second[i]
        for start in range(0, seeds.size, CHUNK):
            part = seeds[start : start + CHUNK]
            hashed(x, part, v[0], v[1], v[2], v[3])
            hashed(y, part, w[0], w[1], w[2], w[3])
            _add_collisions(counts[i], x[: part.size], y[: part.size], buckets)
    return counts


@njit(cache=True, nogil=True)
def exact_collisions(v: Words, w: Words, buckets: Counts, start: int, stop: int) -> Counts:
    """(len(buckets),) over all seeds in start..stop−1, multiples of CHUNK: how many give both one bucket of g."""
    counts = np.zeros(buckets.size, np.int64)
    x, y, seeds = np.empty(CHUNK, np.uint32), np.empty(CHUNK, np.uint32), np.empty(CHUNK, np.uint32)
    for low in range(start, stop, CHUNK):
        for i in range(CHUNK):
            seeds[i] = uint32(low + i)
        hashed(x, seeds, v[0], v[1], v[2], v[3])
        hashed(y, seeds, w[0], w[1], w[2], w[3])
        _add_collisions(counts, x, y, buckets)
    return counts


@njit(cache=True, nogil=True)
def top_bits(words: Words, seeds: Words, mask: int) -> npt.NDArray[np.uint64]:
    """(n, len(seeds) / 64) for each value, a bit for each seed: the parity of x AND mask, of its two top bits."""
    bits = np.zeros((words.shape[0], seeds.size // 64), np.uint64)
    x = np.empty(CHUNK, np.uint32)
    for i in range(words.shape[0]):
        v = words[i]
        for start in range(0, seeds.size, CHUNK):
            part = seeds[start : start + CHUNK]
            hashed(x, part, v[0], v[1], v[2], v[3])
            for at in range(part.size):
                two = x[at] & uint32(mask)
                bit = uint64((two >> uint32(31)) ^ (two >> uint32(30) & uint32(1)))
                bits[i, (start + at) // 64] |= bit << uint64((start + at) % 64)
    return bits


@njit(cache=True, nogil=True)
def far_pairs(bits: npt.NDArray[np.uint64], beyond: int, room: int) -> Counts:
    """(m ≤ room, 3) pairs i < j whose agreement differs from half by over ``beyond``: i, j, excess."""
    found = np.empty((room, 3), np.int64)
    m, half = 0, 32 * bits.shape[1]
    block = 64  # rows kept in the second-level cache
    for low in range(0, bits.shape[0], block):
        high = min(low + block, bits.shape[0])
        for j in range(low + 1, bits.shape[0]):
            other = bits[j]
            for i in range(low, min(high, j)):
                one = bits[i]
                differ = uint64(0)
                for at in range(one.size):
                    differ += _ones(one[at] ^ other[at])
                excess = half - np.int64(differ)
                if abs(excess) > beyond and m < room:
                    found[m, 0], found[m, 1], found[m, 2] = i, j, excess
                    m += 1
    return found[:m]
