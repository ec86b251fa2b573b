"""A snapshot of a million values by all methods."""

import json

import pytest

from ldp import snapshot
from tests.support.harness import METHODS, World, until

pytestmark = [pytest.mark.integration, pytest.mark.long]
D = 1_000_000


def test_a_million_values_are_published_and_read_back_equal(kafka, redis_url, tmp_path):
    stream = {"protocol": "pgr", "epsilon": "1", "domain_size": D}
    with World(kafka, redis_url, tmp_path, partitions=2, **stream) as world:
        world.send(2, reports=2000)
        world.settle()
        world.launch(world.configure("large"))
        ends = {str(partition): end for partition, end in world.ends().items()}

        def published():
            _, head = world.snapshots.messages().get(f"{world.name}/head", ({}, b"{}"))
            return json.loads(head).get("offsets") == ends

        until(published, "a snapshot of all reports")
        read = until(world.snapshots.newest, "the whole of it")

        # the same from the sent records, without Kafka, Redis or a worker
        oracle, sent = world.stream.oracle, world.sent.whole(world.stream)
        state = oracle.zeros()
        oracle.accumulate(state, sent)
        estimate = oracle.estimate(oracle.support(state), len(sent))
        due = snapshot.rounded(snapshot.take(world.stream, estimate, read.cut, read.sequence))
        assert list(read.bodies) == METHODS
        assert read.bodies == due.bodies
        assert (read.estimate().known_counts() == estimate.known_counts()).all()

        received = world.snapshots.messages()
        assert 30 < sum(len(value) for _, value in received.values()) / 1e6 < 65
        world.assert_audit_equal(whole=True)
