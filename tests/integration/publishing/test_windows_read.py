"""Final, provisional and deleted windows on the snapshot topic."""

import json

import numpy as np
import pytest
from click.testing import CliRunner

from ldp import frames
from ldp.snapshot import Period
from tests.support.harness import World, assert_snapshot_topic, until
from tests.support.harness.truth import base
from worker.cli import cli

pytestmark = pytest.mark.integration

HOUR = 3_600_000
MIDNIGHT = 1_767_225_600_000  # the first day of 2026
EVENT_TIME = {"message.timestamp.type": "CreateTime", "retention.ms": "-1"}


def hours(first, end, *, final, length=1, name="1h"):
    """Returns the windows that start at these hours."""
    return [
        Period(name, MIDNIGHT + h * HOUR, MIDNIGHT + (h + length) * HOUR, final) for h in range(first, end)
    ]


def send(world, sent, *several):
    """Sends reports of some hours to both partitions."""
    for hour in several:
        for partition in range(world.partitions):
            for minute in (5, 20, 30):
                drawn = world.draw(40)
                sent.setdefault(hour, []).append(drawn)
                world.sent.reports.append(drawn)
                time = MIDNIGHT + hour * HOUR + minute * 60_000
                world.sent.futures.append(
                    world.put(frames.encode(world.stream, drawn), partition, timestamp=time)
                )
    world.settle()


def test_readers_of_the_topic_see_final_provisional_and_deleted_windows(kafka, redis_url, tmp_path):
    windows = {"windows": ["1h", "3h every 1h"], "grace": "0s", "max_out_of_orderness": "1m", "retain": "3h"}
    with World(kafka, redis_url, tmp_path, partitions=2, reports=EVENT_TIME, **windows) as world:
        sent = {}
        send(world, sent, 0, 1, 2, 3)
        world.start()
        assert world.covered().reports == world.n
        there = [*hours(0, 3, final=True), *hours(3, 4, final=False)]

        def of_hours():
            return [window for window in world.snapshots.windows() if window.name == "1h"]

        until(lambda: of_hours() == there, "three hours are final, and one is not")
        for hour, window in enumerate(there):
            read = world.snapshots.window("1h", window.start)
            reports = np.concatenate(sent[hour])
            assert (read.window, read.reports, read.complete) == (window, len(reports), True)
            np.testing.assert_allclose(
                read.bodies["base"].frequencies, base(world.stream, reports), atol=1e-9
            )
        # a hopping window is what its three hours are together
        three = until(lambda: world.snapshots.window("3h every 1h", MIDNIGHT), "the first three hours")
        ones = [world.snapshots.window("1h", window.start).estimate() for window in there[:3]]
        merged = ones[0].merge(*ones[1:])
        assert merged.frequencies.tolist() == three.bodies["base"].frequencies.tolist()
        assert merged.windows == three.estimate().windows

        send(world, sent, 4, 5)
        until(
            lambda: of_hours() == [*hours(2, 5, final=True), *hours(5, 6, final=False)],
            "hours 0 and 1 are deleted, hour 4 is final",
        )
        last = world.covered()
        assert assert_snapshot_topic(world) >= last.sequence
        finals = {start: said for (name, start), said in world.snapshots.finals.items() if name == "1h"}
        assert finals.keys() == {window.start for window in hours(0, 5, final=True)}
        assert {len(said) for said in finals.values()} == {1}
        watched(world)


def watched(world):
    """Asserts the output of `ldp-worker watch`."""

    def watch(*args):
        result = CliRunner().invoke(cli, ["watch", "--config", str(world.toml), "--timeout", "10", *args])
        assert result.exit_code == 0, result.output
        return result.stdout

    listed = json.loads(watch("--list", "--json"))
    assert [(row["start"], row["final"]) for row in listed if row["name"] == "1h"] == [
        ("2026-01-01T02:00:00Z", True),
        ("2026-01-01T03:00:00Z", True),
        ("2026-01-01T04:00:00Z", True),
        ("2026-01-01T05:00:00Z", False),
    ]
    newest = watch("--once", "--window", "1h").splitlines()
    assert newest[0] == "1h from 2026-01-01T05:00:00Z to 2026-01-01T06:00:00Z, provisional"
    assert newest[1].startswith(f"{world.name}: snapshot ")
    assert "240 reports" in newest[1]
    final = json.loads(watch("--once", "--json", "--window", "1h", "--start", "2026-01-01T02:00Z"))
    assert final["window"] == {
        "name": "1h",
        "start": "2026-01-01T02:00:00Z",
        "end": "2026-01-01T03:00:00Z",
        "final": True,
        "bounded": False,
    }
    assert final["bodies"]["base"]["reports"] == 240
