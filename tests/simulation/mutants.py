"""Mutants: the guards of the code that the simulation runs, each taken away in turn; some history must be wrong then.

``python -m tests.simulation.mutants [HISTORIES] [WORD ...]`` tries those whose name or file has one of the words, all
without, in at most so many histories each, and says by which seed each was caught. It ends with 1 if one survived.
Each runs in a process of its own, which reads the changed text in the place of the file's.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import os
import select
import signal
import sys
import time
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

ROOT = Path(__file__).parents[2]
HISTORIES = 2000
PROCESSES = 2
SECONDS = 20
"""Of a processor, that a history may take before it is taken for one that never ends."""


@dataclass(frozen=True)
class Mutant:
    """A guard that is taken away.

    Attributes:
        file: below the repository's root.
        name: what is taken away.
        text: of the file, which is there once.
        instead: what is put in its place.
        also: a second guard that stands for this one where it is gone, taken away together with it.
    """

    file: str
    name: str
    text: str
    instead: str
    also: Sequence[Mapping[str, str]] = ()

    def changed(self) -> dict[str, str]:
        """Returns the changed files, by their names.

        Raises:
            ValueError: a text is not there once.
        """
        files: dict[str, str] = {}
        for one in ({"file": self.file, "text": self.text, "instead": self.instead}, *self.also):
            file = one["file"]
            whole = files.get(file) or (ROOT / file).read_text(encoding="utf-8")
            if (times := whole.count(one["text"])) != 1:
                raise ValueError(f"{file}, {self.name}: the text is there {times} times")
            files[file] = whole.replace(one["text"], one["instead"])
        return files


MUTANTS = [
    Mutant(**one)
    for one in tomllib.loads((Path(__file__).parent / "mutants.toml").read_text(encoding="utf-8"))["mutant"]
]


class _Changed(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Loads one module from a changed text."""

    def __init__(self, file: str, text: str) -> None:
        self.name = file.removesuffix(".py").replace("/", ".")
        self.path, self.text = str(ROOT / file), text

    def find_spec(self, name: str, _path: Any, _target: Any = None) -> importlib.machinery.ModuleSpec | None:
        return importlib.util.spec_from_loader(name, self, origin=self.path) if name == self.name else None

    def exec_module(self, module: ModuleType) -> None:
        module.__file__ = self.path
        exec(compile(self.text, self.path, "exec"), module.__dict__)


def _change(mutant: Mutant) -> None:
    """Has this process read changed files."""
    texts = {}
    for file, text in mutant.changed().items():
        if file.endswith(".py"):
            # what is compiled of it is kept for nobody: that of a function does not say what it calls
            apart = text.replace('"cache": True', '"cache": False').replace("cache=True", "cache=False")
            sys.meta_path.insert(0, _Changed(file, apart))
        else:
            texts[ROOT / file] = text
    read = Path.read_text

    def changed(self: Path, *args: Any, **kwargs: Any) -> str:
        return texts[self] if self in texts else read(self, *args, **kwargs)

    Path.read_text = changed  # type: ignore[method-assign]


def seed_that_catches(mutant: Mutant, histories: int) -> tuple[int, str] | None:
    """Returns the first seed whose history is wrong with a mutant, and why; None if there is none."""
    _change(mutant)
    from tests.simulation.history import Wrong, history
    from tests.simulation.running import settle

    settle()

    def late(*_: Any) -> None:
        raise TimeoutError("it never ends")

    signal.signal(signal.SIGPROF, late)
    for seed in range(histories):
        signal.setitimer(signal.ITIMER_PROF, SECONDS)
        try:
            history(seed, shown=0)
        except (Wrong, TimeoutError) as error:
            return seed, str(error).strip().split("\n")[0]
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
    return None


def begin(mutant: Mutant, histories: int) -> tuple[int, int]:
    """Begins to try a mutant in a process of its own; returns its id, and where it writes by what it was caught."""
    reading, writing = os.pipe()
    child = os.fork()
    if child:
        os.close(writing)
        return child, reading
    try:
        found = seed_that_catches(mutant, histories)
        said = "" if found is None else found[1]
    except BaseException as error:
        said = f"it does not even run: {type(error).__name__}: {error}"
    os.write(writing, said.encode()[:500])
    os._exit(0)


def warm() -> None:
    """Reads and compiles what no mutant changes, once for all of them."""
    import ldp
    import ldp.snapshot
    from ldp import kernels
    from worker.kafka import records

    kernels.warm()
    records.warm()
    assert not {m.file.removesuffix(".py").replace("/", ".") for m in MUTANTS} & sys.modules.keys()
    assert ldp.snapshot is not None


def run(mutants: Sequence[Mutant], histories: int) -> list[Mutant]:
    """Tries mutants, two at a time; returns those that survive."""
    warm()
    survivors, waiting, under_way = [], list(mutants), dict[int, tuple[Mutant, int]]()
    began = time.monotonic()
    while waiting or under_way:
        while waiting and len(under_way) < PROCESSES:
            mutant = waiting.pop(0)
            child, reading = begin(mutant, histories)
            under_way[reading] = mutant, child
        for reading in select.select(list(under_way), [], [])[0]:
            mutant, child = under_way.pop(reading)
            with os.fdopen(reading, "rb") as pipe:
                said = pipe.read().decode(errors="replace")
            os.waitpid(child, 0)
            if not said:
                survivors.append(mutant)
            file = mutant.file.rsplit("/", 1)[1]
            print(
                f"{time.monotonic() - began:6.0f} s  {file:16} {mutant.name:40} {said[:110] or 'SURVIVED'}",
                flush=True,
            )
    print(f"{len(mutants) - len(survivors)} of {len(mutants)} are caught")
    return survivors


def main() -> None:
    words = sys.argv[1:]
    histories = int(words.pop(0)) if words and words[0].isdigit() else HISTORIES
    chosen = [m for m in MUTANTS if not words or any(word in f"{m.file} {m.name}" for word in words)]
    sys.exit(bool(run(chosen, histories)))


if __name__ == "__main__":
    main()
