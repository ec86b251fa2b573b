"""Classifies the newest records as the worker does, to report rejections."""

from collections import Counter
from dataclasses import dataclass, field

from worker.config import Config, Served
from worker.counting import rejections
from worker.counting.columns import Columns
from worker.kafka.client.newest import newest_records
from worker.kafka.client.reading import LARGEST, Passed


@dataclass
class NewestReports:
    """Counts over the newest records of a topic."""

    records: int = 0  # an unreadable record batch counts as one record
    with_key_or_headers: int = 0  # records with a key or headers
    reasons: Counter[str] = field(default_factory=Counter)  # rejected records by reason
    oldest: int | None = None  # the lowest timestamp in ms; None without timestamps


def newest_reports(config: Config, served: Served) -> NewestReports:
    """Classifies the newest records of each partition; see `newest_records`.

    Raises `kafka.errors.KafkaError`: the brokers do not answer.
    """
    limits, passed = served.configured.limits, set[Passed]()
    cap = limits.max_batch_bytes or LARGEST
    newest = newest_records(config, served.topic, passed.add, largest=cap, cap=cap)
    records = [record for found in newest.values() for record in found]
    columns = Columns.of(
        [r.offset for r in records], [r.timestamp for r in records], [r.value for r in records]
    )
    unreadable = sum(one.why.startswith("record batch: ") for one in passed)
    return NewestReports(
        len(records) + unreadable,
        sum(record.key is not None or record.raw_headers != b"\0" for record in records),
        rejections.reasons(served.stream, limits, columns, unreadable),
        min((record.timestamp for record in records if record.timestamp >= 0), default=None),
    )
