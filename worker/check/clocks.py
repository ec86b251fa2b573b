"""Checks of the clocks that set a topic's timestamps."""

from collections.abc import Iterator

from worker.check.finding import Fault, Finding, Level
from worker.config import Served
from worker.config.windows import duration
from worker.counting.windows import Windowing
from worker.kafka.client.topics import APPEND_TIME, HOUR_MS, Topic
from worker.observe.units import age_text


def assess_clock(served: Served, topic: Topic) -> Iterator[Fault]:
    """Yields faults in a topic's timestamp settings.

    The window-close watermark is the highest timestamp minus out-of-orderness and grace. If timestamps are ahead of the
    broker's clock by at most `max_out_of_orderness`, only the broker's clock closes windows.
    """
    windowing, ahead = served.configured.limits.windowing, topic.ahead
    how = f"timestamps may be {_ahead(ahead)} of the broker's clock"
    if windowing is None:
        if ahead is None or ahead > HOUR_MS:
            text = f"{how}: one device with a wrong clock advances the watermark"
            yield Level.WARNING, text, f"set message.timestamp.after.max.ms={HOUR_MS}"
        return
    allowed = windowing.max_out_of_orderness
    if ahead is None or ahead > allowed:
        yield (
            Level.ERROR,
            f"{how}, but streams.max_out_of_orderness is {duration(allowed)}: one device with a wrong clock closes"
            " windows too early",
            f"set message.timestamp.type={APPEND_TIME} to use the broker's clock, or"
            f" message.timestamp.after.max.ms={allowed}, or raise streams.max_out_of_orderness",
        )
    if not topic.append_time and not windowing.grace:
        text = "producers set the timestamps, and streams.grace is 0s: delayed reports are late for their windows"
        hint = f"set streams.grace to the longest delay of devices, or message.timestamp.type={APPEND_TIME}"
        yield Level.WARNING, text, hint


def assess_age(subject: str, topic: Topic, oldest: int | None, now: int) -> list[Finding]:
    """Compares the oldest timestamp (ms) of recent records with retention."""
    retention = topic.number("retention.ms")
    if oldest is None or retention is None or retention < 0 or now - oldest <= retention or topic.append_time:
        return []
    text = (
        f"retention.ms={retention} applies to the producers' timestamps, and some of the newest records are"
        f" {age_text((now - oldest) / 1000)} old: the broker soon deletes them, counted or not"
    )
    hint = (
        "before a backfill set retention.ms=-1, and restore it once the lag is 0; to refuse such records set"
        f" message.timestamp.before.max.ms={retention}"
    )
    return [Finding(Level.WARNING, subject, text, hint)]


def clock_of(windowing: Windowing, topic: Topic) -> str:
    """Describes the clock that closes the windows."""
    if topic.append_time:
        return "by the broker's clock"
    return (
        f"by the producers' clocks: a record {_ahead(topic.ahead)} of the broker's clock uses up"
        f" streams.max_out_of_orderness = {duration(windowing.max_out_of_orderness)}, so only streams.grace ="
        f" {duration(windowing.grace)} covers delayed records"
    )


def _ahead(bound: int | None) -> str:
    return "any time ahead" if bound is None else f"{duration(bound)} ahead"
