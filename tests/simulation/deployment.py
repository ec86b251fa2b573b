"""Deployment in memory: workers around a store and a group."""

from __future__ import annotations

import collections
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any, cast

import numpy as np
import numpy.typing as npt
from kafka import errors as kafka_errors

import ldp
from ldp.frames import VERDICTS
from tests.simulation import broker, snapshots
from tests.simulation.broker import TIMED_OUT, Reports
from tests.simulation.configurations import Configured
from tests.simulation.documents import join
from tests.simulation.parts import FEWEST
from tests.simulation.recount import answer, of_head, of_state, statuses
from tests.simulation.scheduler import Member, Task
from tests.simulation.store import Client, MemoryRedis, Process
from tests.simulation.truth import Truth, lineage_of
from tests.simulation.world import World
from worker.counting import layout
from worker.counting.columns import Batch
from worker.counting.owned_partition import OwnedPartition
from worker.counting.ownership import Ownership
from worker.counting.partition_state import PartitionState
from worker.counting.ports import COUNTED, Answer, Unavailable
from worker.kafka.dead_letters.writer import KafkaDeadLetters
from worker.kafka.reports.group import KafkaGroup
from worker.kafka.reports.log import KafkaLog
from worker.kafka.snapshots.producer import KafkaSnapshotProducer
from worker.observe.events import StreamEvents
from worker.observe.progress import Progress
from worker.publishing.planning import Content
from worker.publishing.publisher import Group, Publisher
from worker.publishing.recommender import Recommender
from worker.publishing.rows import RowTopic
from worker.service.commits import Commits
from worker.service.loop import STOP_SECONDS, Loop
from worker.store.redis import RedisStore

COMMIT_SECONDS, SNAPSHOT_SECONDS = 0.3, 1.2
LONGEST_COUNT = 5.0
"""Seconds after which who counts must have looked after its membership."""
FIRST_WAIT, LONGEST_WAIT = 0.1, 5.0
"""Seconds that a claim which failed waits at least twice as long for, doubled each time."""


class Deployment:
    """Workers, store and group of one configuration or of several in turn.

    Args:
        pool: the documents that its configurations may have; most histories have one.
        configured: configurations of its workers, which take turns.
        idle_timeout: seconds after which a partition without new records is idle.
        retain: milliseconds for which a window stays on the snapshot topic; None for no limit.
    """

    def __init__(
        self,
        world: World,
        number: int,
        pool: Sequence[ldp.Stream],
        reports: Reports,
        configured: Sequence[Configured],
        recount_after: int | None,
        idle_timeout: float = 2.0,
        retain: int | None = None,
    ) -> None:
        self.world, self.number, self.pool, self.reports = world, number, pool, reports
        self.stream = pool[0]
        self.configured, self.recount_after = configured, recount_after
        self.named = [collections.defaultdict[str, set[Any]](set) for _ in range(2)]
        """The configured documents and segments, with their pairs."""
        self.listed = [{*one.named[0]} for one in configured]
        for one in configured:
            for known, names in zip(self.named, one.named, strict=True):
                for name, pair in names.items():
                    known[name].add(pair)
        if world.theme.imports:
            self.named[0][self.stream.fingerprint.hex()].add((0, False))  # a state file names it so
        self.most_documents = world.theme.most_documents
        self.group_name = f"group-{number}"
        self.group, self.server = broker.Group(world, reports), MemoryRedis(world)
        self.truth = Truth(self)
        self.server.on_write = self.truth.wrote
        self.server.on_claim = self.truth.claims
        self.workers: list[Worker] = []
        self.idle_timeout, self.retain, self.launched = idle_timeout, retain, 0
        self.jumped = self.expired = (
            False  # whether a worker's clock jumped, or the group's offsets were forgotten
        )
        self.stopped = False  # another deployment publishes under the stream's name
        world.deployments.append(self)

    def refuses(self, partition: int, *, writes: bool = True) -> bool:
        """Returns whether the store refuses writes to a partition, or reads of it."""
        return self.server.refuses(f"{{{self.stream.name}:{partition}}}".encode(), writes=writes)

    def next_configured(self) -> Configured:
        """Returns the next worker's configuration, most often the next to be rolled out."""
        if self.world.rng.random() < 0.4:
            return self.world.rng.choice(list(self.configured))
        return self.configured[min(self.launched, len(self.configured)) - 1]

    def launch(self) -> None:
        """Starts a worker."""
        self.launched += 1
        self.workers = [worker for worker in self.workers if not worker.dead]
        self.workers.append(Worker(self, f"{self.number}.{self.launched}"))


class Stopping:
    """Stop signal with the interface of `threading.Event`."""

    def __init__(self, world: World, on_wait: Callable[[], None] = lambda: None) -> None:
        self.world, self.is_asked, self.on_wait = world, False, on_wait

    def is_set(self) -> bool:
        return self.is_asked

    def set(self) -> None:
        self.is_asked = True

    def wait(self, timeout: float) -> bool:
        self.on_wait()
        if not self.is_asked:
            self.world.sleep(timeout)
        return self.is_asked


class Done:
    """Completed future of work that ran at once."""

    def __init__(self, work: Callable[..., Any], args: tuple[Any, ...]) -> None:
        self.value, self.error = None, None
        try:
            self.value = work(*args)
        except Exception as error:
            self.error = error

    def result(self) -> Any:
        if self.error is not None:
            raise self.error
        return self.value


class AtOnce:
    """An executor that runs what it is given at once."""

    def submit(self, work: Callable[..., Any], *args: Any) -> Done:
        return Done(work, args)

    def shutdown(self, **_how: Any) -> None:
        pass


class Running:
    """A task, as a future."""

    def __init__(self, world: World, task: Task) -> None:
        self.world, self.task = world, task

    def done(self) -> bool:
        return self.task.done

    def result(self) -> Any:
        while not self.task.done:
            self.world.sleep()
        return self.task.result


class Threads:
    """An executor each of whose works is a task."""

    def __init__(self, world: World, member: Member) -> None:
        self.world, self.member = world, member

    def submit(self, work: Callable[..., Any], *args: Any) -> Running:
        mine = [task for task in self.world.tasks if task.member is self.member and task.name == "write"]
        assert not mine, "two commits are written at once"
        return Running(self.world, self.world.start(self.member, "write", lambda: work(*args)))

    def shutdown(self) -> None:
        pass


class DeadLetter:
    """A dead letter that was sent, as a future."""

    def __init__(self, producer: DeadLetterProducer, key: str) -> None:
        _, partition, offset = key.rsplit("/", 2)
        self.producer, self.where, self.is_done = producer, (int(partition), int(offset)), False

    def get(self, _timeout: float) -> None:
        if not self.is_done:
            self.producer.world.call("flush dead letters", self.producer.acknowledge, TIMED_OUT, writes=False)


class DeadLetterProducer:
    """Producer of dead letters; unacknowledged ones die with it."""

    def __init__(self, worker: Worker) -> None:
        self.worker, self.world, self.truth = worker, worker.world, worker.deployment.truth
        self.pending: list[DeadLetter] = []
        self.sent: list[tuple[int, int]] = []

    def send(self, _topic: str, *, value: bytes, key: bytes, headers: Any) -> DeadLetter:
        if self.world.rng.random() < self.world.faults.lost_request:
            self.world.note("dead letter refused")
            raise kafka_errors.KafkaTimeoutError("the buffer is full")
        dead_letter = DeadLetter(self, key.decode())
        self.pending.append(dead_letter)
        self.sent.append(dead_letter.where)
        return dead_letter

    def acknowledge(self) -> None:
        for dead_letter in self.pending:
            dead_letter.is_done = True
            self.truth.dead_letters.add(self.truth.unreadable.get(dead_letter.where, dead_letter.where))
        self.pending.clear()

    def close(self, timeout: float) -> None:
        pass


class DeadLetters(KafkaDeadLetters):
    """Dead letters that are compared with the records' verdicts."""

    def add(self, batch: Batch, verdicts: npt.NDArray[np.uint8]) -> int:
        producer, partition = self._producer, batch.partition
        producer.sent.clear()
        for at in range(batch.start, batch.end):
            producer.truth.unreadable.pop((partition, at), None)  # entries of an earlier topic
        for one in batch.unreadable:
            producer.truth.unreadable[partition, one.offset] = (partition, one.end - 1)
        left_out = super().add(batch, verdicts)
        # records of a recreated topic may be counted, but not committed
        log = producer.worker.consumer.log(partition, batch.start)
        expected = dict[int, str]()
        for i in np.flatnonzero(verdicts).tolist():
            expected[int(batch.columns.offsets[i])] = VERDICTS[verdicts[i]]
        # a dead letter has the first offset of an unreadable batch, and the answer has the last
        bad = {one.offset: one.end - 1 for one in batch.unreadable}
        sent = {bad.get(at, at) for _, at in producer.sent}
        rejected = expected.keys() | set(bad.values())
        for at, reason in expected.items():
            found = answer(log, at, (), of_state(producer.worker.ownership._held[partition].state.rules))
            assert reason == found, (at, reason, found)
        assert sent <= rejected
        assert left_out == len(rejected) - len(sent), "dead letters that were left out are counted"
        producer.truth.left_out |= {(partition, at) for at in rejected - sent}
        return left_out


class Log(KafkaLog):
    """`KafkaLog` that checks the handling of partitions without a leader."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.unsaid = set[int]()
        """Partitions without a leader that no claim has reported as waiting yet."""

    def bounds(self, partitions: Collection[int]) -> dict[int, tuple[int, int] | Unavailable]:
        again = self.unsaid & {*partitions}
        assert not again, f"partitions {again} had no leader, and do not wait"
        found = super().bounds(partitions)
        self.unsaid |= {p for p, bounds in found.items() if isinstance(bounds, Unavailable)}
        return found


class Listener:
    """Checks what a worker reports and holds against the recount."""

    def __init__(self, worker: Worker) -> None:
        self.worker, self.world, self.deployment = worker, worker.world, worker.deployment
        self.truth = self.deployment.truth
        self.seen: dict[int, int] = {}
        self.given: set[int] = set()
        self.answers: dict[int, tuple[Answer, int]] = {}
        self.unanswered = -1  # the step of the last commit that had no answer
        self.epochs: dict[int, int] = {}
        self.claimed_epochs: set[int] = set()
        self.announced: dict[int, Any] = {}
        self.owner = False
        self.failed: dict[int, tuple[int, float, int]] = {}
        self.kept: dict[int, int] = {}
        """Partition -> number of failed claims caused by a refusal for another partition."""
        self.unwritten = collections.Counter[str]()
        """Commit id -> how often it was left unwritten because the store refused another one."""

    def __getattr__(self, verb: str) -> Callable[..., None]:
        if not hasattr(StreamEvents, verb):
            raise AttributeError(verb)
        return lambda *more, **_: self.world.say(verb, *more)

    @contextmanager
    def counting(self) -> Iterator[None]:
        consumer, (often, seconds) = self.worker.consumer, self.world.theme.counting
        hung = self.worker.hangs_until > consumer.polled_at
        assert hung or self.world.now < consumer.polled_at + LONGEST_COUNT, (
            "it counts, and is heard of no more"
        )
        if self.world.rng.random() < often:
            self.world.sleep(seconds)  # so that some polled records wait for the next turn
        yield

    def publishing(self, owner: bool) -> None:
        self.owner = owner

    def info(self, event: str, **facts: Any) -> None:
        self.world.say(event, facts)
        if event == "rules.added":
            self._rule_added(**facts)

    def warning(self, event: str, **facts: Any) -> None:
        self.world.say(event, facts)
        if event == "partition.full":
            self.world.note("no room", facts)
        elif event == "partition.given_up":
            self._given_up(facts["partition"])
        elif event == "commit.refused":
            self._refused(facts["partition"], Answer(facts["verdict"]))
        # a batch that does not follow would be read again: nothing here makes it so
        assert event != "partition.moved", facts

    def _rule_added(self, partition: int, **rule: Any) -> None:
        reached = self.truth.published("offsets", partition, self.worker.then[partition]) or 0
        assert rule["offset"] >= reached or "heads" in self.world.lossy, (
            "a rule begins below what was published"
        )
        self.announced[partition] = rule

    def _given_up(self, partition: int) -> None:
        self.world.note("given up", partition)
        self.given.add(partition)
        truth = self.truth
        assert self.deployment.recount_after is not None, (
            "counts are given up, and the operator did not say so"
        )
        assert self.world.lossy, "counts are given up, and nothing was lost"
        truth.given.add(partition)
        truth.blind |= "heads" in self.world.lossy

    def gap_found(self, partition: int, lost_from: int, lost_to: int) -> None:
        """Checks that a gap has no counted or published records."""
        self.world.note("gap found", partition, lost_from, lost_to)
        truth = self.truth
        epoch = truth.epoch(partition)
        if epoch is not None and not truth.has_claimed(self.worker, partition, epoch):
            return  # another worker has claimed it meanwhile, so this is never stored
        log = self.deployment.reports.partitions[partition]
        assert lost_to <= max(log.first, log.lost), f"it calls a gap what the log has from {log.first} on"
        fetched = self.worker.consumer.overtaken.pop(partition, 0)
        assert lost_from >= fetched, f"what was fetched up to {fetched} is called a gap"
        offset, word = self.worker.consumer.confirmed_as[partition]
        known = [lost_from, lost_to] in (truth.published("gaps", partition) or [])
        if known or partition in self.given or "heads" in self.world.lossy:
            return
        assert word != COUNTED or offset <= lost_from, "what was counted, as Kafka says, is called a gap"
        assert (truth.published("offsets", partition) or 0) <= lost_from, "what was published is called a gap"

    def compare_failed(self, error: Unavailable) -> None:
        """Takes back what a failed look was to find."""
        self.world.say("compare_failed", error)
        self.worker.topic.heedless = False
        self.answers = {p: told for p, told in self.answers.items() if told[0] is not Answer.LINEAGE}

    def claim_failed(self, partitions: Sequence[int], error: Unavailable) -> None:
        self.world.say("claim failed", partitions, error)
        self._demand_turns(partitions, error)
        self.worker.log.unsaid -= {*partitions}
        generation = self.worker.consumer.generation
        for partition in partitions:
            times, at, then = self.failed.get(partition, (0, -1.0, generation))
            if then != generation:
                times = 0  # it was taken away meanwhile, perhaps
            least = min(FIRST_WAIT * 2 ** (times - 1), LONGEST_WAIT) / 2 if times else 0.0
            assert self.world.now >= at + least, "a claim that failed is tried again too soon"
            self.failed[partition] = times + 1, self.world.now, generation

    def _demand_turns(self, partitions: Sequence[int], error: Unavailable) -> None:
        """Checks that a refused partition delays each other one only once."""
        deployment, wanted = self.deployment, self.worker.consumer.wanted
        wanted -= {*partitions}
        if "OOM" not in str(error):
            return
        waiting = {p for p in partitions if not deployment.refuses(p)}
        # unreadable partitions fail earlier, and delay no other partition
        if not all(deployment.refuses(p, writes=False) for p in partitions):
            waiting |= wanted - self.worker.ownership.counted().keys()
        for partition in waiting:
            times = self.kept.get(partition, 0) + 1
            self.kept[partition] = 0 if deployment.refuses(partition) else times
            most = len(deployment.reports.partitions)
            assert self.kept[partition] < most, "what the store refuses keeps others from being claimed"

    def _demand_written(self) -> None:
        """Checks the same for commits."""
        deployment = self.deployment
        for partition, held in self.worker.ownership._held.items():
            if held.pending is not None and not deployment.refuses(partition):
                self.unwritten[held.pending.after.commit_id] += 1
                most = 2 * len(deployment.reports.partitions)
                assert self.unwritten[held.pending.after.commit_id] < most, (
                    "it keeps others from being written"
                )

    def _demand_beginning(self, partition: int) -> None:
        """Checks that counting begins at the offset from Kafka or the heads."""
        if partition in self.given or "heads" in self.world.lossy:
            return
        (at, word), then, _ = self.worker.consumer.read[partition]
        began = self.worker.ownership._held[partition].state.start
        assert word != COUNTED, "it begins anew, though Kafka says that it was counted"
        heads = self.truth.heads[max(0, then - 1) :]
        if word:
            assert began == at, "it begins elsewhere than where Kafka confirmed it"
        elif heads and then and all(partition in head["uncounted"] for head in heads):
            assert began == 0, "what a snapshot left out is not even a gap"
        elif then:
            assert not self.truth.published("offsets", partition, then), "it was published"

    def _demand_whole(self, partition: int, state: PartitionState) -> None:
        """Checks that the operator requested a recount, and that the log is complete."""
        deployment = self.deployment
        *_, first = self.worker.consumer.read[partition]
        assert deployment.recount_after is not None, (
            "it is counted again, but the operator did not ask for it"
        )
        assert first <= state.start, "it is counted again, and its log lacks the beginning"
        assert not any(rule.limits.windowing for rule in state.rules), "windows are counted again"

    def _demand_names(self, partition: int, held: OwnedPartition) -> None:
        """Checks that a claim joined the configured names and all names in the head.

        The claim of another partition in the same round may have read a newer head.
        """
        own, newest = self.worker.configured.named, self.worker.topic.heads
        known: list[tuple[dict[str, Any], dict[str, Any]]] = [({}, {})]
        if not held.headless and "heads" not in self.world.lossy:
            _, then, _ = self.worker.consumer.read[partition]
            known = [self.truth.in_force(number) for number in range(min(then, newest), newest + 1)]
        last = of_state(held.state.rules)[-1]
        mine = statuses(last.documents), statuses(last.segments)
        due = [tuple(join(mine[i], own[i], names[i]) for i in range(len(mine))) for names in known]
        bounded = len(due[0][0]) > self.deployment.most_documents
        assert mine in due or bounded, f"{due} are to be in force, and {mine} are"

    def _demand_published_rules(self, partition: int, state: PartitionState) -> None:
        """Checks that published rules stay."""
        if "heads" not in self.world.lossy:
            heads = self.truth.heads[: self.worker.topic.heads]
            published = of_head(heads[-1] if heads else None, partition)
            assert of_state(state.rules)[: len(published)] == published, (
                "it judges otherwise than was published"
            )

    def demand_nothing_lost(self) -> None:
        """Checks that no worker continues after counts were lost."""
        lost = [p for p, (answer, _) in self.answers.items() if answer is Answer.LINEAGE]
        assert not lost, f"it goes on after counts of {lost} were lost"

    def commit_failed(self, error: Unavailable) -> None:
        self.world.say("commit_failed", error)
        if "OOM" in str(error):
            self._demand_written()
        self.unanswered = self.world.steps

    def released(self, partition: int) -> None:
        self.world.say("released", partition)
        self.failed.clear()
        self.kept.clear()
        if self.unanswered == self.world.steps:  # the fetched records could not be stored
            self.worker.consumer.overtaken.pop(partition, None)

    def claimed(self, partition: int, start: str, offset: int, epoch: int) -> None:
        self.failed.pop(partition, None)
        self.kept.pop(partition, None)
        assert self.truth.has_claimed(self.worker, partition, epoch), "another one claimed it"
        self.demand_nothing_lost()
        held = self.worker.ownership._held[partition]
        if start == "recount":
            self._demand_whole(partition, held.state)
        asked = self.worker.consumer.asked_id
        assert lineage_of(held.metadata.lineage)["topic_id"] == asked, "it claims what another topic had"
        self._demand_names(partition, held)
        if not held.headless:
            self._demand_published_rules(partition, held.state)
        named = not self.worker.topic.headless or held.headless
        assert held.state.windows.admitted_from is None or named, "no head names what it claims"
        key = layout.meta_key(self.deployment.stream.name, partition)
        if not self.worker.peeked[self.world.current, key]:
            self._demand_beginning(partition)
            if "heads" in self.world.lossy:  # no record of earlier counts is left
                self.truth.given.add(partition)
        self.given.discard(partition)
        self.epochs[partition] = epoch
        if partition == 0:
            self.claimed_epochs.add(epoch)
        last, mine = held.state.rules[-1], self.worker.ownership._configured
        older = mine.revision is not None and mine.revision < last.revision
        assert older or mine.limits.fewest_new <= last.limits.fewest_new, (
            "smaller increments than it asks for"
        )
        assert self.announced.pop(partition, last.as_json()) == last.as_json(), (
            "a rule that was added is not there"
        )
        how = f"{start} without a head" if held.headless else start
        self.world.note(f"claimed, {how}", f"{partition} at {offset}, epoch {epoch}")
        self._compare(partition)

    def counted(self, accepted: int, rejected: int, reports: object) -> None:
        for partition, offset in self.worker.ownership.counted().items():
            if self.seen.get(partition) != offset:
                self.seen[partition] = offset
                self._compare(partition)

    def published(self, snapshot: Any, *_: object) -> None:
        self.world.say("published", snapshot.sequence)

    def poll_failed(self, error: Unavailable) -> None:
        """Expects everything to be fetched again, except lost ends of logs."""
        self.world.say("poll_failed", error)
        assert not self.worker.consumer.truncated, "a log that was truncated is read on"
        self.worker.consumer.overtaken.clear()

    def _refused(self, partition: int, answer: Answer) -> None:
        self.world.note(str(answer), partition)
        self.answers[partition] = answer, self.world.steps
        stored = self.truth.epoch(partition)
        if answer is Answer.FENCED and not self.world.lossy:
            assert stored != self.epochs[partition], "fenced, though nobody else has claimed"
        assert answer is not Answer.CONFLICT or self.world.lossy, "conflict, though the store never went back"

    def dropped(self, partition: int) -> None:
        self.world.say("dropped", partition)
        self.worker.consumer.overtaken.pop(partition, None)
        refused = self.answers.get(partition) == (Answer.STAGING_EXPIRED, self.world.steps)
        assert not refused, "dropped, where only an attempt is to be made anew"
        answer, at = self.answers.get(partition, (Answer.DONE, 0))
        if answer is Answer.LINEAGE:
            key = layout.meta_key(self.deployment.stream.name, partition)
            assert self.worker.looked.get(key, -1) >= at, "it did not look what the store has instead"
            found = self.worker.peeked[self.world.current, key]
            assert found, f"it goes on after counts of {partition} were lost"
            del self.answers[partition]

    def _compare(self, partition: int) -> None:
        held = self.worker.ownership._held[partition]
        lineage = lineage_of(held.metadata.lineage)
        if lineage["topic_id"] != self.worker.consumer.read_id:
            return  # records of a recreated topic may be counted, but not committed
        self.truth.compare(lineage, partition, held.state)


class Worker(Process):
    """Process wired like `worker.service.stream.StreamWorker`, in memory."""

    def __init__(self, deployment: Deployment, name: str) -> None:
        super().__init__(name)
        world, stream = deployment.world, deployment.stream
        self.deployment, self.world, self.configured = deployment, world, deployment.next_configured()
        fleet = self.configured.fleet
        self.confirmed: set[int] = set()
        self.then: dict[int, int] = {}
        """Partition -> how many snapshots there were when this worker claimed it."""
        self.ended_at = 0
        clock, topic = world.clock, deployment.reports.name
        self.listener = Listener(self)
        events, group_name = cast(StreamEvents, self.listener), deployment.group_name
        recount_after, configured = deployment.recount_after, self.configured
        self.skew = 0.0
        self.consumer = broker.Consumer(world, deployment.group, self)
        self.log = Log(self.consumer, topic, world.theme.memory, cast(Any, AtOnce()), clock)
        producer = DeadLetterProducer(self)
        dead_letters = DeadLetters(producer, stream, topic, "dead", lambda: None, nullcontext, clock)
        client = cast(Any, Client(deployment.server, self))
        store = RedisStore(client, stream.name)
        identity = f"ldp-{stream.name}"
        self.topic = snapshots.Topic(world.snapshots, identity)
        self.topic.on_use, self.topic.on_uncounted = self._demand_owner, self._demand_uncounted
        self.topic.published = deployment.truth.heads
        snapshot_producer = KafkaSnapshotProducer(self.topic, stream, clock, world.sleep, snapshots.ROWS)
        self.snapshot_producer = snapshot_producer
        self.progress = Progress(clock)
        self.ownership = Ownership(
            group_name,
            fleet,
            configured,
            self.log,
            store,
            dead_letters,
            snapshot_producer,
            recount_after,
            clock,
            events,
        )
        group = KafkaGroup(lambda: broker.Administrator(world, deployment.group, topic), group_name, topic)
        self.publisher = Publisher(
            fleet,
            Content(
                methods=("base",),  # other methods would only take time here
                parts_fewest=FEWEST,
                parts_methods=("base",),
                idle_timeout=deployment.idle_timeout,
                retain=deployment.retain,
                rows=RowTopic(snapshots.ROWS, snapshots.PLACES),
            ),
            store,
            snapshot_producer,
            Group(
                self._partitions,
                group.uncounted,
                lambda: self.ownership.epoch(0) if self.progress.partitions else None,
            ),
            Recommender((), events, clock),
            events,
            lambda: world.now + self.skew,
        )
        self.stopping, self.raised = Stopping(world), list[Exception]()
        self.ended = Stopping(world, self._demand_let_go)
        self.commits = Commits(self.ownership, COMMIT_SECONDS, cast(Any, Threads(world, self)), clock)
        counting = self.log, self.ownership, self.commits, self.progress
        self.loop = Loop(fleet, topic, *counting, events, 1.0, self.stopping, clock, world.sleep)
        world.start(self, "poll", self._poll)
        world.start(self, "publish", self._publish)
        world.note("a worker starts", f"{name} with {configured}")

    def _partitions(self) -> list[int]:
        known = sorted(self.progress.partitions or ())
        self.topic.must = self.deployment.truth.recorded(known)
        self.topic.lacking = self.deployment.truth.lacking(known)
        return known

    def _demand_owner(self, what: str) -> None:
        """Checks that the user of the snapshot producer has just seen that it owns partition 0."""
        key = layout.meta_key(self.deployment.stream.name, 0)
        found = self.peeked[self.world.current, key]
        assert int(found[b"epoch"]) in self.listener.claimed_epochs, f"who is not the owner {what}"
        assert self.looked[key] > self.cut_at or what != "publishes", (
            "it did not look once more who is the owner"
        )

    def _demand_uncounted(self, partitions: Collection[int]) -> None:
        """Checks that the worker looked twice for counts of uncounted partitions."""
        for partition in partitions:
            key = layout.meta_key(self.deployment.stream.name, partition)
            assert self.looked[key] > self.cut_at, f"partition {partition} was not looked for once more"
            # the owner of partition 0 answers later, and may find it counted by then
            uncounted = self.uncounted.get((self.world.current, key), 0) > self.cut_at
            assert uncounted, f"partition {partition} is counted, and called uncounted"

    def _demand_let_go(self) -> None:
        assert self.listener.owner or self.snapshot_producer._producer is None, (
            "a producer without partition 0"
        )

    def _poll(self) -> None:
        try:
            self.loop.run(self.raised)
            began, ownership = self.world.now, self.ownership
            self.loop.finish()
            in_time = self.world.now < began + STOP_SECONDS
            assert not in_time or ownership.counted() == ownership.stored(), (
                "it ends with counts that are not stored"
            )
            self.log.close()
        finally:
            self.ended_at = self.world.steps
            self.ended.set()
        if self.raised:
            raise self.raised[0]
        self.world.note("a worker ends")

    def _publish(self) -> None:
        try:
            self.publisher.run(cast(Any, self.ended), SNAPSHOT_SECONDS, lambda: None)
            asked = self.asked.get(layout.meta_key(self.deployment.stream.name, 0), 0)
            owns = self.progress.partitions and self.ownership.epoch(0) is not None
            assert not owns or asked >= self.ended_at, "no tick after the last commit"
        except Exception as error:
            self.raised.append(error)
            if self.ended.is_set():  # no other code raises it
                raise
