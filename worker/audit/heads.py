"""Heads: how far the windows of a stream are closed, and which of them are there, as the newest one says."""

from collections.abc import Mapping, Set
from dataclasses import dataclass
from typing import Any

from worker.audit.errors import Difference
from worker.audit.records import Stretch
from worker.audit.windows import shape_of


@dataclass(frozen=True)
class Line:
    """How far the windows of one name are closed.

    Attributes:
        closed: those that end at or before it are final, or bounded.
        bounded: stretches [from, to) of ends that were closed before every partition had passed them.
        starts: of those that are on the topic, where they are to be deleted some day.
    """

    closed: int
    bounded: tuple[Stretch, ...]
    starts: tuple[int, ...]

    def is_bounded(self, end: int) -> bool:
        """Returns whether a window that ends there was closed before every partition had passed it."""
        return any(first <= end < last for first, last in self.bounded)


@dataclass(frozen=True)
class Head:
    """A head.

    Attributes:
        sequence: the number of its snapshot.
        offsets: partition -> the offset up to which it was counted.
        rules: partition -> the names of windows by each of its rules, with the offset that it holds from.
        floors: partition -> its floor.
        lines: name of windows -> how far they are closed.
        reports: how many it has; 0 where it is alone.
        reached: how far some windows were really closed; 0 where there are none.
    """

    sequence: int
    offsets: Mapping[int, int]
    rules: Mapping[int, list[tuple[int, Set[str]]]]
    floors: Mapping[int, int]
    lines: Mapping[str, Line]
    reports: int
    reached: int

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> "Head":
        """Reads a head's document; one of a stream without windows says less.

        Raises:
            LookupError, ValueError, TypeError, AttributeError, OverflowError: it is none.
        """
        return cls(
            _whole(document["sequence"], 1),
            {int(p): _whole(offset) for p, offset in document["offsets"].items()},
            {
                int(p): [(int(rule["offset"]), {*rule.get("windows", ())} - {"all"}) for rule in said]
                for p, said in document["rules"].items()
            },
            {int(p): int(floor) for p, floor in document.get("floors", {}).items()},
            {
                name: Line(
                    int(said["closed"]), tuple((a, b) for a, b in said["bounded"]), tuple(said["starts"])
                )
                for name, said in document.get("windows", {}).items()
            },
            _whole(document["reports"]),
            int(document.get("reached", 0)),
        )

    def ends_of_listed(self) -> dict[str, int]:
        """Returns the end of each window that is listed, by name and start as keys have them."""
        return {
            f"{name}/{start}": start + shape_of(name)[0]
            for name, line in self.lines.items()
            for start in line.starts
        }

    def expect_listed(self, there: Mapping[tuple[str, int, int], bool]) -> None:
        """Sees that the windows on the topic are those that it knows.

        Where nothing is to be deleted, and for what was published before that was asked for, nothing is listed.

        Args:
            there: name, start and end -> whether it is final.

        Raises:
            Difference: one that it lists is not there, or the other way round; or it has closed one that is not final,
                or one is final that it has not closed.
        """
        for name, line in self.lines.items():
            own = {start for other, start, _ in there if other == name}
            if missing := sorted({*line.starts} - own):
                raise Difference(
                    f"window {name}/{missing[0]}: by head {self.sequence} it is there, and it is not"
                )
            if line.starts and (
                more := sorted(start for start in own - {*line.starts} if start > min(line.starts))
            ):
                raise Difference(
                    f"window {name}/{more[0]}: is there, and head {self.sequence} does not list it"
                )
        for (name, start, end), final in there.items():
            if name not in self.lines:
                raise Difference(f"window {name}/{start}: head {self.sequence} knows no windows {name!r}")
            if final and end > self.lines[name].closed:
                at = self.lines[name].closed
                raise Difference(
                    f"window {name}/{start}: final, and by head {self.sequence} closed only up to {at}"
                )


def _whole(number: Any, least: int = 0) -> int:
    """Returns a whole number of at most 63 bits.

    Raises:
        ValueError: it is none.
    """
    if type(number) is not int or not least <= number < 2**63:
        raise ValueError(f"{number!r} where a whole number from {least} on is due")
    return number


def expect_follows(head: Head, before: Head) -> list[str]:
    """Sees that a head goes on from one before it; returns the windows that were listed and are not any more.

    Raises:
        Difference: a line, an offset or a floor is another than it can be.
    """
    where = f"head {head.sequence} after {before.sequence}"
    for p, offset in before.offsets.items():
        if head.offsets.get(p, -1) < offset:
            raise Difference(f"{where}: offset {head.offsets.get(p)} of partition {p}, {offset} before")
    for p, floor in before.floors.items():
        if head.floors.get(p) != floor:
            raise Difference(f"{where}: floor {head.floors.get(p)} of partition {p}, {floor} before")
    # a head between them that is gone may have said the floor, when windows were closed less far
    added = head.floors.keys() - before.floors.keys() if head.sequence == before.sequence + 1 else set[int]()
    for p in sorted(added):
        if head.floors[p] > head.reached:
            raise Difference(
                f"{where}: floor {head.floors[p]} of partition {p}, and windows are closed up to {head.reached}"
            )
    for name, line in before.lines.items():
        after = head.lines.get(name)
        if after is None or after.closed < line.closed:
            at = None if after is None else after.closed
            raise Difference(f"{where}: windows {name!r} are closed up to {at}, up to {line.closed} before")
    listed, kept = before.ends_of_listed(), head.ends_of_listed()
    gone = sorted(listed.keys() - kept.keys())
    # what was not final before is published meanwhile, and stays until the next snapshot at least
    stay = {of for of in listed.keys() & kept.keys() if listed[of] <= before.lines[of.split("/")[0]].closed}
    for of in gone if any(line.starts for line in head.lines.values()) else ():
        if earlier := [other for other in stay if listed[other] <= listed[of]]:
            raise Difference(
                f"window {of}: left the list in snapshot {head.sequence}, and {min(earlier)} stays, which ends no later"
            )
    # where the list ends because nothing is to be deleted any more, nothing leaves
    return gone if kept else []
