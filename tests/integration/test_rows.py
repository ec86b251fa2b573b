"""Rows in real databases: what stands in a Postgres is what the newest snapshots say, whoever was killed meanwhile."""

import json
import random
import subprocess
import sys
import threading
from datetime import datetime

import pytest
from click.testing import CliRunner

from deploy.local.workers import ROOT
from tests.integration.harness import World, foreign, until
from tests.integration.harness.connect import sink
from tests.integration.harness.postgres import rows as select
from tests.integration.harness.rows import KEY, REST, due, flat
from tests.kills.dying import Aim
from tests.kills.points import ROWS, Ground, Point
from tests.kills.steps import DELETED
from worker.cli import cli

pytestmark = pytest.mark.integration

QUERIES = [{"name": "some", "values": [0, 3]}, {"name": "most", "top": 2}]


def loader(world, url, *options):
    command = [sys.executable, "-m", "deploy.rows.postgres", "--config", str(world.toml), *options, url]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


class Mortal:
    """A loader that is killed again and again, and started anew, until the block ends."""

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


def test_rows_in_postgres_equal_the_snapshot_though_publishers_and_loaders_are_killed(
    kafka, redis_url, tmp_path, postgres
):
    url = postgres.database("killed")
    with Ground(kafka, redis_url, tmp_path / "ground", 0) as ground:
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
        # what nobody has added to leaves the table as it is, and once more says nothing
        assert once(ground, url) == ""


def test_rows_go_through_a_sink_of_kafka_connect(kafka, redis_url, tmp_path, postgres):
    url = postgres.database("through_connect")
    labels = [f"Wert {i}, grün 🟣" for i in range(12)]
    rows, table = {"methods": ["base", "norm-sub"], "top": 4}, {"labels": labels, "queries": QUERIES}
    more = {"windows": ["all", "2s"], "grace": "0s", "out_of_order": "1s", "retain": "4s"}
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
            until(lambda: in_postgres(url) == wanted, "the sink has all rows, and no more")
