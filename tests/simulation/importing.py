"""An import in memory: the command's own code as a process that may die, on the group and the store of a deployment."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from kafka import OffsetAndMetadata, TopicPartition
from kafka import errors as kafka_errors

from ldp.offset_range import OffsetRange
from ldp.state import State
from tests.simulation import snapshots
from tests.simulation.broker import TIMED_OUT, Cluster, Manager, Reports, told_id
from tests.simulation.recount import Recounts, Ruling
from tests.simulation.store import Client, Process
from worker.counting import layout
from worker.counting.ports import Unavailable
from worker.importing import Import, Prefix, Refused
from worker.kafka.reports.non_member_log import KafkaNonMemberLog
from worker.kafka.snapshots.producer import KafkaSnapshotProducer
from worker.store.redis import RedisStore

if TYPE_CHECKING:
    from tests.simulation.deployment import Deployment


def histories(deployment: Deployment, rng: random.Random) -> dict[str, State]:
    """Returns the counts of a batch for some partitions, by the simulation's own arithmetic."""
    found = {}
    for number, log in enumerate(deployment.reports.partitions):
        offset, most = rng.randint(log.first, log.stable), rng.choice([None, 1, 2, 3])
        if offset == log.first or rng.random() < 0.2:
            continue
        fingerprint, counters = deployment.stream.fingerprint.hex(), deployment.truth.counters
        ruled = (Ruling(log.first, most, documents=((fingerprint, (0, False)),)),)
        counted = Recounts(counters.size).at(log, log.first, offset, (), ruled, 0)
        covered = OffsetRange(deployment.reports.name, number, log.first, offset, counted.watermark, most)
        found[f"{number}.ldp"] = State(
            deployment.stream,
            counted.reports,
            np.array(counters.of(counted.state, fingerprint)),
            counted.accepted,
            counted.rejected,
            log=(covered,),
        )
    return found


class Importer(Process):
    """A process that imports, again and again until that is done or refused."""

    def __init__(self, deployment: Deployment, name: str, found: Mapping[str, State]) -> None:
        super().__init__(name)
        world, stream, topic = deployment.world, deployment.stream, deployment.reports.name
        self.deployment, self.world, self.ended = deployment, world, False
        self.outside = Outside(deployment)
        log = KafkaNonMemberLog(self.outside, topic, [])
        store = RedisStore(cast(Any, Client(deployment.server, self)), stream.name)
        heads = snapshots.Topic(world.snapshots, f"ldp-{stream.name}")
        snapshot_producer = KafkaSnapshotProducer(heads, stream, world.clock, world.sleep)
        self._import = Import(
            deployment.group_name, deployment.configured[-1].fleet, topic, log, store, snapshot_producer
        )
        world.start(self, "import", lambda: self._run(found))

    def _run(self, found: Mapping[str, State]) -> None:
        while not self.ended:
            try:
                self._import.run(found, self._done)
            except Unavailable as error:
                self.world.say("import failed", error)
                continue
            except Refused as error:
                self.world.note("import refused", error)
                self._demand_reason(found)
            self.ended = True

    def _done(self, prefix: Prefix, before: bool) -> None:
        covered = prefix.covered
        self.world.note("import known" if before else "import done", covered)
        stored = self.deployment.truth.offset(covered.partition)
        assert stored is not None, "it is said to be imported, and is not there"
        assert stored >= covered.offset or self.world.lossy, "less is there than was imported"
        assert before or covered.partition in self.outside.told, "Kafka does not hear of an import"

    def _demand_reason(self, found: Mapping[str, State]) -> None:
        """Checks that a refused import has a reason."""
        deployment, truth = self.deployment, self.deployment.truth
        for history in found.values():
            (covered,) = history.log
            own = truth.imported.get(covered.partition) == covered.offset
            meta = layout.meta_key(deployment.stream.name, covered.partition).encode()
            if not own and deployment.server.live(meta):
                return
            if deployment.reports.partitions[covered.partition].first > covered.offset:
                return
        others = (d for d in self.world.deployments if d is not deployment)
        assert any(d.stream.name == deployment.stream.name and d.truth.heads for d in others), (
            "an import is refused without a reason"
        )


class Outside(Cluster):
    """Consumer with assigned partitions and no membership."""

    def __init__(self, deployment: Deployment) -> None:
        self.group, self.reports, self.world = deployment.group, deployment.reports, deployment.world
        self.truth = deployment.truth
        self._cluster, self.told = self, set[int]()
        self._manager = Manager(self._answer)

    def _answer(self, request: Any) -> Any:
        if request is None:
            return self.world.call("metadata, from outside", lambda: None, TIMED_OUT, writes=False)
        return told_id(self.world, self.reports)

    def partitions_for_topic(self, _topic: str) -> set[int]:
        return set(
            self.world.call("partitions", lambda: range(len(self.reports.partitions)), TIMED_OUT, False)
        )

    def committed(self, tp: TopicPartition, metadata: bool, timeout_ms: int) -> Any:
        def effect() -> Any:
            return (found := self.group.offsets.get(tp.partition)) and OffsetAndMetadata(*found, -1)

        return self.world.call("committed, from outside", effect, TIMED_OUT, writes=False)

    def beginning_offsets(self, tps: Sequence[TopicPartition], timeout_ms: int) -> dict[TopicPartition, int]:
        return self._ask(tps, "first")

    def end_offsets(self, tps: Sequence[TopicPartition], timeout_ms: int) -> dict[TopicPartition, int]:
        return self._ask(tps, "stable")

    def _ask(self, tps: Sequence[TopicPartition], name: str) -> dict[TopicPartition, int]:
        def effect() -> dict[TopicPartition, int]:
            return {tp: getattr(self.reports.partitions[tp.partition], name) for tp in tps}

        return self.world.call(f"{name} offsets, from outside", effect, TIMED_OUT, writes=False)

    def commit(self, offsets: Mapping[TopicPartition, Any], timeout_ms: int) -> None:
        said = {tp.partition: (at.offset, at.metadata) for tp, at in offsets.items()}
        self.told.update(said)

        def effect() -> None:
            if self.group.members:
                raise kafka_errors.CommitFailedError("in the simulation")
            self.truth.mirrored(said)
            self.group.offsets.update(said)

        self.world.call(f"commit {said}, from outside", effect, TIMED_OUT)


class Imports:
    """Imports into the partitions of deployments, and their times; workers start at turn `alone_until`."""

    def __init__(self, deployments: Sequence[Deployment], rng: random.Random) -> None:
        self._deployments, self._rng = deployments, rng
        self._at = rng.choice([0, 3]) if deployments else None
        self.alone_until = 0 if self._at is None else rng.choice([0, self._at, self._at + 2, self._at + 10])
        self._found: dict[str, tuple[Deployment, dict[str, State]]] = {}
        self._importers: dict[str, Importer] = {}

    def turn(self, turn: int, produce: Callable[[Reports, int], object]) -> None:
        """Begins scheduled imports, again after a crash, and at times once more."""
        for deployment in self._deployments if turn == self._at else ():
            produce(deployment.reports, 8)
            if found := histories(deployment, self._rng):
                self._found[deployment.group_name] = deployment, found
        for name, (deployment, found) in self._found.items():
            before = self._importers.get(name)
            over = before is None or before.dead or before.ended
            if before is None or (over and (not before.ended or self._rng.random() < 0.1)):
                self._importers[name] = Importer(deployment, f"import.{turn}", found)
