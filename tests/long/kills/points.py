"""Kill points, and the stream on which workers are killed.

A point is a step, a side of it, a count of arrivals, for "during" a seeded moment, and the way to the step.
"""

import contextlib
import io
import itertools
import json
import random
import signal
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from tests.long.kills.dying import Aim
from tests.long.kills.steps import ALONE, DELETED, FINAL, STEPS, Step
from tests.support.harness import (
    EVENT_TIME,
    WINDOWED,
    Forked,
    Published,
    Sending,
    Worker,
    World,
    assert_snapshot_topic,
    dead_letters,
    event_time,
    foreign,
    rows,
    until,
)

ROWS: dict[str, Any] = {"methods": ["norm-sub", "base"]}
"""Writes to the topic of rows, in the same transactions."""
LAG_SECONDS = 120.0
"""Until when everything that was sent before a kill has to be counted and published."""
PARTITIONS = 6
_ALIVE = {"fresh": 0, "joins": 1, "follows": 2, "runs": 1}
"""Number of workers that must count first."""
_CALL_SECONDS = 0.004
_LONG = {
    ("publish", 2): 0.4,
    ("publish", 9): 0.02,
    ("claim", 4): 0.05,
    ("claim", 6): 0.02,
    ("publish", 8): 0.02,
}
"""Maximum duration of a step; the moment of "during" is drawn from it."""


@dataclass(frozen=True)
class Point:
    """A kill point: a step, and the way in which a worker reaches it.

    ``fresh``: it claims an uncounted stream without other workers. ``joins``: it joins another worker. ``follows``:
        it takes over from the publisher, which is killed first. ``runs``: it counts.
    """

    way: str
    aim: Aim

    def __str__(self) -> str:
        return f"{self.way}: {self.aim}"


def points(seed: int = 0) -> list[Point]:
    """Returns all kill points in a seeded order."""
    rng = random.Random(seed)
    made = []
    for step in {(step.turn, step.number): step for step in STEPS}.values():
        for way, sides, arrivals, of in _ways(step):
            for side, arrival in itertools.product(sides, arrivals):
                most = _LONG.get((step.turn, step.number), _CALL_SECONDS)
                delay = rng.uniform(0, most) if side == "during" else 0.0
                made.append(Point(way, Aim(step.turn, step.number, side, arrival, delay, of)))
    rng.shuffle(made)
    return made


def _ways(step: Step) -> Iterator[tuple[str, tuple[str, ...], tuple[int, ...], str]]:
    """Yields the ways to a step, with sides, arrivals and published content."""
    all_sides, ends = ("before", "during", "after"), ("before", "after")
    if step.turn == "claim":
        if step.number < 10:  # a first claim is read only once a head admits it
            yield "fresh", ends, (3,) if step.each else (1,), ""
        yield "joins", all_sides, (1, 2) if step.each else (1,), ""
        yield "follows", ends, (1,), ""
    elif step.turn == "commit":
        yield "runs", all_sides, (1, 2, 4, 7), ""
    elif step.turn == "heed":
        yield "fresh", ends, (3,) if step.each else (1,), ""
        if step.number in (1, 3):
            yield "runs", all_sides, (1, 2), ""
    elif step.number == 2:  # once in the life of a publisher
        yield "follows", all_sides, (1,), ""
        yield "fresh", ends, (1,), ""
    else:
        yield "runs", all_sides, (1, 5) if step.each else (1, 2), ""
        if step.number >= 5:
            for of in (FINAL, DELETED):
                yield "runs", all_sides, (1,), of
        if 5 <= step.number < 10:  # a head without a snapshot has no event
            yield "fresh", ends, (1,), ALONE


class Dying(Forked):
    """A worker that dies at the step named in the file next to its log."""

    module = "tests.long.kills.dying"

    @classmethod
    def launch(cls, toml: Path, log: Path, *options: str, environ: Mapping[str, str] | None = None) -> Self:
        """Starts one, and does not wait."""
        return super().launch(toml, log, *options, "--point", str(log.with_suffix(".point")), environ=environ)


@dataclass(frozen=True)
class Outcome:
    """Outcome of a kill."""

    point: Point
    seconds: float  # from the death to a snapshot of all that had been sent by then
    finals: int  # windows of its stream that were final by then
    deleted: int  # windows that were deleted by then

    def __str__(self) -> str:
        said = f"published after {self.seconds:.1f} s; {self.finals} windows final, {self.deleted} of them deleted"
        return f"    {said}, each once"


class Ground(World):
    """Stream whose workers die one after the other; a context manager. The seed chooses which."""

    worker = Dying

    def __init__(
        self, kafka: str, redis_url: str, folder: Path, seed: int, fewest_new: int, **more: Any
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._fewest_new = fewest_new
        more = {"reports": EVENT_TIME, "rows": ROWS} | WINDOWED | more
        super().__init__(kafka, redis_url, folder, partitions=PARTITIONS, **more)
        self._choice = random.Random(seed)
        self._counting: list[Worker] = []
        self._malformed = 0

    def configure(self, file: str, *more: Mapping[str, Any], **changes: Any) -> Path:
        """Writes a configuration with the stream's m."""
        return super().configure(
            file, *more, snapshots={"fewest_new": self._fewest_new, "parts_fewest": 1}, **changes
        )

    def __enter__(self) -> Self:
        super().__enter__()
        self.published = Published(self.kafka, self.config.snapshots.topic, self.name)
        self._closing.append(self.published.close)
        self._sending = Sending(self, pause=0.1, when=event_time).__enter__()
        return self

    def __exit__(self, *raised: object) -> None:
        self._sending.__exit__()
        # the workers' logs matter only after a failure
        with contextlib.redirect_stdout(sys.stdout if any(raised) else io.StringIO()):
            super().__exit__(*raised)

    def kill(self, point: Point) -> Outcome:
        """Brings a worker to a point, and checks that the others recover."""
        self.change(point.way)
        if missing := max(0, _ALIVE[point.way] - len(self._counting)):
            self._counting += self.join(missing)
        self.put(b"malformed", self._choice.randrange(PARTITIONS))
        self._malformed += 1
        dead = {"fresh": self._joining, "joins": self._joining, "follows": self._following}.get(
            point.way, self._running
        )(point.aim)
        began, ends = time.monotonic(), self.ends()
        self._counting = [worker for worker in self._counting if worker not in dead]
        if self._counting:
            self.expel([worker.member for worker in dead if worker.member])
        else:
            self._counting = self.join(1, dead)
        self.changed()
        self._caught_up(ends)
        return Outcome(
            point, time.monotonic() - began, len(self.published.finals), len(self.published.deleted)
        )

    def change(self, way: str) -> None:
        """Changes the configuration before a kill; `Changing` does."""

    def changed(self) -> None:
        """Completes a change after a kill."""

    def _joining(self, aim: Aim) -> list[Worker]:
        known = self.members()
        _note(self.folder / f"worker-{len(self.workers) + 1}.log", aim)
        victim = self.launch()
        _died(victim, aim)
        (victim.member,) = self.members() - known  # until its session is over
        return [victim]

    def _following(self, aim: Aim) -> list[Worker]:
        until(lambda: all(worker.owned() for worker in self._counting), "both count")
        publisher = self._publisher()
        (victim,) = (worker for worker in self._counting if worker is not publisher)
        _aim(victim, aim)
        publisher.kill()
        assert publisher.member
        self.expel([publisher.member])
        _died(victim, aim)
        return [victim, publisher]

    def _running(self, aim: Aim) -> list[Worker]:
        victim = self._publisher() if aim.turn == "publish" else self._choice.choice(self._counting)
        until(victim.owned, f"{victim.log.name} counts")
        _aim(victim, aim)
        _died(victim, aim)
        return [victim]

    def _publisher(self) -> Worker:
        def found() -> Worker | None:
            return next((worker for worker in self._counting if 0 in worker.owned()), None)

        return until(found, "partition 0 has an owner")

    def _caught_up(self, ends: dict[int, int]) -> None:
        """Waits until all before these ends is published, and checks it."""

        def covered() -> bool:
            newest = self.snapshots.newest()
            return newest is not None and all(newest.cut.offsets.get(p, 0) >= end for p, end in ends.items())

        until(covered, f"a snapshot of all of {ends}", LAG_SECONDS)
        self.assert_audit_equal()
        self.published.read(self.snapshots.sequence())
        assert all(worker.alive() for worker in self._counting)
        self.assert_keys()

    def finish(self) -> None:
        """Ends the load; checks that all is counted once and has its dead letters."""
        self._sending.__exit__()
        if self._fewest_new:
            self.settle()
            until(lambda: self.audit().lag == 0, "all is counted")
            self.assert_audit_equal(whole=True)
            last = self.snapshots.newest()
            assert last is not None and last.cut.released is not None
        else:
            last = self.covered()
            self.assert_right(last)
        assert last.complete
        assert assert_snapshot_topic(self) == last.sequence
        self.published.read(last.sequence)
        assert self.config.rows.topic
        found = rows.flat(foreign(self.kafka, self.config.rows.topic))
        assert found == rows.due(foreign(self.kafka, self.config.snapshots.topic), **ROWS)
        assert len(dead_letters(self, self._malformed, once=False)) == self._malformed


def _note(log: Path, aim: Aim) -> None:
    log.with_suffix(".point").write_text(json.dumps(vars(aim)))


def _aim(worker: Worker, aim: Aim) -> None:
    """Has a worker die there."""
    _note(worker.log, aim)
    worker.process.send_signal(signal.SIGUSR1)


def _died(worker: Worker, aim: Aim) -> None:
    """Waits until a worker died there, by its own hand."""
    until(lambda: not worker.alive(), f"{worker.log.name} dies at {aim}")
    assert worker.process.returncode == -signal.SIGKILL
    assert len(worker.events("dying")) == 1
