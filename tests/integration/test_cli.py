"""The commands against real services, without a worker: topics made once, checked, filled; nothing changed twice."""

import json
import time
from contextlib import closing

import pytest
import redis
from click.testing import CliRunner
from kafka import KafkaConsumer, KafkaProducer, TopicPartition

import ldp
from ldp import frames, snapshot
from tests.integration.harness import TIMEOUT_SECONDS
from worker.cli import cli
from worker.config import load
from worker.counting import layout
from worker.counting.partition_state import PartitionState
from worker.kafka.reports.log import KafkaLog

pytestmark = pytest.mark.integration


@pytest.fixture
def run(tmp_path, kafka, redis_url, admin):
    name = f"cli-{tmp_path.name}-{id(tmp_path):x}"
    path = tmp_path / "worker.toml"
    path.write_text(
        f'group = "{name}"\n[kafka]\nbootstrap_servers = ["{kafka}"]\n[redis]\nurl = "{redis_url}"\n'
        f'[snapshots]\ntopic = "{name}-snapshots"\n[dead_letters]\ntopic = "{name}-dead"\n'
        f'[[streams]]\nname = "{name}"\ntopic = "{name}-reports"\nprotocol = "grr"\nepsilon = "1"\n'
        'labels = ["red", "green", "blue"]\n',
        encoding="utf-8",
    )

    def run(command, *args):
        return CliRunner().invoke(cli, [command, "--config", str(path), *args])

    run.name, run.path = name, path
    yield run
    ours = [topic for topic in admin.list_topics() if topic.startswith(f"{name}-")]
    if ours:
        admin.delete_topics(ours)


def levels(result, subject):
    return {row["level"] for row in json.loads(result.stdout) if row["subject"].startswith(subject)}


def test_topics_are_missing_then_made_then_left_alone(run):
    before = run("check", "--json")
    assert before.exit_code == 1
    assert levels(before, "topic") == {"error"}
    made = json.loads(run("create-topics", "--partitions", "3", "--json").stdout)
    assert [(row["created"], row["partitions"]) for row in made] == [(True, 3), (True, 1), (True, 1)]
    again = json.loads(run("create-topics", "--partitions", "5", "--json").stdout)
    assert [(row["created"], row["partitions"]) for row in again] == [(False, 3), (False, 1), (False, 1)]
    after = run("check", "--json")
    assert after.exit_code == 0, after.stdout
    assert "error" not in levels(after, "")


def test_point_20_records_older_than_the_retention_by_their_own_time_are_warned_of(run, kafka):
    run("create-topics", "--partitions", "2")
    stream = load(run.path, {}).streams[0].stream
    report, now = frames.encode(stream, stream.oracle.perturb([1])), round(1000 * time.time())
    for days, warned in ((6, False), (30, True)):
        with closing(KafkaProducer(bootstrap_servers=kafka)) as producer:
            sent = producer.send(f"{run.name}-reports", report, timestamp_ms=now - days * 86_400_000)
            sent.get(TIMEOUT_SECONDS)
        found = json.loads(run("check", "--json").stdout)
        texts = [row["text"] for row in found if row["subject"] == f"topic {run.name}-reports"]
        assert any("goes by the producers' timestamps" in text for text in texts) == warned


def test_simulate_sends_every_report_to_all_partitions(run, kafka, tmp_path):
    run("create-topics", "--partitions", "2")
    counts, truth = tmp_path / "counts.csv", tmp_path / "truth.json"
    counts.write_text("label,n\nred,5\nblue,3\n", encoding="utf-8")
    sending = ("--counts", str(counts), "--column", "n", "--users", "5000", "--malformed-share", "0.02")
    result = run("simulate", *sending, "--truth", str(truth))
    assert result.exit_code == 0, result.output
    said = json.loads(truth.read_text(encoding="utf-8"))
    assert said["users"] == sum(said["histogram"]) == said["records"] == 5000
    assert said["histogram"][1] == 0
    partitions = [TopicPartition(f"{run.name}-reports", number) for number in range(2)]
    with closing(KafkaConsumer(bootstrap_servers=kafka, group_id=None)) as consumer:
        ends = consumer.end_offsets(partitions)
    assert sum(ends.values()) == said["records"] + said["malformed"]
    assert min(ends.values()) > 0


def records_of(kafka, topic, many):
    with closing(
        KafkaConsumer(topic, bootstrap_servers=kafka, group_id=None, auto_offset_reset="earliest")
    ) as consumer:
        found, deadline = [], time.monotonic() + 60
        while len(found) < many and time.monotonic() < deadline:
            found += [record for records in consumer.poll(200).values() for record in records]
    return found


def test_windows_go_by_the_brokers_time_unless_they_are_to_go_by_the_producers(run, kafka, admin, tmp_path):
    with run.path.open("a", encoding="utf-8") as file:
        file.write('windows = ["1h"]\ngrace = "10m"\nout_of_order = "5m"\n')
    counts = tmp_path / "counts.csv"
    counts.write_text("label,n\nred,5\nblue,3\n", encoding="utf-8")
    sending = ("simulate", "--counts", str(counts), "--column", "n", "--users", "3000")
    spread = (*sending, "--hours", "6", "--jitter", "90s")
    reports = f"{run.name}-reports"

    run("create-topics", "--partitions", "2")
    checked = run("check", "--json")
    assert checked.exit_code == 0, checked.stdout
    (said,) = [row["text"] for row in json.loads(checked.stdout) if row["subject"].startswith("windows of")]
    assert "by the broker's time" in said
    refused = run(*spread)
    assert refused.exit_code == 1
    assert "6 given" in refused.stderr
    assert "create-topics --event-time" in refused.stderr

    admin.delete_topics([reports])
    deadline = time.monotonic() + 60
    while reports in admin.list_topics() and time.monotonic() < deadline:
        time.sleep(0.1)
    run("create-topics", "--partitions", "2", "--event-time")
    checked = run("check", "--json")
    assert checked.exit_code == 0, checked.stdout
    began = time.time() * 1000
    sent = run(*spread)
    assert sent.exit_code == 0, sent.output
    ended = time.time() * 1000
    found = records_of(kafka, reports, 3000)
    assert len(found) == 3000
    hour = 3_600_000
    assert began - 6 * hour <= min(record.timestamp for record in found) <= ended - 6 * hour + 5 * 60_000
    assert began - 5 * 60_000 <= max(record.timestamp for record in found) <= ended
    for partition in range(2):
        newest = 0
        for record in (record for record in found if record.partition == partition):
            assert record.timestamp >= newest - 90_000
            newest = max(newest, record.timestamp)


def test_watch_without_a_snapshot_says_so(run):
    run("create-topics")
    result = run("watch", "--once", "--timeout", "0.5")
    assert result.exit_code == 1
    assert "no snapshot of" in result.stderr
    assert "ldp-worker run" in result.stderr


@pytest.mark.parametrize("command", ["audit", "watch", "simulate"])
def test_what_needs_a_topic_says_how_to_make_it(run, tmp_path, command):
    counts = tmp_path / "counts.csv"
    counts.write_text("label,n\nred,5\n", encoding="utf-8")
    options = {"simulate": ("--counts", str(counts), "--column", "n", "--users", "5")}
    result = run(command, *options.get(command, ()))
    assert result.exit_code == 1
    topic = f"{run.name}-{'snapshots' if command == 'watch' else 'reports'}"
    (line,) = result.stderr.splitlines()
    assert (
        line == f"ldp-worker: topic {topic!r} does not exist; ldp-worker create-topics makes what is missing"
    )


def test_a_refused_topic_is_a_line_and_exit_1(run):
    result = run("create-topics", "--replication-factor", "1000")
    assert result.exit_code == 1
    assert "could not be created" in result.stderr
    assert "Traceback" not in result.output


def test_an_audit_before_anything_is_counted(run):
    run("create-topics", "--partitions", "2")
    result = run("audit", "--json")
    assert result.exit_code == 0, result.stderr
    verdict = json.loads(result.stdout)
    assert (verdict["equal"], verdict["counted"]) == (True, False)
    assert [row["counted"] for row in verdict["partitions"]] == [False, False]


def test_check_sees_snapshots_and_counts_of_another_stream(run, kafka, redis_url):
    run("create-topics", "--partitions", "1")
    config = load(run.path, {})
    stream = config.streams[0].stream
    assert levels(run("check", "--json"), "snapshots of") == {"ok"}
    # a worker of another epsilon has been here
    other, lineage = ldp.Stream(stream.name, ldp.GRR("2", 3)), {"group": "g", "topic_id": "t"}
    announced = snapshot.announce(other, snapshot.Cut({0: 5}, {}), 12, lineage, "ab" * 16, reports=5)
    with closing(KafkaProducer(bootstrap_servers=kafka)) as producer:
        for message in snapshot.encode(announced):
            sent = producer.send(
                f"{run.name}-snapshots",
                message.body,
                message.key.encode(),
                headers=list(message.headers(1)),
                partition=0,
            )
            sent.get(TIMEOUT_SECONDS)
    with redis.Redis.from_url(redis_url) as client:
        lineage = json.dumps({"fingerprint": "00c0ffee"})
        key = layout.meta_key(stream.name, 0)
        fields = layout.fields(layout.initial(lineage, PartitionState(0, 0)), key)
        client.hset(key, mapping=fields)
    result = run("check", "--json")
    assert result.exit_code == 1
    found = {row["subject"]: row for row in json.loads(result.stdout)}
    assert found[f"snapshots of {stream.name}"]["level"] == "error"
    text = found[f"snapshots of {stream.name}"]["text"]
    assert "number 12, of other counts than this configuration's: " in text
    assert f"fingerprint '{other.fingerprint.hex()}' there" in text
    assert found[f"counts of {stream.name}"]["level"] == "error"


def test_a_log_knows_in_time_whether_its_topic_exists(run, kafka):
    """Until the client was told, it is not known; neither answer may come before, nor stay away."""
    run("create-topics", "--partitions", "3")
    for topic, partitions in ((f"{run.name}-reports", {0, 1, 2}), (f"{run.name}-none", set())):
        with closing(KafkaLog.connect({"bootstrap_servers": kafka}, run.name, topic, 64 << 20)) as log:
            deadline = time.monotonic() + 60
            while (found := log.partitions()) is None and time.monotonic() < deadline:
                log.poll(100)
            assert found == partitions
