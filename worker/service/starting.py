"""Starting another process of this installation, which loses a line to this one when either ends, in whatever way."""

import os
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path


def python() -> list[str]:
    """Returns the interpreter of this installation, which takes no module from the folder that it is started in."""
    return [sys.executable, *([] if str(Path.cwd()) in sys.path else ["-P"])]


def start(
    command: Sequence[str], environ: Mapping[str, str] | None = None
) -> tuple[subprocess.Popen[bytes], socket.socket]:
    """Starts a process; returns it, and this end of a line to it.

    Args:
        command: what it runs; the descriptor of its end of the line is added.
        environ: its environment; None for this one's.

    Raises:
        OSError: there is no room for another process.
    """
    ours, theirs = socket.socketpair()
    with theirs:
        try:
            started = subprocess.Popen(
                [*command, str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                env=dict(os.environ if environ is None else environ),
                pass_fds=[theirs.fileno()],
                process_group=0,  # a terminal's Ctrl-C is the parent's to hear
            )
        except OSError:
            ours.close()
            raise
    return started, ours
