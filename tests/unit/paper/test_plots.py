"""The pictures of the evaluation show the rows."""

import itertools
import sys

import matplotlib
import numpy as np
import pytest
from matplotlib.figure import Figure

from ldp.consistency import METHODS
from tests.paper import plots
from tests.paper.evidence import NAMES
from tests.paper.figures import FIGURES, Row
from tests.paper.plots import COLOURS, LEFT, RIGHT

CURVES = [name for name, figure in FIGURES.items() if figure.paper and figure.experiment != "bias"]


def rows_of(name):
    """Simulated rows with the signs and sizes of the real ones."""
    rows = []
    if FIGURES[name].experiment == "bias":
        for method, x in itertools.product([*METHODS, "truth"], np.arange(1.0, 65.0)):
            rows.append(Row(name, "zipf", "", x, method, 4e5 * x**-1.5 * (1 if x % 2 else -1), 2e3, 5000))
        return [*rows, Row(name, "zipf", "sum", 64.0, "base-pos", -1405.4, 61e3, 5000)]
    cases = ["real", "norm-sub", "power-ns"] if name == "synthetic" else [""]
    for dataset, case, (place, method), x in itertools.product(
        ("zipf", "emoji"), cases, enumerate(METHODS), (1.0, 2.0, 4.0)
    ):
        value = 1e-7 * 3.0**place * x
        # a few far repeats: one deviation down would be below 0
        rows.append(Row(name, dataset, case, x, method, value, 1.2 * value, 30, 0.6 * value, 1.3 * value))
    return [*rows, Row(name, "emoji", "threshold", 1.0, "base-cut", 1e6, 1e6, 30)]  # must not be drawn


def drawn(name, tmp_path, monkeypatch):
    made = []
    monkeypatch.setattr(Figure, "savefig", lambda figure, *_, **__: made.append(figure))
    plots.draw(FIGURES[name], rows_of(name), tmp_path / "figure.png")
    return made[0]


def test_every_method_is_in_a_panel():
    assert set(LEFT) | set(RIGHT) == set(METHODS)
    assert list(COLOURS) == list(METHODS)
    assert len(set(COLOURS.values())) == len(METHODS)


@pytest.mark.parametrize("name", CURVES)
def test_curves_match_the_rows(name, tmp_path, monkeypatch):
    figure, rows = drawn(name, tmp_path, monkeypatch), rows_of(name)
    bands = list(dict.fromkeys((row.dataset, row.case) for row in rows if row.case != "threshold"))
    assert len(figure.axes) == 2 * len(bands)
    for (dataset, case), panels in zip(
        bands, zip(figure.axes[::2], figure.axes[1::2], strict=True), strict=True
    ):
        for panel, methods in zip(panels, (LEFT, RIGHT), strict=True):
            assert panel.get_yscale() == ("log" if FIGURES[name].log_value else "linear")
            shown = {container.get_label(): container for container in panel.containers}
            assert set(shown) == {NAMES[method] for method in methods}
            for method in methods:
                own = [row for row in rows if (row.dataset, row.case, row.method) == (dataset, case, method)]
                line, _, (bars,) = shown[NAMES[method]].lines
                assert line.get_xydata().tolist() == [[row.x, row.value] for row in own]
                (segment, *_), place = bars.get_segments(), list(methods).index(method) % 3
                assert segment[:, 1] == pytest.approx([own[place].low, own[place].high])


@pytest.mark.parametrize("name", ["distribution", "bias", "variance"])
def test_each_value_is_a_dot(name, tmp_path, monkeypatch):
    figure, rows = drawn(name, tmp_path, monkeypatch), rows_of(name)
    for panel, method in zip(figure.axes, METHODS, strict=False):
        own = [[row.x, row.value] for row in rows if row.method == method and not row.case]
        assert panel.lines[1].get_xydata().tolist() == own
    assert [panel.get_title() for panel in figure.axes[:2]] == ["Base", "Base-Pos, sum -1,405"]


@pytest.mark.slow
def test_equal_rows_yield_equal_bytes_under_any_settings(tmp_path):
    rows, paths = rows_of("top-k"), [tmp_path / "one.png", tmp_path / "other.png"]
    plots.draw(FIGURES["top-k"], rows, paths[0])
    with matplotlib.rc_context({"font.size": 20, "axes.facecolor": "black", "savefig.dpi": 30}):
        before = dict(matplotlib.rcParams)
        plots.draw(FIGURES["top-k"], rows, paths[1])
        assert dict(matplotlib.rcParams) == before
    assert paths[0].read_bytes() == paths[1].read_bytes()


def test_undrawable_figures_are_named(monkeypatch, tmp_path):
    with pytest.raises(ValueError, match="figure 'top-k' has no rows"):
        plots.draw(FIGURES["top-k"], rows_of("users"), tmp_path / "users.png")
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ModuleNotFoundError, match=r"pip install '.\[plots\]'"):
        plots.draw(FIGURES["users"], rows_of("users"), tmp_path / "users.png")
    assert not list(tmp_path.iterdir())
