"""Rejected records in metrics, events, `check` and `dead-letters`."""

import json

import pytest
from click.testing import CliRunner

import ldp
from ldp import frames
from tests.support.harness import World, until
from worker.cli import cli

pytestmark = pytest.mark.integration


def run(world, command, *options):
    return CliRunner().invoke(cli, [command, "--config", str(world.toml), *options])


def said(result):
    return " ".join((result.stdout + result.stderr).split())


def of_another_epsilon(world):
    """Returns a frame of a client with another ε."""
    stream = ldp.Stream("other", ldp.OLH("2", domain_size=world.stream.oracle.domain_size))
    return frames.encode(stream, stream.oracle.perturb([1]))


def put(world, *values, partition=None):
    world.sent.futures += [world.put(value, partition) for value in values]
    world.settle()


def reports_finding(world):
    result = run(world, "check", "--json")
    (found,) = [row for row in json.loads(result.stdout) if row["subject"] == f"reports of {world.name}"]
    return result.exit_code, found


def test_rejected_records_of_another_epsilon_are_reported(kafka, redis_url, tmp_path):
    with World(kafka, redis_url, tmp_path, partitions=2) as world:
        fingerprint = world.stream.fingerprint.hex()
        exit_code, found = reports_finding(world)
        assert (exit_code, found["level"], found["text"]) == (
            0,
            "ok",
            f"fingerprint {fingerprint}; no record yet",
        )
        result = run(world, "watch", "--once", "--timeout", "0.1")
        assert f"topic {world.topic}: fingerprint {fingerprint}; no record yet" in said(result)

        # only clients with another ε: no record is accepted
        put(world, *(of_another_epsilon(world) for _ in range(20)), b"noise")
        exit_code, found = reports_finding(world)
        assert (exit_code, found["level"]) == (1, "error")
        assert f"fingerprint {fingerprint}; all of the newest 21 records are rejected" in found["text"]
        assert found["text"].endswith("fingerprint 20, version 1")
        assert f"ldp-worker document --stream {world.name}" in found["hint"]
        (worker,) = world.start()
        event, *_ = until(lambda: worker.events("records.rejected"), "the warning")
        assert (event["level"], event["stream"], event["accepted"]) == ("warning", world.name, 0)
        assert event["offset"] in (0, 10)
        assert set(event["reasons"]) <= {"fingerprint", "version"}
        until(lambda: worker.metric("rejected_total") == 21, "all are rejected")
        result = run(world, "watch", "--once", "--timeout", "1")
        assert result.exit_code == 1
        assert f"topic {world.topic}: fingerprint {fingerprint}; all of the newest 21 records are" in said(
            result
        )
        assert "rejected: fingerprint 20, version 1; " in said(result)
        assert "fingerprint: the fingerprint names another document" in said(result)

        # and among others
        world.send(21)
        world.assert_right(world.covered())
        exit_code, found = reports_finding(world)
        assert (exit_code, found["level"]) == (0, "warning")
        assert "50 % of the newest 42 records are rejected" in found["text"]
        assert worker.terminate() == 0
        # the log does not quote records
        assert "noise" not in worker.log.read_text()
        lines = [line.split() for line in run(world, "audit").stdout.splitlines()]
        assert ["fingerprint", "20", "0,", "1"] in lines


def test_dead_letters_show_values_only_on_request(kafka, redis_url, tmp_path):
    with World(kafka, redis_url, tmp_path, partitions=2) as world:
        assert run(world, "dead-letters").stdout == "no dead letters\n"
        world.start()
        put(world, b"noise \x1b[2J", partition=0)
        put(world, b'{"my secret": 1}', b"\x00" * 5000, of_another_epsilon(world), partition=1)
        world.send(2)
        world.covered()
        result = run(world, "dead-letters")
        assert result.exit_code == 0
        lines = [line.split() for line in result.stdout.splitlines()]
        assert "the newest 4 dead letters" in result.stdout
        for reason, where, size in (
            ("version", f"{world.topic}/0/0", "10 B"),
            ("json", f"{world.topic}/1/0", "16 B"),
            ("version", f"{world.topic}/1/1", "4.9 KiB"),
            ("fingerprint", f"{world.topic}/1/2", "10 B"),
        ):
            assert any(line[1:] == [reason, where, *size.split()] for line in lines), result.stdout
        assert "secret" not in result.stdout
        assert "noise" not in result.stdout
        result = run(world, "dead-letters", "--value")
        assert '{"my secret": 1}' in result.stdout
        assert r"noise \x1b[2J" in result.stdout
        assert "\x1b" not in result.stdout
        tree = json.loads(run(world, "dead-letters", "--json", "--last", "2", "--stream", world.name).stdout)
        assert (tree["looked_at"], tree["reasons"]["version"], len(tree["dead_letters"])) == (4, 2, 2)
        assert run(world, "dead-letters", "--stream", "other").exit_code == 2
