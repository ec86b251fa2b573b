"""Reads dead letters: the reason, origin and contents of each record.

The content comes from untrusted writers to the topic of reports, so only its printable characters reach a terminal.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from ldp.terminal import printable
from worker.config import Config
from worker.kafka.client.newest import newest_records
from worker.kafka.client.reading import OnPassed, ignore
from worker.kafka.dead_letters.writer import ERRORS, LATE, LATE_HEADERS


@dataclass(frozen=True)
class DeadLetter:
    """A parsed record of the dead-letter topic.

    Example:
        >>> DeadLetter("version", "...", "", "colours", "reports", 0, 17, 2, 0, b"{}").where
        'reports/0/17'
    """

    reason: str  # why the record was rejected, or ``late``
    message: str  # the reason in words
    why: str  # the damage to a record batch, or a late record's time; else empty
    stream: str  # the stream that rejected the record
    topic: str
    partition: int
    offset: int
    size: int  # bytes of the record's value, or of the record batch
    written: int  # when the dead letter was written, in milliseconds since the epoch
    value: bytes  # the record's value, or its first bytes
    # values of `LATE_HEADERS` in milliseconds; empty unless the record is late
    late: Mapping[str, int] = field(default_factory=dict)

    @property
    def where(self) -> str:
        """The original record's topic, partition and offset."""
        return f"{self.topic}/{self.partition}/{self.offset}"

    @property
    def time(self) -> str:
        """The time at which the dead letter was written, in UTC."""
        return _calendar(self.written)


def newest_dead_letters(
    config: Config, stream: str | None = None, on_passed: OnPassed = ignore
) -> list[DeadLetter]:
    """Returns the newest dead letters of each partition, newest first.

    Raises `kafka.errors.KafkaError`: the brokers do not answer.
    """
    newest = newest_records(config, config.dead_letters.topic, on_passed)
    found = [_dead_letter(record) for records in newest.values() for record in records]
    found.sort(key=lambda dead_letter: dead_letter.written)
    return [dead_letter for dead_letter in reversed(found) if stream in (None, dead_letter.stream)]


def _dead_letter(record: Any) -> DeadLetter:
    headers = {key: value or b"" for key, value in record.headers}

    # other programs may write records with missing or invalid headers
    def text(name: str) -> str:
        return printable(headers.get(name, b"?"))

    def number(name: str, otherwise: int) -> int:
        digits = headers.get(name, b"")
        return int(digits) if digits.isdigit() and len(digits) < 20 else otherwise

    value = record.value or b""
    late = {name: number(f"{LATE}.{name}", -1) for name in LATE_HEADERS if f"{LATE}.{name}" in headers}
    of = f"of {_calendar(late['timestamp'])}" if late else ""
    return DeadLetter(
        reason=text(f"{ERRORS}exception.class.name"),
        message=text(f"{ERRORS}exception.message"),
        why=printable(headers.get("batch.why", b"")) or of,
        stream=text("stream"),
        topic=text(f"{ERRORS}topic"),
        partition=number(f"{ERRORS}partition", -1),
        offset=number(f"{ERRORS}offset", -1),
        size=number("truncated.size", number("batch.size", len(value))),
        written=record.timestamp,
        value=value,
        late=late,
    )


def _calendar(milliseconds: int) -> str:
    try:
        return datetime.fromtimestamp(milliseconds / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    except (OverflowError, ValueError):  # outside the calendar's range
        return f"{milliseconds} ms"
