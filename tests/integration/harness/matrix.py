"""The main path over one way: reports in, counted, snapshots out, and all commands that read them; a row of a table."""

import os
from unittest import mock

from click.testing import CliRunner

from tests.integration.harness.world import World
from worker.cli import cli


def main_path(world: World) -> None:
    """Has a running stream's worker count, and shows by its own commands that all was counted."""
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
    """Runs a command that has to succeed, in the environment of the stream's workers; returns what it said."""
    with mock.patch.dict(os.environ, world.environ):
        result = CliRunner().invoke(cli, [command, "--config", str(world.toml), *options])
    assert result.exit_code == 0, result.output
    return " ".join(result.output.split())


def row(world: World, way: str, more: str = "") -> None:
    """Prints what was shown of a way, after the audit found all of it equal."""
    world.assert_audit_equal(whole=True)
    print(f"matrix: {way:44} counted {world.n} of {world.n}  audit equal{more and f'  {more}'}")
