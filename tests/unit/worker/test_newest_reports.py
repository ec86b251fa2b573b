"""Verdicts of the newest reports of a topic."""

from worker.config import parse
from worker.kafka.client.reading import Passed
from worker.kafka.decoding.records import Record
from worker.kafka.reports import reader

CONFIG = parse(
    '[[streams]]\nname = "s"\ntopic = "reports"\nprotocol = "grr"\nepsilon = "1"\ndomain_size = 3\n'
)


def test_newest_reports_are_classified_with_unreadable_batches_once(monkeypatch):
    there = [Record(1, 50, None, b"noise"), Record(2, -1, b"key", b""), Record(3, 40, None, None, b"\2\2h\1")]
    bad = Passed("reports", 0, 4, "record batch: codec")

    def newest(config, topic, on_passed, largest, cap):
        assert (topic, largest, cap) == ("reports", 16 << 20, 16 << 20)
        for passed in (bad, bad, Passed("reports", 0, 5, "key: more than 4096 bytes")):
            on_passed(passed)  # two reads may meet one batch
        return {0: there}

    monkeypatch.setattr(reader, "newest_records", newest)
    found = reader.newest_reports(CONFIG, CONFIG.streams[0])
    assert (found.records, found.with_key_or_headers, found.oldest) == (4, 2, 40)
    assert found.reasons == {"version": 1, "empty": 2, "batch": 1}
