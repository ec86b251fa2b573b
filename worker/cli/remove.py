"""Command `remove`: deletes the state of a stream."""

import re
from typing import TYPE_CHECKING

import click

from ldp.terminal import amount, echo
from worker.cli.command import command, complain

if TYPE_CHECKING:
    from worker.config import Config


@command("remove")
@click.argument("stream")
@click.option("--yes", is_flag=True, help="Delete the data. Without the option, only list the data.")
def remove(config: "Config", stream: str, yes: bool) -> int:
    """Delete the counts, snapshots, rows and group of a stream.

    STREAM need not be configured. The command deletes the stream's keys in Redis, its messages on the snapshot
    topic, its rows on rows.topic, and the consumer group with its offsets. It keeps the topic of reports and the
    dead letters: a new stream of the same name counts the topic from its beginning and starts with snapshot 1.

    The command refuses to run while a worker counts the stream. After an interruption, run the command again.
    """
    from worker.config.values import NAME
    from worker.kafka.client import brokers, topics
    from worker.kafka.snapshots import removal
    from worker.redis.connecting import connect
    from worker.store import removal as stored

    if not re.fullmatch(NAME, stream):
        raise click.BadParameter(f"{stream!r} given; it is not a valid name of a stream", param_hint="STREAM")
    group = config.consumer_group(stream)
    with brokers.connect(config, complain) as admin, connect(config.redis) as client:
        for topic in filter(None, (config.snapshots.topic, config.rows.topic)):
            topics.require(admin, topic)
        keys, members = stored.keys_of(client, stream), removal.members(admin, group)
        there = removal.keys_of(admin, config, stream, complain)
        messages = {name: len(found) for name, found in there.items()}
        echo(f"Redis: {amount(len(keys), 'key')}")
        for topic, found in messages.items():
            echo(f"topic {topic}: {amount(found, 'message')}")
        echo(f"group {group}: {'does not exist' if members is None else amount(members, 'member')}")
        if not (keys or any(messages.values()) or members is not None):
            echo(f"no data of {stream} found")
            return 0
        if not yes:
            echo("use --yes to delete this data")
            return 0
        if members:
            complain(
                f"group {group} has {amount(members, 'member')}: stop the workers that count the stream, or remove it"
                " from their configuration and restart them; a killed worker stays a member until its session"
                " time-out"
            )
            return 1
        # deletes counts before Kafka's offsets, so that a worker that starts meanwhile detects the loss and stops
        messages = removal.delete_messages(admin, config, stream, there)
        stored.delete(client, keys)
        if members is not None:
            removal.delete_group(admin, group)
    echo(f"deleted: {amount(len(keys), 'key')}, {amount(sum(messages.values()), 'message')}, group {group}")
    return 0
