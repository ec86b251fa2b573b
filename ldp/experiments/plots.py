"""The pictures of the evaluation: one for each figure, from its rows. Only these functions import matplotlib."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ldp.analysis.method_selection import NEAR
from ldp.consistency import METHODS
from ldp.experiments.choice import PAPER
from ldp.experiments.eleventh import DATASETS, NAME, PEERS, TOP
from ldp.experiments.evidence import NAMES
from ldp.experiments.figures import FIGURES, Figure, Row
from ldp.experiments.styles import LEFT, RIGHT, SETTINGS, STYLES, WIDTH

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Picture
    from matplotlib.lines import Line2D


def draw(name: str, rows: Sequence[Row], path: Path) -> None:
    """Draws a figure into a PNG. The same rows give the same bytes.

    Args:
        name: a key of `FIGURES`.
        rows: its rows; those of other figures do no harm.
        path: the file to write.

    Raises:
        ModuleNotFoundError: matplotlib is not installed.
        ValueError: an unknown figure, or no rows of it.

    Example:
        >>> from ldp.experiments.figures import read_rows
        >>> draw("users", read_rows(Path("users.csv")), Path("users.png"))  # doctest: +SKIP
    """
    if name not in FIGURES:
        raise ValueError(f"there is no figure {name!r}; there are {', '.join(FIGURES)}")
    if find_spec("matplotlib") is None:
        raise ModuleNotFoundError("pictures need matplotlib: pip install '.[plots]'")
    from matplotlib import style

    figure, own = FIGURES[name], [row for row in rows if row.figure == name]
    if not own:
        raise ValueError(f"there are no rows of the figure {name!r}")
    with style.context(SETTINGS, after_reset=True):  # whatever the reader's own settings are
        if figure.experiment == "bias":
            drawn = _ranks(figure, own)
        elif name == "choice":
            drawn = _choices(figure, own)
        elif name == "eleventh":
            drawn = _eleventh(figure, own)
        else:
            drawn = _curves(figure, own)
        drawn.savefig(path, format="png", metadata={"Software": None})


# Curves over ε, n, ρ or k


_CASES = {
    "": "",
    "real": ", errors on the data",
    "norm-sub": ", errors on synthetic data made with Norm-Sub",
    "power-ns": ", errors on synthetic data made with PowerNS",
}


def _curves(figure: Figure, rows: Sequence[Row]) -> Picture:
    """Two panels beside each other for each data set or case."""
    cases = list(dict.fromkeys((row.dataset, row.case) for row in rows if row.case in _CASES))
    sides = (LEFT, ("base", *RIGHT) if figure.name == "top-k" else RIGHT)
    drawn, axes = _panels(len(cases), 2, each=2.2, below=1.0)
    _head(
        drawn,
        figure,
        f"{_lines_are(figure, rows)}\nThe two sides have different scales; Norm-Sub is on both.",
    )
    for (dataset, case), band in zip(cases, axes, strict=True):
        band[0].set_title(_describe(dataset, figure) + _CASES[case], loc="left")
        band[0].set_ylabel(figure.value)
        for methods, panel in zip(sides, band, strict=True):
            curves = [_of(rows, dataset, case, method) for method in methods]
            _scale(panel, figure, [row for curve in curves for row in curve])
            for place, (method, curve) in enumerate(zip(methods, curves, strict=True)):
                _curve(panel, figure, method, curve, place)
    for methods, panel in zip(sides, axes[-1], strict=True):
        panel.set_xlabel(figure.x)
        panel.legend(
            handles=[_line(method, []) for method in methods],
            ncols=3,
            loc="upper center",
            bbox_to_anchor=(0.5, -0.2),
            columnspacing=1.2,
        )
    return drawn


def _lines_are(figure: Figure, rows: Sequence[Row]) -> str:
    repeats = max(row.repeats for row in rows)
    bars = "the middle 68 % of them" if figure.log_value else "one standard deviation up and down"
    return f"OLH. Lines: mean of {repeats} repeats; bars at the markers: {bars}."


def _bar_of(figure: Figure, row: Row) -> tuple[float, float]:
    """The ends of an error bar: a deviation down and up could leave a logarithmic axis, quantiles cannot."""
    if figure.log_value and row.low is not None and row.high is not None:
        return row.low, row.high
    return row.value - row.deviation, row.value + row.deviation


def _of(rows: Sequence[Row], dataset: str, case: str, method: str) -> list[Row]:
    return [row for row in rows if (row.dataset, row.case, row.method) == (dataset, case, method)]


def _curve(panel: Axes, figure: Figure, method: str, curve: Sequence[Row], place: int) -> None:
    every = 1 if len(curve) <= 7 else 3  # more markers would hide the curves
    marked = curve[place % every :: every]
    low, high = zip(*(_bar_of(figure, row) for row in marked), strict=True)
    panel.vlines(
        [row.x for row in marked],
        low,
        high,
        colors=STYLES[method].colour,
        linewidth=0.6,
        alpha=0.6,
        zorder=2,
    )
    line = _line(method, curve)
    line.set_markevery((place % every, every))
    panel.add_line(line)


def _line(method: str, curve: Sequence[Row]) -> Line2D:
    from matplotlib.lines import Line2D

    style = STYLES[method]
    return Line2D(
        [row.x for row in curve],
        [row.value for row in curve],
        label=NAMES[method],
        color=style.colour,
        linestyle=(0, style.dash) if style.dash else "-",
        linewidth=0.9 if style.over else 1.5,
        marker=style.marker,
        markersize=style.size,
        markerfacecolor="none" if style.over else style.colour,
        markeredgewidth=0.8 if style.over else 0.0,
        zorder=4 if style.over else 3,
    )


def _scale(panel: Axes, figure: Figure, rows: Sequence[Row]) -> None:
    from matplotlib.ticker import EngFormatter, MaxNLocator, NullLocator, ScalarFormatter

    ends = [end for row in rows for end in (*_bar_of(figure, row), row.value)]
    highest = max(ends)
    if figure.log_value:
        panel.set_yscale("log")
        panel.set_ylim(min(end for end in ends if end > 0.0) / 1.3, highest * 1.3)
    else:
        panel.set_ylim(0.0, highest * 1.05)
        panel.yaxis.set_major_formatter(EngFormatter())
        panel.xaxis.set_major_formatter(EngFormatter())
        panel.xaxis.set_major_locator(MaxNLocator(4))
    if figure.log_x:
        panel.set_xscale("log", base=2)
        panel.xaxis.set_major_formatter(ScalarFormatter())
        panel.xaxis.set_minor_locator(NullLocator())


# A dot for each value, over its rank


_MEANING = {
    "distribution": ("one value, mean of {:,} runs", "the true counts", ""),
    "bias": ("one value, mean of {:,} runs", "no bias", " sum: over all values, ± its standard error."),
    "variance": ("one value", "Base, mean over the values", ""),
}
"""What a dot and the line for comparison are, and what else is to be said."""


def _ranks(figure: Figure, rows: Sequence[Row]) -> Picture:
    """A panel for each method, and one that says what the signs mean."""
    from matplotlib.lines import Line2D

    curves = {method: _of(rows, "zipf", "", method) for method in METHODS}
    sums = {row.method: row for row in rows if row.case == "sum"}
    dot_is, line_is, more = _MEANING[figure.name]
    drawn, axes = _panels(4, 3, each=1.55, below=0.5, shared=True)
    scale = "The y axis is linear near 0 and logarithmic beyond."
    _head(drawn, figure, f"{_describe('zipf', figure)}, ε = 1, OLH.\n{scale}{more}")
    for panel, (method, curve) in zip(chain(*axes), curves.items(), strict=False):
        panel.set_title(NAMES[method] + (_sum(sums[method]) if method in sums else ""))
        panel.add_line(_reference(figure, rows, curves["base"]))
        x, y = [row.x for row in curve], [row.value for row in curve]
        panel.plot(x, y, "o", markersize=2, markeredgewidth=0, color=STYLES[method].colour)
    _signed(axes[0][0], figure, curves["base"][0])
    for panel, *_ in axes:
        panel.set_ylabel(figure.value)
    for panel in (axes[3][0], axes[3][1], axes[2][2]):
        panel.set_xlabel(figure.x)
    axes[2][2].tick_params(labelbottom=True)
    dot = Line2D([], [], color="black", marker=".", markersize=4, linestyle="none")
    line = _reference(figure, rows, curves["base"])
    axes[3][2].set_axis_off()
    axes[3][2].legend(
        [dot, line],
        [dot_is.format(curves["base"][0].repeats), line_is],
        loc="lower left",
        bbox_to_anchor=(-0.05, 0),
        handletextpad=0.4,
    )
    return drawn


def _reference(figure: Figure, rows: Sequence[Row], base: Sequence[Row]) -> Line2D:
    """What the dots are to be compared with."""
    from matplotlib.lines import Line2D

    if figure.name == "distribution":
        truth = _of(rows, "zipf", "", "truth")
        return Line2D([row.x for row in truth], [row.value for row in truth], color="#b0b0b0", linewidth=3)
    level = float(np.mean([row.value for row in base])) if figure.name == "variance" else 0.0
    ends = [base[0].x, base[-1].x]
    return Line2D(ends, [level, level], color="black", linewidth=0.8, dashes=(4, 2), zorder=3)


def _sum(row: Row) -> str:
    error = round(row.deviation / math.sqrt(row.repeats))
    return f", sum {round(row.value):,}".replace("-", "−") + (f" ± {error:,}" if error else "")


def _signed(panel: Axes, figure: Figure, base: Row) -> None:
    """The axes that all panels of `_ranks` share: counts have both signs and five orders of magnitude."""
    from matplotlib.ticker import FixedLocator, NullLocator, ScalarFormatter

    noise = base.deviation / math.sqrt(base.repeats)
    # Noise must lie where the axis is linear: a logarithm would part it into two clouds.
    linear = 1000.0 if figure.name == "variance" else max(10.0, 2.0 * noise)
    powers = [10.0**power for power in range(2, 10) if 10.0**power > linear]
    panel.set_yscale("asinh", linear_width=linear)
    panel.yaxis.set_major_locator(FixedLocator([-power for power in reversed(powers)] + [0.0, *powers]))
    panel.yaxis.set_minor_locator(NullLocator())
    panel.set_xscale("log")
    panel.xaxis.set_major_formatter(ScalarFormatter())
    panel.xaxis.set_minor_locator(NullLocator())


# How often each method is chosen


def _choices(figure: Figure, rows: Sequence[Row]) -> Picture:
    """A bar for each of the paper's data, query and ε, in parts by the method that is chosen."""
    from matplotlib.patches import Patch
    from matplotlib.ticker import PercentFormatter

    cells = [
        row for row in rows if row.method == "confidence" and row.dataset in PAPER and "#" not in row.case
    ]
    datasets, queries = (
        list(dict.fromkeys(names))
        for names in zip(*((cell.dataset, cell.case) for cell in cells), strict=True)
    )
    bars = max(sum(cell.dataset == dataset for cell in cells) for dataset in datasets)
    drawn, axes = _panels(len(datasets), 1, each=0.2 * bars, below=1.0, left=1.7, right=2.3)
    _head(
        drawn,
        figure,
        f"OLH, a choice from each of {cells[0].repeats} collections. Hatched: the real error is more than {_NEAR} above"
        f" the least.\nbest: the least real error; within {_NEAR}: choices not hatched; confidence: their own, mean."
        " More data: in the report.",
    )
    for dataset, panel in zip(datasets, chain(*axes), strict=True):
        own = [cell for query in queries for cell in cells if (cell.dataset, cell.case) == (dataset, query)]
        panel.set_title(_describe(dataset, figure), loc="left")
        panel.set_xlim(0.0, 1.0)
        panel.set_ylim(len(own) - 0.5, -0.5)
        panel.set_yticks(range(len(own)), [f"{cell.case}, ε = {cell.x:g}" for cell in own])
        panel.grid(visible=False)
        panel.set_ylabel("query and ε")
        for column in _COLUMNS:
            _beside(panel, -0.9, column, column)
        for place, cell in enumerate(own):
            here = {
                (row.case, row.method): row.value for row in rows if (row.dataset, row.x) == (dataset, cell.x)
            }
            _bar(panel, place, cell.case, here)
    axes[-1][0].set_xlabel("share of the collections in which a method is chosen")
    axes[-1][0].xaxis.set_major_formatter(PercentFormatter(1.0, symbol=" %"))
    shown = {f"{query}: chosen" for query in queries}
    chosen = {row.method for row in rows if row.dataset in PAPER and row.case in shown and row.value > 0.0}
    signs = [
        Patch(color=STYLES[method].colour, label=NAMES[method]) for method in METHODS if method in chosen
    ]
    drawn.legend(handles=signs, ncols=6, loc="lower center")
    return drawn


_NEAR = f"{round(100 * (NEAR - 1))} %"
_COLUMNS = {"best": 0.03, f"within {_NEAR}": 0.49, "confidence": 0.74}
"""What stands to the right of the bars, and how far, in bars."""


def _bar(panel: Axes, place: int, query: str, here: Mapping[tuple[str, str], float]) -> None:
    errors = {method: here[f"{query}: MSE", method] for method in METHODS}
    best = min(errors, key=lambda method: errors[method])
    left = 0.0
    for method in METHODS:
        share = here[f"{query}: chosen", method]
        if share > 0.0:
            far = errors[method] > NEAR * errors[best]
            colour = STYLES[method].colour
            panel.barh(
                place,
                share,
                0.8,
                left,
                color=colour,
                edgecolor="white",
                linewidth=0.8,
                hatch="////" if far else "",
            )
            if share > 0.22:
                box = {"facecolor": colour, "edgecolor": "none", "pad": 0.5}
                panel.text(
                    left + share / 2,
                    place,
                    NAMES[method],
                    color="white",
                    weight="bold",
                    ha="center",
                    va="center_baseline",
                    bbox=box,
                )
            left += share
    _beside(panel, place, "best", NAMES[best])
    for column in ("confidence", f"within {_NEAR}"):
        _beside(panel, place, column, f"{100 * here[query, column]:.0f} %")


def _beside(panel: Axes, place: float, column: str, text: str) -> None:
    side = "left" if column == "best" else "right"
    panel.text(1.0 + _COLUMNS[column], place, text, va="center_baseline", ha=side)


# Empirical Bayes


def _eleventh(figure: Figure, rows: Sequence[Row]) -> Picture:
    """For each data set a panel with all values and one with the most frequent; a curve for each other method."""
    from matplotlib.ticker import PercentFormatter

    datasets = list(dict.fromkeys(row.dataset for row in rows))
    drawn, axes = _panels(len(datasets), 2, each=1.25, below=0.85, left=0.85)
    sides = f"Left: all values; right: the {TOP} most frequent; the scales differ."
    _head(
        drawn,
        figure,
        f"{_lines_are(figure, rows)}\nBelow 0, Empirical Bayes is better on the same draws. {sides}",
    )
    for dataset, band in zip(datasets, axes, strict=True):
        band[0].set_title(_describe(dataset, figure), loc="left")
        band[0].set_ylabel(f"relative {figure.value}")
        for panel, case in zip(band, ("", f"top {TOP} "), strict=True):
            panel.axhline(0.0, color="black", linewidth=0.8, dashes=(4, 2))
            panel.yaxis.set_major_formatter(PercentFormatter(1.0, symbol=" %"))
            for place, peer in enumerate(PEERS):
                _curve(panel, figure, peer, _of(rows, dataset, f"{case}over {peer}", NAME), place)
    for panel in axes[-1]:
        panel.set_xlabel(figure.x)
    handles = [_line(peer, []) for peer in PEERS]
    drawn.legend(handles, [f"against {NAMES[peer]}" for peer in PEERS], ncols=len(PEERS), loc="lower center")
    return drawn


# All pictures


def _panels(
    high: int,
    wide: int,
    *,
    each: float,
    below: float,
    left: float = 0.65,
    right: float = 0.1,
    shared: bool = False,
) -> tuple[Picture, list[list[Axes]]]:
    """An empty picture with a title's room above so many panels, each so many inches high."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure as Picture

    above, between = 0.9, 0.35
    height = above + below + high * each + (high - 1) * between
    drawn = Picture(figsize=(WIDTH, height))
    FigureCanvasAgg(drawn)
    axes = drawn.subplots(high, wide, squeeze=False, sharex=True, sharey=shared)
    drawn.subplots_adjust(
        left=left / WIDTH,
        right=1 - right / WIDTH,
        top=1 - above / height,
        bottom=below / height,
        hspace=between / each,
        wspace=0.05 if shared else 0.25,
    )
    return drawn, axes.tolist()


def _head(drawn: Picture, figure: Figure, note: str) -> None:
    height = drawn.get_figheight()
    title = f"{figure.paper}. {figure.title}" if figure.paper else figure.title
    drawn.text(0.1 / WIDTH, 1 - 0.1 / height, title, fontsize=10, va="top")
    drawn.text(0.1 / WIDTH, 1 - 0.33 / height, note, va="top")


def _describe(dataset: str, figure: Figure) -> str:
    data = DATASETS[dataset]()
    users = "" if figure.name == "users" else f"{data.users:,} users, "
    return f"{dataset.capitalize()}: {users}{len(data.histogram):,} values"
