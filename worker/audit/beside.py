"""Base beside its frequencies: intervals, numbers of forged reports, sets, and the most frequent values."""

import math
from collections.abc import Mapping
from fractions import Fraction
from statistics import NormalDist
from typing import Any

import numpy as np

from worker.audit import anytime
from worker.audit.methods import ROUNDING, Estimate, expect_number, expect_vector, rounded_by
from worker.audit.sets import Law, law_of
from worker.audit.vectors import Read, Vector

_ENDS, _ANYTIME = ("low", "high"), ("anytime_low", "anytime_high")


def expect_beside(body: Mapping[str, Any], of: Estimate, vectors: Mapping[str, Read]) -> None:
    """Raises `Difference` unless what Base publishes beside its frequencies is right.

    The intervals of the most frequent values are taken as published, to check the numbers of forged reports.
    """
    base, off = _Base(body, of), max(of.rounding, ROUNDING * of.sigma)

    def expect(names: tuple[str, str], ends: tuple[Vector, Vector]) -> None:
        for name, due in zip(names, ends, strict=True):
            expect_vector(f"base: {name}", vectors[name].values, due, off + rounded_by(vectors[name], of))

    own, other = float(of.p * (1 - of.p)), float(of.q * (1 - of.q))
    expect(_ENDS, _score(of, of.base, own, other, body["level"]))
    if "anytime_low" in vectors:
        expect(_ANYTIME, base.anytime(body["level"]))
        rounded = np.maximum(rounded_by(vectors["low"], of), rounded_by(vectors["high"], of))
        said = {name: vector.values for name, vector in vectors.items()}
        anytime.expect_fakes("base", said, of.base, of.reports, base.steps(), off + rounded)
    for said in body["queries"]:
        base.expect_set(said)
    for said in body["top"]:
        base.expect_top(said, off)


class _Base:
    """Base's document and estimate."""

    def __init__(self, body: Mapping[str, Any], of: Estimate) -> None:
        self._of, self._level, self._document = of, float(body["level"]), body["document"]
        self._rates = [Fraction(rate) for rate in self._document.get("rates", ())]
        self._by_rate = np.array([each["counts"] for each in body.get("rates", ())], np.int64)

    def anytime(self, level: float) -> tuple[Vector, Vector]:
        """Returns the ends of the anytime-valid intervals, (d,) each."""
        of = self._of
        if self._rates:
            return anytime.interval_of_rates(self._by_rate, self._rates, level)
        counts = of.reports * (float(of.q) + float(of.p - of.q) * of.base)
        return anytime.interval(counts, of.reports, float(of.p), float(of.q), level)

    def steps(self) -> tuple[float, float]:
        """Returns the users that one forged report adds to a value at most, and removes from it.

        At several rates, a report at the highest one counts most.
        """
        q = max(self._rates) / 2 if self._rates else self._of.q
        apart = 1 - 2 * q if self._rates else self._of.p - q
        return float((1 - q) / apart), float(q / apart)

    def expect_set(self, answer: Mapping[str, Any]) -> None:
        """Compares the answer to a set query."""
        of, what, values = self._of, f"base: query {answer['name']!r}", tuple(answer["values"])
        if (law := law_of(self._document, of.p, of.q, values)) is None:
            return
        apart, f = float(of.p - of.q), float(of.base[list(values)].sum())
        off = ROUNDING * max(1.0, of.sigma, float(np.abs(of.base[list(values)]).sum()))
        own, other = self._variances(law, values)
        inside = min(max(f, 0.0), 1.0)
        error = math.sqrt((inside * own + (1 - inside) * other) / of.reports) / apart
        expect_number(f"{what}: standard_error", answer["standard_error"], error, off)
        low, high = (float(end[0]) for end in _score(of, np.array([f]), own, other, self._level))
        if not max(own, other):
            low = high = 1.0  # all reports support as many values
        expect_number(f"{what}: low", answer["low"], low, off)
        expect_number(f"{what}: high", answer["high"], high, off)
        if "anytime_low" not in answer:
            return
        for name, due in zip(_ANYTIME, self._anytime_of(values, f, law), strict=True):
            expect_number(f"{what}: {name}", answer[name], due, off)
        mean = len(values) * float(of.q)
        steps = (law.most - mean) / apart, (mean - law.least) / apart
        if self._rates:
            steps = self.steps() if len(values) == 1 else (1.0, -1.0)
        ends = {name: np.array([float(answer[name])]) for name in ("low", "high", "fakes")}
        anytime.expect_fakes(what, ends, np.array([f]), of.reports, steps, np.array([off]))

    def _anytime_of(self, values: tuple[int, ...], f: float, law: Law) -> tuple[float, float]:
        """Returns the ends of the anytime-valid interval of a set."""
        of = self._of
        if len(values) == 1:
            low, high = self.anytime(self._level)
            return float(low[values[0]]), float(high[values[0]])
        if self._rates:
            return 1.0, 1.0  # each report has one of both values
        total = of.reports * (len(values) * float(of.q) + float(of.p - of.q) * f)
        return anytime.interval_of_set(total, of.reports, law, self._level)

    def _variances(self, law: Law, values: tuple[int, ...]) -> tuple[float, float]:
        """Returns the variances of a report, averaged over the set's users and over the others, by Norm-Sub."""
        if max(len(law.variances), len(law.others)) <= 1:
            own = float(law.variances[0])
            return own, float(law.others[0]) if len(law.others) else own
        users = self._of.users
        within = np.zeros(len(users), np.bool_)
        within[list(values)] = True
        own = _mean(law.variances, users[list(values)])
        return own, _mean(law.others, users[~within]) if len(law.others) else own

    def expect_top(self, answer: Mapping[str, Any], off: float) -> None:
        """Compares the answer to a top query, except for its intervals."""
        if "anytime_low" not in answer:
            return
        of, what, values = self._of, f"base: query {answer['name']!r}", np.array(answer["values"], np.intp)
        # d values could be among them
        ends = self.anytime(1.0 - (1.0 - self._level) / len(of.base))
        for name, due in zip(_ANYTIME, ends, strict=True):
            expect_vector(f"{what}: {name}", np.array(answer[name], np.float64), due[values], off)
        found = {name: np.array(answer[name], np.float64) for name in ("low", "high", "fakes")}
        anytime.expect_fakes(
            what, found, of.base[values], of.reports, self.steps(), np.full(len(values), off)
        )


def _mean(variances: Vector, users: Vector) -> float:
    """Returns the mean weighted by users, or the plain mean without users."""
    if len(variances) == 1 or not users.any():
        return float(variances.mean())
    return float(variances @ users / users.sum())


def _score(
    of: Estimate, estimated: Vector, inside: float, outside: float, level: float
) -> tuple[Vector, Vector]:
    """Returns the score interval: |f̃ − f| is at most z standard errors of f."""
    z = -NormalDist().inv_cdf((1 - level) / 2)
    a = z * z / float(of.reports * (of.p - of.q) ** 2)
    half = a * (inside - outside) / 2
    root = np.sqrt(half * half + a * np.maximum((1 - estimated) * outside + estimated * inside, 0.0))
    return estimated + half - root, estimated + half + root
