"""Shows the newest snapshot."""

from typing import TYPE_CHECKING

import click

from worker.cli.command import command, complain, reach, stream_option

if TYPE_CHECKING:
    from rich.console import RenderableType

    from ldp.snapshot import Snapshot
    from worker.config import Config


@command("watch")
@stream_option
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
        reach(config, config.snapshots.topic)
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
                        complain(warning)
                else:
                    console.print(show(snapshot))
                if once:
                    return 0
    except KeyboardInterrupt:
        return 0
    why = watch.why_none(config, served)
    complain(f"no snapshot of {name} in topic {config.snapshots.topic} after {timeout:g} s; {why}")
    return 1
