"""Command `shuffle`: moves uploads to the topics of reports."""

from typing import TYPE_CHECKING

from worker.cli.command import command

if TYPE_CHECKING:
    from worker.config import Config


@command("shuffle")
def shuffle(config: "Config") -> int:
    """Permute uploads and move them to the topics of reports.

    Serves every stream that has an intake, until SIGTERM or SIGINT. Several processes share the intake partitions.
    """
    from worker.observe import logs
    from worker.service import shuffle as service

    logs.configure(config.log_level)
    return service.run(config)
