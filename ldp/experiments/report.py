"""The report of an evaluation in Markdown."""

from __future__ import annotations

import platform
from collections import Counter
from collections.abc import Sequence

import numpy as np

from ldp.experiments import choice, eleventh
from ldp.experiments.claims import CLAIMS, Claim
from ldp.experiments.evidence import FAILS, HOLDS, IN_PART, NAMES, OTHER, Finding
from ldp.experiments.figures import FIGURES, Row
from ldp.experiments.jobs import FULL, Scale
from ldp.experiments.sums import Sum, sums

VERDICTS = (HOLDS, IN_PART, OTHER, FAILS)

DIFFERENCES = """\
- **Emoji.** The paper's data, 1,573 emoji of a keyboard's users in 68 categories, are not public any more. These are
  845 emoji by their use on Twitter, with Unicode's 93 subgroups, as the same 884,427 users. What is found on them
  says nothing about the paper's.
- **OLH** has the number of buckets with the least variance, which differs from the authors' in narrow ranges of ε.
  Support counts are drawn from their law for an ideal hash function, without making each report.
- **Norm-Cut** is as the paper defines it: it does not rescale, so its sum is often a little below 1.
- **Power**'s prior is on the counts 1 to n. The paper's, on frequencies from 0 to 1, has no integral.
- **Random sets**: 200 of each size in each repeat, the same for all methods."""


def report(
    rows: Sequence[Row], findings: Sequence[tuple[Claim, Finding]], *, scale: Scale, seed: int, pictures: bool
) -> str:
    """Returns the report in Markdown."""
    parts = [
        "# The evaluation of “Locally Differentially Private Frequency Estimation with Consistency”, run again",
        "Wang, Lopuhaä-Zwakenberg, Li, Skoric, Li, NDSS 2020, Section V. "
        f"{scale.repeats} repeats of each setting, {scale.runs:,} runs for Figures 1 to 3, seed {seed}; "
        f"Python {platform.python_version()}, numpy {np.__version__}."
        + (
            ""
            if scale == FULL
            else " **A quick look**: the paper has 30 and 5,000; with so few, some verdicts differ from a full run's."
        ),
    ]
    if findings:
        parts += ["## In short", _in_short(findings)]
    parts += ["## What is not as in the paper", DIFFERENCES]
    compared = sums(rows)
    if compared:
        parts += ["## The sums of Figure 2", SUMS, markdown(*sums_table(compared), numbers=(1, 2, 3, 4))]
    if findings:
        parts += ["## Claims", RULES, *_claims(findings)]
    parts += ["## Figures", *_figures(rows, pictures)]
    return "\n\n".join(parts) + "\n"


SUMS = """\
Zipf, n = 1,000,000, d = 1,024, ε = 1: the mean error in counts, summed over the domain, with the standard error of
this run. The published sums are a simulation too, of 5,000 runs. The calculated ones take a count for normal around
the true one, and need no simulation."""

RULES = """\
The sentences of Section V that numbers can assess. A claim about several cases (values of ε, ρ or k, data, methods)
holds if it is true in 95 % of them, and in part if in half of them. A method is best if its error is within 1 % of the
least. What “similar” or “about” means is said in each line, and is this report's choice.

Each claim is graded on each of its data alone. Where it is about Zipf, whose data are the paper's, Zipf's verdict is
the claim's. The emoji are others than the paper's and cannot fail a claim: one that holds on Zipf, or is about Emoji
alone, and does not hold on these emoji is “not on other emoji”."""


def tally(findings: Sequence[tuple[Claim, Finding]]) -> str:
    """The number of claims with each verdict."""
    of = Counter(finding.verdict for _, finding in findings)
    counted = ", ".join(f"{verdict} {of[verdict]}" for verdict in VERDICTS)
    return f"{len(findings)} of the {len(CLAIMS)} claims of Section V graded: {counted}"


def _in_short(findings: Sequence[tuple[Claim, Finding]]) -> str:
    sections = list(dict.fromkeys(claim.section for claim, _ in findings))
    counts = Counter((claim.section, finding.verdict) for claim, finding in findings)
    lines = [(section, *(str(counts[section, verdict]) for verdict in VERDICTS)) for section in sections]
    text = f"{tally(findings)}.\n\n" + markdown(("section", *VERDICTS), lines, numbers=(1, 2, 3, 4))
    for verdict, head in (
        (FAILS, "What does not hold:"),
        (OTHER, "What holds on Zipf, if it is about Zipf, and not on other emoji than the paper's:"),
    ):
        listed = [
            f"- “{claim.quote}” ({claim.section.split()[0]}): {finding.measured}."
            for claim, finding in findings
            if finding.verdict == verdict
        ]
        text += "\n\n" + "\n".join([head, "", *listed]) if listed else ""
    return text


def _claims(findings: Sequence[tuple[Claim, Finding]]) -> list[str]:
    parts = []
    for section in dict.fromkeys(claim.section for claim, _ in findings):
        lines = [
            (
                f"“{claim.quote}”",
                claim.test,
                finding.measured,
                *(finding.by_data.get(name, "—") for name in ("zipf", "emoji")),
                finding.verdict,
            )
            for claim, finding in findings
            if claim.section == section
        ]
        head = ("the paper", "true if", "measured", "Zipf", "Emoji", "verdict")
        parts += [f"### {section}", markdown(head, lines)]
    return parts


def _figures(rows: Sequence[Row], pictures: bool) -> list[str]:
    figures = {row.figure for row in rows}
    parts = []
    for figure in FIGURES.values():
        if figure.name in figures:
            title = (
                f"{figure.paper}. {figure.title}" if figure.paper else f"{figure.title} (not in the paper)"
            )
            parts.append(f"### {title}")
            if pictures and figure.paper:
                parts.append(f"![{figure.title}]({figure.name}.png)")
            if figure.name == "choice":
                parts += [markdown(*choice.summary(rows), numbers=range(1, 7)), CHOICE]
            if figure.name == "eleventh":
                tables = [eleventh.table(rows, case) for case in ("", f"top {eleventh.TOP}")]
                parts += [eleventh.ABOUT, *(markdown(*table, numbers=range(1, 10)) for table in tables)]
            parts.append(f"Numbers: [{figure.name}.csv]({figure.name}.csv).")
    return parts


CHOICE = """\
“Within 10 %”: the share of the collections in which the real error of the chosen method is at most 1.1 times the
lowest. “Regret”: the mean of its real error over the lowest. “Over” a method: the geometric mean of its real error over
that method's. “Sure”: the share of the choices with this confidence or more, and how many of them are within 10 %."""


def sums_table(compared: Sequence[Sum]) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Head and lines of a table of sums."""
    lines: list[tuple[str, ...]] = [
        (
            NAMES[one.method],
            "—" if one.published is None else f"{one.published:,}",
            "—" if one.calculated is None else f"{one.calculated:,.0f}",
            f"{one.measured:,.0f}",
            f"{one.error:,.0f}",
            one.verdict,
        )
        for one in compared
    ]
    return ("method", "published", "calculated", "measured", "standard error", "verdict"), lines


def markdown(head: Sequence[str], lines: Sequence[Sequence[str]], numbers: Sequence[int] = ()) -> str:
    """A table with aligned columns; those in `numbers` are flush right."""
    table = [[cell.replace("|", "\\|") for cell in line] for line in (head, *lines)]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    right = [index in numbers for index in range(len(widths))]
    rule = ["-" * (width - 1) + (":" if flush else "-") for width, flush in zip(widths, right, strict=True)]
    text = [
        [
            cell.rjust(width) if flush else cell.ljust(width)
            for cell, width, flush in zip(line, widths, right, strict=True)
        ]
        for line in table
    ]
    return "\n".join(f"| {' | '.join(line)} |" for line in (text[0], rule, *text[1:]))
