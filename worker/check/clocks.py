"""Clocks: whose time the records of a topic have, and how far ahead it may be."""

from collections.abc import Iterator

from worker.check.finding import Finding, Level
from worker.config import Served
from worker.config.windows import duration
from worker.counting.windows import Windowing
from worker.kafka.client.topics import APPEND_TIME, HOUR_MS, Topic
from worker.observe.units import said_seconds


def judge_clock(served: Served, topic: Topic) -> Iterator[Finding]:
    """Yields what can go wrong by the time of a topic's records.

    The closed line follows the highest timestamp, less what may be out of order and the grace. So with a bound that is
    at most `out_of_order` no clock but the broker's own closes a window.
    """
    windowing, ahead = served.configured.terms.windowing, topic.ahead
    if windowing is not None:
        yield from _of_windows(windowing, f"topic {served.topic}", topic)
    elif ahead is None or ahead > HOUR_MS:
        yield Finding(
            Level.WARNING,
            f"topic {served.topic}",
            f"timestamps may lie {said_ahead(ahead)} of the broker's clock: one device with a wrong clock moves the"
            " watermark",
            f"set message.timestamp.after.max.ms={HOUR_MS}",
        )


def judge_age(subject: str, topic: Topic, oldest: int | None, now: int) -> list[Finding]:
    """Judges the timestamps of the newest records by the topic's retention, which goes by them.

    Args:
        subject: of the finding.
        topic: the stream's.
        oldest: the lowest timestamp of the newest records, in milliseconds; None if none has one.
        now: the time, in milliseconds.
    """
    retention = topic.number("retention.ms")
    if oldest is None or retention is None or retention < 0 or now - oldest <= retention or topic.append_time:
        return []
    text = (
        f"retention.ms={retention} goes by the producers' timestamps, and some of the newest records are"
        f" {said_seconds((now - oldest) / 1000)} old: the broker deletes them at its next look, counted or not"
    )
    todo = (
        "before a backfill set retention.ms=-1, and set it back once the lag is 0; to refuse such records set"
        f" message.timestamp.before.max.ms={retention}"
    )
    return [Finding(Level.WARNING, subject, text, todo)]


def _of_windows(windowing: Windowing, subject: str, topic: Topic) -> Iterator[Finding]:
    ahead, allowed = topic.ahead, windowing.out_of_order
    if ahead is None or ahead > allowed:
        yield Finding(
            Level.ERROR,
            subject,
            f"timestamps may lie {said_ahead(ahead)} of the broker's clock, and streams.out_of_order is"
            f" {duration(allowed)}: one device with a wrong clock closes windows before their time",
            f"set message.timestamp.type={APPEND_TIME}, which is the broker's time, or"
            f" message.timestamp.after.max.ms={allowed}, or raise streams.out_of_order",
        )
    if not topic.append_time and not windowing.grace:
        yield Finding(
            Level.WARNING,
            subject,
            "timestamps are the producers', and streams.grace is 0s: delayed reports are late for their windows",
            f"set streams.grace to how late devices may send, or message.timestamp.type={APPEND_TIME}",
        )


def said_clock(windowing: Windowing, topic: Topic) -> str:
    """Says whose time the windows go by."""
    if topic.append_time:
        return "by the broker's time"
    ahead = said_ahead(topic.ahead)
    return (
        f"by the producers' time: a record that lies {ahead} of the broker's clock uses up streams.out_of_order,"
        f" {duration(windowing.out_of_order)}, and honest delay is covered by streams.grace alone,"
        f" {duration(windowing.grace)}"
    )


def said_ahead(bound: int | None) -> str:
    """Says how far ahead timestamps may be.

    Example:
        >>> said_ahead(None), said_ahead(5_400_000)
        ('any time ahead', '90m ahead')
    """
    return "any time ahead" if bound is None else f"{duration(bound)} ahead"
