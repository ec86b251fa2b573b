"""Takes a snapshot: computes the results of every method from an estimate."""

import hashlib
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ldp.estimate import Estimate
from ldp.fleet import Fleet, FleetEstimate
from ldp.oracles.explicit import ExplicitChannel
from ldp.query import Query
from ldp.snapshot.answering import bodies
from ldp.snapshot.contents import ALL_TIME, Cut, Indices, Period, Recommended, Snapshot
from ldp.snapshot.documents import counted, shared_document
from ldp.stream import Stream


def take(
    stream: Stream | Fleet,
    estimate: Estimate | FleetEstimate,
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
    part: str | None = None,
    fewest: int = 1,
) -> Snapshot:
    """Returns a snapshot of all results for an estimate. O(d log d).

    Args:
        stream: the stream, or its documents in the order in which they were added.
        estimate: Base over the whole domain.
        cut: the counted records.
        sequence: the snapshot's number.
        queries: the queries to answer.
        level: confidence level of Base's intervals.
        methods: names of methods, at least one; by default all that apply to the domain.
        recommended: query name -> recommended method; names that are not in `queries` are ignored.
        lineage: with the fingerprint, identifies the source of the counts; None if the source is not a topic.
        identity: the head's identity, 32 hexadecimal digits. By default a hash, if no other snapshot has the number.
        window: the time window of the estimate. Windows and parts have no rules, floors, progress or lineage.
        complete: whether the snapshot has all reports of the window; by default `cut.complete`.
        published: time of publication in ms since the epoch, not part of the default identity; None for a file.
        part: name of the part (`part_of`) that has the documents and the estimate; None for all reports.
        fewest: reports that a label needs to be most frequent in a population; at most the highest number.

    Raises:
        ValueError: methods that `chosen` refuses; queries that conflict or exceed the domain; a level outside (0, 1).

    Example:
        >>> import ldp
        >>> stream = ldp.Stream("colours", ldp.GRR(epsilon="1", domain_size=3), labels=("red", "green", "blue"))
        >>> snapshot = take(stream, stream.oracle.estimate([50, 30, 20], n=100), Cut({0: 100}, {}), sequence=1)
        >>> snapshot.reports, round(snapshot.bodies["norm-sub"].sum, 9)
        (100, 1.0)
    """
    estimate, queries = _of_one(estimate), tuple(queries)
    head = _head(stream, _reports(estimate), cut, sequence, lineage, identity or "", published)
    snapshot = replace(
        head if part is None and window == ALL_TIME else _in_part(head, part, window),
        labels=stream.labels,
        complete=cut.complete if complete is None else complete,
        std_error=_std_error(estimate),
        level=level,
        recommended={q.name: found for q in queries if (found := (recommended or {}).get(q.name))},
        bodies=bodies(estimate, queries, methods, level, fewest),
        known=_known(estimate),
    )
    return snapshot if identity else replace(snapshot, identity=_identity(snapshot))


def announce(
    stream: Stream | Fleet,
    cut: Cut,
    sequence: int,
    lineage: Mapping[str, str] | None,
    identity: str,
    reports: int = 0,
    published: int | None = None,
) -> Snapshot:
    """Returns a snapshot that has only a head. For the arguments, see `take`."""
    others = [0] * (len(_documents(stream)) - 1)
    return _head(stream, [reports, *others], cut, sequence, lineage, identity, published)


def _head(
    stream: Stream | Fleet,
    reports: Sequence[int],
    cut: Cut,
    sequence: int,
    lineage: Mapping[str, str] | None,
    identity: str,
    published: int | None,
) -> Snapshot:
    """Returns the head, for the number of reports of each document."""
    first, *others = _documents(stream)
    document = {key: value for key, value in first.document().items() if key != "labels"}
    return Snapshot(
        stream=first.name,
        fingerprint=first.fingerprint.hex(),
        document={} if others else document,
        labels=None,
        sequence=sequence,
        identity=identity,
        lineage=None if lineage is None else dict(lineage),
        cut=cut,
        complete=cut.complete,
        reports=sum(reports),
        std_error=0.0,
        level=0.0,
        recommended={},
        bodies={},
        epsilon=first.oracle.spent if isinstance(first.oracle, ExplicitChannel) and not others else None,
        published=published,
        documents=_entries(stream, reports, cut),
    )


def _in_part(head: Snapshot, part: str | None, window: Period) -> Snapshot:
    """Returns the head with the fields of a part or window.

    The identities of parts and windows are derived from the head's identity, because their messages stay on the topic
    after later heads.
    """
    identity, documents = head.identity, head.documents
    if part is not None:
        identity = identity and part_identity(identity, part)
    if window != ALL_TIME:
        identity = identity and window_identity(identity, window.name, window.start)
        documents = tuple(map(counted, documents)) if head.is_population else ()
    return replace(
        head,
        stream=part or head.stream,
        identity=identity,
        cut=Cut(head.cut.offsets, head.cut.gaps, head.cut.uncounted),
        lineage=None,
        window=window,
        documents=documents,
    )


def _of_one(estimate: Estimate | FleetEstimate) -> Estimate | FleetEstimate:
    """Returns the estimate of the document, if there is only one."""
    several = isinstance(estimate, FleetEstimate) and len(estimate.estimates) > 1
    return estimate if several or isinstance(estimate, Estimate) else estimate.counted[0]


def _documents(stream: Stream | Fleet) -> tuple[Stream, ...]:
    return stream.documents if isinstance(stream, Fleet) else (stream,)


def _reports(estimate: Estimate | FleetEstimate) -> list[int]:
    """Returns the number of reports of each document."""
    each = estimate.estimates if isinstance(estimate, FleetEstimate) else (estimate,)
    return [0 if one is None else one.n for one in each]


def _known(estimate: Estimate | FleetEstimate) -> Indices | None:
    """Returns the number of reports for each label; None if it is all reports."""
    if isinstance(estimate, Estimate) or (estimate.known == estimate.n).all():
        return None
    return estimate.known


def _entries(stream: Stream | Fleet, reports: Sequence[int], cut: Cut) -> tuple[dict[str, Any], ...]:
    """Returns the head's entries of the documents of a stream.

    Document r contributes n_r·V_r/n² to the variance, where V_r is the variance of one report (Equation 5). Without
    reports, all n_r are taken as equal.
    """
    documents = _documents(stream)
    retired = stream.retired if isinstance(stream, Fleet) else frozenset()
    oracles = [document.oracle for document in documents]
    weights = reports if any(reports) else [1] * len(reports)
    variances = [
        float(n * one.q * (1 - one.q) / (one.p - one.q) ** 2) for n, one in zip(weights, oracles, strict=True)
    ]
    total = sum(variances)
    return tuple(
        {
            "fingerprint": document.fingerprint.hex(),
            "document": json.loads(document.hashed),
            "reports": n,
            "variance_share": variance / total,
            "retired": document.fingerprint in retired,
            "partitions": sum(_accepts(rules, document, documents[0]) for rules in cut.rules.values()),
        }
        for document, n, variance in zip(documents, reports, variances, strict=True)
    )


def _accepts(rules: Sequence[Mapping[str, Any]], document: Stream, oldest: Stream) -> bool:
    """Returns whether a partition with these rules accepts a document."""
    first = {"documents": {oldest.fingerprint.hex(): [0, False]}}  # a first rule can omit it
    named = [rule.get("documents", {}) for rule in (first | {**next(iter(rules), {})}, *rules[1:])]
    name = document.fingerprint.hex()
    found = [statuses[name] for statuses in named if name in statuses]
    return bool(found) and not max(found)[1]


def part_identity(identity: str, part: str) -> str:
    """Derives the identity of a part from the identity of the head."""
    return _digest([identity, part])


def window_identity(identity: str, name: str, start: int | None) -> str:
    """Derives the identity of a window from the identity of the head or part."""
    return _digest([identity, name, start])


def _identity(snapshot: Snapshot) -> str:
    """Returns the default identity, a hash of the fields of all messages.

    The hash does not include the time of publication.
    """
    shared = shared_document(snapshot)
    return _digest({name: value for name, value in shared.items() if name not in ("snapshot", "published")})


def _digest(content: object) -> str:
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()[:32]


def _std_error(estimate: Estimate | FleetEstimate) -> float:
    """Returns the standard error at frequency 0, for labels of all documents."""
    if isinstance(estimate, Estimate):
        return estimate.sigma
    return math.sqrt(sum((one.n * one.sigma) ** 2 for one in estimate.counted)) / estimate.n
