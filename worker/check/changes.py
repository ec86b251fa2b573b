"""Verdicts on changes of a stream's documents and segments.

The verdicts depend on the recorded documents and segments, and on the configuration. Workers join the names of both:
the higher status of a name applies (`worker.counting.rules.Status`).
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

import ldp
from ldp.oracles import Oracle
from worker.counting import bounds
from worker.counting.changed import OTHER_FINGERPRINT, differences
from worker.counting.documents import opened
from worker.counting.rules import Names, Status
from worker.counting.windows import Windowing

_LISTED = 8
"""Maximum number of labels or segments in one text."""
_HALF = 0.51
"""Share of the variance at half of the reports from which on a document is weaker."""


class Verdict(StrEnum):
    """Whether workers can apply a change."""

    SAFE = "safe"
    WARNING = "safe, with a warning"
    NEW_STREAM = "new stream"
    IMPOSSIBLE = "impossible"


@dataclass(frozen=True)
class Change:
    """A change with its verdict; `subject` is a document or segments."""

    verdict: Verdict
    subject: str
    text: str
    hint: str = ""


@dataclass(frozen=True)
class Listed:
    """The recorded or the configured documents and segments of a stream.

    Attributes:
        documents: fingerprint -> sealed document (`worker.counting.documents`), in order.
        names: the statuses of documents and segments.
        labels: fingerprint -> labels, for documents whose labels are at hand; None for a document without labels.
    """

    documents: Mapping[str, str]
    names: Names
    labels: Mapping[str, Sequence[str] | None] = field(default_factory=dict)

    @classmethod
    def of(cls, fleet: ldp.Fleet, names: Names) -> "Listed":
        """Returns the documents and segments of a configuration."""
        by = {each.fingerprint.hex(): each for each in fleet.documents}
        sealed = {name: each.hashed.decode() for name, each in by.items()}
        return cls(sealed, names, {name: each.labels for name, each in by.items()})

    def live(self) -> list[str]:
        """Returns the fingerprints of the documents that are not retired."""
        return [name for name in self.documents if not self.names.documents.get(name, Status()).retired]


def changes(recorded: Listed, asked: Listed, windowing: Windowing | None = None) -> list[Change]:
    """Returns a verdict on each change from recorded names to configured ones.

    The result is empty if nothing is recorded or nothing changes.

    Example:
        >>> from worker.counting.rules import RequestedRule
        >>> old, new = (ldp.Stream("s", ldp.GRR(epsilon, 2), ["no", "yes"]) for epsilon in ("1", "2"))
        >>> fleets = ldp.Fleet((old,)), ldp.Fleet((new, old))
        >>> recorded, asked = (Listed.of(fleet, RequestedRule().names(fleet)) for fleet in fleets)
        >>> for each in changes(recorded, asked):
        ...     print(f"{each.verdict}: {each.subject}: {each.text}")
        safe: document c2287976: added; epsilon: "1" → "2"
    """
    if not recorded.documents:
        return []
    if collisions := [*_collisions(recorded, asked)]:
        return collisions
    if not recorded.documents.keys() & asked.documents.keys():
        return [_foreign(recorded, asked)]
    found = [*_unlisted(recorded, asked), *_added(recorded, asked)]
    found += _moved("document", recorded.names.documents, asked.names.documents)
    found += _segments(recorded, asked)
    documents = [opened(text) for text in {**recorded.documents, **asked.documents}.values()]
    if excess := bounds.excess(documents, {*recorded.names.segments, *asked.names.segments}, windowing):
        hint = "workers refuse the change and follow the recorded names; use a new stream"
        found.append(Change(Verdict.IMPOSSIBLE, "configuration", f"with the recorded names, {excess}", hint))
    return found


def _collisions(recorded: Listed, asked: Listed) -> Iterator[Change]:
    for name, sealed in asked.documents.items():
        if recorded.documents.get(name, sealed) != sealed:
            text = "another document with this fingerprint is recorded"
            yield Change(Verdict.IMPOSSIBLE, f"document {name}", text, OTHER_FINGERPRINT)


def _foreign(recorded: Listed, asked: Listed) -> Change:
    """Returns the verdict on a configuration that names no recorded document."""
    before, after = [*recorded.documents][-1], next(iter(asked.documents))
    old, new = json.loads(recorded.documents[before]), json.loads(asked.documents[after])
    subject = f"document {after}"
    known = recorded.labels.get(before, ())
    if ("labels" in old) != ("labels" in new):
        text = f"has {'no ' if 'labels' in old else ''}labels, unlike the recorded document {before}"
        return Change(Verdict.NEW_STREAM, subject, text, _NEW_STREAM)
    if known and not {*known} & {*(asked.labels[after] or ())}:
        text = f"has no label in common with the recorded document {before}"
        return Change(Verdict.NEW_STREAM, subject, text, _NEW_STREAM)
    text = (
        f"replaces the recorded document {before}, and the stream stops; {'; '.join(differences(old, new))}"
    )
    hint = f"list both in streams.documents, newest first; ldp-worker document --fingerprint {before} prints the former"
    return Change(Verdict.IMPOSSIBLE, subject, text, hint)


_NEW_STREAM = "give the stream another name and topic, or list a document with common labels"


def _unlisted(recorded: Listed, asked: Listed) -> Iterator[Change]:
    for name in recorded.documents.keys() - asked.documents.keys():
        text = "recorded, and neither documents nor retired lists it: workers count it, and snapshots wait"
        hint = "list it in documents or retired; if its file was edited, restore the file and list the edited one apart"
        hint += f" (ldp-worker document --fingerprint {name} prints the document)"
        yield Change(Verdict.IMPOSSIBLE, f"document {name}", text, hint)


def _added(recorded: Listed, asked: Listed) -> Iterator[Change]:
    """Yields the verdicts on documents that are not recorded, oldest first."""
    known = [name for name in asked.documents if name in recorded.documents]
    live = [name for name in known if name in recorded.live()] or known
    for name in reversed([*asked.documents]):
        if name in recorded.documents:
            continue
        if asked.names.documents[name].retired:
            yield Change(Verdict.SAFE, f"document {name}", "recorded as retired; no partition accepted it")
            continue
        added = _addition(name, live, known, asked)
        yield added
        if added.verdict is not Verdict.NEW_STREAM:
            live = [name, *live]


def _addition(name: str, live: Sequence[str], known: Sequence[str], asked: Listed) -> Change:
    """Returns the verdict on an added document.

    Its fields are compared with the first live document; `known` are the recorded documents.
    """
    subject, newest, labels = f"document {name}", live[0], asked.labels
    own, former = labels[name], labels[newest]
    if (own is None) != (former is None):
        text = f"has {'no ' if own is None else ''}labels, unlike document {newest}"
        return Change(Verdict.NEW_STREAM, subject, text, _NEW_STREAM)
    old, new = json.loads(asked.documents[newest]), json.loads(asked.documents[name])
    details = differences({**old, "labels": ""}, {**new, "labels": ""})
    if own is None or former is None:
        warnings = ["labels: none, so values are joined by number; check cannot detect another meaning"]
    elif not any({*own} & {*(labels[each] or ())} for each in live):
        return Change(Verdict.NEW_STREAM, subject, "has no label in common with a live document", _NEW_STREAM)
    else:
        before = {label for each in known for label in labels[each] or ()}
        found, warnings = _relabelled(former, own, before)
        details += found
    warnings += _weaker(newest, *(opened(asked.documents[each]).oracle for each in (newest, name)))
    if more := {*_levels(new)} - {*_levels(old)}:
        warnings.append(f"reports reveal more than before: {', '.join(sorted(more))}")
    verdict = Verdict.WARNING if warnings else Verdict.SAFE
    return Change(verdict, subject, "; ".join(["added", *details, *warnings]), _GATE)


_GATE = "start all workers first; send the document to clients when check --document FILE exits with 0"


def _relabelled(before: Sequence[str], after: Sequence[str], known: set[str]) -> tuple[list[str], list[str]]:
    """Returns texts on the labels of a new document: details, and warnings."""
    added, gone = [x for x in after if x not in {*before}], [x for x in before if x not in {*after}]
    unknown = [label for label in added if label not in known]
    details = [
        f"labels {what}: {few(listed)}" for what, listed in (("added", added), ("removed", gone)) if listed
    ]
    if not details and [*before] != [*after]:
        details.append("labels in another order")
    if unknown and gone:
        return details, ["a renamed label has two histories: labels are joined by their text"]
    if unknown:
        return details, ["a label that was part of another label before makes that one mean less now"]
    return details, []


def _weaker(before: str, old: Oracle, new: Oracle) -> Iterator[str]:
    """Yields a warning if reports of a new document have more variance.

    The variance of a report for a rare value is q(1−q)/(p−q)².
    """
    first, second = (float(each.q * (1 - each.q) / (each.p - each.q) ** 2) for each in (old, new))
    if (share := second / (first + second)) >= _HALF:
        yield (
            f"weaker: a report has {second / first:.2g} times the variance of one of {before}, so half of the reports"
            f" have {share:.0%} of the variance".replace("%", " %")
        )


def _levels(document: Mapping[str, object]) -> list[str]:
    return str(document["segment"]).split(":") if "segment" in document else []


def _moved(kind: str, recorded: Mapping[str, Status], asked: Mapping[str, Status]) -> Iterator[Change]:
    """Yields verdicts on recorded names whose status differs."""
    groups: dict[tuple[bool, Status | None], list[str]] = {}
    for name in sorted(recorded.keys() & asked.keys()):
        before, after = recorded[name], asked[name]
        if before.retired != after.retired:
            groups.setdefault((after.retired, before if before > after else None), []).append(name)
    for (retired, status), names in groups.items():
        subject = f"{kind} {few(names)}"
        if status is None and retired:
            rest = "are rejected as retired" if kind == "document" else "count in the rest"
            yield Change(Verdict.SAFE, subject, f"retired; its counts stay, and its later reports {rest}")
        elif status is None:
            yield Change(Verdict.SAFE, subject, "accepted again")
        else:
            done, again = ("accepted", "retire") if retired else ("retired", "accept")
            need = status.version + (0 if retired else 1)
            text = f"{done} at revision {status.version}; the revision of the configuration is"
            text += " lower" if retired else " not higher"
            yield Change(
                Verdict.IMPOSSIBLE, subject, text, f"to {again} it, set streams.revision to {need} or more"
            )


def _segments(recorded: Listed, asked: Listed) -> Iterator[Change]:
    new = [name for name in asked.names.segments if name not in recorded.names.segments]
    if live := [name for name in new if not asked.names.segments[name].retired]:
        text = "added; earlier reports stay in the rest of their prefix"
        yield Change(Verdict.SAFE, f"segment {few(live)}", text)
    if unlisted := [name for name in recorded.names.segments if name not in asked.names.segments]:
        text = "recorded, and neither segments nor retired_segments lists it: it stays in force"
        hint = "list it in segments or retired_segments"
        yield Change(Verdict.IMPOSSIBLE, f"segment {few(unlisted)}", text, hint)
    yield from _moved("segment", recorded.names.segments, asked.names.segments)


def few(names: Iterable[str]) -> str:
    """Returns the first names, and how many more there are."""
    listed = [ascii(name)[1:-1] for name in names]
    more = [f"{len(listed) - _LISTED:,} more"] if len(listed) > _LISTED else []
    return ", ".join(listed[:_LISTED] + more)
