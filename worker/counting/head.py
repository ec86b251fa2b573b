"""The head: what was published last, as the snapshot topic itself says it.

It is the record from which a publisher goes on, and the third source of what was counted, beside Redis and the group's
offsets: where it says that something was counted, counts that are not there were lost.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson

import ldp
from ldp.consistency import METHODS
from ldp.snapshot import SCHEMA, Cut, Line, Rows, Snapshot, lines, rows_of
from ldp.snapshot.checking import MOST_BYTES, check_head
from worker.counting import rules, windows
from worker.counting.changed import changes, remedy
from worker.counting.lineage import IDENTITY, identity
from worker.counting.rules import Rule


class NewerHead(ValueError):  # noqa: N818  # named for what was found
    """A head that a newer version of the worker wrote."""


@dataclass(frozen=True)
class Head:
    """The newest published snapshot; number 0 when there is none.

    Attributes:
        sequence: its number.
        offsets: partition -> the offset up to which it was counted.
        reports: how many reports it has.
        gaps: partition -> stretches [from, to) that are not in it, because they were lost.
        uncounted: partitions that it left out though they have records.
        rules: partition -> by what its records were judged, in JSON's types.
        lineage: what its counts are of, by the names of `IDENTITY`.
        floors: partition -> the line at which its windows begin; those that a stream of windows has admitted.
        lines: name of windows -> how far they are closed.
        rows: what the stream can have on a topic of rows; None where it has none.
        methods: those that can have bodies on the topic: all, where the head's document does not say it.
        reached: how far some windows were really closed; None where there are none.

    Example:
        >>> head = Head(3, {0: 7}, 5, lineage={"fingerprint": "8e9f39d0"})
        >>> head.behind(Cut({0: 6}, {})), head.behind(Cut({0: 7, 1: 2}, {}))
        (True, False)
        >>> head.foreign('{"group": "ldp-worker-colours", "topic_id": "Xk", "fingerprint": "8e9f39d0"}')
        []
    """

    sequence: int = 0
    offsets: Mapping[int, int] = field(default_factory=dict)
    reports: int = 0
    gaps: Mapping[int, list[tuple[int, int]]] = field(default_factory=dict)
    uncounted: tuple[int, ...] = ()
    rules: Mapping[int, Sequence[Mapping[str, Any]]] = field(default_factory=dict)
    lineage: Mapping[str, str] = field(default_factory=dict)
    floors: Mapping[int, int] = field(default_factory=dict)
    lines: Mapping[str, Line] = field(default_factory=dict)
    rows: Rows | None = None
    methods: tuple[str, ...] = ()
    reached: int | None = None

    @classmethod
    def read(cls, value: bytes, stream: str) -> "Head":
        """Reads the record of a stream's head.

        A record of the head's key that is no head is not ours: readers pass it over and go on to an older one. That is
        no guess, as compaction removes the older records of a key first, so the newest readable head that is there is
        the newest that was published. A head of a newer version is ours, and is never passed over: what an older one
        says may no longer hold.

        Args:
            value: of the record.
            stream: whose head it has to be.

        Raises:
            NewerHead: a newer version wrote it.
            ValueError: it is no head of the stream.
        """
        if len(value) > MOST_BYTES:
            raise ValueError(f"{len(value)} bytes given; allowed are up to {MOST_BYTES}")
        body = orjson.loads(value)
        if type(body) is not dict or body.get("stream") != stream:
            raise ValueError(f"it is no document of stream {stream!r}")
        return cls.parse(body)

    @classmethod
    def parse(cls, body: Mapping[str, Any]) -> "Head":
        """Reads a head's document.

        Raises:
            NewerHead: a newer version wrote it: its schema is newer, or rules have fields that this one does not know.
            ValueError: it is no head.
        """
        if type(schema := body.get("schema")) is int and schema > SCHEMA:
            raise NewerHead(f"schema {schema}, where this version reads up to {SCHEMA}")
        check_head(body)
        for name in body.get("windows", {}):
            windows.parse(name)
        for listed in filter(None, body["rules"].values()):
            if unknown := {field for rule in listed for field in rule} - rules.FIELDS:
                raise NewerHead(f"rules with {min(unknown)!r}, which this version does not know")
            try:
                rules.parse(listed, listed[0]["offset"])
            except (KeyError, TypeError) as error:
                raise ValueError(f"rules that cannot be read ({error!r})") from None
        return cls(
            body["sequence"],
            {int(partition): offset for partition, offset in body["offsets"].items()},
            body["reports"],
            {int(p): [(begin, end) for begin, end in gaps] for p, gaps in body["gaps"].items()},
            tuple(body["uncounted"]),
            {int(partition): said for partition, said in body["rules"].items()},
            {"fingerprint": body["fingerprint"]} | (body.get("lineage") or {}),
            {int(partition): floor for partition, floor in body.get("floors", {}).items()},
            lines(body),
            rows_of(body),
            tuple(body.get("methods", METHODS)),
            body.get("reached"),
        )

    @classmethod
    def of(cls, snapshot: Snapshot) -> "Head":
        """Returns the head of a snapshot, which is what `parse` reads of its message."""
        cut = snapshot.cut
        return cls(
            snapshot.sequence,
            cut.offsets,
            snapshot.reports,
            {partition: list(gaps) for partition, gaps in cut.gaps.items()},
            tuple(cut.uncounted),
            cut.rules,
            {"fingerprint": snapshot.fingerprint} | dict(snapshot.lineage or {}),
            cut.floors,
            cut.lines,
            cut.rows,
            cut.methods or tuple(METHODS),
            cut.reached,
        )

    def behind(self, cut: Cut) -> bool:
        """Returns whether a cut is behind this head in any partition, by its offset or by a rule that it lacks."""
        return any(
            cut.offsets.get(partition, -1) < offset for partition, offset in self.offsets.items()
        ) or any(
            len(said) > len(mine) and rules.continues(said, mine)
            for said, mine in ((said, cut.rules.get(partition, ())) for partition, said in self.rules.items())
        )

    def contradicts(self, cut: Cut) -> list[int]:
        """Returns the partitions of a cut whose rules are not this head's, and perhaps more that hold beyond it."""
        return [
            p
            for p, said in self.rules.items()
            if not rules.continues(mine := cut.rules.get(p, ()), said)
            or any(rule["offset"] < self.offsets.get(p, 0) for rule in mine[len(said) :])
        ]

    def judged(self, partition: int) -> list[Rule]:
        """Returns by what a partition's records were judged, as far as this head says."""
        said = self.rules.get(partition)
        return rules.parse(said, said[0]["offset"]) if said else []

    def needed_from(self, since: Mapping[str, int]) -> int:
        """Returns the line below which no window that is still open begins.

        Args:
            since: the windows that there are, each with the first start that may be published.

        Example:
            >>> hour = 3_600_000
            >>> head = Head(lines={"1h": Line(5 * hour), "3h every 1h": Line(5 * hour)})
            >>> head.needed_from({"1h": 0, "3h every 1h": 0}) // hour, head.needed_from({"1h": 0}) // hour
            (3, 5)
        """
        open_from = (
            max(start, windows.parse(name).first_open(self.lines[name].closed))
            if name in self.lines
            else start
            for name, start in since.items()
        )
        return min(open_from, default=0)

    def foreign(self, lineage: str) -> list[str]:
        """Names what differs between this head and a stored lineage; nothing for the same counts."""
        ours = identity(lineage)
        return [
            f"{name} {self.lineage[name]!r} there, {ours[name]!r} here"
            for name in IDENTITY
            if name in self.lineage and self.lineage[name] != ours[name]
        ]


def named(stream: ldp.Stream, lineage: str) -> dict[str, str]:
    """Returns what a head has of a lineage in addition to the fingerprint, which every message has.

    Example:
        >>> named(
        ...     ldp.Stream("colours", ldp.GRR("1", 3)),
        ...     '{"fingerprint": "8e9f39d0", "group": "g-colours", "layout": 1, "topic_id": "Xk"}',
        ... )
        ... # doctest: +NORMALIZE_WHITESPACE
        {'group': 'g-colours', 'topic_id': 'Xk',
         'document': '{"domain_size":3,"epsilon":"1/1","protocol":"grr"}'}
    """
    here = {name: str(said) for name, said in identity(lineage).items() if name != "fingerprint"}
    return here | {"document": stream.hashed.decode()}


def others_of(stream: ldp.Stream, head: Head, differing: Sequence[str]) -> tuple[str, str]:
    """Returns what differs between a configured stream and a head that is of other counts, and the remedy."""
    theirs = head.lineage.get("fingerprint", stream.fingerprint.hex())
    what = "; ".join([*changes(stream, head.lineage, theirs), *differing])
    return what, f"{remedy(stream, theirs)}. A second deployment needs another snapshots.topic"
