"""A test's stream on real services."""

import contextlib
import json
import random
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, Self, cast
from uuid import uuid4

import numpy as np
import redis
from kafka import KafkaAdminClient, KafkaProducer, TopicPartition
from kafka.admin import MemberToRemove, OffsetSpec
from kafka.errors import KafkaError, KafkaTimeoutError, RetriableError, UnknownBrokerIdError

import ldp
from ldp import frames
from ldp.snapshot import Snapshot
from tests.support.harness.processes import Worker
from tests.support.harness.reader import Snapshots
from tests.support.harness.truth import METHODS, Reports, base
from tests.support.harness.waiting import TIMEOUT_SECONDS, until
from worker import audit, config
from worker.counting import layout
from worker.kafka.client import topics
from worker.redis.connecting import connect
from worker.store.redis import STAGED_SECONDS


@dataclass
class Sent:
    """Reports to be counted, and unacknowledged records."""

    reports: list[Reports] = field(default_factory=list)
    futures: list[Any] = field(default_factory=list)

    def whole(self, stream: ldp.Stream) -> Reports:
        return np.concatenate([np.empty(0, stream.oracle.report_dtype), *self.reports])


class World:
    """A stream with topics, workers and sent reports; a context manager."""

    worker: ClassVar[type[Worker]] = Worker
    """The class of launched workers."""

    def __init__(
        self,
        kafka: str,
        redis_url: str,
        folder: Path,
        *,
        partitions: int = 4,
        dead_letters: Mapping[str, str] | None = None,  # settings of the topic
        reports: Mapping[str, str] | None = None,  # settings of the topic
        client: Mapping[str, Any] | None = None,  # further keys of `kafka`
        snapshots: str | None = None,  # the snapshot topic; None for a private one
        brokers: str | None = None,  # the workers' bootstrap string, if another
        store: Mapping[str, Any] | None = None,  # further keys of `redis`
        environ: Mapping[str, str] | None = None,
        rows: Mapping[str, Any] | None = None,  # further keys of `rows`; None for no rows topic
        name: str | None = None,
        **stream: Any,  # further keys of the stream
    ) -> None:
        self.kafka, self.redis_url, self.folder, self.partitions = kafka, redis_url, folder, partitions
        self._brokers = brokers or kafka
        self._dead_letters, self._reports, self._client = dead_letters, reports, dict(client or {})
        self._store, self.environ = dict(store or {}), dict(environ or {})
        self.name = name or f"s{uuid4().hex[:10]}"
        self._snapshots = snapshots or f"{self.name}-snapshots"
        self._rows = None if rows is None else {"topic": f"{self.name}-rows"} | dict(rows)
        self._table = {"protocol": "olh", "epsilon": "1", "domain_size": 40} | stream
        self.toml = self.configure("worker")
        self.config = config.load(self.toml, self.environ)
        (self.served,) = self.config.streams
        self.stream, self.topic = self.served.stream, self.served.topic
        self.group = self.config.consumer_group(self.stream.name)
        self.workers: list[Worker] = []
        self.sent = Sent()
        self.rng = np.random.default_rng(20_200_616)
        self._turn = 0
        self._closing: list[Callable[[], object]] = []

    def __enter__(self) -> Self:
        self.admin = KafkaAdminClient(bootstrap_servers=self.kafka)
        self._closing.append(self.admin.close)
        self._closing.append(self._delete_topics)
        self.create_topics()
        self.producer = self.open_producer()
        plain = self.redis_url.startswith("redis://") and self.config.redis.password is None
        self.redis: redis.Redis = (
            redis.Redis.from_url(self.redis_url) if plain else cast(Any, connect(self.config.redis))
        )
        self._closing.append(self.redis.close)
        self.snapshots = Snapshots(self.kafka, self.config.snapshots.topic, self.name)
        self._closing.append(self.snapshots.close)
        return self

    def __exit__(self, *_: object) -> None:
        for worker in self.workers:
            worker.kill()
        for close in reversed(self._closing):
            close()
        for worker in self.workers:  # pytest shows the printed lines when the test fails
            print(f"\n--- {worker.log}, exit code {worker.process.returncode}")
            print("\n".join(worker.log.read_text(errors="replace").splitlines()[-40:]))

    def create_topics(self) -> None:
        """Creates the missing topics, as `ldp-worker create-topics` does."""
        for topic, partitions, settings in (
            (self.config.dead_letters.topic, 1, self._dead_letters),
            (self.topic, self.partitions, self._reports),
        ):
            if settings:
                new = {"num_partitions": partitions, "replication_factor": 1, "configs": dict(settings)}
                self.admin.create_topics({topic: new})
                self.admin.wait_for_topics([topic], timeout_ms=int(1000 * TIMEOUT_SECONDS))
        topics.create(self.admin, self.config, self.partitions, 1)

    def _delete_topics(self) -> None:
        """Deletes the topics: a broker that restarts would recover all of them."""
        with contextlib.suppress(KafkaError):
            made = [self.topic, self.config.dead_letters.topic, self.config.snapshots.topic]
            self.admin.delete_topics(made + ([self.config.rows.topic] if self.config.rows.topic else []))

    def configure(
        self,
        file: str,
        *more: Mapping[str, Any],
        group: str = "tests",
        redis_url: str | None = None,
        snapshots: Mapping[str, Any] | None = None,
        client: Mapping[str, Any] | None = None,
        store: Mapping[str, Any] | None = None,
        **changes: Any,
    ) -> Path:
        """Writes a configuration with changes and further streams.

        A change to None removes the key.
        """
        output = {"topic": self._snapshots, "every_seconds": 0.5} | dict(snapshots or {})
        tables = [{"name": self.name, "topic": f"{self.name}-reports"} | self._table | changes, *more]
        lines = [
            f'group = "{group}"',
            "commit_every_seconds = 0.2",
            f'kafka.bootstrap_servers = "{self._brokers}"',
            *(f"kafka.{key} = {_toml(value)}" for key, value in (self._client | dict(client or {})).items()),
            f'redis.url = "{redis_url or self.redis_url}"',
            *(f"redis.{key} = {_toml(value)}" for key, value in (self._store | dict(store or {})).items()),
            'http = {host = "127.0.0.1", port = 0}',
            f"snapshots = {_toml(output)}",
            f'dead_letters.topic = "{self.name}-dead-letters"',
            *([f"rows = {_toml(self._rows)}"] if self._rows else []),
        ]
        for table in tables:
            lines += [
                "[[streams]]",
                *(f"{key} = {_toml(value)}" for key, value in table.items() if value is not None),
            ]
        path = self.folder / f"{file}.toml"
        path.write_text("\n".join(lines), encoding="utf-8")
        return path

    # workers

    def launch(self, toml: Path | None = None, *options: str) -> Worker:
        """Starts a worker without waiting."""
        log = self.folder / f"worker-{len(self.workers) + 1}.log"
        worker = self.worker.launch(toml or self.toml, log, *options, environ=self.environ)
        self.workers.append(worker)
        return worker

    def start(self, count: int = 1) -> list[Worker]:
        """Starts workers and waits until they own all partitions."""
        started = [self.launch() for _ in range(count)]
        for worker in started:
            until(worker.ready, f"{worker.log.name} ready")
        until(self.balanced, "every worker owns a partition, and all are owned")
        return started

    def balanced(self) -> bool:
        """Returns whether each partition has an owner and each worker one."""
        owned = [worker.owned() for worker in self.workers if worker.alive()]
        return all(owned) and sorted(p for some in owned for p in some) == list(range(self.partitions))

    def members(self) -> set[str]:
        """Returns the ids of the group's members."""

        def said() -> dict[str, Any] | None:
            try:
                described: dict[str, Any] = self.admin.describe_groups([self.group])[self.group]
                return described
            except RetriableError:  # a coordinator that only just starts
                return None

        return {member["member_id"] for member in until(said, "the group's coordinator")["members"]}

    def expel(self, members: Sequence[str]) -> None:
        """Removes dead members at once instead of after their session timeout."""
        self.admin.remove_group_members(self.group, [MemberToRemove(member_id=m) for m in members])

    def join(self, count: int, dead: Sequence[Worker] = ()) -> list[Worker]:
        """Starts workers, waits until they are members, then expels the dead."""
        new = []
        for _ in range(count):
            known = self.members()
            worker = self.launch()
            (worker.member,) = until(
                lambda known=known: self.members() - known,  # type: ignore[misc]
                f"{worker.log.name} joins",
            )
            new.append(worker)
        self.expel([worker.member for worker in dead if worker.member])
        return new

    # reports in

    def open_producer(self, **settings: Any) -> KafkaProducer:
        """Returns a producer that is closed at the end."""
        usual = {"bootstrap_servers": self.kafka, "max_request_size": 8 << 20, "linger_ms": 5}
        producer = KafkaProducer(**(usual | settings))
        self._closing.append(lambda: _closed(producer))
        return producer

    def draw(self, n: int, rng: np.random.Generator | None = None) -> Reports:
        """Returns the reports of n users; small values are frequent."""
        rng = rng or self.rng
        d = self.stream.oracle.domain_size
        return self.stream.oracle.perturb(np.minimum(rng.geometric(0.2, n) - 1, d - 1), rng=rng)

    def draw_record(self, n: int, rng: np.random.Generator) -> tuple[bytes, Reports]:
        """Returns a record of n users, and its reports."""
        drawn = self.draw(n, rng)
        return frames.encode(self.stream, drawn), drawn

    def put(
        self,
        value: bytes | None,
        partition: int | None = None,
        producer: KafkaProducer | None = None,
        timestamp: int | None = None,
    ) -> Any:
        """Sends a record, to the partitions in turn; returns its future."""
        if partition is None:
            partition = self._turn = (self._turn + 1) % self.partitions
        key = b"no value" if value is None else None  # a record needs one of them
        sender = producer or self.producer
        return sender.send(self.topic, value=value, key=key, partition=partition, timestamp_ms=timestamp)

    def send(
        self,
        records: int,
        reports: int = 1,
        *,
        as_json: bool = False,
        counted: bool = True,
        partition: int | None = None,
        producer: KafkaProducer | None = None,
    ) -> None:
        """Sends records with this many reports each, and notes them as expected."""
        encode = frames.encode_json if as_json else frames.encode
        for _ in range(records):
            drawn = self.draw(reports)
            self.sent.futures.append(self.put(encode(self.stream, drawn), partition, producer))
            if counted:
                self.sent.reports.append(drawn)

    def settle(self) -> None:
        """Waits until everything sent is acknowledged."""
        for future in self.sent.futures:
            future.get(TIMEOUT_SECONDS)
        self.sent.futures.clear()

    @property
    def n(self) -> int:
        """The number of reports to be counted."""
        return sum(map(len, self.sent.reports))

    # counts and snapshots out

    def ends(self) -> dict[int, int]:
        """Returns the end offset of each partition."""
        wanted = {TopicPartition(self.topic, p): OffsetSpec.LATEST for p in range(self.partitions)}

        def said() -> dict[TopicPartition, Any]:
            try:
                ends: dict[TopicPartition, Any] = self.admin.list_partition_offsets(wanted)
                return ends
            except (RetriableError, UnknownBrokerIdError):  # a partition that has no leader yet
                return {}

        return {tp.partition: end.offset for tp, end in until(said, "the ends of the log").items()}

    def change_totals(self, partition: int, change: Callable[[dict[str, Any]], object]) -> None:
        """Changes a partition's stored totals, with a valid checksum."""
        meta = layout.meta_key(self.name, partition)
        found = cast(dict[bytes, bytes], self.redis.hgetall(meta))
        stored = layout.parse(layout.decoded(found), meta)
        totals = json.loads(stored.totals)
        change(totals)
        fields = layout.fields(replace(stored, totals=json.dumps(totals, sort_keys=True)), meta)
        self.redis.hset(meta, mapping=cast(Any, fields))

    def totals(self) -> dict[str, Any]:
        """Returns accepted, rejected and offsets of all partitions in Redis."""
        summed: dict[str, Any] = {"accepted": 0, "rejected": {}, "offsets": {}}
        for partition in range(self.partitions):
            meta = self.redis.hgetall(f"{{{self.name}:{partition}}}:meta")
            if meta:
                totals = json.loads(meta[b"totals"])
                summed["accepted"] += totals["accepted"]
                summed["offsets"][partition] = int(meta[b"offset"])
                for reason, count in totals["rejected"].items():
                    summed["rejected"][reason] = summed["rejected"].get(reason, 0) + count
        return summed

    def covered(self) -> Snapshot:
        """Waits for a snapshot of every offset; returns it."""
        self.settle()
        ends = self.ends()

        def found() -> Snapshot | None:
            newest = self.snapshots.newest()
            if newest is None:
                return None
            offsets = newest.cut.offsets
            return newest if all(offsets.get(p, 0) >= end for p, end in ends.items()) else None

        def said() -> Snapshot | None:
            running = [worker for worker in self.workers if worker.alive()]
            assert running, "all workers ended"
            return found()

        return until(said, f"a snapshot of all of {ends}")

    def assert_keys(self) -> None:
        """Asserts that staged keys expire and all others do not."""
        staged = b":staged:"
        for key in self.redis.scan_iter(f"{{{self.name}:*"):
            ttl = self.redis.ttl(key)
            # a transaction that has ended meanwhile does not exist
            assert ttl == -2 or (0 <= ttl <= STAGED_SECONDS if staged in key else ttl == -1), (key, ttl)

    def audit(self) -> audit.StreamVerdict:
        """Audits the stream."""
        return audit.verify(self.served, self.config)

    def assert_audit_equal(self, *, whole: bool = False) -> None:
        """Asserts that the audit finds no difference; whole: and no lag."""
        verdict = self.audit()
        assert verdict.difference is None, verdict.difference
        if whole:
            assert (verdict.lag, verdict.reports) == (0, self.n)

    @property
    def methods(self) -> list[str]:
        """The published methods; one value has only those without a sum."""
        return METHODS if self.stream.oracle.domain_size > 1 else METHODS[:4]

    def assert_right(self, snapshot: Snapshot) -> None:
        """Asserts a snapshot's reports and estimate, and the audit."""
        assert snapshot.reports == self.n
        assert list(snapshot.bodies) == self.methods
        np.testing.assert_allclose(
            snapshot.bodies["base"].frequencies,
            base(self.stream, self.sent.whole(self.stream)),
            rtol=1e-9,
            atol=1e-12,
        )
        self.assert_audit_equal(whole=True)


class Sending:
    """Sends records on a thread until the block ends."""

    def __init__(
        self,
        world: World,
        reports: int = 2,
        pause: float = 0.02,  # after each five records
        when: Callable[[random.Random], int | None] = lambda _: None,
    ) -> None:
        self._world, self._reports, self._pause, self._when = world, reports, pause, when
        self._stop = threading.Event()
        self._sent = Sent()
        self._thread = threading.Thread(target=self._send, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(TIMEOUT_SECONDS)
        self._world.sent.reports += self._sent.reports
        self._world.sent.futures += self._sent.futures

    @property
    def records(self) -> int:
        """The number of records sent so far."""
        return len(self._sent.futures)

    def more(self, records: int = 50) -> None:
        """Waits until this many more records were sent."""
        goal = self.records + records
        until(lambda: self.records >= goal, f"{records} more records sent")

    def _send(self) -> None:
        rng, turn = np.random.default_rng(7), random.Random(7)
        producer = self._world.open_producer()
        while not self._stop.wait(self._pause):
            for _ in range(5):
                value, drawn = self._world.draw_record(self._reports, rng)
                partition = turn.randrange(self._world.partitions)
                self._sent.futures.append(self._world.put(value, partition, producer, self._when(turn)))
                self._sent.reports.append(drawn)


def _closed(producer: KafkaProducer) -> None:
    """Closes a producer and drops its buffer."""
    with contextlib.suppress(KafkaTimeoutError):
        producer.close(timeout=5)


def _toml(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key} = {_toml(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_toml, value)) + "]"
    return json.dumps(value, ensure_ascii=False)
