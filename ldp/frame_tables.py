"""Hash tables of fingerprints and segments for the kernel of frames."""

from __future__ import annotations

from functools import lru_cache
from itertools import count

import numpy as np
import numpy.typing as npt

from ldp.segments import HASH_MULTIPLIER, LONGEST, Segments


@lru_cache(64)
def marks_table(
    documents: tuple[bytes, ...], retired: tuple[bytes, ...]
) -> tuple[npt.NDArray[np.int16], npt.NDArray[np.int64], int]:
    """Returns a table of fingerprints without collisions.

    A fingerprint that is in both lists is retired. Raises ValueError for a document that is given twice.
    """
    if len({*documents}) < len(documents):
        raise ValueError("two of the documents have the same fingerprint; each document is given once")
    marks = [int.from_bytes(fingerprint, "little") for fingerprint in (*documents, *retired)]
    places = {mark: i for i, mark in enumerate(marks)}
    size = 2 * len(places) ** 2
    multipliers = (
        odd for odd in count(0x1E3779B1, 2) if len({_slot(mark, odd, size) for mark in places}) == len(places)
    )
    multiplier, slots = next(multipliers), np.full(size, -1, np.int16)
    for mark, i in places.items():
        slots[_slot(mark, multiplier, size)] = i
    return slots, np.array(marks, np.int64), multiplier


def _slot(mark: int, multiplier: int, size: int) -> int:
    return (mark * multiplier & 0xFFFFFFFF) * size >> 32


@lru_cache(64)
def segments_table(
    segments: Segments,
) -> tuple[npt.NDArray[np.int16], npt.NDArray[np.uint64], npt.NDArray[np.int64]]:
    """Returns a hash table of the nodes of segments."""
    nodes = segments.nodes
    slots = np.full(1 << (4 * len(nodes)).bit_length(), -1, np.int16)
    names = np.zeros((len(nodes), LONGEST // 8), np.uint64)
    cells = np.array([(len(text), *indices) for text, *indices in nodes], np.int64).reshape(-1, 3)
    for i, (text, *_) in enumerate(nodes):
        names[i] = words = np.frombuffer(text.encode().ljust(LONGEST, b"\0"), np.uint64)
        slot = len(text)
        for word in words[: -(-len(text) // 8)].tolist():
            slot = (slot ^ word) * HASH_MULTIPLIER % 2**64
            slot ^= slot >> 32
        slot %= slots.size
        while slots[slot] >= 0:
            slot = (slot + 1) % slots.size
        slots[slot] = i
    return slots, names, cells
