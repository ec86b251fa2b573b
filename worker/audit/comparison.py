"""The comparison of what is stored of a partition with what its log amounts to; knows neither Kafka nor Redis."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from worker.audit.errors import Difference
from worker.audit.parsing import fingerprint_of
from worker.audit.protocols import protocol_of
from worker.audit.records import Caps, Deleted, Records, Stretch
from worker.audit.recount import Recount, recount
from worker.audit.stored import Stored, StoredCut, decode, ruled, stretches_of
from worker.audit.verdict import PartitionVerdict

_Read = Callable[[int, int, Caps], Iterable[Records | Deleted]]
"""The committed records of [from, to), and what of it was deleted while it was read; of batches within the caps."""


def judge(
    document: Mapping[str, Any],
    partition: int,
    *,
    group: str,
    cut: StoredCut,
    bounds: tuple[int, int],
    read: _Read,
    offset_metadata: str = "",
    published: int = 0,
) -> PartitionVerdict:
    """Judges what is stored of one partition; knows neither Kafka nor Redis.

    Args:
        document: the stream's public document.
        partition: its number.
        group: the consumer group that counts the stream.
        cut: the metadata's fields and the blobs by window, as stored together.
        bounds: the log's first offset and its last stable one, read after the cut.
        read: the committed records of [from, to), and what of it was deleted while it was read; a batch that is over
            the cap at its first offset is unreadable.
        offset_metadata: the metadata of the offset that the group has committed; other than "claimed", progress was
            counted.
        published: the offset up to which the newest snapshot says it was counted, or 0.
    """
    begin, end = bounds
    verdict = PartitionVerdict(partition, None, 0, end - begin)
    try:
        protocol = protocol_of(document)
        stored = decode(*cut, group, fingerprint_of(document), protocol.entries)
        if stored is None:
            _expect_uncounted(offset_metadata, published)
            return verdict
        verdict = replace(verdict, start=stored.start, offset=stored.offset, lag=max(0, end - stored.offset))
        if stored.offset < min(begin, published):
            raise Difference(
                f"offset: {stored.offset} in Redis, {published} in the newest snapshot, and the log begins at {begin}:"
                " what was counted in between is lost"
            )
        counted, deleted = _recounted(document, stored, bounds, read)
        verdict = replace(
            verdict,
            records=counted.accepted + counted.rejected.total(),
            reports=counted.reports,
            rejected=dict(sorted(counted.rejected.items())),
        )
        if deleted:
            _compare_partly(stored, counted, deleted, protocol.ones)
        else:
            _compare(stored, counted)
        said = _said(stored.gaps, deleted, verdict.records)
        return replace(verdict, gaps=tuple(stored.gaps), deleted=tuple(deleted), difference=said)
    except Difference as difference:
        return replace(verdict, difference=str(difference))


def _expect_uncounted(offset_metadata: str, published: int) -> None:
    """Sees that nothing says that a partition was counted of which nothing is stored.

    Raises:
        Difference: Kafka's group or a snapshot says so.
    """
    if offset_metadata not in ("", "claimed"):
        raise Difference("nothing in Redis, but Kafka's group has counted progress: the counts were lost")
    if published:
        raise Difference(
            f"nothing in Redis, but a snapshot was published of offsets up to {published}: the counts were lost"
        )


def _recounted(
    document: Mapping[str, Any], stored: Stored, bounds: tuple[int, int], read: _Read
) -> tuple[Recount, list[Stretch]]:
    """Returns what the records that were counted amount to, and which of them are deleted, before or meanwhile."""
    stretches, deleted = stretches_of(stored, *bounds)
    caps = [(offset, limits.batch) for offset, limits in stored.rules]

    def remaining(first: int, last: int) -> Iterator[Records]:
        for item in read(first, last, caps):
            if isinstance(item, Deleted):
                deleted.append(item.stretch)
            else:
                yield item

    counted = recount(document, ())
    for first, last, limits in ruled(stored, stretches):
        counted = recount(document, remaining(first, last), limits, onto=counted)
    return counted, deleted


def _said(gaps: Sequence[Stretch], deleted: Sequence[Stretch], records: int) -> str | None:
    """Says what keeps a partition from being equal where nothing differs."""
    said = []
    if gaps:
        lost = ", ".join(_lost(*gap) for gap in gaps)
        said.append(f"gap: {lost}: recorded as lost, deleted before they were counted")
    if deleted:
        gone = ", ".join(_lost(*stretch) for stretch in deleted)
        said.append(f"not recountable: {gone}: counted, then deleted")
        said.append(f"nothing differs in what remains: {records:,} records" if records else "none remains")
    elif gaps:
        said.append("all else equals the log")
    return "; ".join(said) or None


def _lost(begin: int, end: int) -> str:
    """Names the offsets of [begin, end)."""
    return f"offset {begin}" if end == begin + 1 else f"offsets {begin} to {end - 1}"


def _compare(stored: Stored, counted: Recount) -> None:
    """Compares everything that is kept of a partition, but for its gaps.

    Raises:
        Difference: the first one.
    """
    reasons = sorted({*stored.rejected, *counted.rejected})
    for what, held, found in (
        ("accepted", stored.accepted, counted.accepted),
        *(
            (f"rejected as {reason}", stored.rejected.get(reason, 0), counted.rejected[reason])
            for reason in reasons
        ),
        ("late", stored.late, 0),
        ("watermark", stored.watermark, counted.watermark),
        ("reports", stored.reports, counted.reports),
    ):
        if held != found:
            raise Difference(f"{what}: {held} in Redis, {found} recounted")
    differing = np.flatnonzero(stored.state != counted.state)
    if len(differing):
        v = int(differing[0])
        raise Difference(
            f"state[{v}]: {stored.state[v]} in Redis, {counted.state[v]} recounted; "
            f"{len(differing)} of {len(stored.state)} entries differ"
        )


def _compare_partly(stored: Stored, counted: Recount, deleted: Sequence[Stretch], ones: int | None) -> None:
    """Compares what is kept of a partition with what remains of its records: can the rest be counts of records, too?

    Args:
        stored: what is kept.
        counted: what the remaining records amount to.
        deleted: the stretches whose records are gone.
        ones: what each report adds to the state's sum, if that is the same for all.

    Raises:
        Difference: what remains is more than what is stored, or no records of the deleted stretches make the rest.
    """
    reasons = sorted({*stored.rejected, *counted.rejected})
    for what, held, found in (
        ("accepted", stored.accepted, counted.accepted),
        *(
            (f"rejected as {reason}", stored.rejected.get(reason, 0), counted.rejected[reason])
            for reason in reasons
        ),
        ("reports", stored.reports, counted.reports),
    ):
        if held < found:
            raise Difference(f"{what}: {held} in Redis, {found} recounted of what remains")
    if stored.late:
        raise Difference(f"late: {stored.late} in Redis, 0 recounted")
    if len(fewer := np.flatnonzero(stored.state < counted.state)):
        v = int(fewer[0])
        raise Difference(
            f"state[{v}]: {stored.state[v]} in Redis, {counted.state[v]} recounted of what remains; "
            f"{len(fewer)} of {len(stored.state)} entries are too small"
        )
    # the rest: what the deleted records must have amounted to
    accepted = stored.accepted - counted.accepted
    records = accepted + sum(stored.rejected.values()) - counted.rejected.total()
    reports, state = stored.reports - counted.reports, stored.state - counted.state
    offsets = sum(end - begin for begin, end in deleted)
    watermark, least = stored.watermark, counted.watermark
    marks = (
        (watermark is not None and (least is None or watermark >= least)) if accepted else watermark == least
    )
    if records > offsets:
        raise Difference(f"records: {offsets} offsets were deleted, {records} records were counted there")
    if reports < accepted or (reports and not accepted):
        raise Difference(f"reports: {reports} of {accepted} accepted records that were deleted")
    if not marks:
        raise Difference(f"watermark: {watermark} in Redis, {least} recounted of what remains")
    if len(more := np.flatnonzero(state > reports)):
        v = int(more[0])
        raise Difference(
            f"state[{v}]: {state[v]} of {reports} deleted reports; {len(more)} of {len(state)} entries are too large"
        )
    if ones is not None and (total := int(state.sum())) != ones * reports:
        raise Difference(f"state: the sum of {reports} deleted reports is {total}, {ones * reports} is due")
