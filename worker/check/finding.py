"""Findings: outcomes of checks."""

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
