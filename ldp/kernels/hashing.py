"""Computes the hashes mul32 and xxh32 of OLH, and counts OLH reports.

The hashes are defined modulo 2³², and a vector register holds twice as many 32-bit words as 64-bit words. numba widens
32-bit integers to 64 bits in arithmetic. The hashes therefore use `_add`, `_multiply` and so on, which keep 32 bits.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import numpy as np
import numpy.typing as npt
from numba import njit, types, uint32
from numba.extending import intrinsic

from ldp.kernels.inner import inner, lean, pointer_to

TILE = 2048  # reports of xxh32 counted together; with three words each, they fit the first-level cache
GROUP = 64  # parts of a tile are padded to a multiple of this with reports that support no value: no loop has a tail
VALUES = 1024  # values of mul32 counted together; with five words each, they fit the first-level cache
LANES = 16  # words of the widest register
STEPS = 4  # most steps of xxHash32 for up to eight digits: seven digits are one lane and three bytes

Ints = npt.NDArray[np.int64]
Words = npt.NDArray[np.uint32]

_PRIME1 = 0x9E3779B1
_PRIME2 = 0x85EBCA77
_PRIME3 = 0xC2B2AE3D
_PRIME4 = 0x27D4EB2F
_PRIME5 = 0x165667B1


def _words(operation: str) -> Callable[[Any, Any], np.uint32]:
    """Returns an LLVM operation on two 32-bit words, modulo 2³²."""

    def operate(_typing: Any, _x: Any, _y: Any) -> Any:
        def build(_context: Any, builder: Any, _signature: Any, operands: Any) -> Any:
            return getattr(builder, operation)(*operands)

        return types.uint32(types.uint32, types.uint32), build

    return cast("Callable[[Any, Any], np.uint32]", intrinsic(operate))


_add, _subtract, _multiply = _words("add"), _words("sub"), _words("mul")
_and, _or, _xor, _left, _right = _words("and_"), _words("or_"), _words("xor"), _words("shl"), _words("lshr")


def _prefer_512_bits(_typing: Any) -> Any:
    """Makes loops of the calling function use 512-bit vectors where available."""

    def build(context: Any, builder: Any, _signature: Any, _operands: Any) -> Any:
        # bypasses llvmlite's check, which accepts only attributes without a value
        set.add(builder.function.attributes, '"prefer-vector-width"="512"')
        return context.get_dummy_value()

    return types.none(), build


_wide: Any = intrinsic(_prefer_512_bits)


@njit(cache=True, nogil=True, inline="always")
def _shifted(x: np.uint32, by: int) -> np.uint32:
    return _xor(x, _right(x, by))


@njit(cache=True, nogil=True, inline="always")
def _mixed(x: np.uint32) -> np.uint32:
    """Mixes x like `ldp.oracles.olh._mixed`."""
    x = _multiply(_shifted(x, 16), 0x7FEB352D)
    x = _multiply(_shifted(x, 15), 0x846CA68B)
    return _shifted(x, 16)


@njit(cache=True, nogil=True, inline="always")
def _words_of(value: int) -> tuple[np.uint32, np.uint32, np.uint32, np.uint32]:
    e = _mixed(_add(value, _PRIME1))
    b = _mixed(_add(e, _PRIME1))
    c = _or(_and(_mixed(_add(b, _PRIME1)), 0xCCCCCCCC), 0x11111111)
    a = _add(_multiply(value, 0x78DDE6C4), _PRIME3)
    return e, a, b, c


@njit(cache=True, nogil=True, inline="always")
def _mul32(seed: np.uint32, e: np.uint32, a: np.uint32, b: np.uint32, c: np.uint32) -> np.uint32:
    """Returns the word x of mul32, before it is scaled to a bucket."""
    return _multiply(_xor(_shifted(_multiply(_xor(seed, e), a), 11), b), c)


@njit(cache=True, nogil=True, inline="always")
def _avalanche(h: np.uint32) -> np.uint32:
    """Applies the finalizer of xxHash32."""
    h = _multiply(_shifted(h, 15), _PRIME2)
    h = _multiply(_shifted(h, 13), _PRIME3)
    return _shifted(h, 16)


@njit(cache=True, nogil=True, inline="always")
def _rotate(x: np.uint32, by: int) -> np.uint32:
    return _or(_left(x, _and(by, 31)), _right(x, _and(_subtract(0, by), 31)))


@njit(cache=True, nogil=True, inline="always")
def _step(h: np.uint32, add: np.uint32, turn: int, multiplier: int) -> np.uint32:
    return _multiply(_rotate(_add(h, add), turn), multiplier)


def _tiles(number: int) -> npt.NDArray[np.uint32]:
    """Allocates (number, TILE) words, aligned to cache lines."""
    words = np.empty(number * TILE + 16, np.uint32)  # in Python: compiling this takes 0.3 s
    skip = -(words.ctypes.data // 4) % 16
    return words[skip : skip + number * TILE].reshape(number, TILE)


@inner
def _text(value: int, text: Any) -> int:
    """Writes a value's decimal digits into `text`; returns their number."""
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


@inner
def _next_text(text: Any, length: int) -> int:
    """Increments decimal text; returns the first new place, −1 if it grows."""
    at = length - 1
    while at >= 0 and text[at] == 57:
        text[at] = 48
        at -= 1
    if at >= 0:
        text[at] += 1
    else:
        text[0], text[length] = 49, 48
    return at


@inner
def _step_at(place: int, length: int) -> int:
    """Returns the step of xxHash32 that reads a place in the text."""
    lanes = length // 4
    return place // 4 if place < 4 * lanes else place - 3 * lanes


@inner
def _operands(text: Any, length: int, step: int) -> tuple[np.uint32, int, int]:
    """Returns the addend, rotation and multiplier of a step of xxHash32."""
    lanes = length // 4
    start = _PRIME5 + length if step == 0 else 0  # initial value, added to the seed
    if step < lanes:
        at = 4 * step
        lane = text[at] | text[at + 1] << 8 | text[at + 2] << 16 | text[at + 3] << 24
        return uint32(lane * _PRIME3 + start), 17, _PRIME4
    return uint32(text[step + 3 * lanes] * _PRIME5 + start), 11, _PRIME1


@njit(cache=True, nogil=True)
def hash_mul32(seeds: npt.NDArray[np.uint32], values: npt.NDArray[np.int64], g: int) -> npt.NDArray[np.int64]:
    """Returns the "mul32" bucket for each pair of seed and value."""
    buckets = np.empty(seeds.size, np.int64)
    for i in range(seeds.size):
        e, a, b, c = _words_of(values[i])
        x = _mul32(seeds[i], e, a, b, c)
        buckets[i] = (np.uint64(x) * np.uint64(g)) >> np.uint64(32)
    return buckets


@njit(cache=True, nogil=True)
def hash_xxh32(seeds: npt.NDArray[np.uint32], values: npt.NDArray[np.int64], g: int) -> npt.NDArray[np.int64]:
    """Returns the "xxh32" bucket for each pair of seed and value."""
    buckets = np.empty(seeds.size, np.int64)
    text = np.empty(20, np.int64)
    for i in range(seeds.size):
        length = _text(values[i], text)
        h = seeds[i]
        for s in range(_step_at(length - 1, length) + 1):
            add, turn, multiplier = _operands(text, length, s)
            h = _step(h, add, turn, multiplier)
        buckets[i] = np.int64(_avalanche(h)) % g
    return buckets


def count_mul32(addresses: Ints, ends: Ints, seeds: Words, buckets: Words, shape: tuple[int, int]) -> None:
    """Adds to each state the number of reports that support each value.

    The int64 state at `addresses[k]` receives the reports from the end before to `ends[k]`. `shape` is (d, g). `seeds`
    and `buckets` are (n,). Each bucket is below g, and 2 ≤ g ≤ 2¹⁶.

    A report with bucket r supports v if its word x for v (see `_mul32`) is in [⌈r·2³²/g⌉, ⌈(r+1)·2³²/g⌉). This test
    takes one subtraction and one comparison. The words of values are computed once. Four reports share each read of
    these words and of the counters.
    """
    _count_mul32(addresses, ends, seeds, buckets, shape, np.empty((2, seeds.size), np.uint32), _tiles(5))


@njit(cache=True, nogil=True, inline="always")
def _hit(x: np.uint32, low: np.uint32, width: np.uint32, one: np.uint32, hits: np.uint32) -> np.uint32:
    return _add(hits, one if _subtract(x, low) < width else uint32(0))


@lean
def _count_mul32(
    addresses: Ints,
    ends: Ints,
    seeds: Words,
    buckets: Words,
    shape: tuple[int, int],
    bounds: Words,
    tiles: Words,
) -> None:
    _wide()
    d, g = shape
    one = uint32(g if g < 1 else 1)  # 1, hidden from the compiler, so that it uses one masked addition
    es, as_, bs, cs, hits = tiles[0], tiles[1], tiles[2], tiles[3], tiles[4]
    low, width = bounds[0], bounds[1]
    whole, part, inverse = (1 << 32) // g, (1 << 32) % g, 1 / g
    for i in range(seeds.size):
        # ⌈r·2³²/g⌉ = r·whole + ⌈r·part/g⌉; −0.5 exceeds the error of a float, and 0.5/g is less than 1/g.
        # The cast truncates, so 1 more than a number that is above −1 and not an integer is rounded up.
        r = np.int64(buckets[i])
        first = r * whole + np.int64((r * part - 0.5) * inverse + 1.0)
        after = (r + 1) * whole + np.int64(((r + 1) * part - 0.5) * inverse + 1.0)
        low[i] = first
        width[i] = after - first
    for start in range(0, d, VALUES):
        used = VALUES if d - start > VALUES else d - start
        size = (used + LANES - 1) // LANES * LANES
        for v in range(size):
            es[v], as_[v], bs[v], cs[v] = _words_of(start + v)
        begin = 0
        for k in range(ends.size):
            for v in range(size):
                hits[v] = 0
            end = ends[k]
            for i in range(begin, end, 4):  # a report beyond the end has width 0, which supports no value
                i1, i2, i3 = min(i + 1, end - 1), min(i + 2, end - 1), min(i + 3, end - 1)
                s0, l0, w0 = seeds[i], low[i], width[i]
                s1, l1, w1 = seeds[i1], low[i1], width[i1] if i + 1 < end else uint32(0)
                s2, l2, w2 = seeds[i2], low[i2], width[i2] if i + 2 < end else uint32(0)
                s3, l3, w3 = seeds[i3], low[i3], width[i3] if i + 3 < end else uint32(0)
                for v in range(size):
                    e, a, b, c = es[v], as_[v], bs[v], cs[v]
                    total = _hit(_mul32(s0, e, a, b, c), l0, w0, one, hits[v])
                    total = _hit(_mul32(s1, e, a, b, c), l1, w1, one, total)
                    total = _hit(_mul32(s2, e, a, b, c), l2, w2, one, total)
                    hits[v] = _hit(_mul32(s3, e, a, b, c), l3, w3, one, total)
            counters, begin = pointer_to(addresses[k]), end
            for v in range(used):
                counters[start + v] += hits[v]


@inner
def _divisor(g: int) -> tuple[int, int, np.uint32]:
    """Returns m, 32 − k and 1/m modulo 2³², for g = 2^k·m with an odd m."""
    odd, back = g, 32  # rotr by k is rotl by 32 − k
    while odd % 2 == 0:
        odd //= 2
        back -= 1
    inverse = uint32(odd)  # correct to 3 bits; each Newton step doubles their number
    for _ in range(4):
        inverse = _multiply(inverse, _subtract(2, _multiply(odd, inverse)))
    return odd, back, inverse


@lean
def _fill_tile(
    tiles: Words, parts: Ints, from_: tuple[int, int], ends: Ints, seeds: Words, buckets: Words, g: int
) -> tuple[int, int, int]:
    """Fills a tile of `count_xxh32` with the next reports, in padded parts.

    A part has one state. `from_` is the next state and report. Returns the state and the report after the tile, and the
    number of parts.
    """
    odd, _, inverse = _divisor(g)
    own, offset, limit = tiles[0], tiles[STEPS], tiles[STEPS + 1]
    k, i = from_
    n = at = 0
    while k < ends.size and at < TILE:
        last = min(ends[k], i + TILE - at)
        for place in range(at, at + last - i):
            b = buckets[i + place - at]
            own[place] = seeds[i + place - at]
            offset[place] = b if odd == 1 else _multiply(b, inverse)
            limit[place] = ((1 << 32) - 1) // g + (b <= ((1 << 32) - 1) % g)  # exclusive bound
        end = at + (last - i + GROUP - 1) // GROUP * GROUP
        for place in range(at + last - i, end):
            offset[place] = 0xFFFFFFFF  # above any mask
            limit[place] = 0
        parts[0, n], parts[1, n] = k, end
        n, at, i = n + (end > at), end, last
        k += i == ends[k]
    return k, i, n


def count_xxh32(addresses: Ints, ends: Ints, seeds: Words, buckets: Words, shape: tuple[int, int]) -> None:
    """Counts reports as `count_mul32`, for "xxh32".

    Two consecutive values share all steps of xxHash32 before the first digit that differs. The results of these steps
    are stored, so most of the cost is the last step and the finalizer. A report with bucket b supports v if the hash h
    of v satisfies h mod g = b. If g is a power of two, the test is a mask. Otherwise, g = 2^k·m with an odd m, and the
    test is rotr((h − b)·m⁻¹ mod 2³², k) ≤ ⌊(2³²−1−b)/g⌋.
    """
    parts, text = np.empty((2, TILE // GROUP + 1), np.int64), np.empty(20, np.int64)
    _count_xxh32(addresses, ends, seeds, buckets, shape, _tiles(STEPS + 2), parts, text)


@lean
def _count_xxh32(
    addresses: Ints,
    ends: Ints,
    seeds: Words,
    buckets: Words,
    shape: tuple[int, int],
    tiles: Words,
    parts: Ints,
    text: Ints,
) -> None:
    _wide()
    d, g = shape
    one = uint32(g if g < 1 else 1)  # as in `_count_mul32`
    mask = g - 1
    odd, back, inverse = _divisor(g)
    offset, limit = tiles[STEPS], tiles[STEPS + 1]
    k = report = 0
    while k < ends.size:
        k, report, n = _fill_tile(tiles, parts, (k, report), ends, seeds, buckets, g)
        size = parts[1, n - 1] if n else 0
        length = 1
        text[0] = 47  # the code before "0"
        for v in range(d):
            place = _next_text(text, length)
            if place < 0:
                place = 0
                length += 1
            final = _step_at(length - 1, length)
            for s in range(_step_at(place, length), final):
                hashes, further = tiles[s], tiles[s + 1]  # row s is the hash after s steps; row 0 is the seed
                add, turn, multiplier = _operands(text, length, s)
                for i in range(size):
                    further[i] = _step(hashes[i], add, turn, multiplier)
            add, turn, multiplier = _operands(text, length, final)
            first = 0
            for p in range(n):
                last, hits = parts[1, p], uint32(0)
                hashes, low, width = tiles[final, first:last], offset[first:last], limit[first:last]
                if odd == 1:
                    for i in range(last - first):
                        h = _avalanche(_step(hashes[i], add, turn, multiplier))
                        hits = _add(hits, one if _and(h, mask) == low[i] else uint32(0))
                else:
                    for i in range(last - first):
                        h = _avalanche(_step(hashes[i], add, turn, multiplier))
                        x = _rotate(_subtract(_multiply(h, inverse), low[i]), back)
                        hits = _add(hits, one if x < width[i] else uint32(0))
                pointer_to(addresses[parts[0, p]])[v] += hits
                first = last
