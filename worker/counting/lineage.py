"""Lineage: the identity of counts and the version of their layout.

The lineage is stored with the counts as canonical JSON. It contains the identity (the group and the topic's id), which
never changes, and the layout's version. Counts of different identities are never mixed. The store compares lineages as
text, so a worker keeps the stored text unchanged. The documents of the counts are recorded apart, because they change.
"""

import functools
import json
from collections.abc import Mapping
from typing import Any

LAYOUT = 1
"""The version of `worker.counting.layout` that this worker writes and reads."""
IDENTITY = ("group", "topic_id")
"""Fields of the identity, which never change."""


def lineage_of(group: str, topic_id: str) -> str:
    """Returns the lineage of newly counted partitions.

    Example:
        >>> lineage_of("g", "Xk")
        '{"group": "g", "layout": 1, "topic_id": "Xk"}'
    """
    return json.dumps({"group": group, "layout": LAYOUT, "topic_id": topic_id}, sort_keys=True)


def identity(stored: str) -> dict[str, object]:
    """Returns the identity in a stored lineage, with None for missing fields."""
    fields = _fields(stored)
    return {name: fields.get(name) for name in IDENTITY}


def differing(stored: str, ours: str) -> list[str]:
    """Returns the differences in identity between two lineages.

    Example:
        >>> differing('{"group": "h", "layout": 1, "topic_id": "Xk"}', lineage_of("g", "Xk"))
        ["group is 'h' there, 'g' here"]
    """
    theirs, here = _fields(stored), _fields(ours)
    names = [name for name in sorted(IDENTITY) if theirs.get(name) != here[name]]
    if not isinstance(theirs.get("layout"), int) or theirs["layout"] < 1:
        names.append("layout")
    return [f"{name} is {theirs.get(name)!r} there, {here[name]!r} here" for name in names]


def newer(stored: str) -> str | None:
    """Returns why a lineage needs a newer version of the worker, or None."""
    fields = _fields(stored)
    if isinstance(fields.get("layout"), int) and fields["layout"] > LAYOUT:
        return f"layout {fields['layout']}, but this version reads up to {LAYOUT}"
    if unknown := fields.keys() - {*IDENTITY, "layout"}:
        return f"a lineage with {', '.join(sorted(unknown))}, unknown to this version"
    return None


@functools.lru_cache  # few values, but each step of a claim or a commit parses one
def _fields(stored: str) -> Mapping[str, Any]:
    """Returns the fields of a stored lineage; empty for malformed text."""
    try:
        fields = json.loads(stored)
    except (ValueError, RecursionError):
        return {}
    return fields if isinstance(fields, dict) else {}
