"""Differences between recorded and configured documents, and the remedy."""

import json
from collections.abc import Mapping
from typing import Any

import ldp
from worker.counting.documents import colliding, unnamed

NEW_NAME = "give the stream another name: the worker then counts its topic again"
"""The remedy if the topic has reports that were made with the configured document."""
OTHER_FINGERPRINT = (
    "change the document, for example the order of its labels, so that it has another fingerprint"
)
"""The remedy if a recorded document has the fingerprint of a configured one."""
_NEW_TOPIC = (
    "undo the change; or list the recorded and the new document in streams.documents; or, if they have no label in"
    " common, give the stream another name and another topic. ldp-worker document --fingerprint prints a recorded"
    " document, and ldp-worker check gives a verdict on the change"
)
_LONGEST = 60
"""Maximum length of a printed value, because a head can contain any value."""


def changes(fleet: ldp.Fleet, recorded: Mapping[str, str]) -> list[str]:
    """Returns the changed fields of the newest document, one text per field.

    If a document has the fingerprint of another recorded one, it returns the differences of these two.

    Args:
        fleet: the configured documents, newest first.
        recorded: fingerprint -> sealed document (`worker.counting.documents`).

    Returns:
        The changes since the last of the recorded documents; empty if the configured one is recorded, or none is.

    Example:
        >>> before, now = ldp.Stream("s", ldp.GRR("1", 3)), ldp.Stream("s", ldp.GRR("1/2", 3), ["a", "b", "c"])
        >>> changes(ldp.Fleet((now,)), {before.fingerprint.hex(): before.hashed.decode()})
        ['epsilon: "1" → "1/2"', 'labels: none → SHA-256 fa1844c2…']
    """
    if not unnamed(recorded, fleet):
        return []
    for each in colliding(recorded, fleet):
        return differences(json.loads(recorded[each.fingerprint.hex()]), json.loads(each.hashed))
    return differences(json.loads([*recorded.values()][-1]), json.loads(fleet.documents[0].hashed))


def differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """Returns one text per differing field of two sealed documents."""
    names = sorted(name for name in {*old, *new} if old.get(name) != new.get(name))
    return [f"{_cut(ascii(name)[1:-1])}: {_shown(old, name)} → {_shown(new, name)}" for name in names]


def remedy(fleet: ldp.Fleet, recorded: Mapping[str, str]) -> str:
    """Returns the remedy for counts of another lineage with these documents."""
    if colliding(recorded, fleet):
        return OTHER_FINGERPRINT
    if unnamed(recorded, fleet):
        return _NEW_TOPIC
    return f"undo the change of the configuration, or {NEW_NAME}"


def _shown(document: Mapping[str, Any], name: str) -> str:
    if name not in document:
        return "none"
    value = document[name]
    if name == "labels":
        return f"SHA-256 {ascii(value)[1:9]}…"
    return _cut(json.dumps(value.removesuffix("/1") if isinstance(value, str) else value))


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"
