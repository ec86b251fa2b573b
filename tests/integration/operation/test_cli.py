"""The commands on real services without a worker."""

import json
import re
import time
from contextlib import closing

import pytest
from click.testing import CliRunner
from kafka import KafkaConsumer, KafkaProducer, TopicPartition

from ldp import frames
from tests.support.harness import TIMEOUT_SECONDS
from worker.cli import cli
from worker.config import load

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


def test_create_topics_creates_missing_topics_once(run):
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


def test_check_warns_of_records_older_than_the_retention(run, kafka):
    run("create-topics", "--partitions", "2")
    stream = load(run.path, {}).streams[0].stream
    report, now = frames.encode(stream, stream.oracle.perturb([1])), round(1000 * time.time())
    for days, warned in ((6, False), (30, True)):
        with closing(KafkaProducer(bootstrap_servers=kafka)) as producer:
            sent = producer.send(f"{run.name}-reports", report, timestamp_ms=now - days * 86_400_000)
            sent.get(TIMEOUT_SECONDS)
        found = json.loads(run("check", "--json").stdout)
        texts = [row["text"] for row in found if row["subject"] == f"topic {run.name}-reports"]
        assert any("applies to the producers' timestamps" in text for text in texts) == warned


def test_simulate_sends_every_report_to_all_partitions(run, kafka, tmp_path):
    run("create-topics", "--partitions", "2")
    counts = tmp_path / "counts.csv"
    counts.write_text("label,n\nred,5\nblue,3\n", encoding="utf-8")
    sending = ("--counts", str(counts), "--column", "n", "--users", "5000", "--malformed-share", "0.02")
    result = run("simulate", *sending)
    assert result.exit_code == 0, result.output
    sent = re.match(r"5,000 reports in 5,000 records and (\d+) malformed ones sent", result.output)
    partitions = [TopicPartition(f"{run.name}-reports", number) for number in range(2)]
    with closing(KafkaConsumer(bootstrap_servers=kafka, group_id=None)) as consumer:
        ends = consumer.end_offsets(partitions)
    assert sum(ends.values()) == 5000 + int(sent[1])
    assert min(ends.values()) > 0


def test_windows_use_broker_time_or_event_time(run, kafka, admin, tmp_path):
    with run.path.open("a", encoding="utf-8") as file:
        file.write('windows = ["1h"]\ngrace = "10m"\nmax_out_of_orderness = "5m"\n')
    counts = tmp_path / "counts.csv"
    counts.write_text("label,n\nred,5\nblue,3\n", encoding="utf-8")
    sending = ("simulate", "--counts", str(counts), "--column", "n", "--users", "3000")
    spread = (*sending, "--hours", "6")
    reports = f"{run.name}-reports"

    run("create-topics", "--partitions", "2")
    checked = run("check", "--json")
    assert checked.exit_code == 0, checked.stdout
    (said,) = [row["text"] for row in json.loads(checked.stdout) if row["subject"].startswith("windows of")]
    assert "by the broker's clock" in said
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
    sent = run(*spread)
    assert sent.exit_code == 0, sent.output


def test_missing_topics_and_counts_are_named(run, tmp_path):
    counts = tmp_path / "counts.csv"
    counts.write_text("label,n\nred,5\n", encoding="utf-8")
    simulate = ("simulate", "--counts", str(counts), "--column", "n", "--users", "5")
    for command, *options in (("audit",), ("watch",), simulate):
        topic = f"{run.name}-{'snapshots' if command == 'watch' else 'reports'}"
        result = run(command, *options)
        missing = f"topic {topic!r} does not exist; ldp-worker create-topics creates missing topics"
        assert (result.exit_code, result.stderr) == (1, f"ldp-worker: {missing}\n")
    refused = run("create-topics", "--replication-factor", "1000")
    assert refused.exit_code == 1
    assert "could not be created" in refused.stderr
    assert "Traceback" not in refused.output

    run("create-topics", "--partitions", "2")
    watched = run("watch", "--once", "--timeout", "0.5")
    assert watched.exit_code == 1
    assert "no snapshot of" in watched.stderr
    audited = run("audit", "--json")
    assert audited.exit_code == 0, audited.stderr
    verdict = json.loads(audited.stdout)
    assert (verdict["equal"], verdict["counted"]) == (True, False)
    assert [row["counted"] for row in verdict["partitions"]] == [False, False]
