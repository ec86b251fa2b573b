"""Encodes a chunk of a vector in one of four lossless content types.

The encoder uses float32 if all numbers are exact in float32, else float64. If most numbers are 0, it uses the sparse
type of the same width, which stores only the indices and values of the other numbers.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from ldp.snapshot.contents import Vector

FLOAT64 = "application/vnd.ldp.float64"
FLOAT32 = "application/vnd.ldp.float32"
SPARSE64 = "application/vnd.ldp.sparse.float64"
SPARSE32 = "application/vnd.ldp.sparse.float32"
_LENGTH, _INDEX = np.dtype("<u4"), np.dtype("<u2")
_DENSE: Mapping[str, np.dtype[Any]] = {FLOAT64: np.dtype("<f8"), FLOAT32: np.dtype("<f4")}
_SPARSE: Mapping[str, np.dtype[Any]] = {SPARSE64: np.dtype("<f8"), SPARSE32: np.dtype("<f4")}
MOST = 1 << 8 * _INDEX.itemsize  # Largest number of values in a chunk, because an index has 2 bytes


def shortest(values: Vector) -> tuple[str, bytes]:
    """Returns the content type and the bytes of a chunk. O(values).

    Raises ValueError for more than `MOST` numbers.

    Example:
        >>> for numbers in ([0.5, 0.25], [0.1, 0.25], [0.0] * 9 + [0.5]):
        ...     content_type, data = shortest(np.array(numbers))
        ...     content_type, len(data), read(content_type, data).tolist() == numbers
        ('application/vnd.ldp.float32', 8, True)
        ('application/vnd.ldp.float64', 16, True)
        ('application/vnd.ldp.sparse.float32', 10, True)
    """
    if len(values) > MOST:
        raise ValueError(f"the chunk has {len(values)} values; allowed are up to {MOST}")
    with np.errstate(over="ignore"):
        narrow = values.astype("<f4")
    exact = np.array_equal(narrow.astype(np.float64), values, equal_nan=True)
    numbers = narrow if exact else values.astype("<f8", copy=False)
    bits = numbers.view(f"<u{numbers.itemsize}")  # so that -0.0 is stored: its bits are not 0
    stored = np.flatnonzero(bits).astype(_INDEX)
    if _LENGTH.itemsize + stored.size * (_INDEX.itemsize + numbers.itemsize) >= numbers.nbytes:
        return FLOAT32 if exact else FLOAT64, numbers.tobytes()
    data = np.array(len(values), _LENGTH).tobytes() + stored.tobytes() + numbers[stored].tobytes()
    return SPARSE32 if exact else SPARSE64, data


def read(content_type: str, data: bytes) -> Vector:
    """Returns the numbers of a chunk. O(values).

    Raises KeyError for an unknown content type, and ValueError for invalid bytes.
    """
    if content_type in _DENSE:
        return np.frombuffer(data, _DENSE[content_type]).astype(np.float64)
    width = _SPARSE[content_type]
    size = int(np.frombuffer(data, _LENGTH, 1)[0])
    n, rest = divmod(len(data) - _LENGTH.itemsize, _INDEX.itemsize + width.itemsize)
    index = np.frombuffer(data, _INDEX, n, _LENGTH.itemsize)
    if rest or size > MOST or (n and int(index.max()) >= size):
        raise ValueError(f"{len(data)} bytes are not a chunk of {content_type}")
    values = np.zeros(size)
    values[index] = np.frombuffer(data, width, n, len(data) - n * width.itemsize)
    return values
