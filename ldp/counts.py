"""Estimates from counts that a database or another aggregator computed.

``supports`` are d numbers: how many reports support each value. ``counters`` are the protocol's state. For most
protocols, the state is the supports. For Hadamard Response and PGR, it is how often each of K messages was reported.

A JSON document has ``reports``, the number of reports, and either ``supports`` or ``counters``. The counts are a list
of all numbers, or an object with the non-zero numbers. In an object, the keys of ``supports`` are labels, or indices if
the stream has no labels. The keys of ``counters`` are indices.
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


def estimate_counts(
    oracle: Oracle,
    reports: int,
    *,
    supports: npt.ArrayLike | None = None,
    counters: npt.ArrayLike | None = None,
) -> Estimate:
    """Returns the estimate from external counts of one or more reports.

    Pass either d `supports` or the `counters`, which are ``state_size`` numbers; see `Oracle.estimate`.

    Raises:
        TypeError: neither or both of the two arguments, or numbers that are not integers.
        ValueError: counts that n reports cannot have, or counts of the wrong length.

    Example:
        >>> import ldp
        >>> hadamard = ldp.HadamardResponse("1", domain_size=3)
        >>> estimate_counts(hadamard, 100, counters=[20, 30, 25, 25]).counts
        array([45, 50, 45])
    """
    if (supports is None) == (counters is None):
        raise TypeError("pass either supports, one per value, or counters, the protocol's state")
    n = as_integer("reports", reports, 1, _MOST)
    if supports is None:
        return oracle.estimate_state(checked_state(oracle, n, counters), n)
    return oracle.estimate(supports, n)


def read_counts(stream: Stream, document: Mapping[str, Any]) -> Estimate:
    """Returns the estimate from a JSON document of counts of a stream.

    Raises:
        TypeError: a part of the wrong type.
        ValueError: a missing or unknown key, a value that the stream does not have, or impossible counts.

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
    return estimate_counts(stream.oracle, document["reports"], **{which: numbers})


def checked_state(oracle: Oracle, n: int, counters: npt.ArrayLike | None) -> npt.NDArray[np.int64]:
    """Checks counters, and returns them as the state of n reports."""
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
