"""Histories: the deployment, records, faults and end of one seed."""

from __future__ import annotations

import itertools
import json
import random
import re
import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import numpy as np

import ldp
from ldp import frames
from tests.simulation.broker import BEGAN_MS, Reports
from tests.simulation.configurations import alone, rolled_out
from tests.simulation.deployment import Deployment, Worker
from tests.simulation.documents import POOL, Counters, Sent
from tests.simulation.documents import clients as clients_of
from tests.simulation.importing import Imports
from tests.simulation.recount import of_head, of_state
from tests.simulation.script import Script
from tests.simulation.snapshots import OTHERS, Snapshots
from tests.simulation.themes import Theme, theme_of, themed
from tests.simulation.world import Faults, World
from worker.counting import bounds, ownership
from worker.counting.partition_state import PartitionState
from worker.counting.ports import StateLost
from worker.counting.rules import MAX_BATCH_BYTES, RecordLimits, RequestedRule
from worker.counting.windows import Windowing
from worker.service import loop

STREAMS = [ldp.Stream(name, ldp.GRR(epsilon="1", domain_size=3)) for name in ("one", "two")]
BAD = {b"": "empty", b"\x07noise": "version", b"{}": "json"}
RULES = [
    RequestedRule(revision, RecordLimits(most, True, MAX_BATCH_BYTES))
    for revision in (None, 1, 2)
    for most in (1, 2, 3)
]
WINDOWS = [
    None,
    Windowing(("all", "2s"), grace=500, max_out_of_orderness=500),
    Windowing(("all", "2s"), grace=2000, max_out_of_orderness=500),
    Windowing(("4s every 2s",), grace=0, max_out_of_orderness=1000),
    Windowing(("all", "2s", "6s every 3s"), grace=1000, max_out_of_orderness=500),
    Windowing(("all", "2s", "4s every 2s"), grace=500, max_out_of_orderness=0),
    Windowing(("all", "5s"), grace=1000, max_out_of_orderness=2000),
]
GOOD = {
    indices: frames.encode(STREAMS[0], np.array([(i,) for i in indices], STREAMS[0].oracle.report_dtype))
    for most in (1, 2, 3)
    for indices in itertools.product(range(3), repeat=most)
}
Clients = Sequence[Sequence[tuple[bytes, Sent]]]
"""The records that the clients of each document can send."""
_CLIENTS: Clients = clients_of(Counters(POOL))
LENGTHS = (*[(20, 2.0)] * 4, *[(30, 1.5)] * 2, (45, 1.5), (120, 1.5))
"""Turns of a history, and how dense its faults are; most are short, because more of them are wrong in a second."""
QUIET_STEPS = 12_000
SHOWN = 60
_YEAR_10000 = 253_402_300_800_000


_MOST_WORK = (4, 40, 40, 40)
"""The smallest value makes one poll count in slices."""


class Wrong(AssertionError):  # noqa: N818  # what it is
    """A history that must not be: its seed, what is wrong, and its last steps."""


def history(seed: int, shown: int = SHOWN) -> dict[str, int]:
    """Runs a history; returns the number of each event; raises Wrong if an invariant does not hold."""
    random.seed(seed)  # the back-off's spread
    made = _Made(seed)
    try:
        together = patch.object(ownership, "_MOST_BYTES", made.theme.together)
        bounded = patch.object(bounds, "MOST_DOCUMENTS", made.theme.most_documents)
        with patch.object(loop, "MOST_COST", made.most_work), together, bounded:
            made.run()
    except Exception as error:
        raise Wrong(f"seed {seed}: {type(error).__name__}: {error}\n{made.world.told(shown)}") from error
    finally:
        made.world.end()
    return made.world.happened


class Unjustified(AssertionError):  # noqa: N818  # what it is
    """A stream stops, and need not."""


class Times:
    """Timestamps of a topic's records; some are late, early or missing.

    They are multiples of `grid`: on half seconds, timestamps and watermarks often equal the ends of panes.
    """

    def __init__(self, rng: random.Random, fixed: Mapping[str, float]) -> None:
        self.now = BEGAN_MS + rng.randrange(10_000)
        self.appended = rng.random() < 0.15
        self.step = rng.choice([100, 400, 800])
        self.grid = rng.choice([1, 500])
        self.idle = rng.choice([0, 0.02, 0.1])
        self.late = rng.choice([0, 0.1, 0.3])
        self.early = rng.choice([0, 0.1])
        self.undated = rng.choice([0, 0, 0.05])
        self.wild = rng.choice([0] * 7 + [0.01])
        vars(self).update(fixed)

    def next(self, rng: random.Random) -> int:
        """Returns the timestamp of the next record."""
        self.now += rng.randrange(self.step)
        if rng.random() < self.idle:
            self.now += rng.randrange(10_000)
        now = self.now - self.now % self.grid
        kind = rng.random()
        for off, chance in (
            (rng.choice([3_600_000, 60_000, -3_600_000]), self.wild),  # a wrong clock
            (-rng.choice([500, 3000, 20_000]), self.late),
            (rng.choice([200, 1000]), self.early),
        ):
            if kind < chance:
                at = self.now + rng.randrange(min(0, off), max(0, off) + 1)
                return max(0, at - at % self.grid)
            kind -= chance
        return rng.choice([-1, -1, -(10**6), _YEAR_10000, (1 << 63) - 1]) if kind < self.undated else now


class _Made:
    """A history in the making."""

    def __init__(self, seed: int) -> None:
        rng = self.rng = random.Random(f"shape {seed}")
        self.theme = themed(theme_of(seed))
        self.turns, self.dense = rng.choice(LENGTHS)
        self.most_work = rng.choice(_MOST_WORK)
        faults = Faults(**{name: rng.choice(chances) for name, chances in _DRAWN.items()}).denser(self.dense)
        faults = self.theme.of(faults, rng)
        self.turns = rng.choice(self.theme.turns) if self.theme.turns else self.turns
        self.world = World(f"steps {seed}", faults, self.theme)
        self.world.play = Script(self.world, self.theme.script).play
        snapshots = Snapshots(self.world)
        snapshots.on_committed = self._committed
        self.times: dict[str, Times] = {}
        self.good: dict[str, Clients] = {}
        self.is_fleet = self.theme.fleet or seed % 20 == _FLEETS
        two = rng.random() < 0.15 or self.theme.two
        for number in range(1 + two):
            stream = STREAMS[number if rng.random() < 0.5 and not self.theme.two else 0]
            if number == 1 and stream is STREAMS[0]:
                reports = self.world.deployments[0].reports
            else:
                reports = Reports(self.world, f"reports-{number}", rng.randint(*self.theme.partitions))
            # workers of several configurations take turns: one is rolled out, rolled back, or both at once
            some = [RequestedRule()]
            if rng.random() >= 0.3:
                some = sorted(
                    rng.sample(RULES, rng.choice([1, 2, 3, 3])), key=lambda rule: rule.revision or 0
                )
            if rng.random() < 0.8:
                listed = rng.choice([WINDOWS, WINDOWS[1:], rng.sample(WINDOWS[1:], 1)])
                chosen = [(c, w) for c in some for w in rng.choices(listed, k=rng.choice([1, 1, 2]))]
                some = [replace(c, limits=replace(c.limits, windowing=w)) for c, w in chosen]
            if self.theme.windows:
                some = self.theme.configured(rng)
            some = _limited(
                some,
                self.theme.fewest or (() if self.is_fleet else _FEWEST.get(seed % 20, ())),
                random.Random(f"fewest {seed}"),
            )
            recount_after = rng.choice([None, sys.maxsize][self.theme.recounts :])
            idle_timeout, retain = rng.choice([1.0, 3.0]), rng.choice([None, 0, 4000, 10_000])
            pool, chosen_some = [stream], [alone(one, stream) for one in some]
            if self.is_fleet and stream is STREAMS[0]:
                pool = POOL
                chosen_some = rolled_out(
                    some,
                    random.Random(f"documents {seed}"),
                    self.theme.most_documents,
                    imports=self.theme.imports,
                    edited=self.theme.edited,
                )
                self.good[reports.name] = _CLIENTS
            Deployment(self.world, number, pool, reports, chosen_some, recount_after, idle_timeout, retain)
            rng.random()  # a draw that the seeds in mutants.toml count on
        self.owners: dict[str, Deployment] = {}
        self.imports = Imports(self.world.deployments if self.theme.imports else (), rng)
        if rng.random() < 0.2:  # the log has lost its beginning before anyone counts
            for reports in {d.reports.name: d.reports for d in self.world.deployments}.values():
                self._produce(reports, 8)
                for partition in reports.partitions:
                    partition.first = rng.randint(0, partition.stable)

    def run(self) -> None:
        rng, world = self.rng, self.world
        for turn in range(self.turns):
            if rng.random() < self.theme.produces:
                self._produce(rng.choice(world.deployments).reports, rng.randint(1, 4))
            self.imports.turn(turn, self._produce)
            for deployment in world.deployments if turn >= self.imports.alone_until else ():
                self._staff(deployment)
            for _ in range(rng.randint(1, self.theme.steps)):
                world.step()
            if self._noticed():
                return
        self._end()

    def _produce(self, reports: Reports, count: int) -> None:
        times = self.times.setdefault(reports.name, Times(self.rng, self.theme.times))
        produce(reports, times, self.rng, count, self.theme, self.good.get(reports.name))

    def _staff(self, deployment: Deployment) -> None:
        if deployment.stopped:
            return
        alive = [worker for worker in deployment.workers if not worker.dead]
        if len(alive) < 2 and self.rng.random() < 0.3:
            deployment.launch()
        elif alive and self.rng.random() < (self.theme.stops or 0.02 * self.dense):
            worker = self.rng.choice(alive)
            self.world.note("asked to stop", worker.name)
            worker.stopping.set()

    def _end(self) -> None:
        """Ends the faults, and checks that all records are counted and published."""
        world = self.world
        world.note("faults stop")
        for deployment in world.deployments:
            if world.faults.go_back and self.rng.random() < 0.5:
                world.go_back(deployment)
            if self.theme.recounts:
                world.give_back(deployment)
        world.faults, world.play = Faults(), Script(world, ()).play
        world.late += world.held
        world.snapshots.unreadable_until = world.now
        for deployment in world.deployments:
            deployment.reports.leaderless.clear()
            deployment.server.refused.clear()
            for partition in deployment.reports.partitions:
                for producer in list(partition.open):
                    partition.decide(producer, commit=self.rng.random() < 0.5)
            for worker in deployment.workers:
                worker.hangs_until = min(worker.hangs_until, world.now)  # that it hung stays known
            if self.theme.changes > 1 or self.is_fleet:  # a deploy ends
                deployment.configured = deployment.configured[-1:]
            if not deployment.stopped:
                self._hand_over(deployment)
        if OTHERS in world.snapshots.open and self.rng.random() < 0.8:
            world.snapshots.open_another()
        if self._quiet() and self.is_fleet:  # after their next claim, all partitions have the same names
            for deployment in world.deployments:
                if not deployment.stopped:
                    self._hand_over(deployment)
            if self._quiet():
                self._demand_converged()

    def _quiet(self) -> bool:
        """Runs until all is counted and published; returns whether no stream stopped."""
        world, began = self.world, self.world.steps
        while world.steps % 8 or not all(map(self._covered, world.deployments)):
            world.step()
            if self._noticed():
                return False
            if world.steps == began + QUIET_STEPS // 2:
                self._part()
            assert world.steps < began + QUIET_STEPS, "not all is counted and published: " + "; ".join(
                self._stands(deployment) for deployment in world.deployments
            )
        return True

    def _demand_converged(self) -> None:
        """Checks that all partitions have the same names, after all were claimed with the same head."""
        for deployment in self.world.deployments:
            found = deployment.truth.recorded_names()
            # at the bound, the documents of the first claim stay; another owner of the name prevents claims
            bounded = deployment.most_documents < len(deployment.pool)
            claims = not deployment.stopped and self._owns(deployment)
            if found and not bounded and claims and len(deployment.pool) > 1:
                assert found.count(found[0]) == len(found), f"the names do not converge: {found}"

    def _hand_over(self, deployment: Deployment) -> None:
        """Starts one more worker, next to the others or in their place."""
        if self.rng.random() < self.theme.replaces or self.theme.changes > 1 or self.is_fleet:
            for worker in list(deployment.workers):
                self.world.kill(worker)
        deployment.launch()

    def _part(self) -> None:
        """Stops one of two deployments that fence each other off under one name."""
        first = dict[str, Deployment]()
        for deployment in self.world.deployments:
            name = deployment.stream.name
            if name not in self.owners and first.setdefault(name, deployment) is not deployment:
                self.world.note("one of two that fence each other off is stopped")
                self._stop(deployment)

    def _stop(self, deployment: Deployment) -> None:
        deployment.stopped = True
        for worker in deployment.workers:
            self.world.kill(worker)

    def _covered(self, deployment: Deployment) -> bool:
        """Returns whether all is counted, stored and in the newest snapshot."""
        if deployment.stopped or not self._owns(deployment):
            return True
        if self.is_fleet and not self._settled(deployment):
            return False
        if self._has_unnamed(deployment):
            return True  # its snapshots wait, and partitions with windows that no snapshot names
        truth, partitions = deployment.truth, deployment.reports.partitions
        for number, partition in enumerate(partitions):
            stored = truth.offset(number)
            if stored != partition.stable and (stored is not None or partition.end):
                return False
        head = truth.heads[-1] if truth.heads else None
        states = {
            number: state for number in range(len(partitions)) if (state := truth.load(number)) is not None
        }
        if len(states) < sum(truth.offset(number) is not None for number in range(len(partitions))):
            return False
        if not any(state.reports for state in states.values()):
            # a head may only admit partitions; no snapshot is expected without reports, or without counts
            # and a head
            known = head["gaps"] if head is not None else {}
            lost = any(list(gap) not in known.get(str(p), []) for p in states for gap in states[p].gaps)
            return lost or truth.deleted or not any(head["reports"] for head in truth.heads)
        limited = max(state.fewest_new for state in states.values()) > 1
        if limited and not truth.blind and truth.increments is not None:
            if truth.increments.begins_later(head, states):
                return True
            if truth.increments.waiting(head, states):
                return False
            if head is None or not head["reports"]:  # a head without reports only admits partitions
                return head is None or not truth.windows.unsaid(head, states)
        if head is None:
            return False
        if head["reports"] and not limited:
            said = {number: head["offsets"].get(str(number)) for number in range(len(partitions))}
            if any(
                said[number] not in (partition.stable, None) for number, partition in enumerate(partitions)
            ):
                return False
        for number, state in states.items():
            if self._may_take_back(deployment, number, state):
                return False
            which = str(number)
            if not partitions[number].end and which not in head["offsets"]:
                continue
            offset = head["offsets"].get(which) if limited else state.offset
            stood = offset, [list(gap) for gap in state.gaps], of_state(state.rules)
            if which not in head["offsets"] or stood != (
                head["offsets"][which],
                head["gaps"].get(which, []),
                of_head(head, which),
            ):
                return False
        return not head["uncounted"] and (truth.blind or not truth.windows.unsaid(head, states))

    def _has_unnamed(self, deployment: Deployment) -> bool:
        """Returns whether a document is recorded that the newest configuration cannot name, as it has too many."""
        names, truth = deployment.configured[-1].named[0].keys(), deployment.truth
        recorded = {
            name for documents, _ in (*truth.recorded_names(), truth.in_force()) for name in documents
        }
        return bool(recorded - names) and len(names) >= self.theme.most_documents

    def _owns(self, deployment: Deployment) -> bool:
        """Returns whether no other deployment has published under the stream's name."""
        return self.owners.get(deployment.stream.name, deployment) is deployment

    def _settled(self, deployment: Deployment) -> bool:
        """Returns whether the workers hold all partitions that are stored, and have stored all rules."""
        held = [
            (p, one)
            for worker in deployment.workers
            if not worker.dead
            for p, one in worker.ownership._held.items()
        ]
        stored = {
            p for p in range(len(deployment.reports.partitions)) if deployment.truth.offset(p) is not None
        }
        return stored <= {p for p, _ in held} and not any(one.ahead or one.headless for _, one in held)

    def _may_take_back(self, deployment: Deployment, number: int, state: PartitionState) -> bool:
        """Returns whether the operator wants gaps back that the log has."""
        began, told = deployment.reports.partitions[number].first, deployment.recount_after is not None
        windows = any(rule.limits.windowing for rule in state.rules)
        return told and bool(state.gaps) and began <= state.start and not windows

    def _stands(self, deployment: Deployment) -> str:
        published = deployment.truth.heads[-1]["offsets"] if deployment.truth.heads else {}
        ends = [partition.stable for partition in deployment.reports.partitions]
        states = {p: state for p in range(len(ends)) if (state := deployment.truth.load(p)) is not None}
        unsaid = deployment.truth.windows.unsaid(deployment.truth.heads[-1], states) if published else ""
        held = {worker.name: worker.ownership.counted() for worker in deployment.workers if not worker.dead}
        return f"{published} is published of {ends}, held are {held}; {unsaid}"

    def _noticed(self) -> bool:
        """Returns whether a worker stopped for a loss; raises any other error."""
        world = self.world
        for task, error in world.errors:
            if not isinstance(error, StateLost):
                raise error
            worker = task.member
            assert isinstance(worker, Worker)
            deployment = worker.deployment
            world.note("stopped", str(error)[:200])
            owner = self.owners.get(deployment.stream.name)
            if "belongs to other counts" in str(error) and owner is not None and owner is not deployment:
                world.note("another deployment is refused")
                self._stop(deployment)
                continue
            if "configuration names none of them" in str(error):
                deployment.truth.demand_other_stream(worker.configured)
                world.note("a document is edited in place")
                return True
            if "Smaller increments would be published" in str(error):
                world.note("larger increments need a new revision")
                asked, rules = worker.ownership._configured.limits.fewest_new, deployment.truth.newest_rules()
                assert any(rule.fewest < asked for rule in rules), (
                    "increments are refused that are not larger"
                )
                return True
            if not world.lossy:
                raise error
            for number in re.findall(r"[Ss]napshot (\d+)", str(error)):
                assert int(number) <= len(deployment.truth.heads), "it speaks of what was never published"
            self._demand_reason(deployment, str(error))
            world.note("loss noticed")
            return True
        world.errors.clear()
        return False

    def _demand_reason(self, deployment: Deployment, why: str) -> None:
        """Checks that a stream stops only for a loss that it cannot recount."""
        if said := re.search(r"partition (\d+): the counts reach offset (\d+),.* log begins at (\d+):", why):
            partition, *gap = said.groups()
            known = deployment.truth.heads and "heads" not in self.world.lossy
            published = deployment.truth.heads[-1]["gaps"] if known else {}
            assert [*map(int, gap)] not in published.get(partition, []), "what was published as a gap was one"
            return
        if (
            self.world.lossy == {"store"}
            and not self.world.vanished
            and not deployment.truth.is_contradicted()
        ):
            raise Unjustified(why)

    def _committed(
        self,
        identity: str,
        sent: Sequence[SimpleNamespace],
        must: Collection[int],
        lacking: Mapping[int, int],
    ) -> None:
        """Passes a committed snapshot to the one deployment that may publish."""
        name = identity.removeprefix("ldp-")
        head = json.loads(next(record.value for record in sent if record.key == f"{name}/head".encode()))
        (deployment,) = [d for d in self.world.deployments if d.group_name == head["lineage"]["group"]]
        assert self.owners.setdefault(name, deployment) is deployment, (
            "two deployments publish under one name"
        )
        deployment.truth.committed(sent, must, lacking)


_DRAWN = {
    "crash": [0, 0.003, 0.01], "lost_request": [0, 0, 0.03], "late_request": [0, 0, 0.05], "twice": [0, 0, 0.03],
    "lost_reply": [0, 0.03, 0.1], "lost_mirror": [0, 0.2, 0.9], "staging_expired": [0, 0, 0.05],
    "damaged": [0, 0, 0.05], "expired_batch": [0, 0, 0.05], "hang": [0, 0, 0.005], "rebalance": [0, 0.01, 0.04],
    "go_back": [0, 0, 0.005], "lose": [0, 0, 0, 0.003], "expire": [0, 0, 0, 0.005], "retain": [0, 0, 0.005],
    "truncate": [0] * 9 + [0.003], "recreate": [0] * 6 + [0.003], "grow": [0, 0, 0.002, 0.006],
    "open_another": [0, 0, 0.02], "compact": [0, 0, 0.01], "jump": [0, 0, 0.003], "delete_head": [0] * 9 + [0.003],
    "silent": [0, 0.3], "unknown": [0, 0, 0.03], "expelled": [0, 0.05], "slow_join": [0, 0.3],
}  # fmt: skip
"""How likely each fault is; most histories have some of them only."""


_FEWEST: dict[int, Sequence[int]] = {16: (2, 3, 10), 18: (0, 2, 2, 3, 10)}
"""Smallest increments of the seeds that have a remainder."""


_FLEETS = 8
"""The remainder of seeds whose histories have several documents."""


def _limited(some: Sequence[RequestedRule], of: Sequence[int], rng: random.Random) -> list[RequestedRule]:
    """Returns configurations with smallest increments, most often one for each revision."""
    drawn, limited = dict[int, int](), list[RequestedRule]()
    for configured in some:
        fewest = rng.choice(of) if of else 0
        if configured.revision is not None:
            known = drawn.setdefault(configured.revision, fewest)
            fewest = fewest if rng.random() < 0.05 else known
        elif limited:  # smaller increments need a new revision
            fewest = max(fewest, limited[-1].limits.fewest_new)
        limited.append(replace(configured, limits=replace(configured.limits, fewest_new=fewest)))
    return limited


def produce(
    reports: Reports,
    times: Times,
    rng: random.Random,
    count: int,
    theme: Theme,
    clients: Clients | None,
) -> None:
    """Appends batches; ``clients`` are those of several documents, if any."""
    for _ in range(count):
        partition = rng.choice(reports.partitions)
        if theme.one_sided and rng.random() < theme.one_sided:
            partition = reports.partitions[-1]
        if partition.cut_to is not None:
            continue  # else a loss there might never be noticed
        kind = rng.random()
        values = [_value(times, rng, theme.bad, clients) for _ in range(rng.randint(1, 3))]
        appended = times.now - times.now % times.grid if times.appended else None
        if kind < 0.1 and partition.open:
            partition.decide(rng.choice(sorted(partition.open)), commit=rng.random() < 0.5)
        elif kind < 0.2:
            partition.append(values, producer=rng.randrange(3), appended=appended)
        elif kind < 0.25:
            partition.append(values, damaged=True, appended=appended)
        else:
            partition.append(values, appended=appended)


def _value(times: Times, rng: random.Random, bad: float, clients: Clients | None) -> tuple[bytes, Any, int]:
    at = times.next(rng)
    if rng.random() < bad:
        value = rng.choice(sorted(BAD))
        return value, BAD[value], at
    if clients is not None:
        return *rng.choice(rng.choice(clients)), at
    indices = rng.choice(sorted(GOOD))
    return GOOD[indices], list(indices), at
