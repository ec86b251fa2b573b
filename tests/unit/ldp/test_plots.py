"""The pictures of the evaluation show the rows."""

import itertools
import re
import sys

import matplotlib
import numpy as np
import pytest
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

from ldp.consistency import METHODS
from ldp.experiments import plots
from ldp.experiments.evidence import NAMES
from ldp.experiments.figures import FIGURES, Row
from ldp.experiments.plots import LEFT, RIGHT, STYLES

CURVES = [name for name in FIGURES if FIGURES[name].experiment not in ("bias", "choice", "eleventh")]
RANKS = [name for name in FIGURES if FIGURES[name].experiment == "bias"]
X = {
    "full-domain": [0.2 * i for i in range(1, 21)],
    "users": [2e5 * i for i in range(1, 11)],
    "set-value": [10.0 * i for i in range(1, 10)],
    "set-value-small": [float(i) for i in range(1, 11)],
    "set-case": [0.2 * i for i in range(1, 21)],
    "synthetic": [0.2, 1.0, 4.0],
    "top-k": [2.0 * i for i in range(1, 17)],
}


QUERIES = ("single values", "random sets", "subgroups", "top 16")


def rows_of(name):
    """Made-up rows with the signs and sizes of the real ones."""
    rng = np.random.default_rng(sum(map(ord, name)))
    if FIGURES[name].experiment == "bias":
        return rank_rows(name, rng)
    if name == "choice":
        return choice_rows(rng)
    if name == "eleventh":
        return eleventh_rows(rng)
    datasets = {"users": ["zipf"], "set-case": ["emoji"], "synthetic": ["emoji"]}.get(name, ["zipf", "emoji"])
    cases = ["real", "norm-sub", "power-ns"] if name == "synthetic" else [""]
    rows = []
    for dataset, case, (place, method) in itertools.product(datasets, cases, enumerate(METHODS)):
        size = 1e6 * (place + 1) if name == "users" else 1e-7 * 3.0**place
        for x in X[name]:
            value = size * (1.0 + x / X[name][-1]) * rng.uniform(0.9, 1.1)
            # a few far repeats: one deviation down would be below 0
            rows.append(Row(name, dataset, case, x, method, value, 1.2 * value, 30, 0.6 * value, 1.3 * value))
    extra = {"full-domain": "threshold", "synthetic": "picked on norm-sub"}
    if name in extra:  # numbers for the report, which must not be drawn
        rows += [Row(name, "emoji", extra[name], 1.0, "base-cut", 1e6, 1e6, 30)]
    return rows


def rank_rows(name, rng):
    ranks = np.arange(1.0, 1025.0)
    truth = 4e5 * ranks**-1.5
    rows = []
    for place, method in enumerate(METHODS):
        bias = rng.normal(0.0, 30.0, 1024) - 3000.0 * place * (ranks < 50)
        values = {"distribution": truth + bias, "bias": bias, "variance": np.maximum(0.0, 4e6 - 1e6 * place)}
        values = np.broadcast_to(values[name], 1024)
        rows += [
            Row(name, "zipf", "", x, method, value, 2000.0, 5000)
            for x, value in zip(ranks.tolist(), values.tolist(), strict=True)
        ]
        if name == "bias":
            rows.append(Row(name, "zipf", "sum", 1024.0, method, -1405.4 * place, 61000.0 * place, 5000))
    if name == "distribution":
        rows += [
            Row(name, "zipf", "", x, "truth", value, 0.0, 5000)
            for x, value in zip(ranks.tolist(), truth.tolist(), strict=True)
        ]
    return rows


def choice_rows(rng):
    rows = []
    for dataset, x, query in itertools.product(("zipf", "emoji"), (0.5, 1.0, 2.0), QUERIES):
        errors = dict(zip(METHODS, (1e-6 * (1.0 + 0.06 * rng.permutation(11))).tolist(), strict=True))
        shares = dict.fromkeys(METHODS, 0.0) | dict(
            zip(rng.choice(list(METHODS), 3, replace=False).tolist(), (0.5, 0.4, 0.1), strict=True)
        )
        near = sum(shares[method] for method in METHODS if errors[method] <= 1.1 * min(errors.values()))
        rows += [
            Row("choice", dataset, f"{query}: MSE", x, method, errors[method], 0.0, 30) for method in METHODS
        ]
        rows += [
            Row("choice", dataset, f"{query}: chosen", x, method, shares[method], 0.0, 30)
            for method in METHODS
        ]
        rows += [
            Row("choice", dataset, f"{query}: chosen without correction", x, method, 1.0 / 11, 0.0, 30)
            for method in METHODS
        ]
        rows.append(Row("choice", dataset, query, x, "confidence", 0.87, 0.1, 30))
        rows.append(Row("choice", dataset, query, x, "within 10 %", near, 0.1, 30))
    return rows


def eleventh_rows(rng):
    rows = []
    for dataset, x in itertools.product(("emoji", "uniform"), (0.5, 1.0, 2.0, 4.0)):
        for case in ("", "top 16"):
            rows.append(Row("eleventh", dataset, case, x, "empirical-bayes", 1e-4, 1e-5, 30))  # is not drawn
            for peer in ("norm-sub", "power-ns"):
                over, value = f"{case} over {peer}".lstrip(), rng.uniform(-0.3, 0.1)
                rows.append(Row("eleventh", dataset, over, x, "empirical-bayes", value, 0.03, 30))
    return rows


@pytest.fixture(scope="module")
def drawn(tmp_path_factory):
    """Returns the figure and the rows of each name; nothing is saved."""
    path, figures = tmp_path_factory.mktemp("plots") / "figure.png", []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Figure, "savefig", lambda figure, *_, **__: figures.append(figure))
        for name in FIGURES:
            plots.draw(name, rows_of(name), path)
    return {name: (figure, rows_of(name)) for name, figure in zip(FIGURES, figures, strict=True)}


def test_every_method_is_in_a_panel():
    assert set(LEFT) | set(RIGHT) == set(METHODS)
    assert list(STYLES) == list(METHODS)


def lines(panel):
    """Label -> line of a method."""
    return {line.get_label(): line for line in panel.lines if line.get_label() in NAMES.values()}


def bars(panel):
    """Colour -> the ends of error bars, by x."""
    found = {}
    for collection in panel.collections:
        for (x, low), (_, high) in collection.get_segments():
            found.setdefault(to_hex(collection.get_color()[0]), {})[x] = (low, high)
    return found


@pytest.mark.parametrize("name", CURVES)
def test_curves_are_the_rows(drawn, name):
    figure, rows = drawn[name]
    bands = list(dict.fromkeys((row.dataset, row.case) for row in rows if row.case in ("", "real", *STYLES)))
    assert len(figure.axes) == 2 * len(bands)
    for place, (dataset, case) in enumerate(bands):
        left, right = figure.axes[2 * place : 2 * place + 2]
        assert set(lines(left)) == {NAMES[method] for method in LEFT}
        assert set(lines(right)) == {NAMES[method] for method in RIGHT} | (
            {"Base"} if name == "top-k" else set()
        )
        for panel, method in itertools.product((left, right), METHODS):
            own = {
                row.x: row for row in rows if (row.dataset, row.case, row.method) == (dataset, case, method)
            }
            if NAMES[method] not in lines(panel):
                continue
            line = lines(panel)[NAMES[method]]
            assert dict(zip(*line.get_data(), strict=True)) == {x: row.value for x, row in own.items()}
            low, high = panel.get_ylim()
            assert all(low < row.value < high for row in own.values())
            shown = bars(panel)[STYLES[method].colour]
            assert len(shown) >= len(own) // 3 >= 1
            for x, ends in shown.items():
                row = own[x]
                deviations = (row.value - row.deviation, row.value + row.deviation)
                assert ends == pytest.approx((row.low, row.high) if FIGURES[name].log_value else deviations)
        assert left.get_yscale() == right.get_yscale() == ("log" if FIGURES[name].log_value else "linear")


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in CURVES if FIGURES[name].log_value])
def test_point_25_no_error_bar_leaves_a_logarithmic_axis(drawn, name):
    figure, rows = drawn[name]
    assert all(row.value < row.deviation for row in rows if row.low is not None)
    for panel in figure.axes:
        low, high = panel.get_ylim()
        ends = [ends for shown in bars(panel).values() for ends in shown.values()]
        assert len(ends) >= 18
        assert all(0 < low < first < last < high for first, last in ends)


@pytest.mark.slow
@pytest.mark.parametrize("name", RANKS)
def test_a_dot_for_each_value(drawn, name):
    figure, rows = drawn[name]
    for panel, method in zip(figure.axes, METHODS, strict=False):
        assert panel.get_title().split(",")[0] == NAMES[method]
        own = {row.x: row.value for row in rows if row.method == method and not row.case}
        (dots,) = [line for line in panel.lines if line.get_marker() == "o"]
        assert dict(zip(*dots.get_data(), strict=True)) == own
        assert to_hex(dots.get_color()) == STYLES[method].colour
        (low, high), (first, last) = panel.get_ylim(), panel.get_xlim()
        assert low < min(own.values()) <= max(own.values()) < high
        assert 0 < first < 1 < 1024 < last
        (line,) = [line for line in panel.lines if line.get_marker() != "o"]
        expected = {
            "distribution": {row.x: row.value for row in rows if row.method == "truth"},
            "bias": {1.0: 0.0, 1024.0: 0.0},
            "variance": {1.0: 4e6, 1024.0: 4e6},
        }
        assert dict(zip(*line.get_data(), strict=True)) == pytest.approx(expected[name])


@pytest.mark.slow
def test_the_sums_are_in_the_titles(drawn):
    titles = [panel.get_title() for panel in drawn["bias"][0].axes]
    assert titles[0] == "Base, sum 0"
    assert titles[1] == "Base-Pos, sum −1,405 ± 863"  # 61,000 / √5,000


@pytest.mark.slow
def test_choices_are_the_rows(drawn):
    figure, rows = drawn["choice"]
    value = {(row.dataset, row.case, row.x, row.method): row.value for row in rows}
    for panel, dataset in zip(figure.axes, ("zipf", "emoji"), strict=True):
        written = {round(text.get_position()[1]): set() for text in panel.texts}
        for text in panel.texts:
            if text.get_position()[0] > 1.0 and text.get_position()[1] >= 0:
                written[round(text.get_position()[1])].add(text.get_text())
        for place, tick in enumerate(panel.get_yticklabels()):
            query, x = re.fullmatch(r"(.*), ε = (.*)", tick.get_text()).groups()
            errors = {method: value[dataset, f"{query}: MSE", float(x), method] for method in METHODS}
            parts = [part for part in panel.patches if round(part.get_y() + part.get_height() / 2) == place]
            shares = {to_hex(part.get_facecolor()): part for part in parts}
            for method in METHODS:
                share = value[dataset, f"{query}: chosen", float(x), method]
                part = shares.pop(STYLES[method].colour, None)
                assert (part.get_width() if part else 0.0) == pytest.approx(share)
                if part:
                    assert bool(part.get_hatch()) == (errors[method] > 1.1 * min(errors.values()))
            assert not shares
            assert {part.get_x() for part in parts} == {
                0.0,
                *np.cumsum([part.get_width() for part in parts])[:-1],
            }
            near = value[dataset, query, float(x), "within 10 %"]
            assert written[place] == {NAMES[min(errors, key=errors.get)], f"{100 * near:.0f} %", "87 %"}


@pytest.mark.slow
def test_the_eleventh_is_the_paired_rows(drawn):
    figure, rows = drawn["eleventh"]
    assert [panel.get_title(loc="left").split(":")[0] for panel in figure.axes[::2]] == ["Emoji", "Uniform"]
    cells = itertools.product(("emoji", "uniform"), ("", "top 16 "))
    for panel, (dataset, case) in zip(figure.axes, cells, strict=True):
        assert panel.lines[0].get_ydata() == [0.0, 0.0]
        for peer in ("norm-sub", "power-ns"):
            own = {row.x: row for row in rows if (row.dataset, row.case) == (dataset, f"{case}over {peer}")}
            line = lines(panel)[NAMES[peer]]
            assert to_hex(line.get_color()) == STYLES[peer].colour
            assert dict(zip(*line.get_data(), strict=True)) == {x: row.value for x, row in own.items()}
            shown = bars(panel)[STYLES[peer].colour]
            assert shown == {x: pytest.approx((row.value - 0.03, row.value + 0.03)) for x, row in own.items()}
    (legend,) = figure.legends
    for handle, text in zip(legend.legend_handles, legend.get_texts(), strict=True):
        assert text.get_text() == f"against {handle.get_label()}"


# Files and errors


@pytest.mark.slow
def test_the_same_rows_give_the_same_bytes_whatever_the_settings(tmp_path):
    rows, paths = rows_of("top-k"), [tmp_path / "one.png", tmp_path / "other.png"]
    plots.draw("top-k", rows, paths[0])
    with matplotlib.rc_context({"font.size": 20, "axes.facecolor": "black", "savefig.dpi": 30}):
        before = dict(matplotlib.rcParams)
        plots.draw("top-k", rows, paths[1])
        assert dict(matplotlib.rcParams) == before
    assert paths[0].read_bytes() == paths[1].read_bytes()


def test_without_matplotlib(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ModuleNotFoundError, match=r"pip install '.\[plots\]'"):
        plots.draw("users", rows_of("users"), tmp_path / "users.png")


def test_bad_input_is_named(tmp_path):
    with pytest.raises(ValueError, match=r"no figure 'usres'; there are distribution, .*users"):
        plots.draw("usres", rows_of("users"), tmp_path / "users.png")
    with pytest.raises(ValueError, match="no rows of the figure 'top-k'"):
        plots.draw("top-k", rows_of("users"), tmp_path / "users.png")
    assert not list(tmp_path.iterdir())
