"""One seed, one history: what is deployed, what is produced, what goes wrong, and how it must end."""

from __future__ import annotations

import json
import random
import re
import sys
from collections.abc import Collection, Sequence
from functools import partial
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import numpy as np

import ldp
from ldp import frames, snapshot
from tests.simulation.broker import BEGAN_MS, Reports
from tests.simulation.deployment import Deployment, Worker
from tests.simulation.snapshots import Snapshots
from tests.simulation.world import Faults, World
from worker.counting.ports import StateLost
from worker.counting.rules import MAX_BATCH_BYTES, Configured, Terms
from worker.publishing import publisher
from worker.service import loop

STREAMS = [ldp.Stream(name, ldp.GRR(epsilon="1", domain_size=3)) for name in ("one", "two")]
BAD = {b"": "empty", b"\x07noise": "version", b"{}": "json"}
RULES = [
    Configured(revision, Terms(most, True, MAX_BATCH_BYTES))
    for revision in (None, 1, 2)
    for most in (1, 2, 3)
]
GOOD = {
    indices: frames.encode(STREAMS[0], np.array([(i,) for i in indices], STREAMS[0].oracle.report_dtype))
    for indices in [(i,) for i in range(3)]
    + [(i, j) for i in range(3) for j in range(3)]
    + [(i, j, k) for i in range(3) for j in range(3) for k in range(3)]
}
TURNS, QUIET_STEPS = 120, 12_000
SHOWN = 60


_MATHEMATICS = SimpleNamespace(**vars(snapshot) | {"take": partial(snapshot.take, methods=("base",))})
"""The other ten methods are not what is tried here, and take as long as it."""
_MOST_WORK = 4
"""So little that what one poll brings is counted in slices."""


class Wrong(AssertionError):  # noqa: N818  # what it is
    """A history that must not be: its seed, what is wrong, and its last steps."""


def history(seed: int, shown: int = SHOWN) -> dict[str, int]:
    """Runs a history; returns how often what happened.

    Raises:
        Wrong: an invariant does not hold.
    """
    random.seed(seed)  # the back-off's spread
    made = _Made(seed)
    try:
        with patch.object(publisher, "snapshot", _MATHEMATICS), patch.object(loop, "MOST_WORK", _MOST_WORK):
            made.run()
    except Exception as error:
        raise Wrong(f"seed {seed}: {type(error).__name__}: {error}\n{made.world.told(shown)}") from error
    finally:
        made.world.end()
    return made.world.happened


class _Made:
    """A history in the making."""

    def __init__(self, seed: int) -> None:
        rng = self.rng = random.Random(f"shape {seed}")
        self.world = World(f"steps {seed}", _faults(rng))
        snapshots = Snapshots(self.world)
        snapshots.on_committed = self._committed
        two = rng.random() < 0.15
        for number in range(1 + two):
            stream = STREAMS[number if rng.random() < 0.5 else 0]
            same = number == 1 and stream is STREAMS[0]
            reports = (
                self.world.deployments[0].reports
                if same
                else Reports(self.world, f"reports-{number}", rng.randint(1, 3))
            )
            # workers of several configurations take turns: one is rolled out, rolled back, or both at once
            some = [Configured()] if rng.random() < 0.4 else rng.sample(RULES, rng.randint(1, 3))
            Deployment(self.world, number, stream, reports, some, rng.choice([None, sys.maxsize]))
        self.owners: dict[str, Deployment] = {}
        if rng.random() < 0.2:  # the log has lost its beginning before anyone counts
            for reports in {d.reports.name: d.reports for d in self.world.deployments}.values():
                produce(reports, rng, 8)
                for partition in reports.partitions:
                    partition.first = rng.randint(0, partition.stable)

    def run(self) -> None:
        rng, world = self.rng, self.world
        for _ in range(TURNS):
            if rng.random() < 0.3:
                produce(rng.choice(world.deployments).reports, rng, rng.randint(1, 4))
            for deployment in world.deployments:
                self._staff(deployment)
            for _ in range(rng.randint(1, 10)):
                world.step()
            if self._noticed():
                return
        self._end()

    def _staff(self, deployment: Deployment) -> None:
        if deployment.stopped:
            return
        alive = [worker for worker in deployment.workers if not worker.dead]
        if len(alive) < 2 and self.rng.random() < 0.3:
            deployment.launch()
        elif alive and self.rng.random() < 0.01:
            worker = self.rng.choice(alive)
            self.world.note("asked to stop", worker.name)
            worker.stopping.set()

    def _end(self) -> None:
        """From here on nothing goes wrong any more: everything must be counted, and a snapshot must say so."""
        world = self.world
        world.note("faults stop")
        for deployment in world.deployments:
            if world.faults.went_back and self.rng.random() < 0.5:
                world.go_back(deployment)
        world.faults = Faults()
        for deployment in world.deployments:
            for partition in deployment.reports.partitions:
                for producer in list(partition.open):
                    partition.decide(producer, commit=self.rng.random() < 0.5)
            for worker in deployment.workers:
                worker.hangs_until = min(worker.hangs_until, world.now)  # that it hung stays known
            if not deployment.stopped:
                deployment.launch()
        began = world.steps
        while world.steps % 8 or not all(map(self._covered, world.deployments)):
            world.step()
            if self._noticed():
                return
            assert world.steps < began + QUIET_STEPS, "not all is counted and published: " + "; ".join(
                self._stands(deployment) for deployment in world.deployments
            )

    def _covered(self, deployment: Deployment) -> bool:
        """Returns whether all is counted and stored, and the newest snapshot says just that."""
        if deployment.stopped or self.owners.get(deployment.stream.name, deployment) is not deployment:
            return True
        if not deployment.truth.heads:
            return self._nothing(deployment)
        head = deployment.truth.heads[-1]
        for number, partition in enumerate(deployment.reports.partitions):
            state, said = deployment.truth.load(number), head["offsets"].get(str(number))
            if not partition.end and state is None:
                continue
            if state is None or not state.offset == said == partition.stable:
                return False
            gaps, rules = [list(gap) for gap in state.gaps], [rule.as_json() for rule in state.rules]
            if (head["gaps"].get(str(number), []), head["rules"][str(number)]) != (gaps, rules):
                return False
        return not head["uncounted"]

    def _nothing(self, deployment: Deployment) -> bool:
        if deployment.truth.heads or self.world.steps % 64:
            return False
        for number, partition in enumerate(deployment.reports.partitions):
            if not partition.end:
                continue
            state = deployment.truth.load(number)
            if state is None or state.offset != partition.stable or state.cells["all"].reports:
                return False
        return True

    def _stands(self, deployment: Deployment) -> str:
        published = deployment.truth.heads[-1]["offsets"] if deployment.truth.heads else {}
        ends = [partition.stable for partition in deployment.reports.partitions]
        held = {worker.name: worker.ownership.counted() for worker in deployment.workers if not worker.dead}
        return f"{published} is published of {ends}, held are {held}"

    def _noticed(self) -> bool:
        """Whether a worker stopped because of what the world did to it; nothing else may stop one."""
        world = self.world
        for task, error in world.errors:
            if not isinstance(error, StateLost):
                raise error
            worker = task.member
            assert isinstance(worker, Worker)
            deployment = worker.deployment
            world.note("stopped", str(error)[:200])
            owner = self.owners.get(deployment.stream.name)
            if "of other counts" in str(error) and owner is not None and owner is not deployment:
                world.note("another deployment is refused")
                deployment.stopped = True
                for other in deployment.workers:
                    world.kill(other)
                continue
            if not world.lossy:
                raise error
            for number in re.findall(r"[Ss]napshot (\d+)", str(error)):
                assert int(number) <= len(deployment.truth.heads), "it speaks of what was never published"
            world.note("loss noticed")
            return True
        world.errors.clear()
        return False

    def _committed(self, identity: str, sent: Sequence[SimpleNamespace], must: Collection[int]) -> None:
        """A snapshot was committed: by whom?"""
        name = identity.removeprefix("ldp-")
        head = json.loads(next(record.value for record in sent if record.key == f"{name}/head".encode()))
        (deployment,) = [d for d in self.world.deployments if d.group_name == head["lineage"]["group"]]
        assert self.owners.setdefault(name, deployment) is deployment, (
            "two deployments publish under one name"
        )
        deployment.truth.committed(sent, must)


def _faults(rng: random.Random) -> Faults:
    """Draws how likely each fault is; most histories have some of them only."""
    return Faults(
        crash=rng.choice([0, 0.003, 0.01]),
        lost_request=rng.choice([0, 0, 0.03]),
        late_request=rng.choice([0, 0, 0.05]),
        twice=rng.choice([0, 0, 0.03]),
        lost_reply=rng.choice([0, 0.03, 0.1]),
        lost_mirror=rng.choice([0, 0.2, 0.9]),
        unstaged=rng.choice([0, 0, 0.05]),
        damaged=rng.choice([0, 0, 0.05]),
        expired_batch=rng.choice([0, 0, 0.05]),
        hang=rng.choice([0, 0, 0.005]),
        rebalance=rng.choice([0, 0.01, 0.04]),
        went_back=rng.choice([0, 0, 0.005]),
        lost_state=rng.choice([0, 0, 0, 0.003]),
        expired=rng.choice([0, 0, 0, 0.005]),
        retention=rng.choice([0, 0, 0.005]),
        truncated=rng.choice([0] * 9 + [0.003]),
        recreated=rng.choice([0] * 6 + [0.003]),
        grown=rng.choice([0, 0, 0.002]),
        other_transaction=rng.choice([0, 0, 0.02]),
        compaction=rng.choice([0, 0, 0.01]),
        silent=rng.choice([0, 0.3]),
        unknown=rng.choice([0, 0, 0.03]),
        expelled=rng.choice([0, 0.05]),
        slow_join=rng.choice([0, 0.3]),
    )


def produce(reports: Reports, rng: random.Random, count: int) -> None:
    """Appends batches."""
    for _ in range(count):
        partition = rng.choice(reports.partitions)
        if partition.cut_to is not None:
            continue  # else what was lost there might never be missed
        kind = rng.random()
        values = [_value(rng) for _ in range(rng.randint(1, 3))]
        if kind < 0.1 and partition.open:
            partition.decide(rng.choice(sorted(partition.open)), commit=rng.random() < 0.5)
        elif kind < 0.2:
            partition.append(values, producer=rng.randrange(3))
        elif kind < 0.25:
            partition.append(values, damaged=True)
        else:
            partition.append(values)


def _value(rng: random.Random) -> tuple[bytes, Any, int]:
    at = BEGAN_MS + rng.randrange(1000)
    if rng.random() < 0.15:
        value = rng.choice(sorted(BAD))
        return value, BAD[value], at
    indices = rng.choice(sorted(GOOD))
    return GOOD[indices], list(indices), at
