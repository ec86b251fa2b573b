"""The newest published snapshot, as the snapshot topic records it.

A publisher continues from the head. A claim compares it with Redis and the group's offsets to detect lost counts.
"""

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson

import ldp
from ldp.consistency import METHODS
from ldp.snapshot import SCHEMA, Closed, Cut, Released, Rows, Snapshot, progress, released_of, rows_of
from ldp.snapshot.checking import MOST_BYTES, check_head
from worker.counting import rules, windows
from worker.counting.changed import changes, remedy
from worker.counting.documents import seal, unnamed
from worker.counting.lineage import IDENTITY, identity
from worker.counting.rules import Names, Rule


class NewerHead(ValueError):  # noqa: N818  # named after the finding
    """A newer version of the worker wrote the head."""


@dataclass(frozen=True)
class Head:
    """The newest published snapshot; number 0 if there is none.

    Attributes:
        sequence: the snapshot's number.
        offsets: partition -> the offset up to which it was counted.
        reports: the number of reports.
        gaps: partition -> ranges [from, to) of lost offsets.
        uncounted: partitions that should have had counts, but had none.
        rules: partition -> its rules in JSON types.
        lineage: the fields of `IDENTITY`, and the document's hashed text.
        documents: fingerprint -> sealed document (`worker.counting.documents`), in the order in which they were added.
        counted: fingerprint -> the number of reports of the document.
        floors: admitted partition -> the time at which its windows begin.
        progress: window name -> the progress of its windows.
        rows: the rows that each window can have on the topic of rows; None if not recorded.
        methods: the methods that can have messages on the snapshot topic.
        reached: the highest time up to which windows were closed; None without windows.
        released: the published part of the counts; None if all counts are published.
        variance_shares: fingerprint -> the document's share of the variance.

    Example:
        >>> head = Head(3, {0: 7}, 5)
        >>> head.behind(Cut({0: 6}, {})), head.behind(Cut({0: 7, 1: 2}, {}))
        (True, False)
    """

    sequence: int = 0
    offsets: Mapping[int, int] = field(default_factory=dict)
    reports: int = 0
    gaps: Mapping[int, list[tuple[int, int]]] = field(default_factory=dict)
    uncounted: tuple[int, ...] = ()
    rules: Mapping[int, Sequence[Mapping[str, Any]]] = field(default_factory=dict)
    lineage: Mapping[str, str] = field(default_factory=dict)
    documents: Mapping[str, str] = field(default_factory=dict)
    counted: Mapping[str, int] = field(default_factory=dict)
    floors: Mapping[int, int] = field(default_factory=dict)
    progress: Mapping[str, Closed] = field(default_factory=dict)
    rows: Rows | None = None
    methods: tuple[str, ...] = ()
    reached: int | None = None
    released: Released | None = None
    variance_shares: Mapping[str, float] = field(default_factory=dict)

    @classmethod
    def read(cls, value: bytes, stream: str) -> "Head":
        """Parses the value of a record that contains a stream's head.

        Readers skip an invalid record and continue with an older one. Compaction removes the older records of a key
        first, so the newest valid head is the newest published one. Readers do not skip the head of a newer version.

        Args:
            value: the record's value.
            stream: the name of the stream.

        Raises:
            NewerHead: a newer version wrote the head.
            ValueError: the record is not a head of the stream.
        """
        if len(value) > MOST_BYTES:
            raise ValueError(f"{len(value)} bytes given; at most {MOST_BYTES} are allowed")
        body = orjson.loads(value)
        if type(body) is not dict or body.get("stream") != stream:
            raise ValueError(f"not a document of stream {stream!r}")
        return cls.parse(body)

    @classmethod
    def parse(cls, body: Mapping[str, Any]) -> "Head":
        """Parses the JSON object of a head.

        Raises:
            NewerHead: the schema is newer, or rules have unknown fields.
            ValueError: the object is not a valid head.
        """
        if type(schema := body.get("schema")) is int and schema > SCHEMA:
            raise NewerHead(f"schema {schema}, but this version reads up to {SCHEMA}")
        check_head(body)
        for name in body.get("windows", {}):
            windows.parse(name)
        documents = _documents(body["documents"])
        for listed in filter(None, body["rules"].values()):
            if unknown := {field for rule in listed for field in rule} - rules.FIELDS:
                raise NewerHead(f"rules with {min(unknown)!r}, unknown to this version")
            try:
                names = rules.joined(rules.parse(listed, listed[0]["offset"], next(iter(documents))))
                if unlisted := names.documents.keys() - documents.keys():
                    raise ValueError(f"rules with document {min(unlisted)}, which the head does not list")
            except (KeyError, TypeError) as error:
                raise ValueError(f"rules that cannot be read ({error!r})") from None
        return cls(
            body["sequence"],
            {int(partition): offset for partition, offset in body["offsets"].items()},
            body["reports"],
            {int(p): [(begin, end) for begin, end in gaps] for p, gaps in body["gaps"].items()},
            tuple(body["uncounted"]),
            {int(partition): listed for partition, listed in body["rules"].items()},
            body.get("lineage") or {},
            documents,
            {one["fingerprint"]: one["reports"] for one in body["documents"]},
            {int(partition): floor for partition, floor in body.get("floors", {}).items()},
            progress(body),
            rows_of(body),
            tuple(body.get("methods", METHODS)),
            body.get("reached"),
            released_of(body),
            _shares(body["documents"]),
        )

    @classmethod
    def of(cls, snapshot: Snapshot) -> "Head":
        """Returns a snapshot's head, equal to the parsed head of its message."""
        cut = snapshot.cut
        return cls(
            snapshot.sequence,
            cut.offsets,
            snapshot.reports,
            {partition: list(gaps) for partition, gaps in cut.gaps.items()},
            tuple(cut.uncounted),
            cut.rules,
            dict(snapshot.lineage or {}),
            _documents(snapshot.documents),
            {one["fingerprint"]: one["reports"] for one in snapshot.documents},
            cut.floors,
            cut.progress,
            cut.rows,
            cut.methods or tuple(METHODS),
            cut.reached,
            cut.released,
            _shares(snapshot.documents),
        )

    def behind(self, cut: Cut) -> bool:
        """Returns whether a cut is behind this head in any partition."""
        return any(
            cut.offsets.get(partition, -1) < offset for partition, offset in self.offsets.items()
        ) or any(
            len(published) > len(mine) and rules.continues(published, mine)
            for published, mine in ((listed, cut.rules.get(p, ())) for p, listed in self.rules.items())
        )

    def contradicts(self, cut: Cut) -> list[int]:
        """Returns the partitions whose rules in a cut contradict this head."""
        return [
            p
            for p, published in self.rules.items()
            if not rules.continues(mine := cut.rules.get(p, ()), published)
            or any(rule["offset"] < self.offsets.get(p, 0) for rule in mine[len(published) :])
        ]

    def rules_of(self, partition: int) -> list[Rule]:
        """Returns a partition's rules in this head."""
        listed = self.rules.get(partition)
        return rules.parse(listed, listed[0]["offset"], next(iter(self.documents), "")) if listed else []

    @functools.cached_property
    def names(self) -> Names:
        """The documents and segments that the rules of all partitions name."""
        return Names().joined(*(rules.joined(self.rules_of(partition)) for partition in self.rules))

    def needed_from(self, since: Mapping[str, int]) -> int:
        """Returns the start of the earliest open window.

        Args:
            since: window name -> start of the first window that may be published.

        Example:
            >>> hour = 3_600_000
            >>> head = Head(progress={"1h": Closed(5 * hour), "3h every 1h": Closed(5 * hour)})
            >>> head.needed_from({"1h": 0, "3h every 1h": 0}) // hour, head.needed_from({"1h": 0}) // hour
            (3, 5)
        """
        open_from = (
            max(start, windows.parse(name).first_open(self.progress[name].closed))
            if name in self.progress
            else start
            for name, start in since.items()
        )
        return min(open_from, default=0)

    def foreign(self, fleet: ldp.Fleet, lineage: str) -> list[str]:
        """Returns the differences from a fleet and a lineage, if any."""
        ours = identity(lineage)
        return [
            f"{name} {self.lineage[name]!r} there, {ours[name]!r} here"
            for name in IDENTITY
            if name in self.lineage and self.lineage[name] != ours[name]
        ] + unnamed(self.documents, fleet)


def _documents(listed: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    return {one["fingerprint"]: seal(one["document"], one["fingerprint"]) for one in listed}


def _shares(listed: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    return {one["fingerprint"]: one["variance_share"] for one in listed}


def named(fleet: ldp.Fleet, lineage: str) -> dict[str, str]:
    """Returns the lineage fields of a head."""
    here = {name: str(value) for name, value in identity(lineage).items()}
    return here | {"document": fleet.documents[0].hashed.decode()}


def others_of(fleet: ldp.Fleet, head: Head, differing: Sequence[str]) -> tuple[str, str]:
    """Returns the differences from another deployment's head, and the remedy."""
    what = "; ".join([*changes(fleet, head.documents), *differing])
    return what, f"{remedy(fleet, head.documents)}. A second deployment needs another snapshots.topic"
