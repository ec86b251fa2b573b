"""Windows of twelve hours, counted by dying workers, equal a recount."""

import json
import random
from collections import defaultdict
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import numpy as np
import pytest
from kafka import KafkaConsumer, TopicPartition

from ldp import frames
from tests.support.harness import World, dead_letters, until
from tests.support.harness.truth import base

pytestmark = pytest.mark.integration

MINUTE = 60_000
HOUR = 60 * MINUTE
GRACE, OUT_OF_ORDER = 10 * MINUTE, 5 * MINUTE
TABLE = {
    "protocol": "grr",
    "domain_size": 8,
    "windows": ["1h", "3h every 1h"],
    "grace": "10m",
    "max_out_of_orderness": "5m",
}
# times are past, and some are an hour ahead of others; the broker keeps them all
SETTINGS = {"message.timestamp.type": "CreateTime", "retention.ms": "-1"}


@dataclass
class Told:
    """An independent count of one partition's windows."""

    closed: int = 0
    newest: int = 0
    panes: dict[int, list[Any]] = field(default_factory=lambda: defaultdict(list))
    records: int = 0
    late: dict[int, tuple[Any, tuple[int, ...]]] = field(default_factory=dict)

    def add(self, time, report):
        start = time // HOUR * HOUR
        if start + HOUR <= self.closed:
            self.late[self.records] = report, (time, start, start + HOUR, self.closed)
        else:
            self.panes[start].append(report)
        self.records += 1
        self.newest = max(self.newest, time)
        self.closed = max(self.closed, self.newest - GRACE - OUT_OF_ORDER)


class Hours:
    """Sends reports of several hours to all partitions."""

    def __init__(self, world):
        self.world, self.rng = world, random.Random(7)
        self.first = 1_700_000_000_000 // HOUR * HOUR
        self.told = {partition: Told() for partition in range(world.partitions)}

    def send(self, hours, each=40):
        """Sends reports of these hours, some out of order, some late."""
        for hour in hours:
            for partition, told in self.told.items():
                for i in range(each):
                    time = self.first + hour * HOUR + HOUR * i // each
                    kind = self.rng.random()
                    if kind < 0.2:
                        time -= self.rng.randrange(GRACE)
                    elif kind < 0.25:
                        time = max(self.first, time - self.rng.randrange(4 * HOUR))
                    drawn = self.world.draw(1)
                    value = frames.encode(self.world.stream, drawn)
                    future = self.world.producer.send(
                        self.world.topic, value=value, partition=partition, timestamp_ms=time
                    )
                    self.world.sent.futures.append(future)
                    self.world.sent.reports.append(drawn)
                    told.add(time, drawn)
            self.world.producer.flush()
        self.world.settle()

    def window(self, start, hours):
        """Returns the reports of a window."""
        starts = range(start, start + hours * HOUR, HOUR)
        return [report for told in self.told.values() for at in starts for report in told.panes.get(at, ())]

    def finals(self, name, since=0):
        """Returns the starts of final windows with reports."""
        hours = 3 if name.startswith("3h") else 1
        closed = min(told.closed for told in self.told.values())
        starts = range(self.first - 3 * HOUR, closed - hours * HOUR + 1, HOUR)
        return {start for start in starts if start >= since and self.window(start, hours)}


class Topic:
    """Reads all messages of a stream's windows."""

    def __init__(self, world):
        self._name = world.name
        self._consumer = KafkaConsumer(
            bootstrap_servers=world.kafka, group_id=None, isolation_level="read_committed"
        )
        world._closing.append(lambda: self._consumer.close(autocommit=False))
        tp = TopicPartition(world.config.snapshots.topic, 0)
        self._consumer.assign([tp])
        self._consumer.seek_to_beginning(tp)
        self.said: list[dict[str, Any]] = []

    def finals(self):
        """Returns Base's documents of final windows, each published once."""
        for records in self._consumer.poll(50).values():
            for record in records:
                key = record.key.decode()
                if key.startswith(f"{self._name}/") and key.endswith("/base") and "/all/" not in key:
                    self.said.append(json.loads(record.value))
        found: dict[str, dict[int, dict[str, Any]]] = defaultdict(dict)
        for said in self.said:
            name, start = said["window"]["name"], datetime.fromisoformat(said["window"]["start"])
            at = round(start.timestamp() * 1000)
            assert at not in found[name], f"{name} from {start} was published again after it was final"
            if said["window"]["final"]:
                found[name][at] = said
        return found


def assert_finals(world, hours, topic, since=0):
    """Asserts the set and the values of final windows."""
    names = ("1h", "3h every 1h")
    due = {name: hours.finals(name, since) for name in names}
    until(lambda: {name: {*topic.finals()[name]} for name in names} == due, f"the finals {due}")
    for name, listed in topic.finals().items():
        for start, said in listed.items():
            reports = hours.window(start, 3 if name.startswith("3h") else 1)
            assert said["reports"] == len(reports)
            np.testing.assert_allclose(
                said["frequencies"], base(world.stream, np.concatenate(reports)), rtol=1e-9, atol=1e-12
            )
            assert said["complete"]


def assert_late_dead_letters(world, hours):
    """Asserts the dead letters of late records."""
    late = {(p, at): facts for p, told in hours.told.items() for at, facts in told.late.items()}
    found = dead_letters(world, len(late), once=False)
    for where, (value, headers) in found.items():
        report, facts = late[where]
        assert (value, headers["__connect.errors.exception.class.name"]) == (
            frames.encode(world.stream, report),
            "late",
        )
        said = tuple(int(headers[f"late.{name}"]) for name in ("timestamp", "start", "end", "closed"))
        assert said == facts
    assert world.totals()["rejected"] == {}


def assert_audit_equal(world, topic):
    """Asserts that the audit recounts each final window as equal."""
    world.assert_audit_equal(whole=True)
    verdict, finals = world.audit(), topic.finals()
    assert verdict.finals == verdict.recounted == sum(map(len, finals.values())) > 0
    assert verdict.panes > 0


def test_windows_become_final_once_and_exact_despite_killed_workers(kafka, redis_url, tmp_path):
    with World(
        kafka, redis_url, tmp_path, partitions=2, reports=SETTINGS, late_dead_letters=True, **TABLE
    ) as world:
        topic, hours = Topic(world), Hours(world)
        first, second = world.start(2)
        for begin in range(0, 12, 3):
            hours.send(range(begin, begin + 3))
            world.covered()
            if begin in (3, 6):
                victim, second = (first, second) if begin == 3 else (second, world.launch())
                victim.kill()
        assert_finals(world, hours, topic)
        last = world.covered()
        world.assert_right(last)
        assert sum(len(told.late) for told in hours.told.values()) > 20
        late = [json.loads(world.redis.hget(f"{{{world.name}:{p}}}:meta", "totals"))["late"] for p in (0, 1)]
        assert [sum(said.values()) for said in late] == [len(told.late) for told in hours.told.values()]
        assert_late_dead_letters(world, hours)
        assert_audit_equal(world, topic)
        assert world.audit().late == sum(map(sum, (said.values() for said in late)))
