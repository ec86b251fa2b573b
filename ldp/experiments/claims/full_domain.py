"""What Section V-C, Full-domain Evaluation, claims."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.stats import spearmanr

from ldp.consistency import METHODS
from ldp.experiments.claims.claim import (
    ALIKE,
    COUNTS,
    FULL,
    TIE,
    Claim,
    best,
    ratio,
)
from ldp.experiments.claims.counts import Bias
from ldp.experiments.datasets import zipf
from ldp.experiments.evaluation import DATASETS, olh
from ldp.experiments.evidence import Evidence, Finding, judged, number, span

SECTION = "V-C Full-domain Evaluation"


def _composed(rows: Evidence) -> Finding:
    apart = []
    for method, row in rows.at(FULL, "zipf", 1.0).items():
        of = Bias(rows, method)
        expected = float((of.bias**2 - of.error**2 + of.variance).mean()) / zipf().users ** 2
        apart.append((row.value - expected) / (row.deviation / row.repeats**0.5))
    return judged(np.abs(apart) < 4.0, f"MSE minus (bias² + variance), ε = 1: {span(apart)} standard errors")


def _half(rows: Evidence) -> Finding:
    quotient = rows.values(FULL, "base-pos") / rows.values(FULL, "base")
    same = np.array_equal(rows.values(FULL, "base-pos"), rows.values(FULL, "post-pos"))
    return judged(
        (quotient > 0.4) & (quotient < 0.6) & same,
        f"Base-Pos / Base: {span(quotient)}, Post-Pos {'the same' if same else 'not the same'}",
    )


def _factor(dataset: str, about: float) -> Callable[[Evidence], Finding]:
    def finding(rows: Evidence) -> Finding:
        gain = rows.values(FULL, "base", dataset) / rows.values(FULL, "norm-sub", dataset)
        return judged(
            (gain >= about / 2) & (gain <= about * 2),
            f"Base / Norm-Sub: {number(float(gain[0]))} at ε = 0.2 to {number(float(gain[-1]))} at ε = 4",
        )

    return finding


def _slow(rows: Evidence) -> Finding:
    slowest, parts = [], []
    for dataset in rows.datasets(FULL):
        table = rows.table(FULL, dataset)
        falls = dict(zip(METHODS, table[:, 0] / table[:, -1], strict=True))
        least = min(falls, key=lambda method: falls[method])
        slowest.append(least == "norm-mul")
        other = min(fall for method, fall in falls.items() if method != "norm-mul")
        parts.append(
            f"{dataset.capitalize()} {number(falls['norm-mul'])} ×, least of the others {number(other)} ×"
        )
    return judged(slowest, f"fall from ε = 0.2 to 4: {'; '.join(parts)}")


def _adjustment(rows: Evidence) -> Finding:
    of = Bias(rows, "norm-mul")
    top = of.bias[: of.top]
    relative = 100 * top / of.truth[: of.top]
    return judged(
        [bool((np.diff(np.abs(top)) < 0.0).all())],
        f"the first {of.top} are reduced by {span(np.abs(top))} counts, {span(-relative, ' %')}",
    )


def _very_similar(rows: Evidence) -> Finding:
    methods = ("norm-sub", "mle-apx", "power", "power-ns", "base-cut")
    table = np.stack([rows.values(FULL, method) for method in methods])
    apart = table.max(axis=0) / table.min(axis=0)
    return judged(apart <= 2.0, f"largest / least of the five: {span(apart)}")


def _power_law(rows: Evidence) -> Finding:
    quotients = {
        dataset: rows.values("eleventh", "power-ns", dataset) / rows.values("eleventh", "norm-sub", dataset)
        for dataset in rows.datasets("eleventh")
    }
    named = "; ".join(f"{dataset.capitalize()} {span(values)}" for dataset, values in quotients.items())
    return judged(quotients["zipf"] < 1.0, f"root mean square error, PowerNS / Norm-Sub: {named}")


def _near_zero(rows: Evidence) -> Finding:
    of = Bias(rows, "base")
    error = of.variance + of.bias**2
    share = float(error[of.truth < of.sigma].sum() / error.sum())
    return judged(
        [share > 0.9], f"{100 * share:.0f} % of Base's error is at frequencies below σ (ε = 1, Zipf)"
    )


def _no_distribution(rows: Evidence) -> Finding:
    quotients = []
    for dataset in rows.datasets(FULL):
        data = DATASETS[dataset]()
        for row in rows.curve(FULL, dataset, "base"):
            oracle = olh(f"{row.x:.1f}", len(data.histogram))
            p, q, d = oracle.p, oracle.q, oracle.domain_size
            expected = (q * (1 - q) / (p - q) ** 2 + (1 - p - q) / (d * (p - q))) / data.users
            quotients.append(row.value / float(expected))
    apart = np.abs(np.array(quotients) - 1.0)
    return judged(apart < 0.05, f"Base's MSE / the formula: {span(quotients)}")


def _slope_one(rows: Evidence) -> Finding:
    n = rows.x("users", "zipf")
    slopes = [float(n @ rows.values("users", method, "zipf") / (n @ n)) for method in ("base", "norm")]
    return judged(np.abs(np.array(slopes) - 1.0) < 0.02, f"slopes {slopes[0]:.3f} and {slopes[1]:.3f}")


def _pairs(rows: Evidence) -> Finding:
    pairs = (("norm", "base"), ("post-pos", "base-pos"), ("mle-apx", "norm-sub"))
    quotients = np.stack([rows.values("users", one) / rows.values("users", other) for one, other in pairs])
    return judged(
        (np.abs(quotients - 1.0) < ALIKE - 1.0).ravel(), f"n' of one / of the other: {span(quotients)}"
    )


def _mul_grows_slower(rows: Evidence) -> Finding:
    grown = [np.ptp(rows.values("users", method, "zipf")) for method in ("norm-mul", "base")]
    n = float(np.ptp(rows.x("users", "zipf")))
    return judged(
        [bool(grown[0] < grown[1])],
        f"n' grows by {number(grown[0] / n)} a user, Base's by {number(grown[1] / n)}",
    )


def _trend(rows: Evidence) -> Finding:
    worth = [row.value for row in rows.at("users", "zipf", 1e6).values()]
    errors = [row.value for row in rows.at(FULL, "zipf", 1.0).values()]
    same = -float(spearmanr(worth, errors).statistic)
    return judged([same > 0.95], f"rank correlation with the MSE at ε = 1, n = 1,000,000: {same:.3f}")


def _best_worth(rows: Evidence) -> Finding:
    table = rows.table("users", "zipf")
    of = table[[*METHODS].index("power-ns")] / table.max(axis=0)
    return judged(of * TIE >= 1.0, f"PowerNS's n' / largest n': {span(of)}")


def _saved(rows: Evidence) -> Finding:
    saved = 100.0 * (1.0 - rows.x("users", "zipf") / rows.values("users", "power-ns", "zipf"))
    return judged((saved > 85.0) & (saved < 95.0), f"1 − n/n': {span(saved, ' %')}")


CLAIMS: tuple[Claim, ...] = (
    Claim(
        SECTION,
        "The MSE is composed of the (square of) bias … and variance",
        (FULL, *COUNTS),
        "within 4 standard errors",
        _composed,
    ),
    Claim(
        SECTION,
        "Base performs very close to Norm",
        (FULL,),
        "within 2 %",
        ratio([FULL], "norm", "base", 1 / ALIKE, ALIKE),
    ),
    Claim(
        SECTION,
        "Base-Pos (… equivalent to Post-Pos …) … around half that of Base",
        (FULL,),
        "0.4 to 0.6 of Base's",
        _half,
    ),
    Claim(
        SECTION,
        "Norm-Sub … by about a factor of 10 … in the Zipfs",
        (FULL,),
        "5 to 20",
        _factor("zipf", 10.0),
        ("zipf",),
    ),
    Claim(
        SECTION,
        "[…] and 100 in the … Emoji dataset",
        (FULL,),
        "50 to 200",
        _factor("emoji", 100.0),
        ("emoji",),
    ),
    Claim(
        SECTION,
        "[Norm-Mul:] the MSE decreases much slower than other methods",
        (FULL,),
        "falls least over ε",
        _slow,
    ),
    Claim(
        SECTION,
        "[Norm-Mul:] The higher the estimate, the greater the adjustment",
        COUNTS,
        "|bias| falls with rank at the top",
        _adjustment,
    ),
    Claim(
        SECTION,
        "Norm-Sub and MLE-Apx perform almost exactly the same",
        (FULL,),
        "within 2 %",
        ratio([FULL], "mle-apx", "norm-sub", 1 / ALIKE, ALIKE),
    ),
    Claim(
        SECTION,
        "Norm-Sub, MLE-Apx, Power, PowerNS, and Base-Cut perform very similarly",
        (FULL,),
        "within a factor of 2",
        _very_similar,
    ),
    Claim(
        SECTION,
        "In these two datasets, PowerNS performs the best",
        (FULL,),
        "least MSE",
        best([FULL], "power-ns"),
    ),
    Claim(
        SECTION,
        "PowerNS works well when the distribution is close to Power-Law",
        ("eleventh",),
        "better than Norm-Sub on Zipf",
        _power_law,
        ("zipf",),
    ),
    Claim(
        SECTION,
        "the dominating source of errors comes from … frequencies close or equal to 0",
        COUNTS,
        "more than 90 % of Base's error below σ",
        _near_zero,
    ),
    Claim(
        SECTION,
        "the MSE does not depend on the distribution",
        (FULL,),
        "Base's within 5 % of the formula",
        _no_distribution,
    ),
    Claim(
        SECTION,
        "[n':] Base and Norm are two straight lines with the slope of 1",
        ("users",),
        "within 2 %",
        _slope_one,
    ),
    Claim(
        SECTION,
        "[n':] Three pairs …: Base and Norm, Base-Pos and Post-Pos, Norm-Sub and MLE-Apx",
        ("users",),
        "within 2 %",
        _pairs,
    ),
    Claim(
        SECTION,
        "[n':] Norm-Mul grows even slower than Base",
        ("users",),
        "grows less over all n",
        _mul_grows_slower,
    ),
    Claim(
        SECTION,
        "[n':] the other methods follow the similar trend of the full-domain MSE",
        ("users", FULL),
        "rank correlation above 0.95",
        _trend,
    ),
    Claim(SECTION, "[n':] PowerNS gives the best performance", ("users",), "largest n'", _best_worth),
    Claim(SECTION, "[PowerNS] saves around 90% of users", ("users",), "85 % to 95 %", _saved),
)
