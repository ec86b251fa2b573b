"""Measures what `deploy.sizing` computes: a line for each formula, with both numbers and the relative error.

``python -m tests.bench.sizing`` claims, commits, reads cuts and publishes on a local Redis and Kafka. Bytes are from
Redis (``INFO``, ``MEMORY USAGE``) and Kafka's files. Times are the least CPU seconds of several runs, of all threads.
``error`` is the largest relative error of the points. ``python -m tests.bench.ingest`` measures the counting rate.
"""

import gc
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import count
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, cast
from uuid import uuid4

import numpy as np
import redis
from kafka import KafkaProducer
from kafka.admin import KafkaAdminClient, NewTopic

import ldp
from deploy.local.services import Services
from deploy.local.workers import ROOT, Worker
from deploy.sizing.formulas import Load, work_seconds
from ldp import frames, kernels
from tests.bench.ingest.ours import environment, wait, write
from tests.bench.ingest.usage import Usage
from tests.bench.measure import Line
from tests.support.stores import Singly
from worker.counting import layout
from worker.counting.cells import Cell, CellKey
from worker.counting.lineage import lineage_of
from worker.counting.partition_state import PartitionState
from worker.counting.ports import Answer, Events, Metadata
from worker.counting.rules import RequestedRule
from worker.counting.windows import Pane, Windowing
from worker.kafka.snapshots.producer import KafkaSnapshotProducer
from worker.kafka.snapshots.topic import SnapshotTopic
from worker.publishing import stored_cut
from worker.publishing.planning import Content
from worker.publishing.publisher import Group, Publisher
from worker.publishing.recommender import Recommender

TIMES = 3
"""Repetitions of each measurement, which takes the minimum."""
_HOUR = 3_600_000
_NUMBERS = count()


@dataclass(frozen=True)
class Point:
    """A stream as Redis stores it."""

    protocol: str
    d: int
    reports: int  # per cell
    partitions: int = 1
    panes: int = 0  # per partition, in addition to the cell of all time

    def __str__(self) -> str:
        """Formats it as a word."""
        panes = f", {self.panes} panes" if self.panes else ""
        return f"{self.protocol} {self.d}, {self.reports} reports, {self.partitions} partitions{panes}"

    @property
    def load(self) -> Load:
        """As the formulas take it."""
        return Load(
            name=str(self),
            oracle=ldp.oracle(self.protocol, epsilon="1", domain_size=self.d),
            partitions=self.partitions,
            cell_reports=(self.reports,) * (1 + self.panes),
        )


STORED = (
    Point("grr", 10, 100),
    Point("grr", 10, 1_000, panes=26),
    Point("grr", 1_024, 1_000_000, 8),
    Point("olh", 1_024, 100, 8),
    Point("olh", 1_024, 50_000, 8),
    Point("olh", 1_024, 1_000_000, 64),
    Point("olh", 1_024, 20_000, 4, panes=26),
    Point("oue", 4_096, 1_000_000, 8),
    Point("pgr", 1_024, 5_000_000, 8),
    Point("pgr", 100_000, 1_000_000, 8),
    Point("hadamard", 100_000, 1_000_000, 8),
    Point("olh", 100_000, 10_000, 2, panes=26),
    Point("olh", 1_000_000, 1_000_000, 2),
    Point("pgr", 1_000_000, 1_000_000, 4),
    Point("grr", 1_024, 10**12),
)
"""Every width of a counter, small and large states, few partitions and many, panes."""
PUBLISHED = (
    Point("grr", 10, 1_000),
    Point("olh", 1_024, 1_000_000),
    Point("olh", 1_024, 1_000_000, 64),
    Point("olh", 8_192, 1_000_000, 4),
    Point("pgr", 100_000, 1_000_000),
    Point("pgr", 100_000, 1_000_000, 16),
    Point("hadamard", 100_000, 1_000_000, 4),
    Point("olh", 1_000_000, 1_000_000, 2),
    Point("hadamard", 1_000_000, 1_000_000),
    Point("pgr", 1_000_000, 1_000_000),
    Point("pgr", 1_000_000, 1_000_000, 8),
    Point("pgr", 1_000_000, 1_000_000, 64),
    Point("hadamard", 1_000_000, 1_000_000, 64),
)
WORKING = (Point("grr", 10, 100), Point("pgr", 100_000, 100, 16), Point("pgr", 1_000_000, 100, 8))
"""State and publication of a worker; the state has the same size with few reports."""
COUNTED = (("oue", 1_024), ("oue", 8_192), ("olh", 1_024), ("olh", 65_536))


def counts(oracle: ldp.Oracle, reports: int) -> Any:
    """A state of this many reports, from users with Zipf-distributed values."""
    rng = np.random.default_rng(5)
    weights = 1 / np.arange(1, oracle.domain_size + 1)
    users = rng.multinomial(min(reports, 1_000_000), weights / weights.sum())
    if "index" not in oracle.fields:  # the true law of each counter; for an index, of all of them together
        state = rng.binomial(users, float(oracle.p)) + rng.binomial(users.sum() - users, float(oracle.q))
        return state.astype(np.int64) * max(1, reports // 1_000_000)
    state = oracle.zeros()
    drawn = oracle.perturb(np.repeat(np.arange(oracle.domain_size), users), rng=rng)
    oracle.accumulate(state, drawn)
    return state * max(1, reports // 1_000_000)


class Stored:
    """A point in Redis: claimed and committed by the worker's own store."""

    def __init__(self, client: "redis.Redis", point: Point, topic: str = "b" * 22) -> None:
        self.point, self.stream = point, ldp.Stream(f"sized-{next(_NUMBERS)}", point.load.oracle)
        self.store, self.offset = Singly(client, self.stream.name), 0
        self.lineage = lineage_of("sized", topic)
        self.state = counts(self.stream.oracle, point.reports)
        self.held = [self._begin(partition) for partition in range(point.partitions)]

    def _fresh(self) -> PartitionState:
        windowing = Windowing(("all", "48h every 1h"), 0, 0) if self.point.panes else None
        limits = replace(RequestedRule().limits, windowing=windowing)
        state = PartitionState.fresh(ldp.Fleet((self.stream,)), 0, RequestedRule(limits=limits))
        if self.point.panes:
            state.windows.admit(490_000 * _HOUR)
        return state

    def _begin(self, partition: int) -> Metadata:
        state = self._fresh()
        claimed = self.store.claim(partition, None, layout.initial(self.lineage, state))
        assert claimed is not None
        return claimed.metadata

    @property
    def cells(self) -> list[CellKey]:
        """Their keys."""
        panes = [None, *(Pane((490_000 + i) * _HOUR, _HOUR) for i in range(self.point.panes))]
        return [CellKey(pane, self.stream.fingerprint.hex()) for pane in panes]

    def dumped(self, partition: int, changed: int) -> tuple[Metadata, dict[str, bytes]]:
        """A partition's next commit, in which this many of its cells changed."""
        state = self._fresh()
        state.offset = self.held[partition].offset + self.point.reports
        state.accepted = self.point.reports
        state.windows.watermark = (490_000 + self.point.panes) * _HOUR
        state.cells = {cell: {"": Cell(self.point.reports, self.state)} for cell in self.cells}
        state.changed = {*self.cells[-changed:]}
        return layout.dump(state, self.held[partition], uuid4().hex)

    def commit(self, partition: int, changed: int) -> None:
        """Commits it."""
        (after, blobs), attempt = self.dumped(partition, changed), uuid4().hex
        self.store.stage(partition, attempt, blobs)
        answer = self.store.promote(partition, attempt, self.held[partition], after)
        assert answer is Answer.DONE, answer
        self.held[partition] = after

    def commit_all(self, changed: int | None = None) -> None:
        """Commits every partition; all cells, unless a number of changed ones is given."""
        for partition in range(self.point.partitions):
            self.commit(partition, changed or len(self.cells))

    def read(self) -> stored_cut.StoredCut:
        partitions = range(self.point.partitions)
        return stored_cut.read(ldp.Fleet((self.stream,)), self.store, partitions, lambda _: [], lambda: None)


def stored(client: "redis.Redis") -> Iterator[tuple[str, Point, float, float]]:
    """Memory and traffic of Redis."""
    for point in STORED:
        client.flushall()
        there = Stored(client, point)
        there.commit_all()
        there.read()  # the scripts are known, and the names of the cells
        load = point.load
        kept = sum(client.memory_usage(key, samples=0) or 0 for key in client.scan_iter())
        yield "redis_bytes", point, kept, load.redis_bytes
        changed = partial(there.commit_all, 1)
        yield "commit_bytes", point, moved(client, "in", changed), load.commit_bytes
        if point.panes:
            window = partial(there.read().totals, 0, 1 << 52)
            yield "window_seconds", point, least(window), load.window_seconds
            del window
        yield "cut_bytes", point, moved(client, "out", there.read), load.cut_bytes
        yield "commit_seconds", point, least(changed), load.commit_seconds
        del there
        gc.collect()


def counting() -> Iterator[tuple[str, Point, float, float]]:
    """Cost of a report in addition to its record, if it depends on the domain."""
    for protocol, d in COUNTED:
        oracle, rng = ldp.oracle(protocol, epsilon="1", domain_size=d), np.random.default_rng(5)
        reports, state = oracle.perturb(rng.integers(d, size=10_000), rng=rng), oracle.zeros()
        oracle.accumulate(state, reports)
        seconds = least(partial(oracle.accumulate, state, reports)) / len(reports)
        yield "report_seconds", Point(protocol, d, len(reports)), seconds, work_seconds(oracle)


def moved(client: "redis.Redis", way: str, work: Callable[[], object]) -> int:
    """The bytes that go in or out of Redis by that, without those that are counted for asking."""
    field = f"total_net_{way}put_bytes"
    before, again = client.info("stats")[field], client.info("stats")[field]
    work()
    return int(client.info("stats")[field] - again - (again - before))


def least(work: Callable[[], object]) -> float:
    """The least CPU seconds of this process for some work, over several runs of sufficient length."""
    seconds = []
    for _ in range(TIMES):
        began, times = time.process_time(), 0
        while times == 0 or time.process_time() < began + 0.05:
            work()
            times += 1
        seconds.append((time.process_time() - began) / times)
    return min(seconds)


class Silence:
    """Discards the events."""

    def __getattr__(self, verb: str) -> Callable[..., None]:
        if not hasattr(Events, verb):
            raise AttributeError(verb)
        return lambda *_, **__: None


def publishing(line: Connection, redis_url: str, kafka: str, stream: ldp.Stream, partitions: int) -> None:
    """A process that publishes on request; reports its CPU seconds and peak memory."""
    kernels.warm()
    client = redis.Redis.from_url(redis_url)
    store = Singly(client, stream.name)
    topic = SnapshotTopic({"bootstrap_servers": kafka}, uuid4().hex, "sized-snapshots")
    snapshot_producer = KafkaSnapshotProducer(topic, stream)
    events = cast(Events, Silence())
    group = Group(lambda: range(partitions), lambda _: [], lambda: 1)
    recommender = Recommender((), events)
    publisher = Publisher(
        ldp.Fleet((stream,)), Content(), store, snapshot_producer, group, recommender, events
    )
    line.send(None)
    with closing(snapshot_producer):
        while line.recv():
            began = time.process_time()
            publisher.tick()
            line.send((time.process_time() - began, Usage.of(os.getpid()).peak_bytes))


def published(services: Services, client: "redis.Redis") -> Iterator[tuple[str, Point, float, float]]:
    """Cost of a publisher."""
    with closing(KafkaAdminClient(bootstrap_servers=services.kafka.address)) as admin:
        settings = {"cleanup.policy": "compact", "max.message.bytes": str(4 << 20)}
        admin.create_topics([NewTopic("sized-snapshots", 1, 1, topic_configs=settings)])
    folder = services.folder / "kafka" / "sized-snapshots-0"
    for point in PUBLISHED:
        client.flushall()
        there = Stored(client, point)
        there.commit_all()
        ours, theirs = get_context("spawn").Pipe()
        arguments = (theirs, services.redis.address, services.kafka.address, there.stream, point.partitions)
        process = get_context("spawn").Process(target=publishing, args=arguments)
        process.start()
        theirs.close()
        try:
            ours.recv()
            took, size, peak = [], 0, 0
            for _ in range(1 + TIMES):
                there.commit_all()
                size = _log_bytes(folder)
                ours.send(True)
                seconds, peak = ours.recv()
                took.append(seconds)
            yield "topic_bytes", point, _log_bytes(folder) - size, point.load.topic_bytes
            yield "publish_seconds", point, min(took[1:]), point.load.publish_seconds
            yield "publisher_bytes", point, peak, point.load.publisher_bytes
        finally:
            with suppress(BrokenPipeError):
                ours.send(False)
            process.join(30)
            process.kill()


def working(services: Services) -> Iterator[tuple[str, Point, float, float]]:
    """The most memory of a worker that holds all partitions of a stream, and publishes it."""
    for point in WORKING:
        name = f"sized-{next(_NUMBERS)}"
        stream = ldp.Stream(name, point.load.oracle)
        table = {"protocol": point.protocol, "epsilon": "1", "domain_size": point.d}
        with TemporaryDirectory() as folder:
            toml = str(write(Path(folder), name, name, services, table))
            create = [sys.executable, "-m", "worker", "create-topics", "--config", toml]
            create += ["--partitions", str(point.partitions)]
            subprocess.run(create, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
            worker = Worker.run(name, Path(folder) / "worker.log", environment(), "--config", toml)
            try:
                for sent in range(1, 4):
                    send(services, stream, point)
                    due = sent * point.reports * point.partitions
                    wait(partial(_published, worker, due), worker, f"a snapshot of {due}")
                yield "worker_bytes", point, Usage.of(worker.process.pid).peak_bytes, point.load.worker_bytes
            finally:
                worker.kill()


def send(services: Services, stream: ldp.Stream, point: Point) -> None:
    """Sends each partition its reports, in one record."""
    with closing(KafkaProducer(bootstrap_servers=services.kafka.address)) as producer:
        for partition in range(point.partitions):
            reports = stream.oracle.perturb(np.zeros(point.reports, np.int64))
            producer.send(stream.name, frames.encode(stream, reports), partition=partition)


def _published(worker: Worker, reports: int) -> bool:
    with suppress(OSError):
        return worker.metric("snapshot_reports") == reports
    return False


def _log_bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.glob("*.log"))


def lines() -> Iterator[Line]:
    """A line per formula; first a line per point on stderr."""
    found: dict[str, list[tuple[Point, float, float]]] = {}
    with Services.start(_say) as services:
        client = redis.Redis.from_url(services.redis.address)
        client.config_set("appendfsync", "everysec")
        client.config_set("auto-aof-rewrite-percentage", 0)
        measures = (
            counting,
            partial(stored, client),
            partial(published, services, client),
            partial(working, services),
        )
        for measure in measures:
            for name, point, measured, said in measure():
                found.setdefault(name, []).append((point, measured, said))
                _say(f"{name:18} {point!s:48} {measured:16,.4f} {said:16,.4f} {said / measured - 1:+7.1%}")
    for name, points in found.items():
        errors = [said / measured - 1 for _, measured, said in points]
        yield {
            "bench": f"sizing {name}",
            "error": round(max(map(abs, errors)), 3),
            "points": {str(point): [float(f"{m:.4g}"), float(f"{s:.4g}")] for point, m, s in points},
        }


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    for each in lines():
        print(json.dumps(each), flush=True)
