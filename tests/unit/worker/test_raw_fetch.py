"""The raw fetch hook returns fetched bytes unchanged."""

from types import SimpleNamespace

import pytest
from kafka import TopicPartition
from kafka.record.memory_records import MemoryRecords, MemoryRecordsBuilder

from worker.kafka.client import raw_fetch


def fetched(data, offset):
    """Result of a fetch from an offset through the raw fetch hook; and its log lines."""
    aborted = [SimpleNamespace(producer_id=7, first_offset=3), SimpleNamespace(producer_id=5, first_offset=1)]
    drained = []
    records = raw_fetch._Bytes(
        offset,
        TopicPartition("t", 0),
        MemoryRecords(data),
        aborted_transactions=aborted,
        on_drain=drained.append,
    )
    return records, records.take(1000), drained


def batches(*counts):
    """A number of batches with consecutive offsets."""
    made, offset = [], 0
    for count in counts:
        builder = MemoryRecordsBuilder(2, 0, 1 << 20)
        for _ in range(count):
            builder.append(timestamp=1000, key=None, value=b"value")
        builder.close()
        made.append(offset.to_bytes(8, "big") + bytes(builder.buffer())[8:])
        offset += count
    return made


def test_a_fetch_is_returned_unchanged():
    data = b"".join(batches(3, 4))
    records, taken, drained = fetched(data + batches(5)[0][:-1], 2)
    (one,) = taken
    assert (one.start, one.end, one.offset) == (2, 7, 6)
    assert one.data.tobytes() == data
    assert one.aborted == [(5, 1), (7, 3)]
    assert (records.next_fetch_offset, records.bytes_read) == (7, len(data))
    assert drained == [records]
    assert not records


@pytest.mark.parametrize(
    "data", [b"", b"\x00" * 11, batches(3)[0][:-1]], ids=["none", "no header", "cut off"]
)
def test_a_fetch_without_a_whole_batch_moves_no_position(data):
    records, taken, drained = fetched(data, 2)
    assert (taken, records.next_fetch_offset, records.bytes_read, drained) == ([], 2, 0, [records])


def test_corrupt_fetches_never_raise_an_error():
    good = batches(3)[0]
    for place in range(len(good)):
        for byte in (0x00, 0x7F, 0x80, 0xFF):
            records, _, drained = fetched(good[:place] + bytes([byte]) + good[place + 1 :], 2)
            assert drained == [records]
            assert records.next_fetch_offset >= 2
