"""Removes what is kept of a stream."""

import re
from typing import TYPE_CHECKING

import click

from ldp.terminal import echo
from worker.cli.command import amount, command, complain, complain_of

if TYPE_CHECKING:
    from worker.config import Config


@command("remove")
@click.argument("stream")
@click.option("--yes", is_flag=True, help="Delete it; without this it is only said what there is.")
def remove(config: "Config", stream: str, yes: bool) -> int:
    """Delete the counts, snapshots, rows and group of a stream.

    STREAM is a name; it need not be in the configuration any more. Deleted are the keys in Redis, the messages on the
    topic of snapshots and the rows on rows.topic (by tombstones, in one transaction), and the consumer group with its
    offsets. The topic of reports and the dead letters are left alone: a stream of that name which is served again
    counts all that the topic still holds, from its beginning on, as snapshot 1.

    Refused as long as a worker counts the stream. If it is cut off in the middle, run it again.
    """
    from worker.config.schema import NAME
    from worker.kafka.client import brokers, topics
    from worker.kafka.snapshots import removal
    from worker.observe import logs
    from worker.redis.connecting import connect
    from worker.store import removal as stored

    if not re.fullmatch(NAME, stream):
        raise click.BadParameter(f"{stream!r} given; no stream has such a name", param_hint="STREAM")
    logs.silence()
    group = config.consumer_group(stream)
    with brokers.connect(config, on_waiting=complain) as admin, connect(config.redis) as client:
        for topic in filter(None, (config.snapshots.topic, config.rows.topic)):
            topics.require(admin, topic)
        keys, members = stored.keys_of(client, stream), removal.members(admin, group)
        there = removal.keys_of(admin, config, stream, complain_of)
        messages = {name: len(found) for name, found in there.items()}
        echo(f"Redis: {amount(len(keys), 'key')}")
        for topic, found in messages.items():
            echo(f"topic {topic}: {amount(found, 'message')}")
        echo(f"group {group}: {'not there' if members is None else amount(members, 'member')}")
        if not (keys or any(messages.values()) or members is not None):
            echo(f"nothing is kept of {stream}")
            return 0
        if not yes:
            echo("nothing was deleted; --yes does it")
            return 0
        if members:
            complain(
                f"group {group} has {amount(members, 'member')}: take the stream out of the configuration of the"
                " workers that count it and start them again, or stop them; one that was killed is a member until its"
                " session time-out"
            )
            return 1
        # who begins to count meanwhile loses its counts before Kafka forgets them, so it notices, and stops
        messages = removal.delete_messages(admin, config, stream, there)
        stored.delete(client, keys)
        if members is not None:
            removal.delete_group(admin, group)
    echo(f"deleted: {amount(len(keys), 'key')}, {amount(sum(messages.values()), 'message')}, group {group}")
    return 0
