"""Published vectors, either inline in a body or in chunks.

Each chunk is a message. Its content type states whether the numbers are float64 or rounded float32, and dense or
sparse. A sparse chunk consists of its dense length in 4 bytes, the indices of the nonzero numbers in 2 bytes each, and
these numbers.
"""

import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from worker.audit.errors import Difference

Vector = npt.NDArray[np.float64]

_TYPES = {
    "application/vnd.ldp.float64": ("<f8", False),
    "application/vnd.ldp.float32": ("<f4", False),
    "application/vnd.ldp.sparse.float64": ("<f8", True),
    "application/vnd.ldp.sparse.float32": ("<f4", True),
}
_HALF, _LEAST = 2.0**-24, 2.0**-150
"""Maximum rounding errors of a float32: relative, and absolute for numbers near 0."""


@dataclass(frozen=True)
class Read:
    """A published vector."""

    values: Vector  # (d,)
    off: Vector  # (d,) maximum rounding error; 0 for float64


def read(
    name: str, key: str, body: Mapping[str, Any], messages: Mapping[str, bytes], types: Mapping[str, str]
) -> Read:
    """Reads the vector `name` from a body, or from chunks if it is not inline.

    Raises `Difference` if a chunk is invalid or has an unknown content type, and `KeyError` if a chunk is missing.
    """
    if (inline := body.get(name)) is not None:
        return Read(np.array(inline, np.float64), np.zeros(len(inline)))
    parts = list(_parts(f"{key}/{name}", body, messages, types))
    return Read(*(np.concatenate(each) for each in zip(*parts, strict=True)))


def _parts(
    prefix: str, body: Mapping[str, Any], messages: Mapping[str, bytes], types: Mapping[str, str]
) -> Iterator[tuple[Vector, Vector]]:
    for i in range(body["chunks"]):
        key = f"{prefix}/{i}"
        if (of := types[key]) not in _TYPES:
            raise Difference(f"{key} has content type {of!r}")
        number, sparse = _TYPES[of]
        values = _sparse(key, messages[key], number) if sparse else np.frombuffer(messages[key], number)
        wide = values.astype(np.float64)
        yield wide, np.abs(wide) * _HALF + _LEAST if number == "<f4" else np.zeros(len(wide))


def _sparse(key: str, data: bytes, number: str) -> npt.NDArray[Any]:
    (size,) = struct.unpack_from("<I", data)
    columns = np.dtype(number).itemsize
    stored = (len(data) - 4) // (2 + columns)
    if len(data) != 4 + stored * (2 + columns):
        raise Difference(f"{key} has {len(data)} bytes, an invalid size of a sparse chunk")
    at = np.frombuffer(data[4 : 4 + 2 * stored], "<u2")
    if (np.diff(at.astype(np.int64)) <= 0).any() or (stored and at[-1] >= size):
        raise Difference(f"{key} has indices that are not ascending below {size}")
    values = np.zeros(size, number)
    values[at] = np.frombuffer(data[4 + 2 * stored :], number)
    return values
