"""Verdicts of the newest reports of a topic."""

from dataclasses import replace

import ldp
from ldp import frames
from worker.check import Level
from worker.check.kafka import assess_reports
from worker.config import Served, parse
from worker.counting.head import Head
from worker.counting.rules import RecordLimits, RequestedRule, Rule, Status
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


def test_newest_reports_of_several_documents_are_counted(monkeypatch):
    old, new = CONFIG.streams[0].stream, ldp.Stream("s", ldp.OUE("1", 3))
    streams = [old, new, new, ldp.Stream("s", ldp.GRR("2", 3))]
    values = [frames.encode(each, each.oracle.perturb([0] * n)) for n, each in enumerate(streams, 1)]
    there = [Record(i, 50, None, value) for i, value in enumerate(values)]
    monkeypatch.setattr(reader, "newest_records", lambda *_, **__: {0: there})
    named = {"rules": {0: [Rule(0, 1, RequestedRule().limits, {new.fingerprint.hex(): Status()}).as_json()]}}
    head = Head(documents={new.fingerprint.hex(): new.hashed.decode()}, **named)
    found = reader.newest_reports(CONFIG, CONFIG.streams[0], head)
    assert found.documents == {old.fingerprint.hex(): 1, new.fingerprint.hex(): 5}
    assert found.reasons == {"fingerprint": 1}


def test_counted_records_are_classified_by_the_rules_of_their_time(monkeypatch):
    """A report that was counted before its document was retired is not a rejected report."""
    old, new = CONFIG.streams[0].stream, ldp.Stream("s", ldp.OUE("1", 3))
    config = replace(
        CONFIG, streams=(Served(ldp.Fleet((new, old), frozenset([old.fingerprint])), "reports"),)
    )
    (served,), first = config.streams, old.fingerprint.hex()
    limits = RecordLimits(5, hamming_weight=True)
    rules = [
        Rule(0, 1, limits, {first: Status()}),
        Rule(4, 1, limits, {new.fingerprint.hex(): Status()}),
        Rule(8, 2, replace(limits, most_reports=1), {first: Status(2, retired=True)}),
    ]
    head = Head(
        offsets={0: 9},
        documents={each.fingerprint.hex(): each.hashed.decode() for each in (old, new)},
        rules={0: [rule.as_json() for rule in rules]},
    )

    def put(*listed):
        there = [Record(at, 50, None, frames.encode(s, s.oracle.perturb([0] * n))) for at, s, n in listed]
        monkeypatch.setattr(reader, "newest_records", lambda *_, **__: {0: there})
        return reader.newest_reports(config, served, head)

    found = put(
        (2, old, 5), (3, old, 6), (3, new, 1), (5, old, 1), (7, new, 2), (8, old, 1), (8, new, 2), (9, new, 9)
    )
    assert found.documents == {first: 6, new.fingerprint.hex(): 11}
    assert found.reasons == {"many": 2, "fingerprint": 1, "retired": 1}
    assert put((9, old, 1)).reasons == put((8, old, 1)).reasons == {"retired": 1}
    assert assess_reports(served, put((4, old, 1))).level is Level.OK
