"""Recounts a topic and compares."""

from typing import TYPE_CHECKING

import click

from worker.cli.command import bar, command, complain, json_option, reach, show, stream_option

if TYPE_CHECKING:
    from worker.config import Config


@command("audit")
@stream_option
@json_option
def audit(config: "Config", stream: str | None, as_json: bool) -> int:
    """Recount the topic and compare with Redis.

    Reads the topic again up to the stored offsets, counts with code of its own, and compares bit for bit.

    \b
    exit code  verdict
    0          equal, or nothing is counted yet
    1          different; or a gap: offsets are recorded as lost, because the
               topic's retention deleted them before they were counted
    3          not recountable: retention deleted records after they were
               counted; in what remains nothing differs

    --json prints, for the stream and for each of its partitions: verdict; equal; counted, whether anything was
    yet; difference, the first one, or what else keeps it from being equal, or null; records, reports, malformed,
    which were read again; rejected, the malformed ones by reason; lag, offsets not counted yet. For a partition
    also its number, start and offset, and the stretches [from, to) of gaps, recorded as lost, and deleted, which
    cannot be recounted.
    """  # noqa: D301
    import json

    from worker import audit
    from worker.observe import logs

    logs.silence()
    served = config.served(stream)
    try:
        reach(config, served.topic)
        with bar("recounting", "offsets") as move:
            verdict = audit.audit(served, config, move)
    except audit.AuditError as error:
        complain(str(error))
        return 1
    if as_json:
        click.echo(json.dumps(audit.as_json(verdict), indent=2))
    else:
        show(audit.render(verdict))
    return audit.EXIT_CODES[verdict.verdict]
