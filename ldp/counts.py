"""Estimates from counts that a database or another aggregator computed.

``supports`` are d numbers: how many reports support each value. ``counters`` are the protocol's state. For most
protocols, the state is the supports. For Hadamard Response and PGR, it is how often each of K messages was reported.

A JSON document has ``reports``, the number of reports, and either ``supports`` or ``counters``. The counts are a list
of all numbers, or an object with the non-zero numbers. In an object, the keys of ``supports`` are labels, or indices if
the stream has no labels. The keys of ``counters`` are indices.

Databases also export ``supports`` without ``reports``, as JSON or as CSV with a header, and whole numbers as ``600.0``
or ``"600"``.
"""

from __future__ import annotations

import csv
import io
import re
from codecs import BOM_UTF8
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ldp.arguments import as_counts, as_integer, as_json, exact_total, repeated
from ldp.oracles.preferred import PreferredMessages

if TYPE_CHECKING:
    from ldp.estimate import Estimate
    from ldp.oracles import Oracle
    from ldp.stream import Stream

_MOST = (1 << 63) - 1
_SUMS = ("supports", "counters")
_KEYS = {"reports", *_SUMS}
_WHOLE = re.compile(r"\s*([0-9]{1,19})(?:\.0*)?\s*", re.ASCII)


def parse_counts(stream: Stream, data: bytes, reports: int | None = None) -> Estimate:
    r"""Returns the labelled estimate from a file of counts, JSON or CSV.

    CSV has a header with the columns ``label`` (or ``value``) and ``count``, separated by commas, semicolons or tabs.
    If there are two columns, the second may have any name. `reports` is as for `read_counts`.

    Raises:
        TypeError: as for `read_counts`.
        ValueError: as for `read_counts`; data that are neither JSON nor CSV with these columns.

    Example:
        >>> import ldp
        >>> stream = ldp.Stream("s", ldp.GRR("1", domain_size=2), labels=["red", "blue"])
        >>> parse_counts(stream, b"label,count(*)\nblue,400\nred,600\n").counts
        array([600, 400])
    """
    data = data.removeprefix(BOM_UTF8).strip()
    if data[:1] == b"{" and b"}\n{" in data.replace(b"\r", b""):  # an object per line
        return read_counts(stream, [as_json(line) for line in data.splitlines()], reports)
    return read_counts(stream, as_json(data) if data[:1] in (b"{", b"[") else _rows_of_csv(data), reports)


def read_counts(
    stream: Stream, document: Mapping[str, Any] | Sequence[Any], reports: int | None = None
) -> Estimate:
    """Returns the labelled estimate from a JSON document of a stream's counts.

    Args:
        stream: the stream.
        document: an object with ``reports`` and one of the sums; ``supports`` only; or a list of rows, objects with
            ``label`` or ``value``, and ``count``. A number may be a string or a float, if it is whole.
        reports: n, for a document without ``reports``. By default the sum of the counts determines n, if every report
            supports equally many values.

    Raises:
        TypeError: a part of the wrong type.
        ValueError: a missing or unknown key, a number that is not whole, a value that the stream does not have, a value
            that is given more than once, an unknown number of reports, or impossible counts.

    Example:
        >>> import ldp
        >>> stream = ldp.Stream("s", ldp.GRR("1", domain_size=3), labels=["red", "green", "blue"])
        >>> read_counts(stream, {"reports": 9, "supports": {"green": 5, "red": 4}}).counts
        array([4, 5, 0])
        >>> read_counts(stream, {"green": 5.0, "red": "4"}).n
        9
    """
    if isinstance(document, list) and document and all(isinstance(row, Mapping) for row in document):
        document = _of_rows(stream, document)
    if isinstance(document, list) or (isinstance(document, Mapping) and document.keys().isdisjoint(_KEYS)):
        document = {"supports": document}
    if not isinstance(document, Mapping):
        raise TypeError(
            f"counts are of type {type(document).__name__}; allowed are a JSON object or list, and CSV"
        )
    given = [key for key in _SUMS if key in document]
    if len(given) != 1 or not document.keys() <= {"reports", *given}:
        raise ValueError(
            f"counts have the keys {', '.join(map(str, document))}; allowed are reports, and either supports or"
            " counters"
        )
    (which,) = given
    size = stream.oracle.domain_size if which == "supports" else stream.oracle.state_size
    names = stream.labels if which == "supports" else None
    sums, oracle = document[which], stream.oracle
    numbers = _of_object(which, sums, size, names) if isinstance(sums, Mapping) else _of_list(which, sums)
    own = _whole("reports", document["reports"]) if "reports" in document else reports
    n = as_integer("reports", _total(oracle, which, numbers) if own is None else own, 1, _MOST)
    if reports not in (None, n):
        raise ValueError(f"reports is {n} in the counts and {reports} otherwise; give one number")
    counts = numbers if which == "supports" else oracle.support(checked_state(oracle, n, numbers))
    return oracle.estimate(counts, n).labelled(stream.labels).declared(stream.privacy)


def _total(oracle: Oracle, which: str, numbers: npt.NDArray[np.int64]) -> int:
    """Returns the number of reports, if the sum of counts determines it."""
    fewest, most = oracle.supported_of(np.arange(oracle.domain_size))
    if which == "counters" and isinstance(oracle, PreferredMessages):
        fewest = most = 1
    if fewest != most:
        raise ValueError(
            f"the number of reports is missing; {oracle.name} needs it, because a report supports {fewest} to {most}"
            " values: pass reports (--reports N)"
        )
    return exact_total(numbers) // most


def _rows_of_csv(data: bytes) -> list[dict[str, str]]:
    """Returns the rows of CSV with a header."""
    try:
        text = data.decode()
        separator = max(",;\t", key=text.partition("\n")[0].count)
        rows = list(csv.DictReader(io.StringIO(text, newline=""), delimiter=separator, strict=True))
    except UnicodeDecodeError as error:
        raise ValueError(f"the counts are not UTF-8 ({error}); save them as UTF-8") from None
    except csv.Error as error:
        raise ValueError(f"the counts are neither JSON nor CSV: {error}") from None
    if not rows:
        raise ValueError("the counts are neither JSON nor CSV with a header and rows")
    for line, row in enumerate(rows, 2):
        if None in row:
            raise ValueError(
                f"row {line} has more columns than the header; quote a field that has a separator"
            )
    return rows


def _of_rows(stream: Stream, rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Returns the supports of rows with a label or value, and a count."""
    columns = {str(name).strip().casefold(): name for name in rows[0]}
    wanted = ("label", "value") if stream.labels is not None else ("value", "label")
    value = next((columns[name] for name in wanted if name in columns), None)
    others = [name for name in rows[0] if name != value]
    count = others[0] if len(others) == 1 else columns.get("count")
    if value is None or count is None:
        named = ", ".join(repr(str(name)[:40]) for name in rows[0])
        raise ValueError(f"the columns are {named}; needed are label or value, and count, in a header")
    names = [str(row.get(value)) for row in rows]
    if twice := repeated(names):
        raise ValueError(f"{twice} given more than once; sum the counts of a value")
    return {name: row.get(count) for name, row in zip(names, rows, strict=True)}


def checked_state(oracle: Oracle, n: int, counters: npt.ArrayLike) -> npt.NDArray[np.int64]:
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
        raise TypeError(f"{which} must be a list of whole numbers or an object, not {type(sums).__name__}")
    return np.array([_whole(f"{which}, number {i},", one) for i, one in enumerate(sums)], np.int64)


def _whole(name: str, number: Any) -> int:
    """Returns a whole number that may be written as 600.0 or "600"."""
    found = _WHOLE.fullmatch(str(number))
    if found is None or int(found[1]) > _MOST:
        given = repr(number)[:40]
        raise ValueError(
            f"{name} is {given}; allowed are whole numbers from 0 to 2⁶³ − 1, such as 600 or 600.0"
        )
    return int(found[1])


def _of_object(
    which: str, sums: Mapping[str, Any], size: int, names: tuple[str, ...] | None
) -> npt.NDArray[np.int64]:
    numbers = np.zeros(size, np.int64)
    places = None if names is None else {name: i for i, name in enumerate(names)}
    unknown = []
    for name, one in zip(map(str, sums), sums.values(), strict=True):
        place = _index(name, size) if places is None else places.get(name)
        if place is None:
            unknown.append(repr(name[:40]))
        else:
            numbers[place] = _whole(f"{which} of {name!r}", one)
    if unknown:
        allowed = f"indices 0 to {size - 1}" if places is None else f"the stream's {size} labels"
        raise ValueError(f"{which} has {', '.join(unknown[:20])}; allowed are {allowed}")
    return numbers


def _index(text: str, size: int) -> int | None:
    """Parses a canonical decimal index below `size`; None for other text."""
    known = text.isascii() and text.isdigit() and len(text) <= 8 and str(int(text)) == text
    return int(text) if known and int(text) < size else None
