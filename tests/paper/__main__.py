"""Repeats the paper's evaluation: ``python -m tests.paper``."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import click
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from ldp.terminal import echo, screen
from tests.paper import choice, jobs
from tests.paper.figures import FIGURES
from tests.paper.report import markdown, sums_table, tally
from tests.paper.reproduce import reproduce
from tests.paper.sums import sums


@click.command(context_settings={"max_content_width": 100})
@click.option(
    "--figure",
    "figures",
    multiple=True,
    type=click.Choice([*FIGURES]),
    metavar="NAME",
    help="Figure to compute, repeatable. Default: all.",
)
@click.option("--quick", is_flag=True, help="Run fewer repeats and points, in under 1 minute.")
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Seed of all coins.")
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    default="reproduction",
    show_default=True,
    metavar="DIR",
    help="Output folder.",
)
def main(figures: tuple[str, ...], quick: bool, seed: int, out: Path) -> None:
    """Repeat the paper's evaluation, and check its claims.

    \b
    distribution, bias, variance  mean, bias, variance of the counts, 5,000 runs
    full-domain                   error of single values over epsilon
    users                         users that Base needs to match a method's error
    set-value, set-value-small    error of random sets
    set-case                      error of the subgroups of emoji
    synthetic                     methods' error on synthetic data, and the
                                  method with the lowest error
    top-k                         error of the most frequent values
    choice                        quality of choosing a method; not in the paper
    eleventh                      empirical Bayes against the paper's best
                                  method; not in the paper

    With the same version of numpy, a seed always gives the same CSV files, on any number of cores. Plots of the paper's
    figures need matplotlib: pip install '.[plots]'.
    """
    with _bars() as begin:
        try:
            scale = jobs.QUICK if quick else jobs.FULL
            made = reproduce(figures or FIGURES, scale, seed, out, jobs.cores(), begin)
        except OSError as error:
            raise click.ClickException(f"{error.filename or out}: {error.strerror}") from None
    compared = sums(made.rows)
    if compared:
        echo("Figure 2, mean error in counts summed over the domain:\n")
        echo(markdown(*sums_table(compared), numbers=(1, 2, 3, 4)) + "\n")
    if any(row.figure == "choice" for row in made.rows):
        echo("Choosing a method, by query, over all data sets (details in the report):\n")
        echo(markdown(*choice.summary(made.rows), numbers=range(1, 8)) + "\n")
    if made.findings:
        echo(tally(made.findings))
    echo(f"{out}: {', '.join(path.name for path in made.written)}")
    if not made.pictures:
        echo("no plots: matplotlib is missing or fails to import; pip install '.[plots]'", err=True)


@contextmanager
def _bars() -> Iterator[Callable[[str, int], Callable[[], object]]]:
    """Yields a function that adds a bar and returns a function to advance it."""
    console = screen(stderr=True)
    columns = (
        TextColumn("{task.description:12}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(elapsed_when_finished=True),
    )
    with Progress(*columns, console=console, disable=not console.is_terminal) as progress:

        def begin(what: str, steps: int) -> Callable[[], object]:
            return partial(progress.advance, progress.add_task(what, total=steps))

        yield begin


if __name__ == "__main__":
    main(prog_name="python -m tests.paper")
