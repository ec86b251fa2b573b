"""The example that reads the snapshot topic, on a real one."""

import io
import subprocess
import sys
from pathlib import Path

import pandas
import pytest

from tests.integration.harness import World

EXAMPLE = Path(__file__).parents[2] / "ldp" / "examples" / "snapshots.py"


@pytest.mark.integration
def test_a_snapshot_becomes_a_data_frame(kafka, redis_url, tmp_path):
    labels = [f'"value", {value}' for value in range(40)]
    with World(kafka, redis_url, tmp_path, labels=labels) as world:
        (worker,) = world.start()
        world.send(50, reports=10)
        world.covered()
        assert worker.terminate() == 0
        newest = world.snapshots.newest()
        command = [sys.executable, EXAMPLE, kafka, world.config.snapshots.topic, world.name]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
        assert done.returncode == 0, done.stderr
    head, _, rest = done.stdout.partition("\n")
    assert head == f"snapshot {newest.sequence} of {world.name}: 500 reports"
    frame = pandas.read_csv(io.StringIO(rest))
    assert list(frame.columns) == [
        *("value", "label", "frequency", "std_error", "low", "high"),
        *newest.bodies,
    ]
    assert list(frame["label"]) == labels
    for method, body in newest.bodies.items():
        assert frame[method].to_numpy() == pytest.approx(body.frequencies, abs=1e-12)
    base = newest.bodies["base"]
    assert frame["low"].to_numpy() == pytest.approx(base.low, abs=1e-9)
    assert frame["high"].to_numpy() == pytest.approx(base.high, abs=1e-9)
