"""Classifies the newest records as the worker does, to report rejections."""

from collections import Counter
from dataclasses import dataclass, field

import numpy as np

from worker.config import Config, Served
from worker.counting import rejections
from worker.counting.accepted import Accepting
from worker.counting.columns import Columns
from worker.counting.documents import of_fleet, opened
from worker.counting.head import Head
from worker.kafka.client.newest import newest_records
from worker.kafka.client.reading import LARGEST, Passed


@dataclass
class NewestReports:
    """Counts over the newest records of a topic."""

    records: int = 0  # an unreadable record batch counts as one record
    with_key_or_headers: int = 0  # records with a key or headers
    reasons: Counter[str] = field(default_factory=Counter)  # rejected records by reason
    documents: Counter[str] = field(default_factory=Counter)  # accepted reports by fingerprint
    oldest: int | None = None  # the lowest timestamp in ms; None without timestamps


def newest_reports(config: Config, served: Served, head: Head = Head()) -> NewestReports:  # noqa: B008  # frozen
    """Classifies the newest records of each partition; see `newest_records`.

    The documents of the configuration and of the head decide which records are accepted.

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
    names = head.names.joined(served.configured.names(served.fleet))
    documents = {name: opened(sealed) for name, sealed in head.documents.items()} | of_fleet(served.fleet)
    accepting = Accepting.of(names, documents)
    decoded = accepting.decode(columns, limits)
    reports = np.bincount(decoded.document + 1, decoded.counts, len(accepting.documents) + 1)[1:]
    return NewestReports(
        len(records) + unreadable,
        sum(record.key is not None or record.raw_headers != b"\0" for record in records),
        rejections.counted(decoded.verdicts, unreadable),
        Counter(
            {each.fingerprint.hex(): int(n) for each, n in zip(accepting.documents, reports, strict=True)}
        ),
        min((record.timestamp for record in records if record.timestamp >= 0), default=None),
    )
