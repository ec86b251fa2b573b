"""Search for the head on a topic that is compacted meanwhile."""

import itertools
from functools import partial
from itertools import pairwise
from types import SimpleNamespace
from typing import ClassVar

import numpy as np
import pytest
from kafka import TopicPartition
from kafka.errors import KafkaTimeoutError

import ldp
from ldp import snapshot
from ldp.snapshot import Cut, Message
from worker.config import parse
from worker.counting.ports import StateLost, Unavailable
from worker.kafka.client import quirks, reading, transactions
from worker.kafka.client.transactions import TIMEOUT_SECONDS
from worker.kafka.snapshots.producer import KafkaSnapshotProducer
from worker.publishing import released_cells
from worker.publishing.release import Counts, Rest, Shown
from worker.service import publishing

STREAM = ldp.Stream("s", ldp.GRR("1", 2))
TP = TopicPartition("snapshots", 0)


def head(sequence):
    taken = snapshot.announce(STREAM, Cut({0: sequence}, {}), sequence, {}, "0" * 32)
    return snapshot.encode(taken)[0].body


class Compacted:
    """A topic; before each read a head of `meanwhile` is written, and compaction takes the others."""

    name = "snapshots"
    headers: ClassVar = {}

    def __init__(self, records, end, meanwhile):
        self.records, self.end, self.meanwhile = dict(records), end, list(meanwhile)
        self.reads = []

    def admin(self):
        def asked(specs, isolation_level):
            ((tp, spec),) = specs.items()
            return {tp: SimpleNamespace(offset=0 if spec.name == "EARLIEST" else self.end)}

        return SimpleNamespace(list_partition_offsets=asked, close=lambda: None)

    def consumer(self, level, begins, on_passed):
        at = [0]

        def seek(_tp, offset):
            at[0] = offset
            self._pass()
            self.reads.append(offset)

        def poll(_ms):
            begin, at[0], reader.bound = at[0], self.end, self.end
            return {
                TP: [
                    SimpleNamespace(key=key, value=value, offset=offset, headers=self.headers.get(offset, []))
                    for offset, (key, value) in sorted(self.records.items())
                    if offset >= begin
                ]
            }

        reader = SimpleNamespace(
            assign=lambda _tps: None,
            seek=seek,
            poll=poll,
            position=lambda _tp: at[0],
            close=lambda autocommit: None,
        )
        return reader

    def _pass(self):
        if self.meanwhile:
            self.records = {
                offset: record for offset, record in self.records.items() if record[0] != b"s/head"
            }
            self.records[self.end] = b"s/head", head(self.meanwhile.pop(0))
            self.end += 7  # other records


def looked(meanwhile, records=None, end=40):
    records = {3: (b"s/head", head(1)), 39: (b"t/head", head(9))} if records is None else records
    topic = Compacted(records, end, meanwhile)
    return KafkaSnapshotProducer(topic, STREAM).head(decided=True).sequence, topic.reads


@pytest.mark.parametrize(
    ("meanwhile", "sequence", "reads"),
    [
        ([], 1, [0]),
        # one is written behind the end, and compaction takes the one before it
        ([2], 2, [0, 40]),
        # and again during the first read: the second look reads to the end at that time
        ([2, 3], 3, [0, 40]),
    ],
)
def test_a_head_replaced_and_compacted_during_the_search_is_found(meanwhile, sequence, reads):
    assert looked(meanwhile) == (sequence, reads)


class Busy(Compacted):
    """A topic to which another stream writes before each answer."""

    def admin(self):
        self._write()
        return super().admin()

    def consumer(self, level, begins, on_passed):
        consumer = super().consumer(level, begins, on_passed)
        poll = consumer.poll

        def write_and_poll(ms):
            self._write()
            return poll(ms)

        consumer.poll = write_and_poll
        return consumer

    def _write(self):
        self.records[self.end] = b"t/head", head(9)
        self.end += 1


@pytest.mark.parametrize("decided", [False, True])
def test_a_missing_head_is_determined_despite_fast_writers(decided):
    topic = Busy({}, 1, [])
    assert KafkaSnapshotProducer(topic, STREAM).head(decided=decided).sequence == 0
    assert len(topic.reads) == 2
    topic = Busy({}, 1, [3])
    assert KafkaSnapshotProducer(topic, STREAM).head(decided=decided).sequence == 3


class Far(Compacted):
    """A topic with many records of other streams: a poll returns 500 records in 0.1 s, or none at the end."""

    def __init__(self, records, stops=10**9):
        super().__init__({0: (b"s/head", head(5))}, records, ())
        self.now, self.stops = 0.0, stops

    def consumer(self, level, begins, on_passed):
        consumer, at = super().consumer(level, begins, on_passed), [0]

        def poll(_ms):
            self.now += 0.1
            begin = at[0]
            at[0] = max(begin, min(begin + 500, self.end, self.stops))
            return {
                TP: [
                    SimpleNamespace(key=k, value=v, offset=o)
                    for o, (k, v) in self.records.items()
                    if o >= begin
                ]
            }

        consumer.seek, consumer.position, consumer.poll = (
            lambda _, to: at.__setitem__(0, to),
            lambda _: at[0],
            poll,
        )
        return consumer


def test_a_head_is_found_after_any_number_of_later_records():
    topic = Far(300_000)
    assert KafkaSnapshotProducer(topic, STREAM, lambda: topic.now).head(decided=False).sequence == 5
    assert topic.now > 45
    topic = Far(300_000, stops=290_000)
    with pytest.raises(Unavailable, match="to 300000 arrive"):
        KafkaSnapshotProducer(topic, STREAM, lambda: topic.now).head(decided=False)
    assert topic.now < 2 * TIMEOUT_SECONDS


@pytest.mark.parametrize("decided", [False, True])
def test_a_long_search_for_a_head_sends_heartbeats(decided):
    """Otherwise a watchdog ends a worker that is silent for 2 minutes, and the next one fails in the same
    way."""
    topic, alive = Far(1_000_000), [0.0]
    snapshot_producer = KafkaSnapshotProducer(
        topic, STREAM, lambda: topic.now, heartbeat=lambda: alive.append(topic.now)
    )
    assert snapshot_producer.head(decided=decided).sequence == 5
    assert topic.now > 120
    assert max(after - before for before, after in pairwise([*alive, topic.now])) < 1


class Slow:
    """A producer whose broker answers one record at a time, only during a wait; its calls are recorded."""

    def __init__(self, fails_at=None):
        self.open, self.most, self.fails_at, self.committed = [], 0, fails_at, False

    def send(self, topic, value, **given):
        self.open.append(len(value))
        self.most = max(self.most, sum(self.open))
        return SimpleNamespace(get=self.answer)

    def answer(self, seconds):
        assert 0 <= seconds <= TIMEOUT_SECONDS
        if self.open:
            self.open.pop(0)
        if len(self.open) == self.fails_at:
            raise KafkaTimeoutError("expired")

    def commit_transaction(self):
        self.committed = True

    def init_transactions(self):
        pass

    begin_transaction = init_transactions

    def flush(self, seconds):
        pass


@pytest.mark.parametrize("fails_at", [None, 1])
def test_a_large_snapshot_is_sent_in_bounded_parts_with_heartbeats(monkeypatch, fails_at):
    """Else what waits at the end of a long queue expires, and a watchdog ends who is silent for two minutes."""
    producer, alive, topic = Slow(fails_at), [], Compacted({}, 0, [])
    topic.producer = lambda: producer
    snapshot_producer = KafkaSnapshotProducer(
        topic, STREAM, heartbeat=lambda: alive.append(len(producer.open))
    )
    snapshot_producer.open()
    alive.clear()
    messages = [Message(f"s/{i}", snapshot.JSON, bytes(20 << 20)) for i in range(50)]
    if fails_at is None:
        snapshot_producer.publish(1, messages)
        assert len(alive) == 50
        assert producer.open == []
    else:
        monkeypatch.setattr(quirks, "drop", lambda producer: None)
        with pytest.raises(Unavailable, match="KafkaTimeoutError: expired"):
            snapshot_producer.publish(1, messages)
    assert 20 << 20 < producer.most <= (32 + 20) << 20
    assert producer.committed is (fails_at is None)


class Liar(Compacted):
    """A topic with two heads, of whose answers the nth is wrong."""

    def __init__(self, nth, lie):
        super().__init__(
            {3: (b"s/head", head(1)), 20: (b"s/head", head(2)), 39: (b"t/head", head(9))}, 40, []
        )
        self.nth, self.lie, self.asked = nth, lie, 0
        self.producer = lambda: Slow(None)

    def _answer(self, truth):
        self.asked += 1
        return self.lie(truth) if self.asked == self.nth else truth

    def admin(self):
        admin = super().admin()
        asked = admin.list_partition_offsets

        def answered(specs, isolation_level):
            ((tp, said),) = asked(specs, isolation_level).items()
            return {tp: SimpleNamespace(offset=self._answer(said.offset))}

        return SimpleNamespace(list_partition_offsets=answered, close=lambda: None)

    def consumer(self, level, begins, on_passed):
        reader = super().consumer(level, begins, on_passed)
        poll = reader.poll
        reader.poll = lambda ms: self._answer(poll(ms))
        return reader


LIES = {
    "ListOffsets: too high": lambda said: said + 30 if isinstance(said, int) else said,
    "ListOffsets: too low": lambda said: max(0, said - 30) if isinstance(said, int) else said,
    "Fetch: nothing": lambda said: {} if isinstance(said, dict) else said,
    "Fetch: only the older records": lambda said: {TP: said[TP][:1]} if isinstance(said, dict) else said,
}


@pytest.mark.parametrize("lie", LIES.values(), ids=LIES)
@pytest.mark.parametrize("nth", range(1, 13))
def test_one_wrong_answer_never_restarts_the_sequence(monkeypatch, lie, nth):
    """The publisher continues from the newest head, or opens once more."""
    monkeypatch.setattr(quirks, "drop", lambda producer: None)
    seconds = itertools.count()
    snapshot_producer = KafkaSnapshotProducer(Liar(nth, lie), STREAM, lambda: next(seconds), lambda _: None)
    try:
        said = snapshot_producer.open()
    except Unavailable:
        said = snapshot_producer.open()
    assert said.sequence == 2


@pytest.mark.parametrize(("domain_size", "seconds"), [(10**6, 30), (1 << 24, 64)])
def test_the_transaction_timeout_covers_the_longest_snapshot(monkeypatch, domain_size, seconds):
    config = parse(
        "[[streams]]\nname = 's'\ntopic = 'reports'\nprotocol = 'olh'\nepsilon = '1'\n"
        f"domain_size = {domain_size}\n"
    )
    given = {}
    monkeypatch.setattr(transactions, "KafkaProducer", lambda **settings: given.update(settings))
    for quirk in ("retry_lost_requests", "refuse_end_retries"):
        monkeypatch.setattr(quirks, quirk, lambda producer: None)
    snapshot_producer = publishing.snapshot_producer_of(
        config, config.streams[0], lambda: None, reading.ignore
    )
    with pytest.raises(AttributeError):  # there is no producer behind it
        snapshot_producer.open()
    assert given["transaction_timeout_ms"] == seconds * 1000


def test_a_missing_head_ends_the_search():
    others = {39: (b"t/head", head(9))}
    assert looked([], others) == (0, [0])
    assert looked([], {}, end=0) == (0, [])


def test_a_deleted_head_ends_the_search():
    assert looked([], {3: (b"s/head", head(4)), 5: (b"s/head", b"")}) == (0, [0])


NEWER = b'{"stream": "s", "schema": 3}'


@pytest.mark.parametrize(
    "forged", [b"no JSON", b"[" * 100_000, b"{}", NEWER.replace(b"s", b"t"), head(9)[:-9]]
)
@pytest.mark.parametrize("decided", [False, True])
def test_an_invalid_head_is_skipped_in_favour_of_the_newest_valid_one(forged, decided):
    records = {3: (b"s/head", head(4)), 90: (b"s/head", head(5)), 200: (b"s/head", forged)}
    passed = []
    snapshot_producer = KafkaSnapshotProducer(Compacted(records, 300, []), STREAM, on_passed=passed.append)
    assert snapshot_producer.head(decided=decided).sequence == 5
    assert [(one.topic, one.offset, one.why[:11]) for one in passed] == [("snapshots", 200, "not a head:")]


@pytest.mark.parametrize("decided", [False, True])
def test_only_invalid_heads_are_lost_state(decided):
    """The published head may have been compacted away: its content is unknown, but it existed."""
    topic = Compacted({3: (b"s/head", b"forged"), 5: (b"t/head", head(9))}, 40, [])
    with pytest.raises(StateLost, match="is not a head, and no older head exists"):
        KafkaSnapshotProducer(topic, STREAM).head(decided=decided)


def test_a_head_of_a_newer_version_is_never_skipped():
    with pytest.raises(StateLost, match=r"a newer version wrote the head of stream 's' \(schema 3"):
        looked([], {3: (b"s/head", head(4)), 5: (b"s/head", NEWER)})
    assert looked([], {3: (b"s/head", NEWER), 5: (b"s/head", head(4))}) == (4, [0])
    assert looked([], {3: (b"s/head", NEWER), 5: (b"s/head", None)}) == (0, [0])


@pytest.mark.parametrize("later", [0, 70, 900])
def test_the_newest_snapshot_is_read_after_any_number_of_later_records(later):
    records, headers, at = {}, {}, 0
    for sequence in (1, 2):
        estimate = STREAM.oracle.estimate([sequence, 4], 4 + sequence)
        taken = snapshot.take(STREAM, estimate, Cut({0: sequence}, {}), sequence)
        for message in snapshot.encode(taken):
            records[at], headers[at] = (message.key.encode(), message.body), message.headers(sequence)
            at += 1
    records |= {at + i: (b"t/head", b"{}") for i in range(later)}
    topic = Compacted(records, at + later, [])
    topic.headers = headers
    read = partial(snapshot.assemble, "s")
    newest = KafkaSnapshotProducer(topic, STREAM).newest("s/", read)
    assert (newest.sequence, newest.estimate().known_counts().tolist()) == (2, [2, 4])
    alone = Compacted({3: (b"s/head", head(1))}, 9, [])
    assert KafkaSnapshotProducer(alone, STREAM).newest("s/", read) is None


@pytest.mark.parametrize("later", [0, 900])
def test_released_counts_of_all_segments_are_read(later):
    """Each is in the transaction that changed it. The head's numbers of reports show when all are read."""

    def shown(n, offset):
        counts, late = (Counts(k, np.array([k, 0])) for k in (n, n // 2))
        return Shown(counts, late, Rest(5, {0: offset}, 1))

    sent = [(("ab", ""), shown(4, 9)), (("cd", "US:~"), shown(3, 9)), (("cd", "DE"), shown(5, 9))]
    sent += [(("cd", "DE"), shown(9, 12)), (("cd", "FR"), shown(0, 0))]
    records, headers = {}, {}
    for sequence, (key, each) in enumerate(sent, 1):
        for message in released_cells.encode("s", key, each, f"{sequence:032x}"):
            headers[len(records)] = message.headers(sequence)
            records[len(records)] = message.key.encode(), message.body
        for _ in range(later):
            records[len(records)] = b"t/head", b"{}"
    topic = Compacted(records, len(records), [])
    topic.headers = headers

    def read(reports):
        read = partial(released_cells.assemble, "s", reports)
        return KafkaSnapshotProducer(topic, STREAM).newest("s@", read)

    found = read({"ab": 4, "cd": 12, "ef": 0})
    assert {key: (own.counts.n, own.late.n, own.rest) for key, own in found.items()} == {
        ("ab", ""): (4, 2, Rest(5, {0: 9}, 1)),
        ("cd", "US:~"): (3, 1, Rest(5, {0: 9}, 1)),
        ("cd", "DE"): (9, 4, Rest(5, {0: 12}, 1)),
    }
    assert all((own.counts.vector == [own.counts.n, 0]).all() for own in found.values())
    assert all((own.late.vector == [own.late.n, 0]).all() for own in found.values())
    assert read({"ab": 4, "cd": 13}) is None
