"""The dead letters, read back: which records were rejected or late, why, and where they came from.

Whoever may write to the topic of reports chooses what a dead letter holds, so nothing of it reaches a terminal but
printable characters, and its value only if somebody asks for it.
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
class Letter:
    """A dead letter.

    Attributes:
        reason: why the record was rejected; or that it was late, and is counted all the same.
        message: the reason for people.
        why: of a record batch that cannot be read, what is wrong with it; of a late record, when it is of; else empty.
        stream: the stream that rejected it.
        topic: the topic that the record came from.
        partition: its partition there.
        offset: its offset there.
        size: how many bytes the record's value had, or the record batch.
        written: when the letter was, in milliseconds since the epoch.
        value: the record's value, or its first bytes where that was too large.
        late: of a late record its timestamp, the start and the end of its pane, and the closed line that it met, in
            milliseconds since the epoch.

    Example:
        >>> Letter("version", "...", "", "colours", "reports", 0, 17, 2, 0, b"{}").where
        'reports/0/17'
    """

    reason: str
    message: str
    why: str
    stream: str
    topic: str
    partition: int
    offset: int
    size: int
    written: int
    value: bytes
    late: Mapping[str, int] = field(default_factory=dict)

    @property
    def where(self) -> str:
        """Where the record came from."""
        return f"{self.topic}/{self.partition}/{self.offset}"

    @property
    def time(self) -> str:
        """When the letter was written, in UTC."""
        return _calendar(self.written)


def newest_letters(config: Config, stream: str | None = None, on_passed: OnPassed = ignore) -> list[Letter]:
    """Returns the newest dead letters of each partition of their topic, the newest of all first.

    Of many records they are a sample, see `worker.kafka.dead_letters.sampling`.

    Args:
        config: where they are.
        stream: whose letters; None for all.
        on_passed: receives each record batch that cannot be read.

    Raises:
        kafka.errors.KafkaError: the brokers do not answer.
    """
    newest = newest_records(config, config.dead_letters.topic, on_passed)
    found = [_letter(record) for records in newest.values() for record in records]
    found.sort(key=lambda letter: letter.written)
    return [letter for letter in reversed(found) if stream in (None, letter.stream)]


def _letter(record: Any) -> Letter:
    headers = {key: value or b"" for key, value in record.headers}

    # who else may write to the topic may leave out what a worker writes, or write something else
    def said(name: str) -> str:
        return printable(headers.get(name, b"?"))

    def number(name: str, otherwise: int) -> int:
        digits = headers.get(name, b"")
        return int(digits) if digits.isdigit() and len(digits) < 20 else otherwise

    value = record.value or b""
    late = {name: number(f"{LATE}.{name}", -1) for name in LATE_HEADERS if f"{LATE}.{name}" in headers}
    of = f"of {_calendar(late['timestamp'])}" if late else ""
    return Letter(
        reason=said(f"{ERRORS}exception.class.name"),
        message=said(f"{ERRORS}exception.message"),
        why=printable(headers.get("batch.why", b"")) or of,
        stream=said("stream"),
        topic=said(f"{ERRORS}topic"),
        partition=number(f"{ERRORS}partition", -1),
        offset=number(f"{ERRORS}offset", -1),
        size=number("truncated.size", number("batch.size", len(value))),
        written=record.timestamp,
        value=value,
        late=late,
    )


def _calendar(milliseconds: int) -> str:
    """Returns a time in UTC, to the second."""
    try:
        return datetime.fromtimestamp(milliseconds / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    except (OverflowError, ValueError):  # no time that a calendar has
        return f"{milliseconds} ms"
