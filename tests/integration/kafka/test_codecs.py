"""Each codec is read as other clients frame it, and written to the worker's topics."""

import shutil
import struct
import subprocess

import numpy as np
import pytest

from deploy.local import services
from ldp import frames
from tests.support.harness import TIMEOUT_SECONDS, World

pytestmark = pytest.mark.integration

CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]
"""Indexed by the codec bits of a batch's attributes."""


@pytest.fixture
def world(local_services, tmp_path):
    with World(
        local_services.kafka.address, local_services.redis.address, tmp_path, partitions=2 * len(CODECS)
    ) as world:
        yield world


def batches(local_services, topic, partition):
    """Returns codec, records and bytes of each batch in a partition's log on the broker's disk."""
    log = local_services.folder / "kafka" / f"{topic}-{partition}" / "00000000000000000000.log"
    data, at, found = log.read_bytes(), 0, []
    while at < len(data):
        (length,) = struct.unpack_from(">i", data, at + 8)
        (attributes,) = struct.unpack_from(">h", data, at + 21)
        (records,) = struct.unpack_from(">i", data, at + 57)
        found.append((CODECS[attributes & 7], records, length))
        at += 12 + length
    return found


def lines(world, count):
    """Returns JSON records, one a line, and notes their reports as sent."""
    drawn = [world.draw(20, np.random.default_rng(seed)) for seed in range(count)]
    world.sent.reports += drawn
    return b"".join(frames.encode_json(world.stream, reports) + b"\n" for reports in drawn)


def pipe(command, data):
    done = subprocess.run(command, input=data, capture_output=True, timeout=TIMEOUT_SECONDS, check=False)
    assert done.returncode == 0, done.stderr.decode(errors="replace")


@pytest.mark.long
def test_every_codec_is_read_as_python_librdkafka_and_java_write_it(world, local_services):
    """Snappy differs most: librdkafka writes it raw, the other two use xerial's frames."""
    kcat = services.program("kcat", "kcat")
    assert kcat, "kcat, a producer of librdkafka, is required"
    for number, codec in enumerate(CODECS):
        producer = world.open_producer(
            compression_type=None if codec == "none" else codec, linger_ms=1000, batch_size=1 << 18
        )
        world.send(300, reports=20, as_json=True, partition=number, producer=producer)
        command = [kcat, "-P", "-b", world.kafka, "-t", world.topic, "-p", str(len(CODECS) + number)]
        pipe([*command, "-z", codec, "-X", "linger.ms=1000"], lines(world, 300))
    world.settle()
    own = {p: batches(local_services, world.topic, p) for p in range(world.partitions)}
    for partition, codec in enumerate(2 * CODECS):
        assert {one for one, _, _ in own[partition]} == {codec}
        per_record = sum(size for *_, size in own[partition]) / sum(count for _, count, _ in own[partition])
        assert (per_record > 250) == (codec == "none"), (codec, per_record)  # compressed records are smaller

    java = [shutil.which("java") or "java", "-cp", f"{services.kafka_jars()}/*"]
    console = [*java, "org.apache.kafka.tools.ConsoleProducer", "--bootstrap-server", world.kafka]
    pipe([*console, "--topic", world.topic, "--compression-codec", "snappy"], lines(world, 300))
    new = [one for p in own for one in batches(local_services, world.topic, p)[len(own[p]) :]]
    assert {codec for codec, _, _ in new} == {"snappy"}
    assert sum(count for _, count, _ in new) == 300

    world.start()
    world.assert_right(world.covered())
    assert world.workers[0].metric("records_total", outcome="rejected") == 0


def test_snapshots_rows_and_dead_letters_have_the_configured_codec(local_services, tmp_path):
    servers = local_services.kafka.address, local_services.redis.address
    with World(*servers, tmp_path, partitions=1, domain_size=400, rows={}) as world:
        producer, table = world.open_producer(), world.config
        read = {table.snapshots.topic: 0, table.rows.topic: 0, table.dead_letters.topic: 0}
        for codec in CODECS:
            world.environ = {"LDP_WORKER_SNAPSHOTS__COMPRESSION": codec} if codec != "gzip" else {}  # default
            (worker,) = world.start()
            producer.send(world.topic, b"malformed" * 100, partition=0)
            world.send(20)
            assert world.covered().reports == len(world.sent.reports)  # from messages of all codecs
            assert worker.terminate() == 0
            for topic in read:
                new = batches(local_services, topic, 0)[read[topic] :]
                read[topic] += len(new)
                assert {one for one, _, size in new if size > 200} == {codec}, (topic, new)
