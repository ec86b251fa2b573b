"""The command line: ``ldp``, a file a command; `command` is what they share.

Exit codes: 0 success; 1 failure; 2 usage error; 3 too few reports for a verdict of `audit-client`.
"""

import sys

from ldp.cli import aggregate, audit_client, document, estimate, merge, perturb, plan, reproduce
from ldp.cli.command import cli

__all__ = [
    "aggregate",
    "audit_client",
    "cli",
    "document",
    "estimate",
    "main",
    "merge",
    "perturb",
    "plan",
    "reproduce",
]


def main() -> None:
    """Runs the command line."""
    try:
        cli(prog_name="ldp")
    except OSError as error:  # a full disk behind stdout, say
        sys.exit(f"Error: {error}")
