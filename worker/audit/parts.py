"""Documents and segments that are published in addition to the stream.

A part is published from a number of reports on that only the publisher's configuration has. Therefore a missing part
has fewer reports than each published part.
"""

from collections.abc import Collection, Iterable, Mapping

from worker.audit.errors import Difference
from worker.audit.heads import Head
from worker.audit.parsing import Key
from worker.audit.snapshots import ALL, Snapshot


def expect_segments(
    newest: Snapshot, head: Head | None, heard: Mapping[Key, int], parts: Iterable[Snapshot]
) -> None:
    """Compares the head's numbers of reports by segment with the recount.

    `heard` are the reports of the newest snapshot of all time. The parts of listed segments are on the topic.
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
    _expect_fewest(newest, listed, reports)


def expect_parts(whole: Snapshot, heard: Mapping[Key, int], parts: Iterable[Snapshot]) -> None:
    """Raises `Difference` if a final window lacks a document or segment."""
    levels = {tuple(segment.split(":")) for _, segment in heard}
    prefixes = {each[:n] for each in levels for n in range(1, len(each) + 1)}
    segments = {":".join(prefix) for prefix in prefixes if prefix[-1] not in ("", "~")}
    reports = {f":{name}": _reports_of(name, heard) for name in segments}
    for document in whole.documents if len(whole.documents) > 1 else ():
        reports[f"@{document}"] = sum(n for (name, _), n in heard.items() if name == document)
    shown = {each.part for each in parts if (each.name, each.start) == (whole.name, whole.start)}
    _expect_fewest(whole, shown & reports.keys(), reports)


def _reports_of(name: str, heard: Mapping[Key, int]) -> int:
    """Returns the reports of a segment and of those that it includes."""
    return sum(n for (_, segment), n in heard.items() if f"{segment}:".startswith(f"{name}:"))


def _expect_fewest(whole: Snapshot, shown: Collection[str], reports: Mapping[str, int]) -> None:
    least = min((reports[name] for name in shown), default=None)
    for name, n in reports.items():
        if least is not None and n >= least and name not in shown:
            raise Difference(
                f"{whole}: no part {name}, which has {n} reports; a part with {least} is published"
            )
