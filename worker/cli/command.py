"""Common parts of commands: --config, errors, options, progress bar.

Commands import heavy packages only when they run, so that --help is fast.
"""

import functools
import re
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ldp.terminal import Commands, echo, screen

if TYPE_CHECKING:
    from worker.config import Config
    from worker.kafka.snapshots.reader import SnapshotReader

_CONFIG = "LDP_WORKER_CONFIG"
_CHECK = "run ldp-worker check to find the cause"
_REQUIREMENT = re.compile(r"([\w.-]+)(?:\[\w+\])?(?:==([\w.]+))?.*extra == .(\w+).")
"""Package, exact version if there is one, and extra."""
_Command = Callable[..., int]


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(package_name="ldp-worker", prog_name="ldp-worker")
def cli() -> None:
    """Count locally private Kafka reports exactly once and publish estimates."""


def command(
    name: str, *, silent: bool = True, group: click.Group = cli
) -> Callable[[_Command], click.Command]:
    """Returns a decorator that adds --config, error messages and exit codes.

    A `silent` command reports the errors of the Kafka client itself, so the client logs nothing.
    """

    def decorate(body: _Command) -> click.Command:
        @functools.wraps(body)
        def run(config: Path, **options: Any) -> None:
            require_extra("worker")
            from worker.config import ConfigError, load
            from worker.kafka.client import brokers, topics
            from worker.kafka.client.errors import BrokerError, remedy
            from worker.observe import logs
            from worker.redis.errors import ERRORS

            try:
                loaded = load(config)
                if silent:
                    logs.silence()
                sys.exit(body(loaded, **options))
            except ConfigError as error:
                complain(str(error))
                sys.exit(2)
            except brokers.Unreachable as error:
                complain(f"{error}\n{error.advice}")
            except topics.TopicError as error:
                complain(str(error))
            except BrokerError as error:
                closed = "AuthorizationFailed" in str(error)  # check may lack the same permission
                complain(f"Kafka: {error}\n{remedy(error) if closed else _CHECK}")
            except ERRORS as error:
                from worker.redis.reaching import Unreachable  # imports the kernels

                why = Unreachable(error, loaded.redis)
                complain(f"Redis: {why}\n{why.remedy}\n{_CHECK}")
            sys.exit(1)

        option = click.option(
            "--config",
            type=click.Path(path_type=Path, dir_okay=False),
            envvar=_CONFIG,
            default=Path("worker.toml"),
            show_default=True,
            show_envvar=True,
            help="Path of the configuration.",
        )
        return group.command(name)(option(run))

    return decorate


def require_extra(extra: str) -> None:
    """Exits with code 2 unless the packages of an extra are installed."""
    found = map(_REQUIREMENT.fullmatch, requires("ldp-worker") or ())
    needed = {each[1]: each[2] for each in found if each is not None and each[3] == extra}
    installed = {package: _version(package) for package in needed}
    if missing := [package for package, there in installed.items() if there is None]:
        complain(f"not installed: {', '.join(missing)}; install the extra: pip install 'ldp-worker[{extra}]'")
        sys.exit(2)
    for package, exact in needed.items():
        if exact is not None and (there := installed[package]) != exact:
            complain(f"{package} {there}; this worker requires {exact}: pip install {package}=={exact}")
            sys.exit(2)


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def complain(what: object) -> None:
    """Prints a message, or a skipped record (`reading.Passed`), on stderr."""
    echo(str(what).strip("\n"), err=True, prefix="ldp-worker: ")


def reach(config: "Config", topic: str) -> None:
    """Raises unless the brokers respond and have the topic."""
    from worker.kafka.client import brokers, topics

    with brokers.connect(config, complain) as admin:
        topics.require(admin, topic)


def read_all(readers: Sequence["SnapshotReader"], seconds: float) -> bool:
    """Returns whether the readers reached the topic's end; complains if not."""
    deadline = time.monotonic() + seconds
    there = all(reader.catch_up(max(0.0, deadline - time.monotonic())) for reader in readers)
    if not there:
        complain(f"the topic was not read to its end in {seconds:g} s; use a longer --timeout")
    return there


@contextmanager
def bar(what: str, unit: str) -> Iterator[Callable[[int, int], None]]:
    """Shows a progress bar on a terminal; yields the function to update it."""
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    console = screen(stderr=True)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.completed:,.0f} of {task.total:,.0f} " + unit),
        TextColumn("{task.fields[rate]:,.0f}/s"),
        TimeRemainingColumn(),
    )
    began = time.monotonic()
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task(what, total=1, rate=0.0)

        def move(done: int, of: int) -> None:
            rate = done / max(time.monotonic() - began, 1e-3)
            progress.update(task, completed=done, total=max(of, 1), rate=rate)

        yield move


stream_option = click.option(
    "--stream", metavar="NAME", help="Name of the stream; required if the configuration has several."
)
streams_option = click.option(
    "--stream",
    metavar="NAME",
    help="Show only this stream, in full. Without the option, show a line for each stream.",
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")
