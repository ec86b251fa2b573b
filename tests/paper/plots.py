"""Draws the paper's figures from the rows of an evaluation."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ldp.consistency import METHODS
from tests.paper.evidence import NAMES
from tests.paper.figures import Figure, Row

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Picture

COLOURS = {
    "base": "#000000",
    "base-pos": "#24764d",
    "post-pos": "#645ede",
    "base-cut": "#eb4b72",
    "norm": "#bd6d95",
    "norm-mul": "#899603",
    "norm-cut": "#6b7600",
    "norm-sub": "#4d4500",
    "mle-apx": "#658fd0",
    "power": "#6b214a",
    "power-ns": "#3d3da5",
}
MARKERS = dict(zip(COLOURS, "os1^xXD+vP*", strict=True))
LEFT = ("base", "base-pos", "post-pos", "norm", "norm-mul", "norm-sub")
RIGHT = ("base", "norm-sub", "mle-apx", "base-cut", "norm-cut", "power", "power-ns")
"""The methods in the left and in the right panels of the paper's figures."""

CASES = {
    "": "",
    "real": ", errors on the data",
    "norm-sub": ", errors on synthetic data made with Norm-Sub",
    "power-ns": ", errors on synthetic data made with PowerNS",
}


def draw(figure: Figure, rows: Sequence[Row], path: Path) -> None:
    """Draws a figure as PNG; raises ModuleNotFoundError without matplotlib."""
    if find_spec("matplotlib") is None:
        raise ModuleNotFoundError("matplotlib is missing; plots need it: pip install '.[plots]'")
    from matplotlib import style

    own = [row for row in rows if row.figure == figure.name]
    if not own:
        raise ValueError(f"figure {figure.name!r} has no rows; run its experiment first")
    with style.context({"font.size": 8, "axes.grid": True, "savefig.dpi": 200}, after_reset=True):
        picture = _ranks(figure, own) if figure.experiment == "bias" else _curves(figure, own)
        picture.suptitle(f"{figure.paper}. {figure.title}")
        picture.savefig(path, format="png", metadata={"Software": None})


def _grid(high: int, wide: int, *, shared: bool) -> tuple[Picture, list[list[Axes]]]:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure as Picture

    picture = Picture(figsize=(7.0, 1.2 + 2.0 * high), layout="constrained")
    FigureCanvasAgg(picture)
    return picture, picture.subplots(high, wide, squeeze=False, sharex=True, sharey=shared).tolist()


def _of(rows: Sequence[Row], dataset: str, case: str, method: str) -> list[Row]:
    return [row for row in rows if (row.dataset, row.case, row.method) == (dataset, case, method)]


def _curves(figure: Figure, rows: Sequence[Row]) -> Picture:
    """Draws two panels per data set and case; bars show 68 % of the repeats."""
    cases = list(dict.fromkeys((row.dataset, row.case) for row in rows if row.case in CASES))
    picture, axes = _grid(len(cases), 2, shared=False)
    for (dataset, case), band in zip(cases, axes, strict=True):
        band[0].set_title(dataset.capitalize() + CASES[case], loc="left")
        band[0].set_ylabel(figure.value)
        for methods, panel in zip((LEFT, RIGHT), band, strict=True):
            for place, method in enumerate(methods):
                curve = _of(rows, dataset, case, method)
                y = np.array([row.value for row in curve])
                panel.errorbar(
                    [row.x for row in curve],
                    y,
                    np.abs(y - np.array([(row.low, row.high) for row in curve], np.float64).T),
                    label=NAMES[method],
                    color=COLOURS[method],
                    marker=MARKERS[method],
                    markersize=4,
                    linewidth=1,
                    elinewidth=0.5,
                    errorevery=(place % min(3, len(curve)), 3),
                )
            if figure.log_value:
                panel.set_yscale("log")
            if figure.log_x:
                panel.set_xscale("log", base=2)
    for panel in axes[-1]:
        panel.set_xlabel(figure.x)
        panel.legend(ncols=3, fontsize=6)
    return picture


def _ranks(figure: Figure, rows: Sequence[Row]) -> Picture:
    """Draws a panel per method, with a grey line for comparison."""
    picture, axes = _grid(4, 3, shared=True)
    sums = {row.method: row for row in rows if row.case == "sum"}
    base = _of(rows, "zipf", "", "base")
    truth = _of(rows, "zipf", "", "truth")
    level = sum(row.value for row in base) / len(base) if figure.name == "variance" else 0.0
    line = [row.value for row in truth] if truth else [level] * len(base)
    for panel, method in zip(chain(*axes), METHODS, strict=False):
        curve = _of(rows, "zipf", "", method)
        total = f", sum {round(sums[method].value):,}" if method in sums else ""
        panel.set_title(NAMES[method] + total)
        panel.plot([row.x for row in base], line, color="#b0b0b0")
        panel.plot(
            [row.x for row in curve], [row.value for row in curve], ".", markersize=2, color=COLOURS[method]
        )
    axes[0][0].set_xscale("log")
    axes[0][0].set_yscale("symlog", linthresh=1000.0)  # counts have both signs and five orders of magnitude
    axes[-1][-1].set_axis_off()
    picture.supxlabel(figure.x)
    picture.supylabel(figure.value)
    return picture
