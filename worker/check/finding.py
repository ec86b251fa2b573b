"""Findings: outcomes of checks."""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum


class Level(StrEnum):
    """Severity of a finding."""

    OK = "ok"
    WARNING = "warning"
    ERROR = "error"


@dataclass(frozen=True)
class Finding:
    """Outcome of one check; `hint` names a remedy, or is empty for OK."""

    level: Level
    subject: str
    text: str
    hint: str = ""


Fault = tuple[Level, str, str]
"""Level, text and hint of a finding, without a subject."""


def present(*faults: tuple[bool, Level, str, str]) -> Iterator[Fault]:
    """Yields the faults whose condition is true, without the condition."""
    return (fault[1:] for fault in faults if fault[0])
