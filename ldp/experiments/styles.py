"""How a method looks in every picture of the evaluation (Section V, Plotting Convention), and a page's type.

A method has one colour, one marker and one dash in all of them. The colours stay apart under the three kinds of
colour blindness; markers and dashes tell the methods apart in grey too.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Style:
    """How a method is drawn.

    Attributes:
        colour: "#rrggbb", sRGB.
        marker: matplotlib's sign for it.
        size: of the marker, in points.
        dash: points of line and of gap; none is a solid line.
        over: drawn over the method that it coincides with, thin and with open markers, so that both are seen.
    """

    colour: str
    marker: str
    size: float = 4.0
    dash: tuple[float, ...] = ()
    over: bool = False


STYLES: dict[str, Style] = {
    "base": Style("#000000", "o"),
    "base-pos": Style("#24764d", "s"),
    "post-pos": Style("#645ede", "s", 6.5, (4, 2), over=True),
    "base-cut": Style("#eb4b72", "^", 5, (6, 1.5)),
    "norm": Style("#bd6d95", "o", 6.5, (4, 2), over=True),
    "norm-mul": Style("#899603", "X", 5, (6, 1.5, 1, 1.5)),
    "norm-cut": Style("#6b7600", "D", 4, (6, 1.5, 1, 1.5)),
    "norm-sub": Style("#4d4500", "v", 5),
    "mle-apx": Style("#658fd0", "v", 7.5, (4, 2), over=True),
    "power": Style("#6b214a", "P", 5.5, (1.2, 1.8)),
    "power-ns": Style("#3d3da5", "*", 7),
}
"""Method -> style. Every two have colours apart; those of one panel more so."""

LEFT = ("base", "base-pos", "post-pos", "norm", "norm-mul", "norm-sub")
RIGHT = ("norm-sub", "mle-apx", "base-cut", "norm-cut", "power", "power-ns")
"""The methods of the left panels and of the right ones, as in the paper; top-k has Base on the right too."""

WIDTH = 7.0  # inches: a printed page between its margins
SETTINGS = {
    "font.family": "DejaVu Sans",  # comes with matplotlib
    "font.size": 8,
    "axes.titlesize": 8,
    "axes.labelsize": 8,
    "xtick.labelsize": 8,
    "ytick.labelsize": 8,
    "legend.fontsize": 8,
    "legend.frameon": False,
    "axes.linewidth": 0.6,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#dddddd",
    "grid.linewidth": 0.5,
    "hatch.linewidth": 0.8,
    "savefig.dpi": 200,
}
