"""Simulated histories of the shuffler's core: one intake partition, its owners and its clients.

``python -m tests.simulation.shuffling [HISTORIES]`` runs histories and all mutants. A history has uploads, retries,
reused ids, invalid records, steps of the broker's clock, owners with different B, crashes in any step, fenced owners
that run on, aborted transactions, and commits with an unknown outcome. A recount of the complete log, in quadratic
time, decides what is right.
"""

import random
import struct
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

import ldp
from ldp import wire
from worker.counting.ports import Unavailable
from worker.shuffling import partition, permuting, uploads

MINUTE = 60_000
DEDUPLICATE_FOR = 60 * MINUTE
START = 1_000_000 * MINUTE
STREAM = ldp.Stream("s", ldp.GRR("1", domain_size=1 << 24))
"""Each report of a history has its own value, so that a batch shows its members."""
PARTITIONS, MOST_REPORTS = 3, 4


class Wrong(AssertionError):  # noqa: N818  # as in tests.simulation.history
    """A history that breaks an invariant."""


class Crash(Exception):  # noqa: N818  # an event, not an error
    """A process died."""


@dataclass(frozen=True)
class Record:
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None


@dataclass(frozen=True)
class Attempt:
    """A transaction whose frames a reader of aborted records can see."""

    start: int  # the committed offset before it
    batch: partition.Batch
    committed: bool

    @property
    def values(self) -> list[int]:
        """The reports' values in order."""
        return [value for _, frame in self.batch.frames for value in values_of(frame)]


HEADER = wire.header(STREAM.fingerprint)


def frame_of(values: Sequence[int]) -> bytes:
    return HEADER + struct.pack(f"<{len(values)}I", *values)


def values_of(frame: bytes) -> list[int]:
    assert frame.startswith(HEADER)
    return [value for (value,) in struct.iter_unpack("<I", frame[len(HEADER) :])]


@dataclass
class World:
    """The log, the group's offset and the clients."""

    rng: random.Random
    core: ModuleType = partition
    now: int = START
    step: int = 0  # the broker's clock minus the true time
    log: list[Record] = field(default_factory=list)
    begin: int = 0
    committed: tuple[int, str] | None = None
    epoch: int = 0
    attempts: list[Attempt] = field(default_factory=list)
    owners: list["Owner"] = field(default_factory=list)
    retries: list[tuple[int, bytes, bytes]] = field(default_factory=list)
    used: list[tuple[int, bytes, bytes]] = field(default_factory=list)
    values: int = 0
    sizes: set[int] = field(default_factory=set)
    ahead: int = 0  # the owners' clock minus the true time

    def append(self, key: bytes | None, value: bytes | None) -> None:
        self.log.append(Record(len(self.log), self.now + self.step, key, value))

    def client(self) -> None:
        """Writes one record: an upload, a retry, a reused id, or an invalid record."""
        due = [retry for retry in self.retries if retry[0] <= self.now]
        kind = self.rng.random()
        if due and kind < 0.6:
            self.retries.remove(due[0])
            return self.append(*due[0][1:])
        if self.ahead:
            kind = 0.8  # deletions by a wrong clock may miss duplicates
        key, reports = self.rng.randbytes(16), range(self.values, self.values + self.rng.randint(1, 3))
        self.values = reports.stop
        value = frame_of(reports)
        now = self.now + self.step
        old = [one for one in self.used if abs(now - one[0] - DEDUPLICATE_FOR) < 10 * MINUTE] or self.used[
            -20:
        ]
        if kind > 0.92 and old:
            _, key, _ = self.rng.choice(old)
        elif kind > 0.89 and old:
            _, key, value = self.rng.choice(old)  # a replay
        elif kind > 0.86 and old:
            _, _, value = self.rng.choice(old)  # equal reports of another client
        elif kind > 0.8:
            value = self.rng.choice([b"", b"?", value[:-1], b"\1abcd" + value[5:]])
        self.used.append((now, key, value))
        if kind < 0.79 and self.rng.random() < 0.4:
            self.retries += [
                (self.now + self.rng.randint(0, 30) * MINUTE, key, value)
                for _ in range(self.rng.randint(1, 2))
            ]
        return self.append(None if kind < 0.02 else key, value)

    def pass_time(self) -> None:
        self.now += self.rng.choice([0, 0, 1, 5, 10, 30, 59, 70, 200]) * MINUTE
        if self.rng.random() < 0.5:  # the clock is at most 10 minutes ahead, and never behind
            self.step = self.rng.randint(0, 9) * MINUTE

    def happen(self) -> None:
        """Something that another process does between two steps of an owner."""
        if self.rng.random() < 0.1:
            self.client()
        if self.rng.random() < 0.05:
            self.pass_time()

    def start(self) -> None:
        """Starts an owner, which claims; the former owner runs on, or is dead."""
        if self.rng.random() < 0.7:
            self.owners.clear()
        size = self.rng.choice([2, 3, 3, 5])
        self.sizes.add(size)
        self.owners.append(Owner(self, size))
        self.run(self.owners[-1], lambda owner: owner.intake.claim())

    def run(self, owner: "Owner", operation: Callable[["Owner"], Any]) -> Any:
        try:
            return operation(owner)
        except (Unavailable, Crash):
            self.owners = [other for other in self.owners if other is not owner]
            return None


class Owner:
    """An owner of the partition, and its intake."""

    def __init__(self, world: World, size: int, *, calm: bool = False) -> None:
        self.world, self.position, self.epoch, self.calm = world, 0, -1, calm
        self.intake = world.core.OwnedIntake(
            STREAM, self, size, DEDUPLICATE_FOR, MOST_REPORTS, lambda: world.now + world.ahead
        )

    def _call(self) -> None:
        if not self.calm:
            self.world.happen()
            if self.world.rng.random() < 0.03:
                raise Crash
            for other in self.world.owners:
                if other is not self and self.world.rng.random() < 0.02:
                    calm, other.calm = other.calm, True
                    self.world.run(
                        other, self.world.rng.choice([lambda o: o.intake.step(), lambda o: o.intake.tidy()])
                    )
                    other.calm = calm

    def fence(self) -> None:
        self._call()
        self.world.epoch += 1
        self.epoch = self.world.epoch

    def committed(self) -> tuple[int, str] | None:
        self._call()
        return self.world.committed

    def bounds(self) -> tuple[int, int]:
        self._call()
        return self.world.begin, len(self.world.log)

    def first_timestamp(self, offset: int, end: int) -> int | None:
        self._call()
        return next((record.timestamp for record in self.world.log[offset:end]), None)

    def offset_since(self, timestamp: int) -> int | None:
        self._call()
        found = (
            record.offset for record in self.world.log[self.world.begin :] if record.timestamp >= timestamp
        )
        return next(found, None)

    def seek(self, offset: int) -> None:
        self._call()
        self.position = offset

    def poll(self) -> list[Record]:
        self._call()
        if self.position < self.world.begin:
            raise Unavailable("offset out of range")
        records = self.world.log[self.position :][: self.world.rng.choice([1, 2, 5, 50])]
        self.position += len(records)
        return records

    def partitions(self) -> int:
        return PARTITIONS

    def commit(self, batch: partition.Batch) -> None:
        world = self.world
        self._call()
        if self.epoch != world.epoch:
            raise Unavailable("fenced")
        start = -1 if world.committed is None else world.committed[0]
        outcome = 1.0 if self.calm else world.rng.random()
        world.attempts.append(Attempt(start, batch, committed=outcome > 0.25))
        if outcome > 0.25:
            world.committed = batch.offset, batch.metadata
        if outcome < 0.4:
            raise Unavailable("aborted, or the outcome is unknown")

    def delete(self, offset: int) -> None:
        self._call()
        self.world.begin = max(self.world.begin, offset)
        if self.world.committed is None or offset > self.world.committed[0]:
            raise Wrong("unshuffled records were deleted")


def history(seed: int, core: ModuleType = partition) -> World:
    """Runs a history to its end; raises `Wrong`."""
    world = World(random.Random(seed), core)
    rng = world.rng
    slow = rng.random() < 0.5  # a few uploads per hour, with many claims and deletions
    world.ahead = rng.choice([0, 0, 0, 3 * DEDUPLICATE_FOR])
    uploads, times, claims, deletions = (30, 25, 10, 15) if slow else (45, 8, 6, 3)
    for _ in range(rng.randint(10, 100)):
        (turn,) = rng.choices("utcds", (uploads, times, claims, deletions, 40))
        if turn == "u" or not world.log:
            for _ in range(1 if slow else rng.choice([1, 1, 2, 8])):
                world.client()
        elif turn == "t":
            world.pass_time()
        elif turn == "c" or not world.owners:
            world.start()
        elif turn == "d":
            world.run(rng.choice(world.owners), lambda owner: owner.intake.tidy())
        else:
            world.run(rng.choice(world.owners), lambda owner: owner.intake.step())
    return finish(world)


def finish(world: World) -> World:
    """Shuffles the remaining uploads, and checks all batches."""
    world.owners = [last := Owner(world, 3, calm=True)]
    world.sizes.add(3)
    last.intake.claim()
    for _ in range(2 * len(world.log) + 10):
        last.intake.step()
    check(world, last)
    return world


def frozen(core: ModuleType = partition, ahead: int = 0) -> World:
    """An idle owner is frozen for hours during a deletion, while records arrive."""
    world = World(random.Random(0), core, ahead=ahead)
    records = [(bytes([number]) * 16, frame_of([number])) for number in range(6)]
    for record in records[:3]:
        world.append(*record)
    owner = Owner(world, 3, calm=True)
    world.sizes.add(3)
    owner.intake.claim()
    for _ in range(9):
        owner.intake.step()
    asked = owner.bounds

    def slowly() -> tuple[int, int]:
        found = asked()
        world.append(*records[3 if ahead else 0])  # a duplicate, unless a wrong clock may miss it
        world.now += 200 * MINUTE
        world.append(*records[4])
        return found

    world.now += 59 * MINUTE
    owner.bounds = slowly  # type: ignore[method-assign]
    owner.intake.tidy()
    return finish(world)


def accepted(world: World) -> list[tuple[int, int, list[int]]]:
    """Recounts the log: (offset, timestamp, values) of each accepted upload."""
    found = []
    for i, record in enumerate(world.log):
        if record.key is None:
            continue
        earlier = (other for other in world.log[:i] if other.key == record.key)
        if any(abs(record.timestamp - other.timestamp) < DEDUPLICATE_FOR for other in earlier):
            continue
        if record.value and record.value.startswith(HEADER) and len(record.value) % 4 == 1:
            found.append((record.offset, record.timestamp, values_of(record.value)))
    return found


def check(world: World, last: Owner) -> None:
    """Compares the batches with a recount of the log."""
    right, at = accepted(world), 0
    members: dict[int, list[int]] = {}
    for attempt in world.attempts:
        batch, values = attempt.batch, sorted(attempt.values)
        if not batch.frames:
            continue
        if members.setdefault(attempt.start, values) != values:
            raise Wrong(f"two attempts from offset {attempt.start} have other members: {values}")
        if attempt.start == -1 or batch.uploads not in world.sizes:
            raise Wrong(f"a batch of {batch.uploads} uploads from offset {attempt.start}")
        taken = right[at : at + batch.uploads]
        if values != sorted(value for _, _, some in taken for value in some):
            raise Wrong(f"a batch has {values}, and not the next {batch.uploads} uploads {taken}")
        check_form(batch, len(values), taken)
        if batch.offset != taken[-1][0] + 1:
            raise Wrong(f"offset {batch.offset} is committed after {taken[-1][0]}")
        if attempt.committed:
            skipped = taken[-1][0] + 1 - attempt.start - batch.uploads
            if batch.duplicates + batch.rejected != skipped:
                raise Wrong(f"{batch} does not count the {skipped} skipped records")
            at += batch.uploads
    if (left := len(right) - at) >= 3 or last.intake.held != left:
        raise Wrong(f"{left} uploads are left at the end")


def check_form(batch: partition.Batch, reports: int, taken: Sequence[tuple[int, int, list[int]]]) -> None:
    """Checks frames, partitions and timestamp of a batch."""
    sizes = [len(values_of(frame)) for _, frame in batch.frames]
    parts = {number for number, _ in batch.frames}
    count = max(-(-reports // MOST_REPORTS), min(reports, PARTITIONS))
    if len(sizes) != count or max(sizes) - min(sizes) > 1 or len(parts) != min(reports, PARTITIONS):
        raise Wrong(f"{reports} reports are in frames of {sizes} for partitions {parts}")
    newest = max(timestamp for _, timestamp, _ in taken)
    if batch.timestamp != newest // MINUTE * MINUTE or batch.reports != reports:
        raise Wrong(f"{batch} of an upload at {newest}")


@dataclass(frozen=True)
class Mutant:
    """The core without one of its guards; `text` occurs once in the module."""

    name: str
    module: ModuleType
    text: str
    instead: str

    def core(self) -> ModuleType:
        """Returns `partition` with this change."""
        changed = dict[str, ModuleType]()
        for module in (uploads, permuting, partition):
            source = Path(str(module.__file__)).read_text(encoding="utf-8")
            if module is self.module:
                assert source.count(self.text) == 1, f"{self.name}: {source.count(self.text)} times"
                source = source.replace(self.text, self.instead)
            changed[module.__name__] = made = ModuleType(module.__name__)
            kept = {name: sys.modules[name] for name in changed}
            sys.modules.update(changed)
            try:
                exec(compile(source, str(module.__file__), "exec"), made.__dict__)
            finally:
                sys.modules.update(kept)
        return changed[partition.__name__]


MUTANTS = [
    Mutant(name, module, text, instead)
    for module, changes in {
        partition: {
            "shuffles what was polled": ("islice(self._uploads, self._size)", "self._uploads"),
            "commits the polled offset": ("offset=taken[-1].offset + 1", "offset=self._intake.position"),
            "no fence": ("intake.fence()", "intake.epoch = intake.world.epoch"),
            "the fence is last": ("        intake.fence()\n", ""),
            "uses the configured B": ("recorded or self._configured", "self._configured"),
            "keeps the recorded B": (
                "else self._configured\n        if self",
                "else wanted\n        if self",
            ),
            "does not record another B": ("or (self._offset, size) != (self._committed[0], recorded)", ""),
            "does not record the first B": ("self._committed is None or (self", "self._committed and (self"),
            "claims from the committed offset": (
                "min(since, self._offset))\n\n    def step",
                "self._offset)\n\n    def step",
            ),
            "no room for steps of the clock": ("deduplicate_for + CLOCK_STEP_MS", "deduplicate_for"),
            "the present instead of the first record": (
                "self._clock() if found is None else found",
                "self._clock()",
            ),
            "shuffled records are classified": ("record.offset < self._offset]", "False]"),
            "shuffled ids are not remembered": ("self._classifier.remember(shuffled)", "pass"),
            "forgets a batch": ("            self._uploads.popleft()", "            pass"),
            "deletes what waits": ("else min(since, self._offset)) > begin", "else since) > begin"),
            "deletes by the first upload": ("self._uploads[0].since if", "self._uploads[0].timestamp if"),
            "deletes without the skipped records": ("else self._classifier.since", "else None"),
            "deletes by the clock before all is read": ("if self._intake.position < end:", "if False:"),
            "deletes by the clock of later": ("first = int(now)", "first = int(self._clock())"),
            "always deletes by the clock": ("        if first is None:\n", "        if True:\n"),
        },
        uploads: {
            "no duplicates": ("max(newest, known) < self._milliseconds", "max(newest, known) < 0"),
            "remembers for ever": ("max(newest, known) < self._milliseconds", "max(newest, known) < 1 << 60"),
            "remembers too long by one": ("known) < self._milliseconds", "known) <= self._milliseconds"),
            "forgets early": (
                "timestamp - self._milliseconds - CLOCK_STEP_MS",
                "timestamp - self._milliseconds // 2",
            ),
            "the first time counts": (
                "] = max(timestamp, newest)",
                "] = timestamp if newest == _NEVER else newest",
            ),
            "the last time counts": ("] = max(timestamp, newest)", "] = timestamp"),
            "remembers the latest period only": ("max(newest, known)", "newest"),
            "remembers earlier periods only": ("max(newest, known)", "known"),
            "a similar id is a duplicate": ("sorted_ids[at] == wanted", "True"),
            "earlier ids are not sorted": ("np.argsort(ids)", "np.arange(len(ids))"),
            "the content is the id": ("records[i].key or", "records[i].value or"),
            "records without an id are accepted": (
                'record.value or b"" if _has_id(record) and not',
                'record.value or b"" if not',
            ),
        },
        permuting: {
            "not a frame for each partition": (
                "max(-(-n // min(most_reports, largest)), min(n, partitions))",
                "-(-n // min(most_reports, largest))",
            ),
        },
    }.items()
    for name, (text, instead) in changes.items()
]


def run(seed: int, core: ModuleType = partition) -> World:
    """Runs a directed history (seed -1 or -2), or a random one."""
    return history(seed, core) if seed >= 0 else frozen(core, ahead=3 * DEDUPLICATE_FOR if seed == -2 else 0)


def caught(mutant: Mutant, histories: int) -> int | None:
    """Returns the first seed whose history is wrong with a mutant, or None."""
    core = mutant.core()
    for seed in range(-2, histories):
        try:
            run(seed, core)
        except (Wrong, Unavailable, TypeError, ValueError, IndexError):
            return seed
    return None


def main() -> None:
    histories = int(sys.argv[1]) if len(sys.argv) > 1 else 20_000
    worlds = [run(seed) for seed in range(-2, histories)]
    attempts = [attempt for world in worlds for attempt in world.attempts]
    print(
        f"{histories:,} histories: {sum(len(world.log) for world in worlds):,} records, {len(attempts):,} transactions,"
        f" {sum(not attempt.committed for attempt in attempts):,} aborted; all right"
    )
    for mutant in MUTANTS:
        print(f"{mutant.name}: {caught(mutant, histories)}", flush=True)


if __name__ == "__main__":
    main()
