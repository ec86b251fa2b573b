"""The dead letters, read back: which records were rejected, why, and where they came from.

Whoever may write to the topic of reports chooses what a dead letter holds, so nothing of it reaches a terminal but
printable characters, and its value only if somebody asks for it.
"""

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from worker.config import Config
from worker.kafka.dead_letters import ERRORS
from worker.kafka.newest import newest_records


@dataclass(frozen=True)
class Letter:
    """A dead letter.

    Attributes:
        reason: why the record was rejected.
        message: the reason for people.
        why: of a record batch that cannot be read, what is wrong with it; else empty.
        stream: the stream that rejected it.
        topic: the topic that the record came from.
        partition: its partition there.
        offset: its offset there.
        size: how many bytes the record's value had, or the record batch.
        written: when it was rejected, in milliseconds since the epoch.
        value: the record's value, or its first bytes where that was too large.

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

    @property
    def where(self) -> str:
        """Where the record came from."""
        return f"{self.topic}/{self.partition}/{self.offset}"

    @property
    def time(self) -> str:
        """When the record was rejected, in UTC."""
        try:
            return datetime.fromtimestamp(self.written / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        except (OverflowError, ValueError):  # no time that a calendar has
            return f"{self.written} ms"


def newest_letters(config: Config, stream: str | None = None) -> list[Letter]:
    """Returns the newest dead letters of each partition of their topic, the newest of all first.

    Of many malformed records they are a sample, see `worker.kafka.sampling`.

    Args:
        config: where they are.
        stream: whose letters; None for all.

    Raises:
        kafka.errors.KafkaError: the brokers do not answer.
    """
    found = [_letter(record) for record in newest_records(config, config.dead_letters.topic)]
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
    return Letter(
        reason=said(f"{ERRORS}exception.class.name"),
        message=said(f"{ERRORS}exception.message"),
        why=printable(headers.get("batch.why", b"")),
        stream=said("stream"),
        topic=said(f"{ERRORS}topic"),
        partition=number(f"{ERRORS}partition", -1),
        offset=number(f"{ERRORS}offset", -1),
        size=number("truncated.size", number("batch.size", len(value))),
        written=record.timestamp,
        value=value,
    )


def printable(raw: bytes) -> str:
    r"""Returns bytes as text without control characters, whatever they are; only an escape begins with one backslash.

    Example:
        >>> printable(b"gr\xc3\xbcn\x1b[2J\xff\n")
        'grün\\x1b[2J\\xff\\n'
    """
    text = raw.replace(b"\\", b"\\\\").decode(errors="backslashreplace")
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
