"""Work that takes longer than a client may be silent: the worker stays alive, in its group, and commits in between.

What is slow here is made slow: counting a report sleeps. So the workers run on threads of this process.
"""

import threading
import time
from functools import partial

import pytest
from kafka import KafkaConsumer

import ldp
from tests.integration.harness import World, until
from worker.counting.partition_state import MOST_WORK
from worker.kafka.reports import log as consumer
from worker.observe.metrics import Metrics
from worker.service.stream import StreamWorker

pytestmark = pytest.mark.integration

SECONDS = 0.5
"""What one report takes."""
INTERVAL = 12.0
"""How long this test's clients may go without a poll before they leave their group."""


class Slow:
    """Workers on threads, and how long each of them was silent at most."""

    def __init__(self, world):
        self.world, self.stopping = world, threading.Event()
        self.workers, self.metrics, self.silent = [], [], 0.0

    def __enter__(self):
        self.watching = threading.Thread(target=self._watch)
        self.watching.start()
        return self

    def __exit__(self, *_):
        self.stopping.set()
        self.watching.join()
        for worker in self.workers:
            worker.join(60)
            assert worker.progress.ended
            assert worker.progress.error is None

    def start(self):
        self.metrics.append(Metrics())
        worker = StreamWorker(self.world.config, self.world.served, self.metrics[-1], self.stopping)
        self.workers.append(worker)
        worker.start()
        return worker

    def _watch(self):
        while not self.stopping.wait(0.05):
            for worker in self.workers:
                self.silent = max(self.silent, time.monotonic() - worker.progress.stepped)

    def count(self, name, **labels):
        """The sum of a metric over all workers."""
        return sum(
            sample.value
            for metrics in self.metrics
            for family in metrics.registry.collect()
            for sample in family.samples
            if sample.name == f"ldp_worker_{name}" and labels.items() <= sample.labels.items()
        )


@pytest.fixture
def slow(kafka, redis_url, tmp_path, monkeypatch):
    """Workers of a stream of two partitions whose reports take long, one a slice."""
    accumulate = ldp.GRR._accumulate

    def slowly(self, state, reports):
        time.sleep(SECONDS * len(reports))
        accumulate(self, state, reports)

    monkeypatch.setattr(ldp.GRR, "_accumulate", slowly)
    monkeypatch.setattr(ldp.GRR, "work", MOST_WORK)
    patient = partial(KafkaConsumer, max_poll_interval_ms=int(1000 * INTERVAL))
    monkeypatch.setattr(consumer, "KafkaConsumer", patient)
    with World(
        kafka, redis_url, tmp_path, partitions=2, store={"timeout_seconds": 30}, protocol="grr", domain_size=5
    ) as world:
        yield Slow(world)


def test_point_9_a_slow_batch_is_counted_in_the_group_and_committed_on_the_way(slow):
    world = slow.world
    records = int(1.5 * INTERVAL / SECONDS)
    world.send(records - 24, partition=0)
    world.send(1, reports=24, partition=0)  # a record that takes as long as the group waits
    world.settle()
    offsets = set()
    with slow:
        slow.start()

        def counted():
            offsets.add(world.totals()["offsets"].get(0, 0))
            return max(offsets) == records - 23

        until(counted, "all is counted")
        assert slow.count("claims_total") == 2  # nothing was taken away, so nothing was claimed again
        assert slow.count("reports_total") == world.n
        assert slow.count("errors_total") == 0
    assert len(offsets) > 4
    assert slow.silent < INTERVAL
    assert world.totals()["accepted"] == records - 23


@pytest.mark.long
def test_point_9_a_rebalance_within_a_slow_batch_loses_and_doubles_nothing(slow):
    world = slow.world
    records = int(1.5 * INTERVAL / SECONDS)
    for partition in (0, 1):
        world.send(records, partition=partition)
    world.settle()
    with slow:
        slow.start()
        until(lambda: slow.count("reports_total") >= 4, "the first is at work")
        slow.start()
        until(lambda: slow.workers[1].progress.state == "serving", "the second joins, and need not wait")
        until(lambda: world.totals()["offsets"] == {0: records, 1: records}, "all is counted")
        assert slow.count("claims_total") == 3
        assert slow.count("errors_total") == 0
        # what was polled for the other is not counted, and not counted twice: only what was under way may be
        assert world.n <= slow.count("reports_total") <= world.n + 4
    assert slow.silent < INTERVAL
    assert world.totals()["accepted"] == world.n
