"""A healthy deployment: a broker, a Redis, three workers as in production, two streams, and their steady load."""

import contextlib
import json
import random
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Self

import numpy as np
import redis
from kafka import KafkaAdminClient, KafkaProducer

from deploy.local.services import Listeners, Services, free_ports
from ldp import frames
from tests.support.harness import until
from tests.support.harness.processes import Worker
from worker import config
from worker.kafka.client import topics

PARTITIONS = 6
_TOML = """\
group = "production"
kafka.bootstrap_servers = "{kafka}"
redis.url = "{redis}"
snapshots.topic = "snapshots"
dead_letters.topic = "dead-letters"

[[streams]]
name = "colours"
topic = "colour-reports"
protocol = "olh"
epsilon = "1"
domain_size = 64
windows = ["all", "1m", "5m every 1m"]
grace = "10s"
max_out_of_orderness = "5s"
retain = "20m"
queries = [{{ name = "the first", values = [0] }}, {{ name = "the most used", top = 5 }}]

[[streams]]
name = "emoji"
topic = "emoji-reports"
protocol = "oue"
epsilon = "2"
domain_size = 200
windows = ["all", "2m"]
retain = "20m"
"""
_TOPICS: Mapping[str, Mapping[str, str]] = {
    # devices say when; and retention takes what is old all the time
    "colour-reports": {
        "message.timestamp.type": "CreateTime",
        "retention.ms": "600000",
        "segment.ms": "60000",
    },
    "emoji-reports": {"message.timestamp.type": "LogAppendTime"},
}
_PROPERTIES = "log.retention.check.interval.ms=10000\n"
_START_SECONDS = 300.0
"""Until when all workers serve: the first start of an installation compiles."""
_DELAYED_MS = 4000
"""Longest delay between the timestamp and the sending of a record with a device's time."""


class Load(threading.Thread):
    """Honest records of a stream at a steady rate, or of a stream with consecutive transactions of a second each."""

    def __init__(self, kafka: str, served: config.Served, rate: float, *, transactions: bool) -> None:
        super().__init__(daemon=True)
        self._served, self._rate, self._ends = served, rate, threading.Event()
        told = {"transactional_id": f"load-{served.name}"} if transactions else {}
        self._transactions = transactions
        self._producer = KafkaProducer(bootstrap_servers=kafka, linger_ms=20, acks="all", **told)
        if transactions:
            self._producer.init_transactions()
        self.records = self.failed = 0

    def stop(self) -> None:
        """Stops sending, and waits until all records are acknowledged."""
        self._ends.set()
        self.join(60)
        self._producer.close(timeout=10)

    def run(self) -> None:
        turn, rng = random.Random(7), np.random.default_rng(7)
        oracle = self._served.stream.oracle
        began, sent = time.monotonic(), 0
        while not self._ends.is_set():
            if self._transactions:
                self._producer.begin_transaction()
            futures, second = [], time.monotonic() + 1
            while time.monotonic() < second and not self._ends.wait(0.05):
                due = int((time.monotonic() - began) * self._rate)
                for _ in range(due - sent):
                    values = np.minimum(rng.geometric(0.2, turn.randint(1, 3)) - 1, oracle.domain_size - 1)
                    value = frames.encode(self._served.stream, oracle.perturb(values, rng=rng))
                    made = int(1000 * time.time()) - turn.randrange(_DELAYED_MS)
                    to = turn.randrange(PARTITIONS)
                    futures.append(
                        self._producer.send(self._served.topic, value=value, partition=to, timestamp_ms=made)
                    )
                sent = due
            if self._transactions:
                self._producer.commit_transaction()
            for future in futures:
                try:
                    future.get(60)
                    self.records += 1
                except Exception:
                    self.failed += 1


class Health:
    """Healthy services; a context manager. Two workers are one process each, and one is two processes."""

    def __init__(self, rate: float, say: Callable[[str], None]) -> None:
        self._rate, self._say = rate, say

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as stack:
            self.services = stack.enter_context(
                Services.start(self._say, more=Listeners({}, properties=_PROPERTIES))
            )
            self.folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="ldp-health.")))
            kafka, url = self.services.kafka.address, self.services.redis.address
            self.redis: Any = stack.enter_context(redis.Redis.from_url(url))
            self.redis.config_set("maxmemory", 256 << 20)
            self._toml = self.folder / "worker.toml"
            self._toml.write_text(_TOML.format(kafka=kafka, redis=url), encoding="utf-8")
            self.config = config.load(self._toml, {})
            admin = stack.enter_context(contextlib.closing(KafkaAdminClient(bootstrap_servers=kafka)))
            new = {"num_partitions": PARTITIONS, "replication_factor": 1}
            for topic, settings in _TOPICS.items():
                admin.create_topics({topic: new | {"configs": dict(settings)}}, wait_for_metadata=True)
            topics.create(admin, self.config, PARTITIONS, 1)
            self.ports = free_ports(3)
            self._workers: dict[int, Worker] = {}
            self._started = 0
            stack.callback(self._kill)
            for number in range(3):
                self._start(number)
            until(self.ready, "all workers serve", _START_SECONDS)
            self.loads = [
                Load(kafka, served, self._rate, transactions=served.name == "emoji")
                for served in self.config.streams
            ]
            for load in self.loads:
                load.start()
                stack.callback(load.stop)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *raised: object) -> None:
        self._stack.__exit__(*raised)  # type: ignore[arg-type]

    @property
    def targets(self) -> list[str]:
        """Scrape targets of Prometheus."""
        return [f"127.0.0.1:{port}" for port in self.ports]

    def ready(self) -> bool:
        """Whether all workers serve."""
        return all(worker.ready() for worker in self._workers.values())

    def restart(self, number: int) -> tuple[int, float]:
        """Ends a worker as a roll-out does, and starts it again in its place."""
        # An exit code of 1 means that the machine was too busy to end all processes of the worker in time.
        began = time.monotonic()
        code = self._workers[number].terminate()
        self._start(number)
        until(self._workers[number].ready, f"worker {number} serves again", _START_SECONDS)
        return code, time.monotonic() - began

    def counted(self) -> dict[str, int]:
        """Returns the number of counted records in Redis, by stream."""
        found = {}
        for served in self.config.streams:
            metas = (self.redis.hget(f"{{{served.name}:{p}}}:meta", "totals") for p in range(PARTITIONS))
            found[served.name] = sum(json.loads(totals)["accepted"] for totals in metas if totals)
        return found

    def finish(self) -> dict[str, int]:
        """Ends the load, waits until all is counted; returns the records sent, by stream."""
        for load in self.loads:
            load.stop()
        sent = {
            served.name: load.records for served, load in zip(self.config.streams, self.loads, strict=True)
        }
        until(lambda: self.counted() == sent, f"all of {sent} is counted")
        return sent

    def _start(self, number: int) -> None:
        self._started += 1
        log = self.folder / f"worker-{number}-{self._started}.log"
        said = {
            "LDP_WORKER_HTTP__PORT": str(self.ports[number]),
            "LDP_WORKER_KAFKA__MEMBER": f"worker-{number}",
        }
        options = ("--processes", "2") if number == 2 else ()
        self._workers[number] = Worker.launch(self._toml, log, *options, environ=said)

    def _kill(self) -> None:
        for worker in self._workers.values():
            worker.kill()
