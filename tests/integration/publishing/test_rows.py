"""Rows in Postgres equal the newest snapshots."""

import json
import random
import subprocess
import sys
import threading
from datetime import datetime

import pytest
from click.testing import CliRunner

from deploy.local.workers import ROOT
from tests.long.kills.dying import Aim
from tests.long.kills.points import ROWS, Ground, Point
from tests.long.kills.steps import DELETED
from tests.support.harness import World, foreign, until
from tests.support.harness.connect import sink
from tests.support.harness.postgres import rows as select
from tests.support.harness.rows import KEY, REST, due, flat
from worker.cli import cli

pytestmark = pytest.mark.integration

QUERIES = [{"name": "some", "values": [0, 3]}, {"name": "most", "top": 2}]


def loader(world, url, *options):
    command = [sys.executable, "-m", "deploy.rows.postgres", "--config", str(world.toml), *options, url]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


class Mortal:
    """Kills and restarts a loader until the block ends."""

    def __init__(self, world, url):
        self.world, self.url, self.killed, self.stop = world, url, 0, threading.Event()
        self.thread = threading.Thread(target=self.run)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.stop.set()
        self.thread.join()

    def run(self):
        rng = random.Random(5)
        while not self.stop.is_set():
            process = loader(self.world, self.url)
            self.stop.wait(rng.uniform(1, 8))
            process.kill()
            process.communicate()
            self.killed += 1


def number(text, kind):
    return None if text is None else kind(text)


def milli(text):
    return None if text is None else round(1000 * datetime.fromisoformat(text).timestamp())


KINDS = {
    "rank": int,
    "value": int,
    "estimate": float,
    "low": float,
    "high": float,
    "n": int,
    "sequence": int,
    "final": "t".__eq__,
    "complete": "t".__eq__,
    "window_start": milli,
    "window_end": milli,
}


def in_postgres(url):
    found = {}
    for row in select(url, "SELECT * FROM ldp_rows"):
        typed = {name: number(text, KINDS.get(name, str)) for name, text in row.items()}
        found[tuple(typed[name] for name in KEY)] = tuple(typed[name] for name in REST)
    return found


def once(world, url):
    process = loader(world, url, "--once")
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    return out


@pytest.mark.long
def test_rows_in_postgres_equal_the_snapshot_despite_kills(kafka, redis_url, tmp_path, postgres):
    url = postgres.database("killed")
    with Ground(kafka, redis_url, tmp_path / "ground", seed=0, fewest_new=0) as ground:
        topic = ground.config.rows.topic
        with Mortal(ground, url) as mortal:
            for aim in (
                Aim("publish", 7, "before", 40),  # when some of the rows were sent
                Aim("publish", 8, "after", 1),
                Aim("publish", 9, "during", 1, 0.002),
                Aim("publish", 9, "after", 1, of=DELETED),
            ):
                ground.kill(Point("runs", aim))
            ground.finish()
        assert mortal.killed > 3
        once(ground, url)
        found, said = in_postgres(url), foreign(kafka, topic)
        assert found == due(foreign(kafka, ground.config.snapshots.topic), **ROWS)
        windows = {key[1:3] for key in found}
        seen = {tuple(json.loads(message.key).values())[1:3] for message in said}
        assert len(windows) > 3
        assert seen > windows, "no window was deleted"
        # without new reports the table stays, and a second run prints nothing
        assert once(ground, url) == ""


@pytest.mark.long
def test_rows_go_through_a_sink_of_kafka_connect(kafka, redis_url, tmp_path, postgres):
    url = postgres.database("through_connect")
    labels = [f"Wert {i}, grün 🟣" for i in range(12)]
    rows, table = {"methods": ["base", "norm-sub"]}, {"labels": labels, "queries": QUERIES}
    more = {"windows": ["all", "2s"], "grace": "0s", "max_out_of_orderness": "1s", "retain": "4s"}
    with World(kafka, redis_url, tmp_path, partitions=1, domain_size=12, rows=rows, **table, **more) as world:
        world.start()
        printed = CliRunner().invoke(cli, ["rows", "--connect", "--config", str(world.toml)])
        assert printed.exit_code == 0
        settings = f"""
name=rows
connector.class=io.debezium.connector.jdbc.JdbcSinkConnector
tasks.max=1
connection.url=jdbc:postgresql://127.0.0.1:{postgres.server.port}/through_connect
connection.username=ldp
connection.password=none
insert.mode=upsert
delete.enabled=true
primary.key.mode=record_key
schema.evolution=basic
collection.name.format=ldp_rows
{printed.stdout}
"""
        with sink(kafka, tmp_path, settings):
            topic = world.config.rows.topic

            def gone():
                world.send(5, 4)
                world.settle()
                return any(message.value == b"" for message in foreign(kafka, topic))

            until(gone, "windows are deleted")
            world.covered()
            for worker in world.workers:
                worker.terminate()
            wanted = due(foreign(kafka, world.config.snapshots.topic), **rows)
            assert flat(foreign(kafka, topic)) == wanted
            until(
                lambda: select(url, "SELECT 1 FROM pg_tables WHERE tablename = 'ldp_rows'"),
                "the sink has its table",
            )
            until(lambda: in_postgres(url) == wanted, "the sink has all rows, and no more")


def command(world, *words):
    """Runs a command; returns its exit code and output."""
    result = CliRunner().invoke(cli, [words[0], "--config", str(world.toml), *words[1:]])
    return result.exit_code, result.stdout


@pytest.mark.long
def test_commands_and_a_sink_read_the_rows(kafka, redis_url, tmp_path, postgres):
    url = postgres.database("commands")
    rows, table = {"methods": ["base"]}, {"labels": ["a", "b", "c", "d"], "queries": QUERIES}
    with World(kafka, redis_url, tmp_path, partitions=1, domain_size=4, rows=rows, **table) as world:
        world.start()
        topic = world.config.rows.topic
        assert topic in command(world, "check")[1]
        assert command(world, "rows")[0] == 0
        world.send(20, 3)
        world.assert_right(world.covered())
        code, printed = command(world, "rows")
        assert code == 0
        read = [json.loads(line) for line in printed.splitlines()]
        assert [json.loads(message.value) for message in foreign(kafka, topic)][-len(read) :] == read
        wanted = due(foreign(kafka, world.config.snapshots.topic), **rows)
        assert {tuple(row[name] for name in KEY): tuple(row[name] for name in REST) for row in read} == wanted
        once(world, url)
        assert in_postgres(url) == wanted

        # a batch that continues from an outdated offset is refused, and changes nothing
        from deploy.rows.postgres import RefusedError, Table

        one, other = Table(url, topic), Table(url, topic)
        one.apply({}, one.offset + 1)
        with pytest.raises(RefusedError, match="another sink follows topic"):
            other.apply({}, other.offset + 1)

        for worker in world.workers:
            worker.terminate()
        assert f"topic {topic}: {len(wanted)} messages" in command(world, "remove", world.name)[1]
        until(
            lambda: command(world, "remove", world.name, "--yes")[0] == 0, "the worker is no member any more"
        )
        assert command(world, "rows") == (0, "")
        assert flat(foreign(kafka, topic)) == {}
        select(url, f"UPDATE ldp_rows_read SET next_offset = {one.offset - 1} RETURNING 1")
        once(world, url)
        assert in_postgres(url) == {}


def record(rank, **changes):
    """Returns key and value of a row."""
    key = {
        "stream": "s",
        "window_name": "all",
        "window_start": 0,
        "method": "base",
        "query": "",
        "rank": rank,
    }
    value = {
        "value": rank,
        "label": f"l{rank}",
        "estimate": 0.5,
        "low": 0.25,
        "high": 0.75,
        "window_end": None,
    }
    value |= {"n": 9, "sequence": 3, "final": False, "complete": True}
    return tuple(json.dumps(said, separators=(",", ":")).encode() for said in (key, key | value | changes))


PWNED = b"\n\\.\nROLLBACK;\n\\! id > pwned.txt\n\\q\n"
NO_ROWS = [
    (b"{}", b'{"a":1}\0'),
    (PWNED, b"x"),
    (b"'); DROP TABLE ldp_rows; --", b"x"),
    (record(11)[0], b'{"a":1}\0'),
    (record(12)[0], b"[" * 2000),
    (record(13)[0], record(8)[1]),
    record(14, label="a\0b"),
    record(15, n=1 << 63),
    record(16, n=-1),
    record(17, estimate=float("nan")),
    record(1 << 40),
    (record(1)[0].replace(b":", b": "), record(1)[1]),  # a second key of a row of the same snapshot
    (record(1)[0], b"garbage"),  # with the key of an existing row
]


@pytest.mark.long
def test_hostile_rows_run_no_command_and_stop_no_sink(kafka, redis_url, tmp_path, postgres):
    url = postgres.database("attacked")
    with World(kafka, redis_url, tmp_path, partitions=1, rows={}) as world:
        topic, good = world.config.rows.topic, [record(1), record(2)]
        for key, value in [good[0], *NO_ROWS, good[1]]:
            world.producer.send(topic, key=key, value=value, partition=0).get(30)
        process = loader(world, url, "--once")
        out, err = process.communicate(timeout=120)
        assert (process.returncode, out) == (0, f"2 rows of {topic} up to offset {len(NO_ROWS) + 2}\n")
        assert sum(int(line.split()[1].rstrip(":")) for line in err.splitlines()) == len(NO_ROWS), err
        assert not (ROOT / "pwned.txt").exists()
        assert {key[-1] for key in in_postgres(url)} == {1, 2}
        assert once(world, url) == ""
        printed = CliRunner().invoke(cli, ["rows", "--config", str(world.toml)])
        assert [json.loads(line) for line in printed.stdout.splitlines()] == [
            json.loads(row) for _, row in good
        ]
        assert f"{len(NO_ROWS)} records of topic" in printed.stderr


@pytest.mark.long
def test_no_snapshot_is_published_without_its_rows_topic(kafka, redis_url, tmp_path):
    with World(kafka, redis_url, tmp_path, partitions=1, rows={}) as world:
        (worker,) = world.start()
        world.admin.delete_topics([world.config.rows.topic])
        world.send(5)
        world.settle()
        until(lambda: worker.events("snapshot.retry"), "it says that it cannot publish")
        assert foreign(kafka, world.config.snapshots.topic) == []
        assert command(world, "check")[0] == 1
        assert command(world, "create-topics")[0] == 0
        world.assert_right(world.covered())
        assert flat(foreign(kafka, world.config.rows.topic)) == due(
            foreign(kafka, world.config.snapshots.topic), ["base", "norm-sub"]
        )
