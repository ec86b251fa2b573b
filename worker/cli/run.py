"""Command `run`: serves all streams."""

from dataclasses import replace
from typing import TYPE_CHECKING

import click

from worker.cli.command import command, complain

if TYPE_CHECKING:
    from worker.config import Config

_MOST_PROCESSES = 64
_PROCESSES = "LDP_WORKER_PROCESSES"


@command("run", silent=False)
@click.option(
    "--processes",
    type=click.IntRange(1, _MOST_PROCESSES),
    default=1,
    show_default=True,
    envvar=_PROCESSES,
    show_envvar=True,
    help="Number of worker processes, with one /metrics for all. Use at most one per core and per partition.",
)
@click.option(
    "--child", type=(int, int), hidden=True, help="Number of this process, and its connection to the parent."
)
def run(config: "Config", processes: int, child: tuple[int, int] | None) -> int:
    """Serve all streams until SIGTERM or SIGINT.

    Logs to stderr: one line per event, in JSON unless stderr is a terminal. See log_level.
    """
    from worker.observe import logs

    if child is None and processes > 1:
        from worker.service import processes as several

        logs.configure(config.log_level)
        return several.run(config, processes, _command())
    logs.configure(config.log_level, process=None if child is None else child[0])
    try:
        from worker.service import run as service
    except RuntimeError as error:  # numba raises it without a folder for compiled code
        complain(f"{error}\nset NUMBA_CACHE_DIR to a writable folder")
        return 2
    if child is None:
        return service.run(config)
    from worker.config.schema import Http
    from worker.service.children import Parent

    number, descriptor = child
    alone = replace(
        config, http=Http(host="127.0.0.1", port=0, page=False), kafka=config.kafka.numbered(number)
    )
    return service.run(alone, Parent(descriptor))


def _command() -> list[str]:
    from worker.service.children import python

    path = click.get_current_context().params["config"]
    return [*python(), "-m", "worker", "run", "--config", str(path)]
