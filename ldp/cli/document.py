"""``ldp document``: writes the public document of a stream."""

from __future__ import annotations

import click

from ldp.cli.command import NAME, cli, domain_options, warn
from ldp.terminal import echo, echo_json


@cli.command("document")
@click.option(
    "--protocol",
    required=True,
    metavar="NAME",
    help="grr, olh, oue, sue, subset, hadamard or pgr (see ldp plan); response or unary for an explicit channel.",
)
@click.option(
    "--epsilon", metavar="E", help="Budget of one report, such as 1, 0.5 or 1/3. Not for an explicit channel."
)
@domain_options
@click.option(
    "--parameter",
    "parameters",
    multiple=True,
    metavar="KEY=VALUE",
    help="Parameter of the protocol, such as g=2 for olh or p=3/4 for response. Repeat the option for several.",
)
@click.option(
    "--privacy",
    metavar="KEY=VALUE,...",
    help="Limit on the reports of a unit, such as unit=device,reports=1,period=24h,noise=fresh,horizon=365d.",
)
@click.option(
    "--segment",
    metavar="TEXT",
    help="Names of the levels of the segment that reports carry, such as country:app.",
)
def document(
    protocol: str,
    epsilon: str | None,
    labels: list[str] | None,
    domain_size: int,
    parameters: tuple[str, ...],
    privacy: str | None,
    segment: str | None,
) -> None:
    """Write the public document of a stream, which clients need.

    Clients such as ldp perturb make reports with the document. Workers and ldp aggregate count the reports with the
    same document. It contains the protocol, the budget and the values, and no secrets.

    \b
    ldp document --protocol olh --epsilon 1 --labels red,green,blue > colours.json

    For an explicit channel you give the probabilities that clients use, and stderr shows the resulting ε.

    \b
    ldp document --protocol unary --parameter p=3/4 --parameter q=1/4 \\
        --domain-size 100 > topics.json

    With --privacy, the document declares the most reports of a unit in a period. The noise is fresh in each report, or
    memoised: the client stores the noise of a value and uses it again. Losses are added up over the horizon.
    """  # noqa: D301
    from ldp import oracle, oracles
    from ldp.oracles.explicit import ExplicitChannel
    from ldp.privacy.declaration import Declaration
    from ldp.stream import Stream

    try:
        if protocol not in oracles.PROTOCOLS:
            raise ValueError(f"--protocol is {protocol!r}; allowed are {', '.join(oracles.PROTOCOLS)}")
        takes = oracles.parameters_of(protocol)
        own: dict[str, int | str] = {}
        for parameter in parameters:
            key, equals, value = parameter.partition("=")
            if not equals or key not in takes:
                allowed = ", ".join(f"{name}=..." for name in takes) or "no parameter"
                raise ValueError(f"--parameter is {parameter!r}; {protocol} takes {allowed}")
            own[key] = int(value) if value.isascii() and value.isdigit() else value
        made = oracle(protocol, epsilon, domain_size, **own)
        declared = None if privacy is None else Declaration.from_document(_pairs(privacy))
        stream = Stream(NAME, made, None if labels is None else tuple(labels), declared, segment)
    except (TypeError, ValueError) as error:
        raise click.UsageError(str(error)) from None
    if isinstance(stream.oracle, ExplicitChannel):
        echo(f"ldp: privacy loss of one report: {stream.oracle.promise}", err=True)
    warn(stream)
    echo_json(stream.document())


def _pairs(text: str) -> dict[str, str | int]:
    """Parses a declaration as ``key=value,...``."""
    pairs = dict[str, str | int]()
    for part in text.split(","):
        key, _, value = part.strip().partition("=")
        if key in pairs:
            raise ValueError(f"--privacy has the key {key!r} twice; give it once")
        pairs[key] = int(value) if key == "reports" and value.isdecimal() else value
    return pairs
