"""What the integration tests share: one test's own stream on real services, its workers as processes, and the truth.

The truth is what the test itself sent, counted here by the protocols' definitions; nothing in this file asks the code
under test what the right answer is.
"""

import contextlib
import json
import math
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self
from uuid import uuid4

import jsonschema
import numpy as np
import redis
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import MemberToRemove, OffsetSpec
from kafka.errors import RetriableError
from prometheus_client.parser import text_string_to_metric_families

import ldp
from deploy.local import services
from ldp import frames
from ldp.snapshot import Incomplete, Snapshot, assemble
from worker import audit, config
from worker.kafka import topics

PATIENCE = 90.0
"""Seconds until a condition must hold: far more than it takes, so that only what never comes fails."""

SCHEMA = json.loads(
    (Path(ldp.__file__).parent / "snapshot" / "snapshot.schema.json").read_text(encoding="utf-8")
)
METHODS = [
    *("base", "base-pos", "post-pos", "base-cut", "norm", "norm-mul", "norm-cut", "norm-sub"),
    *("mle-apx", "power", "power-ns"),
]
"""In the paper's order."""
WORD = 0xFFFFFFFF


def until(condition: Callable[[], Any], what: str, seconds: float = PATIENCE) -> Any:
    """Waits until a condition gives something true, and returns that."""
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < deadline, f"{what}: not within {seconds:g} s"
        time.sleep(0.03)
    return found


# --- the truth, by definition ---------------------------------------------------------------------------------


def support(stream: ldp.Stream, reports: np.ndarray) -> np.ndarray:
    """For each value, how many reports support it, by the protocol's definition."""
    document = stream.document()
    d = document["domain_size"]
    if document["protocol"] == "grr":
        return np.array([(reports["index"] == v).sum() for v in range(d)])
    hashed = {"mul32": _mul32, "xxh32": _xxh32}[document["hash"]]
    seeds, g = reports["seed"].astype(np.uint64), document["g"]
    return np.array([(hashed(seeds, v, g) == reports["bucket"]).sum() for v in range(d)])


def _mul32(seeds: np.ndarray, v: int, g: int) -> np.ndarray:
    def mixed(x):
        x = (x ^ x >> 16) * 0x7FEB352D & WORD
        x = (x ^ x >> 15) * 0x846CA68B & WORD
        return x ^ x >> 16

    e = mixed(v + 0x9E3779B1)
    b = mixed(e + 0x9E3779B1 & WORD)
    c = mixed(b + 0x9E3779B1 & WORD) & 0xCCCCCCCC | 0x11111111
    y = (seeds ^ e) * (0xC2B2AE3D + 0x78DDE6C4 * v & WORD) & WORD
    x = (y ^ y >> 11 ^ b) * c & WORD
    return x * g >> 32


def _xxh32(seeds: np.ndarray, v: int, g: int) -> np.ndarray:
    def rotated(x, bits):
        return (x << bits | x >> 32 - bits) & WORD

    text = str(v).encode()
    h = seeds + 0x165667B1 + len(text) & WORD
    while len(text) >= 4:
        h = rotated(h + int.from_bytes(text[:4], "little") * 0xC2B2AE3D & WORD, 17) * 0x27D4EB2F & WORD
        text = text[4:]
    for byte in text:
        h = rotated(h + byte * 0x165667B1 & WORD, 11) * 0x9E3779B1 & WORD
    h = (h ^ h >> 15) * 0x85EBCA77 & WORD
    h = (h ^ h >> 13) * 0xC2B2AE3D & WORD
    return (h ^ h >> 16) % g


def base(stream: ldp.Stream, reports: np.ndarray) -> np.ndarray:
    """The plain estimate (C/n − q)/(p − q) of the reports, with p and q from ε in floats."""
    document = stream.document()
    numerator, denominator = map(int, document["epsilon"].split("/"))
    e = math.exp(numerator / denominator)
    k = document["domain_size"] if document["protocol"] == "grr" else document["g"]
    p = e / (e + k - 1)
    q = 1 / (e + k - 1) if document["protocol"] == "grr" else 1 / k
    return (support(stream, reports) / len(reports) - q) / (p - q)


@contextlib.contextmanager
def frozen(server: services.Server) -> Iterator[None]:
    """Lets a server hold its connections and answer nothing: SIGSTOP, until the end of the block."""
    os.killpg(server.process.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.killpg(server.process.pid, signal.SIGCONT)


# --- a worker -------------------------------------------------------------------------------------------------


class Worker:
    """One ``ldp-worker run`` process."""

    def __init__(self, toml: Path, log: Path) -> None:
        self.log = log
        self.member: str | None = None
        environ = {key: value for key, value in os.environ.items() if not key.startswith("LDP_WORKER_")}
        command = [Path(sys.executable).parent / "ldp-worker", "run", "--config", toml]
        with log.open("wb") as out:
            self.process = subprocess.Popen(
                command, env=environ, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT
            )

    def events(self, name: str) -> list[dict[str, Any]]:
        """The events of a name in the worker's log."""
        lines = self.log.read_text(encoding="utf-8").splitlines()
        parsed = [json.loads(line) for line in lines if line.startswith("{") and line.endswith("}")]
        return [event for event in parsed if event["event"] == name]

    def alive(self) -> bool:
        return self.process.poll() is None

    def port(self) -> int:
        """Waits until the worker says where it listens."""
        return until(lambda: self.events("worker.started"), f"{self.log.name} starts")[0]["port"]

    def get(self, path: str) -> tuple[int, str, str]:
        """Asks over HTTP: status, content type, body."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port()}{path}", timeout=10) as reply:
                return reply.status, reply.headers["Content-Type"], reply.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.headers["Content-Type"], error.read().decode()

    def ready(self) -> bool:
        try:
            return self.get("/readyz")[0] == 200
        except OSError:
            return False

    def metric(self, name: str, **labels: str) -> float:
        """The sum of the samples of ``ldp_worker_<name>`` that carry these labels; 0 if there is none."""
        return math.fsum(
            sample.value
            for family in text_string_to_metric_families(self.get("/metrics")[2])
            for sample in family.samples
            if sample.name == f"ldp_worker_{name}" and labels.items() <= sample.labels.items()
        )

    def by_label(self, name: str, label: str) -> dict[str, float]:
        """The samples of ``ldp_worker_<name>`` that are not 0, by one of their labels."""
        return {
            sample.labels[label]: sample.value
            for family in text_string_to_metric_families(self.get("/metrics")[2])
            for sample in family.samples
            if sample.name == f"ldp_worker_{name}" and sample.value
        }

    def owned(self) -> set[int]:
        """The partitions that it counts."""
        return {int(partition) for partition in self.by_label("partition_owned", "partition")}

    def kill(self) -> None:
        """SIGKILL: no goodbye."""
        self.process.kill()
        self.process.wait()

    def pause(self) -> None:
        self.process.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        self.process.send_signal(signal.SIGCONT)

    def terminate(self) -> int:
        """SIGTERM; returns the exit code."""
        self.process.terminate()
        return self.ended()

    def ended(self) -> int:
        """Waits for the end; returns the exit code."""
        return self.process.wait(PATIENCE)

    def says(self) -> str:
        """What readiness says of its one stream."""
        (state,) = json.loads(self.get("/readyz")[2])["streams"].values()
        return state

    def stopped_for(self) -> str:
        """Waits until its one stream stopped, and sees that it shows it; then ends it, and returns why it stopped."""
        until(lambda: self.events("stream.stopped"), f"{self.log.name}: its stream stops")
        assert self.alive()
        assert self.get("/healthz")[0] == 200
        assert self.get("/readyz")[0] == 503
        assert self.metric("stream_up") == 0
        why = self.says()
        assert self.terminate() == 1
        assert list(self.events("worker.stopped")[0]["failed"].values()) == [why]
        return why


# --- a stream of one's own ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Message:
    """One message of a topic as another program sees it."""

    offset: int
    key: str
    value: bytes
    headers: Mapping[str, str]


@dataclass
class Sent:
    """What was sent and is to be counted."""

    reports: list[np.ndarray] = field(default_factory=list)
    futures: list[Any] = field(default_factory=list)

    def whole(self, stream: ldp.Stream) -> np.ndarray:
        return np.concatenate([np.empty(0, stream.oracle.report_dtype), *self.reports])


class World:
    """One test's own stream: topics, configuration, workers, and what was sent; a context manager.

    Args:
        kafka: the bootstrap string.
        redis_url: where the counts go.
        folder: for configurations and logs.
        partitions: of the topic of reports.
        dead_letters: settings of the dead-letter topic, where they are not to be the usual ones.
        snapshots: the snapshot topic, where streams are to share one.
        stream: the keys of the stream's table beside name and topic.
    """

    def __init__(
        self,
        kafka: str,
        redis_url: str,
        folder: Path,
        *,
        partitions: int = 4,
        dead_letters: Mapping[str, str] | None = None,
        snapshots: str | None = None,
        **stream: Any,
    ) -> None:
        self.kafka, self.redis_url, self.folder, self.partitions = kafka, redis_url, folder, partitions
        self._dead_letters = dead_letters
        self.name = f"s{uuid4().hex[:10]}"
        self._snapshots = snapshots or f"{self.name}-snapshots"
        self._table = {"protocol": "olh", "epsilon": "1", "domain_size": 40} | stream
        self.toml = self.configure("worker")
        self.config = config.load(self.toml, {})
        (self.served,) = self.config.streams
        self.stream, self.topic = self.served.stream, self.served.topic
        self.group = self.config.consumer_group(self.stream)
        self.workers: list[Worker] = []
        self.sent = Sent()
        self.rng = np.random.default_rng(20_200_616)
        self._turn = 0
        self._closing: list[Callable[[], object]] = []

    def __enter__(self) -> Self:
        self.admin = KafkaAdminClient(bootstrap_servers=self.kafka)
        self._closing.append(self.admin.close)
        self.create_topics()
        self.producer = self.open_producer()
        self.redis = redis.Redis.from_url(self.redis_url)
        self._closing.append(self.redis.close)
        self.snapshots = Snapshots(self)
        return self

    def __exit__(self, *_: object) -> None:
        for worker in self.workers:
            worker.kill()
        for close in reversed(self._closing):
            close()
        for worker in self.workers:  # pytest shows what is printed when the test fails
            print(f"\n--- {worker.log}, exit code {worker.process.returncode}")
            print("\n".join(worker.log.read_text(errors="replace").splitlines()[-40:]))

    def create_topics(self) -> None:
        """As ``ldp-worker create-topics`` does: those that are missing."""
        if self._dead_letters:
            new = {"num_partitions": 1, "replication_factor": 1, "configs": dict(self._dead_letters)}
            self.admin.create_topics({self.config.dead_letters.topic: new}, wait_for_metadata=True)
        topics.create(self.admin, self.config, self.partitions, 1)

    def configure(
        self,
        file: str,
        *more: Mapping[str, Any],
        group: str = "tests",
        redis_url: str | None = None,
        snapshots: Mapping[str, Any] | None = None,
        **changes: Any,
    ) -> Path:
        """Writes a configuration, the stream's table with changes, and further streams; returns the path."""
        output = {"topic": self._snapshots, "every_seconds": 0.5} | dict(snapshots or {})
        tables = [{"name": self.name, "topic": f"{self.name}-reports"} | self._table | changes, *more]
        lines = [
            f'group = "{group}"',
            "commit_every_seconds = 0.2",
            f'kafka.bootstrap_servers = "{self.kafka}"',
            f'redis.url = "{redis_url or self.redis_url}"',
            "redis.timeout_seconds = 2",
            'http = {host = "127.0.0.1", port = 0}',
            f"snapshots = {_toml(output)}",
            f'dead_letters.topic = "{self.name}-dead-letters"',
        ]
        for table in tables:
            lines += ["[[streams]]", *(f"{key} = {_toml(value)}" for key, value in table.items())]
        path = self.folder / f"{file}.toml"
        path.write_text("\n".join(lines), encoding="utf-8")
        return path

    # workers

    def launch(self, toml: Path | None = None) -> Worker:
        """Starts a worker and does not wait."""
        worker = Worker(toml or self.toml, self.folder / f"worker-{len(self.workers) + 1}.log")
        self.workers.append(worker)
        return worker

    def start(self, count: int = 1) -> list[Worker]:
        """Starts workers, and waits until they serve and all partitions are owned."""
        started = [self.launch() for _ in range(count)]
        for worker in started:
            until(worker.ready, f"{worker.log.name} ready")
        until(self.balanced, "every worker owns a partition, and all are owned")
        return started

    def balanced(self) -> bool:
        """Whether every partition has one owner and every worker at least one partition."""
        owned = [worker.owned() for worker in self.workers if worker.alive()]
        return all(owned) and sorted(p for some in owned for p in some) == list(range(self.partitions))

    def members(self) -> set[str]:
        """The ids of the group's members, joining ones included."""

        def said() -> dict[str, Any] | None:
            try:
                return self.admin.describe_groups([self.group])[self.group]
            except RetriableError:  # a coordinator that only just starts
                return None

        described = until(said, "the group's coordinator")
        return {member["member_id"] for member in described["members"]}

    def expel(self, members: Sequence[str]) -> None:
        """Has the coordinator drop members at once that are dead, instead of after their session's ten seconds."""
        self.admin.remove_group_members(self.group, [MemberToRemove(member_id=m) for m in members])

    # reports in

    def open_producer(self, **settings: Any) -> KafkaProducer:
        """A producer that is closed at the end."""
        producer = KafkaProducer(
            bootstrap_servers=self.kafka, max_request_size=8 << 20, **({"linger_ms": 5} | settings)
        )
        self._closing.append(lambda: producer.close(timeout=5))
        return producer

    def draw(self, n: int, rng: np.random.Generator | None = None) -> np.ndarray:
        """Reports of n users; the small values are the frequent ones."""
        rng = rng or self.rng
        d = self.stream.oracle.domain_size
        return self.stream.oracle.perturb(np.minimum(rng.geometric(0.2, n) - 1, d - 1), rng=rng)

    def put(
        self, value: bytes | None, partition: int | None = None, producer: KafkaProducer | None = None
    ) -> Any:
        """Sends one record, to the partitions in turn; returns its future."""
        if partition is None:
            partition = self._turn = (self._turn + 1) % self.partitions
        key = b"no value" if value is None else None  # a record needs one of them
        return (producer or self.producer).send(self.topic, value=value, key=key, partition=partition)

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
        """Sends records of so many reports each, and notes them as to be counted."""
        encode = frames.encode_json if as_json else frames.encode
        for _ in range(records):
            drawn = self.draw(reports)
            self.sent.futures.append(self.put(encode(self.stream, drawn), partition, producer))
            if counted:
                self.sent.reports.append(drawn)

    def settle(self) -> None:
        """Waits until everything sent is acknowledged."""
        for future in self.sent.futures:
            future.get(PATIENCE)
        self.sent.futures.clear()

    @property
    def n(self) -> int:
        """How many reports are to be counted."""
        return sum(map(len, self.sent.reports))

    # counts and snapshots out

    def ends(self) -> dict[int, int]:
        """Where the partitions end; asked again while a broker that was restarted is not known again."""
        wanted = {TopicPartition(self.topic, p): OffsetSpec.LATEST for p in range(self.partitions)}

        def said() -> dict[TopicPartition, Any]:
            try:
                return self.admin.list_partition_offsets(wanted)
            except RetriableError:
                return {}

        return {tp.partition: end.offset for tp, end in until(said, "the ends of the log").items()}

    def totals(self) -> dict[str, Any]:
        """What Redis says of all partitions together: accepted, rejected by reason, offsets, flushes."""
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
        """Waits for a snapshot of all that was sent, and of every offset; returns it."""
        self.settle()
        ends = self.ends()

        def found() -> Snapshot | None:
            newest = self.snapshots.newest()
            if newest is None:
                return None
            offsets = {int(p): offset for p, offset in newest.head["offsets"].items()}
            return newest if all(offsets.get(p, 0) >= end for p, end in ends.items()) else None

        def said() -> Snapshot | None:
            running = [worker for worker in self.workers if worker.alive()]
            assert running, "all workers ended"
            return found()

        return until(said, f"a snapshot of all of {ends}")

    def audit(self) -> audit.StreamVerdict:
        return audit.verify(self.served, self.config)

    def assert_audit_equal(self, *, whole: bool = False) -> None:
        """Asserts that the recount finds no difference; whole: and that nothing is left to count."""
        verdict = self.audit()
        assert verdict.difference is None
        if whole:
            assert (verdict.lag, verdict.reports) == (0, self.n)

    def assert_right(self, snapshot: Snapshot) -> None:
        """Asserts that a snapshot says what was sent, and that the audit agrees."""
        assert snapshot.head["reports"] == self.n
        assert list(snapshot.bodies) == METHODS
        np.testing.assert_allclose(
            snapshot.bodies["base"]["frequencies"],
            base(self.stream, self.sent.whole(self.stream)),
            rtol=1e-9,
            atol=1e-12,
        )
        self.assert_audit_equal(whole=True)


class Sending:
    """Sends reports on a thread of its own while the body of a ``with`` runs; what was sent is noted at the end.

    Args:
        world: whose stream.
        reports: of each record.
    """

    def __init__(self, world: World, reports: int = 2) -> None:
        self._world, self._reports = world, reports
        self._stop = threading.Event()
        self._sent = Sent()
        self._thread = threading.Thread(target=self._send, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(PATIENCE)
        self._world.sent.reports += self._sent.reports
        self._world.sent.futures += self._sent.futures

    @property
    def records(self) -> int:
        """How many were sent so far."""
        return len(self._sent.futures)

    def more(self, records: int = 50) -> None:
        """Waits until so many more records were sent."""
        goal = self.records + records
        until(lambda: self.records >= goal, f"{records} more records sent")

    def _send(self) -> None:
        rng, turn = np.random.default_rng(7), random.Random(7)
        producer = self._world.open_producer()
        while not self._stop.wait(0.02):
            for _ in range(5):
                drawn = self._world.draw(self._reports, rng)
                value = frames.encode(self._world.stream, drawn)
                partition = turn.randrange(self._world.partitions)
                self._sent.futures.append(self._world.put(value, partition, producer))
                self._sent.reports.append(drawn)


class Snapshots:
    """The snapshot topic as a consumer of committed records reads it: the newest message of each key."""

    def __init__(self, world: World) -> None:
        self._stream = world.name
        self._received: dict[str, tuple[dict[str, bytes], bytes]] = {}
        partition = TopicPartition(world.config.snapshots.topic, 0)
        self._consumer = KafkaConsumer(
            bootstrap_servers=world.kafka,
            group_id=None,
            enable_auto_commit=False,
            isolation_level="read_committed",
        )
        self._consumer.assign([partition])
        self._consumer.seek_to_beginning(partition)
        world._closing.append(lambda: self._consumer.close(autocommit=False))

    def newest(self) -> Snapshot | None:
        """The newest whole snapshot so far."""
        for records in self._consumer.poll(50).values():
            for record in records:
                self._received[record.key.decode()] = (dict(record.headers), record.value)
        if f"{self._stream}/head" not in self._received:
            return None
        try:
            return assemble(self._stream, self._received)
        except Incomplete:
            return None  # the rest of it is in the next poll

    def sequence(self) -> int:
        """The newest one's number, 0 before the first."""
        newest = self.newest()
        return 0 if newest is None else newest.head["sequence"]


# --- what another program sees --------------------------------------------------------------------------------


def foreign(kafka: str, topic: str) -> list[Message]:
    """Reads all committed messages of a topic of one partition with kcat, else with Kafka's console consumer."""
    if kcat := services.program("kcat", "kcat"):
        # lengths first, so that any bytes can follow
        layout = "%o %K %S\\n%k%s%h\\n"
        command = [
            kcat,
            "-b",
            kafka,
            "-C",
            "-t",
            topic,
            "-p",
            "0",
            "-o",
            "beginning",
            "-e",
            "-q",
            "-f",
            layout,
        ]
        return _kcat(_output([*command, "-X", "isolation.level=read_committed"]))
    shown = [f"--formatter-property=print.{what}=true" for what in ("offset", "headers", "key")]
    return _console(
        _output(
            [
                shutil.which("java") or "java",
                "-cp",
                f"{services.kafka_jars()}/*",
                "org.apache.kafka.tools.consumer.ConsoleConsumer",
                f"--bootstrap-server={kafka}",
                f"--topic={topic}",
                "--from-beginning",
                "--isolation-level=read_committed",
                "--timeout-ms=4000",
                *shown,
            ]
        )
    )


def _output(command: Sequence[str]) -> bytes:
    done = subprocess.run(command, capture_output=True, timeout=PATIENCE, check=False)
    assert done.returncode == 0, done.stderr.decode(errors="replace")
    return done.stdout


def _kcat(output: bytes) -> list[Message]:
    messages, at = [], 0
    while at < len(output):
        line_end = output.index(b"\n", at)
        offset, key_size, size = map(int, output[at:line_end].split())
        key = line_end + 1
        value = key + max(0, key_size)
        headers = value + max(0, size)
        at = output.index(b"\n", headers) + 1
        pairs = [pair.split("=", 1) for pair in output[headers : at - 1].decode().split(",") if pair]
        messages.append(Message(offset, output[key:value].decode(), output[value:headers], dict(pairs)))
    return messages


def _console(output: bytes) -> list[Message]:
    # a value may hold line feeds of its own: it ends where the next message begins
    message = re.compile(rb"Offset:(\d+)\t([^\t]*)\t([^\t]*)\t(.*?)\n(?=Offset:\d+\t|\Z)", re.DOTALL)
    messages: list[Message] = []
    for found in message.finditer(output):
        offset, headers, key, value = found.groups()
        pairs = [pair.split(":", 1) for pair in headers.decode().split(",")]
        messages.append(Message(int(offset), key.decode(), value, dict(pairs)))
    return messages


def assert_snapshot_topic(world: World) -> int:
    """Asserts what the snapshot topic holds as another program reads it; returns the newest sequence.

    Sequences from 1 on without a gap, each a head, Base and ten methods as often as its ``parts`` say, with the right
    headers and one identity, and every JSON document valid under the schema. Whatever a reader that keeps the newest
    message of each key puts together on the way is one of these snapshots, not a mix of two.
    """
    everything = foreign(world.kafka, world.config.snapshots.topic)
    messages = [message for message in everything if message.key.startswith(f"{world.name}/")]
    by_sequence: dict[int, list[Message]] = {}
    for message in messages:
        by_sequence.setdefault(int(message.headers["sequence"]), []).append(message)
    assert list(by_sequence) == list(range(1, len(by_sequence) + 1))
    validator = jsonschema.Draft202012Validator(SCHEMA)
    reports = 0
    received: dict[str, tuple[dict[str, bytes], bytes]] = {}
    for sequence, parts in by_sequence.items():
        (identity,) = {message.headers["snapshot"] for message in parts}
        for message in parts:
            assert message.headers == {
                "content-type": message.headers["content-type"],
                "schema": "1",
                "sequence": str(sequence),
                "parts": str(len(parts)),
                "snapshot": identity,
            }
            received[message.key] = {k: v.encode() for k, v in message.headers.items()}, message.value
            with contextlib.suppress(Incomplete):
                assert assemble(world.name, received).head["snapshot"] == identity
                assert message is parts[-1]
        documents = {
            message.key.removeprefix(f"{world.name}/"): json.loads(message.value)
            for message in parts
            if message.headers["content-type"] == "application/json"
        }
        bodies = [f"all/{method}" for method in METHODS]
        assert [key for key in documents if key != "domain"] == ["head", *bodies]
        for key, document in documents.items():
            validator.validate(document)
            assert document["stream"] == world.name
            assert document["fingerprint"] == world.stream.fingerprint.hex()
            if key != "domain":
                assert document["sequence"] == sequence
                assert document["offsets"] == documents["head"]["offsets"]
                assert document["reports"] == documents["head"]["reports"]
            if key.startswith("all/"):
                assert document["method"] == key.removeprefix("all/")
        # every snapshot knows at least what the one before it knew
        assert documents["head"]["reports"] >= reports
        reports = documents["head"]["reports"]
    return len(by_sequence)


def _toml(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key} = {_toml(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_toml, value)) + "]"
    return json.dumps(value, ensure_ascii=False)
