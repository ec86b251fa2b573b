"""Parser and checks of a stream's heads."""

import math
from collections.abc import Mapping, Set
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from worker.audit.decoding import chances_of
from worker.audit.errors import Difference
from worker.audit.parsing import Documents, Status
from worker.audit.records import Range
from worker.audit.stored import expect_sealed
from worker.audit.windows import shape_of


@dataclass(frozen=True)
class Closed:
    """Window progress of one configured window, such as `1h`."""

    closed: int  # windows that end at or before this time are final or bounded
    bounded: tuple[Range, ...]  # [from, to): windows that end in one of these ranges are bounded
    starts: tuple[int, ...]  # starts of the windows on the topic, if `retain` deletes windows

    def is_bounded(self, end: int) -> bool:
        """Returns whether the window that ends at `end` is bounded."""
        return any(first <= end < last for first, last in self.bounded)


@dataclass(frozen=True)
class Released:
    """Published part of the counts, if increments have a least size."""

    closed: int  # panes that end at or before this time are decided
    steps: tuple[
        tuple[int, int | None], ...
    ]  # (time, reports that panes that end after it need; None: not released)

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> "Released":
        """Parses the field of a head."""
        steps = tuple((int(since), fewest) for since, fewest in document["fewest"])
        ascending = [since for since, _ in steps]
        if ascending != sorted({*ascending}) or any(fewest is not None and fewest < 2 for _, fewest in steps):
            raise ValueError(f"steps {steps}")
        return cls(int(document["closed"]), steps)

    def fewest_of(self, end: int) -> float:
        """Returns the reports that a pane of a document needs; inf: not released."""
        steps = [fewest for since, fewest in self.steps if since < end <= self.closed]
        return math.inf if not steps or steps[-1] is None else steps[-1]


@dataclass(frozen=True)
class Head:
    """Contents of a head."""

    sequence: int
    offsets: Mapping[int, int]  # partition -> end of the counted offsets
    rules: Mapping[int, list[tuple[int, Set[str]]]]  # partition -> (offset, names of windows) of each rule
    floors: Mapping[int, int]  # partition -> time at which its windows start
    progress: Mapping[str, Closed]  # by configured window
    reports: int  # 0 for a head without a snapshot
    reached: int  # latest time up to which any window was closed; 0 without windows
    released: Released | None  # None if all counts are published
    fewest_new: tuple[frozenset[int], int]  # recorded sizes of increments, and the highest one in force
    accepted: Mapping[
        str, tuple[bool, int]
    ]  # document -> (retired, partitions that accept it), the oldest first
    retired: frozenset[str]  # fingerprints of the documents that any rule retires
    segments: Mapping[str, int] | None  # reports of the published segments; None without segments
    hidden: int  # reports of the others
    declared: frozenset[str]  # segments that rules name, and their prefixes
    parts_fewest: float  # least reports of a part; inf if the head has none

    @property
    def documents(self) -> tuple[str, ...]:
        """The fingerprints, the oldest first."""
        return tuple(self.accepted)

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> "Head":
        """Parses a head; raises one of `snapshots.UNREADABLE` if it is invalid."""
        return cls(
            _whole(document["sequence"], 1),
            {int(p): _whole(offset) for p, offset in document["offsets"].items()},
            {
                int(p): [(int(rule["offset"]), {*rule.get("windows", ())} - {"all"}) for rule in rules]
                for p, rules in document["rules"].items()
            },
            {int(p): int(floor) for p, floor in document.get("floors", {}).items()},
            {
                name: Closed(
                    int(line["closed"]), tuple((a, b) for a, b in line["bounded"]), tuple(line["starts"])
                )
                for name, line in document.get("windows", {}).items()
            },
            _whole(document["reports"]),
            int(document.get("reached", 0)),
            Released.of(document["released"]) if "released" in document else None,
            _fewest_new(document),
            {
                one["fingerprint"]: (one["retired"], one["partitions"])
                for one in document.get("documents", ())
            },
            frozenset(
                name
                for rules in document["rules"].values()
                for rule in rules
                for name, (_, retired) in rule.get("documents", {}).items()
                if retired
            ),
            None if "segments" not in document else {**document["segments"]},
            int(document.get("hidden", 0)),
            frozenset(
                ":".join(name.split(":")[:n])
                for name in _statuses(document, "segments")
                for n in range(1, name.count(":") + 2)
            ),
            document.get("parts_fewest", math.inf),
        )

    def expect_increments(self) -> None:
        """Raises `Difference` unless increments have the sizes of recorded rules."""
        recorded, highest = self.fewest_new
        if self.released is None and highest > 1:
            raise Difference(f"head {self.sequence}: all counts, but increments of {highest} are required")
        if self.released is not None and highest < 2:
            raise Difference(f"head {self.sequence}: released counts, but no increments are required")
        steps = () if self.released is None else self.released.steps
        if others := sorted({m for _, m in steps if m is not None} - recorded):
            raise Difference(f"head {self.sequence}: panes of {others[0]} reports, which no rule allows")

    def expect_listed(self, there: Mapping[tuple[str, int, int], bool]) -> None:
        """Raises `Difference` unless head and topic have the same windows.

        `there` maps the (name, start, end) of each window on the topic to whether the window is final. A head lists
        only windows that were published after `retain` was configured.
        """
        for name, line in self.progress.items():
            own = {start for other, start, _ in there if other == name}
            if missing := sorted({*line.starts} - own):
                raise Difference(
                    f"window {name}/{missing[0]}: head {self.sequence} lists it, but it is not on the topic"
                )
            more = sorted(start for start in own - {*line.starts} if start > min(line.starts, default=start))
            if more:
                raise Difference(
                    f"window {name}/{more[0]}: on the topic, but head {self.sequence} does not list it"
                )
        for (name, start, end), final in there.items():
            if name not in self.progress:
                raise Difference(f"window {name}/{start}: head {self.sequence} has no windows {name!r}")
            if final and end > self.progress[name].closed:
                at = self.progress[name].closed
                raise Difference(
                    f"window {name}/{start}: final, but head {self.sequence} has closed windows only up to {at}"
                )


def _fewest_new(document: Mapping[str, Any]) -> tuple[frozenset[int], int]:
    listed = {int(p): rules for p, rules in document["rules"].items()}
    ends = {int(p): offset for p, offset in document["offsets"].items()}
    recorded = frozenset(rule.get("fewest_new", 0) for rules in listed.values() for rule in rules)
    in_force = [
        [rule.get("fewest_new", 0) for rule in rules if rule["offset"] <= ends.get(p, 0)][-1:]
        for p, rules in listed.items()
    ]
    return recorded, max((m for (m,) in filter(None, in_force)), default=0)


def _statuses(document: Mapping[str, Any], kind: str) -> dict[str, list[Status]]:
    """Returns the statuses of documents or segments in each partition.

    The first rule of a partition can omit the stream's first document.
    """
    found = dict[str, list[Status]]()
    for rules in document["rules"].values():
        names = dict[str, Status]()
        if kind == "documents" and rules and kind not in rules[0]:
            names[document["fingerprint"]] = 0, False
        for rule in rules:
            for name, (version, retired) in rule.get(kind, {}).items():
                names[name] = max(names.get(name, (0, False)), (version, retired))
        for name, status in names.items():
            found.setdefault(name, []).append(status)
    return found


def expect_documents(document: Mapping[str, Any], before: Head | None, configured: Documents) -> None:
    """Raises `Difference` unless a head lists the documents of its rules.

    Later heads append documents. The first one names the stream.
    """
    where, listed = f"head {document['sequence']}", {one["fingerprint"]: one for one in document["documents"]}
    if not listed.keys() & configured.keys():
        raise Difference(f"{where}: documents {[*listed]}, but {[*configured]} in the configuration")
    if len(listed) < len(document["documents"]) or document["fingerprint"] != next(iter(listed)):
        names = [one["fingerprint"] for one in document["documents"]]
        raise Difference(f"{where}: fingerprint {document['fingerprint']}, but documents {names}")
    if before is not None and (*listed,)[: len(before.documents)] != before.documents:
        raise Difference(f"{where}: documents {[*listed]}, previously {[*before.documents]}")
    statuses = _statuses(document, "documents")
    if more := sorted(statuses.keys() - listed.keys()):
        raise Difference(f"{where}: rules name document {more[0]}, which it does not list")
    due = dict.fromkeys(listed, (False, 0)) | {
        name: (max(own)[1], sum(not retired for _, retired in own)) for name, own in statuses.items()
    }
    expect_entries(where, document, due)


def expect_entries(
    where: str, document: Mapping[str, Any], due: Mapping[str, tuple[bool, int]] | None
) -> None:
    """Compares the entries of documents in the head of a stream or a part.

    `due` maps a fingerprint to (retired, number of partitions that accept it); None if unknown.
    """
    listed = {one["fingerprint"]: one for one in document["documents"]}
    shares = _variance_shares(listed)
    for name, one in listed.items():
        expect_sealed(one["document"], name)
        found = one["retired"], one["partitions"]
        if due is not None and found != due[name]:
            raise Difference(
                f"{where}: (retired, partitions) of the document {name} are {found}, expected {due[name]}"
            )
        if not abs((share := one["variance_share"]) - shares[name]) <= 1e-9:
            raise Difference(
                f"{where}: variance_share of the document {name} is {share!r}, expected {shares[name]!r}"
            )
    if (reports := sum(one["reports"] for one in listed.values())) != document["reports"]:
        raise Difference(f"{where}: {document['reports']} reports, but {reports} by document")


def _variance_shares(listed: Mapping[str, Mapping[str, Any]]) -> dict[str, float]:
    """Returns each document's share of the variance n q(1 − q)/(p − q)².

    Without reports, all documents have the same n.
    """
    if len(listed) == 1:
        return dict.fromkeys(listed, 1.0)
    some = any(one["reports"] for one in listed.values())
    found = dict[str, Fraction]()
    for name, one in listed.items():
        p, q = chances_of(one["document"])
        found[name] = (one["reports"] if some else 1) * q * (1 - q) / (p - q) ** 2
    total = sum(found.values())
    return {name: float(variance / total) if total else 0.0 for name, variance in found.items()}


def _whole(number: Any, least: int = 0) -> int:
    if type(number) is not int or not least <= number < 2**63:
        raise ValueError(f"{number!r}; allowed are integers from {least}")
    return number


def expect_follows(head: Head, before: Head) -> list[str]:
    """Compares successive heads; returns the windows that only `before` lists."""
    where = f"head {head.sequence} after {before.sequence}"
    for p, offset in before.offsets.items():
        if head.offsets.get(p, -1) < offset:
            raise Difference(f"{where}: offset {head.offsets.get(p)} of partition {p}, previously {offset}")
    for p, floor in before.floors.items():
        if head.floors.get(p) != floor:
            raise Difference(f"{where}: floor {head.floors.get(p)} of partition {p}, previously {floor}")
    # a deleted head in between may have set the floor when fewer windows were closed
    added = head.floors.keys() - before.floors.keys() if head.sequence == before.sequence + 1 else set[int]()
    for p in sorted(added):
        if head.floors[p] > head.reached:
            raise Difference(
                f"{where}: floor {head.floors[p]} of partition {p}, but windows are closed only up to {head.reached}"
            )
    for name, line in before.progress.items():
        after = head.progress.get(name)
        if after is None or after.closed < line.closed:
            at = None if after is None else after.closed
            raise Difference(f"{where}: windows {name!r} are closed up to {at}, previously {line.closed}")
    listed, kept = (
        {
            f"{name}/{start}": start + shape_of(name)[0]
            for name, line in of.progress.items()
            for start in line.starts
        }
        for of in (before, head)
    )
    if not kept:  # `retain` is no longer configured
        return []
    gone = sorted(listed.keys() - kept.keys())
    # a window that became final with this head stays at least until the next snapshot
    stay = {
        of for of in listed.keys() & kept.keys() if listed[of] <= before.progress[of.split("/")[0]].closed
    }
    # a limit of increments begins: open windows are deleted, because they showed smaller ones
    begins = before.released is None and head.released is not None
    for of in gone:
        if begins and listed[of] > before.progress[of.split("/")[0]].closed:
            continue
        if earlier := [other for other in stay if listed[other] <= listed[of]]:
            raise Difference(
                f"window {of}: unlisted since snapshot {head.sequence}, though {min(earlier)} ends no later"
            )
    return gone
