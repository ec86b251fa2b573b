"""Rounds long vectors to float32, with an error far below the noise."""

from dataclasses import replace
from typing import Any

import numpy as np

from ldp.snapshot.contents import Body, Snapshot, Vector
from ldp.snapshot.documents import INLINE, ROUNDED

PART = 100  # Rounding moves a number by at most 1/PART of Base's standard error


def rounded(snapshot: Snapshot) -> Snapshot:
    """Returns a snapshot whose long vectors are rounded to float32.

    A vector stays exact if rounding would move a number by more than 1 % of Base's standard error. This happens only
    above about 10¹¹ reports. Base's frequencies stay exact, and so do sums and answers for sets. O(d) per method.
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
    """Rounds to float32, unless this moves a number by more than `off`."""
    with np.errstate(over="ignore", invalid="ignore"):
        near = vector.astype(np.float32).astype(np.float64)
        return vector if (np.abs(near - vector) > off).any() else near  # NaN stays NaN
