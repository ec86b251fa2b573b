"""Serves all streams."""

from typing import TYPE_CHECKING

from worker.cli.command import command, complain

if TYPE_CHECKING:
    from worker.config import Config


@command("run")
def run(config: "Config") -> int:
    """Serve all streams until SIGTERM or SIGINT.

    Logs go to stderr: one line an event, in JSON unless stderr is a terminal.
    """
    from worker.observe import logs

    logs.configure()
    try:
        from worker.service import run as service
    except RuntimeError as error:  # numba's, of the first kernel: it has nowhere to keep compiled code
        complain(f"{error}\nset NUMBA_CACHE_DIR to a folder that can be written to")
        return 2
    return service.run(config)
