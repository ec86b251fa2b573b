"""Command `simulate`: sends reports of simulated users."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ldp.terminal import amount, echo
from worker.cli.command import bar, command, complain, reach, stream_option

if TYPE_CHECKING:
    from worker.config import Config, Served
    from worker.kafka.client.topics import Topic
    from worker.kafka.reports.sender import Sent


@command("simulate")
@stream_option
@click.option(
    "--counts",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    required=True,
    help="CSV file with the number of users of each value.",
)
@click.option("--column", required=True, metavar="NAME", help="Column of the counts.")
@click.option(
    "--label-column",
    default="label",
    show_default=True,
    metavar="NAME",
    help="Column of the labels; unused for a stream without labels.",
)
@click.option(
    "--users", type=click.IntRange(min=1), required=True, help="Users to draw; each sends one report."
)
@click.option(
    "--seed",
    type=click.IntRange(min=0),
    default=1,
    show_default=True,
    help="Seed of the draw. The coins stay secret.",
)
@click.option(
    "--batch",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    metavar="N",
    help="Reports per record, at most streams.most_reports. 1 imitates a device; more imitates a "
    "device that was offline, or a web service.",
)
@click.option(
    "--malformed-share",
    type=click.FloatRange(0, 1),
    default=0.0,
    metavar="F",
    help="Number of malformed records per good record.",
)
@click.option(
    "--rate",
    type=click.FloatRange(min=0, min_open=True),
    metavar="R",
    help="Maximum reports per second. Without the option, no limit.",
)
@click.option(
    "--hours",
    type=click.FloatRange(min=0, min_open=True, max=24 * 366),
    metavar="H",
    help="Spread the timestamps over the last H hours, in order. Without the option, the timestamps are the current "
    "time. Requires a topic with the producers' timestamps.",
)
def simulate(
    config: "Config",
    stream: str | None,
    counts: Path,
    column: str,
    label_column: str,
    users: int,
    seed: int,
    batch: int,
    malformed_share: float,
    rate: float | None,
    hours: float | None,
) -> int:
    """Send reports of simulated users.

    Draws users from a file of counts, with a seed. Perturbs each user's value with secret coins and sends one report
    per user, in records of --batch reports.
    """
    from worker.kafka.reports import sender
    from worker.simulation import crowd
    from worker.simulation.crowd import NoSuchColumnError, SimulationError
    from worker.simulation.records import records

    served = config.served(stream)
    if batch > (most := served.configured.limits.most_reports or batch):
        why = f"{batch} given; streams.most_reports allows {most}, and workers reject larger records"
        raise click.BadParameter(why, param_hint="--batch")
    try:
        read = crowd.read_counts(counts, column, label_column, served.stream.labels)
        if len(read) > (d := served.stream.oracle.domain_size):
            raise SimulationError(f"{counts}: {len(read)} rows; the stream has {d} values")
        values, at = crowd.draw(read, users, seed).values, _times(config, served, users, hours)
        made = records(served.stream, values, seed=seed, batch=batch, malformed_share=malformed_share)
        with bar("sending", "reports") as move:
            sent = sender.send(
                config,
                served,
                made,
                rate=rate,
                at=at,
                on_acknowledged=lambda acknowledged: move(acknowledged, users),
            )
    except NoSuchColumnError as error:
        raise click.UsageError(str(error)) from None
    except (SimulationError, sender.SendError) as error:
        complain(str(error))
        return 1
    except KeyboardInterrupt:
        complain("interrupted: some of the reports were sent")
        return 1
    echo(_outcome(sent))
    return 0


def _times(
    config: "Config", served: "Served", users: int, hours: float | None
) -> "Callable[[int], int] | None":
    """Checks the topic; returns the timestamps, or None for the current time."""
    if hours is None:
        reach(config, served.topic)
        return None
    from worker.kafka.client import brokers, topics
    from worker.simulation.crowd import SimulationError
    from worker.simulation.times import spread

    with brokers.connect(config, complain) as admin:
        topics.require(admin, served.topic)
        topic = topics.describe(admin, [served.topic])[served.topic]
    span = round(hours * topics.HOUR_MS)
    if (why := refused(topic, span)) is not None:
        raise SimulationError(f"--hours: {hours:g} given; topic {served.topic!r} {why}")
    now = time.time_ns() // 1_000_000
    return spread(users, now - span, now)


def refused(topic: "Topic", span: int) -> str | None:
    """Returns why a topic cannot keep timestamps from `span` ms ago, or None."""
    if topic.append_time:
        return (
            "has message.timestamp.type=LogAppendTime, which replaces timestamps; ldp-worker create-topics"
            " --event-time creates a topic that keeps them"
        )
    behind = topic.number("message.timestamp.before.max.ms")
    if behind is not None and behind < span:
        return f"has message.timestamp.before.max.ms={behind}, so brokers reject older records"
    retention = topic.number("retention.ms")
    if retention is not None and 0 <= retention < span:
        return f"has retention.ms={retention}, so brokers delete older records"
    return None


def _outcome(sent: "Sent") -> str:
    malformed = f" and {amount(sent.malformed, 'malformed one')}" if sent.malformed else ""
    return (
        f"{amount(sent.reports, 'report')} in {amount(sent.records, 'record')}{malformed} sent and acknowledged"
        f" in {sent.seconds:.1f} s, {sent.reports / sent.seconds:,.0f} reports/s"
    )
