"""A finding: one thing that was looked at, how bad it is, and what to do about it."""

from dataclasses import dataclass
from enum import StrEnum


class Level(StrEnum):
    """How bad a finding is."""

    OK = "ok"
    WARNING = "warning"
    ERROR = "error"


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at.

    Attributes:
        level: how bad it is.
        subject: what was looked at.
        text: what was found.
        todo: what to do about it; empty where all is well.
    """

    level: Level
    subject: str
    text: str
    todo: str = ""
