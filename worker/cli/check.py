"""Says what can be wrong before it hurts."""

from typing import TYPE_CHECKING

import click

from worker.cli.command import command, complain, json_option, show

if TYPE_CHECKING:
    from worker.config import Config


@command("check")
@click.option(
    "--wait",
    type=click.FloatRange(min=0),
    default=0.0,
    metavar="SECONDS",
    help="Keep trying until brokers and Redis answer.",
)
@json_option
def check(config: "Config", wait: float, as_json: bool) -> int:
    """Say what can be wrong before it hurts.

    Looks at configuration, brokers, topics, Redis and the counts in it. Exits with 1 if anything is an error;
    warnings are for you to judge.
    """
    from worker import check
    from worker.observe import logs

    logs.silence()
    findings = check.check(config, wait, complain)
    if as_json:
        click.echo(check.as_json(findings))
    else:
        show(check.render(findings))
    return int(any(finding.level is check.Level.ERROR for finding in findings))
