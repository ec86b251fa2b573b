"""Malformed records: rejection by reason, dead letters, unchanged counts."""

import hashlib
import json
import random

import numpy as np
import pytest
from kafka.admin import ConfigResource, ConfigResourceType

import ldp
from ldp import frames
from tests.support.harness import TIMEOUT_SECONDS, World, assert_snapshot_topic, dead_letters, until
from worker.kafka.dead_letters.sampling import DEAD_LETTERS_A_SECOND

pytestmark = pytest.mark.integration

REASONS = ("empty", "version", "fingerprint", "length", "range", "many", "json")


def malformed(stream):
    """Returns (value, reason) pairs for an OLH stream."""
    head = bytes([1]) + stream.fingerprint
    mark, g = stream.fingerprint.hex(), stream.oracle.g
    noise = random.Random(5)
    other = ldp.Stream("other", ldp.OLH("2", domain_size=stream.oracle.domain_size))
    good = frames.encode(stream, np.array([(1, 0), (2, 1)], stream.oracle.report_dtype))

    def said(reports, fingerprint=mark):
        return f'{{"fingerprint":"{fingerprint}","reports":{reports}}}'.encode()

    return [
        (b"", "empty"),
        (None, "empty"),
        (b"\x03" + good[1:], "version"),
        (b"\x00" + noise.randbytes(1_000_000 - 1), "version"),
        (frames.encode(other, other.oracle.perturb([1, 2])), "fingerprint"),
        (frames.encode_json(other, other.oracle.perturb([1, 2])), "fingerprint"),
        (head, "length"),
        (good[:-1], "length"),
        (said("[]"), "length"),
        (good + (7).to_bytes(4, "little") + b"\xff", "range"),
        (said(f"[[1,0],[1,{g}]]"), "range"),
        (head + bytes(5 * 10_001), "many"),
        (said(f"[{'[1,0],' * 10_000}[1,0]]"), "many"),
        (said("[[1.0,0]]"), "json"),
        (said("[[1,0]]")[:-1], "json"),
        (said("[[1,0]]")[:-1] + b',"reports":[[1,0]]}', "json"),
        (b'{"fingerprint":' * 60_000, "json"),
        (b"{" + noise.randbytes(1_000_000 - 1), "json"),
    ]


def send(world, bad, partition=None):
    """Sends malformed records between good ones; returns them by offset."""
    futures = []
    for value, reason in bad:
        world.send(1, reports=2, partition=partition)
        futures.append((world.put(value, partition), value, reason))
        world.send(1, as_json=True, partition=partition)
    world.settle()
    sent = {}
    for future, value, reason in futures:
        where = future.get(TIMEOUT_SECONDS)
        sent[where.partition, where.offset] = (value, reason)
    return sent


def assert_counted(world, worker, sent):
    """Asserts counts and rejections in metrics and state."""
    world.assert_right(world.covered())
    expected = {r: sum(reason == r for _, reason in sent.values()) for r in REASONS}
    expected = {reason: count for reason, count in expected.items() if count}
    assert worker.by_label("rejected_total", "reason") == expected
    assert worker.metric("records_total", outcome="rejected") == len(sent)
    assert worker.metric("dead_letters_total") == len(sent)
    totals = world.totals()
    assert totals["rejected"] == expected
    assert totals["accepted"] == 2 * len(sent)
    assert worker.metric("stream_up") == 1
    assert_snapshot_topic(world)


def prefix(value):
    """Returns the truncated value and headers of a dead letter."""
    headers = {"truncated.sha256": hashlib.sha256(value).hexdigest(), "truncated.size": str(len(value))}
    return value[:1024], headers


def assert_dead_letter(found, sent, *, cut):
    """Asserts the value and headers of a dead letter, complete or truncated."""
    (value, headers), (original, reason) = found, sent
    assert headers["__connect.errors.exception.class.name"] == reason
    said = {key: text for key, text in headers.items() if key.startswith("truncated.")}
    if cut:
        assert (value, said) == prefix(original)
    else:
        assert (value or b"", said) == (original or b"", {})


def test_each_malformed_record_becomes_a_dead_letter(kafka, redis_url, tmp_path):
    with World(kafka, redis_url, tmp_path, partitions=3) as world:
        bad = malformed(world.stream)
        assert {reason for _, reason in bad} == set(REASONS)
        (worker,) = world.start()
        sent = send(world, bad)
        assert_counted(world, worker, sent)
        found = dead_letters(world, len(sent))
        assert found.keys() == sent.keys()
        for where, dead_letter in found.items():
            assert_dead_letter(dead_letter, sent[where], cut=False)


@pytest.mark.long
def test_dead_letters_of_a_flood_are_sampled(kafka, redis_url, tmp_path):
    with World(kafka, redis_url, tmp_path, partitions=1) as world:
        flood = 5000
        world.sent.futures += [world.put(b"\x00noise", 0) for _ in range(flood)]
        world.sent.futures.append(world.put(None, 0))  # another reason, and a key
        world.send(3)
        world.settle()
        worker = world.launch()  # started last, so that it reads all records at once
        world.assert_right(world.covered())
        assert world.totals()["rejected"] == {"version": flood, "empty": 1}
        sent, left_out = (worker.metric(f"dead_letters{name}_total") for name in ("", "_left_out"))
        assert left_out > 0
        assert sent + left_out == flood + 1
        assert worker.metric("records_with_key_or_headers_total") == 1
        found = dead_letters(world, int(sent))
        assert found.keys() >= {(0, offset) for offset in [*range(DEAD_LETTERS_A_SECOND), flood]}
        event, *_ = until(lambda: worker.events("records.rejected"), "the event")
        assert 0 < event["dead_letters_left_out"] < sum(event["reasons"].values())


@pytest.mark.long
def test_a_dead_letter_topic_with_a_small_limit(kafka, redis_url, tmp_path):
    with World(kafka, redis_url, tmp_path, partitions=1, dead_letters={"max.message.bytes": "2000"}) as world:
        noise = random.Random(8)
        bad = [(b"\x00" + noise.randbytes(size), "version") for size in (100, 1000, 3000, 50_000)]
        # single records fit, but not many in one batch
        bad += [(b"\x00" + noise.randbytes(300), "version") for _ in range(40)]
        sent = send(world, bad)
        worker = world.launch()  # started last, so that it reads all records at once
        assert_counted(world, worker, sent)
        for where, dead_letter in dead_letters(world, len(sent)).items():
            assert_dead_letter(dead_letter, sent[where], cut=len(sent[where][0]) > 2000)


@pytest.mark.long
def test_a_dead_letter_topic_that_refuses_all_stops_progress_until_it_is_fixed(kafka, redis_url, tmp_path):
    with World(kafka, redis_url, tmp_path, partitions=1, dead_letters={"max.message.bytes": "500"}) as world:
        sent = send(world, [(b"\x00" + random.Random(9).randbytes(5000), "version")])
        worker = world.launch()
        until(lambda: len(worker.events("serve.retry")) >= 2, "the worker retries")
        why = worker.says()
        assert world.config.dead_letters.topic in why
        assert "max.message.bytes" in why
        assert world.totals()["accepted"] == 0  # the record without its dead letter blocks counting
        assert not worker.events("stream.stopped")

        topic = ConfigResource(ConfigResourceType.TOPIC, world.config.dead_letters.topic)
        topic.configs = {"max.message.bytes": "10000"}
        world.admin.alter_configs([topic])
        world.assert_right(world.covered())
        for where, dead_letter in dead_letters(world, 1).items():
            assert_dead_letter(dead_letter, sent[where], cut=False)


def test_dead_letters_survive_a_killed_worker(kafka, redis_url, tmp_path):
    with World(kafka, redis_url, tmp_path, partitions=1) as world:
        world.start()
        sent = send(world, [(json.dumps(i).encode(), "version") for i in range(10)])
        world.covered()
        world.workers[0].kill()
        world.expel(list(world.members()))
        sent |= send(world, [(json.dumps(i).encode(), "version") for i in range(10, 20)])
        world.start()
        world.assert_right(world.covered())
        assert world.totals()["rejected"] == {"version": 20}
        found = dead_letters(world, 20)  # no counts were lost, so no dead letter was sent twice
        for where, dead_letter in found.items():
            assert_dead_letter(dead_letter, sent[where], cut=False)
