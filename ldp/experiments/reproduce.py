"""The whole evaluation: from the names of figures to a folder with their CSVs, their pictures and a report."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

from ldp.experiments import choice, eleventh, evaluation, report
from ldp.experiments.claims import Claim, judge
from ldp.experiments.evidence import Evidence, Finding
from ldp.experiments.figures import FIGURES, Row, write_rows
from ldp.experiments.jobs import Job, Scale, run, workers


@dataclass(frozen=True)
class Experiment:
    """A computation that gives the rows of one figure or of several.

    Attributes:
        jobs: its work at a scale.
        finish: turns the means over the repeats into what the figure shows.
    """

    jobs: Callable[[Scale], Sequence[Job]]
    finish: Callable[[list[Row]], list[Row]] = list


EXPERIMENTS: Mapping[str, Experiment] = {
    "bias": Experiment(evaluation.bias),
    "full-domain": Experiment(evaluation.full_domain),
    "users": Experiment(evaluation.users, evaluation.worth),
    "set-value": Experiment(evaluation.set_value),
    "set-case": Experiment(evaluation.set_case),
    "synthetic": Experiment(evaluation.synthetic),
    "top-k": Experiment(evaluation.top_k),
    "choice": Experiment(choice.choice, choice.verdicts),
    "eleventh": Experiment(eleventh.eleventh),
}
"""Name -> experiment, in the order of the figures."""


@dataclass(frozen=True)
class Reproduced:
    """What was made.

    Attributes:
        rows: of all figures.
        findings: the claims that these figures can judge.
        written: the files, the report last.
        pictures: whether pictures are among them; without matplotlib they are not.
    """

    rows: list[Row]
    findings: list[tuple[Claim, Finding]]
    written: list[Path]
    pictures: bool


def quiet(what: str, jobs: int) -> Callable[[], object]:  # noqa: ARG001
    """Begins a part of so many steps; tells nobody how far it is."""
    return lambda: None


def _drawable() -> bool:
    """Whether matplotlib is there and works."""
    try:
        import_module("matplotlib.figure")
    except ImportError:
        return False
    return True


def experiments_of(figures: Iterable[str]) -> list[str]:
    """The experiments that give some figures, each once, in the order of the figures.

    Raises:
        ValueError: a figure that does not exist.

    Example:
        >>> experiments_of(["variance", "bias"])
        ['bias']
    """
    wanted = set()
    for name in figures:
        if name not in FIGURES:
            raise ValueError(f"there is no figure {name!r}; there are {', '.join(FIGURES)}")
        wanted.add(FIGURES[name].experiment)
    return [name for name in EXPERIMENTS if name in wanted]


def reproduce(
    figures: Iterable[str],
    scale: Scale,
    seed: int,
    out: Path,
    processes: int = 1,
    on_begin: Callable[[str, int], Callable[[], object]] = quiet,
    pictures: bool = True,
) -> Reproduced:
    """Computes figures, judges the claims by them, and writes CSVs, pictures and a report.

    Figures of one experiment come together: "bias" brings "distribution" and "variance". The same seed and scale give
    the same CSVs and the same report, byte for byte, with any number of processes and any choice of figures, and the
    same numpy: another version may draw other numbers or round them otherwise.

    Args:
        figures: keys of `FIGURES`.
        scale: how much work.
        seed: 0 or more.
        out: the folder; made if it is not there. Files of an earlier run are replaced, others stay.
        processes: how many processes work.
        on_begin: called with the name and the number of steps of each part; gives what is called after each step.
        pictures: draw pictures too, if matplotlib is installed.

    Raises:
        ValueError: a figure that does not exist.
        OSError: the folder cannot be written.
    """
    names = experiments_of(figures)
    out.mkdir(parents=True, exist_ok=True)
    rows: list[Row] = []
    with workers(processes) as work:
        for name in names:
            jobs = EXPERIMENTS[name].jobs(scale)
            rows += EXPERIMENTS[name].finish(run(jobs, seed, work, on_begin(name, len(jobs))))

    drawn = pictures and _drawable()
    shown = [figure.name for figure in FIGURES.values() if figure.experiment in names]
    written: list[Path] = []
    advance = on_begin("files", len(shown))
    for name in shown:
        own = [row for row in rows if row.figure == name]
        written.append(out / f"{name}.csv")
        write_rows(own, written[-1])
        if drawn:
            from ldp.experiments import plots

            written.append(out / f"{name}.png")
            plots.draw(name, own, written[-1])
        advance()

    findings = judge(Evidence(rows))
    written.append(out / "report.md")
    text = report.report(rows, findings, scale=scale, seed=seed, pictures=drawn)
    written[-1].write_text(text, encoding="utf-8", newline="\n")
    return Reproduced(rows, findings, written, drawn)
