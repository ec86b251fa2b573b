"""The command line: ``ldp-worker``, a file a command; `command` is what they share.

Exit codes: 0 asked to stop, or all is well; 1 a failure; 2 usage or configuration; 3 an audit that could not tell.
"""

from worker.cli import (
    audit,
    check,
    create_topics,
    dead_letters,
    document,
    exporting,
    importing,
    init,
    remove,
    rows,
    run,
    simulate,
    watch,
)
from worker.cli.command import cli

__all__ = [
    "audit",
    "check",
    "cli",
    "create_topics",
    "dead_letters",
    "document",
    "exporting",
    "importing",
    "init",
    "main",
    "remove",
    "rows",
    "run",
    "simulate",
    "watch",
]


def main() -> None:
    """Runs the command line."""
    cli(prog_name="ldp-worker")
