"""The command line ``ldp``: one module per command, and shared modules.

Exit codes: 0 success; 1 failure; 2 usage error; 3 too few reports for a verdict of `audit-client`.
"""

import gc
import sys

from ldp.cli import aggregate, audit_client, document, estimate, ledger, merge, perturb, plan  # noqa: F401
from ldp.cli.command import cli

__all__ = ["cli", "main"]


def main() -> None:
    """Runs ``ldp``. Exits with 1 on an OSError."""
    gc.set_threshold(100_000)  # with the default, collections take a tenth of a first run, which compiles
    try:
        cli(prog_name="ldp")
    except OSError as error:  # such as a full disk behind stdout
        sys.exit(f"Error: {error}")
