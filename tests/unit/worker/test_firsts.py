"""Proof that a log lost records: the refusals of each leader, asked twice. One wrong answer proves nothing."""

from types import SimpleNamespace

import pytest
from kafka import TopicPartition
from kafka.errors import KafkaTimeoutError

from worker.kafka.client import firsts
from worker.kafka.client.firsts import Firsts

TP, OTHER = TopicPartition("t", 0), TopicPartition("t", 1)
AT = 10
"""The stored offset."""
OUT_OF_RANGE, NOT_LEADER, FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH = 1, 6, 74, 75
PAUSE = firsts._LOOK_AGAIN_SECONDS


class Log:
    """One partition's log, as its leader has it."""

    def __init__(self, first, end=30, leader=1):
        self.first, self.end, self.leader, self.epoch = first, end, leader, 1


class Brokers:
    """A consumer whose brokers answer by the logs that they lead, except where a test has them lie."""

    def __init__(self, logs):
        # former: (leader, partition) -> the log of a former leader that does not know that it is one
        self.logs, self.former, self.asked, self.silent = logs, {}, [], set()
        self.lie = lambda nth, answer: answer
        self._manager, self._cluster, self._seen = self, self, {}

    def run(self, step, *args):
        try:
            step(*args).send(None)
        except StopIteration as ended:
            return ended.value
        raise AssertionError("nothing here waits")

    async def wait_for(self, answer, _ms):
        if isinstance(answer, Exception):
            raise answer
        return answer

    def request_update(self):
        self._seen = {tp: (log.leader, log.epoch) for tp, log in self.logs.items()}

    def leader_for_partition(self, tp):
        return self._seen[tp][0]

    def leader_epoch_for_partition(self, tp):
        return self._seen[tp][1]

    def _answer(self, tp, what, answer):
        self.asked.append(what)
        return self.lie(len(self.asked), answer)

    def beginning_offsets(self, tps, timeout_ms):
        return {tp: self._answer(tp, "first", self.logs[tp].first) for tp in tps}

    def send(self, request, node):
        if node in self.silent:
            return KafkaTimeoutError("time is up")
        topics = []
        for topic in request.topics:
            partitions = [
                SimpleNamespace(
                    partition_index=part.partition,
                    error_code=self._answer(
                        TopicPartition(topic.topic, part.partition),
                        part.fetch_offset,
                        self._fetched(TopicPartition(topic.topic, part.partition), part, node),
                    ),
                )
                for part in topic.partitions
            ]
            topics.append(SimpleNamespace(topic=topic.topic, partitions=partitions))
        return SimpleNamespace(responses=topics)

    def _fetched(self, tp, part, node):
        log = self.former.get((node, tp), self.logs[tp])
        if part.current_leader_epoch != log.epoch:
            known = part.current_leader_epoch > log.epoch
            return UNKNOWN_LEADER_EPOCH if known else FENCED_LEADER_EPOCH
        return 0 if log.first <= part.fetch_offset <= log.end else OUT_OF_RANGE


class Looks:
    """Looks at the clock's times, until a test says otherwise."""

    def __init__(self, brokers):
        self.now = 100.0
        self.brokers, self.firsts = brokers, Firsts(brokers, 1000, lambda: self.now)

    def look(self, after=0.0, at=AT, *more):
        """Looks after a number of seconds; returns the proof for each partition."""
        self.now += after
        return self.firsts.of(dict.fromkeys((TP, *more), at))


@pytest.fixture
def whole():
    """A log that has the stored offset."""
    return Looks(Brokers({TP: Log(0)}))


@pytest.fixture
def lost():
    """A log that lost it."""
    return Looks(Brokers({TP: Log(17)}))


def refuse_once(nth, answer):
    return OUT_OF_RANGE if nth == 1 else answer


def test_a_log_continues_if_its_leader_answers_a_fetch(whole):
    assert whole.look() == {TP: AT}
    assert whole.look(at=30) == {TP: 30}  # the end
    assert whole.brokers.asked == [AT, 30]


def test_two_refusals_with_a_pause_prove_a_loss(lost):
    assert lost.look() == {}
    assert lost.look(0.9 * PAUSE) == {}
    assert lost.look(0.1 * PAUSE) == {TP: 17}
    assert lost.brokers.asked == [AT, "first", 16, 17] * 3


def test_one_refused_fetch_proves_nothing(whole):
    whole.brokers.lie = refuse_once
    assert whole.look() == {}
    assert whole.look() == {TP: AT}


def test_a_refused_fetch_after_the_log_start_proves_nothing():
    looks = Looks(Brokers({TP: Log(5)}))
    looks.brokers.lie = lambda _, answer: OUT_OF_RANGE if looks.brokers.asked[-1] == AT else answer
    assert [looks.look(PAUSE) for _ in range(3)] == [{}] * 3


@pytest.mark.parametrize("code", [-1, NOT_LEADER, FENCED_LEADER_EPOCH])
def test_only_out_of_range_errors_count_as_refusals(whole, code):
    said = {AT: code, "first": 17, 16: code}
    whole.brokers.lie = lambda _, answer: said.get(whole.brokers.asked[-1], answer)
    assert [whole.look(PAUSE) for _ in range(3)] == [{}] * 3


def test_a_contradicting_look_restarts_the_pause(lost):
    assert lost.look() == {}
    log, lost.brokers.logs[TP] = lost.brokers.logs[TP], Log(0)
    assert lost.look(PAUSE) == {TP: AT}
    lost.brokers.logs[TP] = log
    assert lost.look() == {}
    assert lost.look(PAUSE) == {TP: 17}


def test_looks_at_two_offsets_do_not_count_together(lost):
    assert lost.look() == {}
    assert lost.look(PAUSE, AT + 1) == {}
    assert lost.look(PAUSE, AT + 1) == {TP: 17}


def test_a_log_start_that_moves_between_two_looks_is_read_at_the_second(lost):
    assert lost.look() == {}
    lost.brokers.logs[TP].first = 20
    assert lost.look(PAUSE) == {TP: 20}


def test_a_leader_elected_between_two_looks_is_queried(lost):
    assert lost.look() == {}
    lost.brokers.logs[TP] = Log(0, leader=2)
    assert lost.look(PAUSE) == {TP: AT}


@pytest.mark.parametrize(
    ("first", "proven"), [(0, {TP: AT}), (17, {TP: 17})], ids=["has all", "lost records"]
)
def test_a_former_leader_proves_nothing(lost, first, proven):
    """The client knows the new leader, but a broker does not: the epochs differ."""
    old, new = lost.brokers.logs[TP], Log(first)
    new.epoch = 2
    assert lost.look() == {}
    lost.brokers.logs[TP], lost.brokers.former[1, TP] = new, old
    assert lost.look(PAUSE) == {}
    lost.brokers.former.clear()
    lost.look()
    assert lost.look(PAUSE) == proven


def test_only_partitions_without_a_leader_are_omitted(lost):
    lost.brokers.logs[OTHER] = Log(0, leader=-1)
    assert lost.look(0, AT, OTHER) == {}
    assert lost.look(PAUSE, AT, OTHER) == {TP: 17}
    lost.brokers.logs[OTHER].leader = 2
    assert lost.look(0, AT, OTHER) == {TP: 17, OTHER: AT}


def test_a_time_out_proves_nothing_and_keeps_earlier_refusals(lost):
    lost.brokers.silent = {1}
    with pytest.raises(KafkaTimeoutError):
        lost.look()
    lost.brokers.silent = set()
    assert lost.look(PAUSE) == {}
    lost.brokers.silent = {1}
    with pytest.raises(KafkaTimeoutError):
        lost.look(PAUSE)
    lost.brokers.silent = set()
    assert lost.look() == {TP: 17}


@pytest.mark.parametrize("first", [0, AT, AT + 1, 17], ids=lambda first: f"log from {first}")
@pytest.mark.parametrize("nth", range(1, 9))
@pytest.mark.parametrize("by", [-7, -1, 1, 7])
def test_one_wrong_answer_never_skips_records(first, nth, by):
    """Any answer of two looks, in either direction: a fetch is answered instead of refused, or the reverse."""

    def lie(number, answer):
        if number != nth:
            return answer
        if brokers.asked[-1] == "first":
            return max(0, answer + by)
        return 0 if answer else OUT_OF_RANGE

    brokers = Brokers({TP: Log(first)})
    brokers.lie, looks = lie, Looks(brokers)
    said = [found for _ in range(4) if (found := looks.look(PAUSE))]
    truth = {TP: max(first, AT)}
    assert said[-1] == truth
    # an answered fetch is believed at once: it loses nothing, as the next one is refused
    assert [found for found in said if found != truth] in ([], [{TP: AT}])
