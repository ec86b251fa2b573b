"""Comparison of one partition's stored counts with its log."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from types import MappingProxyType
from typing import Any

from worker.audit.differences import compare, compare_partly
from worker.audit.errors import Difference
from worker.audit.history import History
from worker.audit.parsing import Documents, Limits
from worker.audit.published import Partly, Published
from worker.audit.records import Caps, Deleted, Range, Records
from worker.audit.recount import Recount, recount
from worker.audit.stored import Stored, StoredCut, decode, ranges_of, ruled, rules_of
from worker.audit.verdict import PartitionVerdict

_Read = Callable[[int, int, Caps], Iterable[Records | Deleted]]
_LOST = "the counts were lost, or another Redis has them"


def assess(
    documents: Documents,
    partition: int,
    *,
    stream: str,
    group: str,
    cut: StoredCut,
    bounds: tuple[int, int],
    read: _Read,
    topic_id: str | None = None,
    committed: tuple[int, str] = (0, ""),
    head: Mapping[str, Any] = MappingProxyType({}),
    published: Published | None = None,
) -> PartitionVerdict:
    """Returns the verdict on one partition.

    `documents` are the configured ones, and `head` is the newest head. The partition is counted by the recorded
    documents. The caller must read `committed` before `cut`, and `bounds` after `cut`. `read` yields the committed
    records of [from, to), and the ranges that are deleted during the read.
    """
    begin, end = bounds
    verdict = PartitionVerdict(partition, None, 0, end - begin)
    try:
        stored = decode(*cut, f"{stream}:{partition}", group, topic_id, documents)
        if stored is None:
            _expect_uncounted(committed[1], head.get("offsets", {}).get(str(partition), 0))
            return verdict
        verdict = replace(verdict, start=stored.start, offset=stored.offset, lag=max(0, end - stored.offset))
        _expect_agrees_with_kafka(stored, partition, begin, head, committed)
        published = published or Published(documents, ())
        counted, history, deleted = _recounted(partition, stored, bounds, read, published)
        verdict = replace(
            verdict,
            records=counted.accepted + counted.rejected.total(),
            reports=counted.reports,
            rejected=dict(sorted(counted.rejected.items())),
            late=counted.late.total(),
            panes=len(stored.cells) - 1,
        )
        if deleted:
            compare_partly(stored, counted, history, deleted)
        else:
            compare(stored, counted, history)
        message = _message(stored.gaps, deleted, verdict.records)
        return replace(verdict, gaps=tuple(stored.gaps), deleted=tuple(deleted), difference=message)
    except Difference as difference:
        return replace(verdict, difference=str(difference))


def _expect_uncounted(offset_metadata: str, published: int) -> None:
    if offset_metadata not in ("", "claimed"):
        raise Difference(f"no counts in Redis, but Kafka's group has counted progress: {_LOST}")
    if published:
        raise Difference(
            f"no counts in Redis, but a snapshot was published of offsets up to {published}: {_LOST}"
        )


def _expect_agrees_with_kafka(
    stored: Stored, partition: int, begin: int, head: Mapping[str, Any], committed: tuple[int, str]
) -> None:
    offset, said, listed = (
        head.get(field, {}).get(str(partition), default)
        for field, default in (("offsets", 0), ("floors", None), ("rules", ()))
    )
    if committed[1] == "counted" and stored.offset < committed[0]:
        raise Difference(
            f"offset: {stored.offset} in Redis, {committed[0]} counted by Kafka's group: another Redis has the rest, or"
            " this Redis was reset and has not caught up"
        )
    if stored.offset < min(begin, offset):
        raise Difference(
            f"offset: {stored.offset} in Redis, {offset} in the newest snapshot, and the log begins at {begin}:"
            " the counts in between are lost"
        )
    there = stored.admitted_from
    if there is not None and said is not None and there != said:
        raise Difference(f"admitted_from: {there} in Redis, {said} in the newest snapshot")
    try:
        own = rules_of(listed, next((one["fingerprint"] for one in head.get("documents", ())), ""))
    except (KeyError, ValueError, TypeError) as error:
        raise Difference(f"rules: the newest snapshot's rules cannot be read ({error!r})") from None
    known, more = stored.rules[: len(own)], stored.rules[len(own) :]
    if stored.offset >= offset and own and (known != own or any(at < offset for at, _ in more)):
        raise Difference(f"rules: {_listed(stored.rules)} in Redis, {_listed(own)} in the newest snapshot")


def _listed(rules: Sequence[tuple[int, Limits]]) -> str:
    return "; ".join(f"from offset {at} {limits}" for at, limits in rules)


def _recounted(
    partition: int,
    stored: Stored,
    bounds: tuple[int, int],
    read: _Read,
    published: Published,
) -> tuple[Recount, History, list[Range]]:
    ranges, deleted = ranges_of(stored, *bounds)
    caps = [(offset, limits.batch) for offset, limits in stored.rules]

    def remaining(first: int, last: int) -> Iterator[Records]:
        for item in read(first, last, caps):
            if isinstance(item, Deleted):
                deleted.append(item.span)
            else:
                yield item

    floors = [*stored.readmitted, (stored.offset + 1, stored.admitted_from or 0)]

    def floor_at(offset: int) -> list[int]:
        return [floor for (at, _), (_, floor) in pairwise(floors) if at <= offset]

    history = History(stored)
    counted = Recount(closed=floors[0][1], evicted_to=stored.evicted_to)
    partly = Partly(published, partition, stored, history, deleted)
    for first, last, limits in ruled(stored, ranges):
        history.reach(first, counted)
        counted.closed = max([counted.closed, *floor_at(first)])
        named = {name: stored.documents[name] for name in limits.documents}
        counted = recount(named, partly.cut(remaining(first, last), last), limits, counted, partly.wanted)
    history.reach(stored.offset, counted)
    counted.closed = max([counted.closed, *(floor for _, floor in floors[1:])])
    # snapshots may name offsets in a deleted range
    counted = recount({}, partly.cut((), stored.offset), onto=counted, kept=partly.wanted)
    partly.end(counted)
    return counted, history, deleted


def _message(gaps: Sequence[Range], deleted: Sequence[Range], records: int) -> str | None:
    parts = []
    if gaps:
        lost = ", ".join(_offsets(*gap) for gap in gaps)
        parts.append(f"gap: {lost}: deleted before they were counted")
    if deleted:
        gone = ", ".join(_offsets(*span) for span in deleted)
        parts.append(f"not recountable: {gone}: counted, then deleted")
        parts.append(f"{records:,} remaining records match" if records else "no record remains")
    elif gaps:
        parts.append("all other counts match the log")
    return "; ".join(parts) or None


def _offsets(begin: int, end: int) -> str:
    return f"offset {begin}" if end == begin + 1 else f"offsets {begin} to {end - 1}"
