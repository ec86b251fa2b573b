"""Checks of a stream's documents: changes, and where each is in force."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import ldp
from worker.check.changes import Listed, Verdict, changes, few
from worker.check.finding import Finding, Level
from worker.config import Served
from worker.counting import layout, rules
from worker.counting.head import Head
from worker.counting.ports import Metadata, StateLost
from worker.counting.rules import Names
from worker.observe.units import size_text

_LARGER = 16
"""Ratio of the sizes of counts from which on check names the largest document."""
_LEVELS = {
    Verdict.SAFE: Level.OK,
    Verdict.WARNING: Level.WARNING,
    Verdict.NEW_STREAM: Level.ERROR,
    Verdict.IMPOSSIBLE: Level.ERROR,
}
_WAIT = "start all workers with this configuration, and send the document to clients once it is in force everywhere"
_UNLISTED = "this configuration does not list it: add it to documents, then start all workers"
_RETIRED = "this configuration retires it: move it from retired to documents, then start all workers"
_USED = "clients still send it: retire it after they have the new document, because its later reports are rejected"


@dataclass(frozen=True)
class Recorded:
    """The recorded documents and segments of a stream.

    Attributes:
        documents: fingerprint -> sealed document, in the head's order.
        partitions: the names in the rules of each partition of the topic; None for a partition without counts.
        names: the names of all partitions, in Redis and in the head.
    """

    documents: Mapping[str, str]
    partitions: tuple[Names | None, ...]
    names: Names

    @classmethod
    def of(cls, found: Iterable[Metadata | None], head: Head) -> "Recorded":
        """Returns the records of a head and of the metadata of each partition.

        Unreadable metadata count as none; `counts` reports them.
        """
        documents, partitions = dict(head.documents), list[Names | None]()
        for metadata in found:
            try:
                partitions.append(None if metadata is None else rules.joined(layout.recorded(metadata)))
                documents |= {} if metadata is None else layout.documents(metadata)
            except StateLost:
                partitions.append(None)
        return cls(documents, tuple(partitions), head.names.joined(*filter(None, partitions)))

    def where(self, document: str, *, retired: bool = False) -> list[int]:
        """Returns the partitions in which a document is accepted, or retired."""
        found = ({} if names is None else names.documents for names in self.partitions)
        return [p for p, by in enumerate(found) if document in by and by[document].retired == retired]


def assess_documents(
    served: Served, recorded: Recorded, head: Head, newest: Mapping[str, int], ship: ldp.Stream | None = None
) -> list[Finding]:
    """Returns the verdicts on changes, and where each document is in force.

    Args:
        served: the stream.
        recorded: its recorded documents.
        head: its newest head, for shares of the variance.
        newest: fingerprint -> number of the newest reports.
        ship: a document that clients are to receive; an error unless it is in force in all partitions.
    """
    asked = Listed.of(served.fleet, served.configured.names(served.fleet))
    former = Listed(recorded.documents, recorded.names, asked.labels)
    windowing = served.configured.limits.windowing
    findings = [
        Finding(
            _LEVELS[each.verdict],
            f"{each.subject} of {served.name}",
            f"{each.verdict}: {each.text}",
            each.hint,
        )
        for each in changes(former, asked, windowing)
    ]
    wanted = [] if ship is None else [ship.fingerprint.hex()]
    documents = dict.fromkeys([*recorded.documents, *asked.documents, *wanted])
    if len(documents) > 1 or wanted:
        sizes, total = served.cell_bytes, sum(newest.values())
        for name in documents:
            text = _in_force(name, recorded)
            if total and not text.startswith("retired"):
                text += f"; {_percent(newest.get(name, 0) / total)} of the newest reports"
            if name in head.variance_shares:
                text += f"; {_percent(head.variance_shares[name])} of the variance"
            if sizes.get(name) == (most := max(sizes.values())) and most >= _LARGER * min(sizes.values()):
                text += f"; the largest counts, up to {size_text(most)} for each pane of a partition"
            findings.append(_finding(served, name, text, recorded, asked.names, newest.get(name, 0), ship))
    return findings


def _in_force(name: str, recorded: Recorded) -> str:
    total, accepted = len(recorded.partitions), recorded.where(name)
    if retired := recorded.where(name, retired=True):
        return f"retired in {len(retired)} of {total} partitions"
    text = f"in force in {len(accepted)} of {total} partitions"
    if accepted and (missing := sorted({*range(total)} - {*accepted})):
        text += f", not in {few(map(str, missing))}"
    return text


def _finding(
    served: Served,
    name: str,
    text: str,
    recorded: Recorded,
    asked: Names,
    newest: int,
    ship: ldp.Stream | None,
) -> Finding:
    subject = f"document {name} of {served.name}"
    everywhere = len(recorded.where(name)) == len(recorded.partitions)
    wanted, gone = asked.documents.get(name), recorded.names.documents.get(name)
    retires = wanted is not None and wanted.retired
    if ship is not None and ship.fingerprint.hex() == name:
        if everywhere and not retires and recorded.documents.get(name) == ship.hashed.decode():
            return Finding(Level.OK, subject, text)
        hint = _UNLISTED if wanted is None else _RETIRED if retires else _WAIT
        return Finding(Level.ERROR, subject, text, hint)
    if gone is not None and gone.retired:
        return Finding(Level.OK, subject, text)
    if everywhere:
        used = retires and newest > 0
        return Finding(Level.WARNING if used else Level.OK, subject, text, _USED if used else "")
    return Finding(Level.WARNING, subject, text, _WAIT)


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"
