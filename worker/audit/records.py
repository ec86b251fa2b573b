"""What the audit knows of a log: its records, stretches of it, and what of it is gone."""

from dataclasses import dataclass

Record = tuple[int, bytes | None]
"""A record as the audit needs it: its timestamp in milliseconds, and its value."""
Stretch = tuple[int, int]
"""Offsets [from, to) of a log."""


@dataclass(frozen=True)
class Deleted:
    """What comes in the place of the records of a stretch that was deleted while it was read."""

    stretch: Stretch
