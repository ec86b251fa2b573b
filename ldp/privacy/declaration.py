"""Privacy declaration: a part of a stream's public document."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

from ldp.arguments import as_integer, as_text

FRESH, MEMOISED = "fresh", "memoised"
_MOST = 10**6
_DURATION = re.compile(r"([1-9][0-9]{0,5})([smhd])", re.ASCII)
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


@dataclass(frozen=True)
class Declaration:
    """Limit on the reports of a unit in a period, and their noise.

    Attributes:
        unit: owner of the budget, such as "device" or "user".
        reports: r, the most reports of a unit in a period; 1 to 10⁶.
        period: a length such as "24h". Periods follow one another from 1970-01-01T00:00Z.
        noise: "fresh" for independent noise in each report; "memoised" if the client draws the noise of a value once,
            stores it, and uses it again. For RAPPOR, this is the permanent response; for other protocols, the report.
        horizon: the length of time for which losses are added up, such as "365d"; at least a period.

    Raises:
        TypeError: a field of the wrong type.
        ValueError: a field with a value that is not allowed.

    Example:
        >>> declared = Declaration("device", 1, "24h", "fresh", "365d")
        >>> declared.most_reports(), declared.most_reports(aligned=True)
        (366, 365)
    """

    unit: str
    reports: int
    period: str
    noise: str
    horizon: str

    def __post_init__(self) -> None:
        as_text("privacy.unit", self.unit)
        object.__setattr__(self, "reports", as_integer("privacy.reports", self.reports, 1, _MOST))
        period, horizon = (_seconds(f"privacy.{key}", getattr(self, key)) for key in ("period", "horizon"))
        if not isinstance(self.noise, str):
            raise TypeError(f"privacy.noise is {self.noise!r}; it must be a string")
        if self.noise not in (FRESH, MEMOISED):
            raise ValueError(f"privacy.noise is {self.noise!r}; allowed are {FRESH!r} and {MEMOISED!r}")
        if horizon < period:
            raise ValueError(
                f"privacy.horizon is {self.horizon!r}; it must be at least the period, {self.period!r}"
            )

    @classmethod
    def from_document(cls, document: Any) -> Declaration:
        """Returns the declaration in a document's key ``privacy``."""
        if not isinstance(document, Mapping):
            raise TypeError(f"privacy must be a JSON object, not {type(document).__name__}")
        if document.keys() != {*(needed := [field.name for field in fields(cls)])}:
            raise ValueError(
                f"privacy has the keys {sorted(map(str, document))}; it needs exactly {sorted(needed)}"
            )
        return cls(**document)

    def document(self) -> dict[str, Any]:
        """Returns the value of the document's key ``privacy``."""
        return asdict(self)

    @property
    def memoised(self) -> bool:
        """Whether reports of a value share noise."""
        return self.noise == MEMOISED

    @property
    def period_seconds(self) -> int:
        """Length of a period in seconds."""
        return _seconds("period", self.period)

    def most_reports(self, *, aligned: bool = False) -> int:
        """Returns k, the most reports of a unit in a horizon.

        k = r·(⌈horizon/period⌉ + 1), because a horizon can begin and end within a period. If the horizon is `aligned`,
        that is, begins with a period, k = r·⌈horizon/period⌉.
        """
        periods = -(-_seconds("horizon", self.horizon) // self.period_seconds)
        return self.reports * (periods if aligned else periods + 1)

    def most_reports_in(self, windows: Sequence[tuple[int, int]]) -> int:
        """Returns the most reports of a unit in disjoint windows, in ms.

        It is r for each period that a window overlaps, and `most_reports` without a window.

        Example:
            >>> Declaration("device", 2, "24h", "fresh", "365d").most_reports_in([(0, 3_600_000)])
            2
        """
        if not windows:
            return self.most_reports()
        length, ordered = 1000 * self.period_seconds, sorted(windows)
        periods, after = 0, ordered[0][0] // length  # number of periods, and the first that is not counted
        for start, end in ordered:
            periods += (end - 1) // length + 1 - max(start // length, after)
            after = (end - 1) // length + 1
        return self.reports * periods


def _seconds(name: str, text: object) -> int:
    if not isinstance(text, str):
        raise TypeError(f"{name} is {text!r}; it must be a string")
    if not (found := _DURATION.fullmatch(text)):
        raise ValueError(f"{name} is {text!r}; allowed is a whole number from 1 to 999999 with s, m, h or d")
    return int(found[1]) * _SECONDS[found[2]]
