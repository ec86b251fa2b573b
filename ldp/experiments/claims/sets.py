"""What Section V-D, Set-value Evaluation, claims."""

from __future__ import annotations

import numpy as np
from scipy.stats import spearmanr

from ldp.consistency import METHODS
from ldp.experiments.claims.claim import (
    CASE,
    COUNTS,
    FULL,
    OTHERS,
    RANDOM,
    SETS,
    SIMILAR,
    SMALL,
    SUM_TO_ONE,
    TIE,
    Claim,
    best,
    lower,
)
from ldp.experiments.datasets import emoji, zipf
from ldp.experiments.evaluation import olh
from ldp.experiments.evidence import NAMES, Evidence, Finding, judged, number, span

SECTION = "V-D Set-value Evaluation"


def _sets_harder(rows: Evidence) -> Finding:
    quotients = []
    for dataset in rows.datasets(SETS):
        single = np.array([row.value for row in rows.at(FULL, dataset, 1.0).values()])
        quotients += [(rows.table(figure, dataset) / single[:, None]).ravel() for figure in (SETS, SMALL)]
    together = np.concatenate(quotients)
    return judged(together > 1.0, f"MSE of sets / of single values: {span(together)}")


def _well(rows: Evidence) -> Finding:
    quotients = np.stack([rows.values(SETS, method) / rows.values(SETS, "base") for method in SUM_TO_ONE])
    bad = [NAMES[method] for method, row in zip(SUM_TO_ONE, quotients, strict=True) if (row >= 1.0).any()]
    at_end = [
        rows.at(SETS, dataset, 90.0)[method].value / rows.at(SETS, dataset, 90.0)["base"].value
        for dataset in rows.datasets(SETS)
        for method in SUM_TO_ONE
    ]
    worse = f"; not always better: {', '.join(bad)}" if bad else ""
    return judged(
        (quotients < 1.0).ravel(), f"MSE / Base's: {span(quotients)}, at ρ = 90 {span(at_end)}{worse}"
    )


def _symmetric(rows: Evidence) -> Finding:
    quotients = []
    for dataset in rows.datasets(SETS):
        for method in SUM_TO_ONE:
            by_size = {row.x: row.value for row in rows.curve(SETS, dataset, method)}
            quotients += [
                by_size[x] / by_size[100.0 - x] for x in by_size if x < 50.0 and 100.0 - x in by_size
            ]
    return judged(
        (np.array(quotients) < SIMILAR) & (np.array(quotients) > 1 / SIMILAR),
        f"MSE at ρ / at 100 − ρ: {span(quotients)}",
    )


def _two_orders(rows: Evidence) -> Finding:
    gains, first = [], []
    for dataset in rows.datasets(SETS):
        at_end = {method: row.value for method, row in rows.at(SETS, dataset, 90.0).items()}
        gains.append(min(at_end[method] for method in OTHERS) / at_end["power-ns"])
        first.append(at_end["power-ns"] <= TIE * min(at_end[method] for method in SUM_TO_ONE))
    named = ", ".join(
        f"{name.capitalize()} {number(gain)}" for name, gain in zip(rows.datasets(SETS), gains, strict=True)
    )
    return judged(
        (np.array(gains) >= 100.0) & np.array(first), f"best of the others / PowerNS at ρ = 90: {named}"
    )


def _sum_close_to_one(rows: Evidence) -> Finding:
    off = []
    for method in ("base-cut", "base"):
        total = rows.curve("bias", "zipf", method, "sum")[0]
        off.append(float(np.hypot(total.value, total.deviation)) / zipf().users)
    return judged(
        [off[0] < off[1]], f"sum minus 1, root mean square, Zipf: Base-Cut {off[0]:.3f}, Base {off[1]:.3f}"
    )


def _power_biased(rows: Evidence) -> Finding:
    total = rows.curve("bias", "zipf", "power", "sum")[0]
    error = total.deviation / total.repeats**0.5
    down = (
        ": it lowers positive estimations by more than it raises negative ones" if total.value < 0.0 else ""
    )
    return judged(
        [total.value > 5.0 * error], f"the bias sums up to {total.value:,.0f} ± {error:,.0f} counts{down}"
    )


def _increase(rows: Evidence) -> Finding:
    steps = np.concatenate(
        [
            (table[:, 1:] / table[:, :-1]).ravel()
            for table in (rows.table(SMALL, name) for name in rows.datasets(SMALL))
        ]
    )
    return judged(steps > 1.0, f"MSE from one ρ to the next: × {span(steps)}")


def _approaches(rows: Evidence) -> Finding:
    same, parts = [], []
    for dataset in rows.datasets(SMALL):
        single = [row.value for row in rows.at(FULL, dataset, 1.0).values()]
        table = rows.table(SMALL, dataset)
        small, large = (float(spearmanr(table[:, column], single).statistic) for column in (0, -1))
        same.append(small >= 0.9 and small >= large)
        parts.append(f"{dataset.capitalize()} {small:.2f} at ρ = 1, {large:.2f} at 10")
    return judged(same, f"rank correlation with single values: {'; '.join(parts)}")


def _norm_cut_wins(rows: Evidence) -> Finding:
    quotient = np.concatenate(
        [
            (rows.values(SMALL, "norm-cut", dataset) / rows.values(SMALL, "base-cut", dataset))[
                rows.x(SMALL, dataset) >= 2.0
            ]
            for dataset in rows.datasets(SMALL)
        ]
    )
    return judged(quotient < 1.0, f"Norm-Cut / Base-Cut, ρ ≥ 2: {span(quotient)}")


def _differ(rows: Evidence) -> Finding:
    table = np.stack([rows.values(SMALL, method) for method in SUM_TO_ONE])
    apart = table.max(axis=0) / table.min(axis=0)
    return judged(apart > 2.0, f"worst / best of those with sum 1: {span(apart)}")


def _norm_cut_in_cases(rows: Evidence) -> Finding:
    low = rows.x(CASE, "emoji") < 3.0
    quotient = rows.values(CASE, "norm-cut", "emoji") / rows.values(CASE, "post-pos", "emoji")
    return judged(
        quotient[low] < 1.0,
        f"Norm-Cut / Post-Pos: {span(quotient[low])} for ε < 3, {span(quotient[~low])} above",
    )


def _infrequent(rows: Evidence) -> Finding:  # noqa: ARG001 - the data alone
    data = emoji()
    oracle = olh("1", len(data.histogram))
    p, q = oracle.p, oracle.q
    sigma = float(q * (1 - q) / (data.users * (p - q) ** 2)) ** 0.5
    rare = [float((data.frequencies[members] < sigma).mean()) for members in data.subgroups.values()]
    return judged(
        np.array(rare) > 0.5,
        f"sets with more than half of their values below σ at ε = 1; mean share {np.mean(rare):.2f}",
    )


def _optimum_differs(rows: Evidence) -> Finding:
    case = min((row.value, method) for method, row in rows.at(CASE, "emoji", 1.0).items())[1]
    table = rows.table(SETS, "emoji")
    random = {[*METHODS][index] for index in table.argmin(axis=0)}
    named = ", ".join(NAMES[method] for method in METHODS if method in random)
    return judged([case not in random], f"subgroups at ε = 1: {NAMES[case]}; random sets: {named}")


def _found(rows: Evidence) -> Finding:
    real = rows.table("synthetic", "emoji", "real")
    lowest = rows.table("synthetic", "emoji", "norm-sub").argmin(axis=0)
    loss = real[lowest, np.arange(len(lowest))] / real.min(axis=0)
    picked = rows.table("synthetic", "emoji", "picked on norm-sub")
    single = (picked * real).sum(axis=0) / real.min(axis=0)
    return judged(
        loss < 1.1,
        f"real MSE of the pick / of the best: by single repeats {span(single)} on average, below 1.1 in "
        f"{np.count_nonzero(single < 1.1)} of {single.size} cases; by the mean curves {span(loss)}",
    )


def _power_ns_picked(rows: Evidence) -> Finding:
    errors = rows.table("synthetic", "emoji", "power-ns")
    excess = errors[[*METHODS].index("power-ns")] / errors.min(axis=0)
    share = rows.values("synthetic", "power-ns", "emoji", "picked on power-ns")
    return judged(
        excess == 1.0,
        f"by single repeats picked in {span(100 * share, ' %')} of them; "
        f"PowerNS / best by the mean curves: {span(excess)}",
    )


def _both_well(rows: Evidence) -> Finding:
    quotients = []
    for figure in (FULL, SETS, SMALL):
        least = rows.table(figure, "emoji").min(axis=0)
        quotients += [rows.values(figure, method, "emoji") / least for method in ("norm-sub", "power-ns")]
    return judged(np.concatenate(quotients) <= 2.0, f"MSE / best, emoji: {span(np.concatenate(quotients))}")


CLAIMS: tuple[Claim, ...] = (
    Claim(
        SECTION,
        "the error MSE of set-value queries is greater than that for the full-domain",
        (FULL, *RANDOM),
        "greater for every method and ρ, ε = 1",
        _sets_harder,
    ),
    Claim(
        SECTION,
        "approaches that exploits the summing-to-1 requirement … perform well",
        (SETS,),
        "each better than Base",
        _well,
    ),
    Claim(SECTION, "their MSE is symmetric with ρ = 50", (SETS,), "within 25 %", _symmetric),
    Claim(
        SECTION,
        "ρ = 90, … PowerNS, outperforms any of the non-norm … by at least 2 orders",
        (SETS,),
        "best with sum 1, and 100 × better than the others",
        _two_orders,
    ),
    Claim(
        SECTION,
        "the MSE for Base-Pos is higher than other methods",
        (SETS,),
        "largest MSE",
        best([SETS], "base-pos", worst=True),
    ),
    Claim(
        SECTION,
        "Post-Pos is slightly better than Base",
        (SETS,),
        "lower MSE",
        lower([SETS], "post-pos", "base"),
    ),
    Claim(SECTION, "Base-Cut also outperforms Base", (SETS,), "lower MSE", lower([SETS], "base-cut", "base")),
    Claim(
        SECTION,
        "[Base-Cut:] more likely to make the summation … close to one",
        COUNTS,
        "its sum is nearer to 1 than Base's",
        _sum_close_to_one,
    ),
    Claim(
        SECTION,
        "Power only converts negative estimations to be positive, introducing … bias",
        COUNTS,
        "its sum is biased upwards",
        _power_biased,
    ),
    Claim(
        SECTION,
        "PowerNS … better utility than all other methods",
        (SETS,),
        "least MSE",
        best([SETS], "power-ns"),
    ),
    Claim(
        SECTION, "[ρ ≤ 10:] the errors of all methods increase with ρ", (SMALL,), "each step up", _increase
    ),
    Claim(
        SECTION,
        "When ρ becomes small, the performance … approaches to that of full-domain",
        (SMALL, FULL),
        "rank correlation at ρ = 1 above 0.9, and above that at 10",
        _approaches,
    ),
    Claim(
        SECTION,
        "Norm-Cut is better than Base-Cut especially when ρ ≥ 2",
        (SMALL,),
        "lower MSE from ρ = 2",
        _norm_cut_wins,
    ),
    Claim(
        SECTION,
        "norm-based methods should perform better …. But Norm-Mul does not",
        (SMALL,),
        "Norm-Mul's MSE above Base's",
        lower([SMALL], "base", "norm-mul"),
    ),
    Claim(
        SECTION,
        "enforcing sum-to-one is not enough. … perform significantly different",
        (SMALL,),
        "a factor of 2 apart",
        _differ,
    ),
    Claim(
        SECTION,
        "[fixed sets:] Post-Pos works best in the left sub-figure",
        (CASE,),
        "least MSE of the six there",
        best([CASE], "post-pos", ("base", "base-pos", "post-pos", "norm", "norm-mul", "norm-sub")),
    ),
    Claim(
        SECTION,
        "Norm-Cut … performs even better, especially when ε < 3",
        (CASE,),
        "lower MSE than Post-Pos for ε < 3",
        _norm_cut_in_cases,
    ),
    Claim(
        SECTION,
        "the set-queries contain values that are infrequent",
        (CASE,),
        "most values of a set below σ",
        _infrequent,
    ),
    Claim(
        SECTION,
        "the optimal method in fixed set-values … is different from random set-values",
        (CASE, SETS),
        "another one at ε = 1",
        _optimum_differs,
    ),
    Claim(
        SECTION,
        "[Norm-Sub and PowerNS] perform well on full-domain and random set-value",
        (FULL, *RANDOM),
        "within a factor of 2 of the best, emoji",
        _both_well,
        ("emoji",),
    ),
    Claim(
        SECTION,
        "processed by Norm-Sub, the optimal method can be find quite accurately",
        ("synthetic",),
        "what is best by the mean curves loses less than 10 %",
        _found,
    ),
    Claim(
        SECTION,
        "if PowerNS is used, PowerNS will be selected",
        ("synthetic",),
        "best by the mean curves",
        _power_ns_picked,
    ),
)
