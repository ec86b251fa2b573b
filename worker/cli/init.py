"""Command `init`: writes a configuration template."""

import sys
from importlib.resources import files
from pathlib import Path

import click

from ldp.terminal import echo
from worker.cli.command import cli, complain


@cli.command("init")
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False), default=Path("worker.toml"))
def init(file: Path) -> None:
    """Write a commented configuration with all keys.

    The file shows each key with its default. FILE must not exist. Its default is ./worker.toml.
    """
    text = files("worker").joinpath("config", "template.toml").read_text(encoding="utf-8")
    try:
        with file.open("x", encoding="utf-8") as new:
            new.write(text)
    except FileExistsError:
        complain(f"{file}: exists already; choose another file, or delete it first")
        sys.exit(2)
    except OSError as error:
        complain(f"{file}: cannot be written ({error.strerror})")
        sys.exit(2)
    echo(f"wrote {file}: set the addresses of Kafka and Redis, and your stream; then run ldp-worker check")
