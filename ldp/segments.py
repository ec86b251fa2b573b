"""Segments: public names that reports carry, such as a country.

A segment is one or more levels joined by ``:``, such as ``US:4.3``. The server counts declared segments apart. Every
other segment counts in the rest of its longest declared prefix: ``US:9.9`` in ``US:~`` and ``XX`` in ``~``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

LONGEST = 64
"""Most characters of a segment."""
REST = "~"
_SEGMENT = re.compile(r"[A-Za-z0-9._-]{1,32}(:[A-Za-z0-9._-]{1,32})*", re.ASCII)


def as_segment(name: str, value: object) -> str:
    """Returns a segment, or the names of a document's levels.

    Example:
        >>> as_segment("segment", "US:4.3")
        'US:4.3'
        >>> as_segment("segment", "US:")
        Traceback (most recent call last):
        ValueError: segment is 'US:'; allowed are levels of 1 to 32 of A-Z a-z 0-9 . _ -, joined by ':', 64 in all
    """
    if not isinstance(value, str):
        raise TypeError(f"{name} must be a string, not {type(value).__name__}")
    if not is_segment(value):
        raise ValueError(
            f"{name} is {value!r}; allowed are levels of 1 to 32 of A-Z a-z 0-9 . _ -, joined by ':', {LONGEST} in all"
        )
    return value


def is_segment(text: str) -> bool:
    """Returns whether a text is a segment."""
    return len(text) <= LONGEST and _SEGMENT.fullmatch(text) is not None


class Segments:
    """The cells of a stream's segments.

    Args:
        declared: the declared segments that are not retired.
        retired: the retired segments. They count in a rest, and the rests of their prefixes stay.

    Attributes:
        cells: the names of the cells. The first is ``""``, for reports without a segment. A declared segment has a cell
            of its own name, and each declared segment and each proper prefix has a rest.

    Raises:
        TypeError, ValueError: a name that is not a segment.

    Example:
        >>> segments = Segments(["DE", "US:4.3"])
        >>> segments.cells
        ('', '~', 'DE', 'DE:~', 'US:4.3', 'US:4.3:~', 'US:~')
        >>> [segments.cells[segments.index(text)] for text in ("DE", "DE:1", "US", "US:4.3", "US:9.9", "XX")]
        ['DE', 'DE:~', 'US:~', 'US:4.3', 'US:~', '~']
    """

    def __init__(self, declared: Iterable[str], retired: Iterable[str] = ()) -> None:
        live = {as_segment("segment", text) for text in declared}
        gone = {as_segment("segment", text) for text in retired} - live
        inner = {prefix for text in live | gone for prefix in prefixes(text) if prefix != text}
        rests = {_rest(prefix) for prefix in live | inner}
        self.cells: tuple[str, ...] = ("", REST, *sorted(live | rests))
        self._index = {name: i for i, name in enumerate(self.cells)}

    def index(self, text: str) -> int:
        """Returns the index in `cells` of a segment's cell; O(its levels)."""
        if text in self._index:
            return self._index[text]
        known = (self._index[_rest(prefix)] for prefix in prefixes(text) if _rest(prefix) in self._index)
        return max(known, default=self._index[REST], key=lambda i: len(self.cells[i]))


def prefixes(text: str) -> Iterator[str]:
    """Yields the prefixes of whole levels, the shortest first, and the text.

    Example:
        >>> list(prefixes("US:4.3"))
        ['US', 'US:4.3']
    """
    levels = text.split(":")
    return (":".join(levels[: i + 1]) for i in range(len(levels)))


def _rest(prefix: str) -> str:
    return f"{prefix}:{REST}"
