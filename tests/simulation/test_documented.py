"""Histories of a stream with documents and segments, by only the user documentation.

Generator, recount and checks follow README.md, docs/guides/segments.md, docs/operate/change-a-stream.md,
docs/explanation/populations.md and docs/reference, and share no model with the other histories.
``python -m tests.simulation.test_documented FIRST LAST`` runs many.
"""

import contextlib
import json
import random
import re
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any

import pytest

import ldp
from ldp.frames import VERDICTS
from ldp.snapshot import assemble
from tests.support.memory import Crash, MemoryLog, MemoryStore, World
from tests.support.memory.process import Silence
from tests.support.memory.topics import MemorySnapshotProducer
from worker.config.loading import load
from worker.config.streams import Served
from worker.counting.head import Head
from worker.counting.ownership import Ownership
from worker.counting.ports import NotOwner, StateLost, StoredPartition, Unavailable
from worker.publishing.planning import Content
from worker.publishing.publisher import Group, Publisher
from worker.publishing.recommender import Recommender

FEW, PARTS_FEWEST = 25, 4
KINDS = "documents", "segments"
Names = dict[str, tuple[int, bool]]  # name -> revision and whether it is retired
DOCUMENTS = {
    each.fingerprint.hex(): each
    for each in (
        ldp.Stream("s", ldp.GRR("1", 3), ("a", "b", "c")),
        ldp.Stream("s", ldp.GRR("2", 4), ("b", "d", "a", "c")),
        ldp.Stream("s", ldp.GRR("1/2", 3), ("c", "e", "b"), segment="country"),
        ldp.Stream("s", ldp.GRR("3", 4), ("e", "f", "c", "a"), segment="country:app"),
    )
}
SEGMENTS = ["DE", "US", "US:4.3", "US:4.2", "FR:1", "DE:4.3"]
SENT = [*SEGMENTS, "US:9.9", "AT", "AT:4.3", "FR", "FR:2", "US:4.3:x", "DE:4.3.1"]
MALFORMED = ["DE:", ":DE", "D E", "DE::1", "x" * 33, "é", "~", ""]
NOISE = {b"": "empty", b"\x07noise": "version", b"\x01abc": "length", b"{}": "json", b"{": "json"}


@dataclass(frozen=True)
class Record:
    value: bytes
    document: str = ""
    segment: str | None = None
    indices: tuple[int, ...] = ()

    def reason(self, documents: Names, most: int) -> str | None:
        """Returns the first documented reason of rejection that applies."""
        if self.value in NOISE:
            return NOISE[self.value]
        if documents.get(self.document, (0, True))[1]:
            return "retired" if self.document in documents else "fingerprint"
        stream = DOCUMENTS[self.document]
        if (self.segment is None) != (stream.segment is None) or self.segment in MALFORMED:
            return "segment"
        if not 0 < len(self.indices) <= most:
            return "many" if self.indices else "length"
        return "range" if max(self.indices) >= stream.oracle.domain_size else None


def record(rng: random.Random, document: str, segment: str | None, indices: Sequence[int]) -> Record:
    """Returns a frame, encoded by docs/reference/wire-format.md."""
    if rng.random() < 0.3:
        body = {"fingerprint": document, "reports": [*indices]}
        value = json.dumps(body if segment is None else body | {"segment": segment}).encode()
    else:
        name = b"" if segment is None else bytes([len(segment.encode())]) + segment.encode()
        value = (b"\2" if name else b"\1") + bytes.fromhex(document) + name + bytes(indices)
    return Record(value, document, segment, tuple(indices))


def prefixes(segment: str) -> list[str]:
    levels = segment.split(":")
    return [":".join(levels[: i + 1]) for i in range(len(levels))]


def joined(*every: Names) -> Names:
    """Joins statuses: the highest revision applies, and in one revision `retired` applies."""
    return {name: max(one[name] for one in every if name in one) for name in set[str]().union(*every)}


@dataclass
class Configuration:
    """The keys that an operator writes."""

    documents: list[str]
    retired: list[str]
    segments: list[str]
    retired_segments: list[str]
    revision: int | None = None
    most: int = 4

    def named(self) -> tuple[Names, Names]:
        revision = self.revision or 0
        version = revision if len(self.documents + self.retired) > 1 else 0
        names = dict.fromkeys(self.documents, (version, False)) | dict.fromkeys(self.retired, (version, True))
        segments = dict.fromkeys(self.segments, (revision, False))
        return names, segments | dict.fromkeys(self.retired_segments, (revision, True))

    def changed(self, rng: random.Random) -> "Configuration":
        """Returns the next configuration: one to three changes that the documentation allows."""
        lists, revision, most = [[*names] for names in astuple(self)[:4]], self.revision, self.most
        documents, retired, segments, retired_segments = lists
        for _ in range(rng.choice([1, 1, 2, 3])):
            levels = max((DOCUMENTS[d].segment or "-").count(":") for d in documents + retired)
            sliced = any(DOCUMENTS[d].segment for d in documents + retired)
            known = documents + retired + segments + retired_segments
            new = [d for d in DOCUMENTS if d not in known]
            free = [s for s in SEGMENTS if s not in known and sliced and s.count(":") <= levels]
            act = rng.choice(["add", "add", "retire", "accept", "slice", "slice", "merge", "unmerge", "most"])
            if act == "add" and new:
                documents.insert(0, rng.choice(new))
            elif act == "retire" and len(documents) > 1:
                retired.append(documents.pop(rng.randrange(len(documents))))
            elif act == "slice" and free:
                segments.append(rng.choice(free))
            elif act == "merge" and segments:
                retired_segments.append(segments.pop(rng.randrange(len(segments))))
            elif act == "most":
                most, revision = most + 1, None if revision is None else revision + 1
            elif act in ("accept", "unmerge") and (gone := retired if act == "accept" else retired_segments):
                (documents if act == "accept" else segments).append(gone.pop(rng.randrange(len(gone))))
                revision = (revision or 100) + 1  # above the numbers of `rules.added`
        return Configuration(documents, retired, segments, retired_segments, revision, most)

    def served(self, folder: Path) -> Served:
        """Returns the stream as a worker reads it from its files."""
        for name, stream in DOCUMENTS.items():
            (folder / name).write_text(json.dumps(stream.document()))
        keys = {"documents": self.documents, "retired": self.retired, "most_reports": self.most}
        keys |= {"segments": self.segments, "retired_segments": self.retired_segments}
        keys |= {} if self.revision is None else {"revision": self.revision}
        lines = [
            "[[streams]]",
            'name = "s"',
            'topic = "t"',
            *(f"{k} = {json.dumps(v)}" for k, v in keys.items()),
        ]
        (folder / "worker.toml").write_text("\n".join(lines))
        return load(folder / "worker.toml", {}).streams[0]


class Outside(World):
    """Kafka and Redis in memory, with checks of the stored rules."""

    def __init__(self, history: "History", partitions: int) -> None:
        super().__init__(next(iter(DOCUMENTS.values())), partitions)
        self.history, self.letters = history, dict[tuple[int, int], set[str]]()
        self.topic: dict[str, tuple[dict[str, bytes], bytes]] = {}

    def rebalance(self) -> None:
        super().rebalance()
        self.history.rng.shuffle(dealt := [*self.assignment.values()])
        self.assignment = dict(zip(self.assignment, dealt, strict=True))

    def verify(self, partition: int, before: StoredPartition | None = None) -> None:
        self.history.demand_stored(partition, before)


class DeadLetters:
    def __init__(self, world: Outside) -> None:
        self.world = world

    def add(self, batch: Any, verdicts: Any) -> int:
        for i in verdicts.nonzero()[0]:
            place = batch.partition, int(batch.columns.offsets[i])
            self.world.letters.setdefault(place, set()).add(VERDICTS[verdicts[i]])
        return 0

    def flush(self) -> None:
        pass


class Producer(MemorySnapshotProducer):
    """Snapshot topic: a crash before the commit aborts the transaction."""

    world: Outside

    def commit(self, sequence: int, messages: Sequence[Any], head: Any) -> None:
        if (fate := self.world.history.rng.random()) < 0.02:
            raise Crash
        self.world.begun_until = None
        for one in messages:
            self.world.topic[one.key] = dict(one.headers(sequence)), one.body
        self.world.heads.append(Head.parse(head))
        self.world.history.demand_published(head, {one.key for one in messages if one.body})
        if fate > 0.97:
            raise Unavailable("the reply of the commit was lost")


class Store(MemoryStore):
    """Redis, which sometimes loses a commit's request or reply."""

    world: Outside

    def promote(self, *args: Any) -> Any:
        if (fate := self.world.history.rng.random()) < 0.03:
            raise Unavailable("the request was lost")
        answer = super().promote(*args)
        if fate > 0.97:
            raise Unavailable("the reply was lost")
        return answer


class Worker(Silence):
    """A worker process, which also receives its events."""

    def __init__(self, history: "History", number: int, configuration: Configuration) -> None:
        world, self.history, self.number, self.configuration = history.world, history, number, configuration
        served, store, producer = configuration.served(history.folder), Store(world), Producer(world)
        self.log, clock = MemoryLog(world, number), lambda: world.clock
        settings: Any = DeadLetters(world), producer, world.recount_after, clock, self
        self.ownership = Ownership("group", served.fleet, served.configured, self.log, store, *settings)
        content = Content(parts_fewest=PARTS_FEWEST, parts_methods=("base",), methods=("base", "norm-sub"))
        group = Group(lambda: range(world.told), world.uncounted, lambda: self.ownership.epoch(0))
        recommender = Recommender((), self)
        self.publisher = Publisher(served.fleet, content, store, producer, group, recommender, self, clock)
        self.parts: dict[str, int] = {}  # part -> its reports when this publisher last published it
        world.members.add(number)

    def claimed(self, partition: int, start: str, offset: int, epoch: int) -> None:
        self.history.owners[partition, epoch] = self.configuration

    def turn(self) -> None:
        try:
            batches = self.log.poll()
            self.ownership.release(self.log.take_revoked())
            for batch in batches:
                self.ownership.apply(batch)
            self.history.world.clock += 1
            self.ownership.claim()
            if self.history.rng.random() < 0.7:
                self.ownership.commit()
            self.ownership.compare()
        except Unavailable:
            self.ownership.rewind()

    def publish(self) -> None:
        if self.publisher._head is None:
            self.parts.clear()  # it takes over, and publishes each part once
        self.history.publisher = self
        self.publisher.tick()


class History:
    """One seeded history, its recount and its checks."""

    def __init__(self, seed: int, folder: Path) -> None:
        self.rng, self.folder, self.happened = random.Random(seed), folder, Counter[str]()
        self.world = Outside(self, self.rng.choice([1, 2, 2, 3]))
        self.records: list[list[Record]] = [[] for _ in self.world.logs]
        self.configurations = [Configuration([self.rng.choice([*DOCUMENTS])], [], [], [])]
        self.given = set[tuple[str, str, tuple[int, bool]]]()  # names in configurations of workers
        self.owners: dict[tuple[int, int], Configuration] = {}
        self.workers, self.zombies, self.launched = list[Worker](), list[Worker](), 0
        self.lossy = self.is_raised = False
        self.head: Any = None
        self.publisher: Any = None

    def launch(self, number: int) -> None:
        configuration = self.configurations[number]
        for kind, names in zip(KINDS, configuration.named(), strict=True):
            self.given |= {(kind, *item) for item in names.items()}
        self.launched += 1
        self.workers.append(Worker(self, self.launched, configuration))

    def launch_any(self) -> None:
        """Starts a worker: most have the newest configuration, some an older or another one."""
        if self.rng.random() < 0.4:
            self.configurations.append(self.configurations[-1].changed(self.rng))
        last = len(self.configurations) - 1
        self.launch(self.rng.randint(0, last) if self.rng.random() < 0.3 else last)

    def kill(self, worker: Worker) -> None:
        self.workers = [one for one in self.workers if one is not worker]
        self.world.members.discard(worker.number)
        self.world.rebalance()
        if self.rng.random() < 0.3:
            self.zombies.append(worker)  # the group has removed it, and it still runs

    def send(self) -> None:
        rng, live = self.rng, self.configurations[-1].documents
        for _ in range(rng.choice([1, 3, 8])):
            name = rng.choice([*live, *live, *DOCUMENTS])
            segment = rng.choice(SENT) if DOCUMENTS[name].segment else None
            segment = rng.choice([None, *MALFORMED, *SENT]) if rng.random() < 0.05 else segment
            most = DOCUMENTS[name].oracle.domain_size - (rng.random() > 0.03)
            indices = [rng.randint(0, most) for _ in range(rng.choice([1, 1, 1, 1, 2, 5, 0]))]
            sent = (
                Record(rng.choice([*NOISE])) if rng.random() < 0.05 else record(rng, name, segment, indices)
            )
            self.produce(rng.randrange(len(self.records)), sent)

    def produce(self, partition: int, sent: Record) -> None:
        self.records[partition].append(sent)
        self.world.produce(partition, sent.value, None)

    def lose(self) -> None:
        """Redis loses its newest writes of a partition, or all of it."""
        if past := self.world.past:
            partition, self.lossy = self.rng.choice([*past]), True
            if self.rng.random() < 0.3:
                self.happened["store lost"] += 1
                del self.world.stored[partition], past[partition]
            else:
                self.happened["store set back"] += 1
                number = self.rng.randrange(len(past[partition]))
                self.world.stored[partition] = past[partition][number]
                del past[partition][number + 1 :]

    def forget(self) -> None:
        """Deletes the oldest records of a partition, mostly counted ones, as retention does."""
        partition = self.rng.randrange(len(self.records))
        stored, first = self.world.stored.get(partition), self.world.firsts[partition]
        counted = 0 if stored is None else stored.metadata.offset
        end = len(self.records[partition]) if self.rng.random() < 0.3 else counted
        self.world.firsts[partition] = self.rng.randint(first, max(first, end))

    def arrive(self) -> None:
        """A commit of offsets arrives in Kafka, which refuses those of earlier generations."""
        with contextlib.suppress(NotOwner):
            self.world.late.pop(self.rng.randrange(len(self.world.late)))()

    def guarded(self, worker: Worker, step: Callable[[], object]) -> None:
        """Runs a step of a worker; acts as its operator if the stream stops."""
        try:
            step()
        except Crash:
            self.happened["crash"] += 1
            self.kill(worker)
        except StateLost as error:
            self.happened["stopped"] += 1
            assert self.lossy, f"the stream stops, though nothing was lost: {error}"
            if found := re.search(r"recount_after = (\d+)", str(error)):
                self.world.recount_after = int(found[1])
            for each in self.workers:
                self.kill(each)
            self.zombies.clear()

    def act(self) -> None:
        rng, world = self.rng, self.world
        if not self.workers:
            self.launch_any()
        worker = rng.choice(self.workers)
        zombie = rng.choice(self.zombies or self.workers)
        acts: list[tuple[int, Callable[[], object]]] = [
            (90, lambda: self.guarded(worker, worker.turn)),
            (30, lambda: self.guarded(worker, worker.publish)),
            (2, lambda: self.guarded(zombie, zombie.publish)),
            (2, lambda: self.guarded(zombie, zombie.ownership.commit)),
            (40, self.send),
            (8 * (len(self.workers) < 3), self.launch_any),
            (6, lambda: self.kill(worker)),
            (4, world.rebalance),
            (2 * (len(self.records) < 4), self.grow),
            (4, lambda: setattr(world, "told", len(world.logs))),
            (6 * bool(world.late), self.arrive),
            (1, self.lose),
            (1, self.forget),
            # the operator removes the key after the next snapshot
            (
                4 * (len(world.heads) > (world.recount_after or 0)),
                lambda: setattr(world, "recount_after", None),
            ),
        ]
        rng.choices([act for _, act in acts], [weight for weight, _ in acts])[0]()

    def grow(self) -> None:
        self.records.append([])
        self.world.grow()

    def run(self) -> None:
        for _ in range(self.rng.choice([60, 120, 250])):
            self.act()
        if self.rng.random() < 0.5:
            last = self.configurations[-1].changed(self.rng)
            last.revision, last.most, self.is_raised = 10_000, 6, True
            self.configurations.append(last)
        self.world.told = len(self.records)
        self.finish()
        self.finish()  # each partition now has the names that the head lists for others
        probed = [len(log) for log in self.records]
        for partition in range(len(probed)):
            for name, stream in DOCUMENTS.items():
                for segment in SENT if stream.segment else [None]:
                    self.produce(partition, record(self.rng, name, segment, [self.rng.randrange(3)]))
        self.finish()
        last, named = self.configurations[-1], self.configurations[-1].named()
        for partition, begin in enumerate(probed):
            offset, most, *names = self.rules(self.head, partition)[-1]
            assert offset <= begin, "a rule begins late"
            assert names == [joined(*each) for each in zip(named, names, strict=True)]
            assert names == [*self.rules(self.head, 0)[-1][2:]], "partitions accept different names"
            assert not self.is_raised or (most, *names) == (last.most, *named)
        self.happened["finished"] += 1

    def finish(self) -> None:
        """Workers of the newest configuration start again, and count and publish everything."""
        for worker in self.workers:
            self.kill(worker)
        ends = {p: len(log) for p, log in enumerate(self.records)}
        for _ in range(300):
            while len(self.workers) < 2:
                self.launch(-1)
            for step in ("turn", "publish"):
                for worker in [*self.workers]:
                    if worker in self.workers:
                        self.guarded(worker, getattr(worker, step))
            while self.world.late:
                self.arrive()
            self.world.clock += 5
            stored = {p: at.metadata.offset for p, at in self.world.stored.items()}
            shown = self.head and {int(p): at for p, at in self.head["offsets"].items()}
            if len(self.workers) == 2 and stored == ends == shown:
                return
        raise AssertionError(f"{shown} of {ends} is published, {stored} stored")

    # checks

    def demand_stored(self, partition: int, before: StoredPartition | None) -> None:
        """Checks stored rules: they begin as before, and name what the worker's configuration names."""
        after = self.world.stored[partition].metadata
        assert before is not None
        rules, last = (json.loads(one.totals)["rules"] for one in (after, before.metadata))
        assert rules[: len(last)] == last or not before.metadata.commit_id, "a stored rule was changed"
        for kind, mine in zip(KINDS, self.owners[partition, after.epoch].named(), strict=True):
            every = joined(*({n: (v, r) for n, (v, r) in rule.get(kind, {}).items()} for rule in rules))
            assert every == joined(every, mine), f"{kind} {mine} are not in force: {every}"
            assert {(kind, *item) for item in every.items()} <= self.given, "no configuration named it"

    def rules(self, head: Any, partition: int | str) -> list[tuple[int, int, Names, Names]]:
        """Returns each published rule: its offset, most reports, documents and segments."""
        found, names = list[tuple[int, int, Names, Names]](), [Names(), Names()]
        for rule in head["rules"][str(partition)]:
            own = [rule.get(kind, {}) for kind in KINDS]
            if not found and not own[0]:
                own[0] = {head["documents"][0]["fingerprint"]: (0, False)}
            names = [
                joined(a, {n: (v, r) for n, (v, r) in b.items()}) for a, b in zip(names, own, strict=True)
            ]
            found.append((rule["offset"], rule["most_reports"], names[0], names[1]))
        return found

    def recount(self, head: Any) -> dict[tuple[str, str], Counter[int]]:
        """Counts the cut of a head by its rules: (document, longest declared prefix) -> values."""
        cells = dict[tuple[str, str], Counter[int]]()
        for partition, end in ((int(p), end) for p, end in head["offsets"].items()):
            rules, gaps = self.rules(head, partition), head["gaps"].get(str(partition), [])
            assert all(to <= self.world.firsts[partition] for _, to in gaps), "the topic still holds a gap"
            for offset in range(rules[0][0], end):
                if any(begin <= offset < to for begin, to in gaps):
                    continue
                most, documents, segments = [rule for rule in rules if rule[0] <= offset][-1][1:]
                sent = self.records[partition][offset]
                if reason := sent.reason(documents, most):
                    found = self.world.letters.get((partition, offset), ())
                    assert reason in found, f"record {offset} is due {reason}, and has {found}"
                    continue
                declared = {
                    p for s, (_, gone) in segments.items() for p in prefixes(s)[: -1 if gone else None]
                }
                longest = ["", *(p for p in prefixes(sent.segment or "") if p in declared)][-1]
                cells.setdefault((sent.document, longest), Counter()).update(sent.indices)
        return cells

    def demand_published(self, head: Any, keys: set[str]) -> None:
        """Checks a snapshot: against the one before, and against the recount of its cut."""
        before, self.head = self.head or {"sequence": 0, "offsets": {}, "rules": {}, "documents": []}, head
        cells, lasts = self.recount(head), [self.rules(head, p)[-1] for p in head["rules"]]
        assert head["sequence"] == before["sequence"] + 1, "a number is missing"
        assert all(head["offsets"].get(p, -1) >= at for p, at in before["offsets"].items()), "it went back"
        for p, listed in before["rules"].items():
            assert head["rules"][p][: len(listed)] == listed, "a published rule was changed"
        order = [each["fingerprint"] for each in head["documents"]]
        was = [each["fingerprint"] for each in before["documents"]]
        assert order[: len(was)] == was, "a document has another place"
        of = {n: sum((c for (d, _), c in cells.items() if d == n), Counter[int]()) for n in order}
        assert (
            head["reports"] == sum(c.total() for c in cells.values()) == sum(c.total() for c in of.values())
        )
        every = joined(*(last[2] for last in lasts))
        assert {*every} == {*order} <= {*self.publisher.configuration.named()[0]}, "labels are missing"
        for each, (name, counts) in zip(head["documents"], of.items(), strict=True):
            accepting = [last for last in lasts if not last[2].get(name, (0, True))[1]]
            found = each["reports"], each["partitions"], each["retired"]
            assert found == (counts.total(), len(accepting), every[name][1])
        labels = [*dict.fromkeys(label for n in order for label in DOCUMENTS[n].labels or ())]
        if head["reports"]:
            self.demand_body("s", of, labels)
            assert json.loads(self.world.topic["s/domain"][1])["labels"] == labels
        self.demand_parts(head, keys, cells, labels)

    def demand_body(self, name: str, of: dict[str, Counter[int]], labels: Sequence[str]) -> None:
        """Checks Base of the stream or of a part: shares among the reports that have the label."""
        assemble(name, {key: sent for key, sent in self.world.topic.items() if sent[1]})
        body = json.loads(self.world.topic[f"{name}/all/base"][1])
        known, shares = dict.fromkeys(labels, 0), dict.fromkeys(labels, 0.0)
        for n, counts in of.items():
            p, q = float(DOCUMENTS[n].oracle.p), float(DOCUMENTS[n].oracle.q)
            for i, label in enumerate(DOCUMENTS[n].labels or ()):
                known[label] += counts.total()
                shares[label] += (counts[i] - counts.total() * q) / (p - q)
        assert body["reports"] == sum(c.total() for c in of.values())
        assert body.get("known", [body["reports"]] * len(labels)) == [*known.values()]
        for label, found in zip(labels, body["frequencies"], strict=True):
            due = pytest.approx(shares[label] / known[label], abs=1e-6) if known[label] else None
            assert found == due, (name, label)

    def demand_parts(self, head: Any, keys: set[str], cells: Any, labels: Sequence[str]) -> None:
        """Checks the documents and segments that are published with a snapshot, and the hidden reports."""
        order, named = [each["fingerprint"] for each in head["documents"]], set[str]()
        for p in head["rules"]:
            named |= {prefix for s in self.rules(head, p)[-1][3] for prefix in prefixes(s)}
        parts: dict[str, Any] = {f"s@{n}": [(n, c) for (d, _), c in cells.items() if d == n] for n in order}
        parts = parts if len(order) > 1 else {}
        parts |= {f"s:{s}": [(d, c) for (d, at), c in cells.items() if s in prefixes(at)] for s in named}
        shown, last = {}, self.publisher.parts
        for part, counted in parts.items():
            reports = sum(c.total() for _, c in counted)
            if ":" in part and reports >= PARTS_FEWEST:
                shown[part[2:]] = reports
            is_due = reports >= last.get(part, 0) + PARTS_FEWEST
            assert (f"{part}/head" in keys) == is_due, (part, reports, last.get(part))
            if is_due:
                last[part] = reports
                self.happened["part"] += 1
                own = DOCUMENTS[part[2:]].labels if "@" in part else labels
                of = {
                    n: sum((c for d, c in counted if d == n), Counter[int]()) for n in {d for d, _ in counted}
                }
                self.demand_body(part, of, own or ())
        hidden = sum(c.total() for (_, at), c in cells.items() if not shown.keys() & {*prefixes(at)})
        if named or "hidden" in head:
            assert (head["segments"], head["hidden"]) == (shown, hidden)


def history(seed: int) -> Counter[str]:
    """Runs one history; returns how often each event happened."""
    random.seed(seed)  # the pauses between claims
    with tempfile.TemporaryDirectory() as folder:
        one = History(seed, Path(folder))
        one.run()
        return one.happened


def test_histories_match_the_documentation() -> None:
    happened = sum((history(seed) for seed in range(FEW)), Counter[str]())
    assert {"crash", "finished", "part", "stopped", "store lost", "store set back"} <= {*happened}


if __name__ == "__main__":
    print(sum((history(seed) for seed in range(int(sys.argv[1]), int(sys.argv[2]))), Counter[str]()))
