"""Every protocol, served by one worker and recounted by the audit."""

import contextlib
from collections import Counter

import numpy as np
import pytest

from ldp import frames
from ldp.oracles import PROTOCOLS
from tests.support.harness import METHODS, World, until
from tests.support.harness.reader import Snapshots
from worker import audit, check, config
from worker.kafka.client import topics

pytestmark = pytest.mark.integration

STREAMS = {
    "grr": {"protocol": "grr", "epsilon": "3/2", "domain_size": 12},
    "olh": {"protocol": "olh", "epsilon": "1", "domain_size": 40},
    "blh": {"protocol": "olh", "epsilon": "1/2", "domain_size": 15, "g": 2},
    "oue": {"protocol": "oue", "epsilon": "1", "domain_size": 21},
    "sue": {"protocol": "sue", "epsilon": "2", "domain_size": 16},
    "subset-bits": {"protocol": "subset", "epsilon": "1", "domain_size": 30},
    "subset-indices": {"protocol": "subset", "epsilon": "3", "domain_size": 60},
    "hadamard": {"protocol": "hadamard", "epsilon": "1", "domain_size": 20},
    "pgr": {"protocol": "pgr", "epsilon": "1", "domain_size": 25},
    "unary": {"protocol": "unary", "p": "0.75", "q": "0.1", "domain_size": 8},
    "response": {"protocol": "response", "p": "0.7502601", "labels": ["low", "high"]},
}
MALFORMED = {b"": "empty", b"noise": "version", b"\x01": "length"}


def encoded(stream):
    """Returns records of every form with 480 reports in total, and malformed records."""
    rng, d = np.random.default_rng(20_200_616), stream.oracle.domain_size

    def draw(n):
        return stream.oracle.perturb(np.minimum(rng.geometric(0.2, n) - 1, d - 1), rng=rng)

    forms = [
        (frames.encode, 1, 40),
        (frames.encode_json, 1, 40),
        (frames.encode, 20, 10),
        (frames.encode_json, 20, 10),
    ]
    return [encode(stream, draw(n)) for encode, n, times in forms for _ in range(times)] + [*MALFORMED]


def test_one_worker_serves_every_protocol(kafka, redis_url, tmp_path):
    assert {table["protocol"] for table in STREAMS.values()} == set(PROTOCOLS)
    with World(kafka, redis_url, tmp_path, partitions=2) as world, contextlib.ExitStack() as stack:
        names = {name: f"{world.name}-{name}" for name in STREAMS}
        tables = [{"name": names[name], "topic": names[name]} | table for name, table in STREAMS.items()]
        toml = world.configure("every", *tables)
        loaded = config.load(toml, {})
        topics.create(world.admin, loaded, world.partitions, 1)
        stack.callback(world.admin.delete_topics, list(names.values()))
        assert [f for f in check.findings(loaded) if f.level is check.Level.ERROR] == []
        served = loaded.streams[1:]
        for one in served:
            for number, value in enumerate(encoded(one.stream)):
                world.sent.futures.append(world.producer.send(one.topic, value=value, partition=number % 2))
        world.settle()
        worker = world.launch(toml)
        for one in served:
            reader = Snapshots(kafka, loaded.snapshots.topic, one.stream.name)
            stack.callback(reader.close)

            def found(reader=reader):
                assert worker.alive()
                newest = reader.newest()
                whole = newest is not None and sum(newest.cut.offsets.values()) == 100 + len(MALFORMED)
                return newest if whole else None

            newest = until(found, f"a snapshot of all of {one.stream.name}")
            assert newest.reports == 480
            assert list(newest.bodies) == METHODS
            verdict = audit.verify(one, loaded)
            assert (verdict.difference, verdict.lag, verdict.reports) == (None, 0, 480), one.stream.name
            rejected = Counter()
            for partition in verdict.partitions:
                rejected.update(partition.rejected)
            assert rejected == Counter(MALFORMED.values()), one.stream.name
            assert worker.metric("dead_letters_total", stream=one.stream.name) == len(MALFORMED)
        assert worker.terminate() == 0
