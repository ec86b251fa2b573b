"""Takes a snapshot: computes the results of every method from an estimate."""

import hashlib
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ldp.consistency import chosen
from ldp.consistency.together import by_method
from ldp.oracles.explicit import ExplicitChannel
from ldp.oracles.rated_estimate import RatedEstimate
from ldp.poisoning import set_tolerance, tolerance
from ldp.query import Query, SetQuery, TopQuery, of_domain, read, top, top_interval
from ldp.snapshot.contents import (
    ALL_TIME,
    Body,
    Cut,
    Indices,
    Period,
    Recommended,
    SetAnswer,
    Snapshot,
    TopAnswer,
    Vector,
)
from ldp.snapshot.documents import shared_document

if TYPE_CHECKING:
    from ldp.estimate import Estimate
    from ldp.stream import Stream


def take(
    stream: "Stream",
    estimate: "Estimate",
    cut: Cut,
    sequence: int,
    queries: Iterable[Query] = (),
    level: float = 0.95,
    methods: Sequence[str] | None = None,
    recommended: Mapping[str, Recommended] | None = None,
    lineage: Mapping[str, str] | None = None,
    identity: str | None = None,
    window: Period = ALL_TIME,
    complete: bool | None = None,
    published: int | None = None,
) -> Snapshot:
    """Returns a snapshot of all results for an estimate. O(d log d).

    Args:
        stream: the stream.
        estimate: Base over the whole domain.
        cut: the counted records.
        sequence: the snapshot's number.
        queries: the queries to answer.
        level: confidence level of Base's intervals.
        methods: names of methods, at least one; by default all that apply to the domain.
        recommended: query name -> recommended method; names that are not in `queries` are ignored.
        lineage: with the fingerprint, identifies the source of the counts; None if the source is not a topic.
        identity: the head's identity, 32 hexadecimal digits. A window's identity is derived from it. By default, the
            identity is a hash of the head. A hash does not suffice if another snapshot can have the same number.
        window: the time window of the estimate. A window has no rules, documents, floors, progress or lineage.
        complete: whether the snapshot has all reports of the window; by default `cut.complete`.
        published: time of publication in ms since the epoch, not part of the default identity; None for a file.

    Raises:
        ValueError: methods that `chosen` refuses; queries that conflict or exceed the domain; a level outside (0, 1).

    Example:
        >>> import ldp
        >>> stream = ldp.Stream("colours", ldp.GRR(epsilon="1", domain_size=3), labels=("red", "green", "blue"))
        >>> snapshot = take(stream, stream.oracle.estimate([50, 30, 20], n=100), Cut({0: 100}, {}), sequence=1)
        >>> snapshot.reports, round(snapshot.bodies["norm-sub"].sum, 9)
        (100, 1.0)
    """
    if window != ALL_TIME:
        cut, lineage = Cut(cut.offsets, cut.gaps, cut.uncounted), None
        identity = identity and window_identity(identity, window.name, window.start)
    bodies = _bodies(estimate, queries := tuple(queries), methods, level)
    snapshot = replace(
        announce(stream, cut, sequence, lineage, identity or "", estimate.n, published),
        labels=stream.labels,
        complete=cut.complete if complete is None else complete,
        std_error=estimate.sigma,
        level=level,
        recommended={q.name: found for q in queries if (found := (recommended or {}).get(q.name))},
        bodies=bodies,
        window=window,
        documents=_documents(stream, estimate.n, cut) if window == ALL_TIME else (),
    )
    return snapshot if identity else replace(snapshot, identity=_identity(snapshot))


def announce(
    stream: "Stream",
    cut: Cut,
    sequence: int,
    lineage: Mapping[str, str] | None,
    identity: str,
    reports: int = 0,
    published: int | None = None,
) -> Snapshot:
    """Returns a snapshot that has only a head. For the arguments, see `take`."""
    return Snapshot(
        stream=stream.name,
        fingerprint=stream.fingerprint.hex(),
        document={key: value for key, value in stream.document().items() if key != "labels"},
        labels=None,
        sequence=sequence,
        identity=identity,
        lineage=None if lineage is None else dict(lineage),
        cut=cut,
        complete=cut.complete,
        reports=reports,
        std_error=0.0,
        level=0.0,
        recommended={},
        bodies={},
        epsilon=stream.oracle.spent if isinstance(stream.oracle, ExplicitChannel) else None,
        published=published,
        documents=_documents(stream, reports, cut),
    )


def _documents(stream: "Stream", reports: int, cut: Cut) -> tuple[dict[str, Any]]:
    """Returns the head's entry of the only document of a stream."""
    entry = {
        "fingerprint": stream.fingerprint.hex(),
        "document": json.loads(stream.hashed),
        "reports": reports,
    }
    return (entry | {"variance_share": 1.0, "retired": False, "partitions": len(cut.rules)},)


def window_identity(identity: str, name: str, start: int | None) -> str:
    """Derives the identity of a window from the identity of the head."""
    return _digest([identity, name, start])


def _identity(snapshot: Snapshot) -> str:
    """Returns the default identity, a hash of the fields of all messages.

    The hash does not include the time of publication.
    """
    shared = shared_document(snapshot)
    return _digest({name: value for name, value in shared.items() if name not in ("snapshot", "published")})


def _digest(content: object) -> str:
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()[:32]


def _bodies(
    estimate: "Estimate", queries: Iterable[Query], methods: Sequence[str] | None, level: float
) -> dict[str, Body]:
    sets, tops = of_domain(queries, estimate.oracle.domain_size)
    listed = [(query, np.array(query.values, np.intp)) for query in sets]
    most = [(query, top(estimate, query.k)) for query in tops]
    return {
        name: _body(name, vector, estimate, listed, most, level)
        for name, vector in by_method(estimate, chosen(methods, estimate.oracle.domain_size)).items()
    }


def _body(
    method: str,
    frequencies: Vector,
    estimate: "Estimate",
    sets: Sequence[tuple[SetQuery, Indices]],
    most: Sequence[tuple[TopQuery, Indices]],
    level: float,
) -> Body:
    everything = np.arange(estimate.oracle.domain_size)
    body = Body(
        frequencies,
        read(estimate, everything, method, frequencies),
        tuple(_set(query, values, estimate, method, frequencies, level) for query, values in sets),
        tuple(_top(query, values, estimate, method, frequencies, level) for query, values in most),
    )
    if method != "base":
        return body
    low, high = estimate.interval(level)
    body = replace(body, low=low, high=high)
    if not _is_counted(estimate):
        return body
    anytime_low, anytime_high = (None, None) if estimate.memoised else estimate.anytime_interval(level)
    return replace(
        body,
        anytime_low=anytime_low,
        anytime_high=anytime_high,
        poisoning_tolerance=_written(tolerance(estimate, low, high)),
        by_rate=estimate.state if isinstance(estimate, RatedEstimate) else None,
    )


def _is_counted(estimate: "Estimate") -> bool:
    """Returns whether anytime-valid intervals and tolerances can be computed."""
    return estimate.counts is not None or isinstance(estimate, RatedEstimate)


def _written(numbers: Vector) -> Vector:
    """Replaces infinite poisoning tolerances by −1."""
    return np.where(np.isinf(numbers), -1.0, numbers)


def _set(
    query: SetQuery, values: Indices, estimate: "Estimate", method: str, frequencies: Vector, level: float
) -> SetAnswer:
    frequency = read(estimate, values, method, frequencies)
    if method != "base":
        return SetAnswer(query, frequency)
    variance = query.variance(estimate.oracle)
    low, high = variance.interval(estimate, level)
    answer = SetAnswer(query, frequency, variance.std_error(estimate), low, high)
    if not _is_counted(estimate):
        return answer
    anytime_low, anytime_high = (
        (None, None) if estimate.memoised else variance.anytime_interval(estimate, level)
    )
    fewest = set_tolerance(estimate, values, low, high)
    return replace(
        answer,
        anytime_low=anytime_low,
        anytime_high=anytime_high,
        poisoning_tolerance=-1 if math.isinf(fewest) else int(fewest),
    )


def _top(
    query: TopQuery, values: Indices, estimate: "Estimate", method: str, frequencies: Vector, level: float
) -> TopAnswer:
    answer = TopAnswer(query, values, frequencies[values])
    if method != "base":
        return answer
    low, high = top_interval(estimate, query.k, level)
    answer = replace(answer, low=low, high=high)
    if not _is_counted(estimate):
        return answer
    # the values are chosen by the data, so each of the d values gets 1/d of the error probability
    each = 1.0 - (1.0 - level) / estimate.oracle.domain_size
    anytime_low, anytime_high = (None, None) if estimate.memoised else estimate.anytime_interval(each, values)
    fewest = _written(tolerance(estimate, low, high, values))
    return replace(answer, anytime_low=anytime_low, anytime_high=anytime_high, poisoning_tolerance=fewest)
