"""What Section V-B, Bias-variance Evaluation, claims."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ldp.consistency import METHODS
from ldp.estimate import Vector
from ldp.experiments.claims.claim import (
    COUNTS,
    FULL,
    SIMILAR,
    Claim,
)
from ldp.experiments.claims.counts import Bias
from ldp.experiments.datasets import zipf
from ldp.experiments.evidence import NAMES, Evidence, Finding, judged, number, span

SECTION = "V-B Bias-variance Evaluation"


def _unbiased(rows: Evidence) -> Finding:
    worst = np.array([np.abs(Bias(rows, method).z()).max() for method in ("base", "norm")])
    return judged(worst < 5.0, f"largest of {len(zipf().histogram):,} biases: {span(worst)} standard errors")


def _positive_bias(rows: Evidence) -> Finding:
    z = Bias(rows, "base-pos").z()
    total = rows.curve("bias", "zipf", "base-pos", "sum")[0].value
    return judged(
        [bool(total > 0.0 and z.min() > -5.0)],
        f"sum {number(total)}; above 0 by 5 standard errors at {100 * float((z > 5.0).mean()):.0f} % of the values, "
        f"below at none"
        if z.min() > -5.0
        else f"sum {number(total)}; below 0 by 5 standard errors somewhere",
    )


def _cut_unbiased_at_top(rows: Evidence) -> Finding:
    of = Bias(rows, "base-cut")
    z = np.abs(of.z()[: of.top])
    return judged(
        [bool(z.max() < 5.0)], f"the first {of.top}: at most {number(float(z.max()))} standard errors"
    )


def _cut_low_below_threshold(rows: Evidence) -> Finding:
    of = Bias(rows, "base-cut")
    chance = (of.bias + of.truth)[len(of.truth) // 2 :] / of.threshold
    return judged(
        [bool(chance.max() < 0.05)],
        f"less frequent half: mean estimate / T, which bounds the chance, at most {100 * float(chance.max()):.2g} %",
    )


def _cut_cancels(rows: Evidence) -> Finding:
    of = Bias(rows, "base-cut")
    middle, last = of.octaves(of.bias)[4], of.bias[-64:]
    error = float(np.sqrt((of.error[-64:] ** 2).sum())) / 64
    return judged(
        [bool(middle < 0.0 and abs(last.mean()) < 4.0 * error)],
        f"ranks 16 to 31: {number(float(middle))}; the last 64: {last.mean():.1f} ± {error:.1f}",
    )


def _threshold(rows: Evidence) -> Finding:
    parts = [(rows.values(FULL, method, case="threshold")) for method in ("norm-cut", "base-cut")]
    return judged(
        parts[0] < parts[1], f"least frequency kept, Norm-Cut / Base-Cut: {span(parts[0] / parts[1])}"
    )


def _same_subtracted(rows: Evidence) -> Finding:
    of = Bias(rows, "norm-sub")
    top, error = of.bias[: of.top], of.error[: of.top]
    apart = np.abs(top - top.mean()) / error
    return judged(
        [bool(apart.max() < 5.0 and top.max() < 0.0)],
        f"bias of the first {of.top}: {span(top)}, {number(float(apart.max()))} standard errors apart at most",
    )


def _increasing(rows: Evidence) -> Finding:
    of = Bias(rows, "norm-sub")
    means, error = of.octaves(of.bias), np.sqrt(of.octaves(of.error**2) / _octave_sizes(len(of.bias)))
    steps = np.diff(means)
    slack = 4.0 * np.sqrt(error[1:] ** 2 + error[:-1] ** 2)
    return judged(
        steps > -slack, f"from {number(float(means[0]))} to {number(float(means[-1]))} over octaves of rank"
    )


def _octave_sizes(d: int) -> Vector:
    return np.diff([*(1 << np.arange(10)) - 1, d]).astype(np.float64)


def _power_changes(rows: Evidence) -> Finding:
    of = Bias(rows, "power")
    relative = np.abs(of.octaves(of.bias) / of.octaves(of.truth))
    return judged(
        [bool(relative[:3].max() < 0.05 and relative[3:].max() > 0.1)],
        f"|bias| / count: ranks 1 to 7 {span(100 * relative[:3], ' %')}, further down up to "
        f"{number(100 * float(relative[3:].max()))} %",
    )


def _shape(one: str, other: str) -> Callable[[Evidence], Finding]:
    def finding(rows: Evidence) -> Finding:
        first, second = Bias(rows, one), Bias(rows, other)
        same = float(np.corrcoef(first.octaves(first.bias), second.octaves(second.bias))[0, 1])
        return judged([same > 0.8], f"correlation of the two over octaves of rank: {same:.3f}")

    return finding


def _power_ns_subtracts(rows: Evidence) -> Finding:
    total = rows.curve("bias", "zipf", "power", "sum")[0].value
    before, after = Bias(rows, "power"), Bias(rows, "power-ns")
    change = (after.bias - before.bias)[: before.top]
    return judged(
        [bool(change.max() < 0.0)],
        f"Power's sum is off by {number(total)}, so Norm-Sub adds: {span(change)} at the first {before.top}",
    )


def _variance_flat(rows: Evidence) -> Finding:
    means = [of.octaves(of.variance) / of.variance.mean() for of in (Bias(rows, "base"), Bias(rows, "norm"))]
    return judged((np.array(means) < SIMILAR).ravel(), f"variance / its mean, octaves of rank: {span(means)}")


def norm_smaller(rows: Evidence) -> Finding:
    """Norm's variance, the mean over all values, is up to 10 % below Base's."""
    quotient = float(Bias(rows, "norm").variance.mean() / Bias(rows, "base").variance.mean())
    return judged([0.9 < quotient < 1.0], f"mean variance, Norm / Base: {quotient:.4f} (expected 1 − 1/d)")


def _variance_drops(rows: Evidence) -> Finding:
    methods = [method for method in METHODS if method not in ("base", "norm")]
    octaves = np.stack([(of := Bias(rows, method)).octaves(of.variance) for method in methods])
    falls = octaves[:, 1:] < 1.05 * octaves[:, :-1]
    rising = ", ".join(NAMES[method] for method, row in zip(methods, falls, strict=True) if not row.all())
    ends = f"last octave / first: {span(octaves[:, -1] / octaves[:, 0])}"
    return judged(falls.all(axis=1), f"{ends}; first rises near the threshold: {rising}" if rising else ends)


def _zeros(rows: Evidence) -> Finding:
    methods = [method for method in METHODS if method not in ("base", "norm")]
    shares = np.array([rows.values("distribution", method, "zipf", "zeros")[0] for method in methods])
    few = ", ".join(
        f"{NAMES[method]} {100 * share:.0f} %"
        for method, share in zip(methods, shares, strict=True)
        if share <= 0.5
    )
    return judged(
        shares > 0.5, f"zeros among the less frequent half: up to {100 * shares.max():.0f} %; but {few}"
    )


CLAIMS: tuple[Claim, ...] = (
    Claim(
        SECTION, "Base and Norm are unbiased", COUNTS, "no value's bias reaches 5 standard errors", _unbiased
    ),
    Claim(
        SECTION,
        "Base-Pos introduces systematic positive bias",
        COUNTS,
        "sum above 0, no value 5 standard errors below",
        _positive_bias,
    ),
    Claim(
        SECTION,
        "Base-Cut gives unbiased estimations for the first few most frequent values",
        COUNTS,
        "within 5 standard errors where the count exceeds T + 4σ",
        _cut_unbiased_at_top,
    ),
    Claim(
        SECTION,
        "low-frequency values, whose estimates are unlikely to be above T",
        COUNTS,
        "chance below 5 % in the less frequent half",
        _cut_low_below_threshold,
    ),
    Claim(
        SECTION,
        "At some point, the two effects cancel out …, leading to unbiased estimations",
        COUNTS,
        "biased in between, the last 64 values within 4 standard errors of 0",
        _cut_cancels,
    ),
    Claim(
        SECTION,
        "the threshold in Norm-Cut is typically smaller [than T]",
        (FULL,),
        "mean of the least kept",
        _threshold,
    ),
    Claim(
        SECTION,
        "Norm-Sub: … high-frequency values … subtraction by a same amount",
        COUNTS,
        "equal bias below 0, within 5 standard errors",
        _same_subtracted,
    ),
    Claim(
        SECTION,
        "We see an increasing line for Norm-Sub",
        COUNTS,
        "means over octaves of rank increase",
        _increasing,
    ),
    Claim(
        SECTION,
        "Power changes little to the top estimations; but more to the low ones",
        COUNTS,
        "|bias| below 5 % of the count in ranks 1 to 7, above 10 % further down",
        _power_changes,
    ),
    Claim(
        SECTION,
        "[Power:] a similar shape as Norm-Cut",
        COUNTS,
        "correlation above 0.8",
        _shape("power", "norm-cut"),
    ),
    Claim(
        SECTION,
        "The shape of PowerNS is close to Power",
        COUNTS,
        "correlation above 0.8",
        _shape("power-ns", "power"),
    ),
    Claim(
        SECTION,
        "PowerNS applies Norm-Sub, which subtract some amount",
        COUNTS,
        "PowerNS's mean below Power's at the top",
        _power_ns_subtracts,
    ),
    Claim(
        SECTION,
        "the variance is similar for all the values in Base and Norm",
        COUNTS,
        "within 25 % of its mean",
        _variance_flat,
    ),
    Claim(
        SECTION,
        "Norm being slightly better (smaller) than Base",
        COUNTS,
        "mean variance 0 to 10 % smaller",
        norm_smaller,
    ),
    Claim(
        SECTION,
        "For all other methods, the variance drops with the rank",
        COUNTS,
        "no octave of rank above the one before by 5 %",
        _variance_drops,
    ),
    Claim(
        SECTION,
        "for low-frequency values, their estimates are mostly zeros",
        COUNTS,
        "more than half of those of the less frequent half",
        _zeros,
    ),
)
