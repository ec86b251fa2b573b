"""The dashboard *LDP Frequencies*: what a stream is for. What its users have, how sure that is, and what changed."""

from deploy.grafana.dashboard import choice, chosen, dashboard
from deploy.grafana.newest import newest
from deploy.grafana.panels import Json, bars, listed, matrix, stat, timeseries
from deploy.grafana.queries import of, otherwise, rate, said
from ldp.consistency import METHODS

VALUE = "ldp_worker_snapshot_value"
QUERY = "ldp_worker_snapshot_query"
CHOSEN, BASE = 'method="$method"', 'method="base"'
NO_QUERY = {"query": "no answer", "method": "base"}
CLOSED = "ldp_worker_window_closed_timestamp_seconds"
BANDS = {"may be watched": "_anytime_", "one look": "_"}
"""Base's two intervals, as what stands in a metric's name before its end: `ldp_worker_snapshot_value${band}low`."""
COLUMNS = ("low", "base", "high", *(method for method in METHODS if method != "base"))


def frequencies() -> Json:
    """The dashboard."""
    method = chosen("method", "Method", f"label_values({of(f'{VALUE}_frequency')}, method)", text="norm-sub")
    # the ten of now, the most frequent first: labels of the whole range would be all that ever were among them
    now = f"topk(10, max by (label) ({said(f'{VALUE}_frequency', BASE)}))"
    value = chosen("value", "Value", f"query_result({now})", several=True, regex='/label="(.*)"} /', sort=0)
    value["query"]["qryType"] = 3
    return dashboard(
        "ldp-frequencies",
        "LDP Frequencies",
        "What the users of one stream have, estimated under local differential privacy, and how sure that "
        "is.",
        [
            ("", _in_short()),
            ("The most frequent values", _values()),
            ("Queries", _queries()),
            ("Windows", _windows()),
            ("How good the estimate is", _quality()),
        ],
        [method, choice("band", "Interval", BANDS), value],
    )


def _in_short() -> list[Json]:
    closed = f"1000 * max by (window) ({said(CLOSED)})"
    watermark = f"1000 * max({of('ldp_worker_partition_watermark_timestamp_seconds')})"
    return [
        stat(
            "Reports",
            "n: reports that the newest snapshot counts. Reports, not users: a device that sends twice is "
            "counted twice.",
            f"max by (stream) ({said('ldp_worker_snapshot_reports')})",
            spark=True,
        ),
        stat(
            "Reports a second",
            "Reports that are counted.",
            rate("ldp_worker_reports_total", "stream"),
            spark=True,
        ),
        stat(
            "Standard error",
            "One standard error of Base for a value that nobody has: Equation 5 of the paper. Differences "
            "between values that are smaller than two or three of these mean nothing.",
            f"max by (stream) ({said('ldp_worker_snapshot_standard_error')})",
            "percentunit",
            decimals=3,
        ),
        stat(
            "Sum is off by",
            "Distance of Base's sum from 1 in standard errors. Beyond 6 some reports do not come from "
            "clients that follow the protocol, and frequencies are wrong by more than is said here.",
            f"max by (stream) ({said('ldp_worker_snapshot_sum_deviation')})",
            "suffix:σ",
            steps=((None, "red"), (-6, "green"), (6, "red")),
            decimals=1,
        ),
        *newest(),
        stat(
            "Final up to",
            "Windows that end by then are final. Of all time, the newest report that is counted.",
            {"{{window}}": otherwise(closed, {"window": "all"}, of(CLOSED), watermark)},
            "dateTimeAsIso",
            width=6,
        ),
    ]


def _values() -> list[Json]:
    frequency = f"max by (label, value) ({said(f'{VALUE}_frequency', CHOSEN)})"
    return [
        bars(
            "Top values, by $method",
            "The ten values with the highest frequencies in the newest snapshot. All values, with their "
            "intervals, are in the snapshot topic.",
            {"{{label}}": f"sort_desc({frequency})"},
            "percentunit",
            width=8,
            height=10,
        ),
        timeseries(
            "Top values over time, by $method",
            "Each snapshot's ten most frequent values. A line begins where a value came among them and "
            "ends where it left. The wobble shrinks with the square root of the reports.",
            {"{{label}}": frequency},
            "percentunit",
            width=16,
            height=10,
            least=None,
        ),
        _each_value(),
        matrix(
            "The same values by each method",
            "The ten most frequent values by every method that is published, and the ends of Base's "
            "interval, of the kind that is chosen above. All methods keep Base's order.",
            _cells(VALUE, "label"),
            "label",
            COLUMNS,
            width=16,
        ),
        timeseries(
            "The ten together, by method",
            "What the ten frequencies come to: how much of the population each method gives to the values "
            "on top.",
            {"{{method}}": f"sum by (method) ({said(f'{VALUE}_frequency')})"},
            "percentunit",
            height=10,
            least=None,
        ),
    ]


def _each_value() -> Json:
    of_one = 'label=~"$value"'
    band = {end: f"max by (label) ({said(_end(VALUE, end), of_one)})" for end in ("low", "high")}
    base = f"max by (label) ({said(f'{VALUE}_frequency', BASE, of_one)})"
    return timeseries(
        "$value",
        "Base, and its confidence interval (snapshots.level, 95 % by default), chosen above as "
        "Interval. The one that may be watched holds at all moments together, and this page shows "
        "them all; the one of one look holds at a single moment, and of a whole day's the truth is "
        "outside at some time on two days in three. It is half as wide. Either is of this value alone: "
        "of ten values one may well be outside. What is outside of 0 to 1 is noise, which the methods "
        "take away.",
        {"high": band["high"], "low": band["low"], "base": base},
        "percentunit",
        width=24,
        height=6,
        least=None,
        overrides=_banded("high", "low"),
        repeat="value",
        repeatDirection="h",
        maxPerRow=5,
    )


def _cells(metric: str, rows: str) -> str:
    """A series for each value or query and method, and for the ends of Base's interval as if they were methods."""
    ends = " or ".join(
        f'label_replace(max by ({rows}) ({said(_end(metric, end))}), "method", "{end}", "", "")'
        for end in ("low", "high")
    )
    return f"max by ({rows}, method) ({said(f'{metric}_frequency')}) or {ends}"


def _end(metric: str, end: str) -> str:
    """The metric of an end, low or high, of the interval that is chosen."""
    return f"{metric}${{band}}{end}"


def _banded(high: str, low: str) -> list[Json]:
    """The overrides that draw two series as the edges of a band."""
    edge = [{"id": "custom.lineWidth", "value": 0}, {"id": "custom.hideFrom", "value": _nowhere_but_drawn()}]
    band = [{"id": "custom.fillBelowTo", "value": low}, {"id": "custom.fillOpacity", "value": 25}]
    blue = [{"id": "color", "value": {"mode": "fixed", "fixedColor": "blue"}}]
    named = {high: [*blue, *edge, *band], low: [*blue, *edge], "base": blue}
    return [
        {"matcher": {"id": "byName", "options": name}, "properties": properties}
        for name, properties in named.items()
    ]


def _nowhere_but_drawn() -> Json:
    return {"legend": True, "tooltip": False, "viz": False}


def _queries() -> list[Json]:
    over_time = f"max by (query) ({said(f'{QUERY}_frequency', CHOSEN)})"
    recommended = f"max by (query, method) ({said(f'{QUERY}_recommended')})"
    return [
        timeseries(
            "Queries over time, by $method",
            "Each configured query's answer, snapshot by snapshot.",
            {"{{query}}": otherwise(over_time, NO_QUERY, of(f"{QUERY}_frequency"))},
            "percentunit",
            width=16,
            least=None,
        ),
        listed(
            "Recommended method",
            "The method that clearly suits a query best, by simulations of the newest estimate. Queries "
            "that are not here have none: of these no method is clearly best, or it is not known yet.",
            otherwise(recommended, {"query": "none yet", "method": "–"}),
            ("query", "method"),
            width=8,
            height=8,
        ),
        matrix(
            "Each query's answer, by method",
            "The newest answers, and the ends of Base's interval, of the kind that is chosen above. A query "
            "is a named set of values in the configuration.",
            otherwise(_cells(QUERY, "query"), NO_QUERY, of(f"{QUERY}_frequency")),
            "query",
            COLUMNS,
            height=8,
        ),
    ]


def _windows() -> list[Json]:
    changed = {
        f"{kind}, {{{{window}}}}": otherwise(
            f"max by (window) ({said(f'ldp_worker_window_changed_{kind}')})",
            {"window": "none compared"},
            of(f"ldp_worker_window_changed_{kind}"),
        )
        for kind in ("values", "queries")
    }
    delay = f"max by (window) ({said('ldp_worker_window_delay_seconds')} and {of(CLOSED)} > 0)"
    late = rate("ldp_worker_late_records_total", "stream")
    accepted = rate("ldp_worker_records_total", "stream", 'outcome="accepted"')
    return [
        timeseries(
            "What changed",
            "Values and queries whose frequency changed from a final window to the next, as tested with a "
            "false discovery rate (snapshots.changed_level). Which they are is found with ldp.analysis.changes from"
            " the snapshot topic; the log names the queries (window.compared).",
            changed,
            decimals=0,
        ),
        timeseries(
            "How far windows are behind",
            "From the highest timestamp that is counted back to the line up to which windows are closed: "
            "what is out of order, the grace, at most one hop, and as much as the slowest partition is "
            "behind.",
            {"{{window}}": otherwise(delay, {"window": "all"}, of(CLOSED))},
            "s",
        ),
        timeseries(
            "Too late for its window",
            "Share of accepted records that came after their window was closed. They count in all, and in "
            "no window.",
            {"late": f"{late} / {accepted}"},
            "percentunit",
            line=0.01,
        ),
    ]


def _quality() -> list[Json]:
    return [
        timeseries(
            "Standard error of Base",
            "Of a value that nobody has. It halves with four times the reports.",
            {"standard error": f"max by (stream) ({said('ldp_worker_snapshot_standard_error')})"},
            "percentunit",
        ),
        timeseries(
            "Reports in the newest snapshot",
            "n. It never falls, unless the stream begins anew.",
            {"reports": f"max by (stream) ({said('ldp_worker_snapshot_reports')})"},
        ),
        timeseries(
            "Base's sum",
            "What Base's frequencies add up to. 1 within noise; far from it, reports come from clients "
            "that do not follow the protocol.",
            {"sum of Base": f"max by (stream) ({said('ldp_worker_snapshot_sum')})"},
            "percentunit",
            least=None,
        ),
    ]
