"""Compiled loops: hashing and counting for OLH, copying for frames.

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
from numba import njit, uint32

TILE = 2048  # reports counted together: three words each stay in the first-level cache

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
    data, bounds = np.zeros(1, np.uint8), np.zeros(2, np.int64)
    data.flags.writeable = bounds.flags.writeable = False  # as decode passes them
    kinds, counts = sort_frames(data, bounds, data.copy(), 1)
    copy_bodies(data, bounds, kinds, counts, 1)
