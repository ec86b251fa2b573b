"""Hostile records on the snapshot, rows and dead-letter topics."""

import pytest
from click.testing import CliRunner
from kafka.admin import ConfigResource, ConfigResourceType

from tests.support.harness import World, until
from tests.support.harness.batches import GZIP, ZSTD, batch, compressed, produce, record
from worker.cli import cli

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


def forge(world, topic, keys, codecs=(ZSTD,)):
    """Writes records that are unreadable, too large or not a document."""
    for key in keys:
        for value in FORGED:
            produce(world.kafka, topic, 0, batch(record(value, key=key, headers=NO_TEXT)))
        produce(world.kafka, topic, 0, batch(record(None, key=key + b"x", headers=NO_TEXT)))
    for codec in codecs:
        bomb = compressed(codec, [record(bytes(65 << 20), key=keys[0])])
        produce(world.kafka, topic, 0, batch(bomb, codec=codec))
    long_key = compressed(ZSTD, [record(b"x", key=keys[0] + bytes(60 << 20))])
    large = compressed(ZSTD, [record(b" " * (60 << 20), key=keys[0])])
    for bomb in (long_key, large):
        produce(world.kafka, topic, 0, batch(bomb, codec=ZSTD))


def test_hostile_records_on_output_topics_stop_no_reader(world):
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
        (GZIP, ZSTD),
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
    until(lambda: worker.get(f"/streams/{world.name}/snapshot")[0] == 200, "the page shows the snapshot")
    watched = run(world, "watch", "--once")
    assert watched.exit_code == 0, watched.stderr
    assert "is skipped (record batch: size)" in watched.stderr
    checked = run(world, "check")
    assert checked.exit_code == 0, checked.output
    for command, options in (("audit", ()), ("rows", ()), ("dead-letters", ("--json",))):
        said = run(world, command, *options)
        assert said.exit_code == 0, (command, said.output)
    assert worker.terminate() == 0
    produce(world.kafka, config.snapshots.topic, 0, batch(record(b"garbage", key=name + b"/head")))
    for command, options in (("audit", ()), ("watch", ("--once",))):
        said = run(world, command, *options)
        assert said.exit_code == 0, (command, said.output)
        assert "partition 0, offset " in said.stderr
    assert run(world, "remove", world.name).exit_code == 0


@pytest.mark.long
def test_restarted_numbers_and_an_expiring_topic_raise_warnings(world):
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
    (warned,) = until(lambda: worker.events("snapshot.renumbered"), "the warning that numbers restart")
    assert warned["reports"] >= 40
    (expired,) = until(lambda: worker.events("snapshot.expires"), "the warning that the topic expires")
    assert (expired["topic"], expired["policy"]) == (topic, "delete")
    until(lambda: worker.events("snapshot.published"), "it is published")
    assert worker.events("snapshot.published")[0]["sequence"] == 1
