"""Upgrades of a stream as its operator sees them: configurations, restarts, partitions and reports in random order.

No fault is injected. After each step, the workers settle. The model is the guide for operators. A listed document
counts from the restart on, and a retired document no longer counts. A reader assembles the published messages.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import ldp
from ldp import snapshot
from tests.simulation.broker import BEGAN_MS, Reports
from tests.simulation.configurations import Configured
from tests.simulation.deployment import Deployment
from tests.simulation.documents import DECLARED, POOL, Counters, Sent, clients, prefixes
from tests.simulation.parts import FEWEST
from tests.simulation.snapshots import Snapshots
from tests.simulation.themes import Theme
from tests.simulation.world import Faults, World
from worker.counting.rules import RequestedRule, Status

_COUNTERS = Counters(POOL)
_CLIENTS = clients(_COUNTERS)
_FINGERPRINTS = [stream.fingerprint.hex() for stream in POOL]
MOST_STEPS = 8000


class Operator:
    """The expectation of an operator: the documents that count, and the reports of each label.

    `status` and `declared` have the version of each document and segment, and whether it is retired.
    """

    def __init__(self) -> None:
        self.status = dict[str, tuple[int, bool]]()
        self.declared = dict[str, tuple[int, bool]]()
        self.counts = {name: Counter[object]() for name in _FINGERPRINTS}
        self.of_segment = Counter[str]()
        self.outside, self.rejected = 0, Counter[str]()

    def configure(self, configured: Configured) -> None:
        """Restarts all workers with a configuration."""
        documents, segments = configured.named
        for known, listed in ((self.status, documents), (self.declared, segments)):
            for name, (version, retired) in listed.items():
                if name not in known or version > known[name][0]:
                    known[name] = version, retired
                elif version == known[name][0] and retired:
                    known[name] = version, True

    def report(self, sent: Sent) -> None:
        """A client sends a record."""
        if sent.document not in self.status:
            self.rejected["fingerprint"] += 1
        elif self.status[sent.document][1]:
            self.rejected["retired"] += 1
        elif sent.bad:
            self.rejected["segment"] += 1
        else:
            labels = POOL[_FINGERPRINTS.index(sent.document)].labels or ()
            cell, slots = next(iter(sent.slots.items()))
            for slot in slots:
                self.counts[sent.document][labels[slot - _COUNTERS.places[sent.document, cell][0]]] += 1
            for segment in () if sent.segment is None else prefixes(sent.segment):
                if segment in self.parts and self._counts(segment):
                    self.of_segment[segment] += sent.size

    def _counts(self, segment: str) -> bool:
        live = segment in self.declared and not self.declared[segment][1]
        return live or any(name.startswith(f"{segment}:") for name in self.declared)

    @property
    def parts(self) -> set[str]:
        """The declared segments and those above them."""
        return {prefix for name in self.declared for prefix in prefixes(name)}

    def shares(self) -> tuple[dict[object, float], dict[object, int]]:
        """Returns the share of each label, and how many reports could have it."""
        shares, known = dict[object, float](), Counter[object]()
        for stream, name in zip(POOL, _FINGERPRINTS, strict=True):
            if name in self.status:
                n, p, q = self.counts[name].total(), float(stream.oracle.p), float(stream.oracle.q)
                for label in stream.labels or ():
                    known[label] += n
                    shares[label] = shares.get(label, 0.0) + (self.counts[name][label] - n * q) / (p - q)
        return {label: share / known[label] for label, share in shares.items() if known[label]}, known


def configurations(rng: random.Random) -> Iterator[Configured]:
    """Yields configurations; the last one lists all documents of those before."""
    seen, revision = {rng.randrange(len(POOL))}, rng.choice([None, 1])
    segments = dict[str, bool]()
    steps = rng.randint(2, 6)
    for step in range(steps):
        known = rng.choice(sorted(seen))
        listed = seen if step == steps - 1 else {known, *rng.sample(sorted(seen), rng.randint(0, len(seen)))}
        listed = listed | ({rng.randrange(len(POOL))} if step and rng.random() < 0.6 else set())
        seen |= listed
        if step and rng.random() < 0.4:
            revision = (revision or 0) + 1
        gone = {i for i in listed if i != known and rng.random() < 0.3}
        segments |= {name: rng.random() < 0.3 for name in DECLARED if rng.random() < 0.3}
        fleet = ldp.Fleet(
            tuple(POOL[i] for i in sorted(listed, reverse=True)),
            frozenset(POOL[i].fingerprint for i in gone),
        )
        apart = any(POOL[i].segment for i in listed)
        named = {name: Status(revision or 0, retired) for name, retired in segments.items() if apart}
        yield Configured(revision, RequestedRule().limits, named, fleet)


class Upgrades:
    """One random sequence of steps; `run` raises AssertionError where the outcome differs."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(f"upgrades {seed}")
        random.seed(seed)
        self.world = World(f"upgrades {seed}", Faults(), Theme(fleet=True))
        snapshots = Snapshots(self.world)
        snapshots.on_committed = lambda _, sent, must, lacking: self._committed(sent, must, lacking)
        self.reports = Reports(self.world, "reports", self.rng.randint(1, 3))
        self.configurations = list(configurations(self.rng))
        self.deployment = Deployment(self.world, 0, POOL, self.reports, self.configurations, None)
        self.operator, self.time = Operator(), BEGAN_MS

    def _committed(self, sent: list[SimpleNamespace], must: Any, lacking: Any) -> None:
        self.deployment.truth.committed(sent, must, lacking)

    def run(self) -> None:
        """Takes the steps, and compares the published snapshot with the operator's expectation."""
        try:
            for configured in self.configurations:
                self._restart(configured)
                for _ in range(self.rng.randint(1, 3)):
                    self._report()
                    if self.rng.random() < 0.2:
                        self.reports.grow()
                    self._settle()
                    if self.rng.random() < 0.2:
                        self._restart(configured)
            self._compare()
        finally:
            self.world.end()

    def _restart(self, configured: Configured) -> None:
        for worker in self.deployment.workers:
            self.world.kill(worker)
        self.deployment.configured = [configured]
        self.operator.configure(configured)
        for _ in range(self.rng.randint(1, 2)):
            self.deployment.launch()
        self._settle()

    def _report(self) -> None:
        for _ in range(self.rng.randint(1, 12)):
            frame, sent = self.rng.choice(self.rng.choice(_CLIENTS))
            self.time += 1
            self.rng.choice(self.reports.partitions).append([(frame, sent, self.time)])
            self.operator.report(sent)

    def _settle(self) -> None:
        """Lets the workers count and publish everything."""
        for _ in range(MOST_STEPS):
            self.world.step()
            assert not self.world.errors, self.world.errors
            if self.world.steps % 8 == 0 and self._is_settled():
                return
        raise AssertionError("the workers do not settle")

    def _is_settled(self) -> bool:
        truth, workers = self.deployment.truth, [one for one in self.deployment.workers if not one.dead]
        held = {p: one for worker in workers for p, one in worker.ownership._held.items()}
        numbers = range(len(self.reports.partitions))
        if held.keys() != {*numbers} or any(one.ahead or one.headless for one in held.values()):
            return False
        if any(truth.offset(p) != self.reports.partitions[p].stable for p in numbers):
            return False
        if self.operator.status.keys() - self.deployment.configured[0].named[0].keys():
            return True  # snapshots wait until the configuration lists all documents
        head = truth.heads[-1] if truth.heads else {"offsets": {}, "rules": {}}
        states = {str(p): truth.load(p) for p in numbers}
        counted = any(state.reports for state in states.values() if state)
        return not counted or all(
            head["offsets"].get(p) == state.offset and len(head["rules"].get(p, ())) == len(state.rules)
            for p, state in states.items()
            if state
        )

    def _compare(self) -> None:
        operator, rejected = self.operator, Counter[str]()
        for p in range(len(self.reports.partitions)):
            state = self.deployment.truth.load(p)
            assert state is not None
            rejected += Counter(state.rejected)
        assert rejected == operator.rejected, f"{operator.rejected} are to be rejected, and {rejected} are"
        accepted = sum(counts.total() for counts in operator.counts.values())
        if not accepted:
            return
        newest = {
            record.key.decode(): (dict(record.headers), record.value)
            for record, one in self.world.snapshots.records
            if one.state == "committed"
        }
        received = {key: one for key, one in newest.items() if one[1] is not None}
        read, head = snapshot.assemble("one", received), json.loads(received["one/head"][1])
        shares, known = operator.shares()
        assert read.reports == accepted, f"{accepted} reports count, and {read.reports} are published"
        for label, said in zip(read.labels or (), read.bodies["base"].frequencies, strict=True):
            assert (label not in shares and said != said) or abs(said - shares[label]) < 1e-9, label
        assert {*(read.labels or ())} == {*known}, "the labels of all documents"
        for one in head["documents"]:
            assert one["reports"] == operator.counts[one["fingerprint"]].total(), "the reports of a document"
            assert one["retired"] == operator.status[one["fingerprint"]][1], "a retired document"
            if len(head["documents"]) > 1 and one["reports"] >= FEWEST:
                part = snapshot.assemble(f"one@{one['fingerprint']}", received)
                assert one["reports"] - FEWEST < part.reports <= one["reports"], "a document's part"
        if operator.declared:
            shown = {name: n for name, n in operator.of_segment.items() if n >= FEWEST}
            assert head["segments"] == shown, f"segments {head['segments']}, and {shown} are counted"
            apart = sum(n for name, n in shown.items() if ":" not in name)
            assert head["hidden"] == accepted - apart, "hidden reports"
            for name, n in shown.items():
                part = snapshot.assemble(f"one:{name}", received)
                assert n - FEWEST < part.reports <= n, "a segment's part"
