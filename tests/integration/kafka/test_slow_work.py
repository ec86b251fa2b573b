"""A batch that takes longer than the poll interval."""

import threading
import time
from functools import partial

import pytest
from kafka import KafkaConsumer

import ldp
from tests.support.harness import World, until
from worker.counting.partition_state import MOST_COST
from worker.kafka.reports import log as consumer
from worker.observe.metrics import Metrics
from worker.service.stream import StreamWorker

pytestmark = [pytest.mark.integration, pytest.mark.long]

SECONDS = 0.5
"""Seconds to count one report."""
INTERVAL = 12.0
"""Seconds without a poll after which the client leaves its group."""


def count(metrics, name):
    families = (family.samples for family in metrics.registry.collect())
    return sum(s.value for samples in families for s in samples if s.name == f"ldp_worker_{name}")


def test_a_slow_batch_keeps_its_membership_and_commits_in_between(kafka, redis_url, tmp_path, monkeypatch):
    accumulate = ldp.GRR.accumulate_runs

    def slowly(self, addresses, runs, reports):
        time.sleep(SECONDS * len(reports))
        accumulate(self, addresses, runs, reports)

    monkeypatch.setattr(ldp.GRR, "accumulate_runs", slowly)
    monkeypatch.setattr(ldp.GRR, "cost", MOST_COST)
    patient = partial(KafkaConsumer, max_poll_interval_ms=int(1000 * INTERVAL))
    monkeypatch.setattr(consumer, "KafkaConsumer", patient)
    table = {"protocol": "grr", "domain_size": 5}
    with World(kafka, redis_url, tmp_path, partitions=2, **table) as world:
        records = int(1.5 * INTERVAL / SECONDS)
        world.send(records - 24, partition=0)
        world.send(1, reports=24, partition=0)  # this single record takes the complete interval
        world.settle()
        metrics, stopping, offsets, silent = Metrics(), threading.Event(), set(), []
        worker = StreamWorker(world.config, world.served, metrics, stopping)
        worker.start()

        def counted():
            silent.append(time.monotonic() - worker.progress.heartbeat_at)
            offsets.add(world.totals()["offsets"].get(0, 0))
            return max(offsets) == records - 23

        try:
            until(counted, "all is counted")
            assert count(metrics, "claims_total") == 2  # no partition was revoked
            assert count(metrics, "reports_total") == world.n
            assert count(metrics, "errors_total") == 0
        finally:
            stopping.set()
            worker.join(60)
        assert worker.progress.ended
        assert worker.progress.error is None
        assert len(offsets) > 4
        assert max(silent) < INTERVAL
        assert world.totals()["accepted"] == records - 23
