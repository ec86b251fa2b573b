"""Partitions as earlier versions stored them, in a real Redis: a worker of today goes on with them, and is right."""

import json
import struct
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from kafka import TopicPartition

from tests.integration.harness import TIMEOUT_SECONDS, World, until
from worker.counting import layout
from worker.kafka import topics

pytestmark = pytest.mark.integration

VECTORS = {
    f"{layout}/{path.stem}": path
    for layout in (1, 2, 3)
    for path in (Path(__file__).parents[1] / "vectors" / f"redis-layout-{layout}").glob("*.json")
    if "+" not in path.read_text()  # without panes: the worker here has no windows
}
NOTHING = ([0, 0, 0], 0, {})
LEFT = dict.fromkeys(("1/claimed", "2/claimed", "3/claimed"), ([6, 1, 3], 5, {"version": 1}))
"""What a vector's log has beyond what is counted of it, by hand: state, accepted and rejected records."""


def put(world, vector):
    """Brings a vector's log to Kafka and its partition to Redis; returns the lineage that it is to go on under.

    Only what a real topic and this test's group make otherwise is replaced.
    """
    for record in vector["log"]:
        value = bytes.fromhex(record["value"]) or None
        key = b"no value" if value is None else None
        sent = world.producer.send(world.topic, value, key, partition=0, timestamp_ms=record["timestamp"])
        assert sent.get(TIMEOUT_SECONDS).offset == record["offset"]
    world.send(5, reports=3)  # at once: the broker's retention goes by the newest timestamp
    world.settle()
    if vector["log_begins"]:
        world.admin.delete_records({TopicPartition(world.topic, 0): vector["log_begins"]})
    topic_id = topics.describe(world.admin, [world.topic])[world.topic].topic_id
    lineage = json.loads(vector["fields"]["lineage"])
    assert lineage["fingerprint"] == world.stream.fingerprint.hex()
    stored = json.dumps(lineage | {"group": world.group, "topic_id": topic_id}, sort_keys=True)
    tag = f"{{{world.name}:0}}"
    metadata = layout.parse(vector["fields"], "{colours:0}:meta")
    key = f"{tag}:meta"
    world.redis.hset(key, mapping=layout.fields(replace(metadata, lineage=stored), key))
    for window, blob in vector["blobs"].items():
        world.redis.set(f"{tag}:window:{window}", bytes.fromhex(blob))
    lineage = json.loads(stored)
    lineage.pop("windows", None)
    return json.dumps(lineage | {"layout": 3}, sort_keys=True)


@pytest.mark.parametrize(
    "name",
    [
        name if name.startswith("3/") else pytest.param(name, marks=pytest.mark.long)
        for name in sorted(VECTORS)
    ],
)
def test_a_worker_of_today_goes_on_with_it(name, kafka, redis_url, tmp_path):
    vector = json.loads(VECTORS[name].read_text())
    counted = vector["counted"]
    left, accepted, rejected = LEFT.get(name, NOTHING)
    for_ever = {"retention.ms": "-1"}  # the records are of 1970
    with World(
        kafka,
        redis_url,
        tmp_path,
        partitions=1,
        reports=for_ever,
        store={"timeout_seconds": 30},  # a claim whose reply is late is another one, of another epoch
        protocol="grr",
        domain_size=3,
    ) as world:
        lineage = put(world, vector)
        (worker,) = world.start()
        until(lambda: world.totals()["offsets"] == {0: 15}, "all is counted")
        (claimed,) = worker.events("partition.claimed")
        assert (claimed["start"], claimed["offset"]) == ("resume", counted["offset"])

        meta = {
            key.decode(): said.decode()
            for key, said in world.redis.hgetall(f"{{{world.name}:0}}:meta").items()
        }
        assert meta["lineage"] == lineage
        assert int(meta["epoch"]) == int(vector["fields"]["epoch"]) + 1
        totals = json.loads(meta["totals"])
        assert totals["accepted"] == counted["accepted"] + accepted + 5
        assert totals["rejected"] == counted["rejected"] | rejected
        assert (totals["start"], totals["gaps"]) == (counted["start"], counted["gaps"])
        assert totals["rules"][: len(counted["rules"])] == counted["rules"]
        blob = world.redis.get(f"{{{world.name}:0}}:window:all")
        width = 1 if max(counted["state"]) < 200 else 2
        form = f"<4sIq16sqII3{' BH'[width]}"
        magic, entries, offset, flush, reports, each, _, *state = struct.unpack(form, blob)
        assert (magic, entries, offset, flush.hex(), each) == (b"LDP3", 3, 15, meta["flush"], width)
        sent = np.bincount(world.sent.whole(world.stream)["index"], minlength=3).tolist()
        assert state == [a + b + c for a, b, c in zip(counted["state"], left, sent, strict=True)]
        assert reports == sum(state) == counted["reports"] + sum(left) + 15

        difference = world.audit().difference
        if counted["start"] < vector["log_begins"]:
            assert "not recountable: offsets 0 to 1: counted, then deleted" in difference
            assert "nothing differs in what remains" in difference
        else:
            assert difference is None
        snapshot = world.covered()
        assert snapshot.cut.offsets == {0: 15}
        assert snapshot.reports == reports
        assert snapshot.complete == (not counted["gaps"])
