"""The command line: ``ldp-worker``. What is heavy is imported inside the commands, so that help comes at once.

Exit codes: 0 asked to stop, or all is well; 1 a failure; 2 usage or configuration; 3 an audit that could not tell.
"""

import functools
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from rich.console import RenderableType

    from ldp.snapshot import Snapshot
    from worker.config import Config

_CONFIG = "LDP_WORKER_CONFIG"
_Command = Callable[..., int]


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(package_name="ldp-worker", prog_name="ldp-worker")
def cli() -> None:
    """Count locally private reports from Kafka exactly once, and publish what the counts say."""


def _command(name: str) -> Callable[[_Command], click.Command]:
    """Makes a command that takes --config and gets what it says; errors become one line a fault and an exit code."""

    def decorate(body: _Command) -> click.Command:
        @functools.wraps(body)
        def command(config: Path, **options: Any) -> None:
            from kafka.errors import KafkaError
            from redis import RedisError

            from worker.config import ConfigError, load
            from worker.kafka import brokers, topics

            try:
                sys.exit(body(load(config), **options))
            except ConfigError as error:
                _complain(str(error))
                sys.exit(2)
            except brokers.Unreachable as error:
                _complain(f"{error}\n{error.advice}")
                sys.exit(1)
            except topics.TopicError as error:
                _complain(str(error))
                sys.exit(1)
            except (KafkaError, RedisError) as error:
                said = (
                    f"Kafka: {error}"
                    if isinstance(error, KafkaError)
                    else f"Redis: {type(error).__name__}: {error}"
                )
                _complain(f"{said}\nldp-worker check says what is wrong")
                sys.exit(1)

        option = click.option(
            "--config",
            type=click.Path(path_type=Path, dir_okay=False),
            envvar=_CONFIG,
            default=Path("worker.toml"),
            show_default=True,
            show_envvar=True,
            help="The configuration.",
        )
        return cli.command(name)(option(command))

    return decorate


def _complain(text: str) -> None:
    for line in text.splitlines():
        click.echo(f"ldp-worker: {line}", err=True)


def _reach(config: "Config", topic: str) -> None:
    """Sees that the brokers answer and have a topic, so that no command waits in silence for either."""
    from worker.kafka import brokers, topics

    with brokers.connect(config, waiting=_complain) as admin:
        topics.require(admin, topic)


def _print(shown: "RenderableType") -> None:
    from rich.console import Console

    Console().print(shown)


@contextmanager
def _bar(what: str, unit: str) -> Iterator[Callable[[int, int], None]]:
    """Shows a progress bar with its rate on stderr, if that is a terminal; yields what moves it: (done, of)."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    console = Console(stderr=True)
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


_stream = click.option(
    "--stream", metavar="NAME", help="Which stream; needed if the configuration has several."
)
_json = click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")


@_command("run")
def run(config: "Config") -> int:
    """Serve all streams until SIGTERM or SIGINT.

    Logs go to stderr: one line an event, in JSON unless stderr is a terminal.
    """
    from worker.observe import logs

    logs.configure()
    try:
        from worker.service import stream as service
    except RuntimeError as error:  # numba's, of the first kernel: it has nowhere to keep compiled code
        _complain(f"{error}\nset NUMBA_CACHE_DIR to a folder that can be written to")
        return 2
    return service.run(config)


@_command("check")
@click.option(
    "--wait",
    type=click.FloatRange(min=0),
    default=0.0,
    metavar="SECONDS",
    help="Keep trying until brokers and Redis answer.",
)
@_json
def check(config: "Config", wait: float, as_json: bool) -> int:
    """Say what can be wrong before it hurts.

    Looks at configuration, brokers, topics, Redis and the counts in it. Exits with 1 if anything is an error;
    warnings are for you to judge.
    """
    from worker import check
    from worker.observe import logs

    logs.silence()
    findings = check.check(config, wait, _complain)
    if as_json:
        click.echo(check.as_json(findings))
    else:
        _print(check.render(findings))
    return int(any(finding.level is check.Level.ERROR for finding in findings))


@_command("create-topics")
@click.option(
    "--partitions",
    type=click.IntRange(1, 100_000),
    default=4,
    show_default=True,
    help="Of topics of reports.",
)
@click.option(
    "--replication-factor",
    type=click.IntRange(1, 1000),
    show_default="the broker's default",
    help="Of all topics.",
)
@_json
def create_topics(config: "Config", partitions: int, replication_factor: int | None, as_json: bool) -> int:
    """Create the topics that are missing.

    They get the right settings; a topic that exists is never changed, see check.
    """
    import json

    from worker.kafka import brokers, topics
    from worker.observe import logs

    logs.silence()
    with brokers.connect(config, waiting=_complain) as admin:
        made = topics.create(admin, config, partitions, replication_factor or topics.BROKERS_DEFAULT)
    if as_json:
        rows = [
            {
                "topic": m.wanted.name,
                "created": m.created,
                "partitions": m.topic.partitions,
                "replicas": m.topic.replicas,
            }
            for m in made
        ]
        click.echo(json.dumps(rows, indent=2))
    else:
        _print(topics.render(made))
    return 0


@_command("simulate")
@_stream
@click.option(
    "--counts",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    required=True,
    help="A CSV file: how often each value occurs.",
)
@click.option("--column", required=True, metavar="NAME", help="Its column of counts.")
@click.option(
    "--label-column",
    default="label",
    show_default=True,
    metavar="NAME",
    help="Its column of labels; unused for a stream without labels.",
)
@click.option(
    "--users",
    type=click.IntRange(min=1),
    required=True,
    help="How many users to draw; each sends one report.",
)
@click.option(
    "--seed",
    type=click.IntRange(min=0),
    default=1,
    show_default=True,
    help="Of the draw; the coins stay secret.",
)
@click.option(
    "--batch",
    type=click.IntRange(1, 10_000),
    default=1,
    show_default=True,
    help="Reports a record: 1 as devices send them, more as a web service in between would.",
)
@click.option(
    "--json-share", type=click.FloatRange(0, 1), default=0.0, metavar="F", help="Share of records in JSON."
)
@click.option(
    "--malformed-share",
    type=click.FloatRange(0, 1),
    default=0.0,
    metavar="F",
    help="Malformed records for each good one.",
)
@click.option(
    "--rate",
    type=click.FloatRange(min=0, min_open=True),
    metavar="R",
    help="Reports a second at most; else as fast as it goes.",
)
@click.option(
    "--truth",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write the drawn histogram here, as JSON.",
)
def simulate(
    config: "Config",
    stream: str | None,
    counts: Path,
    column: str,
    label_column: str,
    users: int,
    seed: int,
    batch: int,
    json_share: float,
    malformed_share: float,
    rate: float | None,
    truth: Path | None,
) -> int:
    """Send reports of simulated users.

    Users are drawn from a file of counts, with a seed; each one's value is perturbed with secret coins, as a
    device would, and sent as one report.
    """
    from worker import simulate
    from worker.observe import logs

    logs.silence()
    served = config.served(stream)
    if batch > (most := served.configured.terms.most_reports or batch):
        raise click.BadParameter(
            f"{batch} given; streams.most_reports is {most}, and a record of more is rejected",
            param_hint="--batch",
        )
    if truth is not None:
        try:
            truth.touch()  # before anything is sent: a truth that cannot be written is lost
        except OSError as error:
            raise click.BadParameter(
                f"{str(truth)!r} given; {error.strerror}", param_hint="--truth"
            ) from None
    try:
        read = simulate.read_counts(counts, column, label_column, served.stream.labels)
        if len(read) > (d := served.stream.oracle.domain_size):
            raise simulate.SimulationError(f"{counts}: {len(read)} rows; the stream's domain has {d} values")
        crowd = simulate.draw(read, users, seed)
        _reach(config, served.topic)
        with _bar("sending", "reports") as move:
            sent = simulate.send(
                config,
                served,
                crowd,
                seed=seed,
                batch=batch,
                json_share=json_share,
                malformed_share=malformed_share,
                rate=rate,
                progress=lambda acknowledged: move(acknowledged, users),
            )
    except simulate.NoSuchColumnError as error:
        raise click.UsageError(str(error)) from None
    except simulate.SimulationError as error:
        _complain(str(error))
        return 1
    except KeyboardInterrupt:
        _complain("interrupted: some of the reports were sent")
        return 1
    if truth is not None:
        truth.write_text(simulate.truth(served, crowd, sent, seed), encoding="utf-8")
    malformed = f" and {sent.malformed:,} malformed ones" if sent.malformed else ""
    click.echo(
        f"{sent.reports:,} reports in {sent.records:,} records{malformed} sent and acknowledged"
        f" in {sent.seconds:.1f} s, {sent.reports / sent.seconds:,.0f} reports/s"
    )
    return 0


@_command("watch")
@_stream
@click.option("--once", is_flag=True, help="Show one snapshot and exit; exit with 1 if none comes in time.")
@click.option(
    "--timeout",
    type=click.FloatRange(min=0),
    default=30.0,
    show_default=True,
    metavar="SECONDS",
    help="How long --once waits for the first.",
)
@click.option("--top", type=click.IntRange(min=1), default=10, show_default=True, help="How many values.")
@click.option(
    "--method",
    "methods",
    multiple=True,
    metavar="NAME",
    help="A method to show beside Base; may be repeated.",
)
@click.option("--all", "every", is_flag=True, help="Show all ten methods.")
@click.option("--json", "as_json", is_flag=True, help="Print each snapshot as one line of JSON.")
def watch(
    config: "Config",
    stream: str | None,
    once: bool,
    timeout: float,
    top: int,
    methods: tuple[str, ...],
    every: bool,
    as_json: bool,
) -> int:
    """Show the latest snapshot, refreshed.

    Shows each new complete snapshot until interrupted, as a table in per cent.
    """
    import math

    from rich.console import Console, Group
    from rich.text import Text

    from ldp import table
    from ldp.consistency import METHODS
    from worker import watch
    from worker.observe import logs

    methods = tuple(dict.fromkeys(methods))
    for method in methods:
        if method not in METHODS:
            raise click.BadParameter(
                f"{method!r} given; there are {', '.join(METHODS)}", param_hint="--method"
            )
    logs.silence()
    served = config.served(stream)
    name = served.stream.name
    shown = tuple(m for m in (METHODS if every else methods or table.METHODS) if m != "base")
    console = Console()
    warned: set[str] = set()
    try:
        _reach(config, config.snapshots.topic)
        with watch.Watch(config, name) as snapshots:

            def show(snapshot: "Snapshot") -> "RenderableType":
                table = watch.render(snapshot, shown, top, snapshots.age(), console.width)
                warning = watch.foreign(snapshot, served.stream)
                return table if warning is None else Group(Text(warning, style="bold red"), table)

            if console.is_terminal and not once and not as_json:
                watch.live(snapshots, console, show)
            while (snapshot := snapshots.latest(timeout if once else math.inf)) is not None:
                if as_json:
                    click.echo(watch.document(snapshot, methods or tuple(METHODS)))
                    warning = watch.foreign(snapshot, served.stream)
                    if warning is not None and warning not in warned:
                        warned.add(warning)
                        _complain(warning)
                else:
                    console.print(show(snapshot))
                if once:
                    return 0
    except KeyboardInterrupt:
        return 0
    why = watch.why_none(config, served)
    _complain(f"no snapshot of {name} in topic {config.snapshots.topic} after {timeout:g} s; {why}")
    return 1


@_command("dead-letters")
@click.option("--stream", metavar="NAME", help="Only those of this stream.")
@click.option("--last", type=click.IntRange(min=1), default=10, show_default=True, help="How many to show.")
@click.option("--value", is_flag=True, help="Show what each record held, too; it may be personal.")
@_json
def dead_letters(config: "Config", stream: str | None, last: int, value: bool, as_json: bool) -> int:
    """Show the newest malformed records.

    Says how often each reason occurs among the newest 1,000 dead letters of each partition of their topic, fewer
    where they are large, then shows the newest of those: when, why, where the record came from, its size. What
    a record held is shown only by --value: its first bytes, or in JSON all that was kept of it, in base64.
    """
    from worker import letters
    from worker.observe import logs

    logs.silence()
    if stream is not None:
        config.served(stream)
    _reach(config, config.dead_letters.topic)
    found = letters.newest_letters(config, stream)
    if as_json:
        click.echo(letters.as_json(found, last, value))
    else:
        _print(letters.render(found, last, value))
    return 0


@_command("document")
@_stream
def document(config: "Config", stream: str | None) -> int:
    """Print the public document of a stream, which clients need.

    As ldp document writes it, so that a file of it is what ldp perturb --document takes. The fingerprint, which each
    report names, goes to stderr.

    \b
    ldp-worker document --stream colours > colours.json
    """  # noqa: D301
    import json

    served = config.served(stream)
    click.echo(json.dumps(served.stream.document(), ensure_ascii=False))
    _complain(f"stream {served.stream.name}, fingerprint {served.stream.fingerprint.hex()}")
    return 0


@_command("audit")
@_stream
@_json
def audit(config: "Config", stream: str | None, as_json: bool) -> int:
    """Recount the topic and compare with Redis.

    Reads the topic again up to the stored offsets, counts with code of its own, and compares bit for bit.

    \b
    exit code  verdict
    0          equal, or nothing is counted yet
    1          different; or a gap: offsets are recorded as lost, because the
               topic's retention deleted them before they were counted
    3          not recountable: retention deleted records after they were
               counted; in what remains nothing differs

    --json prints, for the stream and for each of its partitions: verdict; equal; counted, whether anything was
    yet; difference, the first one, or what else keeps it from being equal, or null; records, reports, malformed,
    which were read again; rejected, the malformed ones by reason; lag, offsets not counted yet. For a partition
    also its number, start and offset, and the stretches [from, to) of gaps, recorded as lost, and deleted, which
    cannot be recounted.
    """  # noqa: D301
    import json

    from worker import audit
    from worker.observe import logs

    logs.silence()
    served = config.served(stream)
    try:
        _reach(config, served.topic)
        with _bar("recounting", "offsets") as move:
            verdict = audit.audit(served, config, move)
    except audit.AuditError as error:
        _complain(str(error))
        return 1
    if as_json:
        click.echo(json.dumps(audit.as_json(verdict), indent=2))
    else:
        _print(audit.render(verdict))
    return audit.EXIT_CODES[verdict.verdict]


def main() -> None:
    """Runs the command line."""
    cli(prog_name="ldp-worker")


if __name__ == "__main__":
    main()
