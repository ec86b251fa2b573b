"""Shows the newest malformed records."""

from typing import TYPE_CHECKING

import click

from worker.cli.command import command, json_option, reach, show

if TYPE_CHECKING:
    from worker.config import Config


@command("dead-letters")
@click.option("--stream", metavar="NAME", help="Only those of this stream.")
@click.option("--last", type=click.IntRange(min=1), default=10, show_default=True, help="How many to show.")
@click.option("--value", is_flag=True, help="Show what each record held, too; it may be personal.")
@json_option
def dead_letters(config: "Config", stream: str | None, last: int, value: bool, as_json: bool) -> int:
    """Show the newest malformed records.

    Says how often each reason occurs among the newest 1,000 dead letters of each partition of their topic, fewer
    where they are large, then shows the newest of those: when, why, where the record came from, its size. What
    a record held is shown only by --value: its first bytes, or in JSON all that was kept of it, in base64.
    """
    from worker import letters
    from worker.observe import logs

    logs.silence()
    if stream is not None:
        config.served(stream)
    reach(config, config.dead_letters.topic)
    found = letters.newest_letters(config, stream)
    if as_json:
        click.echo(letters.as_json(found, last, value))
    else:
        show(letters.render(found, last, value))
    return 0
