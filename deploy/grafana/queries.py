"""Queries of what is selected at the top of a dashboard: one stream, and the jobs and namespaces that are of interest.

They need no recorded series: a dashboard is imported where `deploy/prometheus/rules.yml` is not, too.
"""

from collections.abc import Mapping

PLACE = 'job=~"$job",namespace=~"$namespace"'
"""Selects a deployment. Where targets have no label namespace, all of them has those without, too."""
STREAM = f'{PLACE},stream="$stream"'
"""Selects one stream of it."""


def of(metric: str, *more: str) -> str:
    """A metric of the selected stream.

    Example:
        >>> of("ldp_worker_snapshots_total", 'method="base"')
        'ldp_worker_snapshots_total{job=~"$job",namespace=~"$namespace",stream="$stream",method="base"}'
    """
    return f"{metric}{{{','.join([STREAM, *more])}}}"


def said(metric: str, *more: str) -> str:
    """What the stream's present publisher says: others that published before have its gauges, too, but old ones."""
    return f"({of(metric, *more)} and on (instance, process, stream) {of('ldp_worker_publisher')} == 1)"


def rate(metric: str, by: str, *more: str) -> str:
    """A counter's rate, summed up by a label."""
    return f"sum by ({by}) (rate({of(metric, *more)}[$__rate_interval]))"


def quantile(share: float, metric: str) -> str:
    """A quantile of a histogram."""
    return f"histogram_quantile({share}, {rate(f'{metric}_bucket', 'le')})"


def otherwise(query: str, labels: Mapping[str, str], known: str = "", instead: str = "0") -> str:
    """A query, or where it has nothing one series whose labels say why.

    Args:
        query: what is shown.
        labels: what says that there is nothing.
        known: selects series. Once one was seen in the range that is shown, there is nothing instead: what is missing
            for a moment, while another worker begins to publish, is a gap.
        instead: the number; 0.

    Example:
        >>> otherwise("wait", {"window": "none"}, instead="vector(1)")
        '(wait) or on () (label_replace(vector(1), "window", "none", "", ""))'
    """
    nothing = f"0 * max({of('ldp_worker_stream_up')})" if instead == "0" else instead
    for label, text in labels.items():
        nothing = f'label_replace({nothing}, "{label}", "{text}", "", "")'
    unless = f" unless on () present_over_time({known}[$__range])" if known else ""
    return f"({query}) or on () ({nothing}{unless})"
