"""Compiled loops: hashing and counting, decoding, drawing subsets, copying for frames.

A kernel is compiled by its first call and cached on disk for later processes (the cache is keyed by the
CPU); `warm` compiles all of them ahead. All release the GIL, and none allocates in proportion to n·d.

numba widens 32-bit integers to 64 bits in arithmetic, so every step is cast back: that is what makes the
loops vectorise, and also what makes them compute the hash.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
from numba import njit, uint8, uint32

TILE = 2048  # reports counted together: three words each stay in the first-level cache
RUN = 2048  # bytes of bits counted together: a byte for each of their bits stays in the first-level cache
BLOCK = 4096  # counters transformed together: they stay in the first-level cache

_PRIME1 = 0x9E3779B1
_PRIME2 = 0x85EBCA77
_PRIME3 = 0xC2B2AE3D
_PRIME4 = 0x27D4EB2F
_PRIME5 = 0x165667B1


@njit(cache=True, nogil=True, inline="always")
def _mix32(x: np.uint32) -> np.uint32:
    """The finaliser of mix32."""
    x = uint32(x ^ uint32(x >> uint32(16)))
    x = uint32(x * uint32(0x7FEB352D))
    x = uint32(x ^ uint32(x >> uint32(15)))
    x = uint32(x * uint32(0x846CA68B))
    return uint32(x ^ uint32(x >> uint32(16)))


@njit(cache=True, nogil=True, inline="always")
def _avalanche(h: np.uint32) -> np.uint32:
    """The finaliser of xxHash32."""
    h = uint32(h ^ uint32(h >> uint32(15)))
    h = uint32(h * uint32(_PRIME2))
    h = uint32(h ^ uint32(h >> uint32(13)))
    h = uint32(h * uint32(_PRIME3))
    return uint32(h ^ uint32(h >> uint32(16)))


@njit(cache=True, nogil=True, inline="always")
def _rotate(x: np.uint32, by: np.uint32) -> np.uint32:
    """Rotate left; the masks tell the compiler that 32 bits are enough."""
    return uint32(uint32(x << uint32(by & uint32(31))) | uint32(x >> uint32(uint32(-by) & uint32(31))))


@njit(cache=True, nogil=True, inline="always")
def _step(h: np.uint32, add: np.uint32, turn: np.uint32, multiplier: np.uint32) -> np.uint32:
    """One step of xxHash32 over a lane or a byte: add, rotate left, multiply."""
    return uint32(_rotate(uint32(h + add), turn) * multiplier)


@njit(cache=True, nogil=True)
def _text(value: int, text: Any) -> int:
    """Write a value's decimal digits, and return how many."""
    length = 1
    rest = value // 10
    while rest:
        length += 1
        rest //= 10
    rest = value
    for at in range(length - 1, -1, -1):
        text[at] = 48 + rest % 10
        rest //= 10
    return length


@njit(cache=True, nogil=True)
def _steps(text: Any, length: int, adds: Any) -> int:
    """What each step of xxHash32 over a text adds: lanes of four bytes, then bytes; returns how many."""
    count = 0
    for at in range(0, length - 3, 4):
        lane = text[at] | text[at + 1] << 8 | text[at + 2] << 16 | text[at + 3] << 24
        adds[count] = uint32(lane * _PRIME3)
        count += 1
    for at in range(length // 4 * 4, length):
        adds[count] = uint32(text[at] * _PRIME5)
        count += 1
    return count


@njit(cache=True, nogil=True)
def hash_mix32(seeds: npt.NDArray[np.uint32], values: npt.NDArray[np.int64], g: int) -> npt.NDArray[np.int64]:
    """The bucket of each value under its own seed, by "mix32": (n,) int64."""
    buckets = np.empty(seeds.size, np.int64)
    for i in range(seeds.size):
        x = _mix32(uint32(seeds[i] ^ uint32(values[i] * _PRIME1)))
        buckets[i] = (np.uint64(x) * np.uint64(g)) >> np.uint64(32)
    return buckets


@njit(cache=True, nogil=True)
def hash_xxh32(seeds: npt.NDArray[np.uint32], values: npt.NDArray[np.int64], g: int) -> npt.NDArray[np.int64]:
    """The bucket of each value under its own seed, by "xxh32": (n,) int64."""
    buckets = np.empty(seeds.size, np.int64)
    text = np.empty(20, np.int64)
    adds = np.empty(20, np.uint32)
    for i in range(seeds.size):
        length = _text(values[i], text)
        count = _steps(text, length, adds)
        lanes = length // 4
        h = uint32(seeds[i] + uint32(_PRIME5 + length))
        for s in range(count):
            if s < lanes:
                h = _step(h, adds[s], uint32(17), uint32(_PRIME4))
            else:
                h = _step(h, adds[s], uint32(11), uint32(_PRIME1))
        buckets[i] = np.int64(_avalanche(h)) % g
    return buckets


@njit(cache=True, nogil=True)
def count_mix32(
    state: npt.NDArray[np.int64], seeds: npt.NDArray[np.uint32], buckets: npt.NDArray[np.uint32], g: int
) -> None:
    """Add to state[v] the number of reports whose "mix32" hash of v is their bucket.

    ⌊x·g/2³²⌋ = b is x in [⌈b·2³²/g⌉, ⌈(b+1)·2³²/g⌉): one subtraction and one comparison instead of a 64-bit
    product.

    Args:
        state: (d,) int64, changed in place.
        seeds: (n,) uint32.
        buckets: (n,) uint32, each below g.
        g: the number of buckets, 2 ≤ g ≤ 2¹⁶.
    """
    low = np.empty(TILE, np.uint32)
    width = np.empty(TILE, np.uint32)
    for start in range(0, seeds.size, TILE):
        tile = seeds[start : start + TILE]
        for i in range(tile.size):
            b = np.int64(buckets[start + i])
            first = ((b << 32) + g - 1) // g
            low[i] = first
            width[i] = (((b + 1) << 32) + g - 1) // g - first
        for v in range(state.size):
            c = uint32(v * _PRIME1)
            hits = uint32(0)
            for i in range(tile.size):
                x = _mix32(uint32(tile[i] ^ c))
                hits = uint32(hits + uint32(uint32(x - low[i]) < width[i]))
            state[v] += hits


@njit(cache=True, nogil=True)
def count_xxh32(
    state: npt.NDArray[np.int64], seeds: npt.NDArray[np.uint32], buckets: npt.NDArray[np.uint32], g: int
) -> None:
    """Add to state[v] the number of reports whose "xxh32" hash of v is their bucket.

    The steps of xxHash32 over a decimal string add constants of the value, and values that differ only in
    what the last step reads share all steps before it: those are computed once for up to ten (or ten
    thousand) values.

    h mod g = b needs no division: with g = 2^k·m, m odd, it is rotr((h − b)·m⁻¹ mod 2³², k) ≤ ⌊(2³²−1−b)/g⌋.

    Args:
        state: (d,) int64, changed in place.
        seeds: (n,) uint32.
        buckets: (n,) uint32, each below g.
        g: the number of buckets, 2 ≤ g ≤ 2¹⁶.
    """
    odd = g
    back = uint32(32)  # rotr by k is rotl by 32 − k
    while odd % 2 == 0:
        odd //= 2
        back = uint32(back - 1)
    inverse = uint32(odd)  # right to 3 bits; each Newton step doubles them
    for _ in range(4):
        inverse = uint32(inverse * uint32(2 - uint32(uint32(odd) * inverse)))

    text = np.empty(20, np.int64)
    adds = np.empty(20, np.uint32)
    prefix = np.empty(TILE, np.uint32)
    offset = np.empty(TILE, np.uint32)
    limit = np.empty(TILE, np.uint32)
    for start in range(0, seeds.size, TILE):
        tile = seeds[start : start + TILE]
        for i in range(tile.size):
            b = np.int64(buckets[start + i])
            offset[i] = uint32(b * np.int64(inverse))
            limit[i] = ((1 << 32) - 1 - b) // g
        shared = -1
        for v in range(state.size):
            length = _text(v, text)
            count = _steps(text, length, adds)
            lanes = length // 4
            whole = length % 4 == 0
            head = v // 10000 if whole else v // 10  # never that of a neighbour with one digit more
            if head != shared:
                shared = head
                first = uint32(_PRIME5 + length)
                for i in range(tile.size):
                    prefix[i] = uint32(tile[i] + first)
                for s in range(count - 1):
                    turn, multiplier = uint32(17), uint32(_PRIME4)
                    if s >= lanes:
                        turn, multiplier = uint32(11), uint32(_PRIME1)
                    for i in range(tile.size):
                        prefix[i] = _step(prefix[i], adds[s], turn, multiplier)
            add = adds[count - 1]
            turn, multiplier = uint32(11), uint32(_PRIME1)
            if whole:
                turn, multiplier = uint32(17), uint32(_PRIME4)
            hits = uint32(0)
            for i in range(tile.size):
                h = _avalanche(_step(prefix[i], add, turn, multiplier))
                x = uint32(uint32(h * inverse) - offset[i])
                hits = uint32(hits + uint32(_rotate(x, back) <= limit[i]))
            state[v] += hits


@njit(cache=True, nogil=True)
def count_bits(state: npt.NDArray[np.int64], bits: npt.NDArray[np.uint8]) -> None:
    """Add to state[v] the number of reports whose bit v is set.

    The bits of a run of bytes are summed into bytes, for at most 255 runs at a time; short reports are laid
    end to end in one run, so that the loops are long for every d.

    Args:
        state: (d,) int64, changed in place.
        bits: (n, ⌈d/8⌉) uint8, contiguous; value v is bit v mod 8 of byte v div 8, and the padding is 0.
    """
    n, size = bits.shape
    wire = bits.reshape(-1)
    together = max(1, RUN // size)  # reports in a run
    sums = np.empty((8, RUN), np.uint8)
    for left in range(0, size, RUN):
        width = min(RUN, size - left)
        for start in range(0, n, 255 * together):
            used = min(together, n - start) * width
            sums[:, :used] = 0
            for i in range(start, min(start + 255 * together, n), together):
                first = i * size + left
                run = wire[first : first + min(together, n - i) * width]
                for b in range(8):
                    total = sums[b]
                    for j in range(run.size):
                        total[j] = uint8(total[j] + uint8(uint8(run[j] >> uint8(b)) & uint8(1)))
            for j in range(used):
                v = 8 * (left + j % width)
                for b in range(min(8, state.size - v)):
                    state[v + b] += sums[b, j]


@njit(cache=True, nogil=True)
def count_indices(state: npt.NDArray[np.int64], indices: npt.NDArray[np.unsignedinteger[Any]]) -> None:
    """Add to state[u] the number of times that u is among the indices.

    Args:
        state: (m,) int64, changed in place.
        indices: (n,) uint8, uint16 or uint32, each below m.
    """
    for i in range(indices.size):
        state[indices[i]] += 1


@njit(cache=True, nogil=True)
def count_ones(bits: npt.NDArray[np.uint8]) -> npt.NDArray[np.int64]:
    """The number of bits set in each row of (n, size) uint8: (n,) int64."""
    ones = np.empty(len(bits), np.int64)
    for i in range(len(bits)):
        row = bits[i]
        total = uint32(0)
        for j in range(row.size):
            x = row[j]  # sums of two, then four, then eight neighbouring bits
            x = uint8(x - uint8(uint8(x >> uint8(1)) & uint8(0x55)))
            x = uint8(uint8(x & uint8(0x33)) + uint8(uint8(x >> uint8(2)) & uint8(0x33)))
            total = uint32(total + uint32(uint8(x + uint8(x >> uint8(4))) & uint8(0x0F)))
        ones[i] = total
    return ones


@njit(cache=True, nogil=True)
def ascends(indices: npt.NDArray[np.unsignedinteger[Any]]) -> npt.NDArray[np.bool_]:
    """Whether each row of (n, k) unsigned integers is strictly ascending: (n,) bool."""
    good = np.empty(len(indices), np.bool_)
    for i in range(len(indices)):
        row = indices[i]
        wrong = uint32(0)
        for j in range(1, row.size):
            wrong = uint32(wrong | uint32(row[j] <= row[j - 1]))
        good[i] = wrong == 0
    return good


@njit(cache=True, nogil=True)
def choose_subsets(
    draws: npt.NDArray[np.int64], symbols: npt.NDArray[np.int64], own: npt.NDArray[np.bool_], m: int
) -> None:
    """Turn draws into subsets by Floyd's algorithm; see `ldp.sampling.subset` for one of them.

    Args:
        draws: (n, k) int64, changed in place: draw j of each row is uniform below m−k+j; becomes the
            members of a subset of 0..m−1, in no order.
        symbols: (n,) int64, the symbol that each subset has or has not.
        own: (n,) bool, whether it has it.
        m: the number of symbols, above k.
    """
    k = draws.shape[1]
    taken = np.zeros(m, np.bool_)
    for i in range(len(draws)):
        row = draws[i]
        first = 1 if own[i] else 0  # the own symbol takes the place of the first draw
        for j in range(first, k):
            if taken[row[j]]:
                row[j] = m - 1 - k + j
            taken[row[j]] = True
        for j in range(first, k):
            taken[row[j]] = False
            row[j] += row[j] >= symbols[i]  # the others are 0..m−1 without the own symbol
        if own[i]:
            row[0] = symbols[i]


@njit(cache=True, nogil=True)
def _butterflies(counters: npt.NDArray[np.int64], half: int) -> None:
    """The steps of the transform that add and subtract counters ``half`` or further apart."""
    while half < counters.size:
        for start in range(0, counters.size, 2 * half):
            low = counters[start : start + half]
            high = counters[start + half : start + 2 * half]
            for j in range(half):
                total, difference = low[j] + high[j], low[j] - high[j]
                low[j], high[j] = total, difference
        half *= 2


@njit(cache=True, nogil=True)
def walsh_hadamard(counters: npt.NDArray[np.int64]) -> None:
    """The Walsh–Hadamard transform in place: entry r becomes Σ_j (−1)^popcount(r AND j) · counters[j].

    O(K·log K); the first steps are done block by block.

    Args:
        counters: (K,) int64, K a power of two.
    """
    for start in range(0, counters.size, BLOCK):
        _butterflies(counters[start : start + BLOCK], 1)
    _butterflies(counters, BLOCK)


# what sort_frames finds a record to be
BINARY, TEXT, EMPTY, VERSION, LENGTH, FINGERPRINT = range(6)


@njit(cache=True, nogil=True)
def sort_frames(
    data: npt.NDArray[np.uint8],
    bounds: npt.NDArray[np.int64],
    header: npt.NDArray[np.uint8],
    size: int,
) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
    """Tell sound binary frames from JSON and from malformed ones; nothing is said about the reports inside.

    Args:
        data: the bytes of all records.
        bounds: (m+1,) int64, where they begin and end.
        header: the version byte and the fingerprint.
        size: the bytes of a report.

    Returns:
        kinds: (m,) uint8, BINARY, TEXT, or the first thing that is wrong.
        counts: (m,) int64, the number of reports of a BINARY one, else 0.
    """
    kinds = np.empty(bounds.size - 1, np.uint8)
    counts = np.zeros(bounds.size - 1, np.int64)
    for i in range(kinds.size):
        start, length = bounds[i], bounds[i + 1] - bounds[i]
        same = min(length, header.size)
        while same and data[start + same - 1] == header[same - 1]:
            same -= 1  # down to 0 when all bytes of the header agree
        if length == 0:
            kinds[i] = EMPTY
        elif data[start] == 0x7B:
            kinds[i] = TEXT
        elif data[start] != header[0]:
            kinds[i] = VERSION
        elif length < header.size:
            kinds[i] = LENGTH
        elif same:
            kinds[i] = FINGERPRINT
        elif length == header.size or (length - header.size) % size:
            kinds[i] = LENGTH
        else:
            kinds[i] = BINARY
            counts[i] = (length - header.size) // size
    return kinds, counts


@njit(cache=True, nogil=True)
def copy_bodies(
    data: npt.NDArray[np.uint8],
    bounds: npt.NDArray[np.int64],
    kinds: npt.NDArray[np.uint8],
    counts: npt.NDArray[np.int64],
    size: int,
) -> npt.NDArray[np.uint8]:
    """The reports of BINARY records, where they belong among the reports of all records.

    Args:
        data: the bytes of all records.
        bounds: (m+1,) int64, where they begin and end.
        kinds: (m,) uint8, from `sort_frames`.
        counts: (m,) int64, the number of reports of each record of any kind.
        size: the bytes of a report.

    Returns:
        (counts.sum()·size,) uint8, with the places of other kinds still to be filled.
    """
    wire = np.empty(counts.sum() * size, np.uint8)
    place = 0
    for i in range(kinds.size):
        length = counts[i] * size
        if kinds[i] == BINARY:
            start = bounds[i + 1] - length
            for k in range(length):
                wire[place + k] = data[start + k]
        place += length
    return wire


HASH: dict[str, Callable[..., npt.NDArray[np.int64]]] = {"mix32": hash_mix32, "xxh32": hash_xxh32}
COUNT: dict[str, Callable[..., None]] = {"mix32": count_mix32, "xxh32": count_xxh32}


def warm() -> None:
    """Compile every kernel, or load it from the cache, so that no later call waits for the compiler.

    Example:
        >>> warm()
    """
    seeds = np.zeros(1, np.uint32)
    values = np.zeros(1, np.int64)
    for name, hash_values in HASH.items():
        buckets = hash_values(seeds, values, 2).astype(np.uint32)
        COUNT[name](np.zeros(1, np.int64), seeds, buckets, 2)
    state = np.zeros(2, np.int64)
    for width in (np.uint8, np.uint16, np.uint32):
        indices = np.zeros((1, 1), width)
        indices.flags.writeable = False  # as the oracles pass them
        ascends(indices)
        count_indices(state, indices[0])
    bits = np.zeros((1, 1), np.uint8)
    bits.flags.writeable = False
    count_bits(state, bits)
    count_ones(bits)
    choose_subsets(np.zeros((1, 1), np.int64), values, np.zeros(1, np.bool_), 2)
    walsh_hadamard(state)
    data, bounds = np.zeros(1, np.uint8), np.zeros(2, np.int64)
    data.flags.writeable = bounds.flags.writeable = False  # as decode passes them
    kinds, counts = sort_frames(data, bounds, data.copy(), 1)
    copy_bodies(data, bounds, kinds, counts, 1)
