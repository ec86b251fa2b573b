"""A dashboard's picture: its panels in its own grid, in Grafana's dark colours, with what was asked for in each."""

import io
import itertools
import math
import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import LinearSegmentedColormap, to_hex, to_rgb
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.patches import FancyBboxPatch
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator
from PIL import Image

from tests.pictures.asking import STEP
from tests.pictures.numbers import written

Json = Mapping[str, Any]
WIDTH, COLUMNS, ROW, GAP, HEAD, DPI = 1600, 24, 38, 8, 78, 100
"""Pixels: of the picture, of a row of the grid, between panels, above them; and the grid's columns."""
CANVAS, BOX, EDGE, TEXT, FAINT, GRID = "#111217", "#181b1f", "#2a2d33", "#ccccdc", "#8e8e99", "#26282d"
NAMED = {"green": "#73bf69", "red": "#f2495c", "orange": "#ff9830", "blue": "#5794f2"}
PALETTE = (
    *("#73bf69", "#f2cc0c", "#8ab8ff", "#ff780a", "#f2495c", "#5794f2", "#b877d9", "#705da0"),
    *("#37872d", "#fade2a", "#447ebc", "#c15c17", "#890f02", "#0a437c", "#6d1f62", "#584477"),
    *("#b7dbab", "#f4d598", "#70dbed", "#f9ba8f", "#f29191", "#82b5d8", "#e5a8e2", "#aea2e0"),
)
BLUES = LinearSegmentedColormap.from_list("BlPu", ["#1f60c4", "#b877d9"])
FONTS = ["Inter", "DejaVu Sans"]
COLOURS = 256
"""Of the file, the named ones and the most frequent others: so many are enough, and make it small."""


class Page:
    """What is drawn on: pixels from the upper left corner."""

    def __init__(self, height: int) -> None:
        self.height = height
        self.figure = Figure((WIDTH / DPI, height / DPI), dpi=DPI, facecolor=CANVAS)
        self.canvas = FigureCanvasAgg(self.figure)
        self.whole = self.figure.add_axes((0, 0, 1, 1))
        self.whole.set(xlim=(0, WIDTH), ylim=(height, 0))
        self.whole.axis("off")

    def text(self, x: float, y: float, text: str, size: float = 12, color: str = TEXT, **more: Any) -> None:
        """Writes, its size in pixels."""
        self.whole.text(
            x, y, text, fontsize=size * 72 / DPI, color=color, family=FONTS, parse_math=False, **more
        )

    def wide(self, text: str, size: float) -> float:
        """How many pixels a text is wide."""
        font = FontProperties(family=FONTS, size=size * 72 / DPI)
        renderer = self.canvas.get_renderer()  # type: ignore[no-untyped-call]  # matplotlib's
        wide, _, _ = renderer.get_text_width_height_descent(text, font, ismath=False)
        return float(wide)

    def box(self, x: float, y: float, w: float, h: float, color: str = BOX, edge: str = EDGE) -> None:
        """Draws a panel's ground."""
        style = "round,pad=0,rounding_size=3"
        self.whole.add_patch(
            FancyBboxPatch((x, y), w, h, boxstyle=style, facecolor=color, edgecolor=edge, lw=0.8)
        )

    def axes(self, x: float, y: float, w: float, h: float) -> Axes:
        """Axes at pixels."""
        at = (x / WIDTH, 1 - (y + h) / self.height, w / WIDTH, h / self.height)
        return self.figure.add_axes(at, facecolor="none")

    def save(self, path: Path) -> None:
        """Writes the picture, in few colours."""
        drawn = io.BytesIO()
        self.figure.savefig(drawn, dpi=DPI, facecolor=CANVAS)
        image = Image.open(drawn).convert("RGB")
        named = [*PALETTE, *NAMED.values(), *BLUES(np.linspace(0, 1, 48))]
        known = np.round(255 * np.array([to_rgb(colour) for colour in named])).astype(np.uint8)
        seen, counts = np.unique(np.asarray(image).reshape(-1, 3), axis=0, return_counts=True)
        others = seen[np.argsort(-counts, kind="stable")[: COLOURS - len(known)]]
        palette = Image.new("P", (1, 1))
        palette.putpalette(np.concatenate([known, others]).ravel().tolist())
        image.quantize(palette=palette, dither=Image.Dither.NONE).save(path, optimize=True)


def draw(shown: Json, path: Path) -> None:
    """Draws a dashboard.

    Args:
        shown: what `tests.pictures.asking.asked` returns.
        path: of the picture.
    """
    deep = max(panel["gridPos"]["y"] + panel["gridPos"]["h"] for panel in shown["panels"])
    page = Page(int(HEAD + deep * ROW + GAP))
    _head(page, shown)
    for panel in shown["panels"]:
        at, unit = panel["gridPos"], (WIDTH - GAP) / COLUMNS
        x, y = GAP + at["x"] * unit, HEAD + at["y"] * ROW
        w, h = at["w"] * unit - GAP, at["h"] * ROW - GAP
        if panel["type"] == "row":
            page.whole.plot([x + 4, x + 8, x + 12], [y + 12, y + 17, y + 12], color=TEXT, lw=1.4)
            page.text(x + 20, y + 20, panel["title"], 15, weight="bold")
            continue
        page.box(x, y, w, h)
        page.text(x + 9, y + 20, panel["title"], 12.5, weight="bold")
        _KINDS[panel["type"]](page, panel, (x + 9, y + 32, w - 18, h - 40), shown)
    page.save(path)


def _head(page: Page, shown: Json) -> None:
    page.text(16, 26, f"{shown['title']}", 17, weight="bold")
    begin, end = (datetime.fromtimestamp(shown[name], UTC) for name in ("begin", "end"))
    page.text(WIDTH - 16, 26, f"{begin:%Y-%m-%d %H:%M:%S} to {end:%H:%M:%S} UTC", 12, FAINT, ha="right")
    x = 16.0
    for label, value in shown["variables"].items():
        wide = page.wide(label, 12) + page.wide(value, 12) + 44
        page.box(x, 42, wide, 26, CANVAS)
        page.text(x + 10, 59, label, 12, FAINT)
        page.text(x + 24 + page.wide(label, 12), 59, value, 12)
        x += wide + 10


def _named(panel: Json) -> Iterator[tuple[str, Json]]:
    """Each series of a panel with the name that the legend's format gives it."""
    for target in panel["targets"]:
        for series in target["data"]:
            labels = defaultdict(str, series["metric"])
            name = re.sub(r"{{(\w+)}}", r"{\1}", target["legendFormat"]).format_map(labels)
            yield name.strip() or target["refId"], series


def _newest(series: Json) -> float:
    """The newest number of a series that there is."""
    points = [series["value"]] if "value" in series else series["values"]
    return next((float(value) for _, value in reversed(points) if value != "NaN"), math.nan)


def _colour(value: float, thresholds: Json) -> str:
    return NAMED[
        [step["color"] for step in thresholds["steps"] if step["value"] is None or value >= step["value"]][-1]
    ]


def _stat(page: Page, panel: Json, at: tuple[float, ...], shown: Json) -> None:
    x, y, w, h = at
    fields, options = panel["fieldConfig"]["defaults"], panel["options"]
    series = list(_named(panel))
    if options["graphMode"] == "area":
        _spark(page, series[0][1], (x - 8, y + h * 0.62, w + 16, h * 0.38 + 6), fields, shown)
        h *= 0.72
    words = {
        float(key): word["text"]
        for mapping in fields.get("mappings", [])
        for key, word in mapping["options"].items()
    }
    for number, (name, one) in enumerate(series):
        value = _newest(one)
        text = words.get(value) or written(value, fields["unit"], fields.get("decimals"))
        part = w / len(series)
        size = min(h * 0.62, 34, 34 * part * 0.92 / max(page.wide(text, 34), 1))
        middle, named = x + part * (number + 0.5), len(series) > 1
        if named:
            page.text(middle, y + h * 0.2, name, 12, ha="center", va="center")
        at_y = y + h * (0.62 if named else 0.5)
        page.text(middle, at_y, text, size, _colour(value, fields["thresholds"]), ha="center", va="center")


def _spark(page: Page, series: Json, at: tuple[float, ...], fields: Json, shown: Json) -> None:
    axes = page.axes(*at)
    times, values = _line(series, shown)
    low, high = np.nanmin(values), np.nanmax(values)
    axes.set(xlim=(shown["begin"], shown["end"]), ylim=(low, high + (high - low or 1) * 0.1))
    colour = _colour(_newest(series), fields["thresholds"])
    axes.plot(times, values, color=colour, lw=0.9)
    axes.fill_between(times, values, low, color=colour, alpha=0.15, lw=0)
    axes.axis("off")


def _line(series: Json, shown: Json) -> tuple[np.ndarray, np.ndarray]:
    """A series at each step, with a hole where it has no point, as Grafana draws it."""
    times = np.arange(round(shown["begin"]), round(shown["end"]) + 1, STEP, dtype=float)
    known = {round(float(time)): float(value) for time, value in series["values"]}
    return times, np.array([known.get(round(time), math.nan) for time in times])


def _timeseries(page: Page, panel: Json, at: tuple[float, ...], shown: Json) -> None:
    x, y, w, h = at
    fields = panel["fieldConfig"]["defaults"]
    own = {
        one["matcher"]["options"]: {each["id"]: each["value"] for each in one["properties"]}
        for one in panel["fieldConfig"]["overrides"]
    }
    lines = [(name, *_line(series, shown)) for name, series in _named(panel)]
    if fields["custom"]["stacking"]["mode"] == "normal":
        stacked = np.cumsum([np.nan_to_num(values) for *_, values in lines], axis=0)
        lines = [(name, times, total) for (name, times, _), total in zip(lines, stacked, strict=True)]
    colours = [
        NAMED[own[name]["color"]["fixedColor"]] if "color" in own.get(name, {}) else colour
        for (name, *_), colour in zip(lines, itertools.cycle(PALETTE), strict=False)
    ]
    legend = [
        (name, colour)
        for (name, *_), colour in zip(lines, colours, strict=True)
        if not own.get(name, {}).get("custom.hideFrom", {}).get("legend")
    ]
    rows = _legend(page, legend, (x, y, w, h))
    axes = page.axes(x + 52, y + 4, w - 58, h - 24 - 18 * rows)
    low, high = _limits(fields, [values for *_, values in lines])
    axes.set(xlim=(shown["begin"], shown["end"]), ylim=(low, high))
    _ruled(axes, fields)
    by_name = {name: values for name, _, values in lines}
    for (name, times, values), colour in zip(lines, colours, strict=True):
        more = own.get(name, {})
        if below := more.get("custom.fillBelowTo"):
            axes.fill_between(
                times, values, by_name[below], color=colour, alpha=more["custom.fillOpacity"] / 100, lw=0
            )
        elif fields["custom"]["fillOpacity"] and "custom.lineWidth" not in more:
            axes.fill_between(times, values, low, color=colour, alpha=0.1, lw=0)
        axes.plot(times, values, color=colour, lw=more.get("custom.lineWidth", 1) * 1.1)
    if fields["custom"].get("thresholdsStyle"):
        for step in fields["thresholds"]["steps"]:
            if step["value"] is not None and low <= step["value"] <= high:
                axes.axhline(step["value"], color=NAMED[step["color"]], lw=1, ls=(0, (6, 4)))


def _limits(fields: Json, values: list[np.ndarray]) -> tuple[float, float]:
    known = np.concatenate([*values, [math.nan]])
    known = known[np.isfinite(known)]
    low, high = (known.min(), known.max()) if len(known) else (0.0, 1.0)
    low = fields.get("min", low - 0.06 * (high - low))
    high = fields.get("max", high + 0.06 * (high - low))
    return low, high if high > low else low + 1


def _ruled(axes: Axes, fields: Json) -> None:
    """The lines and numbers of the scales."""
    low, high = axes.get_xlim()
    minutes = np.arange(math.ceil(low / 60) * 60, high, 60 if axes.get_position().width > 0.25 else 120)
    axes.xaxis.set_major_locator(FixedLocator(minutes.tolist()))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda at, _: f"{datetime.fromtimestamp(at, UTC):%H:%M}"))
    axes.yaxis.set_major_locator(MaxNLocator(5, integer=fields.get("decimals") == 0))
    axes.yaxis.set_major_formatter(
        FuncFormatter(lambda at, _: written(round(at, 9), fields["unit"], fields.get("decimals")))
    )
    axes.grid(color=GRID, lw=0.7)
    axes.set_axisbelow(True)
    axes.tick_params(colors=FAINT, labelsize=11 * 72 / DPI, length=0, labelfontfamily=FONTS)
    for spine in axes.spines.values():
        spine.set_visible(False)


def _legend(page: Page, names: list[tuple[str, str]], at: tuple[float, ...]) -> int:
    """Draws names below a panel's lines, in as many rows as they need, at most three; returns how many."""
    x, y, w, h = at
    rows: list[list[tuple[float, str, str]]] = [[]]
    left = 0.0
    for name, colour in names:
        wide = page.wide(name, 11) + 34
        if left + wide > w and rows[-1]:
            rows.append([])
            left = 0.0
        rows[-1].append((left, name, colour))
        left += wide
    rows = rows[:3]
    for number, row in enumerate(rows):
        bottom = y + h - 18 * (len(rows) - number) + 13
        for right, name, colour in row:
            page.whole.plot([x + right, x + right + 14], [bottom - 4, bottom - 4], color=colour, lw=3)
            page.text(x + right + 20, bottom, name, 11)
    return len(rows)


def _bars(page: Page, panel: Json, at: tuple[float, ...], shown: Json) -> None:
    x, y, w, h = at
    fields = panel["fieldConfig"]["defaults"]
    series = [(name, _newest(one)) for name, one in _named(panel)]
    most = max(value for _, value in series)
    names = min(max(page.wide(name, 12) for name, _ in series) + 12, w * 0.5)
    each = h / len(series)
    for number, (name, value) in enumerate(series):
        top, share = y + number * each + 2, max(value, 0) / most
        long = w - names - 80
        page.text(x + names - 10, top + each / 2, name, 12, ha="right", va="center")
        page.box(x + names, top, long, each - 5, "#22252b", "#22252b")
        extent = (x + names, x + names + long * share, top + each - 5, top)
        page.whole.imshow(
            BLUES(np.linspace(0, share, 64))[None],
            extent=extent,
            aspect="auto",
            interpolation="nearest",
            zorder=2,
        )
        text = written(value, fields["unit"], fields.get("decimals"))
        page.text(x + w, top + each / 2, text, 14, to_hex(BLUES(share)), ha="right", va="center")
    page.whole.set(xlim=(0, WIDTH), ylim=(page.height, 0))


def _table(page: Page, panel: Json, at: tuple[float, ...], shown: Json) -> None:
    x, y, w, h = at
    columns, rows = _transformed(panel)
    fields = panel["fieldConfig"]["defaults"]
    wide = {
        one["matcher"]["options"]: each["value"]
        for one in panel["fieldConfig"]["overrides"]
        for each in one["properties"]
    }
    rest = (w - sum(wide.values())) / (len(columns) - len(wide))
    lefts = [x + sum(wide.get(name, rest) for name in columns[:number]) for number in range(len(columns))]
    for left, name in zip(lefts, columns, strict=True):
        page.text(left + 6, y + 14, name, 12, NAMED["blue"])
    for number, row in enumerate(rows[: int((h - 24) // 30)]):
        top = y + 24 + 30 * number
        page.whole.plot([x, x + w], [top, top], color=GRID, lw=0.8)
        for left, cell in zip(lefts, row, strict=True):
            text = cell if isinstance(cell, str) else written(cell, fields["unit"], fields.get("decimals"))
            page.text(left + 6, top + 20, text, 12)


def _transformed(panel: Json) -> tuple[list[str], list[list[Any]]]:
    """A table's columns and rows, after the transformations that the panel has."""
    (target,) = panel["targets"]
    rows = [
        one["metric"] | {"Time": one["value"][0], "Value": float(one["value"][1])} for one in target["data"]
    ]
    for transformation in panel["transformations"]:
        options = transformation["options"]
        if transformation["id"] == "groupingToMatrix":
            across, down, cell = options["columnField"], options["rowField"], options["valueField"]
            grouped: dict[str, dict[str, Any]] = {}
            for row in rows:
                grouped.setdefault(row[down], {f"{down}\\{across}": row[down]})[row[across]] = row[cell]
            rows = list(grouped.values())
        else:
            assert transformation["id"] == "organize"
            order, hidden = options["indexByName"], options["excludeByName"]
            rows = [
                {
                    options["renameByName"].get(name, name): row[name]
                    for name in sorted(row, key=lambda name: order.get(name, len(order)))
                    if not hidden.get(name)
                }
                for row in rows
            ]
    for by in panel["options"]["sortBy"]:
        first = str(by["displayName"])
        rows = sorted(rows, key=itemgetter(first), reverse=by["desc"])
    columns = list(dict.fromkeys(name for row in rows for name in row))
    return columns, [[row.get(name, "") for name in columns] for row in rows]


_KINDS: Mapping[str, Callable[[Page, Json, tuple[float, ...], Json], None]] = {
    "stat": _stat,
    "timeseries": _timeseries,
    "bargauge": _bars,
    "table": _table,
}
