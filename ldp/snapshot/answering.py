"""Computes the bodies of a snapshot: a method's answers to all queries."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ldp.consistency import chosen
from ldp.consistency.together import by_method
from ldp.estimate import Estimate
from ldp.fleet import FleetEstimate
from ldp.poisoning import set_tolerance, tolerance
from ldp.query import Query, SetQuery, TopQuery, anytime_interval, interval, of_domain, read, std_error
from ldp.snapshot.contents import Body, Indices, SetAnswer, TopAnswer, Vector


@dataclass(frozen=True)
class _Results:
    """The vectors of a method.

    Attributes:
        method: the method's name.
        frequencies: (d,) for the estimate.
        each: the vector of each document with reports, by number; for one document, (d,) for number 0.
    """

    method: str
    frequencies: Vector
    each: Mapping[int, Vector]


def bodies(
    estimate: Estimate | FleetEstimate,
    queries: Iterable[Query],
    methods: Sequence[str] | None,
    level: float,
    fewest: int,
) -> dict[str, Body]:
    """Returns the body of each method; for arguments and errors, see `take`."""
    if isinstance(estimate, Estimate):
        size = least = estimate.oracle.domain_size
        counted = {0: estimate}
    else:
        size = estimate.fleet.size
        least = min(document.oracle.domain_size for document in estimate.fleet.documents)
        counted = {number: one for number, one in enumerate(estimate.estimates) if one is not None}
    sets, tops = of_domain(queries, size)
    names = chosen(methods, least)
    each = {number: by_method(one, names) for number, one in counted.items()}
    most = [_most(query, estimate, fewest) for query in tops]
    made = {}
    for name in names:
        vectors = {number: by_name[name] for number, by_name in each.items()}
        mixed = vectors[0] if isinstance(estimate, Estimate) else estimate.mixture(vectors.values())
        made[name] = _body(estimate, _Results(name, mixed, vectors), sets, most, level)
    return made


def _most(query: TopQuery, estimate: Estimate | FleetEstimate, fewest: int) -> tuple[TopQuery, Indices]:
    if isinstance(estimate, Estimate):
        return query, estimate.most_frequent(query.k)
    values = estimate.most_frequent(query.k, min(fewest, int(estimate.known.max())))
    return TopQuery(query.name, len(values)), values


def _body(
    estimate: Estimate | FleetEstimate,
    results: _Results,
    sets: Sequence[SetQuery],
    most: Sequence[tuple[TopQuery, Indices]],
    level: float,
) -> Body:
    frequencies = results.frequencies
    unknown = np.zeros(frequencies.size, bool) if isinstance(estimate, Estimate) else estimate.known == 0
    body = Body(
        frequencies,
        read(estimate, np.flatnonzero(~unknown), results.method, frequencies),
        tuple(_set(query, estimate, results, level) for query in sets),
        tuple(_top(query, values, estimate, results, level) for query, values in most),
    )
    if results.method != "base":
        return body
    low, high = estimate.interval(level)
    body = replace(body, low=low, high=high)
    if not _is_counted(estimate):
        return body
    anytime_low, anytime_high = (None, None) if _is_memoised(estimate) else estimate.anytime_interval(level)
    return replace(
        body,
        anytime_low=anytime_low,
        anytime_high=anytime_high,
        poisoning_tolerance=np.where(unknown, np.nan, _written(tolerance(estimate, low, high))),
    )


def _counted(estimate: Estimate | FleetEstimate) -> Sequence[Estimate]:
    return [estimate] if isinstance(estimate, Estimate) else estimate.counted


def _is_counted(estimate: Estimate | FleetEstimate) -> bool:
    """Returns whether anytime-valid intervals and tolerances can be computed."""
    return all(one.counts is not None for one in _counted(estimate))


def _is_memoised(estimate: Estimate | FleetEstimate) -> bool:
    return any(one.memoised for one in _counted(estimate))


def _written(numbers: Vector) -> Vector:
    """Replaces infinite poisoning tolerances by −1."""
    return np.where(np.isinf(numbers), -1.0, numbers)


def _set(query: SetQuery, estimate: Estimate | FleetEstimate, results: _Results, level: float) -> SetAnswer:
    values = np.array(query.values, np.intp)
    if isinstance(estimate, FleetEstimate):
        return _set_of_fleet(query, values, estimate, results, level)
    frequency = read(estimate, values, results.method, results.frequencies)
    if results.method != "base":
        return SetAnswer(query, frequency)
    variance = query.variance(estimate.oracle)
    low, high = variance.interval(estimate, level)
    answer = SetAnswer(query, frequency, variance.std_error(estimate), low, high)
    if not _is_counted(estimate):
        return answer
    anytime = (None, None) if estimate.memoised else variance.anytime_interval(estimate, level)
    return _with_tolerance(answer, values, estimate, anytime)


def _set_of_fleet(
    query: SetQuery, values: Indices, estimate: FleetEstimate, results: _Results, level: float
) -> SetAnswer:
    """Returns the answer of the documents that have every value of the set."""
    having = estimate.fleet.having(values).items()
    ones = [(one, number, own) for number, own in having if (one := estimate.estimates[number])]
    known = sum(one.n for one, _, _ in ones)
    if not known:
        return SetAnswer(query, math.nan, known=0)
    frequency = sum(
        one.n / known * read(one, own, results.method, results.each[number]) for one, number, own in ones
    )
    answer = SetAnswer(query, frequency, known=None if known == estimate.n else known)
    if results.method != "base":
        return answer
    low, high = interval(estimate, values, level)
    answer = replace(answer, std_error=std_error(estimate, values), low=low, high=high)
    if not _is_counted(estimate):
        return answer
    memoised = any(one.memoised for one, _, _ in ones)
    return _with_tolerance(
        answer, values, estimate, (None, None) if memoised else anytime_interval(estimate, values, level)
    )


def _with_tolerance(
    answer: SetAnswer,
    values: Indices,
    estimate: Estimate | FleetEstimate,
    anytime: tuple[float | None, float | None],
) -> SetAnswer:
    assert answer.low is not None and answer.high is not None
    fewest = set_tolerance(estimate, values, answer.low, answer.high)
    return replace(
        answer,
        anytime_low=anytime[0],
        anytime_high=anytime[1],
        poisoning_tolerance=-1 if math.isinf(fewest) else int(fewest),
    )


def _top(
    query: TopQuery, values: Indices, estimate: Estimate | FleetEstimate, results: _Results, level: float
) -> TopAnswer:
    answer = TopAnswer(query, values, results.frequencies[values])
    counted, memoised = _is_counted(estimate), _is_memoised(estimate)
    several = isinstance(estimate, FleetEstimate)
    if results.method != "base" or (several and (memoised or not counted)):
        return answer
    low, high = estimate.top_bounds(values, level, "reports")
    answer = replace(answer, low=low, high=high)
    if not counted:
        return answer
    # the values are chosen by the data, so each of the d values gets 1/d of the error probability
    each = 1.0 - (1.0 - level) / results.frequencies.size
    anytime_low, anytime_high = (None, None) if memoised else estimate.anytime_interval(each, values)
    fewest = _written(tolerance(estimate, low, high, values))
    return replace(answer, anytime_low=anytime_low, anytime_high=anytime_high, poisoning_tolerance=fewest)
