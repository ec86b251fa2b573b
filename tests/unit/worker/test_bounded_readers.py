"""What is held of records on our own topics that are larger than any of ours: nothing."""

from types import SimpleNamespace

import pytest
from kafka import TopicPartition

from worker.kafka import newest, reading
from worker.kafka.reading import Passed
from worker.kafka.records import Record
from worker.kafka.rows import RowReader

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
def test_of_the_newest_records_none_larger_than_a_dead_letter_is_held(monkeypatch, name):
    large = b"\2\2h" + b"\x80\x80\x80\2" + bytes(4 << 20) if name == "raw_headers" else bytes(4 << 20)
    there = [
        Record(offset, 0, **({"key": b"k", "value": b"v"} | ({name: large} if offset in (7, 9) else {})))
        for offset in range(10)
    ]
    assert newest_of(monkeypatch, there) == [0, 1, 2, 3, 4, 5, 6, 8]


@pytest.mark.parametrize("name", ["key", "value"])
def test_older_records_that_have_many_bytes_are_not_held(monkeypatch, name):
    there = [Record(i, 0, **({"key": b"k", "value": b"v"} | {name: bytes(1 << 20)})) for i in range(60)]
    there += [Record(i, 0, b"k", b"v") for i in range(60, 64)]
    assert newest_of(monkeypatch, there) == [60, 61, 62, 63]


def test_what_is_larger_than_a_row_is_passed_over_and_named(monkeypatch):
    there = [Record(0, 0, b"a", b"v"), Record(1, 0, b"b", bytes((64 << 10) + 1)), Record(2, 0, b"c", None)]
    monkeypatch.setattr(reading, "records", lambda *given: iter(there))
    reader, passed = RowReader.__new__(RowReader), []
    reader._topic, reader._on_passed, reader._consumer, reader.offset = "rows", passed.append, None, 0
    reader._admin = SimpleNamespace(
        list_partition_offsets=lambda asked, **named: {tp: SimpleNamespace(offset=3) for tp in asked}
    )
    assert reader.read() == {b"a": b"v", b"c": None}
    assert passed == [Passed("rows", 0, 1, "no row: more than 65536 bytes")]
