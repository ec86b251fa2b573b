"""Clocks: the source of a topic's timestamps, and how far ahead they may be."""

from collections.abc import Iterator

from worker.check.finding import Fault, Finding, Level, present
from worker.config import Served
from worker.config.windows import duration
from worker.counting.windows import Windowing
from worker.kafka.client.topics import APPEND_TIME, HOUR_MS, Topic
from worker.observe.units import age_text


def assess_clock(served: Served, topic: Topic) -> Iterator[Fault]:
    """Yields faults of the timestamps of a topic.

    The window-close watermark follows the highest timestamp, less out-of-orderness and grace. With a bound of at most
    `max_out_of_orderness`, only the broker's clock closes a window.
    """
    windowing, ahead = served.configured.limits.windowing, topic.ahead
    if windowing is None:
        return present(
            (
                ahead is None or ahead > HOUR_MS,
                Level.WARNING,
                f"timestamps may lie {_ahead(ahead)} of the broker's clock: one device with a wrong clock moves the"
                " watermark",
                f"set message.timestamp.after.max.ms={HOUR_MS}",
            )
        )
    allowed = windowing.max_out_of_orderness
    return present(
        (
            ahead is None or ahead > allowed,
            Level.ERROR,
            f"timestamps may lie {_ahead(ahead)} of the broker's clock, and streams.max_out_of_orderness is"
            f" {duration(allowed)}: one device with a wrong clock closes windows before their time",
            f"set message.timestamp.type={APPEND_TIME}, which is the broker's time, or"
            f" message.timestamp.after.max.ms={allowed}, or raise streams.max_out_of_orderness",
        ),
        (
            not topic.append_time and not windowing.grace,
            Level.WARNING,
            "timestamps are the producers', and streams.grace is 0s: delayed reports are late for their windows",
            f"set streams.grace to how late devices may send, or message.timestamp.type={APPEND_TIME}",
        ),
    )


def assess_age(subject: str, topic: Topic, oldest: int | None, now: int) -> list[Finding]:
    """Assesses the lowest timestamp of the newest records, in milliseconds, by the topic's retention."""
    retention = topic.number("retention.ms")
    if oldest is None or retention is None or retention < 0 or now - oldest <= retention or topic.append_time:
        return []
    text = (
        f"retention.ms={retention} goes by the producers' timestamps, and some of the newest records are"
        f" {age_text((now - oldest) / 1000)} old: the broker deletes them at its next look, counted or not"
    )
    hint = (
        "before a backfill set retention.ms=-1, and set it back once the lag is 0; to refuse such records set"
        f" message.timestamp.before.max.ms={retention}"
    )
    return [Finding(Level.WARNING, subject, text, hint)]


def clock_of(windowing: Windowing, topic: Topic) -> str:
    """Returns a description of the clock that windows go by."""
    if topic.append_time:
        return "by the broker's time"
    return (
        f"by the producers' time: a record that lies {_ahead(topic.ahead)} of the broker's clock uses up"
        f" streams.max_out_of_orderness, {duration(windowing.max_out_of_orderness)}, and"
        f" honest delay is covered by streams.grace alone, {duration(windowing.grace)}"
    )


def _ahead(bound: int | None) -> str:
    return "any time ahead" if bound is None else f"{duration(bound)} ahead"
