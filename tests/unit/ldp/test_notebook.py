"""How a notebook shows an estimate: line, table, data frame, labels."""

import html.parser
import io
import re
import sys

import pandas
import polars
import pytest
from matplotlib import pyplot

import ldp
from ldp import query, snapshot
from ldp.consistency import METHODS
from ldp.consistency.together import by_method
from ldp.files import Aggregator
from ldp.privacy.declaration import Declaration

ORACLE = ldp.GRR("1/2", 4)
COUNTS = [310, 220, 250, 220]
LABELS = ["rouge", "<script>alert(1)</script>", "a\u2028b", '\u202eevil & "quoted"']
ESTIMATE = ORACLE.estimate(COUNTS, 1000)
LABELLED = ESTIMATE.labelled(LABELS)


def test_labels_change_no_estimate():
    assert ESTIMATE.labels is None
    assert LABELLED.labels == tuple(LABELS)
    assert LABELLED.labelled(None).labels is None
    assert (LABELLED.frequencies == ESTIMATE.frequencies).all()
    assert (LABELLED.counts == COUNTS).all()
    for method in METHODS.values():
        assert (method(LABELLED) == method(ESTIMATE)).all()
    window = LABELLED.within(0, 10)
    assert window.labels == LABELLED.labels
    assert window.merge(ESTIMATE.within(10, 20)).labels == LABELLED.labels
    assert ESTIMATE.within(10, 20).merge(window).labels == LABELLED.labels
    with pytest.raises(ValueError, match="different labels cannot be merged"):
        window.merge(ESTIMATE.labelled(list("abcd")).within(10, 20))


def test_snapshots_and_aggregators_pass_labels_on():
    stream = ldp.Stream("s", ORACLE, labels=LABELS)
    taken = snapshot.take(stream, ESTIMATE, snapshot.Cut({}, {}), 1)
    assert taken.estimate().labels == tuple(LABELS)
    aggregator = Aggregator(stream)
    report = ldp.frames.encode(stream, ORACLE.perturb([2]))
    aggregator.read(io.BytesIO(report), "a frame")
    assert aggregator.estimate().labels == tuple(LABELS)
    assert Aggregator(ldp.Stream("s", ORACLE)).stream.labels is None


def test_the_line_shows_the_source_and_the_most_frequent_values():
    assert repr(ESTIMATE).startswith("Estimate(1,000 reports of grr, ε = 1/2, d = 4: 0 ")
    values = re.findall(r"(\d) [-\d.]+[,)]", repr(ESTIMATE).split(": ")[1])
    assert values == ["0", "2", "1"]  # 1 and 3 are equal, so the first
    assert repr(ESTIMATE).endswith(", …)")
    assert "…" not in repr(ldp.GRR("1", 2).estimate([1, 2], 3))
    assert "in 2 ranges of time" in repr(ESTIMATE.within(0, 1).merge(ESTIMATE.within(5, 6)))
    assert "'a\\u2028b'" in repr(LABELLED)
    assert len(repr(ldp.GRR("1", 1).estimate([5], 5).labelled(["x" * 10_000]))) < 150


class Read(html.parser.HTMLParser):
    """A table's tags and cells; an end that does not fit its beginning is an error."""

    def __init__(self, text):
        super().__init__()
        self.open, self.tags, self.cells = [], set(), []
        self.feed(text)
        self.close()
        assert not self.open

    def handle_starttag(self, tag, attrs):
        assert {name for name, _ in attrs} <= {"style", "scope", "colspan"}
        assert "url" not in str(attrs)
        self.open.append(tag)
        self.tags.add(tag)
        self.cells += [""] if tag in ("td", "th", "caption") else []

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.cells[-1] += data


def test_the_table_shows_frequencies_with_intervals_and_escapes_labels():
    read = Read(LABELLED._repr_html_())
    assert read.tags == {"table", "caption", "thead", "tbody", "tr", "th", "td", "div"}
    caption, *_ = read.cells
    assert caption == f"1,000 reports of grr, ε = 1/2, d = 4; standard error {100 * ESTIMATE.sigma:.3g} %"
    low, high = query.top_interval(ESTIMATE, 4)
    names = ["rouge", "'a\\u2028b'", "<script>alert(1)</script>", "'\\u202eevil & \"quoted\"'"]
    due = [
        [name, f"{100 * ESTIMATE.frequencies[v]:.2f}", f"{100 * low[i]:.2f} … {100 * high[i]:.2f}", ""]
        for i, (name, v) in enumerate(zip(names, (0, 2, 1, 3), strict=True))
    ]
    assert read.cells[5:] == [cell for row in due for cell in row]


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_a_frame_has_one_row_per_value_and_one_column_per_method(library):
    methods = by_method(LABELLED, METHODS)
    frame = LABELLED.to_frame(methods, level=0.9, library=library)
    assert type(frame) is {"pandas": pandas, "polars": polars}[library].DataFrame
    low, high = ESTIMATE.interval(0.9)
    due = {
        "value": [0, 1, 2, 3],
        "label": LABELS,
        "count": COUNTS,
        "frequency": ESTIMATE.frequencies,
        "std_error": ESTIMATE.std_error(),
        "low": low,
        "high": high,
    } | methods
    assert list(frame.columns) == list(due)
    for name, column in due.items():
        assert list(frame[name]) == list(column), name


def test_pandas_is_preferred_to_polars(monkeypatch):
    assert isinstance(ESTIMATE.to_frame(), pandas.DataFrame)
    monkeypatch.setitem(sys.modules, "pandas", None)
    assert isinstance(ESTIMATE.to_frame(), polars.DataFrame)
    with pytest.raises(ImportError, match="needs pandas: pip install pandas"):
        ESTIMATE.to_frame(library="pandas")
    monkeypatch.setitem(sys.modules, "polars", None)
    with pytest.raises(ImportError, match="needs pandas or polars: pip install pandas"):
        ESTIMATE.to_frame()


@pytest.mark.parametrize(
    ("more", "options", "said"),
    [
        ({"low": ESTIMATE.frequencies}, {}, "'low' is a duplicate"),
        ({"other": [0.5, 0.5]}, {}, r"'other' has shape \(2,\), not \(4,\)"),
        ({}, {"level": 1.0}, "strictly between 0 and 1"),
        ({}, {"library": "arrow"}, "allowed are pandas, polars"),
    ],
)
def test_invalid_columns_are_refused(more, options, said):
    with pytest.raises(ValueError, match=said):
        ESTIMATE.to_frame(more, **options)


@pytest.fixture
def closing(monkeypatch):
    """Draws without a display, and closes the figures of a test."""
    pyplot.switch_backend("agg")
    yield
    pyplot.close("all")


@pytest.mark.parametrize(
    ("of", "axis"),
    [("reports", "share among the reports, %"), ("population", "share in the population, %")],
)
def test_a_plot_has_a_bar_and_an_interval_per_value(closing, of, axis):
    axes = LABELLED.plot(3, level=0.9, of=of)
    axes.figure.canvas.draw()
    order = [0, 2, 1]
    assert [bar.get_width() for bar in axes.patches] == pytest.approx(list(100 * ESTIMATE.frequencies[order]))
    (lines,) = axes.collections
    low, high = query.top_interval(ESTIMATE, 3, 0.9, of)
    for i, ((left, place), (right, _)) in enumerate(lines.get_segments()):
        assert (place, left, right) == pytest.approx((i, 100 * low[i], 100 * high[i]))
    assert [text.get_text() for text in axes.get_yticklabels()] == ["rouge", "'a\\u2028b'", LABELS[1]]
    assert axes.get_ylim()[0] > axes.get_ylim()[1]  # the most frequent value is at the top
    assert axes.get_xlabel() == axis
    assert axes.get_title(loc="left").startswith("1,000 reports of grr, ε = 1/2, d = 4; standard error")
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["90 % simultaneous intervals"]


def test_a_plot_draws_labels_literally_and_any_sign_into_given_axes(closing):
    below = ldp.GRR("1/2", 2).estimate([0, 1000], 1000).labelled(["$x$ for $5", r"\$\frac"])
    _, (axes, other) = pyplot.subplots(1, 2)
    assert below.plot(axes=axes) is axes
    axes.figure.canvas.draw()  # would raise ValueError for a label that is parsed as mathematics
    assert [text.get_text() for text in axes.get_yticklabels()] == [r"\$\frac", "$x$ for $5"]
    assert axes.patches[1].get_width() < 0
    assert "Warning: these are not counts" in axes.get_title(loc="left")
    assert not other.patches


def test_a_plot_has_at_most_d_bars(closing):
    assert len(ESTIMATE.plot().patches) == 4
    with pytest.raises(ValueError, match="k is 0; allowed is 1 to"):
        ESTIMATE.plot(0)
    with pytest.raises(TypeError, match="k must be an integer, not 'norm-sub'"):
        ESTIMATE.plot("norm-sub")
    with pytest.raises(ValueError, match="`of` is 'users'"):
        ESTIMATE.plot(of="users")


def test_a_plot_needs_matplotlib(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ImportError, match="a plot needs matplotlib: pip install matplotlib"):
        ESTIMATE.plot()


def test_the_table_and_the_plot_warn_of_impossible_counts():
    caption, *_ = Read(ldp.OUE("4", 3).estimate([1000, 10, 1000], 1000)._repr_html_()).cells
    assert caption.endswith("the frequencies sum to 4.06, 53 standard errors from 1")


def test_a_fleet_is_shown_like_one_document_with_the_reports_of_each_label(closing):
    old, new = ldp.Stream("s", ORACLE, LABELS), ldp.Stream("s", ldp.OUE("4", 3), ["rouge", "neu", "nie"])
    unused = ldp.Stream("s", ldp.GRR("1", 2), ["neu", "nur"])
    fleet = ldp.Fleet((old, new, unused))
    found = fleet.estimate([ESTIMATE, new.oracle.estimate([202, 57, 9], 500), None])
    assert repr(found).startswith("FleetEstimate(1,500 reports of 3 documents: rouge ")
    assert repr(found).endswith(", …)")
    frame = found.to_frame(by_method(found, ["norm-sub"]), level=0.9)
    assert list(frame["known"]) == [1500, 1000, 1000, 1000, 500, 500, 0]
    assert list(frame["label"]) == [*LABELS, "neu", "nie", "nur"]
    assert list(frame["low"][:6]) == list(found.interval(0.9)[0][:6])
    assert frame.iloc[6, 3:].isna().all()
    caption, *cells = Read(found._repr_html_()).cells
    assert caption == "1,500 reports of 3 documents"
    assert "nur" not in cells
    assert "rouge" in cells
    assert [text.get_text() for text in found.plot(1).get_yticklabels()] == ["rouge"]
    assert len(found.plot().patches) == 6
    forged = fleet.estimate([ESTIMATE, new.oracle.estimate([500, 500, 500], 500), None])
    warned = f"Warning: s@{new.fingerprint.hex()}: these are not counts of 500 honest oue reports"
    assert warned in Read(forged._repr_html_()).cells[0]
    daily = Declaration("device", 1, "24h", "memoised", "7d")
    memoised = ldp.Stream("s", ldp.RAPPOR("1/2", "3/4", "1/2", 3), LABELS[:3], daily)
    assert (
        ldp.Fleet((memoised,)).estimate([memoised.oracle.estimate([50, 50, 50], 100)])._repr_html_() is None
    )
