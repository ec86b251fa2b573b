"""Mutants: the worker without one of its guards; some history must be wrong.

``python -m tests.simulation.mutants [HISTORIES] [WORD ...]`` tries the mutants whose file or name has one of
the words, by default all. It tries the noted seed first, then directed histories and N others; 0 tries only
the noted seed. A history that catches a mutant must be right without it. New seeds are noted in the list.
The exit code is 1 if a mutant survived. Each mutant runs in its own process.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import json
import os
import re
import select
import signal
import sys
import time
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

ROOT = Path(__file__).parents[2]
UNCHANGED = (
    *(
        "kafka.admin",
        "ldp.files",
        "ldp.analysis.method_selection",
        "ldp.snapshot",
        "lupa.lua51",
        "prometheus_client",
        "pydantic",
    ),
    *(
        "redis",
        "tests.support.batches",
        "tests.support.decoding",
        "tests.simulation.recount",
        "tests.simulation.store",
    ),
    *("tests.simulation.windows", "unittest.mock", "worker.counting.columns", "worker.counting.lineage"),
    *("worker.counting.windows", "worker.kafka.reports.prefetch"),
    *("worker.kafka.client.quirks", "worker.kafka.client.raw_fetch"),
)
"""Modules without mutants, imported once for all processes."""
HISTORIES = 2000
PROCESSES = 2
SECONDS = 20
"""CPU time after which a history counts as endless."""


@dataclass(frozen=True)
class Mutant:
    """A guard that is taken away."""

    file: str  # below the repository's root
    name: str
    text: str  # occurs once in the file
    instead: str
    also: Sequence[Mapping[str, str]] = ()  # a second guard that stands in for this one
    seed: int | None = None  # seed of a history that then fails

    def __str__(self) -> str:
        return f"{self.file.removeprefix('worker/')}: {self.name}"

    def changed(self) -> dict[str, str]:
        """Returns the changed files by name; raises ValueError unless a text occurs once."""
        files: dict[str, str] = {}
        for one in ({"file": self.file, "text": self.text, "instead": self.instead}, *self.also):
            file = one["file"]
            whole = files.get(file) or (ROOT / file).read_text(encoding="utf-8")
            if (times := whole.count(one["text"])) != 1:
                raise ValueError(f"{file}, {self.name}: the text is there {times} times")
            files[file] = whole.replace(one["text"], one["instead"])
        return files


LIST = Path(__file__).parent / "mutants.toml"
MUTANTS = [
    Mutant(file, name, **one)
    for file, named in tomllib.loads(LIST.read_text(encoding="utf-8")).items()
    for name, one in named.items()
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
            # compiled code is not cached: a function's cache key does not include its callees
            apart = text.replace('"cache": True', '"cache": False').replace("cache=True", "cache=False")
            sys.meta_path.insert(0, _Changed(file, apart))
        else:
            texts[ROOT / file] = text
    read = Path.read_text

    def changed(self: Path, *args: Any, **kwargs: Any) -> str:
        return texts[self] if self in texts else read(self, *args, **kwargs)

    Path.read_text = changed  # type: ignore[method-assign]


def seed_that_catches(noted: int | None, histories: int) -> tuple[int, str] | None:
    """Returns the first seed whose history is wrong, and why, or None.

    Args:
        noted: the seed that is tried first, and whose theme is.
        histories: number of other seeds, in addition to the directed ones.

    Raises:
        NameError, ImportError: a mutant has broken what it is in.
    """
    from tests.simulation.history import Wrong, history
    from tests.simulation.running import settle
    from tests.simulation.themes import seeds_of, theme_of

    settle()

    def late(*_: Any) -> None:
        raise TimeoutError("it never ends")

    signal.signal(signal.SIGPROF, late)
    theme = None if noted is None else theme_of(noted)
    first = [] if noted is None else [noted]
    for seed in dict.fromkeys([*first, *seeds_of(theme, histories)]):
        signal.setitimer(signal.ITIMER_PROF, SECONDS)
        try:
            history(seed, shown=0)
        except (Wrong, TimeoutError) as error:
            why = error.__cause__
            if isinstance(why, NameError | ImportError) or (why and type(why).__module__.startswith("numba")):
                raise why from None
            return seed, f"{theme_of(seed) or ''} {error}".strip().split("\n")[0][:500]
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
    return None


def begin(mutant: Mutant | None, noted: int | None, histories: int) -> tuple[int, int]:
    """Starts a process for a mutant; returns its id and result pipe."""
    reading, writing = os.pipe()
    child = os.fork()
    if child:
        os.close(writing)
        return child, reading
    found: tuple[int | None, str] | None
    try:
        if mutant is not None:
            _change(mutant)
        found = seed_that_catches(noted, histories)
    except BaseException as error:
        found = None, f"it does not even run: {type(error).__name__}: {error}"
    os.write(writing, json.dumps(found).encode())
    os._exit(0)


def warm() -> None:
    """Reads and compiles what no mutant changes, once for all of them."""
    for name in UNCHANGED:
        importlib.import_module(name)
    from ldp import kernels
    from worker.kafka.decoding import records

    kernels.warm()
    records.warm()
    assert not {m.file.removesuffix(".py").replace("/", ".") for m in MUTANTS} & sys.modules.keys()


@cache
def is_right(seed: int) -> bool:
    """Returns whether a history is right as the code is."""
    child, reading = begin(None, seed, 0)
    with os.fdopen(reading, "rb") as pipe:
        said = json.loads(pipe.read())
    os.waitpid(child, 0)
    return said is None


def one_of_each_file() -> list[Mutant]:
    """Returns some of the seeds with a known history."""
    return list({mutant.file: mutant for mutant in MUTANTS if mutant.seed is not None}.values())


def run(mutants: Sequence[Mutant], histories: int) -> dict[str, int]:
    """Tries mutants, two at a time; returns the seeds that catch them."""
    warm()
    caught, under_way = dict[str, int](), dict[int, tuple[Mutant, int]]()
    waiting = [mutant for mutant in mutants if histories or mutant.seed is not None]
    began = time.monotonic()
    while waiting or under_way:
        while waiting and len(under_way) < PROCESSES:
            mutant = waiting.pop(0)
            child, reading = begin(mutant, mutant.seed, histories)
            under_way[reading] = mutant, child
        for reading in select.select(list(under_way), [], [])[0]:
            mutant, child = under_way.pop(reading)
            with os.fdopen(reading, "rb") as pipe:
                found = json.loads(pipe.read())
            os.waitpid(child, 0)
            seed, why = found or (None, "SURVIVED")
            if seed is not None and not is_right(seed):
                seed, why = None, f"seed {seed} is wrong without it, too"
            if seed is not None:
                caught[str(mutant)] = seed
            print(f"{time.monotonic() - began:6.0f} s  {mutant!s:65} {why[:120]}", flush=True)
    print(f"{len(caught)} of {len(mutants)} are caught")
    return caught


def note(seeds: Mapping[str, int]) -> None:
    """Notes in the list by which seeds mutants are caught."""
    text = LIST.read_text(encoding="utf-8")
    for mutant in MUTANTS:
        if (seed := seeds.get(str(mutant))) is not None:
            head = re.escape(f'["{mutant.file}"."{mutant.name}"]\n')
            text = re.sub(rf"(?m)^({head})(seed = \d+\n)?", rf"\g<1>seed = {seed}\n", text)
    LIST.write_text(text, encoding="utf-8")


def main() -> None:
    words = sys.argv[1:]
    histories = int(words.pop(0)) if words and words[0].isdigit() else HISTORIES
    chosen = [m for m in MUTANTS if not words or any(word in f"{m.file} {m.name}" for word in words)]
    caught = run(chosen, histories)
    if other := {str(m): caught[str(m)] for m in chosen if caught.get(str(m), m.seed) != m.seed}:
        note(other)
    sys.exit(len(caught) < len(chosen))


if __name__ == "__main__":
    main()
