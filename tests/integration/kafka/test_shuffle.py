"""``ldp-worker shuffle`` on a real Kafka: each accepted upload is shuffled once, in batches of B uploads."""

import contextlib
import json
import secrets
import signal
import time
import urllib.request
from collections import Counter
from dataclasses import dataclass
from urllib.error import HTTPError
from uuid import uuid4

import numpy as np
import pytest
from kafka import KafkaProducer
from kafka.errors import RetriableError

import ldp
from ldp import frames, wire
from tests.long.kills.dying import Aim
from tests.long.kills.steps import SHUFFLING
from tests.support.harness import World, until
from tests.support.harness.front import events, expel, records, started
from tests.support.harness.truth import base
from worker import config
from worker.kafka.client import topics

pytestmark = pytest.mark.integration
BATCH, PARTITIONS = 4, 3
MINUTE = 60_000
STREAM = ldp.Stream("s", ldp.GRR("1", domain_size=1 << 24))
"""Each upload has its own report, so that a batch shows its members."""


@dataclass(frozen=True)
class Found:
    partition: int
    timestamp: int
    reports: tuple[int, ...]


class Intake:
    """A stream with an intake topic, its shufflers and its clients; a context manager.

    The intake has producers' timestamps, so that hours pass in seconds.
    """

    def __init__(self, kafka, folder, size=BATCH, intake_partitions=1, **settings):
        self.more = ""
        self.kafka, self.folder, self.name = kafka, folder, f"s{uuid4().hex[:10]}"
        self.toml = self.configure(size)
        self.config = config.load(self.toml, {})
        (self.served,) = self.config.streams
        self.group = self.config.shuffle_group(self.name)
        self.intake_partitions, self.settings = intake_partitions, settings
        self.uploads, self.processes = 0, []
        self.now = int(1000 * time.time()) - 5000 * MINUTE

    def configure(self, size):
        path = self.folder / f"size-{size}.toml"
        path.write_text(
            f'kafka.bootstrap_servers = "{self.kafka}"\ngroup = "tests"\nhttp.port = 0\n{self.more}'
            f'snapshots.topic = "{self.name}-snapshots"\n'
            f'dead_letters.topic = "{self.name}-letters"\n[[streams]]\nname = "{self.name}"\nprotocol = "grr"\n'
            f'topic = "{self.name}-reports"\nintake = "{self.name}-intake"\nshuffle_batch_size = {size}\n'
            f'epsilon = "1"\ndomain_size = {1 << 24}\n'
        )
        return path

    def __enter__(self):
        with contextlib.ExitStack() as stack:
            self.admin = stack.enter_context(
                contextlib.closing(topics.connect({"bootstrap_servers": self.kafka}))
            )
            intake = {"message.timestamp.type": "CreateTime", "retention.ms": "-1"} | self.settings
            self.made = {
                self.served.intake: {
                    "num_partitions": self.intake_partitions,
                    "replication_factor": 1,
                    "configs": intake,
                },
                self.served.topic: {"num_partitions": PARTITIONS, "replication_factor": 1},
            }
            self.admin.create_topics(self.made, wait_for_metadata=True)
            stack.callback(self.admin.delete_topics, list(self.made))
            self.producer = stack.enter_context(
                contextlib.closing(KafkaProducer(bootstrap_servers=self.kafka))
            )
            stack.callback(self.kill_all)
            self.closing = stack.pop_all()
        return self

    def __exit__(self, *_):
        for forked, log in self.processes:
            print(f"\n--- {log}, exit code {forked.poll()}\n" + "\n".join(log.read_text().splitlines()[-30:]))
        self.closing.close()

    def kill_all(self):
        for forked, _ in self.processes:
            forked.kill()
            forked.wait()

    # clients

    def put(self, key, value, partition=0):
        """Writes a record to the intake."""
        sent = self.producer.send(self.served.intake, value, key, partition=partition, timestamp_ms=self.now)
        self.now += MINUTE // 10
        sent.get(30)

    def upload(self, count, partition=0):
        """Sends uploads; every third one twice, and an invalid record after every fifth."""
        for _ in range(count):
            report = np.array([(self.uploads,)], self.served.stream.oracle.report_dtype)
            record = self.uploads.to_bytes(16, "big"), frames.encode(self.served.stream, report)
            self.put(*record, partition)
            if self.uploads % 3 == 0:
                self.put(*record, partition)
            if self.uploads % 5 == 0:
                self.put(bytes([255]) * 16, b"?", partition)
            self.uploads += 1

    # shufflers

    def start(self, aim=None, size=BATCH):
        """Starts a shuffler, which dies at its aim."""
        log = self.folder / f"shuffler-{len(self.processes)}.log"
        forked = started("shuffle", self.configure(size), log, aim)
        self.processes.append((forked, log))
        return forked

    def events(self, name):
        return [event for _, log in self.processes for event in events(log, name)]

    def expel(self):
        expel(self.admin, self.group)

    # batches

    def committed(self):
        """Returns the offset and the number B of each intake partition."""
        try:
            found = topics.committed(self.admin, self.group, self.served.intake)
        except RetriableError:  # the first group of a new broker
            return {}
        return {partition: (one.offset, json.loads(one.metadata)["size"]) for partition, one in found.items()}

    def shuffled(self, level="read_committed"):
        """Returns all frames on the topic of reports."""
        found = []
        for record in records(self.kafka, self.served.topic, level):
            assert (record.key, record.headers) == (None, [])
            values = np.frombuffer(record.value[wire.HEADER_BYTES :], "<u4").tolist()
            found.append(Found(record.partition, record.timestamp, tuple(values)))
        return found

    def wait_for(self, count):
        """Waits until at least this many uploads are shuffled."""

        def there():
            found = sum(len(frame.reports) for frame in self.shuffled())
            return found >= count

        until(there, f"{count} uploads are shuffled")

    def assert_shuffled_once(self):
        """Asserts that all uploads of whole batches are shuffled once, and the others are not."""
        found = Counter(report for frame in self.shuffled() for report in frame.reports)
        assert set(found.values()) <= {1}, found.most_common(3)
        return set(found)


def test_uploads_are_shuffled_together_and_once(kafka, tmp_path):
    with Intake(kafka, tmp_path) as intake:
        intake.upload(BATCH - 1)
        shuffler = intake.start()
        until(lambda: intake.committed() == {0: (0, BATCH)}, "the first claim records B")
        time.sleep(0.5)
        assert intake.shuffled() == []
        intake.upload(2 * BATCH)
        intake.wait_for(2 * BATCH)
        assert intake.assert_shuffled_once() == set(range(2 * BATCH))
        frames_found = intake.shuffled()
        assert {frame.partition for frame in frames_found} == set(range(PARTITIONS))
        assert {frame.timestamp % MINUTE for frame in frames_found} == {0}
        stamps = Counter(frame.timestamp for frame in frames_found)
        assert all(count % PARTITIONS == 0 for count in stamps.values())
        events = intake.events("uploads.shuffled")
        assert [event["uploads"] for event in events] == [BATCH, BATCH]
        assert (
            sum(event["duplicates"] + event["rejected"] for event in events)
            == intake.committed()[0][0] - 2 * BATCH
        )
        (started,) = intake.events("shuffler.started")
        with urllib.request.urlopen(f"http://127.0.0.1:{started['port']}/readyz") as answer:
            assert json.load(answer) == {"streams": {intake.name: "serving"}}
        with urllib.request.urlopen(f"http://127.0.0.1:{started['port']}/metrics") as answer:
            metrics = answer.read().decode()
        assert (
            f'ldp_shuffle_uploads_total{{outcome="shuffled",stream="{intake.name}"}} {2 * BATCH}.0' in metrics
        )
        held = f'ldp_shuffle_held_uploads{{partition="0",stream="{intake.name}"}} {BATCH - 1}.0'
        assert held in metrics
        shuffler.terminate()
        assert shuffler.wait(20) == 0
        # another B applies at once, because fewer uploads than before wait
        intake.start(size=2)
        intake.wait_for(2 * BATCH + 2)
        assert intake.assert_shuffled_once() == set(range(2 * BATCH + 2))
        assert intake.committed()[0][1] == 2


SOME = [
    Aim("intake", 2, "after"),
    Aim("batch", 5, "after", 2),
    Aim("batch", 7, "after"),
    Aim("batch", 8, "before"),
    Aim("batch", 8, "after"),
    Aim("batch", 9, "after"),
]
ALL = [Aim(step.turn, step.number, side) for step in SHUFFLING for side in ("before", "after")] + [
    Aim("batch", 5, side, arrival) for arrival in (2, 3) for side in ("before", "after")
]


@pytest.mark.parametrize(
    "aims", [pytest.param(SOME, id="some"), pytest.param(ALL, id="all", marks=pytest.mark.long)]
)
def test_a_shuffler_killed_at_any_step_loses_and_doubles_nothing(kafka, tmp_path, aims):
    with Intake(kafka, tmp_path) as intake:
        for aim in aims:
            intake.upload(BATCH + 1)
            intake.now += 100 * MINUTE  # so that each owner has records to delete
            forked = intake.start(aim)
            assert forked.wait(60) == -signal.SIGKILL, aim
            intake.expel()
        intake.start()
        whole = intake.uploads // BATCH * BATCH
        intake.wait_for(whole)
        assert intake.assert_shuffled_once() == set(range(whole))
        assert len(intake.events("dying")) == len(aims)
        # an aborted batch has the members of the committed one that follows it
        hidden = Counter(report for frame in intake.shuffled("read_uncommitted") for report in frame.reports)
        assert max(hidden.values()) > 1
        (first, _), *_ = topics.bounds(intake.admin, intake.served.intake, [0]).values()
        assert first > 0  # old uploads are deleted


def test_a_missing_intake_topic_is_reported(kafka, tmp_path):
    with Intake(kafka, tmp_path) as intake:
        name = intake.served.intake
        intake.admin.delete_topics([name])
        until(lambda: name not in topics.describe(intake.admin, [name]), "the topic is deleted")
        intake.start()
        until(lambda: intake.events("topic.missing"), "the shuffler reports it")
        until(lambda: intake.events("shuffler.started"), "the shuffler starts")
        (missing,), (started,) = intake.events("topic.missing"), intake.events("shuffler.started")
        assert missing["topic"] == name
        with pytest.raises(HTTPError) as ready:
            urllib.request.urlopen(f"http://127.0.0.1:{started['port']}/readyz")
        assert json.load(ready.value) == {"streams": {intake.name: f"topic {name} is missing"}}
        intake.admin.create_topics({name: intake.made[name]}, wait_for_metadata=True)
        intake.upload(BATCH)
        intake.wait_for(BATCH)


def test_a_frozen_shuffler_is_refused(kafka, tmp_path):
    """It holds uploads when another shuffler takes over; it batches none of them, and shares the partitions later."""
    with Intake(kafka, tmp_path, intake_partitions=2) as intake:
        intake.upload(1, 0)
        intake.upload(1, 1)
        frozen = intake.start()
        until(lambda: len(intake.committed()) == 2, "both partitions are claimed")
        until(lambda: len(intake.events("intake.claimed")) == 2, "both partitions are read")
        frozen.send_signal(signal.SIGSTOP)
        intake.expel()
        intake.start()
        for partition in (0, 1):
            intake.upload(BATCH, partition)
        intake.wait_for(2 * BATCH)
        frozen.send_signal(signal.SIGCONT)
        for _ in range(3):
            for partition in (0, 1):
                intake.upload(BATCH, partition)
        intake.wait_for(8 * BATCH)
        assert len(intake.assert_shuffled_once()) == 8 * BATCH
        assert {event["partition"] for event in intake.events("uploads.shuffled")} == {0, 1}
        until(lambda: len(intake.events("intake.claimed")) > 4, "the partitions are shared")


def test_a_displaced_shuffler_stops(kafka, tmp_path):
    """Otherwise it would fence the producer of the other one again and again."""
    with Intake(kafka, tmp_path) as intake:
        intake.more = 'kafka.member = "one"\n'
        intake.upload(BATCH)
        intake.start()
        intake.wait_for(BATCH)
        intake.start()
        until(lambda: intake.events("stream.stopped"), "the first shuffler stops")
        assert "joined the group" in intake.events("stream.stopped")[0]["error"]
        intake.upload(BATCH)
        intake.wait_for(2 * BATCH)
        assert len(intake.events("stream.stopped")) == 1


def test_uploads_that_cannot_be_deleted_are_reported(kafka, tmp_path):
    with Intake(kafka, tmp_path, **{"cleanup.policy": "compact"}) as intake:
        intake.upload(BATCH - 1)
        intake.now += 100 * MINUTE
        intake.upload(BATCH + 1)
        intake.start()
        intake.wait_for(2 * BATCH)
        until(lambda: intake.events("uploads.undeleted"), "the failure is reported")
        assert "PolicyViolation" in intake.events("uploads.undeleted")[0]["error"]
        intake.upload(BATCH)
        intake.wait_for(3 * BATCH)
        assert intake.events("intake.retry") == []


def test_windows_contain_the_uploads_of_their_time_after_an_outage(kafka, redis_url, admin, tmp_path):
    """With producers' timestamps, and a `grace` that covers the outage."""
    name, hour, midnight = f"s{uuid4().hex[:10]}-intake", 60 * MINUTE, 1_767_225_600_000
    own_time = {"message.timestamp.type": "CreateTime", "retention.ms": "-1"}
    admin.create_topics({name: {"num_partitions": 1, "replication_factor": 1, "configs": own_time}})
    table = {"windows": ["1h"], "grace": "3h", "max_out_of_orderness": "1m"}
    table |= {"intake": name, "shuffle_batch_size": BATCH}
    sent = {}
    with World(kafka, redis_url, tmp_path, partitions=2, reports=own_time, **table) as world:

        def note(h, count):
            reports = world.draw(count)
            sent.setdefault(h, []).append(reports)
            world.sent.reports.append(reports)
            return frames.encode(world.stream, reports)

        def upload(h, uploads=2 * BATCH):
            for i in range(uploads):
                value, when = note(h, 1 + i), midnight + h * hour + 5 * i * MINUTE
                world.producer.send(name, value, secrets.token_bytes(16), timestamp_ms=when).get(30)

        def shuffle(number):
            shuffler = started("shuffle", world.toml, tmp_path / f"shuffler-{number}.log")
            stack.callback(shuffler.wait)
            stack.callback(shuffler.kill)
            return shuffler

        with contextlib.ExitStack() as stack:
            stack.callback(admin.delete_topics, [name])
            world.start()
            first = shuffle(0)
            upload(0)
            until(lambda: world.covered().reports == world.n, "hour 0 is counted")
            first.terminate()
            assert first.wait(20) == 0
            # during the outage, devices upload in hours 1 to 3, and other producers in hour 3
            for h in (1, 2, 3):
                upload(h)
            for partition in range(world.partitions):
                world.put(note(3, 5), partition, timestamp=midnight + 3 * hour).get(30)
            shuffle(1)
            upload(8)
            until(lambda: world.covered().reports == world.n, "all hours are counted")

        def final():
            windows = [window for window in world.snapshots.windows() if window.name == "1h"]
            return [(window.start - midnight) // hour for window in windows if window.final] == [0, 1, 2, 3]

        until(final, "hours 0 to 3 are final")
        for h in range(4):
            read, reports = world.snapshots.window("1h", midnight + h * hour), np.concatenate(sent[h])
            assert read.reports == reports.size, h
            np.testing.assert_allclose(
                read.bodies["base"].frequencies, base(world.stream, reports), atol=1e-9
            )
