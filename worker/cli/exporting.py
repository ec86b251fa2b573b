"""Command `export`: writes counts to files for import on another cluster."""

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ldp.terminal import echo
from worker.cli.command import amount, command, complain, reach

if TYPE_CHECKING:
    from worker.config import Config


@command("export")
@click.argument("stream")
@click.argument("mirror", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.argument("folder", type=click.Path(file_okay=False, path_type=Path))
def export(config: "Config", stream: str, mirror: Path, folder: Path) -> int:
    """Write counts to files for import on another cluster.

    MIRROR is the configuration for the cluster with the mirrored topic. The command writes a file for each partition
    into FOLDER. ldp-worker import reads these files, and workers continue at the end of the mirrored partition.

    Stop producers and workers first, and let the mirror catch up. The command refuses if records are not counted yet,
    if the newest records of the two clusters differ, or if the mirror lacks the first record.
    """
    from worker.config import load
    from worker.counting.ports import StateLost, Unavailable
    from worker.importing import Refused

    there = load(mirror)
    for each in (config, there):
        reach(each, each.served(stream).topic)
    try:
        _export(config, there, stream, folder)
    except (Refused, StateLost, Unavailable) as error:
        complain(f"{error}")
        return 1
    return 0


def _export(config: "Config", there: "Config", name: str, folder: Path) -> None:
    from worker.importing import Refused, mirrored
    from worker.kafka.client.newest import newest_records
    from worker.kafka.reports.non_member_log import KafkaNonMemberLog
    from worker.publishing import stored_cut
    from worker.redis.connecting import connect
    from worker.store.redis import RedisStore

    served, other = config.served(name), there.served(name)
    if served.stream.document() != other.stream.document():
        raise Refused(f"stream {name!r} has another document in the mirror's configuration")
    ends, newest = [], []
    for each, topic in ((config, served.topic), (there, other.topic)):
        group, settings = each.consumer_group(name), each.kafka.client()
        with contextlib.closing(KafkaNonMemberLog.connect(settings, group, topic)) as log:
            ends.append({p: end for p, (_, end) in log.bounds(log.partitions()).items()})
        last = newest_records(each, topic).items()
        newest.append({p: (of[-1].timestamp, of[-1].value) for p, of in last if of})
    if ends[0].keys() != ends[1].keys():
        raise Refused(f"the topic has {len(ends[0])} partitions, but its mirror {len(ends[1])}")
    if behind := sorted(p for p, last in newest[0].items() if newest[1].get(p) != last):
        raise Refused(f"partition {', '.join(map(str, behind))}: the mirror has another newest record")
    with connect(config.redis) as client:
        found = stored_cut.read(
            served.fleet, RedisStore(client, name), [*ends[0]], lambda _: (), lambda: None
        )
    histories = {
        p: mirrored(served.stream, p, found.states.get(p), end, other.topic, ends[1][p])
        for p, end in sorted(ends[0].items())
    }
    folder.mkdir(parents=True, exist_ok=True)
    for p, history in histories.items():
        if history is not None:
            history.write(folder / f"{name}-{p}.ldp")
            counted = f"{amount(history.reports, 'report')} in {amount(history.records, 'record')}"
            echo(f"partition {p}: {counted} up to offset {ends[0][p]}, offset {ends[1][p]} of the mirror")
