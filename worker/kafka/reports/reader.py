"""Classifies the newest records as the worker does, to report rejections."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

import numpy as np

from worker.config import Config, Served
from worker.counting import rejections
from worker.counting.accepted import Accepting
from worker.counting.columns import Columns
from worker.counting.documents import of_fleet, opened
from worker.counting.head import Head
from worker.counting.rules import Names, RecordLimits, joined
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

    The rules of the head apply to the records that it counts. The names of the configuration and of the head apply to
    later records.

    Raises `kafka.errors.KafkaError`: the brokers do not answer.
    """
    cap, passed = served.configured.limits.max_batch_bytes or LARGEST, set[Passed]()
    newest = newest_records(config, served.topic, passed.add, largest=cap, cap=cap)
    records = [record for found in newest.values() for record in found]
    unreadable = sum(one.why.startswith("record batch: ") for one in passed)
    documents = {name: opened(sealed) for name, sealed in head.documents.items()} | of_fleet(served.fleet)
    verdicts, reports = list[int](), Counter[str]()
    for partition, found in newest.items():
        for names, limits, own in _by_rule(found, partition, head, served):
            accepting = Accepting.of(names, documents)
            columns = Columns.of([r.offset for r in own], [r.timestamp for r in own], [r.value for r in own])
            decoded = accepting.decode(columns, limits)
            verdicts += decoded.verdicts.tolist()
            counts = np.bincount(decoded.document + 1, decoded.counts, len(accepting.documents) + 1)[1:]
            for document, n in zip(accepting.documents, counts, strict=True):
                reports[document.fingerprint.hex()] += int(n)
    return NewestReports(
        len(records) + unreadable,
        sum(record.key is not None or record.raw_headers != b"\0" for record in records),
        rejections.counted(np.array(verdicts, np.uint8), unreadable),
        reports,
        min((record.timestamp for record in records if record.timestamp >= 0), default=None),
    )


def _by_rule(
    records: Sequence[Any], partition: int, head: Head, served: Served
) -> Iterator[tuple[Names, RecordLimits, list[Any]]]:
    """Yields the names and limits that apply to consecutive records."""
    recorded, counted = head.rules_of(partition), head.offsets.get(partition, 0)

    def rule_of(record: Any) -> int:
        """Returns the number of rules so far; 0 for an uncounted record."""
        return sum(rule.offset <= record.offset for rule in recorded) if record.offset < counted else 0

    for number, own in groupby(records, rule_of):
        if number:
            yield joined(recorded[:number]), recorded[number - 1].limits, list(own)
        else:
            names = head.names.joined(served.configured.names(served.fleet))
            yield names, served.configured.limits, list(own)
