"""Notebook views: data frames, HTML tables and plots of frequent values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from importlib import import_module
from typing import Any, Literal, Protocol

import numpy as np
import numpy.typing as npt

from ldp.arguments import MAX_DOMAIN, as_integer
from ldp.intervals import score
from ldp.intervals.score import Of

Indices = npt.NDArray[np.intp]
Vector = npt.NDArray[np.float64]

LIBRARIES = ("pandas", "polars")
"""Optional libraries for data frames, in order of preference."""

_SHOWN = 10  # Values that a notebook shows
_LONGEST = 60
_WIDEST = 30  # characters of a bar's name
_BAR = "width:10em;height:1em;border:0;opacity:.6;background:linear-gradient(90deg,"


def data_frame(columns: dict[str, Any], more: Mapping[str, npt.ArrayLike], library: str | None) -> Any:
    """Returns a `pandas.DataFrame` or `polars.DataFrame` of columns by name.

    `columns` have (d,) values, among them ``value``. `library` is one of `LIBRARIES`, or None for the first that is
    installed. Raises the errors of `ldp.Estimate.to_frame`.
    """
    if not isinstance(more, Mapping):
        raise TypeError(
            f"more is {more!r}; allowed is a mapping of names to columns, as of together.by_method"
        )
    for name, given in more.items():
        if name in columns:
            raise ValueError(f"column {name!r} is a duplicate; the columns are {', '.join(columns)}")
        if (vector := np.asarray(given)).shape != (shape := columns["value"].shape):
            raise ValueError(f"column {name!r} has shape {vector.shape}, not {shape}")
        columns[name] = vector
    if library not in (None, *LIBRARIES):
        raise ValueError(f"library is {library!r}; allowed are {', '.join(LIBRARIES)}")
    wanted = LIBRARIES if library is None else (library,)
    for name in wanted:
        try:
            return import_module(name).DataFrame(columns)
        except ModuleNotFoundError as error:
            if error.name != name:
                raise  # the library is installed, but one of its dependencies is missing
    raise ImportError(f"a data frame needs {' or '.join(wanted)}: pip install {wanted[0]}")


def bars(
    names: Sequence[str], frequencies: Vector, low: Vector, high: Vector, texts: Mapping[str, str], axes: Any
) -> Any:
    """Draws (k,) frequencies as bars in %, with intervals, from top to bottom.

    Args:
        names: (k,) names, drawn literally and shortened.
        frequencies: (k,) frequencies.
        low: (k,) lower ends of the intervals.
        high: (k,) upper ends of the intervals.
        texts: the `title`, the `axis` of frequencies and the name of the `intervals`.
        axes: matplotlib axes, or None for a new figure.

    Raises ImportError if new axes are needed and matplotlib is not installed.
    """
    if axes is None:
        try:
            pyplot = import_module("matplotlib.pyplot")
        except ModuleNotFoundError as error:
            if error.name is None or error.name.partition(".")[0] != "matplotlib":
                raise
            raise ImportError("a plot needs matplotlib: pip install matplotlib") from None
        axes = pyplot.subplots(layout="constrained")[1]
    places = range(len(names))
    axes.barh(places, 100 * frequencies, alpha=0.6)
    axes.hlines(places, 100 * low, 100 * high, colors="black", label=texts["intervals"])
    shown = [name if len(name) <= _WIDEST else name[: _WIDEST - 1] + "…" for name in names]
    axes.set_yticks(places, shown, parse_math=False)  # labels may contain dollars
    axes.invert_yaxis()
    axes.set_xlabel(texts["axis"])
    axes.set_title(texts["title"], loc="left", fontsize="medium", wrap=True, parse_math=False)
    axes.legend(loc="lower right")  # where the bars are shortest
    return axes


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
        f'<th scope="col">% of reports</th><th scope="col">{level:.0%} simultaneous interval</th><td></td></tr></thead>'
        f"<tbody>{body}{more}</tbody></table>"
    )


class Displayed(Protocol):
    """Data frame, plot and notebook table of an estimate.

    The attributes and methods are those of `ldp.Estimate` and `ldp.fleet.FleetEstimate`.
    """

    frequencies: Vector
    labels: tuple[str, ...] | None

    def std_error(self) -> Vector: ...  # noqa: D102
    def interval(self, level: float, of: Of) -> tuple[Vector, Vector]: ...  # noqa: D102
    def most_frequent(self, k: int) -> Indices: ...  # noqa: D102
    def top_bounds(self, values: Indices, level: float, of: Of) -> tuple[Vector, Vector]: ...  # noqa: D102
    def _columns(self) -> dict[str, Any]: ...
    def _about(self) -> str: ...
    def _caption(self) -> str: ...

    def to_frame(
        self,
        more: Mapping[str, npt.ArrayLike] | None = None,
        *,
        level: float = 0.95,
        of: Of = "reports",
        library: Literal["pandas", "polars"] | None = None,
    ) -> Any:
        """Returns a data frame with a row for each value.

        Columns: ``value``; ``label`` and ``count`` if known (for a fleet, ``known`` instead of ``count``); Base's
        ``frequency``, the estimated share among the n reports, and ``std_error``; ``low`` and ``high``, the ends of
        Base's pointwise interval; the columns in `more`.

        Args:
            more: further columns of d numbers by name, for example from `ldp.consistency.together.by_method`.
            level: coverage of the intervals.
            of: their estimand; see `interval`.
            library: pandas or polars; None for the first that is installed.

        Raises:
            TypeError: a `more` that is not a mapping, or a level that is not a number.
            ValueError: a level that is not strictly between 0 and 1, an unknown library, or a further column that does
                not have d numbers or has one of the names above.
            ImportError: the library is not installed.

        Example:
            >>> import ldp
            >>> estimate = ldp.GRR("1", domain_size=2).estimate([60, 40], n=100).labelled(["red", "blue"])
            >>> estimate.to_frame({"norm-sub": ldp.consistency.METHODS["norm-sub"](estimate)}).round(2)
               value label  count  frequency  std_error   low  high  norm-sub
            0      0   red     60       0.72        0.1  0.53  0.90      0.72
            1      1  blue     40       0.28        0.1  0.10  0.47      0.28
        """
        low, high = self.interval(level, of)
        columns = self._columns()
        columns |= {"frequency": self.frequencies, "std_error": self.std_error(), "low": low, "high": high}
        return data_frame(columns, {} if more is None else more, library)

    def plot(self, k: int = _SHOWN, *, level: float = 0.95, of: Of = "reports", axes: Any = None) -> Any:
        """Draws the k most frequent values as bars with intervals.

        A bar is Base's estimate of the share among the n reports. The intervals hold simultaneously, as those of
        `ldp.query.top_interval`.

        Args:
            k: number of bars, at most d.
            level: coverage of the intervals.
            of: their estimand; see `interval`.
            axes: matplotlib axes to draw into; None for a new figure.

        Returns:
            The matplotlib axes.

        Raises:
            TypeError: k is not an integer, or level is not a number.
            ValueError: k below 1; level is not strictly between 0 and 1; another `of`.
            ImportError: matplotlib is not installed.

        Example:
            >>> import ldp
            >>> estimate = ldp.GRR("1", domain_size=2).estimate([60, 40], n=100).labelled(["red", "blue"])
            >>> estimate.plot().get_xlabel()
            'share among the reports, %'
        """
        score.check(level, of)
        top = self._top(as_integer("k", k, 1, MAX_DOMAIN), level, of)
        texts = {
            "title": self._caption(),
            "axis": f"share {'among the reports' if of == 'reports' else 'in the population'}, %",
            "intervals": f"{100 * level:g} % simultaneous intervals",
        }
        return bars(*top, texts, axes)

    def __repr__(self) -> str:
        shown = [f"{self._name(v)} {self.frequencies[v]:.3g}" for v in self.most_frequent(3)]
        rest = ["…"] if self._known > len(shown) else []
        return f"{type(self).__name__}({self._about()}: {', '.join(shown + rest)})"

    def _repr_html_(self) -> str | None:
        """Renders the most frequent values with simultaneous intervals as HTML."""
        names, *vectors = self._top(_SHOWN, 0.95, "reports")
        left = self._known - len(names)
        return table(self._caption(), zip(names, *vectors, strict=True), 0.95, left)

    @property
    def _known(self) -> int:
        return int(np.count_nonzero(~np.isnan(self.frequencies)))

    def _name(self, value: np.intp) -> str:
        return name_of(int(value), self.labels)

    def _top(self, k: int, level: float, of: Of) -> tuple[list[str], Vector, Vector, Vector]:
        """Returns names, frequencies and intervals of the most frequent values."""
        values = self.most_frequent(k)
        low, high = self.top_bounds(values, level, of)
        return list(map(self._name, values)), self.frequencies[values], low, high
