"""The commands against real services, without a worker: topics made once, checked, filled; nothing changed twice."""

import json
from contextlib import closing

import pytest
from click.testing import CliRunner
from kafka import KafkaConsumer, TopicPartition

from worker.cli import cli

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

    run.name = name
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


def test_watch_without_a_snapshot_says_so(run):
    run("create-topics")
    result = run("watch", "--once", "--timeout", "0.5")
    assert result.exit_code == 1
    assert "no snapshot of" in result.stderr
