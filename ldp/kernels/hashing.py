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

TILE = 2048  # reports counted together; with three words each, they fit the first-level cache
GROUP = 64  # tiles are padded to a multiple of this with reports that support no value, so that no loop has a tail
STEPS = 4  # most steps of xxHash32 for up to eight digits: seven digits are one lane and three bytes


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


def count_mul32(
    state: npt.NDArray[np.int64], seeds: npt.NDArray[np.uint32], buckets: npt.NDArray[np.uint32], g: int
) -> None:
    """Adds to state[v] the number of reports that support v, for "mul32".

    A report with bucket r supports v if its word x for v (see `_mul32`) is in [⌈r·2³²/g⌉, ⌈(r+1)·2³²/g⌉). This test
    takes one subtraction and one comparison. The words of a value are computed once per tile of reports. `state` is
    (d,) int64. `seeds` and `buckets` are (n,) uint32. Each bucket is below g, and 2 ≤ g ≤ 2¹⁶.
    """
    _count_mul32(state, seeds, buckets, g, _tiles(3))


@lean
def _count_mul32(
    state: npt.NDArray[np.int64],
    seeds: npt.NDArray[np.uint32],
    buckets: npt.NDArray[np.uint32],
    g: int,
    tiles: npt.NDArray[np.uint32],
) -> None:
    _wide()
    one = uint32(g if g < 1 else 1)  # 1, hidden from the compiler, so that it uses one masked addition
    own, low, width = tiles[0], tiles[1], tiles[2]
    whole, part, inverse = (1 << 32) // g, (1 << 32) % g, 1 / g
    for start in range(0, seeds.size, TILE):
        used = TILE if seeds.size - start > TILE else seeds.size - start
        for i in range(used):
            own[i] = seeds[start + i]
            # ⌈r·2³²/g⌉ = r·whole + ⌈r·part/g⌉; −0.5 exceeds the error of a float, and 0.5/g is less than 1/g.
            # The cast truncates, so 1 more than a number that is above −1 and not an integer is rounded up.
            r = np.int64(buckets[start + i])
            first = r * whole + np.int64((r * part - 0.5) * inverse + 1.0)
            after = (r + 1) * whole + np.int64(((r + 1) * part - 0.5) * inverse + 1.0)
            low[i] = first
            width[i] = after - first
        size = (used + GROUP - 1) // GROUP * GROUP
        for i in range(used, size):
            width[i] = 0
        for v in range(state.size):
            e, a, b, c = _words_of(v)
            hits = uint32(0)
            for i in range(size):
                x = _mul32(own[i], e, a, b, c)
                hits = _add(hits, one if _subtract(x, low[i]) < width[i] else uint32(0))
            state[v] += hits


def count_mul32_sorted(
    addresses: npt.NDArray[np.int64],
    ends: npt.NDArray[np.int64],
    seeds: npt.NDArray[np.uint32],
    buckets: npt.NDArray[np.uint32],
    shape: tuple[int, int],
) -> None:
    """Counts reports into several states, as `count_mul32`.

    The state at `addresses[k]` receives the reports from the end before to `ends[k]`. `shape` is (d, g). The words of a
    value are computed once for all reports, because a state may have few.
    """
    _count_mul32_sorted(addresses, ends, seeds, buckets, shape, _tiles(5))


@lean
def _count_mul32_sorted(
    addresses: npt.NDArray[np.int64],
    ends: npt.NDArray[np.int64],
    seeds: npt.NDArray[np.uint32],
    buckets: npt.NDArray[np.uint32],
    shape: tuple[int, int],
    tiles: npt.NDArray[np.uint32],
) -> None:
    _wide()
    d, g = shape
    one = uint32(g if g < 1 else 1)  # as in `_count_mul32`
    es, as_, bs, cs, hits = tiles[0], tiles[1], tiles[2], tiles[3], tiles[4]
    whole, part, inverse = (1 << 32) // g, (1 << 32) % g, 1 / g
    for start in range(0, d, TILE):
        used = TILE if d - start > TILE else d - start
        for v in range(used):
            es[v], as_[v], bs[v], cs[v] = _words_of(start + v)
        first = 0
        for k in range(ends.size):
            for v in range(used):
                hits[v] = 0
            for i in range(first, ends[k]):
                r, seed = np.int64(buckets[i]), seeds[i]
                low = r * whole + np.int64((r * part - 0.5) * inverse + 1.0)
                after = (r + 1) * whole + np.int64(((r + 1) * part - 0.5) * inverse + 1.0)
                low32, width = uint32(low), uint32(after - low)
                for v in range(used):
                    x = _mul32(seed, es[v], as_[v], bs[v], cs[v])
                    hits[v] = _add(hits[v], one if _subtract(x, low32) < width else uint32(0))
            first = ends[k]
            counters = pointer_to(addresses[k])
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


@inner
def _fill_multiples(offset: Any, limit: Any, buckets: npt.NDArray[np.uint32], g: int) -> None:
    """Fills in the constants of `count_xxh32` for the buckets of a tile."""
    odd, _, inverse = _divisor(g)
    for i in range(buckets.size):
        b = buckets[i]
        offset[i] = b if odd == 1 else _multiply(b, inverse)
        limit[i] = ((1 << 32) - 1) // g + (b <= ((1 << 32) - 1) % g)  # exclusive bound
    for i in range(buckets.size, offset.size):
        offset[i] = 0xFFFFFFFF  # above any mask
        limit[i] = 0


def count_xxh32(
    state: npt.NDArray[np.int64], seeds: npt.NDArray[np.uint32], buckets: npt.NDArray[np.uint32], g: int
) -> None:
    """Adds to state[v] the number of reports that support v, for "xxh32".

    Two consecutive values share all steps of xxHash32 before the first digit that differs. The results of these steps
    are stored, so most of the cost is the last step and the finalizer. A report with bucket b supports v if the hash h
    of v satisfies h mod g = b. If g is a power of two, the test is a mask. Otherwise, g = 2^k·m with an odd m, and the
    test is rotr((h − b)·m⁻¹ mod 2³², k) ≤ ⌊(2³²−1−b)/g⌋. The arguments are those of `count_mul32`.
    """
    _count_xxh32(state, seeds, buckets, g, _tiles(STEPS + 2))


@njit(cache=True, nogil=True)
def _count_xxh32(
    state: npt.NDArray[np.int64],
    seeds: npt.NDArray[np.uint32],
    buckets: npt.NDArray[np.uint32],
    g: int,
    tiles: npt.NDArray[np.uint32],
) -> None:
    _wide()
    one = uint32(g if g < 1 else 1)  # as in `_count_mul32`
    mask = g - 1
    odd, back, inverse = _divisor(g)
    text = np.empty(20, np.int64)
    offset, limit = tiles[STEPS], tiles[STEPS + 1]
    for start in range(0, seeds.size, TILE):
        used = TILE if seeds.size - start > TILE else seeds.size - start
        for i in range(used):  # row s is the hash after s steps; row 0 is the seed
            tiles[0, i] = seeds[start + i]
        _fill_multiples(offset, limit, buckets[start : start + used], g)
        size = (used + GROUP - 1) // GROUP * GROUP
        length = 1
        text[0] = 47  # the code before "0"
        for v in range(state.size):
            place = _next_text(text, length)
            if place < 0:
                place = 0
                length += 1
            final = _step_at(length - 1, length)
            for s in range(_step_at(place, length), final):
                hashes, further = tiles[s], tiles[s + 1]
                add, turn, multiplier = _operands(text, length, s)
                for i in range(size):
                    further[i] = _step(hashes[i], add, turn, multiplier)
            hashes = tiles[final]
            add, turn, multiplier = _operands(text, length, final)
            hits = uint32(0)
            if odd == 1:
                for i in range(size):
                    h = _avalanche(_step(hashes[i], add, turn, multiplier))
                    hits = _add(hits, one if _and(h, mask) == offset[i] else uint32(0))
            else:
                for i in range(size):
                    h = _avalanche(_step(hashes[i], add, turn, multiplier))
                    x = _rotate(_subtract(_multiply(h, inverse), offset[i]), back)
                    hits = _add(hits, one if x < limit[i] else uint32(0))
            state[v] += hits
