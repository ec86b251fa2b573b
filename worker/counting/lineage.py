"""Lineage: what a partition's counts are of, and which stored counts a version of the worker goes on with.

A lineage is stored with the counts, as canonical JSON. It has two parts:

- what must never change: the group, the topic's id and the fingerprint of the stream. Counts of others are another
  history, never to be mixed;
- how they are stored: the version of the layout. A worker refuses a newer one.

The store compares a lineage as it is stored, so a worker carries on the text that it found, not one of its own.
"""

import functools
import json
from collections.abc import Mapping
from typing import Any

import ldp

LAYOUT = 1
"""The version of `worker.counting.layout` that this worker writes and reads."""
IDENTITY = ("group", "topic_id", "fingerprint")
"""What must never change."""


def lineage_of(group: str, stream: ldp.Stream, topic_id: str) -> str:
    """Returns the lineage of a partition that is counted from now on.

    Example:
        >>> lineage_of("g", ldp.Stream("colours", ldp.GRR("1", 3)), "Xk")
        '{"fingerprint": "8e9f39d0", "group": "g", "layout": 1, "topic_id": "Xk"}'
    """
    return json.dumps(
        {
            "fingerprint": stream.fingerprint.hex(),
            "group": group,
            "layout": LAYOUT,
            "topic_id": topic_id,
        },
        sort_keys=True,
    )


def identity(stored: str) -> dict[str, object]:
    """Returns what must never change of a stored lineage; None for what it does not say."""
    said = _said(stored)
    return {name: said.get(name) for name in IDENTITY}


def differing(stored: str, ours: str) -> list[str]:
    """Names what makes a stored lineage another history than ours; nothing for the same, however it is stored.

    Example:
        >>> ours = '{"fingerprint": "8e9f39d0", "group": "g", "layout": 1, "topic_id": "Xk"}'
        >>> differing('{"fingerprint": "8e9f39d0", "group": "h", "layout": 1, "topic_id": "Xk"}', ours)
        ["group is 'h' there, 'g' here"]
    """
    said, now = _said(stored), _said(ours)
    names = [name for name in sorted(IDENTITY) if said.get(name) != now[name]]
    if not isinstance(said.get("layout"), int) or said["layout"] < 1:
        names.append("layout")
    return [f"{name} is {said.get(name)!r} there, {now[name]!r} here" for name in names]


def newer(stored: str) -> str | None:
    """Says what of a stored lineage only a newer version of the worker can have written, or None.

    Example:
        >>> newer('{"fingerprint": "8e9f39d0", "group": "g", "layout": 2, "topic_id": "Xk"}')
        'layout 2, where this version reads up to 1'
    """
    said = _said(stored)
    if isinstance(said.get("layout"), int) and said["layout"] > LAYOUT:
        return f"layout {said['layout']}, where this version reads up to {LAYOUT}"
    if unknown := said.keys() - {*IDENTITY, "layout"}:
        return f"a lineage with {', '.join(sorted(unknown))}, which this version does not know"
    return None


@functools.lru_cache  # there are few, and each step of a claim or a commit reads one
def _said(stored: str) -> Mapping[str, Any]:
    """Returns what a stored lineage says; nothing for what is none."""
    try:
        said = json.loads(stored)
    except (ValueError, RecursionError):
        return {}
    return said if isinstance(said, dict) else {}
