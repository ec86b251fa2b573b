"""Snapshots of a million values: bytes, seconds, and the slowdown of counting by a publisher.

``python -m tests.bench.large`` takes three minutes and prints JSON lines: message bytes before and after gzip, the
nonzero share of each method, and median seconds through a local Kafka. Redis reports how long a cut takes. Counting is
measured in records per second of a thread: without a publisher, next to a publisher process, and next to a publisher
thread, which holds the interpreter's lock most of the time.
"""

import json
import os
import statistics
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from multiprocessing import get_context
from typing import Protocol
from uuid import uuid4

import numpy as np
import numpy.typing as npt
import redis
from kafka.admin import KafkaAdminClient, NewTopic
from kafka.codec import gzip_encode

import ldp
from deploy.local.services import Services
from ldp import frames
from ldp.consistency import METHODS
from ldp.snapshot import Cut, Snapshot, encode, rounded, take
from ldp.snapshot.documents import BASE_ONLY
from tests.bench.ingest import pool as pools
from tests.bench.ingest.cases import NATURAL, PGR, Case
from tests.bench.measure import Line
from tests.bench.sizing import Point, Stored
from tests.support.harness.reader import Snapshots
from worker.counting.cells import Counts
from worker.counting.columns import Batch, Columns
from worker.counting.partition_state import PartitionState
from worker.kafka.snapshots.producer import KafkaSnapshotProducer
from worker.kafka.snapshots.topic import SnapshotTopic

D = 1_000_000
TIMES = 3
POPULATIONS = {
    "a million reports of Zipf's law": (10**6, D, 1.0),
    "10^10 reports, of 1 % of the values": (10**10, D // 100, 0.0),
    "10^14 reports, of every value": (10**14, D, 0.0),
}
"""Numbers of reports and of values, and the power of the rank: almost no value is frequent, a hundredth, or all."""
SIZES = (100_000, 1_000_000)
SLICE, REST, TURNS = 1.5, 1.5, 7
"""Seconds of counting with each publisher and without one, in turns, and repetitions; and how long one may finish its
work."""


def estimate(stream: ldp.Stream, reports: int, values: int, power: float) -> ldp.Estimate:
    """An estimate from supports that are each by its own law."""
    rng, oracle = np.random.default_rng(5), stream.oracle
    shares = np.zeros(D)
    shares[:values] = np.arange(1, values + 1) ** -power
    users = rng.multinomial(reports, shares / shares.sum())
    counts = rng.binomial(users, float(oracle.p)) + rng.binomial(reports - users, float(oracle.q))
    return oracle.estimate(counts, reports)


def written() -> Iterator[Line]:
    """The bytes of a snapshot, by what it is of; they do not depend on the protocol, but by its error."""
    stream = ldp.Stream("large", ldp.OUE("1", domain_size=D))
    for name, population in POPULATIONS.items():
        taken = take(stream, estimate(stream, *population), Cut({0: 1}, {}), 1)
        parts = encode(rounded(taken))
        size, as_float64 = sum(len(part.body) for part in parts), 8 * D * (len(METHODS) + len(BASE_ONLY))
        yield {
            "bench": f"bytes of a snapshot, {name}",
            "ours": size,
            "peer": as_float64,
            "peer_name": "float64",
            "unit": "B",
            "ratio": _short(size / as_float64),
            "gzip": sum(len(gzip_encode(part.body, 1)) for part in parts),
            "stored": {m: _short(np.count_nonzero(b.frequencies) / D) for m, b in taken.bodies.items()},
            "setup": f"{stream.oracle!r}",
        }


def published(services: Services) -> Iterator[Line]:
    """The seconds of each step, from a state to what a reader has."""
    stream = ldp.Stream("large", ldp.oracle("pgr", epsilon="1", domain_size=D))
    state, rng = stream.oracle.zeros(), np.random.default_rng(5)
    users = np.minimum(rng.zipf(1.2, 1_000_000), D) - 1
    stream.oracle.accumulate(state, stream.oracle.perturb(users, rng=rng))
    made = dict[str, list[float]]()
    for _ in range(TIMES):
        for step, seconds in _steps(services, stream, state).items():
            made.setdefault(step, []).append(seconds)
    for step in ("estimate", "take", "encode", "publish", "read"):
        yield {
            "bench": f"seconds of a snapshot, {step}",
            "ours": _short(statistics.median(made[step])),
            "unit": "s",
            "setup": f"{stream.oracle!r}, a million reports",
        }


def _steps(services: Services, stream: ldp.Stream, state: Counts) -> dict[str, float]:
    """Takes, writes, publishes and reads one snapshot back; both are equal."""
    topic, laps = f"large-{uuid4().hex}", Laps()
    with closing(KafkaAdminClient(bootstrap_servers=services.kafka.address)) as admin:
        admin.create_topics([NewTopic(topic, 1, 1)], wait_for_metadata=True)
    settings = {"bootstrap_servers": services.kafka.address}
    snapshot_producer = KafkaSnapshotProducer(SnapshotTopic(settings, topic, topic), stream)
    with closing(snapshot_producer), closing(Snapshots(services.kafka.address, topic, stream.name)) as reader:
        snapshot_producer.open()
        laps.end("opened")
        found = stream.oracle.estimate(stream.oracle.support(state), 1_000_000)
        laps.end("estimate")
        taken = take(stream, found, Cut({0: 1}, {}), 1)
        laps.end("take")
        taken = rounded(taken)
        parts = encode(taken)
        laps.end("encode")
        snapshot_producer.publish(1, parts)
        laps.end("publish")
        read = _await(reader)
        laps.end("read")
    assert read == taken
    return laps.seconds


class Laps:
    """The seconds of one step after the other."""

    def __init__(self) -> None:
        self.seconds, self._began = dict[str, float](), time.perf_counter()

    def end(self, step: str) -> None:
        """Ends a step, and begins the next one."""
        now = time.perf_counter()
        self.seconds[step], self._began = now - self._began, now


def _await(reader: Snapshots) -> Snapshot:
    deadline = time.monotonic() + 60
    while (read := reader.newest()) is None:
        assert time.monotonic() < deadline, "no snapshot came"
    return read


def cut(services: Services) -> Iterator[Line]:
    """Seconds for which Redis is blocked while a publisher reads a partition, in one step."""
    client = redis.Redis.from_url(services.redis.address)
    for d in SIZES:
        there = Stored(client, Point("pgr", d, 1_000_000))
        there.commit_all()
        there.read()  # the script is known, and the names of the cells
        client.config_resetstat()
        for _ in range(TURNS):
            there.read()
        said = client.info("commandstats")["cmdstat_evalsha"]
        yield {
            "bench": f"Redis busy with the cut of a partition, d={d}",
            "ours": _short(said["usec_per_call"] / 1e6),
            "unit": "s",
            "setup": f"{there.stream.oracle!r}, {there.stream.oracle.state_size} counters",
        }


def counting() -> Iterator[Line]:
    """Records counted per second with a publisher in another process, with none, and with a publisher thread."""
    spawned = get_context("spawn")
    for d in SIZES:
        pool = pools.make(Case(f"pgr-{d}", PGR | {"domain_size": d}))
        counter, stopping = Counter(pool.stream, pool.reports), spawned.Event()
        process, thread = spawned.Event(), threading.Event()
        publishers = (
            spawned.Process(target=_publish, args=(pool.stream, process, stopping)),
            threading.Thread(target=_publish, args=(pool.stream, thread, stopping)),
        )
        for publisher in publishers:
            publisher.start()
        turns = [[counter.rate(busy) for busy in (process, None, thread)] for _ in range(1 + TURNS)]
        stopping.set()
        for publisher in publishers:
            publisher.join()
        ours, alone, beside = (statistics.median(rates) for rates in zip(*turns[1:], strict=True))
        yield {
            "bench": f"counting beside a publisher that never rests, d={d}",
            "ours": _short(ours),
            "peer": _short(alone),
            "peer_name": "alone",
            "unit": "records/s",
            "ratio": _short(ours / alone),
            "as a thread": _short(beside / alone),
            "setup": f"{pool.stream.oracle!r}, {TURNS} turns of {SLICE} s each, {os.cpu_count()} processors",
        }


class Busy(Protocol):
    """An event, of threads or of processes."""

    def set(self) -> None:
        """Sets it."""

    def clear(self) -> None:
        """Clears it."""

    def is_set(self) -> bool:
        """Returns whether it is set."""

    def wait(self, timeout: float) -> bool:
        """Waits until it holds, or for this many seconds; returns whether it holds."""


class Counter:
    """Counts the same records again and again, as a worker does."""

    def __init__(self, stream: ldp.Stream, reports: npt.NDArray[np.void]) -> None:
        self._stream, self._state = stream, PartitionState.fresh(ldp.Fleet((stream,)), 0)
        values = [frames.encode(stream, reports[i : i + 1]) for i in range(NATURAL)]
        self._columns = Columns.of(range(NATURAL), [1_700_000_000_000] * NATURAL, values)

    def rate(self, busy: Busy | None) -> float:
        """Returns the records per second, over some seconds, while a publisher works."""
        if busy is not None:
            busy.set()
        began = time.perf_counter()
        batches = 0
        while time.perf_counter() < began + SLICE:
            at = self._state.offset
            columns = replace(self._columns, offsets=self._columns.offsets + at)
            self._state.apply(Batch(0, at, at + NATURAL, columns))
            batches += 1
        rate = NATURAL * batches / (time.perf_counter() - began)
        if busy is not None:
            busy.clear()
            time.sleep(REST)
        return rate


def _publish(stream: ldp.Stream, busy: Busy, stopping: Busy) -> None:
    """Does what a publisher does between Redis and Kafka, whenever it is to."""
    state = stream.oracle.zeros()
    state[:1000] = 1000
    while not stopping.is_set():
        if busy.wait(0.1):
            estimate = stream.oracle.estimate(stream.oracle.support(state), int(state.sum()))
            for part in encode(rounded(take(stream, estimate, Cut({0: 1}, {}), 1))):
                gzip_encode(part.body, 1)


def lines() -> Iterator[Line]:
    """All of them."""
    yield from written()
    with Services.start(_say) as services:
        yield from published(services)
        yield from cut(services)
    yield from counting()


def _short(number: float) -> float:
    return float(f"{number:.4g}")


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    for each in lines():
        print(json.dumps(each, ensure_ascii=False), flush=True)
