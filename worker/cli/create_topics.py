"""Creates the topics that are missing."""

from typing import TYPE_CHECKING

import click

from worker.cli.command import command, complain, json_option, show

if TYPE_CHECKING:
    from worker.config import Config


@command("create-topics")
@click.option(
    "--partitions",
    type=click.IntRange(1, 100_000),
    default=4,
    show_default=True,
    help="Of topics of reports.",
)
@click.option(
    "--replication-factor",
    type=click.IntRange(1, 1000),
    show_default="the broker's default",
    help="Of all topics.",
)
@json_option
def create_topics(config: "Config", partitions: int, replication_factor: int | None, as_json: bool) -> int:
    """Create the topics that are missing.

    They get the right settings; a topic that exists is never changed, see check.
    """
    import json

    from worker.kafka import brokers, topics
    from worker.observe import logs

    logs.silence()
    with brokers.connect(config, waiting=complain) as admin:
        made = topics.create(admin, config, partitions, replication_factor or topics.BROKERS_DEFAULT)
    if as_json:
        rows = [
            {
                "topic": m.wanted.name,
                "created": m.created,
                "partitions": m.topic.partitions,
                "replicas": m.topic.replicas,
            }
            for m in made
        ]
        click.echo(json.dumps(rows, indent=2))
    else:
        show(topics.render(made))
    return 0
