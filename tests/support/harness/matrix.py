"""The main path: reports are counted, published and read."""

import os
from unittest import mock

from click.testing import CliRunner

from tests.support.harness.world import World
from worker.cli import cli


def main_path(world: World) -> None:
    """Sends reports to a worker; asserts counts, snapshots and commands."""
    world.start(0)
    world.send(60, 3)
    world.put(b"no frame", 0)
    world.assert_right(world.covered())
    assert sum(world.totals()["rejected"].values()) == 1
    for command, *options in (("watch", "--once"), ("audit",), ("check",)):
        said = commanded(world, command, *options)
        if command == "watch":
            assert f"{world.n:,} reports" in said


def commanded(world: World, command: str, *options: str) -> str:
    """Runs a command with the workers' environment; returns its output."""
    with mock.patch.dict(os.environ, world.environ):
        result = CliRunner().invoke(cli, [command, "--config", str(world.toml), *options])
    assert result.exit_code == 0, result.output
    return " ".join(result.output.split())
