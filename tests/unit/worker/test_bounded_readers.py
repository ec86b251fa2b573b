"""Readers of our topics keep no part of records that are larger than the worker writes."""

from collections import Counter
from types import SimpleNamespace
from unittest.mock import Mock

import orjson
import pytest
from kafka import TopicPartition

from ldp.snapshot import RowKey, RowValue
from worker.kafka.client import newest, reading
from worker.kafka.client.reading import Passed
from worker.kafka.decoding.records import Record
from worker.kafka.snapshots.rows import RowReader

TP = TopicPartition("letters", 0)


def newest_of(monkeypatch, there):
    """The offsets that are returned of the newest records of one partition."""
    consumer = SimpleNamespace(partitions_for_topic=lambda topic: {0}, close=lambda: None)
    monkeypatch.setattr(newest.reading, "connect", lambda *given, **named: consumer)
    monkeypatch.setattr(newest.quirks, "whole_bounds", lambda *given: {TP: (0, len(there))})
    monkeypatch.setattr(newest.reading, "records", lambda c, tp, first, end, **named: iter(there[first:end]))
    config = SimpleNamespace(kafka=SimpleNamespace(client=dict))
    return [record.offset for record in newest.newest_records(config, "letters")[0]]


@pytest.mark.parametrize("name", ["key", "value", "raw_headers"])
def test_newest_records_larger_than_a_dead_letter_are_not_kept(monkeypatch, name):
    large = b"\2\2h" + b"\x80\x80\x80\2" + bytes(4 << 20) if name == "raw_headers" else bytes(4 << 20)
    there = [
        Record(offset, 0, **({"key": b"k", "value": b"v"} | ({name: large} if offset in (7, 9) else {})))
        for offset in range(10)
    ]
    assert newest_of(monkeypatch, there) == [0, 1, 2, 3, 4, 5, 6, 8]


@pytest.mark.parametrize("name", ["key", "value"])
def test_older_large_records_are_not_kept(monkeypatch, name):
    there = [Record(i, 0, **({"key": b"k", "value": b"v"} | {name: bytes(1 << 20)})) for i in range(60)]
    there += [Record(i, 0, b"k", b"v") for i in range(60, 64)]
    assert newest_of(monkeypatch, there) == [60, 61, 62, 63]


def row(rank, n=9):
    key = RowKey("s", "all", 0, "base", "", rank)
    value = RowValue(rank, None, 0.5, 0.25, 0.75, None, n, 3, False, True)
    return key, value, key.encode(), orjson.dumps(key._asdict() | value._asdict())


def rows_of(monkeypatch, *there):
    """A reader of a topic with these records, and the skipped ones."""
    records = [Record(offset, 0, *one) for offset, one in enumerate(there)]
    monkeypatch.setattr(reading, "records", lambda *given: iter(records))
    reader, passed = RowReader.__new__(RowReader), []
    reader._topic, reader._on_passed, reader._consumer, reader.offset = "rows", passed.append, Mock(), 0
    reader.skipped = Counter()
    monkeypatch.setattr(
        newest.quirks, "whole_bounds", lambda _, tps, ms: {tp: (0, len(records)) for tp in tps}
    )
    return reader, passed


def test_a_record_larger_than_a_row_is_skipped_and_reported(monkeypatch):
    key, value, raw_key, raw = row(1)
    reader, passed = rows_of(monkeypatch, (raw_key, raw), (raw_key, bytes((64 << 10) + 1)), (row(2)[2], None))
    assert reader.read() == {key: value, row(2)[0]: None}
    assert passed == [Passed("rows", 0, 1, "not a row: more than 65536 bytes")]


def test_a_row_survives_invalid_records_with_its_key(monkeypatch):
    key, value, raw_key, raw = row(1)
    reader, _ = rows_of(
        monkeypatch, (raw_key, raw), (raw_key, b"garbage"), (raw_key, row(2)[3]), (raw_key, b"")
    )
    assert reader.read() == {key: value}
    assert reader.skipped.total() == 3


def test_invalid_rows_use_little_memory(monkeypatch):
    there = [(b"%d" % i, b"1") for i in range(1000)] + [(row(i)[2], row(i, -i)[3]) for i in range(1, 1000)]
    reader, _ = rows_of(monkeypatch, *there)
    assert reader.read() == {}
    assert reader.skipped.total() == len(there)
    assert len(reader.skipped) <= 21
