"""The largest message that the encoder can make of a stream, for what has to let it pass."""

import json
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING

from ldp.consistency import METHODS
from ldp.query import Query, of_domain
from ldp.snapshot.documents import BASE_ONLY, CHUNK, INLINE, VECTORS

if TYPE_CHECKING:
    from ldp.stream import Stream

_NUMBER = 25  # The longest float64 in JSON, such as -2.2250738585072014e-308, with its comma
_OFFSET = 48  # The longest entry of a snapshot's offsets, such as "2147483647":9223372036854775807, in JSON
_RULES = 384
"""Three rules of a partition in a snapshot's head, in JSON: few configurations change what counts more often."""
_WINDOWED = 72  # Of a rule with windows in JSON, all that is beside their names
_START = 16  # The longest start of a window in a head, such as 253402300799000, with its comma
_LINE = 64  # What a head says of the windows of one name, beside that and the starts, in JSON
_ENVELOPE = 8192
"""A body without vectors, queries, offsets and document: its names, some dozens of gaps, key, headers, batch header."""


def largest_message(
    stream: "Stream",
    queries: Iterable[Query],
    partitions: int,
    windows: Mapping[str, int] = MappingProxyType({}),
) -> int:
    """Returns an upper bound of the bytes of the largest message in any snapshot of a stream.

    It counts everything at its longest, without compression; only more than some dozens of gaps, bounded ranges or
    changes of rules can exceed it. `partitions` are those of the stream's topic; `windows` maps a name to the number
    of windows on the topic.

    Example:
        >>> import ldp
        >>> largest_message(ldp.Stream("s", ldp.OLH(epsilon="1", domain_size=845)), (), partitions=4)
        135226
    """
    d = stream.oracle.domain_size
    sets, tops = of_domain(queries, d)
    document = {key: value for key, value in stream.document().items() if key != "labels"}
    method = {"method": max(METHODS, key=len), "sequence": 0}
    shared = {"frequency": 0, "frequencies": 0, "standard_error": 0, "recommended": method}
    shared |= dict.fromkeys(BASE_ONLY, 0)
    asked = [{"name": query.name, "values": query.values} | shared for query in sets]
    most = [{"name": query.name, "values": [d] * query.k} | shared for query in tops]
    numbers = 3 + len(BASE_ONLY)
    numbers = numbers * len(sets) + sum(1 + len(VECTORS) * query.k for query in tops)
    body = _ENVELOPE + _OFFSET * partitions + _json([document, asked, most]) + _NUMBER * numbers
    if d <= INLINE:
        body += len(VECTORS) * _NUMBER * d
    chunk = _ENVELOPE + 8 * min(d, CHUNK) if d > INLINE else 0
    labels = stream.labels or ()
    parts = [_json(labels[i : i + INLINE]) for i in range(0, len(labels), INLINE)]
    named = 3 * (_WINDOWED + _json(list(windows))) + _OFFSET if windows else 0  # in the rules; and a floor
    listed = sum(_LINE + _json(name) + _START * starts for name, starts in windows.items())
    names = [query.name for query in sets] + [query.name for query in tops]
    places = dict.fromkeys(names, d)  # of the rows, and of those of before
    head = _ENVELOPE + (_OFFSET + _RULES + named) * partitions + listed + 2 * _json(places)
    return max(body, head, chunk, _ENVELOPE + max(parts, default=0))


def _json(tree: object) -> int:
    return len(json.dumps(tree, ensure_ascii=False).encode())
