"""Compiled loops for hashes, bits, subsets, transforms and frames.

The first call of a kernel compiles it and caches it on disk. `warm` compiles all kernels, and `ldp.compiling.warm`
compiles those of a stream. The cache key contains only the CPU and the timestamp of the kernel's own file. A kernel
must therefore not call kernels in other files. All kernels release the GIL, and no kernel allocates memory in
proportion to n·d. numba widens 8-, 16- and 32-bit integers to 64 bits in arithmetic. A cast after each step of a loop
keeps integers narrow.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import numpy.typing as npt

from ldp.kernels.bits import count_bits, count_ones
from ldp.kernels.frames import (
    TEXT_BYTES,
    Verdict,
    frames_capacity,
    least_text,
    read_documents,
    read_frames,
    read_short,
)
from ldp.kernels.hadamard import walsh_hadamard
from ldp.kernels.hashing import count_mul32, count_xxh32, hash_mul32, hash_xxh32
from ldp.kernels.partitioned import address_of, count_indices, gather
from ldp.kernels.subsets import ascends, choose_subsets

__all__ = [
    "COUNT",
    "HASH",
    "TEXT_BYTES",
    "Verdict",
    "address_of",
    "ascends",
    "choose_subsets",
    "count_bits",
    "count_indices",
    "count_mul32",
    "count_ones",
    "count_xxh32",
    "frames_capacity",
    "gather",
    "hash_mul32",
    "hash_xxh32",
    "is_compiled",
    "least_text",
    "read_documents",
    "read_frames",
    "read_short",
    "walsh_hadamard",
    "warm",
]

HASH: dict[str, Callable[..., npt.NDArray[np.int64]]] = {"mul32": hash_mul32, "xxh32": hash_xxh32}
COUNT: dict[str, Callable[..., None]] = {"mul32": count_mul32, "xxh32": count_xxh32}


def is_compiled() -> bool:
    """Returns whether an earlier process has compiled kernels for this Python."""
    found = f"frames.read_frames-*.py{sys.version_info[0]}{sys.version_info[1]}*.nbi"
    folder = str(count_ones.stats.cache_path)  # shared by all files of this package
    return any(Path(folder).glob(found))


def warm() -> None:
    """Compiles all kernels or loads them from the cache."""
    seeds = np.zeros(1, np.uint32)
    values = np.zeros(1, np.int64)
    state = np.zeros(2, np.int64)
    addresses, runs = np.array([address_of(state)]), np.array([[0], [1]])
    for name, hash_values in HASH.items():
        buckets = hash_values(seeds, values, 2).astype(np.uint32)
        COUNT[name](addresses, runs[1], seeds, buckets, (1, 2))
    for width in (np.uint8, np.uint16, np.uint32):
        indices = np.zeros((1, 1), width)
        indices.flags.writeable = False  # the type that the oracles pass
        ascends(indices)
        count_indices(addresses, runs[0], runs[1], indices[0])
    bits = np.zeros((1, 1), np.uint8)
    bits.flags.writeable = False
    count_bits(addresses, runs[1], bits, 2)
    count_ones(bits)
    gather(bits[0], 1, runs[0], runs[1], np.zeros(1, np.uint8), np.zeros(1, np.int64))
    choose_subsets(np.zeros((1, 1), np.int64), values, np.zeros(1, np.bool_), 2)
    walsh_hadamard(state)
    data, bounds = np.zeros(1, np.uint8), np.zeros(0, np.int64)
    data.flags.writeable = bounds.flags.writeable = False  # the types that decode passes
    reports, counts = np.zeros(TEXT_BYTES, np.uint8), np.zeros(0, np.int64)
    read_frames(data, bounds, bounds, data, (1, 1), reports, counts, reports)
    slots, rows = np.zeros(1, np.int16), np.zeros((0, 6), np.int64)
    found = counts, reports, slots, np.zeros(0, np.int32)
    for segments in (None, (slots, np.zeros((0, 8), np.uint64), rows)):
        tables = (slots, counts, 1), rows, rows, segments
        read_documents(data, bounds, bounds, 0, *tables, 1, reports, reports, found, counts)
    read_short(data, bounds, bounds, slots, 1, rows, reports, slots)
