"""Topic of reports, its groups, and a consumer of both, in memory.

Records are appended as record batches, in transactions or not; some are unreadable. Each record has the
verdict that it must get.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
from kafka import OffsetAndMetadata, TopicPartition
from kafka import errors as kafka_errors
from kafka.protocol.consumer import FetchRequest
from kafka.structs import ConsumerGroupMetadata, MemberState

from tests.simulation.world import World, kafka
from tests.support.batches import ABORT, APPEND_TIME, COMMIT, CONTROL, TRANSACTIONAL, batch, record
from worker.counting.ports import COUNTED
from worker.kafka.client.raw_fetch import Fetched

BEGAN_MS = 1_700_000_000_000
SESSION_SECONDS = 1.0
"""Time without a heartbeat after which a group removes a member; shorter than in service, so that histories are."""
LONGEST_COMMIT = 25.0
"""Seconds after which a worker must have stored counted records."""
TIMED_OUT = kafka(kafka_errors.KafkaTimeoutError)


class Partition:
    """Log of one partition.

    Attributes:
        answers: required verdict of the record at each offset: a list of indices, the reason of its
            rejection, or None if no reader sees it. An unreadable batch is one rejected record, at its last
            offset.
        first: where the log begins.
        lost: highest log start that brokers ever reported.
    """

    def __init__(self) -> None:
        self.answers: list[Any] = []
        self.times: list[int] = []  # the timestamp at each offset, in milliseconds
        self.batches: list[tuple[int, int, bytes]] = []  # base, end, bytes
        self.first = self.lost = 0
        self.open: dict[int, int] = {}  # producer id -> where its open transaction begins
        self.aborted: list[tuple[int, int, int]] = []  # producer id, first offset, offset of the marker
        self.decided: list[tuple[int, int]] = []  # first offset and marker of every transaction that ended
        self.cut_to: int | None = None  # end of the log after a truncation

    @property
    def end(self) -> int:
        return len(self.answers) if self.cut_to is None else self.cut_to

    @property
    def stable(self) -> int:
        return min(self.open.values(), default=self.end)

    def append(
        self,
        values: Sequence[tuple[bytes | None, Any, int]],
        *,
        producer: int = -1,
        damaged: bool = False,
        appended: int | None = None,
    ) -> None:
        """Appends a batch of (value, answer, timestamp); ``appended`` is the broker's time, if it stamps them."""
        base = self.end
        if producer >= 0:
            self.open.setdefault(producer, base)
        section = b"".join(
            record(i, value, timestamp=at - BEGAN_MS, headers=[(b"h", b"")] if (base + i) % 7 == 0 else ())  # type: ignore[no-untyped-call]
            for i, (value, _, at) in enumerate(values)
        )
        attributes = (TRANSACTIONAL if producer >= 0 else 0) | (0 if appended is None else APPEND_TIME)
        stamps = {"attributes": attributes, "first": BEGAN_MS, "highest": appended or BEGAN_MS}
        data = batch(base, section, len(values), producer=producer, **stamps)  # type: ignore[no-untyped-call]
        if damaged:
            data = data[:-1] + bytes([data[-1] ^ 1])
            self.answers += [None] * (len(values) - 1) + ["batch"]
        else:
            self.answers += [answer for _, answer, _ in values]
        self.times += [at if appended is None else appended for _, _, at in values]
        self.batches.append((base, self.end, data))

    def decide(self, producer: int, *, commit: bool) -> None:
        """Ends a transaction with a marker."""
        first, base = self.open.pop(producer), self.end
        self.decided.append((first, base))
        section = record(0, b"\0\0\0\0\0\0", key=COMMIT if commit else ABORT)  # type: ignore[no-untyped-call]
        data = batch(base, section, 1, attributes=TRANSACTIONAL | CONTROL, producer=producer, first=BEGAN_MS)  # type: ignore[no-untyped-call]
        self.answers.append(None)
        self.times.append(0)
        self.batches.append((base, base + 1, data))
        if not commit:
            self.aborted.append((producer, first, base))
            for begin, end, held in self.batches:
                if begin >= first and int.from_bytes(held[43:51], "big", signed=True) == producer:
                    for at in range(begin, end):
                        if self.answers[at] != "batch":  # a reader checks the checksum before the producer id
                            self.answers[at] = None

    def whole(self, to: int) -> bool:
        """Returns whether no transaction would be cut by a truncation."""
        return not self.open and not any(first < to <= marker for first, marker in self.decided)

    def truncate(self, to: int) -> None:
        """Removes the end permanently, even if it was counted."""
        self.cut_to = to
        self.batches = [one for one in self.batches if one[1] <= to]
        self.aborted = [one for one in self.aborted if one[2] < to]


class Reports:
    """A topic of reports."""

    def __init__(self, world: World, name: str, partitions: int) -> None:
        self.world, self.name = world, name
        self.number = 1
        self.partitions = [Partition() for _ in range(partitions)]
        self.incarnations = {self.topic_id: self.partitions}
        self.groups: list[Group] = []
        self.leaderless: dict[int, float] = {}  # partition -> until when

    def led(self, number: int) -> bool:
        """Returns whether a partition has a leader."""
        return self.world.now >= self.leaderless.get(number, 0.0)

    @property
    def topic_id(self) -> str:
        return f"{self.name}-{self.number}"

    def recreate(self) -> None:
        """Another topic of the same name is in its place, with another id."""
        self.number += 1
        self.partitions = [Partition() for _ in self.partitions]
        self.incarnations[self.topic_id] = self.partitions

    def grow(self) -> None:
        """Has one partition more."""
        self.partitions.append(Partition())
        for group in self.groups:
            group.rebalance()


class Group:
    """Consumer group as its coordinator knows it."""

    def __init__(self, world: World, reports: Reports) -> None:
        self.world, self.reports = world, reports
        reports.groups.append(self)
        self.generation = 0
        self.members: dict[str, Consumer] = {}
        self.assignment: dict[str, set[int]] = {}
        self.offsets: dict[int, tuple[int, str]] = {}

    def rebalance(self) -> None:
        """Starts a generation and assigns the partitions again; most stay with their member."""
        rng = self.world.rng
        before = {p: name for name, mine in self.assignment.items() for p in mine if name in self.members}
        self.generation += 1
        self.assignment = {name: set() for name in self.members}
        for partition in range(len(self.reports.partitions)):
            if self.assignment:
                stays = before.get(partition) if rng.random() < 0.5 else None
                self.assignment[stays or rng.choice(sorted(self.assignment))].add(partition)
        self.world.note("rebalance", {name: sorted(mine) for name, mine in self.assignment.items()})

    def tick(self) -> None:
        """Forgets who is silent for too long."""
        now = self.world.now
        workers = [(name, member.worker) for name, member in self.members.items()]
        gone = [
            n for n, w in workers if (w.dead and now > w.died + SESSION_SECONDS) or w.hangs_until > now + 30.0
        ]
        for name in gone:
            del self.members[name]
        if gone:
            self.world.note("expelled", gone)
            self.rebalance()


class Manager:
    """Carries requests that a client does not make by itself."""

    def __init__(self, answer: Callable[[Any], Any]) -> None:
        self._answer = answer
        self._conns: dict[int, Any] = {}

    def run(self, step: Callable[..., Any], *more: Any) -> Any:
        try:
            step(*more).send(None)
        except StopIteration as ended:
            return ended.value
        raise AssertionError("it waits for something else than an answer")

    def least_loaded_node(self) -> int:
        return 1

    def send(self, request: Any, _node: int) -> Any:
        return request

    async def wait_for(self, request: Any, _timeout_ms: int) -> Any:
        return self._answer(request)


def told_id(world: World, reports: Reports, known: bool = True) -> Any:
    """Returns the brokers' answer about a topic's id."""

    def answer(known: bool) -> Any:
        topic = SimpleNamespace(error_code=3 * (not known), topic_id=reports.topic_id)
        return SimpleNamespace(topics=[topic])

    def effect() -> Any:
        return answer(world.rng.random() >= world.faults.unknown)

    return answer(known) if reports.number == 1 else world.call("the id", effect, TIMED_OUT, writes=False)


class Cluster:
    """Metadata of a topic's leaders, which a client learns at once."""

    reports: Reports

    def leader_for_partition(self, tp: TopicPartition) -> int:
        return 1 if self.reports.led(tp.partition) else -1

    def request_update(self) -> None:
        pass


class Consumer(Cluster):
    """Group member that behaves like kafka-python's `KafkaConsumer` that reads committed records.

    The member learns about the group and the topic only in its polls.
    """

    def __init__(self, world: World, group: Group, worker: Any) -> None:
        self.world, self.group, self.reports, self.worker = world, group, group.reports, worker
        self.name = worker.name
        hooks = "PartitionRecords _parse_fetched_data _handle_fetch_response _handle_list_offsets_response"
        self._fetcher = SimpleNamespace(**dict.fromkeys(hooks.split()))
        self._coordinator = SimpleNamespace(
            request_rejoin=self._request_rejoin,
            fetch_committed_offsets=self._committed,
            _handle_offset_fetch_response=None,
            _handle_offset_commit_response=None,
        )
        self._cluster, self.unauthorized_topics = self, frozenset[str]()
        self._last_successful_refresh_ms, self.update_metadata = 0.0, None
        self._manager = Manager(self._answer)
        self.state, self.generation, self.rejoining = MemberState.UNJOINED, -1, False
        self.mine: set[int] = set()
        self.paused: set[int] = set()
        self.positions: dict[int, int] = {}
        self.highs: dict[int, int] = {}
        self.known_id: str | None = None
        self.asked_id: str | None = None
        self.truncated = self.claiming = self.polled = False
        self.orphaned = 0  # polls since the publisher ended
        self.read_id = self.reports.topic_id
        self.fetched: dict[
            int, list[tuple[int, int, str]]
        ] = {}  # partition -> ranges, each with its topic's id
        self.regained: set[int] = set()
        self.overtaken: dict[
            int, int
        ] = {}  # partition -> end of the fetched range when the log lost the rest
        self.read: dict[int, tuple[tuple[int, str], int, int]] = {}
        """Partition -> committed offset and metadata, number of snapshots, log start."""
        self.misled = set[int]()  # partitions with a wrong log start in the last answer
        self.wanted = set[int]()  # partitions of the last claim
        self.confirmed_as: dict[int, tuple[int, str]] = {}
        self.flips, self.left_in_the_middle = 0, 0.0
        self.known_partitions, self.polled_at = 0, world.now
        self.ahead: dict[
            int, tuple[int, float]
        ] = {}  # partition -> stored offset, and since when more is counted

    def log(self, partition: int, offset: int) -> Partition:
        """Returns the log that was last read at an offset of a partition."""
        fetched = reversed(self.fetched[partition])
        return self.reports.incarnations[next(i for at, end, i in fetched if at <= offset < end)][partition]

    # cached answers of the cluster

    def partitions_for_topic(self, _topic: str) -> set[int] | None:
        return set(range(self.known_partitions)) if self.known_id is not None else None

    def _answer(self, request: Any) -> Any:
        if request is None:  # the request of a search for leaders
            return self.world.call("metadata", lambda: None, TIMED_OUT, writes=False)
        if isinstance(request, FetchRequest):
            return self.world.call("fetch", lambda: self._answer_fetch(request), TIMED_OUT, writes=False)
        said = told_id(self.world, self.reports, self.known_id is not None)
        self.asked_id = said.topics[0].topic_id
        return said

    def _answer_fetch(self, request: FetchRequest) -> Any:
        """Answers a fetch at given offsets: whether they are in range."""

        def answer(number: int, offset: int) -> Any:
            led, log = self.reports.led(number), self.reports.partitions[number]
            error = 1 if not log.first <= offset <= log.end and not self._lies(number) else 0
            return SimpleNamespace(partition_index=number, error_code=error if led else 6)

        (topic,) = request.topics
        partitions = [answer(one.partition, one.fetch_offset) for one in topic.partitions]
        return SimpleNamespace(responses=[SimpleNamespace(topic=topic.topic, partitions=partitions)])

    def _lies(self, number: int) -> bool:
        """Returns whether a broker answers a fetch wrongly; never twice in a row."""
        lied, rng = self.world.faults.lied, self.world.rng
        lies = bool(lied) and number not in self.misled and rng.random() < lied
        if lies:
            self.world.note("a broker lies", f"{number}: a fetch")
        return lies

    def leader_epoch_for_partition(self, _tp: TopicPartition) -> int:
        return 0

    def _refresh(self) -> None:
        """Learns of changes of the topic after a while."""
        reports, rng = self.reports, self.world.rng
        if self.known_id is not None and rng.random() < self.world.faults.unknown:
            self.world.note("the topic's id is not known")
            self.known_id = None
            return
        if self.known_id == reports.topic_id and self.known_partitions == len(reports.partitions):
            return
        if rng.random() < (0.3 if self.known_id is not None else 0.15):
            self._last_successful_refresh_ms = 1000 * self.world.now
            if self.known_id not in (None, reports.topic_id):
                self.world.note("the topic's id is not known")
                self.known_id = None
            else:
                self.known_id, self.known_partitions = reports.topic_id, len(reports.partitions)

    # the group

    def subscribe(self, topics: Sequence[str], listener: Any) -> None:
        (self.topic,), self.listener = topics, listener

    def group_metadata(self) -> Any:
        return ConsumerGroupMetadata("g", self.generation, self.name, None, self.state)

    def assignment(self) -> set[TopicPartition]:
        return {TopicPartition(self.topic, partition) for partition in self.mine}

    def _request_rejoin(self) -> None:
        self.rejoining = True

    def _join(self) -> None:
        group, world = self.group, self.world
        if self.name not in group.members:
            group.members[self.name] = self
            group.rebalance()
            if self.generation >= 0:
                self._lose(self.mine, told=True)  # as the coordinator answers an expelled member
                self.mine = set()
        elif self.generation == group.generation:
            return
        if self.state is MemberState.REBALANCING and not self.rejoining:
            hung = self.worker.hangs_until > self.left_in_the_middle
            assert hung or self.world.now < self.left_in_the_middle + 10.0, "a join is never completed"
            return  # the quirk: the client does not resume a join that a poll interrupted
        if self.state is not MemberState.REBALANCING and world.rng.random() < world.faults.slow_join:
            self.state, self.rejoining = MemberState.REBALANCING, False
            self.left_in_the_middle = world.now
            return
        self.state, self.rejoining = MemberState.STABLE, False
        self.overtaken.clear()
        before, new, self.generation = self.mine, set(group.assignment[self.name]), group.generation
        told = world.rng.random() >= world.faults.silent
        if before - new:
            self._lose(before - new, told)
        self.mine = set(new)
        again = set[int]()
        for partition in new & before:
            if world.rng.random() < world.faults.silent and partition in group.offsets:
                world.note("lost and regained without a word", partition)
                self.positions[partition] = group.offsets[partition][0]
                self.paused.discard(partition)
                self.regained.add(partition)
                if world.faults.held_again and world.rng.random() < world.faults.held_again:
                    again.add(partition)
        fresh = (new - before) | again
        for partition in fresh:
            self.positions.pop(partition, None)
            self.paused.discard(partition)
        if fresh:
            self.listener.on_partitions_assigned([TopicPartition(self.topic, p) for p in sorted(fresh)])
        for partition in fresh:
            if partition not in self.positions:
                raise AssertionError("a partition without a position is read from where the group says")

    def _lose(self, partitions: Iterable[int], told: bool) -> None:
        if told:
            self.listener.on_partitions_revoked([TopicPartition(self.topic, p) for p in sorted(partitions)])
        else:
            self.world.note("lost without a word", sorted(partitions))

    # reading

    def poll(self, timeout_ms: float) -> dict[TopicPartition, list[Any]]:
        world, held = self.world, self.worker.ownership.counted().keys()
        assert held <= self.mine or not self.polled, "what was lost without a word is still held"
        self.polled = False
        self.orphaned += bool(self.worker.raised)
        assert self.orphaned < 3, "it counts on, and its publisher has ended"
        self._demand_commits()
        self._demand_heed()
        world.call("poll", lambda: None, TIMED_OUT, writes=False)
        self.polled_at = world.now
        self._refresh()
        if self.known_id is None and self.generation < 0:
            world.sleep(timeout_ms / 1000)
            return {}
        self._join()
        if self.state is not MemberState.STABLE:
            world.sleep(timeout_ms / 1000)
            return {}
        full = self.worker.log._prefetch.full
        waiting = {p for p, one in self.worker.ownership._held.items() if one.waiting} - self.regained
        found = self._fetch()
        early = {tp.partition for tp in found} & waiting
        assert not early, f"partitions {early} are read, and have to wait"
        unasked = {tp.partition for tp in found} - self.regained  # a new assignment is not paused
        assert not unasked or not full, "it fetches, and has no room for it"
        idle = {tp.partition for tp in found} - held - self.regained
        assert not idle, f"partitions {idle} are read, and not counted"
        if not found:
            world.sleep(timeout_ms / 1000)
        self.polled = True
        return found

    def _demand_heed(self) -> None:
        """Checks that a worker stops counting partitions that the head no longer names."""
        states = self.worker.ownership.states().values()
        named = [state for state in states if state.windows.admitted_from is not None and state.windowing]
        assert self.claiming or not self.worker.topic.heedless or not named, "no head names what it counts"
        self.claiming = self.worker.topic.heedless = False

    def _demand_commits(self) -> None:
        """Checks that counted records are stored in time."""
        world, worker = self.world, self.worker
        stored, counted = worker.ownership.stored(), worker.ownership.counted()
        self.ahead = {p: self.ahead.get(p, (-1, world.now)) for p in stored}
        for partition, offset in stored.items():
            was, since = self.ahead[partition]
            if offset != was or offset == counted[partition] or worker.deployment.refuses(partition):
                self.ahead[partition] = offset, world.now
                continue
            # a search for a head waits for records that do not come
            hung = max(world.snapshots.unreadable_until, worker.hangs_until) > since
            assert hung or world.now < since + LONGEST_COMMIT, "what is counted is not committed"

    def _fetch(self) -> dict[TopicPartition, list[Any]]:
        reports, world, found = self.reports, self.world, dict[TopicPartition, list[Any]]()
        if self.known_id is None:
            return {}  # it knows no leaders; a fetch names the topic by its name, and not by its id
        numbers = sorted(self.mine - self.paused)
        world.rng.shuffle(numbers)
        for number in numbers:
            if number >= len(reports.partitions) or not reports.led(number):
                continue
            partition, at = reports.partitions[number], self.positions[number]
            tp = TopicPartition(self.topic, number)
            if partition.cut_to is not None and at > partition.end and number in self.highs and not found:
                self.truncated = True
                raise kafka_errors.LogTruncationError({tp: at})  # noticed only after an earlier read
            if at < partition.first or at > partition.end:
                if found:
                    continue  # raised by the next poll
                log = self.worker.log
                # a worker that has not noticed the rebalance will drop its data
                if log._prefetch.holds(number) and log._membership == self.group_metadata()[1:3]:
                    self.overtaken[number] = at
                raise kafka_errors.OffsetOutOfRangeError({tp: at})
            self.highs[number] = partition.end
            stable, most = partition.stable, world.rng.randint(1, 4)
            some = [one for one in partition.batches if one[1] > at and one[0] < stable][:most]
            if some:
                end = max(some[-1][1], at)
                cut = partition.aborted
                aborted = [(pid, first) for pid, first, last in cut if first < end and last >= some[0][0]]
                data = np.frombuffer(bytearray(b"".join(one[2] for one in some)), np.uint8)
                if world.rng.random() < world.faults.damaged:
                    world.note("damaged on the way", f"{number} before {end}")
                    self.flips += 1  # never the same bytes twice
                    data[-1] ^= 1 + self.flips % 255
                self.positions[number] = end
                found[tp] = [Fetched(at, end, data, aborted)]
                self.read_id = reports.topic_id
                self.fetched.setdefault(number, []).append((at, end, self.read_id))
                world.say(f"fetched {number}", f"[{at}, {end})")
        return found

    def seek(self, tp: TopicPartition, offset: int) -> None:
        self._demand(tp)
        self.positions[tp.partition] = offset

    def pause(self, *tps: TopicPartition) -> None:
        for tp in tps:
            self._demand(tp)
            self.paused.add(tp.partition)
            self.regained.discard(tp.partition)

    def resume(self, *tps: TopicPartition) -> None:
        for tp in tps:
            self._demand(tp)
            self.paused.discard(tp.partition)

    def _demand(self, tp: TopicPartition) -> None:
        assert tp.partition in self.mine, f"{tp} is not assigned"

    # asking

    def highwater(self, tp: TopicPartition) -> int | None:
        return self.highs.get(tp.partition)

    def beginning_offsets(self, tps: Sequence[TopicPartition], timeout_ms: int) -> dict[TopicPartition, int]:
        return self._ask("beginning offsets", tps, "first")

    def end_offsets(self, tps: Sequence[TopicPartition], timeout_ms: int) -> dict[TopicPartition, int]:
        return self._ask("end offsets", tps, "stable")

    def _told(self, number: int, name: str) -> int:
        """Returns the first or last offset of a log; sometimes a wrong one."""
        offset, rng = int(getattr(self.reports.partitions[number], name)), self.world.rng
        self.misled -= {number} if name == "first" else set()
        if self.world.faults.lied and rng.random() < self.world.faults.lied:
            self.world.note("a broker lies", f"{number}: {name}")
            self.misled |= {number} if name == "first" else set()
            return max(0, offset + rng.choice([-20, -5, -1, 1, 5, 20]))
        return offset

    def _ask(self, what: str, tps: Sequence[TopicPartition], name: str) -> dict[TopicPartition, int]:
        led = [tp for tp in tps if self.reports.led(tp.partition)]
        assert led, f"it waits for a leader of {tps}, and counts no other meanwhile"

        def effect() -> dict[TopicPartition, int]:
            return {tp: self._told(tp.partition, name) for tp in led}

        found = self.world.call(what, effect, TIMED_OUT, writes=False)
        return {tp: found[tp] for tp in tps}  # the quirk: KeyError for a partition without a leader

    def _committed(self, tps: Collection[TopicPartition], timeout_ms: int) -> Mapping[TopicPartition, Any]:
        self.worker.listener.demand_nothing_lost()
        self.claiming = self.worker.topic.headless = True
        self.wanted = {tp.partition for tp in tps}

        def effect() -> Mapping[TopicPartition, Any]:
            offsets = self.group.offsets
            return {tp: OffsetAndMetadata(*offsets.get(tp.partition, (-1, "")), -1) for tp in tps}

        found = self.world.call("committed", effect, TIMED_OUT, writes=False)
        for tp, each in found.items():
            said = (0, "") if each.offset < 0 else (each.offset, each.metadata)
            heads, log = self.worker.deployment.truth.heads, self.reports.partitions[tp.partition]
            self.read[tp.partition] = said, len(heads), log.first
        return found

    def commit(self, offsets: Mapping[TopicPartition, Any], timeout_ms: int) -> None:
        assert self.state is MemberState.STABLE, "a commit of who knows that it is no member"
        self._demand_kept(offsets)
        effect = self._commit(offsets)

        def confirm() -> None:
            effect()
            self.worker.confirmed.update(tp.partition for tp in offsets)
            self.confirmed_as.update(_said(offsets))

        self.world.call(f"commit {_said(offsets)}", confirm, TIMED_OUT)
        if self.world.rng.random() < self.world.faults.expelled:
            self.world.note("a heartbeat says that it is no member", self.name)
            self.group.members.pop(self.name, None)
            self.group.rebalance()
            self.state = MemberState.UNJOINED

    def _demand_kept(self, offsets: Mapping[TopicPartition, Any]) -> None:
        """Checks that a claim never lowers the committed offset."""
        for partition, (offset, word) in _said(offsets).items():
            if partition in self.worker.listener.given:
                continue
            (was, said), *_ = self.read[partition]
            assert said != COUNTED or (word == COUNTED and offset >= was), (
                "a claim lowers what Kafka says was counted"
            )
            key = f"{{{self.worker.deployment.stream.name}:{partition}}}:meta"
            stored = self.worker.peeked.get((self.world.current, key))
            assert word == COUNTED or not stored or not stored[b"commit_id"], (
                "a claim does not say that it was counted"
            )
            truth = self.worker.deployment.truth
            reached = truth.published("offsets", partition, self.worker.topic.heads) or 0
            assert word == COUNTED or reached <= offset or self.world.lossy, (
                "a claim does not say that it was published"
            )

    def commit_async(self, offsets: Mapping[TopicPartition, Any]) -> None:
        if self.world.rng.random() >= self.world.faults.lost_mirror:
            self.world.late.append((f"mirror {_said(offsets)}", self._commit(offsets)))

    def _commit(self, offsets: Mapping[TopicPartition, Any]) -> Any:
        """Returns a commit as the coordinator handles it: valid for members of the current generation."""
        generation, topic_id = self.generation, self.reports.topic_id

        def effect() -> None:
            if generation != self.group.generation or self.name not in self.group.members:
                raise kafka_errors.CommitFailedError("in the simulation")
            if topic_id == self.reports.topic_id:
                self.worker.deployment.truth.mirrored(_said(offsets))
                self.group.offsets.update(_said(offsets))

        return effect

    def close(self, **_how: Any) -> None:
        if self.group.members.pop(self.name, None) is not None:
            self.group.rebalance()


def _said(offsets: Mapping[TopicPartition, Any]) -> dict[int, Any]:
    return {tp.partition: (said.offset, said.metadata) for tp, said in offsets.items()}


class Administrator:
    """An administrator's client for a group and its topic."""

    def __init__(self, world: World, group: Group, topic: str) -> None:
        self.world, self.group, self.topic = world, group, topic

    def list_group_offsets(self, asked: Mapping[str, Any]) -> dict[str, dict[TopicPartition, Any]]:
        def effect() -> dict[str, dict[TopicPartition, Any]]:
            offsets = self.group.offsets.items()
            found = {TopicPartition(self.topic, p): OffsetAndMetadata(*said, -1) for p, said in offsets}
            return dict.fromkeys(asked, found)

        return self.world.call("group offsets", effect, TIMED_OUT, writes=False)

    def list_partition_offsets(
        self, asked: Mapping[TopicPartition, Any], isolation_level: Any = None
    ) -> dict[TopicPartition, Any]:
        def offset(log: Partition, spec: Any) -> Any:
            return SimpleNamespace(offset=log.first if spec.name == "EARLIEST" else log.end)

        def effect() -> dict[TopicPartition, Any]:
            logs = self.group.reports.partitions
            return {tp: offset(logs[tp.partition], spec) for tp, spec in asked.items()}

        return self.world.call("partition offsets", effect, TIMED_OUT, writes=False)

    def close(self) -> None:
        pass
