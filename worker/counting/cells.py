"""Cells: the counts of a pane, a document and a segment.

One blob stores the cells of a pane and a document, with all segments. Cells are named by content, never by a position
in a list, so that lists of documents and segments can change.
"""

import functools
import re
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from worker.counting.windows import ALL, Pane

Counts = npt.NDArray[np.int64]
Segment = str
"""The text of a segment; empty for reports of a document without segments."""

_NAME = re.compile(rf"(?:{ALL}|(0|[1-9][0-9]*)\+([1-9][0-9]*))@([0-9a-f]{{8}})", re.ASCII)


@dataclass
class Cell:
    """Counts of one segment: the reports and the oracle's state.

    ``address`` is the state's address for kernels, or None before the first use.
    """

    reports: int
    state: Final[Counts]
    address: int | None = field(default=None, init=False, repr=False, compare=False)

    def __getstate__(self) -> dict[str, object]:
        """Returns the fields of a copy, which has another address."""
        return {"reports": self.reports, "state": self.state}

    def add(self, other: "Cell") -> None:
        """Adds the counts of another cell; O(state)."""
        self.reports += other.reports
        np.add(self.state, other.state, out=self.state)


class CellKey(NamedTuple):
    """The pane and the document of cells.

    Attributes:
        pane: None for reports in no pane.
        fingerprint: the document, as 8 hexadecimal digits.

    Example:
        >>> str(CellKey(None, "8e9f39d0")), str(CellKey(Pane(7_200_000, 3_600_000), "8e9f39d0"))
        ('all@8e9f39d0', '7200000+3600000@8e9f39d0')
    """

    pane: Pane | None
    fingerprint: str

    def __str__(self) -> str:
        """Returns the stored name, which `key_of` parses."""
        return f"{ALL if self.pane is None else self.pane}@{self.fingerprint}"


@functools.lru_cache(1 << 12)  # each cut parses the names of all panes
def key_of(name: str) -> CellKey:
    """Parses a stored name; raises ValueError if invalid."""
    if (found := _NAME.fullmatch(name)) is None:
        example = "a pane's start and length, like '7200000+3600000@8e9f39d0'"
        raise ValueError(f"{name!r} given; a cell is {ALL!r} or {example}")
    start, length, fingerprint = found.groups()
    return CellKey(None if start is None else Pane(int(start), int(length)), fingerprint)
