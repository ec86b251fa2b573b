"""Command `dead-letters`: shows the newest dead letters."""

from base64 import b64encode
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from ldp.terminal import echo_json, printable, show
from worker.cli.command import command, complain, json_option, reach
from worker.cli.shown import table_of
from worker.observe.units import size_text

if TYPE_CHECKING:
    from rich.console import RenderableType

    from worker.config import Config
    from worker.kafka.dead_letters.reader import DeadLetter

_SHOWN_BYTES = 256


@command("dead-letters")
@click.option("--stream", metavar="NAME", help="Show only dead letters of this stream.")
@click.option("--last", type=click.IntRange(min=1), default=10, show_default=True, help="Number to show.")
@click.option("--value", is_flag=True, help="Show the contents of the records, which may be personal data.")
@json_option
def dead_letters(config: "Config", stream: str | None, last: int, value: bool, as_json: bool) -> int:
    """Show the newest dead letters.

    The worker writes malformed records as dead letters. With streams.late_dead_letters, it also writes late records.

    Reads the newest 1,000 dead letters of each partition and counts the reasons. Then shows time, reason, origin and
    size of the newest dead letters. --value also shows the first bytes of each record, or with --json all stored
    bytes in base64. Above 100 records per second for one reason, the worker writes only a sample.
    """
    from worker.kafka.dead_letters.reader import newest_dead_letters

    if stream is not None:
        config.served(stream)
    reach(config, config.dead_letters.topic)
    found = newest_dead_letters(config, stream, complain)
    if as_json:
        echo_json(in_json(found, last, value), indent=2)
    else:
        show(render(found, last, value))
    return 0


def _counts(dead_letters: "Sequence[DeadLetter]") -> list[tuple[str, str, int]]:
    counts = Counter((dead_letter.reason, dead_letter.message) for dead_letter in dead_letters)
    return [(reason, message, n) for (reason, message), n in counts.most_common()]


def render(dead_letters: "Sequence[DeadLetter]", last: int, value: bool) -> "RenderableType":
    """Returns the terminal output: all reasons, then the newest dead letters."""
    from rich.console import Group
    from rich.text import Text

    if not dead_letters:
        return Text("no dead letters")
    reasons = table_of("reason", "dead letters", right=["dead letters"])
    for reason, message, n in _counts(dead_letters):
        reasons.add_row(Text.assemble((reason, "bold"), f": {message}"), f"{n:,}")
    newest = table_of("written at", "reason", "record", "size", right=["size"])
    for dead_letter in dead_letters[:last]:
        record = Text(dead_letter.where)
        if value:
            cut = dead_letter.value[:_SHOWN_BYTES]
            rest = f" … {size_text(dead_letter.size - len(cut))} more" if dead_letter.size > len(cut) else ""
            record.append(f"\n{printable(cut)}{rest}", style="italic")
        why = f"{dead_letter.reason}: {dead_letter.why}" if dead_letter.why else dead_letter.reason
        newest.add_row(dead_letter.time, Text(why), record, size_text(dead_letter.size))
    title = f"the newest {len(dead_letters):,} dead letters"
    return Group(Text(title, style="bold"), reasons, Text(), newest)


def in_json(dead_letters: "Sequence[DeadLetter]", last: int, value: bool) -> dict[str, Any]:
    """Returns ``looked_at``, ``reasons`` and ``dead_letters`` for JSON."""
    listed = []
    for dead_letter in dead_letters[:last]:
        row = {
            "reason": dead_letter.reason,
            "message": dead_letter.message,
            "stream": dead_letter.stream,
            "topic": dead_letter.topic,
            "partition": dead_letter.partition,
            "offset": dead_letter.offset,
            "bytes": dead_letter.size,
            "written_at": dead_letter.time,
        }
        row |= {"why": dead_letter.why} if dead_letter.why else {}
        row |= {"late": dict(dead_letter.late)} if dead_letter.late else {}
        listed.append(row | ({"base64": b64encode(dead_letter.value).decode()} if value else {}))
    reasons = {reason: n for reason, _, n in _counts(dead_letters)}
    return {"looked_at": len(dead_letters), "reasons": reasons, "dead_letters": listed}
