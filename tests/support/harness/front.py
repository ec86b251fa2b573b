"""A gateway and a shuffler on a real Kafka, with the topics of one stream."""

import contextlib
import http.client
import json
import os
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any
from uuid import uuid4

import numpy as np
from kafka import KafkaConsumer, TopicPartition
from kafka.admin import MemberToRemove

from deploy.local.services import free_ports
from ldp import frames, wire
from tests.support.fork_server import ForkedWorker
from tests.support.harness.processes import Forked
from tests.support.harness.waiting import until
from worker import config
from worker.kafka.client import topics

BATCH, PARTITIONS, TIMEOUT, INFLIGHT = 5, 2, 2.0, 1 << 24


def started(command: str, toml: Path, log: Path, aim: object = None, **more: str) -> ForkedWorker:
    """Starts a process, which dies at its aim."""
    environ = {name: value for name, value in os.environ.items() if not name.startswith("LDP_WORKER_")} | more
    point = log.with_suffix(".point")
    point.unlink(missing_ok=True)
    if aim is not None:
        point.write_text(json.dumps(vars(aim)))
    options = ["--config", str(toml), "--point", str(point)]
    return Forked.fork_server.fork("tests.long.kills.dying", options, environ, log, command)


def events(log: Path, event: str) -> list[dict[str, Any]]:
    """Returns a log's events with a name."""
    lines = log.read_text().splitlines(keepends=True)
    parsed = [json.loads(line) for line in lines if line.startswith("{") and line.endswith("}\n")]
    return [one for one in parsed if one["event"] == event]


def expel(admin: Any, group: str) -> None:
    """Removes dead members, else the group waits for their session time-out."""
    members = admin.describe_groups([group])[group]["members"]
    if gone := [MemberToRemove(member_id=member["member_id"]) for member in members]:
        admin.remove_group_members(group, gone)


def records(kafka: str, topic: str, level: str = "read_committed") -> list[Any]:
    """Returns all records of a topic."""
    consumer = KafkaConsumer(bootstrap_servers=kafka, isolation_level=level, auto_offset_reset="earliest")
    with contextlib.closing(consumer):
        tps = [TopicPartition(topic, partition) for partition in consumer.partitions_for_topic(topic)]
        consumer.assign(tps)
        ends, found = consumer.end_offsets(tps), []
        while any(consumer.position(tp) < ends[tp] for tp in tps):
            found += [record for polled in consumer.poll(200).values() for record in polled]
    return found


class Front:
    """A gateway, a shuffler and their topics; a context manager."""

    def __init__(
        self,
        kafka: str,
        folder: Path,
        size: int = BATCH,
        redis_url: str = "redis://127.0.0.1:1",
        stream: str | None = None,
        settings: Mapping[str, str] = MappingProxyType({}),
        table: str | None = None,
    ) -> None:
        self.kafka, self.folder, topic = kafka, folder, f"s{uuid4().hex[:10]}"
        self.port, self.metrics_port, self.shuffle_port = free_ports(3)
        self.client = ""
        """Address of the clients; empty for any."""
        self.toml = folder / "worker.toml"
        table = table or (
            f'[[streams]]\nname = "{stream or topic}"\nprotocol = "grr"\ntopic = "{topic}-reports"\n'
            f'intake = "{topic}-intake"\nshuffle_batch_size = {size}\nepsilon = "1"\ndomain_size = {1 << 16}\n'
        )
        keys = {
            "kafka.bootstrap_servers": kafka,
            "group": "tests",
            "http.port": 0,
            "redis.url": redis_url,
            "snapshots.topic": f"{topic}-snapshots",
            "dead_letters.topic": f"{topic}-letters",
            "gateway.host": "127.0.0.1",
            "gateway.port": self.port,
            "gateway.metrics_port": self.metrics_port,
            "gateway.timeout_seconds": TIMEOUT,
            "gateway.max_inflight_bytes": INFLIGHT,
            **settings,
        }
        self.toml.write_text("".join(f"{key} = {json.dumps(value)}\n" for key, value in keys.items()) + table)
        self.config = config.load(self.toml, {})
        (self.served,) = self.config.streams
        self.name = self.served.stream.name
        self.processes = dict[str, ForkedWorker]()

    def __enter__(self) -> "Front":
        with contextlib.ExitStack() as stack:
            self.admin = stack.enter_context(
                contextlib.closing(topics.connect({"bootstrap_servers": self.kafka}))
            )
            made = topics.create(self.admin, self.config, PARTITIONS, 1)
            stack.callback(self.admin.delete_topics, [creation.spec.name for creation in made])
            stack.callback(self.kill_all)
            self.start("gateway")
            until(lambda: self.events("gateway", "gateway.started"), "the gateway starts")
            until(lambda: self.probe("/readyz")[0] == 200, "the gateway is ready")
            self.closing = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        for name in self.processes:
            print(f"\n--- {name}\n" + "\n".join(self.log(name).read_text().splitlines()[-30:]))
        self.closing.close()

    def kill_all(self) -> None:
        for forked in self.processes.values():
            forked.kill()
            forked.wait()

    def log(self, name: str) -> Path:
        return self.folder / f"{name}.log"

    def start(self, command: str, aim: object = None) -> ForkedWorker:
        """Starts a process, which dies at its aim."""
        port = {"LDP_WORKER_HTTP__PORT": str(self.shuffle_port)} if command == "shuffle" else {}
        self.processes[command] = started(command, self.toml, self.log(command), aim, **port)
        return self.processes[command]

    @property
    def jobs(self) -> dict[str, list[str]]:
        """Scrape targets, by job."""
        ports = {"ldp-gateway": self.metrics_port, "ldp-shuffler": self.shuffle_port}
        return {job: [f"127.0.0.1:{port}"] for job, port in ports.items()}

    def expel(self) -> None:
        expel(self.admin, self.config.shuffle_group(self.name))

    def events(self, name: str, event: str) -> list[dict[str, Any]]:
        return events(self.log(name), event)

    def ask(
        self,
        port: int,
        method: str,
        path: str,
        body: bytes | str | None = None,
        headers: Mapping[str, str] | None = None,
        seconds: float = 30,
    ) -> tuple[int, bytes]:
        source = (self.client, 0) if port == self.port else None
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=seconds, source_address=source)
        with contextlib.closing(connection):
            connection.request(method, path, body, headers or {})
            answer = connection.getresponse()
            return answer.status, answer.read()

    def probe(self, path: str) -> tuple[int, bytes]:
        return self.ask(self.metrics_port, "GET", path)

    def upload(self, report: int, key: str | None = None, query: str = "", **headers: str) -> int:
        frame = frames.encode(
            self.served.stream, np.array([(report,)], self.served.stream.oracle.report_dtype)
        )
        given = {"Content-Type": "application/octet-stream", **headers}
        given |= {} if key is None else {"Idempotency-Key": key}
        return self.ask(self.port, "POST", f"/v1/streams/{self.name}/reports{query}", frame, given)[0]

    def records(self, topic: str) -> list[Any]:
        return records(self.kafka, topic)

    def shuffled(self) -> Counter[int]:
        values = [record.value[wire.HEADER_BYTES :] for record in self.records(self.served.topic)]
        return Counter(int(report) for value in values for report in np.frombuffer(value, "<u2"))
