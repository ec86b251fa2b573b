"""Segments: public names that reports carry, such as a country.

A segment is one or more levels joined by ``:``, such as ``US:4.3``. The server counts declared segments apart. Every
other segment counts in the rest of its longest declared prefix: ``US:9.9`` in ``US:~`` and ``XX`` in ``~``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import cached_property

LONGEST = 64
"""Most characters of a segment."""
LONGEST_LEVEL = 32
"""Most characters of a level."""
REST = "~"
HASH_MULTIPLIER = 0x9E3779B97F4A7C15
"""Multiplier of the hash of segments in the kernel of frames."""
SYNTAX = r"[A-Za-z0-9._-]{1,32}(:[A-Za-z0-9._-]{1,32})*"
_SEGMENT = re.compile(SYNTAX, re.ASCII)


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


def required(levels: str | None, segment: object) -> str | None:
    """Returns the segment of a record, after a check against a document.

    Args:
        levels: the document's names of levels, or None.
        segment: the segment, with as many levels; None if the document has no levels.

    Example:
        >>> required("country:app", "US:4.3"), required(None, None)
        ('US:4.3', None)
        >>> required("country:app", "US")
        Traceback (most recent call last):
        ValueError: segment is 'US'; the document has the levels country:app
    """
    if levels is None:
        if segment is not None:
            raise ValueError("a segment is given; the document needs the key segment, which names its levels")
        return None
    if segment is None:
        raise ValueError(f"no segment is given; the document has the levels {levels}")
    segment = as_segment("segment", segment)
    if segment.count(":") != levels.count(":"):
        raise ValueError(f"segment is {segment!r}; the document has the levels {levels}")
    return segment


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
        self._nodes = sorted(live | inner)
        self.cells: tuple[str, ...] = ("", REST, *sorted(live | {_rest(node) for node in self._nodes}))
        self._index = {name: i for i, name in enumerate(self.cells)}

    def index(self, text: str) -> int:
        """Returns the index in `cells` of a segment's cell; O(its levels)."""
        known = (self._index.get(_rest(prefix), 1) for prefix in prefixes(text))
        return self._index.get(text) or max(known, key=lambda i: len(self.cells[i]))

    @cached_property
    def nodes(self) -> list[tuple[str, int, int]]:
        """The declared segments and their prefixes.

        Each has the index of its own cell, or -1 if it is not declared, and the index of its rest.
        """
        return [(node, self._index.get(node, -1), self._index[_rest(node)]) for node in self._nodes]


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
