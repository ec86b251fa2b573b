"""The seam: what is fetched comes as it came, and a library that is another one decodes for itself."""

import threading
from types import SimpleNamespace

import kafka
import pytest
import structlog
from kafka import TopicPartition
from kafka.record.memory_records import MemoryRecords, MemoryRecordsBuilder

from worker.config import parse
from worker.counting.ports import Unavailable
from worker.kafka import seam
from worker.observe.metrics import Metrics
from worker.service import stream
from worker.service.stream import StreamWorker

CONFIG = """
kafka.ingest = "{}"
[[streams]]
name = "s"
topic = "t"
protocol = "grr"
epsilon = "1"
domain_size = 3
"""


def test_the_library_is_the_one_that_the_seam_was_made_for():
    assert seam.unknown() is None
    assert {name: seam.fingerprint(what) for name, (what, _) in seam._TRUSTED.items()} == {
        name: known for name, (_, known) in seam._TRUSTED.items()
    }


def test_another_version_is_unknown(monkeypatch):
    monkeypatch.setattr(kafka, "__version__", "3.0.13")
    assert seam.unknown() == "kafka-python 3.0.13, where 3.0.12 is known"


@pytest.mark.parametrize("name", seam._TRUSTED)
def test_a_changed_source_is_unknown(monkeypatch, name):
    _, known = seam._TRUSTED[name]
    monkeypatch.setitem(seam._TRUSTED, name, (test_another_version_is_unknown, known))
    assert seam.unknown() == f"kafka-python's {name} is another one than that of 3.0.12"


def test_a_source_that_cannot_be_read_is_unknown(monkeypatch):
    made = {}
    exec("def take(): pass", made)
    monkeypatch.setitem(seam._TRUSTED, "_append", (made["take"], "0"))
    assert seam.unknown() == "the source of kafka-python's _append cannot be read"


def connected(monkeypatch, ingest):
    """Lets a worker connect as far as its log; returns whether the library is to decode, the gauge and the warnings."""
    asked = []

    def log(_settings, _group, _topic, _memory, stock):
        asked.append(stock)
        raise Unavailable("not here")

    monkeypatch.setattr(stream.KafkaLog, "connect", log)
    config, metrics = parse(CONFIG.format(ingest)), Metrics()
    with structlog.testing.capture_logs() as logged:
        worker = StreamWorker(config, config.streams[0], metrics, threading.Event())
        assert worker._connect({}, "g") is None
    gauge = metrics.registry.get_sample_value("ldp_worker_ingest_stock", {"stream": "s"})
    (stock,) = asked
    return stock, gauge, [(one["log_level"], one["why"]) for one in logged if one["event"] == "ingest.stock"]


def test_a_known_library_is_not_asked_to_decode(monkeypatch):
    assert connected(monkeypatch, "columns") == (False, 0, [])


def test_an_unknown_library_decodes_and_that_is_said(monkeypatch):
    monkeypatch.setattr(seam, "unknown", lambda: "another kafka-python")
    assert connected(monkeypatch, "columns") == (True, 1, [("warning", "another kafka-python")])


def test_the_configuration_has_the_library_decode_and_that_is_said(monkeypatch):
    assert connected(monkeypatch, "stock") == (True, 1, [("warning", "kafka.ingest is stock")])


def fetched(data, offset):
    """What the library makes of a fetch from an offset on, through the seam; and what it says about it."""
    aborted = [SimpleNamespace(producer_id=7, first_offset=3), SimpleNamespace(producer_id=5, first_offset=1)]
    drained = []
    records = seam._Bytes(
        offset,
        TopicPartition("t", 0),
        MemoryRecords(data),
        aborted_transactions=aborted,
        on_drain=drained.append,
    )
    return records, records.take(1000), drained


def batches(*counts):
    """Batches of so many records one behind the other."""
    made, offset = [], 0
    for count in counts:
        builder = MemoryRecordsBuilder(2, 0, 1 << 20)
        for _ in range(count):
            builder.append(timestamp=1000, key=None, value=b"value")
        builder.close()
        made.append(offset.to_bytes(8, "big") + bytes(builder.buffer())[8:])
        offset += count
    return made


def test_a_fetch_comes_as_it_came():
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
def test_a_fetch_without_a_whole_batch_moves_nothing(data):
    records, taken, drained = fetched(data, 2)
    assert (taken, records.next_fetch_offset, records.bytes_read, drained) == ([], 2, 0, [records])


def test_nothing_raises_whatever_was_fetched():
    good = batches(3)[0]
    for place in range(len(good)):
        for byte in (0x00, 0x7F, 0x80, 0xFF):
            records, _, drained = fetched(good[:place] + bytes([byte]) + good[place + 1 :], 2)
            assert drained == [records]
            assert records.next_fetch_offset >= 2
