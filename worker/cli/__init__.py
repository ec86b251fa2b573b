"""Command line ``ldp-worker``: one module for each command.

Exit codes: 0 success, or stopped on request; 1 failure; 2 usage or configuration error; 3 `audit` cannot recount all.
"""

from worker.cli import (  # noqa: F401
    audit,
    check,
    create_topics,
    dead_letters,
    document,
    gateway,
    importing,
    init,
    ohttp_key,
    remove,
    rows,
    run,
    shuffle,
    simulate,
    watch,
)
from worker.cli.command import cli

__all__ = ["cli", "main"]


def main() -> None:
    """Runs the command line."""
    cli(prog_name="ldp-worker")
