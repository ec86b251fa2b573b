"""Foreign text on a terminal: what others wrote is printed without what a terminal would obey.

Labels, names of clients and brokers, record headers and error messages come from other programs. An escape sequence in
them can rewrite the screen, set its title, or answer on the operator's keyboard; a bidirectional control can make text
read as another. Every command prints through `echo`, `screen` or `printable`.
"""

from __future__ import annotations

import re
import unicodedata
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console

_JOINERS = "\u200c\u200d"
"""Part of words in Persian and Hindi, and of emoji; they move nothing."""
_SUSPECT = re.compile(r"[^ -~]")
"""Everything but printable ASCII, which is let through without a look."""


def printable(text: str | bytes, *, lines: bool = False) -> str:
    r"""Returns text in which everything that a terminal would obey, or that no one can see, is escaped.

    Escaped are control and format characters (bidirectional controls among them), surrogates, line and paragraph
    separators, and what Unicode does not assign; of bytes, what is not UTF-8, and backslashes.

    Args:
        text: from another program.
        lines: whether line feeds stay.

    Example:
        >>> printable("grün \x1b[2J\u202e")
        'grün \\x1b[2J\\u202e'
        >>> printable(b"gr\xc3\xbcn\\\xff\n")
        'grün\\\\\\xff\\n'
    """
    if isinstance(text, bytes):
        text = text.replace(b"\\", b"\\\\").decode(errors="backslashreplace")
    return _SUSPECT.sub(lambda found: found[0] if lines and found[0] == "\n" else _escaped(found[0]), text)


def printable_json(text: str) -> str:
    r"""Returns a JSON text of one line that says the same, with the same characters escaped as by `printable`.

    Example:
        >>> printable_json('{"label":"a\u202eb"}')
        '{"label":"a\\u202eb"}'
    """
    return _SUSPECT.sub(lambda found: found[0] if _is_shown(found[0]) else _in_json(found[0]), text)


def echo(text: str, *, err: bool = False, prefix: str = "") -> None:
    """Prints lines of text to stdout or stderr, each behind a prefix, in `printable` form.

    Raises:
        BrokenPipeError: the reader is gone; click ends quietly on it.
    """
    import click

    for line in text.split("\n"):
        click.echo(prefix + printable(line), err=err)


def screen(**options: Any) -> Console:
    """Returns a console that shows tables and text in `printable` form, and takes no markup from strings."""
    from rich.console import Console, RenderableType
    from rich.segment import Segment

    class Screen(Console):
        def render(self, renderable: RenderableType, options: Any = None) -> Any:
            for segment in super().render(renderable, options):
                yield (
                    segment
                    if segment.control
                    else Segment(printable(segment.text, lines=True), segment.style)
                )

    return Screen(markup=False, emoji=False, **options)


def _is_shown(character: str) -> bool:
    category = unicodedata.category(character)
    return character in _JOINERS or (category[0] != "C" and category not in ("Zl", "Zp"))


def _escaped(character: str) -> str:
    return character if _is_shown(character) else character.encode("unicode_escape").decode()


def _in_json(character: str) -> str:
    return "".join(
        f"\\u{unit:04x}" for unit in memoryview(character.encode("utf-16-le", "surrogatepass")).cast("H")
    )
