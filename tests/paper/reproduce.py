"""Runs the evaluation, and writes CSV files, pictures and a report."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

from tests.paper import choice, eleventh, evaluation, plots, report
from tests.paper.claims import Claim, assess
from tests.paper.evidence import Evidence, Finding
from tests.paper.figures import FIGURES, Row, write_rows
from tests.paper.jobs import Job, Scale, run, workers

EXPERIMENTS: Mapping[str, Callable[[Scale], Sequence[Job]]] = {
    "bias": evaluation.bias,
    "full-domain": evaluation.full_domain,
    "users": evaluation.users,
    "set-value": evaluation.set_value,
    "set-case": evaluation.set_case,
    "synthetic": evaluation.synthetic,
    "top-k": evaluation.top_k,
    "choice": choice.choice,
    "eleventh": eleventh.eleventh,
}
"""Name -> function that returns the jobs at a scale, in the order of the figures."""


@dataclass(frozen=True)
class Reproduced:
    """Rows, findings on claims, written files, and whether there are pictures."""

    rows: list[Row]
    findings: list[tuple[Claim, Finding]]
    written: list[Path]
    pictures: bool


def _has_matplotlib() -> bool:
    try:
        import_module("matplotlib.figure")
    except ImportError:
        return False
    return True


def reproduce(
    figures: Iterable[str],
    scale: Scale,
    seed: int,
    out: Path,
    processes: int = 1,
    on_begin: Callable[[str, int], Callable[[], object]] = lambda _what, _jobs: lambda: None,
    pictures: bool = True,
) -> Reproduced:
    """Computes figures, assesses the claims, and writes the output folder.

    An experiment always writes all its figures: "bias" also writes "distribution" and "variance". The files depend on
    the seed, the scale and the version of numpy, but not on the number of processes. Each experiment passes its name
    and number of jobs to `on_begin`, and calls the returned function after each job. Raises KeyError for an unknown
    figure, and OSError if a file cannot be written.
    """
    wanted = {FIGURES[name].experiment for name in figures}
    names = [name for name in EXPERIMENTS if name in wanted]
    out.mkdir(parents=True, exist_ok=True)
    rows: list[Row] = []
    with workers(processes) as work:
        for name in names:
            jobs = EXPERIMENTS[name](scale)
            made = run(jobs, seed, work, on_begin(name, len(jobs)))
            rows += evaluation.worth(made) if name == "users" else made
    drawn = pictures and _has_matplotlib()
    written: list[Path] = []
    for figure in FIGURES.values():
        if figure.experiment in names:
            written.append(out / f"{figure.name}.csv")
            write_rows((row for row in rows if row.figure == figure.name), written[-1])
            if drawn and figure.paper:
                written.append(out / f"{figure.name}.png")
                plots.draw(figure, rows, written[-1])
    findings = assess(Evidence(rows))
    written.append(out / "report.md")
    text = report.report(rows, findings, scale=scale, seed=seed, pictures=drawn)
    written[-1].write_text(text, encoding="utf-8", newline="\n")
    return Reproduced(rows, findings, written, drawn)
