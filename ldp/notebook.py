"""Notebook views: data frames and HTML tables of frequent values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from importlib import import_module
from typing import Any

import numpy.typing as npt

LIBRARIES = ("pandas", "polars")
"""Optional libraries for data frames, in order of preference."""

_LONGEST = 60
_BAR = "width:10em;height:1em;border:0;opacity:.6;background:linear-gradient(90deg,"


def data_frame(columns: Mapping[str, npt.NDArray[Any] | Sequence[Any]], library: str | None = None) -> Any:
    """Returns a `pandas.DataFrame` or `polars.DataFrame` of columns by name.

    `library` is one of `LIBRARIES`, or None for the first that is installed. Raises ValueError for another library,
    and ImportError for a library that is not installed.
    """
    if library not in (None, *LIBRARIES):
        raise ValueError(f"library is {library!r}; allowed are {', '.join(LIBRARIES)}")
    wanted = LIBRARIES if library is None else (library,)
    for name in wanted:
        try:
            return import_module(name).DataFrame(dict(columns))
        except ModuleNotFoundError as error:
            if error.name != name:
                raise  # the library is installed, but one of its dependencies is missing
    raise ImportError(f"a data frame needs {' or '.join(wanted)}: pip install {wanted[0]}")


def name_of(value: int, labels: Sequence[str] | None) -> str:
    r"""Returns a value's label, shortened and printable, or its index."""
    if labels is None:
        return str(value)
    label = labels[value]
    label = label if len(label) <= _LONGEST else label[: _LONGEST - 1] + "…"
    return label if label.isprintable() else repr(label)


def table(caption: str, rows: Iterable[tuple[str, float, float, float]], level: float, left: int) -> str:
    """Returns an HTML table of frequencies and intervals, without scripts.

    Each row has a name (escaped here), a frequency, and the two ends of an interval. `level` is the simultaneous
    coverage of the intervals. `left` is the number of values that are not shown. The table suits light and dark pages.
    """
    rows = list(rows)
    first, last = min([0.0, *(row[2] for row in rows)]), max(row[3] for row in rows)
    body = ""
    for name, frequency, low, high in rows:
        begin, end = (100 * (x - first) / (last - first) for x in (low, high)) if last > first else (0, 100)
        bar = f"{_BAR}transparent {begin:.1f}%,currentColor {begin:.1f}% {end:.1f}%,transparent {end:.1f}%)"
        body += (
            f'<tr><th scope="row" style="text-align:left">{escape(name)}</th><td>{100 * frequency:.2f}</td>'
            f'<td>{100 * low:.2f} … {100 * high:.2f}</td><td><div style="{bar}"></div></td></tr>'
        )
    more = f'<tr><td colspan="4" style="text-align:left">and {left:,} more</td></tr>' if left else ""
    return (
        f'<table><caption style="text-align:left">{escape(caption)}</caption><thead><tr><th scope="col">value</th>'
        f'<th scope="col">%</th><th scope="col">{level:.0%} simultaneous interval</th><td></td></tr></thead>'
        f"<tbody>{body}{more}</tbody></table>"
    )
