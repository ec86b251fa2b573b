"""Output of the demo: steps, snapshots and errors of the estimates."""

import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
from rich.table import Table
from rich.text import Text

from ldp.consistency import METHODS
from ldp.snapshot import Snapshot
from ldp.table import percent
from ldp.terminal import screen
from worker.simulation.crowd import Crowd

LIVE = ("base", "norm-sub", "power-ns")  # methods whose errors are in each snapshot's line
TOP = 10

Vector = npt.NDArray[np.float64]

console = screen(highlight=False)


def step(text: str, commands: str = "") -> None:
    """Prints the heading of a step, and the equivalent commands."""
    console.print(Text.assemble("\n", (f"{text:<42}" if commands else text, "bold cyan"), (commands, "dim")))


def say(text: str, style: str = "") -> None:
    """Prints a line of a step."""
    console.print(Text(f"  {text}", style=style))


def squared_errors(snapshot: Snapshot, truth: Vector) -> dict[str, float]:
    """Returns each method's mean squared error over the domain."""
    return {name: float(np.mean((snapshot.bodies[name].frequencies - truth) ** 2)) for name in METHODS}


class Story:
    """Prints a line for each snapshot, with the errors of its estimates."""

    def __init__(self, labels: Sequence[str], crowd: Crowd) -> None:
        self._truth, self._top = frequencies(crowd), most_used(crowd)[:3]
        say("Each snapshot: the mean squared error over all emoji, in millionths;")
        say("three emoji in %, and the pointwise 95 % interval of the first, all by Base.")
        names = "".join(f"{name:>9}" for name in LIVE)
        # the emoji come last, because their width differs between terminals
        emoji = "".join(" " * 5 + labels[value] for value in self._top)
        say(f"{'':6}{'reports':>8}{names}{'':3}{emoji}{'':5}95 %", "bold")
        self._line("truth", int(crowd.histogram.sum()), "", self._truth, "")

    def add(self, snapshot: Snapshot) -> None:
        """Prints a snapshot's line."""
        base = snapshot.bodies["base"]
        low, high = snapshot.interval()
        half = (high[self._top[0]] - low[self._top[0]]) / 2
        errors = squared_errors(snapshot, self._truth)
        mean = "".join(f"{1e6 * errors[method]:9.2f}" for method in LIVE)
        interval = f"  ± {percent(half)}"
        self._line(f"#{snapshot.sequence}", snapshot.reports, mean, base.frequencies, interval)

    def _line(self, name: str, reports: int, mean: str, values: Vector, interval: str) -> None:
        three = "".join(f"{percent(values[value]):>7}" for value in self._top)
        say(f"{name:6}{reports:>8,}{mean:27}{'':3}{three}{interval}")


def report(labels: Sequence[str], crowd: Crowd, snapshot: Snapshot) -> None:
    """Prints the last snapshot's top estimates, and each method's error."""
    truth = frequencies(crowd)
    top = most_used(crowd)
    base = snapshot.bodies["base"]
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column("in %", no_wrap=True)
    for value in top:
        table.add_column(labels[value], justify="right", no_wrap=True, min_width=5)

    def row(name: str, vector: Vector, style: str = "") -> None:
        table.add_row(name, *(percent(vector[value]) for value in top), style=style)

    row("truth", truth, "bold")
    row("base", base.frequencies)
    low, high = snapshot.interval()
    row("  from", low, "dim")
    row("  to", high, "dim")
    for name in METHODS:
        if name != "base":
            row(name, snapshot.bodies[name].frequencies)
    console.print(table)
    console.print()
    say(f"Mean squared error over all {len(truth)} emoji, in millionths, best first;")
    say("the middle column is Base's error divided by the error of the method:")
    errors = squared_errors(snapshot, truth)
    best = min(errors.values())
    for name, error in sorted(errors.items(), key=lambda item: item[1]):
        bar = "█" * max(1, round(40 * error / max(errors.values())))
        factor = f"{errors['base'] / error:5.1f} x" if name != "base" else ""
        say(f"{name:9}{1e6 * error:8.3f} {factor:>8}  {bar}", "bold green" if error == best else "")


def by_hours(labels: Sequence[str], crowd: Crowd, windows: Sequence[Snapshot]) -> None:
    """Prints the top estimates and the truth of each window."""
    top = most_used(crowd)[:3]
    say("Three emoji in %, by Base, and the pointwise 95 % interval of the first.")
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for name in ("  UTC", "", "reports"):
        table.add_column(name, no_wrap=True, justify="right" if name == "reports" else "left")
    for value in top:
        table.add_column(labels[value], justify="right", no_wrap=True, min_width=5)
    table.add_column("95 %", no_wrap=True)
    first = 0
    for snapshot in windows:
        last = first + snapshot.reports
        truth = np.bincount(crowd.values[first:last], minlength=len(labels)) / snapshot.reports
        base, (low, high) = snapshot.bodies["base"].frequencies, snapshot.interval()
        window = snapshot.window
        assert window.start is not None and window.end is not None
        hours = f"  {_time(window.start)} to {_time(window.end - 1)}"
        half = percent((high[top[0]] - low[top[0]]) / 2)
        row = (percent(base[value]) for value in top)
        table.add_row(
            hours, "final" if window.final else "provisional", f"{snapshot.reports:,}", *row, f"± {half}"
        )
        table.add_row("", "truth", "", *(percent(truth[value]) for value in top), style="dim")
        first = last
    console.print(table)
    say("A final window never changes. The last window has the uploads over HTTP.")


def _time(at: int) -> str:
    return time.strftime("%a %H:%M", time.gmtime(at / 1000))


def frequencies(crowd: Crowd) -> Vector:
    """Returns the true frequency of each emoji."""
    return np.asarray(crowd.histogram / crowd.histogram.sum())


def most_used(crowd: Crowd) -> list[int]:
    """Returns the values of the most used emoji, by their true counts."""
    return [int(value) for value in np.argsort(-crowd.histogram, kind="stable")[:TOP]]


def print_failure(error: Exception, folder: Path) -> None:
    """Prints an error and the last lines of the workers' logs."""
    console.print(Text(f"\nThe demo failed: {error}", style="bold red"))
    for log in sorted(folder.glob("*.log")):
        lines = log.read_text(errors="replace").splitlines()
        console.print(Text(f"\nEnd of {log}:", style="bold"))
        for line in lines[-15:]:
            console.print(Text(line), soft_wrap=True)
