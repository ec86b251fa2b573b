"""What Section V-E, Frequent-value Evaluation, claims."""

from __future__ import annotations

import numpy as np

from ldp.consistency import METHODS
from ldp.experiments.claims.claim import (
    ALIKE,
    SIMILAR,
    TIE,
    TOP,
    Claim,
    ratio,
)
from ldp.experiments.evidence import NAMES, Evidence, Finding, judged, span

SECTION = "V-E Frequent-value Evaluation"


def _consistently_well(rows: Evidence) -> Finding:
    quotients = np.concatenate(
        [
            rows.values(TOP, method) / rows.table(TOP).min(axis=0)
            for method in ("base", "base-pos", "post-pos", "norm")
        ]
    )
    return judged(quotients <= 1.1, f"MSE / best: {span(quotients)}")


def _mul_worst(rows: Evidence) -> Finding:
    others = np.stack([rows.values(TOP, method) for method in METHODS if method != "norm-mul"]).max(axis=0)
    quotient = rows.values(TOP, "norm-mul") / others
    return judged(quotient >= 10.0, f"Norm-Mul / worst of the others: {span(quotient)}")


def _sub_between(rows: Evidence) -> Finding:
    base, sub, mul = (rows.values(TOP, method) for method in ("base", "norm-sub", "norm-mul"))
    return judged(
        (base < sub) & (sub < mul),
        f"Norm-Sub / Base: {span(sub / base)}, Norm-Mul / Norm-Sub: {span(mul / sub)}",
    )


def _consistent(rows: Evidence) -> Finding:
    apart = [
        float(values.max() / values.min())
        for dataset in rows.datasets(TOP)
        for method in ("base", "norm-sub")
        for values in [rows.values(TOP, method, dataset)]
    ]
    return judged(
        np.array(apart) < 1.5, f"largest / least over k, Base and Norm-Sub on each data: {span(apart)}"
    )


def _grows(rows: Evidence) -> Finding:
    methods = ("base-cut", "norm-cut", "power", "power-ns")
    growth = {}
    for dataset in rows.datasets(TOP):
        for method in methods:
            relative = rows.values(TOP, method, dataset) / rows.values(TOP, "base", dataset)
            growth[f"{NAMES[method]} on {dataset.capitalize()}"] = float(relative[-1] / relative[0])
    flat = ", ".join(name for name, grown in growth.items() if grown < SIMILAR)
    values = np.array([*growth.values()])
    return judged(
        values >= SIMILAR,
        f"MSE / Base's, k = 32 over k = 2: {span(values)}" + (f"; hardly: {flat}" if flat else ""),
    )


def _reliable(rows: Evidence) -> Finding:
    reach = {}
    for dataset in rows.datasets(TOP):
        close = rows.values(TOP, "base-cut", dataset) <= 1.1 * rows.values(TOP, "base", dataset)
        first_bad = len(close) if close.all() else int(np.argmin(close))
        reach[dataset] = rows.x(TOP, dataset)[max(first_bad - 1, 0)] if first_bad else 0.0
    named = ", ".join(f"{dataset.capitalize()} {k:.0f}" for dataset, k in reach.items())
    found = np.array([*reach.values()])
    return judged((found >= 5.0) & (found <= 20.0), f"Base-Cut is within 10 % of Base up to k = {named}")


def _worse_beyond(rows: Evidence) -> Finding:
    quotients = {}
    for dataset in rows.datasets(TOP):
        beyond = rows.x(TOP, dataset) > 10.0
        base_cut = rows.values(TOP, "base-cut", dataset)[beyond]
        quotients[dataset] = np.stack(
            [rows.values(TOP, method, dataset)[beyond] / base_cut for method in ("power", "power-ns")]
        )
    named = ", ".join(f"{dataset.capitalize()} {span(values)}" for dataset, values in quotients.items())
    return judged(
        np.concatenate([values.ravel() for values in quotients.values()]) > 1.0,
        f"MSE / Base-Cut's, k > 10: {named}",
    )


CLAIMS: tuple[Claim, ...] = (
    Claim(
        SECTION,
        "Base, Base-Pos, Post-Pos, and Norm perform consistently well for different k",
        (TOP,),
        "within 10 % of the best",
        _consistently_well,
    ),
    Claim(
        SECTION,
        "[Base-Pos and Post-Pos] do nothing to the top values",
        (TOP,),
        "MSE within 0.1 % of Base's",
        ratio([TOP], "base-pos", "base", 0.999, 1.001),
    ),
    Claim(
        SECTION,
        "Norm-Mul performs at least 10× worse than any other methods",
        (TOP,),
        "10 × the worst other",
        _mul_worst,
    ),
    Claim(
        SECTION,
        "Norm-Sub performs worse than Base, but better than Norm-Mul",
        (TOP,),
        "in this order",
        _sub_between,
    ),
    Claim(
        SECTION,
        "MLE-Apx … performs the same as Norm-Sub",
        (TOP,),
        "within 2 %",
        ratio([TOP], "mle-apx", "norm-sub", 1 / ALIKE, ALIKE),
    ),
    Claim(
        SECTION,
        "[Base and Norm-Sub] have consistent MSE for different k",
        (TOP,),
        "largest within 1.5 × the least",
        _consistent,
    ),
    Claim(
        SECTION,
        "Base-Cut, Norm-Cut, Power, and PowerNS, all have MSE that grows with k",
        (TOP,),
        "by 25 % from k = 2 to 32, relative to Base's",
        _grows,
    ),
    Claim(SECTION, "at ε = 1, around 10 values can be reliably estimated", (TOP,), "5 to 20", _reliable),
    Claim(
        SECTION,
        "Norm-Cut is better than Base-Cut",
        (TOP,),
        "MSE not above",
        ratio([TOP], "norm-cut", "base-cut", 0.0, TIE),
    ),
    Claim(
        SECTION,
        "the performances of Power and PowerNS are similar",
        (TOP,),
        "within 25 %",
        ratio([TOP], "power-ns", "power", 1 / SIMILAR, SIMILAR),
    ),
    Claim(
        SECTION,
        "[Power, PowerNS] are worse than Base-Cut, especially when k > 10",
        (TOP,),
        "higher MSE for k > 10",
        _worse_beyond,
    ),
)
