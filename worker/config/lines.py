"""Line numbers of keys in a configuration file."""

import re
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

Path = tuple[str | int, ...]
"""Names of keys, and indices in arrays of tables."""


def line_of(text: str, key: str) -> int | None:
    r"""Returns the line of a key, or of the innermost table of a missing key.

    Example:
        >>> text = '[kafka]\nmember = "a"\n\n[[streams]]\nname = "colours"\nlabels = [\n"red",\n""]\n'
        >>> [line_of(text, key) for key in ("kafka.member", "streams[0].labels[1]", "streams[0].topic", "redis.url")]
        [2, 6, 4, None]
    """
    path: Path = tuple(
        int(number) if number else name for name, number in re.findall(r"([^.[\]]+)(?!\])|\[(\d+)\]", key)
    )
    lines = dict(_lines_of_keys(text))
    return next((lines[path[:n]] for n in range(len(path), 0, -1) if path[:n] in lines), None)


def line_of_error(text: str, error: tomllib.TOMLDecodeError) -> int:
    """Returns the line of a TOML error; O(n)."""
    found = re.search(r"\(at line (\d+), column \d+\)$", str(error))
    return int(found[1]) if found else text.count("\n") + 1


def _lines_of_keys(text: str) -> Iterator[tuple[Path, int]]:
    table: Path = ()
    numbers = Counter[Path]()
    for number, statement, heads in _statements(text):
        if not heads:
            yield from ((table + path, number) for path in _paths(statement))
            continue
        table, rest = (), statement
        while isinstance(rest, dict) and rest:
            ((name, rest),) = rest.items()
            table += (name,)
            if isinstance(rest, list):
                numbers[table] += 1
            if table in numbers:
                table += (numbers[table] - 1,)
        yield table, number


def _statements(text: str) -> Iterator[tuple[int, dict[str, Any], bool]]:
    """Yields (first line, content, whether it is a heading) of each statement."""
    began, some = 1, ""
    for number, line in enumerate(text.split("\n"), 1):
        some += f"{line}\n"
        try:
            said = tomllib.loads(some)
        except tomllib.TOMLDecodeError:
            continue
        if said:
            yield began, said, some.lstrip().startswith("[")
        began, some = number + 1, ""


def _paths(tree: Mapping[str, Any]) -> Iterator[Path]:
    for name, value in tree.items():
        yield (name,)
        for path in _paths(value) if isinstance(value, Mapping) else ():
            yield name, *path
