"""Counting OLH reports: the compiled kernels against the same hashes in numpy."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

import ldp
from tests.bench.measure import Line, compare

REPORTS = 16_384
CHUNK = 256
"""Reports that numpy hashes at a time: its arrays of CHUNK x d words stay in a core's cache."""

Words = npt.NDArray[np.uint32]
Buckets = Callable[[Words], npt.NDArray[Any]]
"""The buckets of some values under n seeds, as (n, values)."""
Count = Callable[[npt.NDArray[np.int64], npt.NDArray[np.void], int], None]


def lines() -> Iterator[Line]:
    """Reports a second, for both hashes."""
    peers: dict[str, Count] = {"mul32": count_mul32, "xxh32": count_xxh32}
    for name, count in peers.items():
        oracle = ldp.OLH("1", domain_size=1024, hash=name)
        rng = np.random.default_rng(1)
        reports = oracle.perturb(rng.integers(oracle.domain_size, size=REPORTS), rng=rng)
        yield line(oracle, reports, count)


def line(oracle: ldp.OLH, reports: npt.NDArray[np.void], count: Count) -> Line:
    """One comparison, after a check that both count the same."""
    ours, theirs = oracle.zeros(), oracle.zeros()
    oracle.accumulate(ours, reports)
    count(theirs, reports, oracle.g)
    assert np.array_equal(ours, theirs), f"numpy counts {oracle.hash} otherwise"
    return compare(
        f"count OLH reports, {oracle.hash}",
        lambda: oracle.accumulate(ours, reports),
        lambda: count(theirs, reports, oracle.g),
        peer_name="numpy",
        setup=f"d={oracle.domain_size}, ε=1, g={oracle.g}, {len(reports)} reports a call",
        rate=(len(reports), "reports"),
    )


def count_mul32(state: npt.NDArray[np.int64], reports: npt.NDArray[np.void], g: int) -> None:
    """The mul32 hash of every value under every seed, as a matrix, a chunk of reports at a time."""
    step, values = np.uint32(0x9E3779B1), np.arange(len(state), dtype=np.uint32)
    e = _mixed(values + step)
    b = _mixed(e + step)
    c = _mixed(b + step) & np.uint32(0xCCCCCCCC) | np.uint32(0x11111111)
    a = np.uint32(0xC2B2AE3D) + np.uint32(0x78DDE6C4) * values

    def buckets(seeds: Words) -> npt.NDArray[np.uint64]:
        x = seeds[:, None] ^ e
        x *= a
        x ^= x >> 11
        x ^= b
        x *= c
        return (x.astype(np.uint64) * np.uint64(g)) >> np.uint64(32)

    _count(state, reports, buckets)


def _mixed(x: Words) -> Words:
    x = x.copy()
    x ^= x >> 16
    x *= np.uint32(0x7FEB352D)
    x ^= x >> 15
    x *= np.uint32(0x846CA68B)
    x ^= x >> 16
    return x


def count_xxh32(state: npt.NDArray[np.int64], reports: npt.NDArray[np.void], g: int) -> None:
    """xxHash32 of every value's decimal string under every seed; the values of one length together."""
    low, length = 0, 1
    while low < len(state):
        high = min(len(state), 10**length)
        texts = np.arange(low, high).astype(f"S{length}").view(np.uint8).reshape(-1, length)
        _count(state[low:high], reports, partial(_bucket, texts=texts, g=np.uint32(g)))
        low, length = high, length + 1


def _bucket(seeds: Words, texts: npt.NDArray[np.uint8], g: np.uint32) -> Words:
    return _xxh32(seeds, texts) % g


def _count(state: npt.NDArray[np.int64], reports: npt.NDArray[np.void], buckets: Buckets) -> None:
    """Adds, for each value, the reports whose bucket is the value's under their seed."""
    for start in range(0, len(reports), CHUNK):
        chunk = reports[start : start + CHUNK]
        state += np.count_nonzero(buckets(chunk["seed"]) == chunk["bucket"][:, None], axis=0)


def _xxh32(seeds: Words, texts: npt.NDArray[np.uint8]) -> Words:
    """(n, m) hashes of m texts of one length, below 16 bytes, under n seeds."""
    length = texts.shape[1]
    whole = length // 4 * 4
    h = np.repeat((seeds + np.uint32(0x165667B1 + length))[:, None], len(texts), axis=1)
    for lane in np.ascontiguousarray(texts[:, :whole]).view("<u4").T:
        h += lane * np.uint32(0xC2B2AE3D)
        h = (h << 17 | h >> 15) * np.uint32(0x27D4EB2F)
    for byte in texts[:, whole:].T:
        h += byte.astype(np.uint32) * np.uint32(0x165667B1)
        h = (h << 11 | h >> 21) * np.uint32(0x9E3779B1)
    h ^= h >> 15
    h *= np.uint32(0x85EBCA77)
    h ^= h >> 13
    h *= np.uint32(0xC2B2AE3D)
    h ^= h >> 16
    return h
