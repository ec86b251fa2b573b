"""Populations: estimates from the reports of several documents.

Document r has n_r reports and Base's estimate f_rv of the value with label v; n_v is the number of reports of the
documents that have the label. The population's estimate is f_v = Σ n_r/n_v f_rv, and null for a label with n_v = 0. A
method's result is the same sum over the method's results for each document. All sums here start from the recounted
states, because the messages do not contain the documents' estimates.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import NormalDist
from typing import Any

import numpy as np

from worker.audit import anytime
from worker.audit.decoding import chances_of, frequencies, support
from worker.audit.errors import Difference
from worker.audit.hashes import State
from worker.audit.intervals import sharing_of, variances_of, vectors_due
from worker.audit.methods import ROUNDING, Estimate, bounds_of, expect_number, expect_vector
from worker.audit.parsing import Documents
from worker.audit.records import Ints
from worker.audit.vectors import Read, Vector

_LEAST = 1e-300  # Least variance of a document that has weights by variance


@dataclass(frozen=True)
class Joined:
    """Documents in the order of the head, with their labels joined.

    Example:
        >>> old = {"labels": ["red", "blue"], "domain_size": 2}
        >>> new = {"labels": ["blue", "grey", "red"], "domain_size": 3}
        >>> joined = Joined.of(["9f86d081", "8e9f39d0"], {"9f86d081": old, "8e9f39d0": new})
        >>> joined.labels, joined.places["8e9f39d0"]
        (['red', 'blue', 'grey'], array([1, 2, 0]))
    """

    places: Mapping[str, Ints]  # document -> joined index of each of its values
    labels: list[str] | None
    size: int

    @classmethod
    def of(cls, order: Sequence[str], documents: Documents) -> "Joined":
        """Joins the labels of documents in order."""
        index, places = dict[object, int](), dict[str, Ints]()
        for name in order:
            document = documents[name]
            values = document.get("labels") or range(document["domain_size"])
            places[name] = np.array([index.setdefault(value, len(index)) for value in values], np.int64)
        labelled = "labels" in documents[order[0]]
        return cls(places, [str(label) for label in index] if labelled else None, len(index))


@dataclass(frozen=True)
class Document:
    """A document's part in a population."""

    content: Mapping[str, Any]
    places: Ints
    estimate: Estimate | None  # None without reports
    counts: State | None  # support of each value


class Population:
    """Recounted population: the documents in order, with their counts.

    Raises `Difference` for a document that has no values, and returns estimates in the order of the joined labels.
    """

    def __init__(
        self, joined: Joined, documents: Documents, counted: Mapping[str, tuple[int, State]]
    ) -> None:
        self.joined, self.documents = joined, dict[str, Document]()
        self.known = np.zeros(joined.size, np.int64)
        self.decoded = True  # whether all states could be decoded
        for name, places in joined.places.items():
            content = documents[name]
            reports, state = counted.get(name, (0, None))
            counts = None if state is None or not reports else support(content, state)
            estimate = None
            if counts is not None:
                estimate = Estimate(frequencies(content, counts, reports), reports, *chances_of(content))
            self.decoded &= counts is not None or not reports
            self.known[places] += reports
            self.documents[name] = Document(content, places, estimate, counts)

    @property
    def counted(self) -> list[tuple[Document, Estimate]]:
        """The documents with reports."""
        return [(each, each.estimate) for each in self.documents.values() if each.estimate is not None]

    @cached_property
    def reports(self) -> int:
        """Number of reports."""
        return sum(estimate.reports for _, estimate in self.counted)

    def mix(self, vectors: Sequence[Vector]) -> Vector:
        """Returns Σ n_r/n_v x_rv; 0 for unknown labels."""
        mixed = np.zeros(self.joined.size)
        for (document, estimate), vector in zip(self.counted, vectors, strict=True):
            mixed[document.places] += estimate.reports / self.known[document.places] * vector
        return mixed

    @cached_property
    def base(self) -> Vector:
        """Base's frequencies; 0 for unknown labels."""
        return self.mix([estimate.base for _, estimate in self.counted])

    @cached_property
    def sigma(self) -> float:
        """Standard deviation for a value of all documents, without users."""
        squares = math.fsum((estimate.reports * estimate.sigma) ** 2 for _, estimate in self.counted)
        return math.sqrt(squares) / self.reports

    @cached_property
    def rounding(self) -> float:
        """Maximum difference between two correct computations of a number."""
        return max(estimate.rounding for _, estimate in self.counted)

    def score(self, level: float, window: Mapping[str, Any]) -> tuple[Vector, Vector]:
        """Returns the ends of pointwise intervals of all labels.

        n_v Var f_v = Σ w_r V_r, where V_r is linear in the document's share, which is clipped to [0, 1]. An error x of
        f_v changes the sum by x times the mean slope, weighted by w_r V_r. The sum stays between those of the least and
        of the largest V_r.
        """
        shares, slopes, likely, least, most = (list[Vector]() for _ in range(5))
        for document, estimate in self.counted:
            square = float((estimate.p - estimate.q) ** 2)
            ends = [each / square for each in variances_of(document.content, window, estimate)]
            share = np.clip(estimate.base, 0.0, 1.0)
            shares.append(share)
            slopes.append(np.full(len(share), ends[0] - ends[1]))
            likely.append(np.maximum(ends[1] + slopes[-1] * share, _LEAST))
            least.append(np.full(len(share), min(ends)))
            most.append(np.full(len(share), max(ends)))
        sums = np.where(self.known > 0, self.mix(likely), 1.0)
        slope = self.mix([each * weight for each, weight in zip(slopes, likely, strict=True)]) / sums
        at = sums + slope * (self.base - self.mix(shares))
        a = NormalDist().inv_cdf((1 - level) / 2) ** 2 / np.maximum(self.known, 1)
        low, high = _roots(self.base, a, at, slope)
        narrow, wide = (_roots(self.base, a, self.mix(each), np.zeros(1)) for each in (least, most))
        low, high = np.minimum(low, narrow[0]), np.maximum(high, narrow[1])
        return np.maximum(low, wide[0]), np.minimum(high, wide[1])

    def anytime(self, level: float) -> tuple[Vector, Vector]:
        """Returns the ends of anytime-valid intervals of all labels."""
        counts, reports = (np.zeros((len(self.documents), self.joined.size)) for _ in range(2))
        for row, document in enumerate(self.documents.values()):
            if document.estimate is not None and document.counts is not None:
                counts[row, document.places] = document.counts
                reports[row, document.places] = document.estimate.reports
        channels = [chances_of(document.content) for document in self.documents.values()]
        return anytime.interval_of_documents(counts, reports, channels, level)

    def strongest(self, retired: frozenset[str]) -> tuple[Vector, Vector]:
        """Returns how many users a poisoning report adds and removes at most.

        Both vectors are by label; the report belongs to a live document.
        """
        up, down = np.full((2, self.joined.size), -np.inf)
        for name, document in self.documents.items():
            if name not in retired:
                p, q = chances_of(document.content)
                up[document.places] = np.maximum(up[document.places], float((1 - q) / (p - q)))
                down[document.places] = np.maximum(down[document.places], float(q / (p - q)))
        return up, down


def _roots(base: Vector, a: Vector, at: Vector, slope: Vector) -> tuple[Vector, Vector]:
    """Returns the ends f with (f − base)² = a (at + slope (f − base))."""
    half = a * slope / 2
    root = np.sqrt(half * half + a * np.maximum(at, 0.0))
    return base + half - root, base + half + root


@dataclass(frozen=True)
class Bodies:
    """Messages of a population: the bodies and vectors of its methods."""

    bodies: Mapping[str, Mapping[str, Any]]
    vectors: Mapping[str, Mapping[str, Read]]


def expect_population(published: Bodies, population: Population, retired: frozenset[str] | None) -> None:
    """Raises `Difference` unless all numbers follow from the recount.

    `retired` are the retired documents when the messages were published, or None if unknown.
    """
    base = published.bodies["base"]
    _expect_documents(base, population)
    for method, body in published.bodies.items():
        _expect_method(method, body, published.vectors[method], population)
    _expect_intervals(base, published.vectors["base"], population, retired)


def _expect_documents(base: Mapping[str, Any], population: Population) -> None:
    for each, (name, document) in zip(base["documents"], population.documents.items(), strict=True):
        reports = 0 if document.estimate is None else document.estimate.reports
        if each["reports"] != reports:
            raise Difference(f"{each['reports']} reports of document {name} published, {reports} recounted")


def _known_of(vectors: Mapping[str, Read], population: Population, what: str) -> None:
    found = (
        vectors["known"].values if "known" in vectors else np.full(population.joined.size, population.reports)
    )
    if found.shape != population.known.shape or (found != population.known).any():
        raise Difference(f"{what}: known differs from the recounted reports of each label's documents")


def _expect_method(
    method: str, body: Mapping[str, Any], vectors: Mapping[str, Read], population: Population
) -> None:
    found, size = vectors["frequencies"].values, population.joined.size
    if found.shape != (size,):
        raise Difference(f"{method}: {len(found)} frequencies published, expected {size}")
    _known_of(vectors, population, method)
    known = population.known > 0
    if (np.isnan(found) != ~known).any():
        raise Difference(f"{method}: a label is null that is known, or has a number though it is unknown")
    if (additive := body.get("additive", True)) != (method == "base"):
        raise Difference(f"{method}: published with additive {additive}")
    own = [bounds_of(method, estimate) for _, estimate in population.counted]
    short = np.minimum(vectors["frequencies"].off, 0.01 * population.sigma)
    low, high = population.mix([low for low, *_ in own]), population.mix([high for _, high, *_ in own])
    sure = known & (population.mix([unsure for _, _, unsure, _ in own]) == 0)
    loose = population.mix([np.full(len(low), off) for low, *_, off in own])
    off = population.rounding + short + loose
    middle, half = (low + high) / 2, (high - low) / 2
    expect_vector(f"{method}: frequency", found[sure], middle[sure], (off + half)[sure])
    _expect_answers(method, body, population, found, own, float(loose.sum()))
    expect_number(
        f"{method}: standard_error", body["standard_error"], population.sigma, ROUNDING * population.sigma
    )


def _expect_answers(
    method: str,
    body: Mapping[str, Any],
    population: Population,
    found: Vector,
    own: Sequence[tuple[Vector, Vector, Vector, float]],
    loose: float,
) -> None:
    known = population.known > 0
    total = float(found[known].sum())
    if method == "post-pos":
        total = max(float(population.base[known].sum()), 0.0)
    off = len(found) * population.rounding + loose
    expect_number(f"{method}: sum", body["sum"], total, off + _short_of(found, population))
    for answer in body["queries"]:
        what, values = f"{method}: query {answer['name']!r}", np.array(answer["values"], np.int64)
        _expect_set(what, method, answer, values, population, own)
    for answer in body["top"]:
        what, values = f"{method}: query {answer['name']!r}", np.array(answer["values"], np.int64)
        _expect_top(what, values, population)
        expect_vector(f"{what}: frequency", np.array(answer["frequencies"], np.float64), found[values], 0)


def _short_of(found: Vector, population: Population) -> float:
    # sums have the numbers before their rounding to float32
    return len(found) * 0.01 * population.sigma if len(found) > 8192 else 0.0


def _expect_set(
    what: str,
    method: str,
    answer: Mapping[str, Any],
    values: Ints,
    population: Population,
    own: Sequence[tuple[Vector, Vector, Vector, float]],
) -> None:
    """Compares the answer of the documents that have all values of a set."""
    reports, low, high, off = 0, 0.0, 0.0, 0.0
    for (document, estimate), bounds in zip(population.counted, own, strict=True):
        places = np.full(population.joined.size, -1)
        places[document.places] = np.arange(len(document.places))
        if (inside := places[values]).min() < 0:
            continue
        if bounds[2][inside].any():
            return  # not computed exactly
        ends = [float(end[inside].sum()) for end in bounds[:2]]
        if method == "post-pos":
            ends = [max(float(estimate.base[inside].sum()), 0.0)] * 2
        reports += estimate.reports
        low, high = low + estimate.reports * ends[0], high + estimate.reports * ends[1]
        off = max(off, len(places) * (estimate.rounding + bounds[3]))
    if answer.get("known", population.reports) != reports:
        raise Difference(f"{what}: known is {answer.get('known')}, {reports} recounted")
    if not reports:
        if answer["frequency"] is not None:
            raise Difference(f"{what}: a frequency, though no document with reports has all values")
        return
    middle, half = (low + high) / 2 / reports, (high - low) / 2 / reports
    expect_number(what, answer["frequency"], middle, half + off)


def _expect_top(what: str, values: Ints, population: Population) -> None:
    """Expects the most frequent labels.

    Only labels with enough reports of their documents count; the configuration has the limit.
    """
    base, known = population.base, population.known
    if (known[values] == 0).any() or (np.diff(base[values]) > population.rounding).any():
        raise Difference(f"{what}: {values.tolist()} are not in the order of their frequencies")
    others = np.setdiff1d(np.flatnonzero(known >= known[values].min(initial=1)), values)
    if len(values) and (base[others] > base[values[-1]] + population.rounding).any():
        raise Difference(f"{what}: {values.tolist()} are not the most frequent values")


def _expect_intervals(
    base: Mapping[str, Any],
    vectors: Mapping[str, Read],
    population: Population,
    retired: frozenset[str] | None,
) -> None:
    level, known = float(base["level"]), population.known > 0
    window = base["window"]
    independent = all(
        sharing_of(document.content, window, estimate.reports) == 1
        for document, estimate in population.counted
    )
    off = max(population.rounding, ROUNDING * population.sigma)
    listed = [(("low", "high"), population.score(level, window))]
    if independent:
        listed.append((("anytime_low", "anytime_high"), population.anytime(level)))
    elif "anytime_low" in vectors:
        raise Difference("base: anytime-valid intervals of reports that share memoised noise")
    for names, ends in listed:
        for name, due in zip(names, ends, strict=True):
            slack = off + np.minimum(vectors[name].off, 0.01 * population.sigma)
            expect_vector(f"base: {name}", vectors[name].values[known], due[known], slack[known])
    steps, exact = population.strongest(retired or frozenset()), retired is not None
    slack = off + np.minimum(np.maximum(vectors["low"].off, vectors["high"].off), 0.01 * population.sigma)
    published = {name: vectors[name].values[known] for name in ("low", "high", "poisoning_tolerance")}
    _expect_tolerance("base", published, np.flatnonzero(known), population, (steps, slack[known], exact))
    for answer in base["top"]:
        what, values = f"base: query {answer['name']!r}", np.array(answer["values"], np.int64)
        if not independent:
            if "low" in answer:
                raise Difference(f"{what}: bounds of reports that share memoised noise")
            continue
        own = {name: np.array(answer[name], np.float64) for name in vectors_due(base)}
        # the level holds for all values together, because any of them can be a top value
        top_ends = population.anytime(1.0 - (1.0 - level) / population.joined.size)
        for end, due in zip(("low", "high"), top_ends, strict=True):
            expect_vector(f"{what}: {end}", own[end], due[values], off)
            expect_vector(f"{what}: anytime_{end}", own[f"anytime_{end}"], due[values], off)
        _expect_tolerance(what, own, values, population, (steps, np.full(len(values), off), exact))


def _expect_tolerance(
    what: str,
    published: Mapping[str, Vector],
    values: Ints,
    population: Population,
    given: tuple[tuple[Vector, Vector], Vector, bool],
) -> None:
    (up, down), off, exact = given
    live = np.isfinite(up[values])
    if exact and (published["poisoning_tolerance"][~live] != -1).any():
        raise Difference(f"{what}: a poisoning tolerance of a value that no live document has")
    own = {name: vector[live] for name, vector in published.items()}
    there = values[live]
    anytime.expect_tolerance(
        what, own, population.base[there], population.known[there], (up[there], down[there]), off[live], exact
    )
