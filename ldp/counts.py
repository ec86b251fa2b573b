"""Estimates from counts that a database or another aggregator computed.

``supports`` are d numbers: the reports that support each value. ``counters`` are the protocol's state, which equals the
supports except for Hadamard Response and PGR, which count each of their K messages.

A JSON document has ``reports``, the number of reports, and either ``supports`` or ``counters``. Both are a list of all
numbers or an object with the non-zero numbers. The keys of ``supports`` are labels (or indices if the stream has no
labels), the keys of ``counters`` are indices.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ldp.arguments import as_counts, as_integer, exact_total
from ldp.oracles.preferred import PreferredMessages

if TYPE_CHECKING:
    from ldp.estimate import Estimate
    from ldp.oracles import Oracle
    from ldp.stream import Stream

_MOST = (1 << 63) - 1
_SUMS = ("supports", "counters")


def read_counts(stream: Stream, document: Mapping[str, Any]) -> Estimate:
    """Returns the labelled estimate from a JSON document of a stream's counts.

    Raises:
        TypeError: a part of the wrong type.
        ValueError: another key, a value that the stream does not have, or impossible counts.

    Example:
        >>> import ldp
        >>> stream = ldp.Stream("s", ldp.GRR("1", domain_size=3), labels=["red", "green", "blue"])
        >>> read_counts(stream, {"reports": 9, "supports": {"green": 5, "red": 4}}).counts
        array([4, 5, 0])
    """
    if not isinstance(document, Mapping):
        raise TypeError(f"counts must be a JSON object, not {type(document).__name__}")
    given = [key for key in _SUMS if key in document]
    if len(given) != 1 or document.keys() != {"reports", *given}:
        raise ValueError(
            f"counts have the keys {', '.join(map(str, document)) or 'none'}; allowed are reports, and either supports"
            " or counters"
        )
    (which,) = given
    size = stream.oracle.domain_size if which == "supports" else stream.oracle.state_size
    names = stream.labels if which == "supports" else None
    sums = document[which]
    numbers = _of_object(which, sums, size, names) if isinstance(sums, Mapping) else _of_list(which, sums)
    n, oracle = as_integer("reports", document["reports"], 1, _MOST), stream.oracle
    counts = numbers if which == "supports" else oracle.support(checked_state(oracle, n, numbers))
    return oracle.estimate(counts, n).labelled(stream.labels)


def checked_state(oracle: Oracle, n: int, counters: npt.ArrayLike) -> npt.NDArray[np.int64]:
    """Checks counters; returns them as a state of n reports: (state_size,)."""
    state = np.asarray(counters)
    if state.shape != (oracle.state_size,):
        raise ValueError(
            f"counters have the shape {state.shape}; the state of {oracle} is ({oracle.state_size},)"
        )
    state = np.ascontiguousarray(as_counts(state, n, oracle.state_size))
    if not isinstance(oracle, PreferredMessages):
        oracle._check_sums(state, n)  # noqa: SLF001  # here the counters are the supports
    elif (total := exact_total(state)) != n:
        raise ValueError(f"counters sum to {total}; each report counts once: the sum must be n = {n}")
    return state


def _of_list(which: str, sums: Any) -> npt.NDArray[np.int64]:
    if not isinstance(sums, list):
        raise TypeError(f"{which} must be a list of integers or an object, not {type(sums).__name__}")
    return np.array(
        [as_integer(f"{which}, number {i},", one, 0, _MOST) for i, one in enumerate(sums)], np.int64
    )


def _of_object(
    which: str, sums: Mapping[str, Any], size: int, names: tuple[str, ...] | None
) -> npt.NDArray[np.int64]:
    """Returns the numbers of an object as an array; missing entries are 0."""
    numbers = np.zeros(size, np.int64)
    places = None if names is None else {name: i for i, name in enumerate(names)}
    for name, one in sums.items():
        place = _index(name, size) if places is None else places.get(name)
        if place is None:
            allowed = f"indices 0 to {size - 1}" if places is None else f"the stream's {size} labels"
            raise ValueError(f"{which} has {name!r}; allowed are {allowed}")
        numbers[place] = as_integer(f"{which} of {name!r}", one, 0, _MOST)
    return numbers


def _index(text: str, size: int) -> int | None:
    """Parses a canonical decimal index below `size`; None for other text."""
    known = text.isascii() and text.isdigit() and len(text) <= 8 and str(int(text)) == text
    return int(text) if known and int(text) < size else None
