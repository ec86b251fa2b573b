"""Dead letters: which are sent where too many come, what they hold of large records, and what waits for them."""

import contextlib
import hashlib
import random
import tracemalloc

import numpy as np
import pytest
from kafka import errors as kafka_errors

import ldp
from ldp.frames import VERDICTS, Reason
from worker.counting.columns import Batch, Columns, Unreadable
from worker.counting.lateness import Late
from worker.counting.ports import Unavailable
from worker.kafka.dead_letters import writer as dead_letters
from worker.kafka.dead_letters.sampling import BYTES_A_SECOND, BYTES_AT_ONCE, DEAD_LETTERS_A_SECOND, Sample
from worker.kafka.dead_letters.writer import (
    LATE,
    LEAST_ROOM,
    MESSAGES,
    PREFIX_BYTES,
    WHOLE_BYTES,
    KafkaDeadLetters,
)

STREAM = ldp.Stream("colours", ldp.GRR("1", 3))
VERSION, RANGE = VERDICTS.index(Reason.VERSION, 1), VERDICTS.index(Reason.RANGE, 1)


class Future:
    def __init__(self, error=None):
        self.error, self.is_done = error, True

    def get(self, _timeout):
        if self.error is not None:
            raise self.error


class Topic:
    """The dead-letter topic and its producer: keeps acknowledged records as (key, value, headers)."""

    def __init__(self, limit=1 << 40):
        self.limit, self.settings, self.sent, self.refusal = limit, {}, [], None
        self.kept = {}

    def __call__(self, **settings):
        self.settings = settings
        return self

    def send(self, topic, *, value, key, headers):
        assert topic == "dead"
        if self.refusal is not None:
            raise self.refusal
        self.sent.append(key.decode())
        if len(value) + sum(len(name) + len(said) for name, said in headers) > self.limit:
            return Future(kafka_errors.MessageSizeTooLargeError())
        self.kept[key.decode()] = value, {name: said.decode() for name, said in headers}
        return Future()


@pytest.fixture
def topic(monkeypatch):
    topic = Topic()
    monkeypatch.setattr(dead_letters, "KafkaProducer", topic)
    return topic


class Open:
    """Dead letters with a stopped clock, and their events."""

    def __init__(self):
        self.now, self.safe, self.attempts = 100.0, 0, 0
        producer = dead_letters.connect_producer({}, "s")
        self.dead_letters = KafkaDeadLetters(
            producer, STREAM, "in", "dead", self.acknowledged, self.attempt, self.clock
        )

    def clock(self):
        return self.now

    def acknowledged(self):
        self.safe += 1

    @contextlib.contextmanager
    def attempt(self):
        self.attempts += 1
        yield

    def add(self, values, verdict=VERSION, start=0, unreadable=()):
        verdicts = np.broadcast_to(np.array(verdict, np.uint8), len(values))
        columns = Columns.of(range(start, start + len(values)), [0] * len(values), values)
        batch = Batch(4, start, start + len(values), columns, tuple(unreadable))
        return self.dead_letters.add(batch, verdicts)

    def late(self, values, of, start=0):
        """Sends those records of a batch that are late; each a second older than the one before, of panes of 10 s."""
        n, at = len(values), np.array(of)
        columns = Columns.of(range(start, start + n), [0] * n, values)
        times = 77_777 - 1000 * at
        late = Late(at, times, times // 10_000 * 10_000, np.full(len(at), 200_000), 10_000)
        return self.dead_letters.add_late(Batch(4, start, start + n, columns), late)


def bad_batch(offset):
    return Unreadable(offset, offset + 3, 77, "ab" * 32, "codec")


# --- which are sent ---------------------------------------------------------------------------------------------------


def test_slow_rejections_become_one_dead_letter_each(topic):
    opened, sent = Open(), 0
    for second in range(50):
        opened.now = 100.0 + second
        assert opened.add([b"\x07noise"] * DEAD_LETTERS_A_SECOND, start=sent) == 0
        sent += DEAD_LETTERS_A_SECOND
    opened.dead_letters.flush()
    assert topic.kept.keys() == {f"in/4/{offset}" for offset in range(sent)}
    assert opened.safe == sent


def test_a_flood_becomes_a_burst_and_then_a_fixed_rate(topic):
    opened, added, left_out = Open(), 0, 0
    for tick in range(201):  # ten seconds of 20,000 records a second
        opened.now = 100.0 + tick / 20
        left_out += opened.add([b"\x07noise"] * 1000, start=added)
        added += 1000
    offsets = sorted(int(key.rsplit("/", 1)[1]) for key in topic.kept)
    assert len(offsets) == added - left_out
    assert abs(len(offsets) - 11 * DEAD_LETTERS_A_SECOND) <= 1  # those at once, and ten seconds'
    assert offsets[:DEAD_LETTERS_A_SECOND] == list(range(DEAD_LETTERS_A_SECOND))
    seconds = np.bincount(np.array(offsets[DEAD_LETTERS_A_SECOND:]) // 20_000)
    assert np.ptp(seconds[:10]) <= 10  # none goes without for long
    # after a pause it is the first again
    opened.now += 60
    assert opened.add([b"\x07noise"] * DEAD_LETTERS_A_SECOND, start=added) == 0


def test_every_reason_keeps_dead_letters_during_a_flood(topic):
    opened = Open()
    verdicts = np.full(100_000, VERSION, np.uint8)
    verdicts[::10] = 0
    verdicts[99_991] = RANGE
    columns = Columns.of(range(100_000), [0] * 100_000, [b"\x07"] * 100_000)
    batch = Batch(4, 0, 100_000, columns, tuple(bad_batch(n) for n in range(100_000, 100_300, 3)))
    left_out = opened.dead_letters.add(batch, verdicts)
    reasons = [headers["__connect.errors.exception.class.name"] for _, headers in topic.kept.values()]
    assert reasons == ["version"] * DEAD_LETTERS_A_SECOND + ["range"] + ["batch"] * DEAD_LETTERS_A_SECOND
    assert left_out == 90_000 + 100 - len(reasons)
    assert "in/4/99991" in topic.kept
    assert "in/4/0" not in topic.kept  # accepted


def test_sampling_does_not_depend_on_record_contents():
    """Another content of any one record never changes whether that record is chosen."""
    rng = random.Random(3)
    for _ in range(200):
        sizes = [rng.choice([0, 10, 1 << 20, 6 << 20]) for _ in range(12)]
        i, other = rng.randrange(12), rng.choice([0, 1 << 21, 1 << 24])
        picked = []
        for size in (sizes[i], other):
            ends = np.cumsum([*sizes[:i], size, *sizes[i + 1 :]])
            begins = np.r_[0, ends[:-1]]
            columns = Columns(np.arange(12), np.zeros(12, np.int64), np.empty(0, np.uint8), begins, ends)
            picked.append(i in Sample(lambda: 0.0).choose(columns, np.full(12, VERSION, np.uint8)))
        assert picked[0] == picked[1]


def first(sample, sizes, reason="version"):
    """Number of records of these sizes that the sample takes now, beginning with the first."""
    ends = np.cumsum(np.array(sizes, np.int64))
    zeros, empty = np.zeros(len(sizes), np.int64), np.empty(0, np.uint8)
    columns = Columns(np.arange(len(sizes)), zeros, empty, np.r_[0, ends[:-1]], ends)
    chosen = sample.choose(columns, np.full(len(sizes), VERDICTS.index(reason, 1), np.uint8)).tolist()
    assert chosen == list(range(len(chosen)))
    return len(chosen)


@pytest.mark.parametrize("size", [200_000, 1 << 30])
def test_bytes_are_bounded_over_time(size):
    now, sample, sent, counted = 0.0, Sample(lambda: now), 0, min(size, BYTES_A_SECOND)
    for tick in range(1, 601):  # a minute
        for _ in range(first(sample, [size] * 50, "json")):
            sample.sent("json", size)
            sent += counted
        now = tick / 10
    assert 60 * BYTES_A_SECOND * 0.95 < sent <= BYTES_AT_ONCE + 60 * BYTES_A_SECOND + counted


def test_an_unsent_dead_letter_is_selected_again(topic):
    opened = Open()
    topic.refusal = kafka_errors.KafkaTimeoutError("no topic")
    for value in [b"\x07" * WHOLE_BYTES] * 6 + [b"\x07"] * (DEAD_LETTERS_A_SECOND + 1):
        with pytest.raises(Unavailable):
            opened.add([value])
    topic.refusal = None
    assert opened.add([b"\x07noise"]) == 0
    assert list(topic.kept) == ["in/4/0"]


# --- what they hold ---------------------------------------------------------------------------------------------------


def test_a_large_record_is_truncated_before_it_is_copied(topic):
    opened = Open()
    large = np.random.default_rng(1).bytes(100 << 20)
    columns = Columns.of([3, 5, 9], [0] * 3, [b"\x07", large, b"\x08"])
    tracemalloc.start()
    opened.dead_letters.add(Batch(4, 0, 10, columns), np.full(3, VERSION, np.uint8))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 1 << 20
    value, headers = topic.kept["in/4/5"]
    assert value == large[:PREFIX_BYTES]
    assert headers["truncated.size"] == str(100 << 20)
    assert headers["truncated.sha256"] == hashlib.sha256(large).hexdigest()
    assert [topic.kept[f"in/4/{offset}"][0] for offset in (3, 9)] == [b"\x07", b"\x08"]


def test_a_record_up_to_the_stated_size_is_kept_whole(topic):
    opened = Open()
    values = [b"x" * WHOLE_BYTES, b"y" * (WHOLE_BYTES + 1)]
    opened.add(values)
    (whole, said), (cut, _) = topic.kept.values()
    assert (len(whole), len(cut)) == (WHOLE_BYTES, PREFIX_BYTES)
    assert "truncated.size" not in said
    # and the client takes it, with the largest headers that there are
    assert topic.settings["max_request_size"] > WHOLE_BYTES + 4096


def test_a_record_refused_by_the_topic_is_sent_truncated(topic):
    topic.limit = 5000
    opened = Open()
    opened.add([b"a" * 100, b"b" * 6000])
    opened.dead_letters.flush()  # refused, and sent again
    opened.dead_letters.flush()
    assert [len(value) for value, _ in topic.kept.values()] == [100, PREFIX_BYTES]
    _, headers = topic.kept["in/4/1"]
    assert headers["truncated.sha256"] == hashlib.sha256(b"b" * 6000).hexdigest()
    # a batch truncated at once is not truncated again
    topic.limit = 1000
    opened.add([b"c" * (WHOLE_BYTES + 1)], start=2)
    with pytest.raises(kafka_errors.MessageSizeTooLargeError, match=r"raise its max\.message\.bytes"):
        opened.dead_letters.flush()


def test_the_minimum_message_size_fits_any_truncated_record(topic):
    name, source = "s" * 200, "t" * 249
    stream = ldp.Stream(name, ldp.GRR("1", 3))
    producer = dead_letters.connect_producer({}, name)
    writer = KafkaDeadLetters(producer, stream, source, "dead", lambda: None, contextlib.nullcontext)
    columns = Columns.of([2**63 - 2], [0], [b"x" * (WHOLE_BYTES + 1)])
    most = 2**63 - 1 - 366 * 86_400_000
    late = Late(np.zeros(1, np.int64), *(np.full((3, 1), most)), 366 * 86_400_000)
    writer.add_late(Batch(2**31 - 1, 0, 2**63 - 1, columns), late)
    ((key, (value, headers)),) = topic.kept.items()
    most = len(key) + len(value) + sum(len(name) + len(said) for name, said in headers.items())
    most += max(map(len, MESSAGES.values())) + 20  # another reason, and a value of more digits
    assert PREFIX_BYTES < most < LEAST_ROOM - 200  # 61 of the batch, and lengths


def test_an_unreadable_batch_has_a_dead_letter_without_a_value(topic):
    opened = Open()
    assert opened.add([], unreadable=[bad_batch(7)]) == 0
    ((key, (value, headers)),) = topic.kept.items()
    assert (key, value) == ("in/4/7", b"")
    assert headers.items() >= {
        ("__connect.errors.exception.class.name", "batch"),
        ("batch.why", "codec"),
        ("batch.end", "10"),
        ("batch.size", "77"),
        ("batch.sha256", "ab" * 32),
    }


def test_a_dead_letter_of_a_late_record_names_its_window(topic):
    opened = Open()
    assert opened.late([b"a", b"bc", b"def", b"g"], of=[0, 2], start=7) == 0
    opened.dead_letters.flush()
    assert topic.kept.keys() == {"in/4/7", "in/4/9"}
    value, headers = topic.kept["in/4/9"]
    assert value == b"def"
    assert headers == {
        "__connect.errors.topic": "in",
        "__connect.errors.partition": "4",
        "__connect.errors.offset": "9",
        "__connect.errors.exception.class.name": LATE,
        "__connect.errors.exception.message": MESSAGES[LATE],
        "stream": "colours",
        "late.timestamp": "75777",
        "late.start": "70000",
        "late.end": "80000",
        "late.closed": "200000",
    }
    assert opened.safe == 2


def test_floods_of_late_and_malformed_records_have_separate_rates(topic):
    opened = Open()
    assert opened.late([b"a"] * 1000, of=range(1000)) == 1000 - DEAD_LETTERS_A_SECOND
    assert opened.add([b"\x07noise"] * 10, start=1000) == 0
    opened.now += 0.5
    assert opened.late([b"a"] * 1000, of=range(500, 1000), start=2000) == 500 - DEAD_LETTERS_A_SECOND // 2
    offsets = sorted(int(key.rsplit("/", 1)[1]) for key in topic.kept)
    assert offsets == [
        *range(DEAD_LETTERS_A_SECOND),
        *range(1000, 1010),
        *range(2500, 2500 + DEAD_LETTERS_A_SECOND // 2),
    ]


# --- what waits -------------------------------------------------------------------------------------------------------


def test_pending_dead_letters_are_bounded_with_their_headers(topic, monkeypatch):
    monkeypatch.setattr(dead_letters, "_MOST_PENDING", 5000)
    opened = Open()
    opened.add([b"x"] * 40)
    one = sum(len(name) + len(said) for name, said in topic.kept["in/4/11"][1].items()) + len("in/4/11") + 1
    held = 40 - opened.safe
    assert held * one <= 5000 + 2 * one
    assert held >= 2
    opened.dead_letters.flush()
    assert opened.safe == 40
    assert opened.dead_letters._waiting == 0
