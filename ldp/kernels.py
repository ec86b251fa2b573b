"""Compiled loops: hashing and counting, decoding, drawing subsets, copying for frames.

A kernel is compiled by its first call and cached on disk for later processes (the cache is keyed by the
CPU); `warm` compiles all of them ahead. All release the GIL, and none allocates in proportion to n·d.

numba widens 32-bit integers to 64 bits in arithmetic. Where a loop is to hash, its steps are therefore written
with `_add`, `_multiply` and so on, which stay in 32 bits: that is what makes it vectorise at full width, and
also what makes it compute the hash. Elsewhere a cast back after each step does.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import numpy as np
import numpy.typing as npt
from numba import njit, types, uint8, uint32
from numba.extending import intrinsic

TILE = 2048  # reports counted together: three words each stay in the first-level cache
GROUP = 64  # a tile is filled up to a multiple of this with reports that support nothing: no loop has a tail
STEPS = 4  # of xxHash32 over at most eight digits: for seven, a lane and three bytes
RUN = 2048  # bytes of bits counted together: a byte for each of their bits stays in the first-level cache
BLOCK = 4096  # counters transformed together: they stay in the first-level cache

_PRIME1 = 0x9E3779B1
_PRIME2 = 0x85EBCA77
_PRIME3 = 0xC2B2AE3D
_PRIME4 = 0x27D4EB2F
_PRIME5 = 0x165667B1


def _words(operation: str) -> Callable[[Any, Any], np.uint32]:
    """An operation of the compiler's on two words of 32 bits, modulo 2³²."""

    def operate(_typing: Any, _x: Any, _y: Any) -> Any:
        def build(_context: Any, builder: Any, _signature: Any, operands: Any) -> Any:
            return getattr(builder, operation)(*operands)

        return types.uint32(types.uint32, types.uint32), build

    return cast("Callable[[Any, Any], np.uint32]", intrinsic(operate))


_add, _subtract, _multiply = _words("add"), _words("sub"), _words("mul")
_and, _or, _xor, _left, _right = _words("and_"), _words("or_"), _words("xor"), _words("shl"), _words("lshr")


def _prefer_512_bits(_typing: Any) -> Any:
    """Have the loops of the calling function use vectors of 512 bits where the processor has them.

    For several of those the compiler prefers 256 bits, lest the clock slow down; a long loop of
    multiplications gains more than that. Where they are missing nothing changes.
    """

    def build(context: Any, builder: Any, _signature: Any, _operands: Any) -> Any:
        # past llvmlite's own list of attributes, which has none with a value
        set.add(builder.function.attributes, '"prefer-vector-width"="512"')
        return context.get_dummy_value()

    return types.none(), build


_wide: Any = intrinsic(_prefer_512_bits)


@njit(cache=True, nogil=True, inline="always")
def _shifted(x: np.uint32, by: int) -> np.uint32:
    """A shift of both hashes, x XOR x>>by."""
    return _xor(x, _right(x, by))


@njit(cache=True, nogil=True, inline="always")
def _mixed(x: np.uint32) -> np.uint32:
    """The finaliser of which mul32 makes the words of a value."""
    x = _multiply(_shifted(x, 16), 0x7FEB352D)
    x = _multiply(_shifted(x, 15), 0x846CA68B)
    return _shifted(x, 16)


@njit(cache=True, nogil=True, inline="always")
def _words_of(value: int) -> tuple[np.uint32, np.uint32, np.uint32, np.uint32]:
    """The words e, a, b and c of a value, all that mul32 takes of it."""
    e = _mixed(_add(value, _PRIME1))
    b = _mixed(_add(e, _PRIME1))
    c = _or(_and(_mixed(_add(b, _PRIME1)), 0xCCCCCCCC), 0x11111111)
    a = _add(_multiply(value, 0x78DDE6C4), _PRIME3)
    return e, a, b, c


@njit(cache=True, nogil=True, inline="always")
def _mul32(seed: np.uint32, e: np.uint32, a: np.uint32, b: np.uint32, c: np.uint32) -> np.uint32:
    """The word of mul32 that is scaled to a bucket."""
    return _multiply(_xor(_shifted(_multiply(_xor(seed, e), a), 11), b), c)


@njit(cache=True, nogil=True, inline="always")
def _avalanche(h: np.uint32) -> np.uint32:
    """The finaliser of xxHash32."""
    h = _multiply(_shifted(h, 15), _PRIME2)
    h = _multiply(_shifted(h, 13), _PRIME3)
    return _shifted(h, 16)


@njit(cache=True, nogil=True, inline="always")
def _rotate(x: np.uint32, by: int) -> np.uint32:
    """Rotate left."""
    return _or(_left(x, _and(by, 31)), _right(x, _and(_subtract(0, by), 31)))


@njit(cache=True, nogil=True, inline="always")
def _step(h: np.uint32, add: np.uint32, turn: int, multiplier: int) -> np.uint32:
    """One step of xxHash32 over a lane or a byte: add, rotate left, multiply."""
    return _multiply(_rotate(_add(h, add), turn), multiplier)


@njit(cache=True, nogil=True)
def _tiles(number: int) -> npt.NDArray[np.uint32]:
    """(number, TILE) words, where a line of the cache begins: no vector lies across two."""
    words = np.empty(number * TILE + 16, np.uint32)
    skip = -(words.ctypes.data // 4) % 16
    return words[skip : skip + number * TILE].reshape(number, TILE)


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
def _next_text(text: Any, length: int) -> int:
    """Turn a value's digits into the next value's; return the first place that changed, −1 for 99 to 100."""
    at = length - 1
    while at >= 0 and text[at] == 57:
        text[at] = 48
        at -= 1
    if at >= 0:
        text[at] += 1
    else:
        text[0], text[length] = 49, 48
    return at


@njit(cache=True, nogil=True)
def _step_at(place: int, length: int) -> int:
    """Which step of xxHash32 over a text reads a place: first come lanes of four bytes, then single bytes."""
    lanes = length // 4
    return place // 4 if place < 4 * lanes else place - 3 * lanes


@njit(cache=True, nogil=True)
def _operands(text: Any, length: int, step: int) -> tuple[np.uint32, int, int]:
    """What a step of xxHash32 over a text adds, how far it rotates, and by what it multiplies."""
    lanes = length // 4
    start = _PRIME5 + length if step == 0 else 0  # what the seed begins with
    if step < lanes:
        at = 4 * step
        lane = text[at] | text[at + 1] << 8 | text[at + 2] << 16 | text[at + 3] << 24
        return uint32(lane * _PRIME3 + start), 17, _PRIME4
    return uint32(text[step + 3 * lanes] * _PRIME5 + start), 11, _PRIME1


@njit(cache=True, nogil=True)
def hash_mul32(seeds: npt.NDArray[np.uint32], values: npt.NDArray[np.int64], g: int) -> npt.NDArray[np.int64]:
    """The bucket of each value under its own seed, by "mul32": (n,) int64."""
    buckets = np.empty(seeds.size, np.int64)
    for i in range(seeds.size):
        e, a, b, c = _words_of(values[i])
        x = _mul32(seeds[i], e, a, b, c)
        buckets[i] = (np.uint64(x) * np.uint64(g)) >> np.uint64(32)
    return buckets


@njit(cache=True, nogil=True)
def hash_xxh32(seeds: npt.NDArray[np.uint32], values: npt.NDArray[np.int64], g: int) -> npt.NDArray[np.int64]:
    """The bucket of each value under its own seed, by "xxh32": (n,) int64."""
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


@njit(cache=True, nogil=True)
def count_mul32(
    state: npt.NDArray[np.int64], seeds: npt.NDArray[np.uint32], buckets: npt.NDArray[np.uint32], g: int
) -> None:
    """Add to state[v] the number of reports whose "mul32" hash of v is their bucket.

    ⌊x·g/2³²⌋ = r is x in [⌈r·2³²/g⌉, ⌈(r+1)·2³²/g⌉): one subtraction and one comparison instead of a 64-bit
    product. The words of a value are made once for a tile of reports.

    Args:
        state: (d,) int64, changed in place.
        seeds: (n,) uint32.
        buckets: (n,) uint32, each below g.
        g: the number of buckets, 2 ≤ g ≤ 2¹⁶.
    """
    _wide()
    one = uint32(min(g, 1))  # the compiler must not know that it is 1: then it adds under a mask, in one step
    tiles = _tiles(3)
    own, low, width = tiles[0], tiles[1], tiles[2]
    whole, part, inverse = (1 << 32) // g, (1 << 32) % g, 1 / g
    for start in range(0, seeds.size, TILE):
        used = min(TILE, seeds.size - start)
        for i in range(used):
            own[i] = seeds[start + i]
            # ⌈r·2³²/g⌉ = r·whole + ⌈r·part/g⌉; half a unit is far more than a float's error and less than 1/g
            r = np.int64(buckets[start + i])
            first = r * whole + np.int64(np.ceil((r * part - 0.5) * inverse))
            after = (r + 1) * whole + np.int64(np.ceil(((r + 1) * part - 0.5) * inverse))
            low[i] = first
            width[i] = after - first
        width[used:] = 0
        size = (used + GROUP - 1) // GROUP * GROUP
        for v in range(state.size):
            e, a, b, c = _words_of(v)
            hits = uint32(0)
            for i in range(size):
                x = _mul32(own[i], e, a, b, c)
                hits = _add(hits, one if _subtract(x, low[i]) < width[i] else uint32(0))
            state[v] += hits


@njit(cache=True, nogil=True)
def count_xxh32(
    state: npt.NDArray[np.int64], seeds: npt.NDArray[np.uint32], buckets: npt.NDArray[np.uint32], g: int
) -> None:
    """Add to state[v] the number of reports whose "xxh32" hash of v is their bucket.

    The steps of xxHash32 over a decimal string add constants of the value, and a value shares with the one
    before it all steps before the first digit that changed: what those leave is kept, so that the work is
    the last step and the finaliser.

    h mod g = b needs no division: with g = 2^k·m, m odd, it is rotr((h − b)·m⁻¹ mod 2³², k) ≤ ⌊(2³²−1−b)/g⌋;
    and where g is a power of two, a mask.

    Args:
        state: (d,) int64, changed in place.
        seeds: (n,) uint32.
        buckets: (n,) uint32, each below g.
        g: the number of buckets, 2 ≤ g ≤ 2¹⁶.
    """
    _wide()
    one = uint32(min(g, 1))  # as in count_mul32
    mask = g - 1
    odd, back = g, 32  # rotr by k is rotl by 32 − k
    while odd % 2 == 0:
        odd //= 2
        back -= 1
    inverse = uint32(odd)  # right to 3 bits; each Newton step doubles them
    for _ in range(4):
        inverse = _multiply(inverse, _subtract(2, _multiply(odd, inverse)))

    text = np.empty(20, np.int64)
    after = _tiles(STEPS)  # the hash after some steps; after none it is the seed
    tiles = _tiles(2)
    offset, limit = tiles[0], tiles[1]
    for start in range(0, seeds.size, TILE):
        used = min(TILE, seeds.size - start)
        for i in range(used):
            b = buckets[start + i]
            after[0, i] = seeds[start + i]
            offset[i] = b if odd == 1 else _multiply(b, inverse)
            limit[i] = ((1 << 32) - 1) // g + (b <= ((1 << 32) - 1) % g)  # one more than the most
        offset[used:] = 0xFFFFFFFF  # above any mask
        limit[used:] = 0
        size = (used + GROUP - 1) // GROUP * GROUP
        length = 1
        text[0] = 47  # one before "0"
        for v in range(state.size):
            place = _next_text(text, length)
            if place < 0:
                place = 0
                length += 1
            final = _step_at(length - 1, length)
            for s in range(_step_at(place, length), final):
                hashes, further = after[s], after[s + 1]
                add, turn, multiplier = _operands(text, length, s)
                for i in range(size):
                    further[i] = _step(hashes[i], add, turn, multiplier)
            hashes = after[final]
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
BINARY, TEXT, EMPTY, VERSION, LENGTH, FINGERPRINT, MANY = range(7)


@njit(cache=True, nogil=True)
def sort_frames(
    data: npt.NDArray[np.uint8],
    bounds: npt.NDArray[np.int64],
    header: npt.NDArray[np.uint8],
    size: int,
    most: int,
) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
    """Tell sound binary frames from JSON and from malformed ones; nothing is said about the reports inside.

    Args:
        data: the bytes of all records.
        bounds: (m+1,) int64, where they begin and end.
        header: the version byte and the fingerprint.
        size: the bytes of a report.
        most: how many reports a record may have.

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
        elif (length - header.size) // size > most:
            kinds[i] = MANY
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


HASH: dict[str, Callable[..., npt.NDArray[np.int64]]] = {"mul32": hash_mul32, "xxh32": hash_xxh32}
COUNT: dict[str, Callable[..., None]] = {"mul32": count_mul32, "xxh32": count_xxh32}


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
    kinds, counts = sort_frames(data, bounds, data.copy(), 1, 1)
    copy_bodies(data, bounds, kinds, counts, 1)
