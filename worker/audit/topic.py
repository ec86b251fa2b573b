"""Parser of the snapshot topic: the messages of a stream and of its parts.

A snapshot of all time or of a window consists of several messages, which share one sequence and identity. The headers
contain the number of messages. Final windows are not published again, heads do not move backwards, and unlisted windows
are deleted. Compaction keeps the newest message of each key and some older messages, so a superseded snapshot may be
incomplete.
"""

import heapq
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import count
from typing import Any

from worker.audit.decoding import expect_spent
from worker.audit.errors import Difference
from worker.audit.heads import Head, expect_documents, expect_entries, expect_follows
from worker.audit.parsing import Documents, Key
from worker.audit.protocols import protocol_of
from worker.audit.released_cells import ReleasedCell, ReleasedCells
from worker.audit.snapshots import (
    ALL,
    LATE,
    UNREADABLE,
    UNTIMED,
    Message,
    Snapshot,
    Whole,
    read_snapshot,
)


class Memory:
    """Limits the numbers of windows that are kept for the recount."""

    def __init__(self, most: int) -> None:
        self._most, self._bytes = most, 0
        self._kept: list[tuple[int, int, str, int, Series]] = []
        self._number = count()

    def keep(self, end: int, of: str, series: "Series", size: int) -> None:
        """Keeps the numbers of a window; drops those of the earliest windows."""
        heapq.heappush(self._kept, (end, next(self._number), of, size, series))
        self._bytes += size
        while self._bytes > self._most and len(self._kept) > 1:
            _, _, oldest, size, series = heapq.heappop(self._kept)
            self._bytes -= size
            series.drop(oldest)

    def clear(self, of: "Series") -> None:
        """Forgets the windows of a part."""
        self._kept = [each for each in self._kept if each[4] is not of]
        self._bytes = sum(each[3] for each in self._kept)
        heapq.heapify(self._kept)


class Series:
    """Messages of a stream or of one of its parts.

    `part` is "", a document such as ``@9f86d081``, or a segment such as ``:US:4.3``.
    """

    def __init__(self, part: str, documents: Documents, memory: Memory, whole: "Series | None") -> None:
        self.part, self.documents, self.unnamed = part, documents, set[str]()
        self.head: Head | None = None  # newest head
        self._memory, self._of, self.followers = memory, whole, list[Series]()
        if whole is not None:
            whole.followers.append(self)
        self._clear()

    def _clear(self) -> None:
        self._wholes: dict[str, Whole] = {}
        self._finals: dict[str, int] = {}
        self._leaving: dict[str, int] = {}
        self._left: dict[str, set[str]] = {}  # window -> undeleted keys of earlier snapshots
        self._memory.clear(self)

    def restart(self) -> None:
        """Forgets everything, also of parts, because heads were deleted."""
        self.head = None
        self._clear()
        for each in self.followers:
            each.restart()

    def drop(self, of: str) -> None:
        """Drops the numbers of a window."""
        if (whole := self._wholes.get(of)) is not None and whole.snapshot is not None:
            whole.snapshot = replace(whole.snapshot, frequencies=None, bodies=None)

    def take(self, message: Message) -> None:
        """Adds the next message; raises `Difference` for a contradiction."""
        try:
            self._take(message)
        except UNREADABLE as error:
            raise Difference(f"{message.key}: the message is invalid ({error!r})") from None

    def _take(self, message: Message) -> None:
        of, key = _split(message.key)
        if not message.value:
            self._delete(of, key)
            return
        if key == "head":
            self._next_head(json.loads(message.value))
        whole, what, new = self._wholes.get(of), self._named(of), Whole(message.headers)
        if whole is None or whole.mark != new.mark:
            if of in self._finals:
                raise Difference(
                    f"{what}: published in snapshot {new.sequence}, but already final in snapshot {self._finals[of]}"
                )
            if self.head is not None and new.sequence < self.head.sequence:
                raise Difference(f"{what}: snapshot {new.sequence} published after {self.head.sequence}")
            if whole is not None:
                self._left.setdefault(of, set()).update(whole.live)
            whole = self._wholes[of] = new
        if key in whole.messages or key in whole.live:
            raise Difference(f"{what}: {message.key} published twice in snapshot {whole.sequence}")
        if message.headers != {**whole.headers, "content-type": message.headers["content-type"]}:
            raise Difference(f"{what}: the headers of {message.key} differ from its other messages")
        whole.messages[key] = message.value
        whole.types[key] = message.headers["content-type"].decode()
        whole.live.add(key)
        self._left.get(of, set()).discard(key)
        if whole.headers.get("final") == b"true" and len(whole.live) == whole.parts:
            self._read(of, whole)

    def _next_head(self, document: Mapping[str, Any]) -> None:
        head = Head.of(document)
        restarted = self.head is not None and head.sequence <= self.head.sequence
        if self._of is None:
            expect_documents(document, None if restarted else self.head, self.documents)
            if len(head.documents) == 1:
                expect_spent(document, self.documents[head.documents[0]])
        else:
            self._expect_part(document, self._of.head)
        if restarted:
            self.restart()
        elif self.head is not None:
            self._leaving |= dict.fromkeys(expect_follows(head, self.head), head.sequence)
        self.head = head

    def _expect_part(self, document: Mapping[str, Any], whole: Head | None) -> None:
        """Raises `Difference` unless a part's head lists the part's documents."""
        listed = [one["fingerprint"] for one in document["documents"]]
        due = [self.part[1:]] if self.part.startswith("@") else [*(whole.documents if whole else listed)]
        if listed != due or document["fingerprint"] != due[0]:
            raise Difference(f"head of {self.part[1:]}: documents {listed}, expected {due}")
        same = whole is not None and whole.sequence == document["sequence"]
        expect_entries(f"head of {self.part[1:]}", document, whole.accepted if whole and same else None)

    def _delete(self, of: str, key: str) -> None:
        if key == "head" and self._of is None:
            self.restart()
            return
        self._left.get(of, set()).discard(key)
        if (whole := self._wholes.get(of)) is not None:
            whole.live.discard(key)
            whole.messages.pop(key, None)
            if not whole.live:
                del self._wholes[of]

    def _read(self, of: str, whole: Whole) -> None:
        try:
            base = json.loads(whole.messages["base"])
            names = [one["fingerprint"] for one in base.get("documents", [base])]
            if others := {*names} - self.documents.keys():
                whole.of_another = True
                self.unnamed |= others if self.documents.keys() & {*names} else set()
            else:
                whole.snapshot = self._snapshot(of, whole, base, names)
        except Difference as difference:
            raise Difference(f"{self._named(of)}: {difference}") from None
        except UNREADABLE as error:
            raise Difference(f"{self._named(of)}: a message is invalid ({error!r})") from None
        whole.messages = {}
        if whole.snapshot is None:
            return
        if whole.snapshot.final:
            self._finals[of] = whole.sequence
        if of not in UNTIMED:
            self._memory.keep(whole.snapshot.end, of, self, self._size_of(whole.snapshot))

    def _size_of(self, snapshot: Snapshot) -> int:
        """Returns the bytes of a snapshot's numbers and of its recount."""
        states = sum(protocol_of(self.documents[name]).entries for name in snapshot.documents)
        if snapshot.bodies is None:
            return 8 * (states + protocol_of(self.documents[snapshot.documents[0]]).entries)
        vectors = (len(read.values) for own in snapshot.bodies.vectors.values() for read in own.values())
        return 8 * states + 16 * sum(vectors)

    def _named(self, of: str) -> str:
        what = "the newest snapshot" if of == ALL else f"window {of}"
        return f"{what} of {self.part[1:]}" if self.part else what

    def _snapshot(self, of: str, whole: Whole, base: Mapping[str, Any], names: Sequence[str]) -> Snapshot:
        contents = {name: self.documents[name] for name in names}
        if self.part.startswith("@") and names != [self.part[1:]]:
            raise Difference(f"documents {names}")
        if base["schema"] != (2 if "documents" in base else 1) or base["fingerprint"] != names[0]:
            raise Difference(
                f"documents {names} with schema {base['schema']} and fingerprint {base['fingerprint']}"
            )
        return read_snapshot(of, self.part, whole, base, contents)

    def finish(self) -> list[Snapshot]:
        """Returns the newest all-time snapshot, if any, and all window snapshots.

        Raises `Difference` if a message is missing or contradicts the newest head.
        """
        try:
            for of, whole in self._wholes.items():
                if self._of is not None and {key.partition("/")[0] for key in whole.live} == {"domain"}:
                    continue  # labels for final windows of a document that has too few reports now
                if len(whole.live) != whole.parts and not whole.of_another:
                    raise Difference(
                        f"{self._named(of)}: {len(whole.live)} of {whole.parts} messages are on the topic"
                    )
                if (left := sorted(self._left.get(of, ()))) and whole.live != {"head"}:
                    raise Difference(f"{self._named(of)}: {left[0]} of an earlier snapshot was not deleted")
                if whole.snapshot is None and whole.live != {"head"}:
                    self._read(of, whole)
        except UNREADABLE as error:
            raise Difference(f"a message is invalid ({error!r})") from None
        found = [whole.snapshot for whole in self._wholes.values() if whole.snapshot is not None]
        if self.head is not None and self._of is None:
            there = {f"{each.name}/{each.start}": each for each in found if each.name not in UNTIMED}
            for of, sequence in self._leaving.items():
                if of in there and there[of].sequence < sequence:
                    raise Difference(
                        f"window {of}: unlisted since snapshot {sequence}, but still on the topic"
                    )
            self.head.expect_listed(
                {(each.name, each.start, each.end): each.final for each in there.values()}
            )
        return found


class Snapshots:
    """Parser of a stream's messages in their order on the topic.

    Keeps the numbers of only those windows that end last, of up to `most` bytes.
    """

    def __init__(self, documents: Documents, most: int) -> None:
        self._memory = Memory(most)
        self._whole = Series("", documents, self._memory, None)
        self._series = {"": self._whole}
        self._cells = ReleasedCells()

    @property
    def head(self) -> Head | None:
        """The newest head of the stream."""
        return self._whole.head

    @property
    def unnamed(self) -> frozenset[str]:
        """Documents of messages that the configuration does not name."""
        return frozenset(name for each in self._series.values() for name in each.unnamed)

    def take(self, message: Message) -> None:
        """Adds the next message; raises `Difference` for a contradiction."""
        if message.part.startswith("@") and ":" in message.part:
            self._cells.take(message)
            return
        if (series := self._series.get(message.part)) is None:
            series = Series(message.part, self._whole.documents, self._memory, self._whole)
            self._series[message.part] = series
        series.take(message)

    def cells(self) -> dict[Key, ReleasedCell]:
        """Returns the released counts; raises `Difference` if any is missing."""
        return self._cells.finish()

    def finish(self) -> list[Snapshot]:
        """Returns the newest snapshots of all time, and all snapshots of windows.

        Raises `Difference` if a message is missing or contradicts the newest head.
        """
        found = [snapshot for series in self._series.values() for snapshot in series.finish()]
        if (head := self.head) is not None:
            for each in found:
                _expect_listed(each, head)
        there = {(each.name, each.start): each for each in found if not each.part}
        for each in found:
            if not each.part or each.name == ALL:
                continue
            whole = there.get((each.name, each.start))
            if each.name == LATE and whole is not None:
                continue  # published only with new reports
            if whole is None or whole.sequence != each.sequence or not whole.final:
                raise Difference(f"{each}: published without the final window of the stream")
        return found


def _expect_listed(snapshot: Snapshot, head: Head) -> None:
    """Raises `Difference` unless a snapshot has the first listed documents."""
    due = head.documents[: len(snapshot.documents)]
    if snapshot.part.startswith("@"):
        several = len(head.documents) > 1
        due = tuple(name for name in head.documents if name == snapshot.part[1:] and several)
    if snapshot.documents != due:
        listed = [*snapshot.documents], [*head.documents]
        raise Difference("{}: documents {}, but the newest head has {}".format(snapshot, *listed))
    if snapshot.sequence > head.sequence:
        raise Difference(
            f"{snapshot}: in snapshot {snapshot.sequence}, but the newest head is {head.sequence}"
        )


def _split(key: str) -> tuple[str, str]:
    """Splits a message's key into its window, such as `1h/0`, and the rest."""
    if key == "head" or key.partition("/")[0] == "domain":
        return ALL, key
    of, _, rest = key.partition("/")
    if of not in UNTIMED:
        start, _, rest = rest.partition("/")
        of = f"{of}/{start}"
    return of, rest
