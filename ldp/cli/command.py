"""Parts that the commands share, such as --document and file access.

Commands import heavy modules when they run, so that --help is fast.
"""

from __future__ import annotations

import csv
import functools
import os
import stat
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, TypeVar

import click

from ldp.arguments import as_json
from ldp.terminal import Commands, echo, screen

if TYPE_CHECKING:
    from ldp.files import Readable
    from ldp.state import State
    from ldp.stream import Stream

_Function = TypeVar("_Function", bound=Callable[..., object])

NAME = "file"  # Default name of a stream
_STDIN = "-"
FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
OUTPUT = click.Path(dir_okay=False, writable=True, path_type=Path)
INPUT = click.Path(exists=True, dir_okay=False, allow_dash=True)


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(package_name="ldp-worker", prog_name="ldp")
def cli() -> None:
    """Frequency estimation under local differential privacy."""


def _read_document(_context: click.Context, _option: click.Parameter, path: Path | None) -> Stream | None:
    return None if path is None else read_document(path)


def read_document(path: Path) -> Stream:
    """Returns the stream of a document file; raises BadParameter for a fault."""
    from ldp.stream import Stream

    try:
        return Stream.from_document(NAME, as_json(path.read_bytes()))
    except (OSError, TypeError, ValueError) as error:
        raise click.BadParameter(f"{path}: {error}") from None


def document_option(*, required: bool = True) -> Callable[[_Function], _Function]:
    """Returns the option ``--document``, which passes a stream or None."""
    return click.option(
        "--document",
        "stream",
        required=required,
        type=FILE,
        metavar="FILE",
        callback=_read_document,
        help="Public document of the stream, written by ldp document.",
    )


_DOMAIN = (
    click.option(
        "--labels",
        metavar="A,B,...",
        help="Names of the values, as a line of CSV.",
    ),
    click.option(
        "--labels-file", type=FILE, metavar="FILE", help="File with the name of one value per line."
    ),
    click.option("--domain-size", type=int, metavar="D", help="Number of values, if they have no names."),
)


def domain_options(command: Callable[..., None]) -> Callable[..., None]:
    """Adds the options for values, which pass names (or None) and d."""

    @functools.wraps(command)
    def given(
        *args: Any, labels: str | None, labels_file: Path | None, domain_size: int | None, **kwargs: Any
    ) -> None:
        from ldp import files

        if [labels, labels_file, domain_size].count(None) != 2:
            raise click.UsageError("exactly one of --labels, --labels-file and --domain-size is required")
        names = None
        try:
            if labels is not None:
                rows = csv.reader([labels], skipinitialspace=True, strict=True)
                names = [name.strip() for row in rows for name in row]
            if labels_file is not None:
                names = files.labels(labels_file)
        except csv.Error as error:
            raise click.UsageError(f"--labels is {labels!r}, which is not a line of CSV: {error}") from None
        except UnicodeDecodeError as error:
            raise click.UsageError(f"{labels_file} is not UTF-8: {error}") from None
        except OSError as error:
            raise click.UsageError(str(error)) from None
        command(*args, labels=names, domain_size=domain_size if names is None else len(names), **kwargs)

    for option in reversed(_DOMAIN):
        given = option(given)
    return given


def warn(stream: Stream) -> None:
    """Prints a stream's probable mistakes on stderr."""
    for warning in stream.warnings:
        echo(f"ldp: warning: {warning}", err=True)


def output_path(_context: click.Context, _option: click.Parameter, path: Path | None) -> Path | None:
    """Returns the path; raises BadParameter if its folder does not exist."""
    if path is not None and not path.resolve().parent.is_dir():
        raise click.BadParameter(f"folder {path.resolve().parent} does not exist")
    return path


def write(parts: Iterable[bytes]) -> None:
    """Writes to stdout. Raises ClickException on errors such as a full disk."""
    out = sys.stdout.buffer
    try:
        for part in parts:
            out.write(part)
        out.flush()
    except BrokenPipeError:
        raise  # click ends quietly
    except OSError as error:
        raise click.ClickException(f"stdout: {error.strerror}") from None


def write_state(state: State, path: Path) -> None:
    """Writes a state. Raises ClickException if the file cannot be written."""
    try:
        state.write(path)
    except OSError as error:
        raise click.ClickException(f"{path}: {error.strerror or error}") from None


@contextmanager
def opened(
    paths: Sequence[str], status: Callable[[], str], *, quiet: bool = False
) -> Iterator[Iterator[tuple[str, Readable]]]:
    """Opens files one after another. Shows progress and `status` on stderr."""
    from rich.progress import BarColumn, DownloadColumn, Progress, ProgressColumn, Task, TimeRemainingColumn
    from rich.text import Text

    class Status(ProgressColumn):
        def render(self, _: Task) -> Text:
            return Text(status())

    paths = paths or [_STDIN]
    stdin = sys.stdin.buffer
    if _STDIN in paths and stdin.isatty():
        echo("ldp: reading from the terminal; press Ctrl-D on a new line to end the input", err=True)
        quiet = True
    sizes = [file_size(stdin if path == _STDIN else path) for path in paths]
    known = [size for size in sizes if size is not None]
    console = screen(stderr=True)
    columns = (BarColumn(), DownloadColumn(), TimeRemainingColumn(), Status())
    with Progress(
        *columns, console=console, transient=True, disable=quiet or not console.is_terminal
    ) as progress:
        task = progress.add_task("", total=sum(known) if len(known) == len(sizes) else None)

        def on_read(size: int) -> None:
            progress.advance(task, size)

        def each() -> Iterator[tuple[str, Readable]]:
            for path in paths:
                if path == _STDIN:
                    yield "stdin", _Watched(stdin, "stdin", on_read)
                else:
                    with Path(path).open("rb") as file:
                        yield path, _Watched(file, path, on_read)

        yield each()


class _Watched:
    """A file that passes the size of each read to `on_read`."""

    def __init__(self, file: BinaryIO, name: str, on_read: Callable[[int], None]) -> None:
        self._file, self._name, self._on_read = file, name, on_read

    def read(self, size: int, /) -> bytes:
        try:
            data = self._file.read(size)
        except OSError as error:
            raise click.ClickException(f"{self._name}: {error.strerror}") from None
        self._on_read(len(data))
        return data


def file_size(file: BinaryIO | str) -> int | None:
    """Returns the size of a regular file; None for other files, such as pipes."""
    try:
        status = Path(file).stat() if isinstance(file, str) else os.fstat(file.fileno())
    except OSError:
        return None
    return status.st_size if stat.S_ISREG(status.st_mode) else None
