"""Rounding: long vectors as numbers of four bytes, which is far less than the coins' own error."""

from dataclasses import replace
from typing import Any

import numpy as np

from ldp.snapshot.contents import Body, Snapshot, Vector
from ldp.snapshot.documents import INLINE, ROUNDED

PART = 100  # No number is moved by more than this part of Base's standard error


def rounded(snapshot: Snapshot) -> Snapshot:
    """Returns a snapshot whose chunked vectors are float32 numbers, as float64 arrays.

    Each number is the nearest float32. A vector stays as it is if that would move a number by more than a hundredth of
    Base's standard error, which takes about 10^11 reports; so do Base's own frequencies, from which the counts follow,
    sums, and answers for sets. O(d) a method.
    """
    off = snapshot.std_error / PART
    bodies = {
        method: _rounded(body, off, exact=method == "base") if len(body.frequencies) > INLINE else body
        for method, body in snapshot.bodies.items()
    }
    return replace(snapshot, bodies=bodies)


def _rounded(body: Body, off: float, *, exact: bool) -> Body:
    vectors: dict[str, Any] = {
        name: _nearest(vector, off)
        for name in ROUNDED
        if (vector := getattr(body, name)) is not None and not (exact and name == "frequencies")
    }
    tops = body.tops
    if (frequencies := vectors.get("frequencies")) is not None:
        tops = tuple(replace(top, frequencies=frequencies[top.values]) for top in tops)
    return replace(body, tops=tops, **vectors)


def _nearest(vector: Vector, off: float) -> Vector:
    """Returns the nearest float32 of each number, or the vector itself where one is further off."""
    with np.errstate(over="ignore", invalid="ignore"):
        near = vector.astype(np.float32).astype(np.float64)
        return near if (np.abs(near - vector) <= off).all() else vector
