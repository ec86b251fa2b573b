"""Common parts of commands: --config, errors, options, progress bar.

Commands import heavy packages only when they run, so that --help is fast.
"""

import functools
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ldp.terminal import Commands, echo, screen

if TYPE_CHECKING:
    from worker.config import Config
    from worker.kafka.snapshots.reader import SnapshotReader

_CONFIG = "LDP_WORKER_CONFIG"
_CHECK = "run ldp-worker check to find the cause"
_KAFKA = "3.0.12"
"""Version of kafka-python that `worker.kafka` requires."""
_EXTRA = {"kafka-python": "kafka", "prometheus-client": "prometheus_client", "python-snappy": "snappy"} | {
    name: name
    for name in (
        *("crc32c", "h11", "lz4", "pydantic", "redis", "starlette", "structlog", "uvicorn"),
        "zstandard",
    )
}
"""Packages of the extra `worker`, with their modules."""
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
            _require_extra()
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


def _require_extra() -> None:
    missing = [package for package, module in _EXTRA.items() if find_spec(module) is None]
    if missing:
        complain(f"not installed: {', '.join(missing)}; install the extra: pip install 'ldp-worker[worker]'")
        sys.exit(2)
    if (found := version("kafka-python")) != _KAFKA:
        complain(f"kafka-python {found}; this worker requires {_KAFKA}: pip install kafka-python=={_KAFKA}")
        sys.exit(2)


def require_gateway() -> None:
    """Exits with code 2 without the packages of the extra `gateway`."""
    if missing := [package for package in ("granian", "pyhpke") if find_spec(package) is None]:
        complain(f"not installed: {', '.join(missing)}; install the extra: pip install 'ldp-worker[gateway]'")
        sys.exit(2)


def complain(text: str) -> None:
    """Prints a message on stderr."""
    echo(text.strip("\n"), err=True, prefix="ldp-worker: ")


def complain_of(passed: object) -> None:
    """Prints a skipped record (a `reading.Passed`) on stderr."""
    complain(str(passed))


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
