"""Documents and segments that are published in addition to the stream.

A part of all time or of `late` is published from a number of reports on, which the head has. The number of a final
window is unknown, but all its parts have the same.
"""

import math
from collections.abc import Iterable, Mapping, Sequence, Set

from worker.audit.errors import Difference
from worker.audit.heads import Head
from worker.audit.parsing import Key
from worker.audit.snapshots import ALL, LATE, Snapshot


def expect_segments(
    newest: Snapshot, head: Head | None, heard: Mapping[Key, int], parts: Iterable[Snapshot]
) -> None:
    """Compares parts of all time and the head's segments with the recount.

    `heard` are the reports of the newest snapshot of all time.
    """
    if head is None or head.sequence != newest.sequence:
        return
    reports = {name: _reports_of(name, heard) for name in head.declared}
    if (head.segments is None) != (not reports):
        raise Difference(f"{newest}: segments {head.segments}, but {sorted(reports)} are declared")
    listed, there = head.segments or {}, {each.part for each in parts if each.name == ALL}
    for name, published in listed.items():
        if published != reports.get(name):
            raise Difference(
                f"{newest}: {published} reports of segment {name}, {reports.get(name)} recounted"
            )
        if f":{name}" not in there:
            raise Difference(f"{newest}: segment {name} is listed, but it is not on the topic")
    hidden = sum(heard.values()) - sum(n for name, n in listed.items() if ":" not in name)
    if head.segments is not None and head.hidden != hidden:
        raise Difference(f"{newest}: {head.hidden} hidden reports published, {hidden} recounted")
    shown = {part for part in there if part.startswith("@") or part[1:] in listed}
    due = {f":{name}": n for name, n in reports.items()} | _by_document(head.documents, heard)
    _expect_fewest(newest, shown, due, head.parts_fewest)


def expect_parts(
    whole: Snapshot, head: Head | None, heard: Mapping[Key, int], parts: Iterable[Snapshot]
) -> None:
    """Raises `Difference` if a final window or `late` lacks a part."""
    levels = {tuple(segment.split(":")) for _, segment in heard}
    prefixes = {each[:n] for each in levels for n in range(1, len(each) + 1)}
    segments = {":".join(prefix) for prefix in prefixes if prefix[-1] not in ("", "~")}
    reports = {f":{name}": _reports_of(name, heard) for name in segments}
    shown = {each.part for each in parts if (each.name, each.start) == (whole.name, whole.start)}
    reports |= _by_document(whole.documents, heard)
    if whole.name == LATE:
        fewest = math.inf if head is None else head.parts_fewest
    else:
        fewest = min((reports[name] for name in shown & reports.keys()), default=math.inf)
    _expect_fewest(whole, shown, reports, fewest)


def _by_document(documents: Sequence[str], heard: Mapping[Key, int]) -> dict[str, int]:
    """Returns the reports of each document; none if there is only one."""
    found = {f"@{name}": sum(n for (one, _), n in heard.items() if one == name) for name in documents}
    return found if len(documents) > 1 else {}


def _reports_of(name: str, heard: Mapping[Key, int]) -> int:
    """Returns the reports of a segment and of those that it includes."""
    return sum(n for (_, segment), n in heard.items() if f"{segment}:".startswith(f"{name}:"))


def _expect_fewest(whole: Snapshot, shown: Set[str], reports: Mapping[str, int], fewest: float) -> None:
    for name, n in reports.items():
        if n >= fewest and name not in shown:
            raise Difference(f"{whole}: no part {name[1:]}, which has {n} reports; {fewest} are enough")
