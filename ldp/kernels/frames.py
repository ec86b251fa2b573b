"""Frames of many records: which are sound, and their reports."""

from __future__ import annotations

from enum import IntEnum

import numpy as np
import numpy.typing as npt
from numba import njit

from ldp.wire import JSON_BEGINS


class Kind(IntEnum):
    """What `classify_frames` finds a record to be: a frame so far, or the first thing that is wrong."""

    BINARY = 0
    JSON = 1
    EMPTY = 2
    VERSION = 3
    LENGTH = 4
    FINGERPRINT = 5
    MANY = 6


@njit(cache=True, nogil=True)
def classify_frames(
    data: npt.NDArray[np.uint8],
    begins: npt.NDArray[np.int64],
    ends: npt.NDArray[np.int64],
    header: npt.NDArray[np.uint8],
    size: int,
    most: int,
) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
    """Tells sound binary frames from JSON and from malformed ones; nothing is said about the reports inside.

    Args:
        data: what the records lie in.
        begins: (m,) int64, where they begin.
        ends: (m,) int64, where they end.
        header: the version byte and the fingerprint.
        size: the bytes of a report.
        most: how many reports a record may have.

    Returns:
        kinds: (m,) uint8, a `Kind` each.
        counts: (m,) int64, the number of reports of a BINARY one, else 0.
    """
    kinds = np.empty(begins.size, np.uint8)
    counts = np.zeros(begins.size, np.int64)
    for i in range(kinds.size):
        start, length = begins[i], ends[i] - begins[i]
        same = min(length, header.size)
        while same and data[start + same - 1] == header[same - 1]:
            same -= 1  # down to 0 when all bytes of the header agree
        if length == 0:
            kinds[i] = Kind.EMPTY
        elif data[start] == JSON_BEGINS:
            kinds[i] = Kind.JSON
        elif data[start] != header[0]:
            kinds[i] = Kind.VERSION
        elif length < header.size:
            kinds[i] = Kind.LENGTH
        elif same:
            kinds[i] = Kind.FINGERPRINT
        elif length == header.size or (length - header.size) % size:
            kinds[i] = Kind.LENGTH
        elif (length - header.size) // size > most:
            kinds[i] = Kind.MANY
        else:
            kinds[i] = Kind.BINARY
            counts[i] = (length - header.size) // size
    return kinds, counts


@njit(cache=True, nogil=True)
def copy_bodies(
    data: npt.NDArray[np.uint8],
    ends: npt.NDArray[np.int64],
    kinds: npt.NDArray[np.uint8],
    counts: npt.NDArray[np.int64],
    size: int,
) -> npt.NDArray[np.uint8]:
    """The reports of BINARY records, where they belong among the reports of all records.

    Args:
        data: what the records lie in.
        ends: (m,) int64, where they end.
        kinds: (m,) uint8, from `classify_frames`.
        counts: (m,) int64, the number of reports of each record of any kind.
        size: the bytes of a report.

    Returns:
        (counts.sum()·size,) uint8, with the places of other kinds still to be filled.
    """
    wire = np.empty(counts.sum() * size, np.uint8)
    place = 0
    for i in range(kinds.size):
        length = counts[i] * size
        if kinds[i] == Kind.BINARY:
            start = ends[i] - length
            for k in range(length):
                wire[place + k] = data[start + k]
        place += length
    return wire
