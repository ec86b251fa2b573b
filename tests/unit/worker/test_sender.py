"""sender: every record is sent, spread over the partitions, and no more is in flight than is allowed."""

from types import SimpleNamespace

import pytest
from kafka import errors

from worker.config import parse
from worker.kafka.reports import sender

CONFIG = parse('[[streams]]\nname = "s"\ntopic = "t"\nprotocol = "grr"\nepsilon = "1"\ndomain_size = 3')
SERVED = CONFIG.served(None)


class Producer:
    """A producer that acknowledges records only on a flush; records its events."""

    def __init__(self, error=None):
        self.sent, self.times, self.error = [], [], error
        self.waiting = self.most = 0
        self.closed = False

    def partitions_for(self, topic):
        if self.error is errors.KafkaTimeoutError:
            raise self.error
        return {2, 0, 1}

    def send(self, topic, value, partition, timestamp_ms):
        self.sent.append((topic, value, partition))
        self.times.append(timestamp_ms)
        self.waiting += len(value)
        self.most = max(self.most, self.waiting)

        def get(timeout):
            self.waiting -= len(value)
            if self.error is not None:
                raise self.error(f"{self.error.__name__} of {len(value)} bytes")

        return SimpleNamespace(is_done=False, get=get)

    def flush(self):
        pass

    def close(self, timeout):
        self.closed = True


def send(monkeypatch, producer, records, **options):
    monkeypatch.setattr(sender, "KafkaProducer", lambda **_: producer)
    try:
        return sender.send(CONFIG, SERVED, records, **options)
    finally:
        assert producer.closed


def test_records_go_to_all_partitions_in_runs(monkeypatch):
    producer, told = Producer(), []
    records = [(b"%d" % i, 0 if i % 10 == 9 else 2) for i in range(400)]
    sent = send(monkeypatch, producer, iter(records), on_acknowledged=told.append)
    assert [value for _, value, _ in producer.sent] == [value for value, _ in records]
    assert [partition for *_, partition in producer.sent] == [i // 64 % 3 for i in range(400)]
    assert set(producer.times) == {None}  # the present
    assert (sent.reports, sent.records, sent.malformed) == (720, 360, 40)
    assert told[-1] == 720


def test_data_in_flight_is_bounded(monkeypatch):
    producer = Producer()
    sent = send(monkeypatch, producer, ((bytes(1 << 20), 1) for _ in range(200)))
    assert sent.reports == 200
    assert 60 << 20 < producer.most <= 66 << 20


@pytest.mark.parametrize("batch", [1, 100])
def test_the_rate_counts_reports_and_not_records(monkeypatch, batch):
    """At 100 reports a second, report i is sent no earlier than i/100 s, minus the allowed lead: 50 ms and a
    record."""
    now, moments, producer = [1000.0], [], Producer()

    def sleep(seconds):
        assert seconds > 0
        now[0] += seconds

    def records():
        for i in range(1000 // batch):
            moments.append(now[0] - 1000)
            yield (b"spoilt", 0) if i % 7 == 3 else (b"value", batch)

    monkeypatch.setattr(sender, "time", SimpleNamespace(monotonic=lambda: now[0], sleep=sleep))
    sent = send(monkeypatch, producer, records(), rate=100)
    before = 0
    for i, moment in enumerate(moments):
        assert before / 100 - 0.05 <= moment + 1e-9 <= before / 100 + 2e-9
        before += 0 if i % 7 == 3 else batch
    assert sent.reports == before
    assert before / 100 - 0.05 <= sent.seconds + 1e-9


def no_number(_):
    """Error of the client if the brokers refuse a producer id to its login."""
    return errors.KafkaError(
        "Unexpected error in InitProducerIdResponse: [Error 31] ClusterAuthorizationFailedError"
    )


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (errors.KafkaTimeoutError, "topic 't' does not exist; ldp-worker create-topics creates"),
        (errors.MessageSizeTooLargeError, "a report has 1 bytes: send fewer reports per record"),
        (
            no_number,
            "topic 't' is closed to this login .*: grant it WRITE",
        ),
        (
            errors.TopicAuthorizationFailedError,
            "topic 't' is closed to this login .*: grant it WRITE",
        ),
        (errors.NotLeaderForPartitionError, "not every report was acknowledged: .*of 5 bytes"),
    ],
)
def test_an_unacknowledged_record_is_an_error(monkeypatch, error, said):
    with pytest.raises(sender.SendError, match=said):
        send(monkeypatch, Producer(error), [(b"value", 1)])


def test_record_times_depend_on_the_number_of_earlier_reports(monkeypatch):
    producer = Producer()
    records = [(b"good", 2), (b"spoilt", 0), (b"good", 3), (b"good", 1)]
    send(monkeypatch, producer, records, at=lambda before: 1000 + before)
    assert producer.times == [1000, 1002, 1002, 1005]
