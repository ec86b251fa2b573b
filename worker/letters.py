"""The dead letters, read by people: which records were rejected, why, and where they came from.

Whoever may write to the topic of reports chooses what a dead letter holds, so nothing of it reaches a terminal but
printable characters, and its value only if somebody asks for it.
"""

import json
from base64 import b64encode
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from worker.config import Config
from worker.kafka.newest import newest

_ERRORS = "__connect.errors."
_SHOWN_BYTES = 256
"""Of a value, on the terminal."""


@dataclass(frozen=True)
class Letter:
    """A dead letter.

    Attributes:
        reason: why the record was rejected.
        message: the reason for people.
        stream: the stream that rejected it.
        topic: the topic that the record came from.
        partition: its partition there.
        offset: its offset there.
        size: how many bytes the record's value had.
        written: when it was rejected, in milliseconds since the epoch.
        value: the record's value, or its first bytes where that was too large.

    Example:
        >>> Letter("version", "...", "colours", "reports", 0, 17, 2, 0, b"{}").where
        'reports/0/17'
    """

    reason: str
    message: str
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

    Args:
        config: where they are.
        stream: whose letters; None for all.

    Raises:
        kafka.errors.KafkaError: the brokers do not answer.
    """
    found = [_letter(record) for record in newest(config, config.dead_letters.topic)]
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
        reason=said(f"{_ERRORS}exception.class.name"),
        message=said(f"{_ERRORS}exception.message"),
        stream=said("stream"),
        topic=said(f"{_ERRORS}topic"),
        partition=number(f"{_ERRORS}partition", -1),
        offset=number(f"{_ERRORS}offset", -1),
        size=number("truncated.size", len(value)),
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


def _counts(letters: Sequence[Letter]) -> list[tuple[str, str, int]]:
    """Returns each reason, what it says to people, and how often it occurs, the most frequent first."""
    counts = Counter((letter.reason, letter.message) for letter in letters)
    return [(reason, message, n) for (reason, message), n in counts.most_common()]


def render(letters: Sequence[Letter], last: int, value: bool) -> RenderableType:
    """Returns dead letters for the terminal: the reasons of all, then the newest one by one.

    Args:
        letters: the newest first.
        last: how many to show.
        value: whether to show what the records held.
    """
    if not letters:
        return Text("no dead letters")
    reasons = _table("reason", "letters")
    for reason, message, n in _counts(letters):
        reasons.add_row(Text.assemble((reason, "bold"), f": {message}"), f"{n:,}")
    newest = _table("rejected at", "reason", "record", "bytes")
    for letter in letters[:last]:
        record = Text(letter.where)
        if value:
            cut = letter.value[:_SHOWN_BYTES]
            rest = f" … {letter.size - len(cut):,} bytes more" if letter.size > len(cut) else ""
            record.append(f"\n{printable(cut)}{rest}", style="italic")
        newest.add_row(letter.time, Text(letter.reason), record, f"{letter.size:,}")
    title = f"the newest {len(letters):,} dead letters"
    return Group(Text(title, style="bold"), reasons, Text(), newest)


def _table(*headings: str) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for heading in headings:
        right = heading in ("letters", "bytes")
        table.add_column(heading, justify="right" if right else "left", overflow="fold")
    return table


def as_json(letters: Sequence[Letter], last: int, value: bool) -> str:
    """Returns dead letters as a JSON document: ``looked_at``, how many; ``reasons``; and ``letters``, the newest.

    Args:
        letters: the newest first.
        last: how many to list.
        value: whether to give what was kept of the records' values, as ``base64``.
    """
    listed = []
    for letter in letters[:last]:
        row = {
            "reason": letter.reason,
            "message": letter.message,
            "stream": letter.stream,
            "topic": letter.topic,
            "partition": letter.partition,
            "offset": letter.offset,
            "bytes": letter.size,
            "rejected_at": letter.time,
        }
        listed.append(row | ({"base64": b64encode(letter.value).decode()} if value else {}))
    reasons = {reason: n for reason, _, n in _counts(letters)}
    tree = {"looked_at": len(letters), "reasons": reasons, "letters": listed}
    return json.dumps(tree, ensure_ascii=False, indent=2)
