"""The comparison of what is stored of a partition with what its log amounts to; knows neither Kafka nor Redis."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from worker.audit.differences import compare
from worker.audit.errors import Difference
from worker.audit.finals import Finals, Partly
from worker.audit.history import History
from worker.audit.parsing import fingerprint_of
from worker.audit.protocols import protocol_of
from worker.audit.records import Caps, Deleted, Records, Stretch
from worker.audit.recount import Recount, recount
from worker.audit.remains import compare_partly
from worker.audit.stored import Stored, StoredCut, decode, ruled, stretches_of
from worker.audit.verdict import PartitionVerdict

_Read = Callable[[int, int, Caps], Iterable[Records | Deleted]]
"""The committed records of [from, to), and what of it was deleted while it was read; of batches within the caps."""
Published = tuple[int, int | None]
"""What the newest snapshot says of a partition: the offset up to which it was counted, or 0, and its floor, if any."""


def judge(
    document: Mapping[str, Any],
    partition: int,
    *,
    group: str,
    cut: StoredCut,
    bounds: tuple[int, int],
    read: _Read,
    offset_metadata: str = "",
    published: Published = (0, None),
    finals: Finals | None = None,
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
        published: what the newest snapshot says of it.
        finals: the stream's final windows, which are told what this partition has of them.
    """
    begin, end = bounds
    verdict = PartitionVerdict(partition, None, 0, end - begin)
    try:
        protocol = protocol_of(document)
        stored = decode(*cut, group, fingerprint_of(document), protocol.entries)
        if stored is None:
            _expect_uncounted(offset_metadata, published[0])
            return verdict
        verdict = replace(verdict, start=stored.start, offset=stored.offset, lag=max(0, end - stored.offset))
        _expect_published(stored, begin, *published)
        finals = finals or Finals(document, (), 0)
        counted, history, deleted = _recounted(
            document, stored, bounds, read, finals.of(partition, stored.rules, stored.cells.keys())
        )
        verdict = replace(
            verdict,
            records=counted.accepted + counted.rejected.total(),
            reports=counted.reports,
            rejected=dict(sorted(counted.rejected.items())),
            late=counted.late.total(),
            panes=len(stored.cells) - 1,
        )
        if deleted:
            finals.spoiled.add(partition)
            compare_partly(stored, counted, history, deleted, protocol.ones)
        else:
            compare(stored, counted, history)
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


def _expect_published(stored: Stored, begin: int, offset: int, floor: int | None) -> None:
    """Sees that what the newest snapshot says can come of what is stored, in a log that begins there.

    Raises:
        Difference: it cannot.
    """
    if stored.offset < min(begin, offset):
        raise Difference(
            f"offset: {stored.offset} in Redis, {offset} in the newest snapshot, and the log begins at {begin}:"
            " what was counted in between is lost"
        )
    if stored.floor is not None and floor is not None and stored.floor != floor:
        raise Difference(f"floor: {stored.floor} in Redis, {floor} in the newest snapshot")


def _recounted(
    document: Mapping[str, Any], stored: Stored, bounds: tuple[int, int], read: _Read, finals: Partly
) -> tuple[Recount, History, list[Stretch]]:
    """Returns what the records that were counted amount to, and which of them are deleted, before or meanwhile."""
    stretches, deleted = stretches_of(stored, *bounds)
    caps = [(offset, limits.batch) for offset, limits in stored.rules]

    def remaining(first: int, last: int) -> Iterator[Records]:
        for item in read(first, last, caps):
            if isinstance(item, Deleted):
                deleted.append(item.stretch)
            else:
                yield item

    history = History(stored)
    counted = Recount.of_nothing(document, stored.floor or 0, stored.dropped)
    for first, last, limits in ruled(stored, stretches):
        history.reach(first, counted)
        records = finals.cut(remaining(first, last), last)
        counted = recount(document, records, limits, counted, finals.wanted)
    # what final windows name may lie where nothing is read, too
    counted = recount(document, finals.cut((), stored.offset), onto=counted, kept=finals.wanted)
    finals.end(counted)
    history.reach(stored.offset, counted)
    return counted, history, deleted


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
