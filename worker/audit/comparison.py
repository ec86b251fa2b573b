"""The comparison of what is stored of a partition with what its log amounts to; knows neither Kafka nor Redis."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from worker.audit.differences import compare
from worker.audit.errors import Difference
from worker.audit.history import History
from worker.audit.parsing import Limits, fingerprint_of
from worker.audit.protocols import protocol_of
from worker.audit.published import Published
from worker.audit.records import Caps, Deleted, Records, Stretch
from worker.audit.recount import Recount, recount
from worker.audit.remains import compare_partly
from worker.audit.stored import Stored, StoredCut, decode, ruled, rules_of, stretches_of
from worker.audit.verdict import PartitionVerdict

_Read = Callable[[int, int, Caps], Iterable[Records | Deleted]]
"""The committed records of [from, to), and what of it was deleted while it was read; of batches within the caps."""
_LOST = "the counts were lost, or another Redis has them"


@dataclass(frozen=True)
class Newest:
    """What the newest snapshot says of a partition.

    Attributes:
        offset: the one up to which it was counted, or 0.
        floor: its floor, if any.
        rules: by what it was counted, as they are written.
    """

    offset: int = 0
    floor: int | None = None
    rules: Sequence[Mapping[str, Any]] = ()


def judge(
    document: Mapping[str, Any],
    partition: int,
    *,
    stream: str,
    group: str,
    cut: StoredCut,
    bounds: tuple[int, int],
    read: _Read,
    topic_id: str | None = None,
    committed: tuple[int, str] = (0, ""),
    newest: Newest = Newest(),  # frozen
    published: Published | None = None,
) -> PartitionVerdict:
    """Judges what is stored of one partition; knows neither Kafka nor Redis.

    Args:
        document: the stream's public document.
        partition: its number.
        stream: the stream's name.
        group: the consumer group that counts the stream.
        cut: the metadata's fields and the blobs by window, as stored together.
        bounds: the log's first offset and its last stable one, read after the cut.
        read: the committed records of [from, to), and what of it was deleted while it was read; a batch that is over
            the cap at its first offset is unreadable.
        topic_id: the id that Kafka has of the topic, where it was asked.
        committed: the offset that the group has committed and its metadata, read before the cut; other than "claimed",
            progress was counted.
        newest: what the newest snapshot says of it.
        published: what is published of the stream, which is told what this partition has of it.
    """
    begin, end = bounds
    verdict = PartitionVerdict(partition, None, 0, end - begin)
    try:
        protocol = protocol_of(document)
        entries, place = protocol.entries, f"{stream}:{partition}"
        stored = decode(*cut, place, group, topic_id, fingerprint_of(document), entries)
        if stored is None:
            _expect_uncounted(committed[1], newest.offset)
            return verdict
        verdict = replace(verdict, start=stored.start, offset=stored.offset, lag=max(0, end - stored.offset))
        _expect_published(stored, begin, newest)
        _expect_committed(stored, committed)
        published = published or Published(document, (), 0)
        counted, history, deleted = _recounted(document, partition, stored, bounds, read, published)
        verdict = _with_counts(verdict, counted, len(stored.cells) - 1)
        if deleted:
            compare_partly(stored, counted, history, deleted, protocol.ones)
        else:
            compare(stored, counted, history)
        said = _said(stored.gaps, deleted, verdict.records)
        return replace(verdict, gaps=tuple(stored.gaps), deleted=tuple(deleted), difference=said)
    except Difference as difference:
        return replace(verdict, difference=str(difference))


def _with_counts(verdict: PartitionVerdict, counted: Recount, panes: int) -> PartitionVerdict:
    """Adds what was recounted to a verdict."""
    return replace(
        verdict,
        records=counted.accepted + counted.rejected.total(),
        reports=counted.reports,
        rejected=dict(sorted(counted.rejected.items())),
        late=counted.late.total(),
        panes=panes,
    )


def _expect_uncounted(offset_metadata: str, published: int) -> None:
    """Sees that nothing says that a partition was counted of which nothing is stored.

    Raises:
        Difference: Kafka's group or a snapshot says so.
    """
    if offset_metadata not in ("", "claimed"):
        raise Difference(f"nothing in Redis, but Kafka's group has counted progress: {_LOST}")
    if published:
        raise Difference(
            f"nothing in Redis, but a snapshot was published of offsets up to {published}: {_LOST}"
        )


def _expect_committed(stored: Stored, committed: tuple[int, str]) -> None:
    """Sees that the group has not counted more than is stored: else another Redis has the rest.

    Raises:
        Difference: it has.
    """
    offset, metadata = committed
    if metadata == "counted" and stored.offset < offset:
        raise Difference(
            f"offset: {stored.offset} in Redis, {offset} counted by Kafka's group: another Redis has the rest, or this"
            " one was set back and is not counted on yet"
        )


def _expect_published(stored: Stored, begin: int, newest: Newest) -> None:
    """Sees that what the newest snapshot says can come of what is stored, in a log that begins there.

    Raises:
        Difference: it cannot.
    """
    offset, floor = newest.offset, newest.floor
    if stored.offset < min(begin, offset):
        raise Difference(
            f"offset: {stored.offset} in Redis, {offset} in the newest snapshot, and the log begins at {begin}:"
            " what was counted in between is lost"
        )
    if stored.floor is not None and floor is not None and stored.floor != floor:
        raise Difference(f"floor: {stored.floor} in Redis, {floor} in the newest snapshot")
    try:
        own = rules_of(newest.rules)
    except (KeyError, ValueError, TypeError) as error:
        raise Difference(f"rules: those of the newest snapshot cannot be read ({error!r})") from None
    more = stored.rules[len(own) :]
    if (
        stored.offset >= offset
        and own
        and (stored.rules[: len(own)] != own or any(at < offset for at, _ in more))
    ):
        raise Difference(f"rules: {_listed(stored.rules)} in Redis, {_listed(own)} in the newest snapshot")


def _listed(rules: Sequence[tuple[int, Limits]]) -> str:
    return "; ".join(f"from offset {at} {limits}" for at, limits in rules)


def _recounted(
    document: Mapping[str, Any],
    partition: int,
    stored: Stored,
    bounds: tuple[int, int],
    read: _Read,
    published: Published,
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

    floors = [*stored.readmitted, (stored.offset + 1, stored.floor or 0)]
    history = History(stored)
    counted = Recount.of_nothing(document, floors[0][1], stored.dropped)
    partly = published.of(partition, stored, history, deleted)
    for first, last, limits in ruled(stored, stretches):
        history.reach(first, counted)
        counted.closed = max(
            [counted.closed, *(floor for (at, _), (_, floor) in pairwise(floors) if at <= first)]
        )
        records = partly.cut(remaining(first, last), last)
        counted = recount(document, records, limits, counted, partly.wanted)
    history.reach(stored.offset, counted)
    counted.closed = max([counted.closed, *(floor for (at, _), (_, floor) in pairwise(floors))])
    # what snapshots name may lie where nothing is read, too
    counted = recount(document, partly.cut((), stored.offset), onto=counted, kept=partly.wanted)
    partly.end(counted)
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
