"""Terminal tables of the most frequent values of a snapshot."""

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np
from rich.cells import cell_len
from rich.console import Group
from rich.table import Table
from rich.text import Text

from ldp.consistency import METHODS as CONSISTENCY
from ldp.intervals.score import Of
from ldp.snapshot import Snapshot
from ldp.terminal import printable

METHODS = ("norm-sub", "base-cut", "power-ns")
"""Methods shown next to Base by default: one of each family in the paper."""
_LABEL, _METHOD, _GAP = (
    24,
    max(map(len, CONSISTENCY)),
    2,
)  # Widths: longest label; a method; between two columns


def most_frequent(
    snapshot: Snapshot, methods: Sequence[str], top: int, width: int, of: Of = "reports"
) -> Group:
    """Returns a table of the `top` most frequent values by Base, in per cent.

    Summary lines precede the table. Methods that do not fit in `width` columns follow in further tables. Intervals
    cover the share among the reports, or in the sampled population; see `Estimate.interval`.
    """
    methods = [method for method in methods if method in snapshot.bodies]
    base = snapshot.bodies["base"]
    ends = snapshot.interval() if of == "reports" else snapshot.estimate().interval(snapshot.level, of)
    vectors = (base.frequencies, *ends)
    values = np.argsort(-base.frequencies, kind="stable")[: min(top, np.isfinite(base.frequencies).sum())]
    labels = [
        str(value) if snapshot.labels is None else printable(snapshot.labels[value]) for value in values
    ]
    level = f"{100 * snapshot.level:g} % interval"
    texts = [tuple(percent(vector[value]) for vector in vectors) for value in values]
    intervals = [(frequency, f"{low} … {high}") for frequency, low, high in texts]
    widths = [max(map(cell_len, column)) for column in zip(("base", level), *intervals, strict=True)]
    label_width = min(_LABEL, max(cell_len(label) for label in ["value", *labels]))
    each = max(1, (width - label_width - sum(widths) - 2 * _GAP) // (_METHOD + _GAP))
    tables = []
    for first in range(0, max(1, len(methods)), each):
        table = Table(box=None, pad_edge=False, padding=(0, _GAP, 0, 0))
        table.add_column("value", width=label_width, overflow="ellipsis", no_wrap=True)
        table.add_column("base", justify="right", no_wrap=True)
        table.add_column(level, justify="right", no_wrap=True)
        shown = methods[first : first + each]
        for name in shown:
            table.add_column(name, justify="right", no_wrap=True)
        for value, label, interval in zip(values, labels, intervals, strict=True):
            others = [percent(snapshot.bodies[name].frequencies[value]) for name in shown]
            table.add_row(Text(label), *interval, *others)
        tables.append(table)
    return Group(
        f"the {len(values)} most frequent values of {len(base.frequencies)}, in %;"
        f" standard error of Base {100 * snapshot.std_error:.3g} %{_spent(snapshot)}",
        "intervals: share " + ("among the reports" if of == "reports" else "in the population"),
        *tables,
    )


def _spent(snapshot: Snapshot) -> str:
    """Returns a note on the ε of a report; empty if the document contains ε."""
    if snapshot.epsilon is None:
        return ""
    if "/" not in snapshot.epsilon:
        return "; ε is infinite"
    return f"; a report spends ε ≤ {float(Fraction(snapshot.epsilon))}"


def percent(frequency: Any) -> str:
    """Formats a frequency in per cent with two decimals."""
    return f"{100 * float(frequency):.2f}"
