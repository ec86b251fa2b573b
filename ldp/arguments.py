"""Argument checks with uniform error messages.

Each check raises TypeError for a wrong type and ValueError for a value that is not allowed. Only the checks of arrays
import numpy, so that a client does not need numpy.
"""

from __future__ import annotations

import json
import operator
import re
from typing import TYPE_CHECKING, Any, SupportsIndex

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

MAX_DOMAIN = 1 << 24  # largest d
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff]")


def as_integer(name: str, value: SupportsIndex, low: int, high: int) -> int:
    """Returns an int or numpy integer in low..high as an int. Rejects bool.

    Example:
        >>> as_integer("g", 1, 2, 65536)
        Traceback (most recent call last):
        ValueError: g is 1; allowed is 2 to 65536
    """
    try:
        number = None if isinstance(value, bool) else operator.index(value)
    except TypeError:
        number = None
    if number is None:
        raise TypeError(f"{name} must be an integer, not {value!r} ({type(value).__name__})")
    if not low <= number <= high:
        raise ValueError(f"{name} is {number}; allowed is {low} to {high}")
    return number


def as_json(text: bytes) -> Any:
    """Parses JSON text.

    Raises:
        ValueError: invalid JSON, JSON that is nested too deeply, or a number with thousands of digits.
    """
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("not JSON: nested too deeply") from None
    except ValueError as error:
        raise ValueError(f"not JSON: {error}") from None


def as_text(name: str, text: object) -> str:
    r"""Returns a non-empty string without control characters or surrogates.

    Example:
        >>> as_text("label 3", "red\0")
        Traceback (most recent call last):
        ValueError: label 3 is 'red\x00'; control characters are not allowed
    """
    if not isinstance(text, str):
        raise TypeError(f"{name} is {text!r}; it must be a string")
    if not text:
        raise ValueError(f"{name} is empty")
    if found := _CONTROL.search(text):
        why = (
            "; surrogates are not allowed" if found[0] >= "\ud800" else "; control characters are not allowed"
        )
        raise ValueError(f"{name} is {text!r}{why}")
    return text


def as_indices(subset: npt.ArrayLike, domain_size: int) -> npt.NDArray[np.int64]:
    """Returns a set's m ≥ 0 distinct indices in 0..d−1, as (m,) int64."""
    import numpy as np

    given = np.asarray(subset)
    if given.ndim != 1:
        raise ValueError(f"a set must be a vector of indices, got an array of shape {given.shape}")
    if given.size == 0:
        return np.empty(0, np.int64)
    if given.dtype.kind not in "iu":
        raise TypeError(f"a set's indices must be integers, got {given.dtype}")
    first, last = int(given.min()), int(given.max())
    if first < 0 or last >= domain_size:
        outside = first if first < 0 else last
        raise ValueError(f"a set's indices must lie in 0..{domain_size - 1}, got {outside}")
    if np.unique(given).size < given.size:
        raise ValueError("a set's indices must be distinct, but one is repeated")
    return given.astype(np.int64)


def as_values(values: npt.ArrayLike, domain_size: int) -> npt.NDArray[np.int64]:
    """Returns the values of n ≥ 0 users in 0..d−1, as (n,) int64."""
    import numpy as np

    array = np.asarray(values)
    if array.ndim != 1:
        raise ValueError(f"values must have one dimension, not the shape {array.shape}")
    if array.size == 0:
        return np.empty(0, np.int64)
    if array.dtype.kind not in "iu":
        raise TypeError(f"values must be integers, not {array.dtype}")
    outside = (array < 0) | (array >= domain_size)
    if outside.any():
        first = int(outside.argmax())
        raise ValueError(f"value {first} is {array[first]}; allowed is 0 to {domain_size - 1}")
    return array.astype(np.int64)


def as_counts(counts: npt.ArrayLike, n: int, domain_size: int) -> npt.NDArray[np.int64]:
    """Returns the support counts of n reports, as (d,) int64 in 0..n."""
    import numpy as np

    counts = np.asarray(counts)
    if counts.dtype.kind not in "iu":
        raise TypeError(f"counts must be integers, not {counts.dtype}")
    if counts.shape != (domain_size,):
        raise ValueError(f"counts have the shape {counts.shape}; one per value is ({domain_size},)")
    if counts.min() < 0 or counts.max() > n:
        raise ValueError(f"counts range from {counts.min()} to {counts.max()}; allowed is 0 to n = {n}")
    return counts.astype(np.int64, copy=False)


def as_histogram(histogram: npt.ArrayLike, domain_size: int) -> npt.NDArray[np.int64]:
    """Returns the users per value as (d,) int64, with at least one user."""
    import numpy as np

    users = np.asarray(histogram)
    if users.dtype.kind not in "iu":
        raise TypeError(f"a histogram must be integers, not {users.dtype}")
    if users.shape != (domain_size,):
        raise ValueError(f"the histogram has the shape {users.shape}; one per value is ({domain_size},)")
    if users.min() < 0 or not users.any():
        raise ValueError("a histogram must contain at least one user and no negative number")
    return users.astype(np.int64)


def check_generator(rng: object, allowed: str) -> None:
    """Checks that `rng` is a numpy Generator. The error quotes `allowed`."""
    import numpy as np

    if not isinstance(rng, np.random.Generator):
        raise TypeError(f"rng must be {allowed}, not {type(rng).__name__}")


def check_reports(reports: npt.NDArray[np.void], dtype: np.dtype[np.void]) -> None:
    """Checks that reports are a vector of an oracle's dtype."""
    given = getattr(reports, "dtype", None)
    if given != dtype:
        raise TypeError(f"reports must be an array of {dtype}, not {given or type(reports).__name__}")
    if reports.ndim != 1:
        raise ValueError(f"reports must have one dimension, not the shape {reports.shape}")


def check_state(state: npt.NDArray[np.int64], size: int) -> None:
    """Checks that a state is (size,) int64."""
    dtype = getattr(state, "dtype", None)
    if dtype != "int64":
        raise TypeError(f"state must be an array of int64, not {dtype or type(state).__name__}")
    if state.shape != (size,):
        raise ValueError(f"state has the shape {state.shape}; this oracle needs ({size},)")


def check_counting(state: npt.NDArray[np.int64], size: int) -> None:
    """Checks that a state is (size,) int64, writable and contiguous."""
    check_state(state, size)
    if not state.flags.carray:
        raise ValueError("state must be writable and contiguous, like the result of zeros()")


def exact_total(counts: npt.NDArray[np.int64]) -> int:
    """Returns the exact sum of non-negative counts, even above 2⁶³ − 1."""
    if counts.size * int(counts.max(initial=0)) < 1 << 63:
        return int(counts.sum())
    return (int((counts >> 32).sum()) << 32) + int((counts & 0xFFFFFFFF).sum())
