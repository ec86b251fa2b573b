"""Terminal output with control characters escaped.

Labels, names of clients and brokers, record headers and error messages come from other programs. An escape sequence in
such text can rewrite the screen, set the window's title, or inject keyboard input. A bidirectional control can disguise
text. Every command prints through `echo`, `screen` or `printable`.
"""

from __future__ import annotations

import json
import os
import re
import sys
import unicodedata
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

_JOINERS = "\u200c\u200d"  # Harmless parts of words in Persian and Hindi, and of emoji
_SUSPECT = re.compile(r"[^ -~]")  # Characters that need a check: all except printable ASCII
_LONGEST = 1000  # Most characters printed of each line of an error
_PIPED = 10_000  # Columns of output to a pipe


def printable(text: str | bytes, *, lines: bool = False) -> str:
    r"""Escapes control characters and invisible characters.

    The escaped characters are control and format characters (including bidirectional controls), surrogates, line and
    paragraph separators, and unassigned characters. In bytes, invalid UTF-8 and backslashes are escaped, too.
    `lines` keeps line feeds.

    Example:
        >>> printable("grün \x1b[2J\u202e")
        'grün \\x1b[2J\\u202e'
    """
    if isinstance(text, bytes):
        text = text.replace(b"\\", b"\\\\").decode(errors="backslashreplace")
    return _SUSPECT.sub(lambda found: found[0] if lines and found[0] == "\n" else _escaped(found[0]), text)


def printable_json(text: str) -> str:
    r"""Escapes the characters of `printable` as in JSON. Keeps line feeds."""
    return _SUSPECT.sub(
        lambda found: found[0] if found[0] == "\n" or _is_shown(found[0]) else _in_json(found[0]), text
    )


def echo(text: str = "", *, err: bool = False, prefix: str = "") -> None:
    """Prints text in `printable` form, with a prefix before each line."""
    lines = printable(text, lines=True).split("\n")
    click.echo("\n".join(prefix + line for line in lines), err=err)


def echo_json(tree: object, *, indent: int | None = None) -> None:
    """Prints JSON in `printable_json` form to stdout; NaN in arrays as null."""

    def numbers(array: Any) -> list[Any]:
        return [None if number != number else number for number in array.tolist()]  # noqa: PLR0124 - NaN

    click.echo(printable_json(json.dumps(tree, ensure_ascii=False, indent=indent, default=numbers)))


def amount(number: int, what: str) -> str:
    """Returns a number with a noun in the singular or plural.

    Example:
        >>> amount(1, "report"), amount(1200, "report")
        ('1 report', '1,200 reports')
    """
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def screen(**options: Any) -> Console:
    """Returns a console that prints in `printable` form and ignores markup."""
    from rich.console import Console
    from rich.segment import Segment

    class Screen(Console):
        def render(self, *args: Any, **more: Any) -> Iterator[Segment]:
            for segment in super().render(*args, **more):
                shown = segment.text if segment.control else printable(segment.text, lines=True)
                yield segment if shown == segment.text else Segment(shown, segment.style)

    return Screen(markup=False, emoji=False, **options)


def piped() -> bool:
    """Returns whether stdout is not a terminal and COLUMNS is unset."""
    return not sys.stdout.isatty() and "COLUMNS" not in os.environ


def show(shown: RenderableType) -> None:
    """Prints a renderable, without wrapping lines if stdout is `piped`."""
    console = screen()
    if not piped():
        console.print(shown)
        return
    console.width = _PIPED
    with console.capture() as capture:
        console.print(shown)
    click.echo("\n".join(line.rstrip() for line in capture.get().splitlines()))


class Commands(click.Group):
    """A group of commands whose errors are printed in `printable` form."""

    def invoke(self, ctx: click.Context) -> Any:
        """Runs a command. Raises click.ClickException if the command fails."""
        try:
            return super().invoke(ctx)
        except click.ClickException as error:
            lines = printable(error.message, lines=True).split("\n")
            error.message = "\n".join(map(_cut, lines))  # type: ignore[misc]  # Final to type checkers
            raise


def _cut(line: str) -> str:
    return (
        line if len(line) <= _LONGEST else f"{line[:_LONGEST]} … ({len(line) - _LONGEST:,} more characters)"
    )


def _is_shown(character: str) -> bool:
    category = unicodedata.category(character)
    return character in _JOINERS or (category[0] != "C" and category not in ("Zl", "Zp"))


def _escaped(character: str) -> str:
    return character if _is_shown(character) else character.encode("unicode_escape").decode()


def _in_json(character: str) -> str:
    return "".join(
        f"\\u{unit:04x}" for unit in memoryview(character.encode("utf-16-le", "surrogatepass")).cast("H")
    )
