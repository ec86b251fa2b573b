"""Vectorized hashes of OLH; see docs/reference/wire-format-coins.md."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

State = npt.NDArray[np.int64]  # (K,): number of reports that support each value, or that have each index
Uint32 = npt.NDArray[np.uint32]

_LANE = 1 << 15  # Hashes computed at once: two columns of 32 bits fit into the L2 cache


def count_olh(
    state: State, seeds: npt.NDArray[Any], buckets: npt.NDArray[Any], g: int, hashed: "Hash"
) -> None:
    """Adds each value's number of supporting reports to `state`; O(n · d).

    A report supports a value if the value's hash is the report's bucket.
    """
    for start in range(0, len(seeds), _LANE):
        seed = np.ascontiguousarray(seeds[start : start + _LANE], np.uint32)
        supports = hashed(seed, buckets[start : start + _LANE].astype(np.uint64), g)
        for first, last in _ranges_by_digits(len(state), rows=_LANE // len(seed)):
            hits = supports(np.arange(first, last, dtype=np.uint32)[:, np.newaxis])
            state[first:last] += np.count_nonzero(hits, axis=1)


def _ranges_by_digits(d: int, rows: int) -> Iterator[tuple[int, int]]:
    first, decade = 0, 10
    while first < d:
        last = min(first + rows, decade, d)
        yield first, last
        first = last
        decade = decade * 10 if first == decade else decade


_Supports = Callable[[Uint32], npt.NDArray[np.bool_]]
"""Returns whether n reports support values with equally many digits; (m, 1) values give an (m, n) result."""
Hash = Callable[[Uint32, npt.NDArray[np.uint64], int], _Supports]
"""Returns the `_Supports` of n reports, given n seeds, n buckets and g."""


def _mul32(seed: Uint32, bucket: npt.NDArray[np.uint64], g: int) -> _Supports:
    """Hash "mul32": floor(x·g / 2^32) for a word x mixed from seed and value."""
    # the bucket is r exactly for x in [ceil(r·2^32 / g), ceil((r+1)·2^32 / g))
    low = ((bucket << 32) + (g - 1)) // g
    width = (((bucket + 1) << 32) + (g - 1)) // g - low
    low32, width32 = low.astype(np.uint32), width.astype(np.uint32)

    def supports(values: Uint32) -> npt.NDArray[np.bool_]:
        e = _mixed(values + 0x9E3779B1)
        b = _mixed(e + 0x9E3779B1)
        c = _mixed(b + 0x9E3779B1) & 0xCCCCCCCC | 0x11111111
        x = seed ^ e
        x *= 0xC2B2AE3D + values * 0x78DDE6C4
        x ^= x >> 11
        x ^= b
        x *= c
        x -= low32
        hits: npt.NDArray[np.bool_] = x < width32
        return hits

    return supports


def _mixed(x: Uint32) -> Uint32:
    mixed = x.copy()
    _avalanche(mixed, np.empty_like(x), (16, 0x7FEB352D), (15, 0x846CA68B), (16, 1))
    return mixed


def _xxh32(seed: Uint32, bucket: npt.NDArray[np.uint64], g: int) -> _Supports:
    """Hash "xxh32": xxHash32 of the value's decimal string, modulo g."""
    bucket32 = bucket.astype(np.uint32)

    def supports(values: Uint32) -> npt.NDArray[np.bool_]:
        digits = len(str(values[0, 0]))
        text = [values // 10 ** (digits - 1 - i) % 10 + ord("0") for i in range(digits)]
        h = np.repeat(seed[np.newaxis] + (0x165667B1 + digits), len(values), axis=0)
        scratch = np.empty_like(h)
        words = digits // 4 * 4
        for i in range(0, words, 4):
            h += (text[i] | text[i + 1] << 8 | text[i + 2] << 16 | text[i + 3] << 24) * 0xC2B2AE3D
            _rotate(h, scratch, 17)
            h *= 0x27D4EB2F
        for byte in text[words:]:
            h += byte * 0x165667B1
            _rotate(h, scratch, 11)
            h *= 0x9E3779B1
        _avalanche(h, scratch, (15, 0x85EBCA77), (13, 0xC2B2AE3D), (16, 1))
        # h mod g by quotient and product, which is faster than numpy's remainder
        np.floor_divide(h, g, out=scratch)
        scratch *= g
        h -= scratch
        hits: npt.NDArray[np.bool_] = h == bucket32
        return hits

    return supports


def _rotate(x: Uint32, scratch: Uint32, left: int) -> None:
    np.left_shift(x, left, out=scratch)
    x >>= 32 - left
    x |= scratch


def _avalanche(x: Uint32, scratch: Uint32, *rounds: tuple[int, int]) -> None:
    for shift, factor in rounds:
        np.right_shift(x, shift, out=scratch)
        x ^= scratch
        x *= factor


HASHES: Mapping[str, Hash] = {"mul32": _mul32, "xxh32": _xxh32}
