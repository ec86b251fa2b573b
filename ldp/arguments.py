"""Argument checks with uniform error messages.

Each check raises TypeError for a wrong type and ValueError for a value that is not allowed. Only the checks of arrays
import numpy, so that a client does not need numpy.
"""

from __future__ import annotations

import json
import operator
import re
import reprlib
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, SupportsIndex

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

MAX_DOMAIN = 1 << 24  # largest d
_OF_LABEL = "; labels.index(label) is the index of a label"
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


def as_value(name: str, value: SupportsIndex, domain_size: int) -> int:
    """Returns a value's index in 0..d−1.

    Example:
        >>> as_value("value", "red", 3)
        Traceback (most recent call last):
        TypeError: value must be an integer, not 'red' (str); labels.index(label) is the index of a label
    """
    try:
        return as_integer(name, value, 0, domain_size - 1)
    except TypeError as error:
        raise TypeError(f"{error}{_OF_LABEL * isinstance(value, str)}") from None


def check_level(level: float) -> None:
    """Checks the level of an interval, or an error rate.

    Example:
        >>> check_level("norm-sub")
        Traceback (most recent call last):
        TypeError: level is 'norm-sub'; allowed is a number strictly between 0 and 1
    """
    allowed = "allowed is a number strictly between 0 and 1"
    try:
        inside = 0.0 < level < 1.0
    except TypeError:
        raise TypeError(f"level is {reprlib.repr(level)}; {allowed}") from None
    if not inside:
        raise ValueError(f"level is {level}; {allowed}")


def as_json(text: bytes) -> Any:
    """Parses JSON text.

    Raises:
        ValueError: invalid JSON, JSON that is nested too deeply, a repeated key, or a number with thousands of digits.

    Example:
        >>> as_json(b'{"red": 600, "red": 1}')
        Traceback (most recent call last):
        ValueError: not JSON: 'red' given more than once
    """
    try:
        return json.loads(text, object_pairs_hook=_object)
    except RecursionError:
        raise ValueError("not JSON: nested too deeply") from None
    except ValueError as error:
        raise ValueError(f"not JSON: {error}") from None


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if twice := repeated([key for key, _ in pairs]):
        raise ValueError(f"{twice} given more than once")
    return dict(pairs)


def repeated(names: Sequence[str]) -> str:
    """Returns up to 20 names that occur more than once, quoted."""
    if len(set(names)) == len(names):
        return ""
    return ", ".join([repr(name) for name, times in Counter(names).items() if times > 1][:20])


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


def as_labels(given: Sequence[str], d: int) -> tuple[str, ...]:
    """Returns d distinct labels as a tuple."""
    labels = tuple(given)
    if len(labels) != d:
        raise ValueError(f"there are {len(labels)} labels for {d} values")
    for index, label in enumerate(labels):
        if not isinstance(label, str):
            raise TypeError(f"label {index} is {label!r}; it must be a string")
    if twice := repeated(labels):
        raise ValueError(f"labels {twice} given more than once; allowed is each label once")
    return labels


def as_indices(
    subset: npt.ArrayLike, domain_size: int, labels: Sequence[str] | None = None
) -> npt.NDArray[np.int64]:
    """Returns a set's m ≥ 0 distinct indices in 0..d−1, as (m,) int64.

    If `labels` are given, the set may contain labels.
    """
    import numpy as np

    given = np.asarray(subset)
    if labels is not None and given.ndim == 1 and given.dtype.kind in "UO":
        places = {label: index for index, label in enumerate(labels)}
        if unknown := [label for label in given.tolist() if label not in places]:
            raise ValueError(
                f"a set contains {unknown[0]!r}; allowed are the estimate's {len(places)} labels"
            )
        subset = [places[label] for label in given.tolist()]
    given = _integers("a set's values", subset, f"from 0 to {domain_size - 1}", _OF_LABEL)
    if given.size == 0:
        return np.empty(0, np.int64)
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

    array = _integers("values", values, f"from 0 to {domain_size - 1}", _OF_LABEL)
    if array.size == 0:
        return np.empty(0, np.int64)
    outside = (array < 0) | (array >= domain_size)
    if outside.any():
        first = int(outside.argmax())
        raise ValueError(f"value {first} is {array[first]}; allowed is 0 to {domain_size - 1}")
    return array.astype(np.int64)


def as_counts(counts: npt.ArrayLike, n: int, domain_size: int) -> npt.NDArray[np.int64]:
    """Returns the support counts of n reports, as (d,) int64 in 0..n."""
    import numpy as np

    counts = _integers("counts", counts, f"from 0 to n = {n}")
    if counts.shape != (domain_size,):
        raise ValueError(f"counts have the shape {counts.shape}; one per value is ({domain_size},)")
    if counts.min() < 0 or counts.max() > n:
        raise ValueError(f"counts range from {counts.min()} to {counts.max()}; allowed is 0 to n = {n}")
    return counts.astype(np.int64, copy=False)


def as_histogram(histogram: npt.ArrayLike, domain_size: int) -> npt.NDArray[np.int64]:
    """Returns the users per value as (d,) int64, with at least one user."""
    import numpy as np

    users = _integers("a histogram's numbers", histogram, "from 0 on")
    if users.shape != (domain_size,):
        raise ValueError(f"the histogram has the shape {users.shape}; one per value is ({domain_size},)")
    if users.min() < 0 or not users.any():
        raise ValueError("a histogram must contain at least one user and no negative number")
    return users.astype(np.int64)


def _integers(name: str, given: npt.ArrayLike, allowed: str, of_label: str = "") -> npt.NDArray[Any]:
    """Returns a vector of integers, (n,), or an empty vector of any type.

    Errors for text end with `of_label`.
    """
    import numpy as np

    array = np.asarray(given)
    needed = f"{name} must be {'a vector of ' * (array.ndim != 1)}integers {allowed}"
    if array.ndim > 1:
        raise ValueError(f"{needed}, not of the shape {array.shape}")
    if array.ndim == 0 or (array.size and array.dtype.kind not in "iu"):
        parts = [given] if array.ndim == 0 else array.tolist()
        part = next((one for one in parts if type(one) is not int), parts[0])
        raise TypeError(
            f"{needed}, not {reprlib.repr(part)} ({type(part).__name__}){of_label * isinstance(part, str)}"
        )
    return array


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


def joined_windows(windows: Iterable[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    """Sorts windows and joins adjacent windows; ValueError if windows overlap."""
    joined: list[tuple[int, int]] = []
    for start, end in sorted(_window(window) for window in windows):
        first, last = joined[-1] if joined else (start, None)
        if last is not None and start < last:
            raise ValueError(
                f"the windows {(first, last)} and {(start, end)} overlap: reports in both would be counted twice"
            )
        if last == start:
            joined[-1] = (first, end)
        else:
            joined.append((start, end))
    return tuple(joined)


def _window(window: tuple[int, int]) -> tuple[int, int]:
    if not isinstance(window, tuple) or len(window) != 2:
        raise TypeError(f"a window is (start, end), got {window!r}")
    start = as_integer("a window's start", window[0], -(1 << 63), (1 << 63) - 2)
    return start, as_integer("a window's end", window[1], start + 1, (1 << 63) - 1)
