"""``ldp-worker gateway`` and ``shuffle`` on a real Kafka: from an HTTP request to the topic of reports, once."""

import contextlib
import http.client
import itertools
import json
import os
import random
import secrets
import signal
import socket
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from uuid import uuid4

import numpy as np
import pytest
from kafka import KafkaConsumer, TopicPartition
from kafka.admin import MemberToRemove

from ldp import frames, wire
from tests.long.kills.dying import Aim
from tests.long.kills.steps import UPLOADING
from tests.support.harness import Forked, frozen, until
from worker import audit, config
from worker.kafka.client import topics

pytestmark = pytest.mark.integration
BATCH, MANY, PARTITIONS, TIMEOUT = 5, 20, 2, 2.0


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


class Front:
    """A gateway, a shuffler and their topics; a context manager."""

    def __init__(self, kafka, folder, size=BATCH, redis_url="redis://127.0.0.1:1"):
        self.kafka, self.folder, self.name, self.port = kafka, folder, f"s{uuid4().hex[:10]}", free_port()
        self.toml = folder / "worker.toml"
        self.toml.write_text(
            f'kafka.bootstrap_servers = "{kafka}"\ngroup = "tests"\nhttp.port = 0\n'
            f'redis.url = "{redis_url}"\nsnapshots.topic = "{self.name}-snapshots"\n'
            f'dead_letters.topic = "{self.name}-letters"\n[gateway]\nhost = "127.0.0.1"\nport = {self.port}\n'
            f'metrics_port = 0\ntimeout_seconds = {TIMEOUT}\n[[streams]]\nname = "{self.name}"\nprotocol = "grr"\n'
            f'topic = "{self.name}-reports"\nintake = "{self.name}-intake"\nshuffle_batch_size = {size}\n'
            f'epsilon = "1"\ndomain_size = {1 << 16}\n'
        )
        self.config = config.load(self.toml, {})
        (self.served,) = self.config.streams
        self.processes = {}

    def __enter__(self):
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

    def __exit__(self, *_):
        for name in self.processes:
            print(f"\n--- {name}\n" + "\n".join(self.log(name).read_text().splitlines()[-30:]))
        self.closing.close()

    def kill_all(self):
        for forked in self.processes.values():
            forked.kill()
            forked.wait()

    def log(self, name):
        return self.folder / f"{name}.log"

    def start(self, command, aim=None):
        """Starts a process, which dies at its aim."""
        environ = {name: value for name, value in os.environ.items() if not name.startswith("LDP_WORKER_")}
        point = self.folder / f"{command}.point"
        point.unlink(missing_ok=True)
        if aim is not None:
            point.write_text(json.dumps(vars(aim)))
        options = ["--config", str(self.toml), "--point", str(point)]
        forked = Forked.fork_server.fork(
            "tests.long.kills.dying", options, environ, self.log(command), command
        )
        self.processes[command] = forked
        return forked

    def expel(self):
        """Removes the dead shuffler, else its group waits for the session time-out."""
        group = self.config.shuffle_group(self.name)
        members = self.admin.describe_groups([group])[group]["members"]
        if members:
            self.admin.remove_group_members(
                group, [MemberToRemove(member_id=one["member_id"]) for one in members]
            )

    def events(self, name, event):
        lines = self.log(name).read_text().splitlines(keepends=True)
        parsed = [json.loads(line) for line in lines if line.startswith("{") and line.endswith("}\n")]
        return [one for one in parsed if one["event"] == event]

    def ask(self, port, method, path, body=None, headers=None, seconds=30):
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=seconds)
        with contextlib.closing(connection):
            connection.request(method, path, body, headers or {})
            answer = connection.getresponse()
            return answer.status, answer.read()

    def probe(self, path):
        (started, *_) = self.events("gateway", "gateway.started")
        return self.ask(started["metrics_port"], "GET", path)

    def upload(self, report, key=None, query="", **headers):
        frame = frames.encode(
            self.served.stream, np.array([(report,)], self.served.stream.oracle.report_dtype)
        )
        given = {"Content-Type": "application/octet-stream", **headers}
        given |= {} if key is None else {"Idempotency-Key": key}
        return self.ask(self.port, "POST", f"/v1/streams/{self.name}/reports{query}", frame, given)[0]

    def records(self, topic):
        """Returns all committed records of a topic."""
        partitions = self.admin.describe_topics([topic])[0]["partitions"]
        tps = [TopicPartition(topic, i) for i in range(len(partitions))]
        consumer = KafkaConsumer(
            bootstrap_servers=self.kafka, isolation_level="read_committed", auto_offset_reset="earliest"
        )
        with contextlib.closing(consumer):
            consumer.assign(tps)
            ends, found = consumer.end_offsets(tps), []
            while any(consumer.position(tp) < ends[tp] for tp in tps):
                found += [record for records in consumer.poll(200).values() for record in records]
        return found

    def shuffled(self):
        values = [record.value[wire.HEADER_BYTES :] for record in self.records(self.served.topic)]
        return Counter(int(report) for value in values for report in np.frombuffer(value, "<u2"))


def test_uploads_reach_the_topic_of_reports_once_and_without_metadata(kafka, tmp_path):
    canary = "canary-7f3a"
    with Front(kafka, tmp_path) as front:
        front.start("shuffle")
        for report in range(2 * BATCH):
            key = secrets.token_hex(16)
            tries = 2 if report % 3 == 0 else 1
            for _ in range(tries):
                answer = front.upload(
                    report, key, f"?user={canary}", **{"User-Agent": canary, "X-User": canary}
                )
                assert answer == 202
        assert front.ask(front.port, "POST", f"/v1/streams/{front.name}/reports", canary)[0] == 415
        wrong = {"Content-Type": "application/json"}
        refused = front.ask(front.port, "POST", f"/v1/streams/{front.name}/reports", canary, wrong)
        assert refused == (400, b'{"reason":"version"}')
        until(lambda: sum(front.shuffled().values()) >= 2 * BATCH, "all uploads are shuffled")
        assert front.shuffled() == Counter(range(2 * BATCH))
        for record in front.records(front.served.topic):
            assert (record.key, record.headers) == (None, [])
        metrics = front.probe("/metrics")[1].decode()
        assert f'ldp_gateway_uploads_total{{outcome="accepted",stream="{front.name}"}} 14.0' in metrics
        places = [metrics, *(front.log(name).read_text() for name in front.processes)]
        for topic in (front.served.topic, front.served.intake):
            places += [repr(record) for record in front.records(topic)]
        assert [place for place in places if canary in place] == []
        gateway = front.processes["gateway"]
        gateway.terminate()
        assert gateway.wait(20) == 0


def test_a_silent_client_is_disconnected_in_time(kafka, tmp_path):
    with Front(kafka, tmp_path) as front:
        began = time.monotonic()
        silent = [socket.create_connection(("127.0.0.1", front.port)) for _ in range(100)]
        for i, client in enumerate(silent):
            client.sendall(b"" if i % 2 else b"POST /v1/streams/x/reports HTTP/1.1\r\nHost: x\r\n")
            client.settimeout(10)
        assert front.upload(1) == 202
        for client in silent[0::2]:  # after the beginning of a request
            with contextlib.suppress(ConnectionError):
                while client.recv(4096):
                    pass
        assert time.monotonic() - began < 3 * TIMEOUT
        for client in silent:
            client.close()


def test_a_frozen_kafka_is_refused_in_time_and_recovers(own_services, tmp_path):
    with Front(own_services.kafka.address, tmp_path) as front:
        front.start("shuffle")
        assert front.upload(0, secrets.token_hex(16)) == 202
        keys = [secrets.token_hex(16) for _ in range(300)]

        def refused(number):
            began = time.monotonic()
            status = front.upload(number + 1, keys[number])
            return status, time.monotonic() - began < TIMEOUT + 3

        with frozen(own_services.kafka), ThreadPoolExecutor(300) as pool:
            answers = Counter(pool.map(refused, range(300)))
            assert set(answers) == {(503, True)}
            until(lambda: front.probe("/readyz")[0] == 503, "the gateway is not ready")
        for number, key in enumerate(keys[:40]):

            def accepted(number=number, key=key):
                return front.upload(number + 1, key) == 202

            until(accepted, f"upload {number} is accepted")
        front.upload(41), front.upload(42), front.upload(43), front.upload(44)
        until(lambda: sum(front.shuffled().values()) >= 45, "all uploads are shuffled")
        assert front.shuffled() == Counter(range(45))


def test_a_gateway_killed_at_any_step_loses_and_doubles_nothing(kafka, tmp_path):
    aims = [Aim("upload", step.number, side) for step in UPLOADING for side in ("before", "after")]
    with Front(kafka, tmp_path) as front, ThreadPoolExecutor(1) as pool:
        front.start("shuffle")
        for number, aim in enumerate(aims):
            front.processes["gateway"].kill()
            front.processes["gateway"].wait()
            dying, key = front.start("gateway", aim), secrets.token_hex(16)

            def accepted(number=number, key=key):
                with contextlib.suppress(OSError, http.client.HTTPException):
                    return front.upload(number, key) == 202

            client = pool.submit(until, accepted, f"the upload of {aim} is accepted")
            assert dying.wait(30) == -signal.SIGKILL, aim
            front.start("gateway")
            client.result()
        for number in range(len(aims), 3 * BATCH):
            assert front.upload(number, secrets.token_hex(16)) == 202
        until(lambda: sum(front.shuffled().values()) >= 3 * BATCH, "all uploads are shuffled")
        assert front.shuffled() == Counter(range(3 * BATCH))


def test_random_kills_lose_and_double_nothing(kafka, redis_url, tmp_path):
    kills(kafka, redis_url, tmp_path, 6)


@pytest.mark.long
def test_many_random_kills_lose_and_double_nothing(kafka, redis_url, tmp_path):
    kills(kafka, redis_url, tmp_path, 200)


def test_kills_with_a_new_id_for_each_try_double_uploads(kafka, redis_url, tmp_path):
    """Otherwise the tests above prove nothing."""
    with pytest.raises(AssertionError, match="shuffled twice"):
        kills(kafka, redis_url, tmp_path, 2, fresh=True)


def kills(kafka, redis_url, folder, count, *, fresh=False):
    """Kills the gateway or the shuffler at random times under load; clients lose 3 % of the answers.

    Asserts that each accepted upload is shuffled once, and that a worker counts it once. `fresh`: whether each try has
    a new id.
    """
    rng, stop = random.Random(0), threading.Event()
    with Front(kafka, folder, MANY, redis_url) as front, ThreadPoolExecutor(4) as pool:
        for command in ("shuffle", "run"):
            front.start(command)
        numbers = itertools.count()

        def client(seed):
            mine, sent = random.Random(seed), []
            while not stop.is_set():
                number, key = next(numbers), secrets.token_hex(16)
                accepted = False
                while not accepted:
                    with contextlib.suppress(OSError, http.client.HTTPException):
                        accepted = front.upload(number, secrets.token_hex(16) if fresh else key) == 202
                    lost = mine.random() < 0.03
                    accepted = accepted and not lost
                    time.sleep(0 if accepted or lost else 0.05)
                sent.append(number)
            return sent

        clients = [pool.submit(client, seed) for seed in range(4)]
        try:
            for _ in range(count):
                time.sleep(rng.uniform(0.2, 1.0))
                victim = rng.choice(["gateway", "shuffle"])
                front.processes[victim].kill()
                front.processes[victim].wait()
                if victim == "shuffle":
                    front.expel()
                front.start(victim)
            time.sleep(0.5)
        finally:
            stop.set()
        sent = [number for one in clients for number in one.result()]
        while len(sent) % MANY:  # no upload waits for others
            sent.append(next(numbers))
            until(
                lambda: front.upload(sent[-1], secrets.token_hex(16)) == 202, "the last uploads are accepted"
            )
        found = Counter[int]()

        def shuffled():
            found.clear()
            found.update(front.shuffled())
            return len(found) >= len(sent) - MANY * fresh

        until(shuffled, f"{len(sent)} uploads are shuffled")
        assert max(found.values()) == 1, (
            f"{sum(n > 1 for n in found.values())} of {len(sent)} are shuffled twice"
        )
        assert found.keys() == set(sent)

        def counted():
            verdict = audit.verify(front.served, front.config)
            assert verdict.difference is None
            return verdict.lag == 0 and verdict.reports == len(sent)

        until(counted, "the audit is equal")
        print(f"{len(sent)} uploads, {count} kills, none lost, none shuffled twice")
