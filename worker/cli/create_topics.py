"""Command `create-topics`: creates missing topics."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

import click

from ldp.terminal import echo_json, show
from worker.cli.command import command, complain, json_option
from worker.cli.shown import table_of

if TYPE_CHECKING:
    from rich.table import Table

    from worker.config import Config
    from worker.kafka.client.topics import Creation


@command("create-topics")
@click.option(
    "--partitions",
    type=click.IntRange(1, 100_000),
    default=4,
    show_default=True,
    help="Number of partitions of each topic of reports.",
)
@click.option(
    "--replication-factor",
    type=click.IntRange(1, 1000),
    show_default="the broker's default",
    help="Replication factor of all topics.",
)
@click.option(
    "--event-time",
    is_flag=True,
    help="Use the producers' timestamps for the topics of streams with windows. A timestamp may be ahead by "
    "streams.max_out_of_orderness. Without the option, the brokers set the timestamps.",
)
@json_option
def create_topics(
    config: "Config", partitions: int, replication_factor: int | None, event_time: bool, as_json: bool
) -> int:
    """Create the topics that are missing.

    Creates each topic with the required settings. Never changes an existing topic; see check.
    """
    from worker.kafka.client import brokers, topics

    with brokers.connect(config, complain) as admin:
        created = topics.create(
            admin, config, partitions, replication_factor or topics.BROKERS_DEFAULT, event_time
        )
    if as_json:
        rows = [
            {
                "topic": creation.spec.name,
                "created": creation.created,
                "partitions": creation.topic.partitions,
                "replicas": creation.topic.replicas,
            }
            for creation in created
        ]
        echo_json(rows, indent=2)
    else:
        show(render(created))
    return 0


def render(creations: "Iterable[Creation]") -> "Table":
    """Returns the topics as a table."""
    from rich.text import Text

    table = table_of("topic", "for", "partitions", "replicas", "", right=["partitions", "replicas"])
    for creation in creations:
        done = Text("created", style="green") if creation.created else Text("exists")
        table.add_row(
            creation.spec.name,
            creation.spec.role,
            str(creation.topic.partitions),
            str(creation.topic.replicas),
            done,
        )
    return table
