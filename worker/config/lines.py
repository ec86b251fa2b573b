"""Line numbers of keys in a configuration file."""

import re
import tomllib
from typing import Any


def line_of(text: str, key: str) -> int | None:
    r"""Returns the line of a key, or of the innermost table of a missing key.

    Example:
        >>> text = '[kafka]\nmember = "a"\n\n[[streams]]\nname = "colours"\nlabels = [\n"red",\n""]\n'
        >>> [line_of(text, key) for key in ("kafka.member", "streams[0].labels[1]", "streams[0].topic", "redis.url")]
        [2, 6, 4, None]
    """
    parts = re.findall(r"([^.[\]]+)(?!\])|\[(\d+)\]", key)
    path = [int(number) if number else name for name, number in parts]
    line, depth, begins, lines = None, 0, 1, text.split("\n")
    for end in range(1, len(lines) + 1):
        try:
            found: Any = tomllib.loads("\n".join(lines[:end]) + "\n")
        except tomllib.TOMLDecodeError:  # the statement has more lines
            continue
        for i, part in enumerate(path, 1):
            try:
                found = found[part]
            except (LookupError, TypeError):
                break
            if i > depth:
                line, depth = begins, i
        begins = end + 1
    return line


def line_of_error(text: str, error: tomllib.TOMLDecodeError) -> int:
    """Returns the line of a TOML error; O(n)."""
    found = re.search(r"\(at line (\d+), column \d+\)$", str(error))
    return int(found[1]) if found else text.count("\n") + 1
