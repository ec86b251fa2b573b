"""Bounds the size of a stream's snapshot messages."""

import json
from collections.abc import Collection, Iterable, Mapping
from types import MappingProxyType

from ldp.consistency import METHODS
from ldp.fleet import Fleet
from ldp.query import Query, of_domain
from ldp.segments import prefixes
from ldp.snapshot.documents import BASE_ONLY, CHUNK, INLINE, KNOWN, VECTORS
from ldp.stream import Stream

# Sizes in bytes of JSON
_NUMBER = 25  # Longest float64 with its comma, such as -2.2250738585072014e-308
_OFFSET = 48  # Longest entry of a snapshot's offsets, such as "2147483647":9223372036854775807
_RULES = 384  # Three rules of a partition in a head; few configurations change their rules more often
_WINDOWED = 72  # Window fields of a rule, except the windows' names
_START = 16  # Longest start of a window in a head with its comma, such as 253402300799000
_LINE = 64  # Fields of the windows of one name in a head, except the name and the starts
_STATUS = 34  # Status of a document or segment in a rule, or its reports in a head, except the name
_DOCUMENT = 256  # Entry of a document in a head or body, with the hash of labels, except the document
_ENVELOPE = 8192  # Rest of a body: field names, a few dozen gaps, key, headers, batch header


def largest_message(
    stream: Stream | Fleet,
    queries: Iterable[Query],
    partitions: int,
    windows: Mapping[str, int] = MappingProxyType({}),
    segments: Collection[str] = (),
) -> int:
    """Returns an upper bound of the size of a stream's messages in bytes.

    The bound assumes the longest numbers and no compression. A message can exceed the bound only if there are more than
    a few dozen gaps, bounded ranges or rule changes. `partitions` is the number of partitions of the stream's topic.
    `windows` maps each name of windows to the number of these windows on the snapshot topic. `segments` are the
    declared segments.

    Example:
        >>> import ldp
        >>> largest_message(ldp.Stream("s", ldp.OLH(epsilon="1", domain_size=845)), (), partitions=4)
        135226
    """
    fleet = stream if isinstance(stream, Fleet) else Fleet((stream,))
    d, several = fleet.size, len(fleet.documents) > 1
    sets, tops = of_domain(queries, d)
    documents = [
        {key: value for key, value in one.document().items() if key != "labels"} for one in fleet.documents
    ]
    method = {"method": max(METHODS, key=len), "sequence": 0}
    shared = {"frequency": 0, "frequencies": 0, "standard_error": 0, "recommended": method}
    shared |= dict.fromkeys((*BASE_ONLY, KNOWN) if several else BASE_ONLY, 0)
    asked = [{"name": query.name, "values": query.values} | shared for query in sets]
    most = [{"name": query.name, "values": [d] * query.k} | shared for query in tops]
    numbers = 3 + len(BASE_ONLY) + several
    numbers = numbers * len(sets) + sum(1 + len(VECTORS) * query.k for query in tops)
    entries = _DOCUMENT * len(documents) + _json(documents) if several else _json(documents)
    body = _ENVELOPE + entries + _OFFSET * partitions + _json([asked, most]) + _NUMBER * numbers
    if d <= INLINE:
        body += (len(VECTORS) + several) * _NUMBER * d
    chunk = _ENVELOPE + 8 * min(d, CHUNK) if d > INLINE else 0
    labels = fleet.labels or ()
    parts = [_json(labels[i : i + INLINE]) for i in range(0, len(labels), INLINE)]
    named = 3 * (_WINDOWED + _json(list(windows))) + _OFFSET if windows else 0  # in three rules, and a floor
    listed = sum(_LINE + _json(name) + _START * starts for name, starts in windows.items())
    names = [query.name for query in sets] + [query.name for query in tops]
    places = dict.fromkeys(names, d)  # ranks of the rows, and of the older rows
    named += _STATUS * several * len(documents) + sum(_STATUS + len(name) for name in segments)
    listed += sum(_STATUS + len(prefix) for name in segments for prefix in prefixes(name))
    head = (
        _ENVELOPE + several * entries + (_OFFSET + _RULES + named) * partitions + listed + 2 * _json(places)
    )
    return max(body, head, chunk, _ENVELOPE + max(parts, default=0))


def _json(tree: object) -> int:
    return len(json.dumps(tree, ensure_ascii=False).encode())
