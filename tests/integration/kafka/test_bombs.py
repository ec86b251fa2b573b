"""Decompression bombs: the worker keeps counting within its memory limit."""

import ast
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.harness import Hostile, Watched, World
from tests.support.harness.batches import GZIP, LZ4, NONE, SNAPPY, ZSTD, batch, compressed, large, record
from tests.support.harness.hostile import PATIENT

pytestmark = pytest.mark.integration

CODECS = [GZIP, SNAPPY, LZ4, ZSTD]
MIB = 1 << 20
CAP = 16 * MIB
MEMORY = 1_000_000_000
WIDE = {"max.message.bytes": str(96 * MIB)}
"""Settings of a topic that accepts the largest bomb."""


@pytest.fixture
def world(kafka, redis_url, tmp_path):
    """A stream with reports of one byte."""
    with World(
        kafka, redis_url, tmp_path, partitions=1, reports=WIDE, client=PATIENT, protocol="grr", domain_size=3
    ) as world:
        yield world


@pytest.fixture
def hostile(world):
    return Hostile(world)


def bomb(codec, size):
    return batch(compressed(codec, large(size)), codec=codec)


def peak(worker):
    """Returns the peak memory of a worker in bytes."""
    status = Path(f"/proc/{worker.process.pid}/status").read_text(encoding="ascii")
    said = dict(line.split(":", 1) for line in status.splitlines())
    return int(said["VmHWM"].split()[0]) * 1024


def limited(world):
    """Starts a worker with a limit on its memory."""
    worker = world.launch()
    resource.prlimit(worker.process.pid, resource.RLIMIT_DATA, (MEMORY, MEMORY))
    return worker


@pytest.mark.long
@pytest.mark.parametrize("size", [256 * MIB, 1024 * MIB], ids=["256 MiB", "1 GiB"])
def test_a_decompression_bomb_of_every_codec_is_one_rejected_record(hostile, size):
    worker = limited(hostile.world)
    hostile.good()
    with Watched(worker):
        for codec in CODECS:
            hostile.bad(bomb(codec, size), "size")
        hostile.assert_outcome(worker)
    assert peak(worker) < MEMORY


@pytest.mark.long
def test_check_reads_decompression_bombs_within_bounds(hostile):
    world = hostile.world
    hostile.good()
    for codec in CODECS:
        hostile.throw(bomb(codec, 2 * CAP))
    hostile.throw(batch(record(b"", headers=[(b"\xff", b"")])))
    world.settle()
    looked = (
        "import pathlib, resource, sys; from worker import config; from worker.kafka.client import newest;"
        "from worker.kafka.reports.reader import newest_reports; newest._SECONDS = 90.0;"
        "config = config.load(pathlib.Path(sys.argv[1]), {}); found = newest_reports(config, config.streams[0]);"
        "print(found.records, found.with_key_or_headers, dict(found.reasons),"
        " resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)"
    )
    done = subprocess.run(
        [sys.executable, "-c", looked, str(world.toml)],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    records, with_key, rest = done.stdout.split(" ", 2)
    reasons, peak_kib = rest.rsplit(" ", 1)
    assert (int(records), int(with_key)) == (hostile.records + len(CODECS) + 1, 1)
    assert ast.literal_eval(reasons) == {"batch": len(CODECS), "empty": 1}
    assert int(peak_kib) * 1024 < MEMORY


def test_batches_just_within_and_just_over_the_limit(hostile):
    head = bytes([1]) + hostile.world.stream.fingerprint
    hostile.good()
    for codec in [NONE, *CODECS]:
        hostile.bad(batch(compressed(codec, large(CAP)), codec=codec), "size")
        inside = large(CAP - 64, head)
        offset = hostile.throw(batch(compressed(codec, inside), codec=codec))
        hostile.values[0, offset] = head + bytes(CAP - 64 - len(head)), "many"
    worker = limited(hostile.world)
    with Watched(worker):
        hostile.assert_outcome(worker)
    assert peak(worker) < MEMORY


@pytest.mark.long
def test_a_batch_of_53_million_reports_in_8_kilobytes(kafka, redis_url, tmp_path):
    size = 53_000_000
    client = {"max_batch_bytes": 64 * MIB, "memory_bytes": 1024 * MIB} | PATIENT
    with World(
        kafka, redis_url, tmp_path, partitions=1, client=client, protocol="grr", domain_size=3
    ) as world:
        hostile = Hostile(world)
        hostile.good()
        head = bytes([1]) + world.stream.fingerprint
        made = batch(compressed(ZSTD, large(size, head)), codec=ZSTD)
        assert len(made) < 10_000
        hostile.values[0, hostile.throw(made)] = head + bytes(size - len(head)), "many"
        worker = limited(world)
        with Watched(worker):
            hostile.assert_outcome(worker)
        assert peak(worker) < MEMORY


@pytest.mark.long
def test_deep_and_large_json_is_rejected_within_bounds(hostile):
    mark = f'{{"fingerprint":"{hostile.world.stream.fingerprint.hex()}","reports":'.encode()
    size = CAP - 64

    def filled(head, filling, tail=b""):
        return (head + filling * (size // len(filling)))[: size - len(tail)] + tail

    hostile.good()
    hostile.malformed(
        [
            (filled(mark, b"["), "json"),
            (filled(b"", b'{"a":'), "json"),
            (filled(mark + b"[", b"9", b"]}"), "range"),
            (filled(mark + b"[-", b"9", b"]}"), "range"),
            (filled(b'{"', b"\\u0000"), "json"),
            (filled(mark + b'["', b"A", b'"]}'), "json"),
            (mark + b"[" + b"0," * 5_000_000 + b"0]}", "many"),
        ]
    )
    worker = limited(hostile.world)
    with Watched(worker):
        hostile.assert_outcome(worker)
    assert peak(worker) < MEMORY
