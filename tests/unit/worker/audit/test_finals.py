"""Final windows: each that is published is what the log says of it, to the last bit, wherever its panes are by now."""

import json
import random

import numpy as np
import pytest

import ldp
from ldp.snapshot import Cut, Line, Period, head_document, take
from ldp.snapshot.encoding import encode_window
from tests.unit.worker.audit.streams import STREAMS, every_stream, some_reports
from tests.unit.worker.audit.test_windows import GROUP, HOPS, MANY, START, TENS, Counting, log, stored
from worker.audit import PartitionVerdict, StreamVerdict
from worker.audit.comparison import judge
from worker.audit.decoding import chances_of, frequencies, support
from worker.audit.errors import Difference
from worker.audit.finals import Finals, finals_of
from worker.audit.records import Records
from worker.counting.windows import parse

STREAM = STREAMS["grr-3"]


def messages_of(stream, offsets, name, start, total, final=True, inline=8192, chunk=65536):
    """What a publisher sends of a window, by the keys without the stream."""
    window = parse(name)
    estimate = stream.oracle.estimate(stream.oracle.support(total.state), total.reports)
    period = Period(name, start, start + window.length, final)
    taken = take(stream, estimate, Cut(offsets, {}), 7, methods=["base"], window=period)
    return {
        part.key.partition("/")[2]: part.body for part in encode_window(taken, inline=inline, chunk=chunk)
    }


class World:
    """Two partitions that are counted, and a publisher that closes windows behind them."""

    def __init__(self, seed, terms=TENS, changes=(), stream=STREAM):
        self.rng, self.stream, self.messages, self.lines = random.Random(seed), stream, {}, {}
        self.logs = [log(self.rng, stream=stream) for _ in range(2)]
        self.partitions = [Counting(self.rng, records, terms, changes, stream) for records in self.logs]

    def publish(self):
        """Publishes the windows that every partition has passed, and drops what they do not need any more."""
        states = [each.state for each in self.partitions]
        begins = []
        for name in {name for state in states for name in state.since}:
            if any(name not in state.since for state in states):
                continue
            window, closed = parse(name), min(state.closed for state in states)
            since, line = max(state.since[name] for state in states), self.lines.get(name, 0)
            for start in range(since, closed - window.length + 1, window.every):
                if start + window.length > line:
                    self._publish(name, start, start + window.length)
            self.lines[name] = max(closed, self.lines.get(name, 0))
            begins.append(window.first_open(self.lines[name]))
        for state in states:
            if begins:
                state.drop(max(0, min(state.closed, *begins)))

    def _publish(self, name, start, end):
        cells = [each.state.total(start, end) for each in self.partitions]
        cells[0].reports += cells[1].reports
        cells[0].state += cells[1].state
        if cells[0].reports:
            offsets = {p: each.state.offset for p, each in enumerate(self.partitions)}
            made = messages_of(self.stream, offsets, name, start, cells[0])
            assert made.keys().isdisjoint(self.messages)
            self.messages |= made

    def run(self, to=START + 120, step=15):
        for end in range(START + step, to + 1, step):
            for each in self.partitions:
                each.to(min(to, end + self.rng.randrange(5)), droppings=False)
            self.publish()
        return self

    def audit(self, most=1000, begin=START, head=()):
        document = self.stream.document()
        published, there = finals_of(self.messages, dict(head), self.stream.fingerprint, most)
        finals = Finals(document, published, self.stream.oracle.state_size)
        verdicts = []
        for partition, counting in enumerate(self.partitions):

            def read(first, last, caps, records=counting.records):
                pieces = range(first, last, 7)
                return [Records.of(records[a - START : min(a + 7, last) - START], a) for a in pieces]

            verdicts.append(
                judge(
                    document,
                    partition,
                    group=GROUP,
                    cut=stored(counting.state, self.stream),
                    bounds=(begin, START + 120),
                    read=read,
                    finals=finals,
                )
            )
        return StreamVerdict("s", tuple(verdicts), there, *finals.compare())


@pytest.mark.parametrize("seed", range(30))
def test_what_was_published_of_final_windows_is_recounted(seed):
    world = World(
        seed, *[(TENS, [(START + 50, HOPS)]), (MANY, [(START + 70, TENS)]), (HOPS, ())][seed % 3]
    ).run()
    verdict = world.audit()
    assert (verdict.verdict, verdict.difference) == ("equal", None)
    assert verdict.finals == verdict.recounted == sum(key.endswith("/base") for key in world.messages) > 1
    if seed % 3 == 1:  # windows that the rules do not have any more
        assert any(key.startswith("30s every 5s/") for key in world.messages)
        assert all("30s every 5s" not in each.state.since for each in world.partitions)


def replaced(world, change, key=None):
    """Changes one message of those that are published."""
    key = key or sorted(world.messages)[len(world.messages) // 2]
    said = json.loads(world.messages[key])
    change(said)
    world.messages[key] = json.dumps(said).encode()
    return key


@pytest.mark.parametrize("seed", range(5))
def test_a_final_window_that_is_another_is_found(seed):
    world = World(seed, HOPS).run()
    messages = dict(world.messages)

    def difference(change):
        world.messages = dict(messages)
        name = replaced(world, change).removesuffix("/base")
        verdict = world.audit()
        assert verdict.verdict == "different"
        assert verdict.difference.startswith(f"window {name}: ")
        return verdict.difference.removeprefix(f"window {name}: ")

    assert "reports published, " in difference(lambda said: said.update(reports=said["reports"] + 1))

    def least(said):
        said["frequencies"][1] = np.nextafter(said["frequencies"][1], 9)

    assert difference(least).startswith("frequency[1] is ")
    assert difference(lambda said: said["frequencies"].pop()) == "2 frequencies published, 3 are due"
    earlier = difference(lambda said: said["offsets"].update({"0": START}))
    assert earlier.startswith(f"final at offset {START} of partition 0, where the closed line is 0")


def test_a_bounded_window_is_recounted_where_the_lines_had_not_passed_it():
    world = World(3, TENS)
    for each in world.partitions:
        each.to(START + 60, droppings=False)
    state = world.partitions[0].state
    name = next(name for name in state.cells if name != "all" and int(name.split("+")[0]) >= state.closed)
    start = int(name.split("+")[0])
    world._publish("10s", start, start + 10_000)
    for each in world.partitions:  # what comes later is not in it
        each.to(START + 120, droppings=False)
    assert "where the closed line is" in world.audit().difference
    cut = Cut({}, {}, lines={"10s": Line(start + 10_000, ((start, start + 20_000),))})
    taken = take(STREAM, STREAM.oracle.estimate(np.array([1, 0, 0]), 1), cut, 1, methods=["base"])
    verdict = world.audit(head=json.loads(json.dumps(head_document(taken))))
    assert (verdict.recounted, verdict.difference) == (1, None)


def test_what_cannot_be_recounted_of_final_windows_is_counted_only():
    world = World(4, HOPS).run()
    every = world.audit().finals
    # so many are looked at, the newest ones
    verdict = world.audit(most=2)
    assert (verdict.finals, verdict.recounted, verdict.published) == (every, 2, None)
    # the log's beginning is deleted
    verdict = world.audit(begin=START + 1)
    assert (verdict.finals, verdict.recounted, verdict.verdict) == (every, 0, "not recountable")
    # the store was set back behind a window
    behind = World(4, HOPS)
    for each, far in zip(behind.partitions, world.partitions, strict=True):
        each.to(START + 30, droppings=False)
        assert far.records == each.records
    behind.messages = world.messages
    verdict = behind.audit()
    assert (verdict.finals, verdict.verdict) == (every, "equal")
    assert verdict.recounted < every


def test_what_is_not_final_or_of_another_stream_is_passed_over():
    total = Counting(random.Random(1), log(random.Random(1)), TENS).to(START + 50).state.total()
    now = messages_of(STREAM, {0: START + 50}, "10s", 0, total, final=False)
    other = messages_of(STREAMS["grr-256"], {0: START + 50}, "10s", 0, _of(STREAMS["grr-256"]))
    assert finals_of(now | other, {}, STREAM.fingerprint, 9) == ([], 0)


def _of(stream):
    """Counts of a few reports of a stream."""
    reports = np.array(some_reports(stream, random.Random(3), 5), stream.oracle.report_dtype)
    state = stream.oracle.zeros()
    stream.oracle.accumulate(state, reports)
    return type("Cell", (), {"reports": 5, "state": state})


def test_vectors_in_parts_are_read():
    stream = STREAMS["grr-256"]
    whole = messages_of(stream, {0: 5}, "10s", 0, _of(stream))
    parts = messages_of(stream, {0: 5}, "10s", 0, _of(stream), inline=100, chunk=100)
    assert len(parts) > 3
    (one,), (other,) = (finals_of(made, {}, stream.fingerprint, 9)[0] for made in (whole, parts))
    assert one.frequencies.tobytes() == other.frequencies.tobytes()
    del parts["10s/0/base/frequencies/1"]
    with pytest.raises(Difference, match="window 10s/0: what is published cannot be read"):
        finals_of(parts, {}, stream.fingerprint, 9)


@pytest.mark.parametrize(
    "window",
    [
        {"name": "20s"},
        {"start": "1970-01-01T00:00:10.000Z"},
        {"end": "1970-01-01T00:00:11.000Z"},
        {"end": "soon"},
        {"start": None},
    ],
)
def test_a_window_that_contradicts_its_key_is_named(window):
    made = messages_of(STREAM, {0: 5}, "10s", 0, _of(STREAM))
    said = json.loads(made["10s/0/base"])
    said["window"] |= window
    with pytest.raises(Difference, match="window 10s/0: "):
        finals_of({"10s/0/base": json.dumps(said).encode()}, {}, STREAM.fingerprint, 9)
    with pytest.raises(Difference, match="window 10s/0: "):
        finals_of({"10s/0/base": b"no JSON"}, {}, STREAM.fingerprint, 9)


def test_a_floor_that_is_not_the_published_one_is_a_difference():
    counting = Counting(random.Random(1), log(random.Random(1)), TENS)
    counting.state.admit(9_000)
    facts = {"group": GROUP, "cut": stored(counting.state), "bounds": (START, START), "read": lambda *_: []}
    document = STREAM.document()
    assert judge(document, 0, **facts, published=(START, 9_000)).difference is None
    assert judge(document, 0, **facts, published=(START, None)).difference is None
    said = "floor: 9000 in Redis, 8000 in the newest snapshot"
    assert judge(document, 0, **facts, published=(START, 8_000)).difference == said


def test_a_difference_of_a_partition_comes_before_what_is_published():
    bad = PartitionVerdict(1, 0, 5, 0, difference="late by 1m: 3 in Redis, 0 recounted")
    equal = PartitionVerdict(0, 0, 5, 0)
    assert StreamVerdict("s", (equal, bad), 2, 1, "window").difference.startswith("partition 1: late")
    verdict = StreamVerdict("s", (equal,), 2, 1, "window 1h/0: 2 reports published, 1 recounted")
    assert (verdict.verdict, verdict.equal) == ("different", False)
    assert verdict.difference == "window 1h/0: 2 reports published, 1 recounted"


# --- decoding ---------------------------------------------------------------------------------------------------------


@every_stream
def test_frequencies_are_those_that_the_oracle_publishes(stream):
    oracle, rng = stream.oracle, np.random.default_rng(1)
    reports = oracle.perturb(rng.integers(0, oracle.domain_size, 500), rng=rng)
    state = oracle.zeros()
    oracle.accumulate(state, reports)
    document = stream.document()
    counts = support(document, state)
    np.testing.assert_array_equal(counts, oracle.support(state))
    assert chances_of(document) == (oracle.p, oracle.q)
    due = oracle.estimate(counts, 500).frequencies
    assert frequencies(document, counts, 500).tobytes() == due.tobytes()


def test_a_geometry_that_is_too_large_is_not_decoded():
    stream = ldp.Stream("s", ldp.PGR("6", domain_size=70_000, prime=401, dimension=3))
    assert support(stream.document(), stream.oracle.zeros()) is None
