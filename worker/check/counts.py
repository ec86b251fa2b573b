"""Comparison of the counts in Redis with Kafka and the newest snapshot."""

from collections.abc import Mapping

from worker.check.finding import Fault, Finding, Level
from worker.config import Config, Served
from worker.counting import layout, rules
from worker.counting.changed import NEW_NAME, changes, remedy
from worker.counting.documents import unnamed
from worker.counting.head import Head
from worker.counting.lineage import differing, lineage_of, newer
from worker.counting.ports import CLAIMED, StateLost
from worker.counting.rules import Older
from worker.kafka.admin.cluster import Cluster

_LOST = "they were lost, or another Redis has them"


def assess_counts(
    config: Config,
    served: Served,
    cluster: Cluster,
    fields: Mapping[int, Mapping[str, str] | StateLost],
    head: Head,
) -> list[Finding]:
    """Assesses whether workers can continue with the counts in Redis.

    `fields` maps each partition with counts to its metadata, or to the error from reading it.
    """
    topic, log = cluster.topics[served.topic], cluster.logs[served.topic]
    subject = f"counts of {served.name}"
    now = lineage_of(config.consumer_group(served.name), topic.topic_id)
    found: dict[Fault, list[str]] = {}
    for partition in range(topic.partitions):
        metadata = fields.get(partition)
        offset_metadata = cluster.offset_metadata[served.topic].get(partition, CLAIMED)
        fault = _fault_of_counts(metadata, offset_metadata, head, partition, log[partition], now, served)
        counted = cluster.counted.get(served.topic, {}).get(partition, 0)
        fault = fault or _behind(metadata, layout.meta_key(served.name, partition), counted)
        if fault is not None:
            found.setdefault(fault, []).append(str(partition))
    if found:
        return [
            Finding(level, subject, f"partition {', '.join(partitions)}: {text}", hint)
            for (level, text, hint), partitions in found.items()
        ]
    text = f"in {len(fields)} of {topic.partitions} partition(s), ready to continue" if fields else "none yet"
    return [Finding(Level.OK, subject, text)]


def _behind(fields: Mapping[str, str] | StateLost | None, key: str, counted: int) -> Fault | None:
    if fields is None or isinstance(fields, StateLost):
        return None
    if (offset := layout.parse(fields, key).offset) >= counted:
        return None
    return (
        Level.ERROR,
        f"they reach offset {offset} in this Redis, but Kafka's group has counted up to {counted}: another Redis has"
        " counts of the group, or this Redis was reset",
        "let all workers of the group use one Redis; after a restore, run check again once they have caught up",
    )


def _fault_of_counts(
    fields: Mapping[str, str] | StateLost | None,
    offset_metadata: str,
    head: Head,
    partition: int,
    log: tuple[int, int],
    lineage: str,
    served: Served,
) -> Fault | None:
    anew = f"undo a change of the configuration, restore Redis, or {NEW_NAME}"
    again = (
        f"set recount_after = {head.sequence} for the stream: workers count the remaining records again, and record the"
        " deleted records as a gap"
    )
    published = head.offsets.get(partition, 0)
    if fields is None:
        if offset_metadata == CLAIMED and not published:
            return None
        snapshot = f"a snapshot was published with counts up to offset {published}"
        why = snapshot if offset_metadata == CLAIMED else "Kafka's group has counted progress"
        return Level.ERROR, f"none in Redis, but {why}: {_LOST}", f"{anew}; or {again}"
    if isinstance(fields, StateLost):
        return Level.ERROR, str(fields), anew
    if (version := newer(fields.get("lineage", ""))) is not None:
        text = f"they have {version}: a newer version of ldp-worker wrote them"
        return Level.ERROR, text, "run that version or a newer one, which continues with them"
    try:
        metadata = layout.parse(fields, layout.meta_key(served.name, partition))
        recorded, gaps, documents = (
            layout.recorded(metadata),
            layout.gaps(metadata),
            layout.documents(metadata),
        )
    except StateLost as error:
        return Level.ERROR, str(error), anew
    first, end = log
    if others := [*differing(metadata.lineage, lineage), *unnamed(documents, served.fleet)]:
        what = "; ".join([*changes(served.fleet, documents), *others])
        return Level.ERROR, f"they belong to other counts: {what}", remedy(served.fleet, documents)
    if metadata.offset > end:
        text = f"they reach offset {metadata.offset}, but the log ends at {end}: it was truncated"
        return Level.ERROR, text, anew
    if metadata.offset < min(first, published):
        text = f"they reach offset {metadata.offset}, a snapshot was published with counts up to {published}, but the"
        text += f" log begins at {first}: Redis was rolled back too far to count the missing records again"
        return Level.ERROR, text, anew
    if metadata.offset < first:
        text = f"the log deleted {_offsets(metadata.offset, first)} before counting"
        hint = "workers record a gap, and snapshots have complete: false; raise retention.ms"
        return Level.WARNING, text, hint
    if held := [_offsets(max(begin, first), to) for begin, to in gaps if first < to]:
        limits = [served.configured.limits, *(rule.limits for rule in recorded)]
        windows = any(one.windowing is not None for one in limits)
        return _fault_of_fillable_gaps(", ".join(held), first, layout.start(metadata), windows, head)
    match rules.decide(recorded, served.configured, metadata.offset):
        case Older(why, hint, refused):
            return Level.ERROR if refused else Level.WARNING, why, hint
    return None


def _fault_of_fillable_gaps(held: str, first: int, start: int, windows: bool, head: Head) -> Fault:
    text = f"recorded as a gap: {held}; the log begins at offset {first}, so it has these records"
    if not windows and first <= start:
        hint = (
            f"stop the stream's workers, set recount_after = {head.sequence} for it, and start them: they count the"
            f" partition again from offset {start} on"
        )
        return Level.WARNING, text, hint
    began = f"it lacks earlier records from offset {start} on, where counting began"
    text += f", but {'final windows must not change' if windows else began}"
    return (
        Level.WARNING,
        text,
        f"to count them, {NEW_NAME}; this stream's snapshots keep complete: false",
    )


def _offsets(begin: int, end: int) -> str:
    return f"offset {begin}" if end - begin == 1 else f"offsets {begin} to {end - 1}"
