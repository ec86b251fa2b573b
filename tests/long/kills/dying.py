"""``ldp-worker`` that dies by SIGKILL before, in or after a numbered step.

Run as ``python -m tests.long.kills.dying run --config worker.toml --point FILE``. The file has step, side and arrival
as JSON. It is read at the start and at each SIGUSR1. The calls that the steps consist of are wrapped here.
"""

import functools
import importlib
import json
import os
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tests.long.kills.steps import IMPORTING, SHUFFLING, STEPS, TURNS, UPLOADING, content, found


@dataclass(frozen=True)
class Aim:
    """Where to die."""

    turn: str  # claim, commit, publish, heed or import
    number: int  # name of the step
    side: str  # before, during or after
    arrival: int = 1  # since it was aimed
    delay: float = 0.0  # seconds from the beginning of the step, where it is during it
    of: str = ""  # required events of the turn so far, see `content`; empty for any

    def __str__(self) -> str:
        late = f"+{1000 * self.delay:.1f}ms" if self.side == "during" else ""
        of = f" of {self.of}" if self.of else ""
        return f"{self.turn} {self.number}{of} {self.side}{late} #{self.arrival}"


class Killer:
    """Counts arrivals at a step, and kills this process at one of them."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._aim: Aim | None = None
        self._arrived = 0
        self._local = threading.local()

    def aim(self, *_: object) -> None:
        """Reads where to die."""
        self._arrived = 0
        self._aim = Aim(**json.loads(self._file.read_text())) if self._file.exists() else None

    def wrap(self) -> None:
        """Wraps all turns, and the calls of all steps."""
        for owner, call in dict.fromkeys(
            (step.owner, step.call) for step in [*STEPS, *IMPORTING, *SHUFFLING, *UPLOADING]
        ):
            _replace(owner, call, functools.partial(self._stepped, owner, call))
        for turn, calls in TURNS.items():
            for owner, call in calls:
                _replace(owner, call, functools.partial(self._turned, turn))

    def _turned(self, turn: str, function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def turned(*args: Any, **named: Any) -> Any:
            before = vars(self._local).copy()
            self._local.turn, self._local.calls, self._local.within = turn, Counter[str](), False
            self._local.had = {""}
            try:
                return function(*args, **named)
            finally:
                vars(self._local).update({"turn": None} | before)

        return turned

    def _stepped(self, owner: str, call: str, function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def stepped(*args: Any, **named: Any) -> Any:
            local = self._local
            if getattr(local, "turn", None) is None or local.within:  # a part of another step
                return function(*args, **named)
            local.calls[call] += 1
            local.had.add(content(call, args, named))
            step = found(local.turn, owner, call, local.calls[call])
            if step is None:
                return function(*args, **named)
            local.within = True
            try:
                self._at(step.turn, step.number, "before", "during")
                result = function(*args, **named)
                self._at(step.turn, step.number, "after")
                return result
            finally:
                local.within = False

        return stepped

    def _at(self, turn: str, number: int, *sides: str) -> None:
        aim = self._aim
        if aim is None or (aim.turn, aim.number) != (turn, number) or aim.side not in sides:
            return
        if aim.of not in self._local.had:
            return
        self._arrived += 1
        if self._arrived != aim.arrival:
            return
        if aim.side == "during":
            threading.Thread(target=_die, args=(aim, aim.delay), daemon=True).start()
        else:
            _die(aim)


def _die(aim: Aim, delay: float = 0.0) -> None:
    """Writes its mark, and dies."""
    line = json.dumps({"event": "dying", **asdict(aim)}) + "\n"
    time.sleep(delay)
    os.write(2, line.encode())
    os.kill(os.getpid(), signal.SIGKILL)


def _replace(owner: str, call: str, wrapped: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
    module, _, name = owner.partition(":")
    where: Any = importlib.import_module(module)
    where = getattr(where, name) if name else where
    setattr(where, call, wrapped(getattr(where, call)))


def main() -> None:
    """Runs the worker."""
    at = sys.argv.index("--point")
    killer = Killer(Path(sys.argv[at + 1]))
    del sys.argv[at : at + 2]
    killer.wrap()
    killer.aim()
    signal.signal(signal.SIGUSR1, killer.aim)
    from worker import cli

    cli.main()


if __name__ == "__main__":
    main()
