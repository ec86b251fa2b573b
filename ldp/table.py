"""Terminal tables of the most frequent values of a snapshot."""

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np
from rich.cells import cell_len
from rich.console import Group
from rich.table import Table
from rich.text import Text

from ldp.snapshot import Snapshot
from ldp.terminal import printable

METHODS = ("norm-sub", "base-cut", "power-ns")
"""Methods shown next to Base by default: one of each family in the paper."""
_LABEL, _BASE, _METHOD = 24, 28, 8  # Widths: longest label; Base with its interval; one method


def most_frequent(snapshot: Snapshot, methods: Sequence[str], top: int, width: int) -> Group:
    """Returns a table of the `top` most frequent values by Base, in per cent.

    A summary line precedes the table. Methods that do not fit in `width` columns follow in further tables.
    """
    methods = [method for method in methods if method in snapshot.bodies]
    base = snapshot.bodies["base"]
    vectors = (base.frequencies, *snapshot.interval())
    values = np.argsort(-base.frequencies, kind="stable")[:top]
    labels = [
        str(value) if snapshot.labels is None else printable(snapshot.labels[value]) for value in values
    ]
    label_width = min(_LABEL, max(cell_len(label) for label in ["value", *labels]))
    each = max(1, (width - label_width - _BASE) // _METHOD)
    tables = []
    for first in range(0, max(1, len(methods)), each):
        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
        table.add_column("value", width=label_width, overflow="ellipsis", no_wrap=True)
        table.add_column("base", justify="right", no_wrap=True)
        table.add_column(f"{100 * snapshot.level:g} % interval", justify="right", no_wrap=True)
        shown = methods[first : first + each]
        for name in shown:
            table.add_column(name.replace("-", "-\n"), justify="right")
        for value, label in zip(values, labels, strict=True):
            frequency, low, high = (percent(vector[value]) for vector in vectors)
            others = [percent(snapshot.bodies[name].frequencies[value]) for name in shown]
            table.add_row(Text(label), frequency, f"{low} … {high}", *others)
        tables.append(table)
    return Group(
        f"the {len(values)} most frequent values of {len(base.frequencies)}, in %;"
        f" standard error of Base {percent(snapshot.std_error)} %{_spent(snapshot)}",
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
