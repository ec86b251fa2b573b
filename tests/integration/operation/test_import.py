"""`ldp-worker import` on real services."""

import json
import os
import signal

import pytest
from click.testing import CliRunner
from kafka import TopicPartition
from kafka.errors import RetriableError

from ldp import frames
from tests.long.kills.dying import Aim
from tests.long.kills.steps import IMPORTING
from tests.support.harness import (
    EVENT_TIME,
    TIMEOUT_SECONDS,
    WINDOWED,
    Forked,
    Sending,
    World,
    event_time,
    until,
)
from tests.support.harness.history import MOST, history
from worker.cli import cli
from worker.counting.ports import COUNTED

pytestmark = pytest.mark.integration

SIDES = ("before", "after")


def imported(world, *files):
    """Imports files; returns the command's result."""
    toml = world.configure("import")
    return CliRunner().invoke(cli, ["import", world.name, *map(str, files), "--config", str(toml)])


def keys(world):
    """Returns all keys of a stream except staged ones."""
    found = {key for key in world.redis.scan_iter(f"{{{world.name}:*") if b":staged:" not in key}
    return {
        key: world.redis.hgetall(key) if key.endswith(b":meta") else world.redis.get(key) for key in found
    }


def committed(world):
    """Returns the group's offsets and metadata."""

    def said():
        try:
            return world.admin.list_group_offsets({world.group: None})
        except RetriableError:  # a coordinator that only just starts
            return None

    found = until(said, "the group's coordinator")[world.group]
    return {tp.partition: (at.offset, at.metadata) for tp, at in found.items() if at.offset >= 0}


@pytest.fixture
def mixed(local_services, tmp_path):
    """A stream with aborted, good and malformed records."""
    with World(
        local_services.kafka.address,
        local_services.redis.address,
        tmp_path,
        partitions=3,
        reports=EVENT_TIME,
        **WINDOWED,
    ) as world:
        aborting = world.open_producer(transactional_id=f"{world.name}-aborting")
        aborting.init_transactions()
        aborting.begin_transaction()
        for partition in (0, 1):
            world.put(b"aborted", partition, aborting).get(TIMEOUT_SECONDS)
        aborting.abort_transaction()
        until(lambda: [world.ends()[p] for p in (0, 1)] == [2, 2], "the markers are written")
        fill(world)
        yield world


def fill(world):
    """Sends good and malformed records."""
    world.send(60, 2)
    world.send(15, 3, as_json=True)
    for partition in range(world.partitions):
        for value in (b"noise", b"{}", None):
            world.put(value, partition)
        world.put(frames.encode(world.stream, world.draw(MOST + 1)), partition)  # too many, for the batch
    world.send(30)
    world.settle()


def test_an_imported_stream_continues_and_the_audit_is_equal(mixed):
    world, ends = mixed, mixed.ends()
    files = [history(world, p, end - 7) for p, end in sorted(ends.items())]
    done = imported(world, *files)
    assert done.exit_code == 0, done.output
    assert [line.rsplit(" ", 3)[1:] for line in done.stdout.splitlines()] == [
        ["offset", f"{end - 7},", "imported"] for _, end in sorted(ends.items())
    ]
    assert committed(world) == {p: (end - 7, COUNTED) for p, end in ends.items()}
    before = world.audit()
    assert (before.difference, before.lag) == (None, 7 * 3)
    again = imported(world, *files)
    assert (again.exit_code, again.stdout.count(", already imported\n")) == (0, 3)
    world.assert_keys()
    first, second = world.start(2)
    with Sending(world, when=event_time) as sending:
        sending.more(100)
        first.kill()
        sending.more(100)
        third = world.launch()
        sending.more(50)
    last = world.covered()
    world.assert_right(last)
    assert last.complete
    assert world.totals()["rejected"] == {"version": 3, "json": 3, "empty": 3, "many": 3}
    # the batch is found again after further counting; running workers may evict panes
    assert [worker.terminate() for worker in (second, third)] == [0, 0]
    counted = keys(world)
    again = imported(world, *files)
    assert (again.exit_code, again.stdout.count(", already imported\n")) == (0, 3)
    # and everything else of them is refused
    other = imported(world, history(world, 0, ends[0] - 2), *files[1:])
    assert (other.exit_code, other.stdout) == (1, "")
    assert "partition 0: it already has counts up to offset" in other.stderr
    assert keys(world) == counted


@pytest.mark.long
def test_an_import_killed_at_any_step_is_all_or_nothing(local_services, tmp_path):
    aims = [Aim("import", step.number, side) for step in IMPORTING for side in SIDES]
    with World(
        local_services.kafka.address, local_services.redis.address, tmp_path, partitions=len(aims)
    ) as world:
        world.send(6 * len(aims), 2)
        world.settle()
        world.send(2 * len(aims))
        files = [history(world, partition, 6) for partition in range(len(aims))]
        environ = {name: value for name, value in os.environ.items() if not name.startswith("LDP_WORKER_")}
        for partition, aim in enumerate(aims):
            log, point = tmp_path / f"{partition}.log", tmp_path / f"{partition}.point"
            point.write_text(json.dumps(vars(aim)))
            options = [world.name, str(files[partition]), "--config", str(world.toml), "--point", str(point)]
            forked = Forked.fork_server.fork("tests.long.kills.dying", options, environ, log, "import")
            assert forked.wait(60) == -signal.SIGKILL, log.read_text()
            there, mirrored = ((aim.number, SIDES.index(aim.side)) >= done for done in ((8, 1), (9, 1)))
            tag = f"{{{world.name}:{partition}}}:".encode()
            stored = (
                {tag + b"meta", tag + b"window:all@" + world.stream.fingerprint.hex().encode()}
                if there
                else set()
            )
            assert {key for key in keys(world) if key.startswith(tag)} == stored, aim
            assert (partition in committed(world)) == mirrored, aim
            again = imported(world, files[partition])
            assert again.exit_code == 0, again.output
            assert ("already imported" in again.stdout) == there, aim
            assert committed(world)[partition] == (6, COUNTED)
        world.assert_keys()
        assert world.audit().difference is None
        world.start()
        world.assert_right(world.covered())


@pytest.mark.long
def test_an_import_that_would_lose_or_double_reports_is_refused(local_services, tmp_path):
    with World(local_services.kafka.address, local_services.redis.address, tmp_path, partitions=2) as world:
        world.send(40)
        world.settle()
        good, longer, late = history(world, 0, 15), history(world, 1, 20), history(world, 0, 18)
        damaged = tmp_path / "damaged.ldp"
        damaged.write_bytes(good.read_bytes()[:-1])
        refused = imported(world, good, damaged)
        assert (refused.exit_code, refused.stdout) == (1, "")
        assert f"{damaged}: the state file is truncated or damaged" in refused.stderr
        world.admin.delete_records({TopicPartition(world.topic, 0): 17})
        refused = imported(world, good, longer)
        assert "the counts end at offset 15, but the log begins at 17" in refused.stderr
        assert keys(world) == {}
        assert imported(world, longer).exit_code == 0
        world.admin.delete_records({TopicPartition(world.topic, 1): 10})
        # records deleted later by retention cannot be recounted, as the audit reports for any counts
        assert world.audit().verdict == "not recountable"
        assert imported(world, late).exit_code == 0
        world.start()
        assert world.covered().reports == 40
        assert world.audit().verdict == "not recountable"
