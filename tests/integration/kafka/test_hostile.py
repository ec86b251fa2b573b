"""Keys, headers and damaged record batches in the broker's log."""

import struct

import pytest
import zstandard

from ldp import frames
from tests.support.harness import Hostile, Watched, World, until
from tests.support.harness.batches import ZSTD, Segment, batch, compressed, mended, record
from tests.support.harness.hostile import PATIENT
from worker.counting.ports import Unavailable
from worker.counting.rules import RecordLimits, Rule
from worker.kafka.reports.log import KafkaLog

pytestmark = pytest.mark.integration

CODECS = range(5)


@pytest.fixture
def world(local_services, tmp_path):
    at = local_services.kafka.address, local_services.redis.address
    with World(*at, tmp_path, partitions=1, client=PATIENT) as world:
        yield world


@pytest.fixture
def hostile(world):
    return Hostile(world)


def counted(hostile, made, records=1):
    """Sends a batch of good records; returns its offset."""
    hostile.records += records
    return hostile.throw(made)


def frame(hostile, reports=2):
    """Returns the value of a good record, and adds it to the sent ones."""
    drawn = hostile.world.draw(reports)
    hostile.world.sent.reports.append(drawn)
    return frames.encode(hostile.world.stream, drawn)


def test_keys_and_headers_of_any_bytes_are_ignored(hostile):
    worker = hostile.world.launch()
    with Watched(worker):
        hostile.good()
        kinds = [
            {"key": b""},
            {"key": b"\xff\x00" * 5000},
            {"headers": [(b"", None)]},
            {"headers": [(b"", b"")] * 3000},
            {"key": b"k", "headers": [(b"traceparent", b"00-0af7651916cd43dd-00f067aa0ba902b7-01")] * 2},
            {"headers": [(b"large", b"\x01" * 70_000)]},
        ]
        for codec in CODECS:
            made = [record(frame(hostile), delta=i, **kind) for i, kind in enumerate(kinds)]
            counted(hostile, batch(compressed(codec, made), len(kinds), codec=codec), len(kinds))
            nothing = [record(None, key=b"k"), record(None, delta=1), record(b"", delta=2)]
            first = hostile.throw(batch(compressed(codec, nothing), len(nothing), codec=codec))
            hostile.values |= {(0, first + i): (b"", "empty") for i in range(len(nothing))}
        hostile.assert_outcome(worker)
        assert worker.metric("records_with_key_or_headers_total") == (len(kinds) + 1) * len(CODECS)


def damaged(good):
    """Returns damaged batches by reason, most with a valid checksum."""
    return {
        "checksum": good[:17] + bytes([good[17] ^ 1]) + good[18:],
        "codec": mended(good[:22] + b"\x05" + good[23:]),
        "length": mended(good[:57] + struct.pack(">i", 2) + good[61:]),
        "magic": good[:16] + b"\x01" + good[17:],
    }


def test_damage_in_the_log(hostile, local_services):
    world = hostile.world
    log = Segment.of(local_services.folder, world.topic, 0)
    window = zstandard.ZstdCompressionParameters(window_log=28, enable_ldm=True)
    wide = zstandard.ZstdCompressor(compression_params=window).compressobj()
    packed = batch(wide.compress(record(b"x")) + wide.flush(), codec=ZSTD)
    kinds = damaged(batch(record(b"\x01" * 100)))
    kinds |= {"other codec": mended(kinds["codec"][:22] + b"\x03" + kinds["codec"][23:]), "size": packed}
    kinds |= {"fewer": mended(kinds["length"][:57] + bytes(4) + kinds["length"][61:])}
    kinds |= {"most": mended(kinds["length"][:57] + b"\x7f\xff\xff\xff" + kinds["length"][61:])}
    why = {"other codec": "codec", "fewer": "length", "most": "length"}
    hostile.good()
    for kind, made in kinds.items():
        # the broker accepts a batch of the same size
        room = len(made) - len(batch(record(b"")))
        taken = batch(record(bytes(room - (room > 62) - (room > 63))))
        assert len(taken) == len(made), (len(taken), len(made))
        offset = hostile.throw(taken)
        _, stored = log.at(offset)
        put = stored[:16] + made[16:]
        log.overwrite(offset, put)
        hostile.note(put, offset, why.get(kind, kind))
        hostile.good()
    worker = world.launch()
    with Watched(worker):
        hostile.assert_outcome(worker)
    (retry,) = worker.events("poll.retry")  # one retry, for the checksum
    assert "checksum" in retry["error"]


def test_a_checksum_that_fails_once_is_not_damage(hostile, local_services):
    world = hostile.world
    hostile.good()
    segment = Segment.of(local_services.folder, world.topic, 0)
    _, stored = segment.at(0)
    segment.overwrite(0, damaged(stored)["checksum"])
    log = KafkaLog.connect({"bootstrap_servers": world.kafka}, world.group, world.topic, 1 << 28)
    try:
        until(lambda: log.poll(50) == [] and log.assigned() and log.generation(), "it is assigned")
        log.start(0, 0, [Rule(0, 1, RecordLimits(None, hamming_weight=True))])
        with pytest.raises(Unavailable, match="checksum of the record batch at offset 0 fails"):
            until(lambda: log.poll(50), "a batch")
        segment.overwrite(0, stored)
        log.start(0, 0, [Rule(0, 1, RecordLimits(None, hamming_weight=True))])
        (read,) = until(lambda: log.poll(50), "a batch")
    finally:
        log.close()
    assert not read.unreadable
    assert (read.start, read.columns.offsets[0]) == (0, 0)
    assert len(read.columns) > 0
