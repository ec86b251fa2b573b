"""Command `rows`: prints the rows, or settings of a Kafka Connect sink."""

import json
from typing import TYPE_CHECKING

import click

from ldp.terminal import amount, echo, echo_json
from worker.cli.command import command, complain, reach

if TYPE_CHECKING:
    from worker.config import Config

_CONVERTER = "org.apache.kafka.connect.json.JsonConverter"


@command("rows")
@click.option(
    "--connect",
    is_flag=True,
    help="Print the settings of a Kafka Connect sink, as a file of properties.",
)
def rows(config: "Config", connect: bool) -> int:
    """Print the rows of all streams on rows.topic as JSON lines.

    A line contains the estimate of a value or a query in one window, by one method. Columns: stream, window_name,
    window_start, method, query (empty for a value), rank by Base, value, label, estimate, low, high, window_end, n,
    sequence, final, complete. Times are in milliseconds.

    \b
    ldp-worker rows > rows.jsonl
    duckdb -c "SELECT label, estimate FROM 'rows.jsonl' WHERE method = 'base'"

    --connect prints the topic, the converters with their schemas (Kafka Connect 4.2 or newer, no registry), and the
    isolation level. It does not connect to Kafka.
    """  # noqa: D301
    from worker.kafka.snapshots.rows import RowReader

    if connect:
        echo(settings(config.rows.topic or "ldp-rows"))
        return 0
    if config.rows.topic is not None:
        reach(config, config.rows.topic)
    with RowReader(config, on_passed=complain) as reader:
        newest, others = reader.read(), reader.skipped
    printed = {key: value for key, value in newest.items() if value is not None}
    for key, value in printed.items():
        echo_json(key._asdict() | value._asdict())
    if others:
        complain(
            f"skipped {amount(others.total(), 'record')} of topic {config.rows.topic} that are not rows:"
        )
        for reason, count in others.most_common():
            complain(f"{count}: {reason}")
    if not printed:
        complain(f"topic {config.rows.topic} has no rows; they appear with the next snapshot")
    return 0


def settings(topic: str) -> str:
    """Returns the settings of a Kafka Connect sink, one per line.

    Example:
        >>> settings("ldp-rows").splitlines()[:2]
        ['topics=ldp-rows', 'consumer.override.isolation.level=read_committed']
    """
    from importlib.resources import files

    lines = [
        f"topics={topic}",
        "consumer.override.isolation.level=read_committed",
        "consumer.override.auto.offset.reset=earliest",
    ]
    for part in ("key", "value"):
        text = files("ldp.snapshot").joinpath(f"row-{part}.connect.json").read_text(encoding="utf-8")
        lines += [
            f"{part}.converter={_CONVERTER}",
            f"{part}.converter.schemas.enable=true",
            f"{part}.converter.schema.content={json.dumps(json.loads(text), separators=(',', ':'))}",
        ]
    return "\n".join(lines)
