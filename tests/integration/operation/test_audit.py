"""The audit on real services: retention, a loss, large batches."""

import json
import secrets

import pytest
from click.testing import CliRunner
from kafka import TopicPartition

from tests.support.harness import World, until
from tests.support.harness.redises import Redises
from worker import audit
from worker.cli import cli

pytestmark = pytest.mark.integration


def run(world, *options):
    return CliRunner().invoke(cli, ["audit", "--config", str(world.toml), *options])


def test_deleted_records_are_not_recountable_and_a_loss_among_the_rest_is_found(kafka, redis_url, tmp_path):
    with World(kafka, redis_url, tmp_path, partitions=3) as world:
        (worker,) = world.start()
        world.send(40, reports=2)
        world.covered()
        assert worker.terminate() == 0
        assert run(world).exit_code == 0
        ends = world.ends()
        world.admin.delete_records({TopicPartition(world.topic, p): to for p, to in ((0, 5), (1, ends[1]))})
        result = run(world, "--json")
        assert result.exit_code == 3, result.output
        tree = json.loads(result.stdout)
        assert (tree["verdict"], tree["equal"]) == ("not recountable", False)
        assert [row["verdict"] for row in tree["partitions"]] == ["not recountable"] * 2 + ["equal"]
        assert [row["deleted"] for row in tree["partitions"]] == [[[0, 5]], [[0, ends[1]]], []]
        assert [row["records"] for row in tree["partitions"]] == [ends[0] - 5, 0, ends[2]]
        assert "not recountable in partition 0, 1" in " ".join(run(world).stdout.split())

        world.change_totals(0, lambda totals: totals.update(accepted=ends[0] - 6))
        result = run(world)
        assert result.exit_code == 1
        lost = f"accepted: {ends[0] - 6} in Redis, {ends[0] - 5} recounted from the remaining records"
        assert lost in " ".join(result.stdout.split())


@pytest.mark.long
def test_a_batch_over_the_limit_is_one_rejected_record_for_the_audit_too(kafka, redis_url, tmp_path):
    with World(kafka, redis_url, tmp_path, partitions=1) as world:
        world.toml.write_text("kafka.max_batch_bytes = 4096\n" + world.toml.read_text())
        (worker,) = world.start()
        world.send(20)
        world.settle()
        for codec in (None, "gzip", "snappy", "lz4", "zstd"):
            producer = world.open_producer(compression_type=codec)
            world.sent.futures += [producer.send(world.topic, bytes(5_000), partition=0)]
            world.settle()
            world.sent.futures += [producer.send(world.topic, bytes(3_000), partition=0)]
            world.settle()
        world.send(20)
        world.covered()
        assert worker.terminate() == 0
        verdict = audit.verify(world.served, world.config)
        assert verdict.difference is None
        assert verdict.rejected == {"batch": 5, "version": 5}
        assert verdict.reports == world.n


@pytest.mark.long
def test_a_worker_on_another_redis_is_an_error_of_check_and_audit(kafka, redis_url, local_services, tmp_path):
    with (
        Redises(local_services.folder, f"another-{secrets.token_hex(3)}") as redises,
        World(kafka, redis_url, tmp_path, partitions=2) as world,
    ):
        port = redises.start().port
        another = world.configure("another", redis_url=f"redis://127.0.0.1:{port}/0")
        world.start()
        world.launch(another)
        until(world.balanced, "each of two workers owns a partition")
        world.send(40)
        world.settle()
        tps = {TopicPartition(world.topic, partition): end for partition, end in world.ends().items()}

        def committed():
            found = world.admin.list_group_offsets(world.group)[world.group]
            return {tp: at.offset for tp, at in found.items() if at.metadata == "counted"} == tps

        until(committed, "the group has counted all")
        for worker in world.workers:
            assert worker.get("/readyz")[0] == 200
        counted_progress = "but Kafka's group has counted progress"
        said = {  # the first worker claimed both partitions before they were shared
            world.toml: ("another Redis has counts of the group", "another Redis has the rest"),
            another: (f"none in Redis, {counted_progress}", f"no counts in Redis, {counted_progress}"),
        }
        for toml, (fault, difference) in said.items():
            checked = CliRunner().invoke(cli, ["check", "--config", str(toml), "--json"])
            assert checked.exit_code == 1, checked.output
            (wrong,) = [row for row in json.loads(checked.stdout) if row["level"] == "error"]
            assert wrong["subject"] == f"counts of {world.name}"
            assert fault in wrong["text"]
            audited = CliRunner().invoke(cli, ["audit", "--config", str(toml), "--json"])
            assert audited.exit_code == 1, audited.output
            tree = json.loads(audited.stdout)
            assert (tree["verdict"], tree["equal"]) == ("different", False)
            assert difference in tree["difference"]
