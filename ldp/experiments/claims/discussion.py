"""What Section V-F, Discussion, claims."""

from __future__ import annotations

from ldp.experiments.claims.bias import norm_smaller
from ldp.experiments.claims.claim import (
    COUNTS,
    ERRORS,
    FULL,
    RANDOM,
    SIMILAR,
    Claim,
    lower,
    ratio,
)
from ldp.experiments.claims.counts import Bias
from ldp.experiments.datasets import zipf
from ldp.experiments.evidence import Evidence, Finding, judged, number

SECTION = "V-F Discussion"


def _norm_gentle(rows: Evidence) -> Finding:
    total = rows.curve("bias", "zipf", "base", "sum")[0]
    shift = total.deviation / len(zipf().histogram) / Bias(rows, "base").sigma
    return judged([shift < 0.1], f"Norm changes a value by {number(100 * shift)} % of σ (root mean square)")


CLAIMS: tuple[Claim, ...] = (
    Claim(
        SECTION,
        "Norm-Sub and MLE-Apx perform similarly",
        ERRORS,
        "within 25 % in all figures of MSE",
        ratio(ERRORS, "mle-apx", "norm-sub", 1 / SIMILAR, SIMILAR),
        ("zipf", "emoji"),
    ),
    Claim(
        SECTION,
        "Base and Norm performs similarly",
        ERRORS,
        "within 25 % in all figures of MSE",
        ratio(ERRORS, "norm", "base", 1 / SIMILAR, SIMILAR),
        ("zipf", "emoji"),
    ),
    Claim(
        SECTION,
        "PowerNS improves over the approximate MLE (i.e., Norm-Sub …)",
        (FULL, *RANDOM),
        "lower MSE",
        lower((FULL, *RANDOM), "power-ns", "norm-sub"),
    ),
    Claim(
        SECTION,
        "Norm reduces variance by utilizing … sum up to 1",
        COUNTS,
        "mean variance of single values below Base's",
        norm_smaller,
    ),
    Claim(
        SECTION,
        "[Base and Norm] do not change any value dramatically",
        COUNTS,
        "by less than 10 % of σ",
        _norm_gentle,
    ),
    Claim(
        SECTION,
        "converting low estimates to 0 benefit the utility",
        (FULL,),
        "Base-Cut's MSE below Base's",
        lower([FULL], "base-cut", "base"),
    ),
)
