"""Command `import`: starts partitions with counts from another program."""

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ldp.terminal import amount, echo
from worker.cli.command import command, complain, reach

if TYPE_CHECKING:
    from worker.config import Config
    from worker.importing import Prefix

_AGAIN = "stored imports stay; run ldp-worker check to find the cause, then import again"


@command("import")
@click.argument("stream")
@click.argument(
    "files", nargs=-1, required=True, type=click.Path(exists=True, dir_okay=False, path_type=Path)
)
def import_(config: "Config", stream: str, files: tuple[Path, ...]) -> int:
    """Start partitions with counts from another program.

    Each of FILES is a state that a job on Spark or Beam wrote: the counts of a range of one partition's log. Workers
    continue after the range. The command records the rule of the counts, so that ldp-worker audit recounts them.

    Import before a worker counts the stream for the first time. The command imports nothing if a partition has or had
    counts, or if the import leaves a hole in the log. After an interruption, run the command again.

    The configured windows start after the highest imported timestamp.
    """
    from worker.counting.ports import StateLost, Unavailable
    from worker.importing import Refused

    served = config.served(stream)
    reach(config, served.topic)
    reach(config, config.snapshots.topic)
    try:
        _import(config, stream, files)
    except (Refused, StateLost) as error:
        complain(f"{error}")
        return 1
    except Unavailable as error:
        closed = "AuthorizationFailed" in str(error)
        complain(f"{error}\n{error.remedy if closed else _AGAIN}")
        return 1
    return 0


def _import(config: "Config", name: str, files: tuple[Path, ...]) -> None:
    from ldp.state import State
    from worker.importing import Import, Refused
    from worker.kafka.reports.non_member_log import KafkaNonMemberLog
    from worker.kafka.snapshots.producer import KafkaSnapshotProducer
    from worker.kafka.snapshots.topic import SnapshotTopic
    from worker.redis.connecting import connect
    from worker.store.redis import RedisStore

    served, settings, group = config.served(name), config.kafka.client(), config.consumer_group(name)
    try:
        histories = {str(file): State.read(file) for file in files}
    except ValueError as error:
        raise Refused(str(error)) from None
    identity, table = config.transactional_id(name), config.snapshots
    snapshots = SnapshotTopic(settings, identity, table.topic, compression=table.compression)
    with (
        contextlib.closing(KafkaNonMemberLog.connect(settings, group, served.topic)) as log,
        connect(config.redis) as client,
    ):
        store, snapshot_producer = RedisStore(client, name), KafkaSnapshotProducer(snapshots, served.stream)
        Import(group, served.fleet, served.topic, log, store, snapshot_producer).run(histories, _show)


def _show(prefix: "Prefix", before: bool) -> None:
    history, covered = prefix.history, prefix.covered
    counted = f"{amount(history.reports, 'report')} in {amount(history.records, 'record')}"
    done = "already imported" if before else "imported"
    echo(f"partition {covered.partition}: {counted} up to offset {covered.offset}, {done}")
