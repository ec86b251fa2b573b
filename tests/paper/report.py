"""Writes the report of an evaluation in Markdown."""

from __future__ import annotations

import platform
from collections import Counter
from collections.abc import Sequence

import numpy as np

from tests.paper import choice, eleventh
from tests.paper.claims import CLAIMS, Claim
from tests.paper.evidence import FAILS, HOLDS, IN_PART, NAMES, OTHER, Finding
from tests.paper.figures import FIGURES, Row
from tests.paper.jobs import FULL, Scale
from tests.paper.sums import Sum, sums

VERDICTS = (HOLDS, IN_PART, OTHER, FAILS)

DIFFERENCES = """\
- **Emoji.** The paper's data, 1,573 emoji of a keyboard's users in 68 categories, are no longer public. This report has
  845 emoji by their use on Twitter, with Unicode's 93 subgroups, and the same 884,427 users. Results on these emoji do
  not confirm or refute the paper's results on its emoji.
- **OLH** has the number of buckets with the lowest variance, which differs from the authors' number in narrow ranges of
  ε. Support counts are drawn from their law for an ideal hash function, without making each report.
- **Norm-Cut** follows the paper's definition: the method does not rescale, so its sum is often slightly below 1.
- **Power** has a prior on the counts 1 to n. The paper's prior on frequencies from 0 to 1 has no finite integral.
- **Random sets**: 200 of each size per repeat, the same for all methods."""


def report(
    rows: Sequence[Row], findings: Sequence[tuple[Claim, Finding]], *, scale: Scale, seed: int, pictures: bool
) -> str:
    """Returns the report in Markdown."""
    parts = [
        "# Reproduced evaluation of “Locally Differentially Private Frequency Estimation with Consistency”",
        "Wang, Lopuhaä-Zwakenberg, Li, Skoric, Li, NDSS 2020, Section V. "
        f"{scale.repeats} repeats of each setting, {scale.runs:,} runs for Figures 1 to 3, seed {seed}; "
        f"Python {platform.python_version()}, numpy {np.__version__}."
        + (
            ""
            if scale == FULL
            else " **A quick run**: the paper has 30 and 5,000. Some verdicts differ from those of a full run."
        ),
    ]
    if findings:
        parts += ["## Summary", _summary(findings)]
    parts += ["## Differences from the paper", DIFFERENCES]
    compared = sums(rows)
    if compared:
        parts += ["## The sums of Figure 2", SUMS, markdown(*sums_table(compared), numbers=(1, 2, 3, 4))]
    if findings:
        parts += ["## Claims", RULES, *_claims(findings)]
    parts += ["## Figures", *_figures(rows, pictures)]
    return "\n\n".join(parts) + "\n"


SUMS = """\
Zipf, n = 1,000,000, d = 1,024, ε = 1: the mean error in counts, summed over the domain, with the standard error of
this run. The published sums come from a simulation of 5,000 runs. The calculated sums assume that counts are normal
around the true counts."""

RULES = """\
The tables have the sentences of Section V that numbers can assess. A claim about several cases (values of ε, ρ or k,
data, methods) holds if 95 % of the cases are true, and in part if half are. A method is best if its error is within
1 % of the lowest. Each line defines “similar” or “about”; these definitions are not the paper's definitions.

Each claim has a verdict on each data set. The Zipf data are the paper's data, so the verdict on Zipf decides. The emoji
differ from the paper's emoji and cannot fail a claim. The verdict is “not on other emoji” if a claim fails on these
emoji and holds on Zipf, or is only about Emoji."""


def tally(findings: Sequence[tuple[Claim, Finding]]) -> str:
    """Returns the number of claims with each verdict, as text."""
    of = Counter(finding.verdict for _, finding in findings)
    counted = ", ".join(f"{verdict} {of[verdict]}" for verdict in VERDICTS)
    return f"{len(findings)} of the {len(CLAIMS)} claims of Section V graded: {counted}"


def _summary(findings: Sequence[tuple[Claim, Finding]]) -> str:
    sections = list(dict.fromkeys(claim.section for claim, _ in findings))
    counts = Counter((claim.section, finding.verdict) for claim, finding in findings)
    lines = [(section, *(str(counts[section, verdict]) for verdict in VERDICTS)) for section in sections]
    text = f"{tally(findings)}.\n\n" + markdown(("section", *VERDICTS), lines, numbers=(1, 2, 3, 4))
    for verdict, head in (
        (FAILS, "Claims that do not hold:"),
        (OTHER, "Claims that fail only on these emoji, which differ from the emoji of the paper:"),
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
                parts += [markdown(*choice.summary(rows), numbers=range(1, 8)), CHOICE]
            if figure.name == "eleventh":
                tables = [eleventh.table(rows, case) for case in ("", f"top {eleventh.TOP}")]
                parts += [eleventh.ABOUT, *(markdown(*table, numbers=range(1, 10)) for table in tables)]
            parts.append(f"Numbers: [{figure.name}.csv]({figure.name}.csv).")
    return parts


CHOICE = """\
“Within 10 %”: share of collections in which the real error of the chosen method is at most 1.1 times the lowest.
“Regret”: mean ratio of the real error to the lowest. “Over” a method: geometric mean ratio of the real error to the
error of that method. “Clear”: share of clear choices. “Right” and “loss”: share of these within 10 %, and their largest
ratio of the real error to the lowest. “Worst data”: the lowest such share on any data with at least 3 clear choices."""


def sums_table(compared: Sequence[Sum]) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Returns the header and rows of a table of sums."""
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
    """Returns a Markdown table; the columns in `numbers` are right-aligned."""
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
