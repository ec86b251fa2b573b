"""Checks of Base's intervals and poisoning tolerances."""

import math
from collections.abc import Mapping
from datetime import datetime
from fractions import Fraction
from statistics import NormalDist
from typing import Any

import numpy as np

from worker.audit import anytime
from worker.audit.methods import ROUNDING, Estimate, expect_vector, rounded_by
from worker.audit.vectors import Read, Vector

_ENDS, _ANYTIME = ("low", "high"), ("anytime_low", "anytime_high")
_BOUNDS = ("start", "end")
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


def vectors_due(body: Mapping[str, Any]) -> tuple[str, ...]:
    """Returns the names of Base's vectors in addition to its frequencies.

    Reports that share memoised noise are not independent, so they have no anytime-valid intervals.
    """
    counted = [each for each in body.get("documents", [body]) if each["reports"]]
    independent = all(sharing_of(each["document"], body["window"], each["reports"]) == 1 for each in counted)
    return (*_ENDS, *(_ANYTIME if independent else ()), "poisoning_tolerance")


def sharing_of(document: Mapping[str, Any], window: Mapping[str, Any], reports: int) -> int:
    """Returns the most reports of a device that share memoised noise."""
    privacy = document.get("privacy")
    if privacy is None or privacy["noise"] != "memoised":
        return 1
    period, horizon = (
        int(text[:-1]) * _SECONDS[text[-1]] for text in (privacy["period"], privacy["horizon"])
    )
    periods = -(-horizon // period) + 1
    if window["start"] is not None:
        start, end = (datetime.fromisoformat(window[bound]).timestamp() for bound in _BOUNDS)
        periods = math.ceil(end / period) - math.floor(start / period)
    return min(int(privacy["reports"]) * periods, reports)


def variances_of(document: Mapping[str, Any], window: Mapping[str, Any], of: Estimate) -> tuple[float, float]:
    """Returns a report's variances for users with and without the value."""
    k, f = sharing_of(document, window, of.reports), Fraction(document.get("f", 0))
    own = of.p * (1 - of.p), of.q * (1 - of.q)
    if not f:
        return float(k * own[0]), float(k * own[1])
    # k reports share the permanent response, whose bits are wrong with probability f/2
    permanent = f / 2 * (1 - f / 2) * ((of.p - of.q) / (1 - f)) ** 2
    return float(own[0] + (k - 1) * permanent), float(own[1] + (k - 1) * permanent)


def expect_intervals(body: Mapping[str, Any], of: Estimate, vectors: Mapping[str, Read]) -> None:
    """Raises `Difference` unless Base's intervals and tolerances are correct.

    Does not check the intervals of queries or the pointwise intervals of top values.
    """
    level, off = float(body["level"]), max(of.rounding, ROUNDING * of.sigma)
    # number of users that one poisoning report adds and removes at most
    steps = float((1 - of.q) / (of.p - of.q)), float(of.q / (of.p - of.q))

    def anytime_ends(level: float) -> tuple[Vector, Vector]:
        counts = of.reports * (float(of.q) + float(of.p - of.q) * of.base)
        return anytime.interval(counts, of.reports, float(of.p), float(of.q), level)

    independent = sharing_of(body["document"], body["window"], of.reports) == 1
    listed = [(_ENDS, _score(of, level, *variances_of(body["document"], body["window"], of)))]
    for names, ends in [*listed, *([(_ANYTIME, anytime_ends(level))] if independent else [])]:
        for name, due in zip(names, ends, strict=True):
            expect_vector(f"base: {name}", vectors[name].values, due, off + rounded_by(vectors[name], of))
    rounded = np.maximum(rounded_by(vectors["low"], of), rounded_by(vectors["high"], of))
    published = {name: vector.values for name, vector in vectors.items()}
    anytime.expect_tolerance("base", published, of.base, of.reports, steps, off + rounded)
    for answer in body["top"]:
        what, values = f"base: query {answer['name']!r}", np.array(answer["values"], np.intp)
        found = {name: np.array(answer[name], np.float64) for name in vectors_due(body)}
        # the level holds for all d values together, because any of them can be a top value
        top_ends = anytime_ends(1.0 - (1.0 - level) / len(of.base)) if independent else ()
        for name, due in zip(_ANYTIME, top_ends, strict=False):
            expect_vector(f"{what}: {name}", found[name], due[values], off)
        anytime.expect_tolerance(what, found, of.base[values], of.reports, steps, np.full(len(values), off))


def _score(of: Estimate, level: float, inside: float, outside: float) -> tuple[Vector, Vector]:
    """Returns the lowest and highest f with |f̃ − f| ≤ z standard errors at f."""
    z = -NormalDist().inv_cdf((1 - level) / 2)
    a = z * z / float(of.reports * (of.p - of.q) ** 2)
    half = a * (inside - outside) / 2
    root = np.sqrt(half * half + a * np.maximum((1 - of.base) * outside + of.base * inside, 0.0))
    return of.base + half - root, of.base + half + root
