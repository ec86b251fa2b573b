"""Our own topics, with what anybody may have written to them: no reader of them stops, and each ends where they do."""

import struct
import threading
from contextlib import closing

import pytest
from click.testing import CliRunner
from kafka import KafkaConsumer, KafkaProducer
from kafka.admin import ConfigResource, ConfigResourceType

from tests.integration.harness import World, until
from tests.integration.harness.batches import GZIP, ZSTD, batch, compressed, produce, record
from worker.cli import cli
from worker.counting.ports import Unavailable
from worker.kafka.snapshots import outbox, removal
from worker.kafka.snapshots.reader import SnapshotReader
from worker.kafka.snapshots.rows import RowReader
from worker.kafka.snapshots.topic import SnapshotTopic

pytestmark = pytest.mark.integration

NO_TEXT = [(b"\xff\xfe", b"\x00"), (b"parts", b"9" * 5000), (b"sequence", None)]
DEEP = b"[" * 200_000
FORGED = (
    b"\xff",
    DEEP,
    b'{"a":' * 10_000 + b"1" + b"}" * 10_000,
    b'{"schema": 1, "sequence": 1e400, "reports": true, "offsets": {"0": NaN}}',
)


@pytest.fixture
def world(local_services, tmp_path):
    at = local_services.kafka.address, local_services.redis.address
    with World(*at, tmp_path, partitions=1, rows={}) as world:
        yield world


def run(world, command, *options):
    return CliRunner().invoke(cli, [command, *options, "--config", str(world.toml)])


def forge(world, topic, keys):
    """Writes what the client library cannot read, of what is too large, and what is no document."""
    for key in keys:
        for value in FORGED:
            produce(world.kafka, topic, 0, batch(record(value, key=key, headers=NO_TEXT)))
        produce(world.kafka, topic, 0, batch(record(None, key=key + b"x", headers=NO_TEXT)))
    for codec in (GZIP, ZSTD):
        bomb = compressed(codec, [record(bytes(65 << 20), key=keys[0])])
        produce(world.kafka, topic, 0, batch(bomb, codec=codec))
    long_key = compressed(ZSTD, [record(b"x", key=keys[0] + bytes(60 << 20))])
    large = compressed(ZSTD, [record(b" " * (60 << 20), key=keys[0])])
    for bomb in (long_key, large):
        produce(world.kafka, topic, 0, batch(bomb, codec=ZSTD))


def test_hostile_records_on_our_topics_stop_nobody(world):
    world.put(b"no frame")
    world.send(40)
    (worker,) = world.start()
    world.covered()
    until(lambda: worker.metric("dead_letters_total") == 1, "the dead letter is there")
    assert worker.terminate() == 0
    config, name = world.config, world.name.encode()
    forge(
        world,
        config.snapshots.topic,
        [name + end for end in (b"/head", b"/all/base", b"/1h/x/base", b"/domain")],
    )
    forge(world, config.rows.topic, [b'{"stream":"%s","x"' % name, b"\n\\.\n"])
    forge(world, config.dead_letters.topic, [b"reports/0/1"])
    world.send(10)
    worker = world.launch()
    until(lambda: worker.metric("snapshot_reports") == world.n, "the snapshot of all is there")
    assert not worker.events("stream.stopped")
    assert not worker.events("serve.retry")
    assert worker.metric("passed_over_total") >= 2
    assert {event["why"] for event in worker.events("record.passed_over")} >= {
        "record batch: size",
        "key: more than 4096 bytes",
    }
    until(lambda: worker.get(f"/streams/{world.name}/snapshot")[0] == 200, "the page has it")
    watched = run(world, "watch", "--once")
    assert watched.exit_code == 0, watched.stderr
    assert "is passed over (record batch: size)" in watched.stderr
    checked = run(world, "check")
    assert checked.exit_code == 0, checked.output
    for command, options in (
        ("audit", ()),
        ("rows", ()),
        ("dead-letters", ("--json",)),
    ):
        said = run(world, command, *options)
        assert said.exit_code == 0, (command, said.output)
    assert worker.terminate() == 0
    produce(world.kafka, config.snapshots.topic, 0, batch(record(b"garbage", key=name + b"/head")))
    for command, options in (("audit", ()), ("watch", ("--once",))):
        said = run(world, command, *options)
        assert said.exit_code == 0, (command, said.output)
        assert "is passed over (no " in said.stderr
    assert run(world, "remove", world.name).exit_code == 0


@pytest.fixture
def busy(world):
    """Other programs write to the snapshot topic without a pause."""
    ended = threading.Event()
    writing = threading.Thread(target=write_until, args=(world, ended))
    writing.start()
    yield
    ended.set()
    writing.join()


def write_until(world, ended):
    with closing(KafkaProducer(bootstrap_servers=world.kafka, linger_ms=1)) as producer:
        while not ended.is_set():
            producer.send(world.config.snapshots.topic, key=b"others/head", value=b"{}", partition=0)
            ended.wait(0.002)


@pytest.mark.long
def test_a_stream_without_a_head_is_counted_while_others_write_the_snapshot_topic(world, busy):
    topic = SnapshotTopic(world.config.kafka.client(), world.name, world.config.snapshots.topic)
    heads = outbox.KafkaOutbox(topic, world.stream)
    for decided in (True, False):
        assert heads.head(decided=decided).sequence == 0
    world.send(40)
    world.start()
    world.covered()


def without_last_marker(data):
    """What a fetch brings, but for a control batch at its end."""
    at, last = 0, None
    while at < len(data):
        size = 12 + struct.unpack_from(">i", data, at + 8)[0]
        last, at = at, at + size
    is_marker = last is not None and struct.unpack_from(">h", data, last + 21)[0] & 32
    return data[:last] if is_marker else data


@pytest.fixture
def fetch(monkeypatch):
    """Lets a test change what every consumer fetches; the brokers are real."""
    changes, connect = [], KafkaConsumer.__init__

    def connected(self, *given, **settings):
        connect(self, *given, **settings)
        parse = self._fetcher._parse_fetched_data

        def changed(fetch):
            for change in changes:
                change(fetch)
            return parse(fetch)

        self._fetcher._parse_fetched_data = changed

    monkeypatch.setattr(KafkaConsumer, "__init__", connected)
    monkeypatch.setattr(outbox, "TIMEOUT_SECONDS", 2)
    return changes


@pytest.mark.long
def test_an_end_that_no_record_reaches_ends_every_reading(world, fetch):
    """A control batch that compaction has removed was the last of the topic."""
    world.send(40)
    (worker,) = world.start()
    sequence = world.covered().sequence
    assert worker.terminate() == 0
    config = world.config

    def compact(fetched):
        data = bytes(fetched.partition_data.records or b"")
        fetched.partition_data.records = without_last_marker(data)

    fetch.append(compact)
    topic = SnapshotTopic(config.kafka.client(), "", config.snapshots.topic)
    heads = outbox.KafkaOutbox(topic, world.stream, rows=config.rows.topic)
    for decided in (True, False):
        assert heads.head(decided=decided).sequence >= sequence
    assert heads.rows()
    assert removal.keys_of(world.admin, config, world.name)[config.snapshots.topic]
    with RowReader(config) as rows:
        assert rows.read()
        assert not rows.read()
    with SnapshotReader(config, world.name) as reader:
        assert reader.catch_up(20)
        assert reader.latest(0).sequence >= sequence
    world.assert_audit_equal()

    def withhold(fetched):
        fetched.partition_data.records = b""
        fetched.partition_data.last_stable_offset = fetched.partition_data.high_watermark = (
            fetched.fetched_offset
        )

    fetch[:] = [withhold]
    for decided in (True, False):
        with pytest.raises(Unavailable, match="do not come"):
            heads.head(decided=decided)


@pytest.mark.long
def test_numbers_that_restart_and_a_topic_that_expires_are_warned_of(world):
    """The head was deleted while no worker ran, and the brokers delete what is old."""
    world.send(40)
    (first,) = world.start()
    world.covered()
    assert first.terminate() == 0
    assert not first.events("snapshot.renumbered")
    assert not first.events("snapshot.expires")
    topic = world.config.snapshots.topic
    world.producer.send(topic, key=f"{world.name}/head".encode(), value=None, partition=0).get(30)
    expires = ConfigResource(ConfigResourceType.TOPIC, topic, {"cleanup.policy": "delete"})
    world.admin.alter_configs([expires])
    world.send(5)
    worker = world.launch()
    (warned,) = until(lambda: worker.events("snapshot.renumbered"), "that numbers restart is said")
    assert warned["reports"] >= 40
    (expired,) = until(lambda: worker.events("snapshot.expires"), "that the topic expires is said")
    assert (expired["topic"], expired["policy"]) == (topic, "delete")
    until(lambda: worker.events("snapshot.published"), "it is published")
    assert worker.events("snapshot.published")[0]["sequence"] == 1
