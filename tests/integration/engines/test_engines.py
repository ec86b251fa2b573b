"""Spark and Beam count an archive bit for bit as the worker does."""

import os
import shutil
import subprocess
from contextlib import ExitStack
from pathlib import Path

import pytest
from click.testing import CliRunner

import ldp
from ldp import frames
from ldp.files import Aggregator
from ldp.state import State
from tests.bench.environment import environment
from tests.support.harness import World, until
from tests.support.harness.archive import archive, stored
from worker.cli import cli

pytestmark = [pytest.mark.integration, pytest.mark.long]

ROOT = Path(__file__).parents[3]
JOB_SECONDS = 600
SMALL_SPARK = (
    "--master local[2] --conf spark.ui.enabled=false --conf spark.sql.shuffle.partitions=2"
    " --conf spark.sql.codegen.wholeStage=false"  # compiled code pays for more than this
    " --driver-java-options '-XX:+UseSerialGC -XX:TieredStopAtLevel=1' pyspark-shell"
)
MOST_REPORTS = 100  # as the jobs have it
STREAMS = {
    "olh": {"protocol": "olh", "domain_size": 40},
    "pgr": {"protocol": "pgr", "domain_size": 25},
    "oue": {"protocol": "oue", "domain_size": 21},
}


def send(world):
    """Sends records of every form, some malformed."""
    world.send(200, reports=1)
    world.send(60, reports=7)
    world.send(50, reports=3, as_json=True)
    world.send(3, reports=MOST_REPORTS + 1, counted=False)
    other = ldp.Stream("other", ldp.GRR("2", domain_size=5))
    foreign = frames.encode(other, other.oracle.perturb([1]))
    cut = frames.encode(world.stream, world.draw(1))[:5]
    for i, value in enumerate(
        (None, b"", b"noise", b"{}", b"\x01", cut, foreign, b'{"fingerprint":1}', b"\xff" * 99)
    ):
        world.sent.futures.append(world.put(value, partition=i % world.partitions))


@pytest.fixture(scope="module")
def archives(services, tmp_path_factory):
    """Archives of counted topics, each with its partitions in Redis."""
    kept = []
    with ExitStack() as stack:
        worlds = []
        for table in STREAMS.values():
            folder = tmp_path_factory.mktemp("world")
            world = World(
                services.kafka.address,
                services.redis.address,
                folder,
                partitions=3,
                most_reports=MOST_REPORTS,
                **table,
            )
            worlds.append(stack.enter_context(world))
            worlds[-1].launch()
            send(worlds[-1])
        for world in worlds:
            world.covered()
            until(lambda world=world: stored_of(world), "every partition is stored")
            archive(world, world.folder / "archive")
            kept.append((world.folder / "archive", world.topic, stored_of(world)))
    return kept


def stored_of(world):
    ends = world.ends()
    found = {partition: stored(world, partition) for partition in range(world.partitions)}
    return found if all(found[partition].offset == end for partition, end in ends.items()) else None


@pytest.fixture(scope="module")
def python():
    """The Python of the engines' environment."""
    return environment(ROOT / "tests" / "support" / "engines" / "requirements.lock")


def run(job, python, *folders):
    """Runs a job of tests/support/engines in the engines' environment."""
    environ = os.environ | {
        "PYTHONPATH": str(ROOT),
        "PYSPARK_PYTHON": python,
        "PYSPARK_SUBMIT_ARGS": SMALL_SPARK,
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    done = subprocess.run(
        [python, "-m", f"tests.support.engines.{job}", *map(str, folders)],
        cwd=ROOT,
        env=environ,
        capture_output=True,
        text=True,
        timeout=JOB_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def assert_same(state, kept):
    """Asserts that a state equals a partition in Redis."""
    (cell,) = kept.cells.values()
    data, size = state.to_bytes(), len(cell.counters)
    assert data[-32 - size : -32] == cell.counters
    assert (state.reports, state.records) == (cell.reports, kept.totals["accepted"])
    assert state.rejected == kept.totals["rejected"]
    (covered,) = state.log
    assert (covered.start, covered.offset) == (kept.totals["start"], kept.offset)
    assert covered.max_timestamp == kept.totals["watermark"]


@pytest.fixture
def uncounted(services, tmp_path):
    """An uncounted stream with its archive."""
    with World(
        services.kafka.address,
        services.redis.address,
        tmp_path,
        partitions=3,
        most_reports=MOST_REPORTS,
        **STREAMS["olh"],
    ) as world:
        send(world)
        world.settle()
        archive(world, tmp_path / "archive")
        yield world


@pytest.mark.parametrize("engine", ["spark", "beam"])
def test_engines_count_an_archive_as_the_worker_does(engine, python, archives, uncounted):
    history = uncounted.folder / "archive"
    run(f"on_{engine}", python, *(folder for folder, _, _ in archives), history)
    for folder, topic, partitions in archives:
        states = [State.read(folder / f"{engine}-{topic}-{partition}.ldp") for partition in partitions]
        for state, kept in zip(states, partitions.values(), strict=True):
            assert_same(state, kept)
        whole = states[0].merge(*states[1:])
        assert (whole.reports, whole.records) == (200 + 60 * 7 + 50 * 3, 310)
        assert whole.rejected == {
            "empty": 2,
            "fingerprint": 1,
            "json": 2,
            "length": 2,
            "many": 3,
            "version": 2,
        }
    # and a stream begins with it
    done = CliRunner().invoke(
        cli,
        ["import", uncounted.name, *map(str, sorted(history.glob("*.ldp"))), "--config", str(uncounted.toml)],
    )
    assert (done.exit_code, done.stdout.count(", imported\n")) == (0, 3), done.output
    uncounted.launch()
    uncounted.send(100)
    last = uncounted.covered()
    uncounted.assert_right(last)
    assert last.complete


def test_the_examples_of_the_readme_count_the_same(python, archives, tmp_path):
    folder, _, partitions = archives[0]
    shutil.copytree(folder, tmp_path / "readme")
    run("readme", python, tmp_path / "readme")
    for partition, kept in partitions.items():
        state = State.read(tmp_path / "readme" / f"{partition}.ldp")
        more = {reason: n for reason, n in kept.totals["rejected"].items() if reason != "many"}
        assert state.rejected == more  # 101 reports are not too many there
        assert state.log[0].offset == kept.offset
    aggregator = Aggregator(state.stream)
    with (tmp_path / "readme" / "reports.jsonl").open("rb") as file:
        aggregator.read(file, "reports.jsonl")
    assert aggregator.reports == 150
    assert State.read(tmp_path / "readme" / "archive.ldp") == State.of(aggregator)
