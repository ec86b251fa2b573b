"""Commands `ohttp-key`: keys of oblivious HTTP."""

import base64
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ldp.terminal import Commands, echo
from worker.cli.command import cli, command, complain, require_extra

if TYPE_CHECKING:
    from worker.config import Config


@cli.group("ohttp-key", cls=Commands)
def ohttp_key() -> None:
    """Make and list the gateway's keys of oblivious HTTP."""


@ohttp_key.command("new")
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
def new(file: Path) -> None:
    """Write a new private key.

    FILE must not exist. Its mode is 0600.
    """
    require_extra("gateway")
    from worker.gateway import ohttp

    try:
        key = ohttp.new_key(file)
    except OSError as error:
        complain(f"{file}: cannot be written ({error.strerror})")
        sys.exit(2)
    echo(f"wrote {file} with the id {key.id}")


@command("list", group=ohttp_key)
def list_keys(config: "Config") -> int:
    """Print the configured keys with their public configurations.

    Prints id, base64 of /ohttp-keys, and file of each key. The first is current.
    """
    require_extra("gateway")
    from worker.gateway import ohttp

    files = config.gateway.ohttp.key_files
    try:
        keys = ohttp.read_keys(files)
    except ValueError as error:
        complain(f"gateway.ohttp.key_files: {error}")
        return 2
    for file, key in zip(files, keys.values(), strict=True):
        echo(f"{key.id} {base64.b64encode(key.published).decode()} {file}")
    return 0
