"""``ldp document``: writes the public document of a stream."""

from __future__ import annotations

import json
from pathlib import Path

import click

from ldp.cli.command import FILE, NAME, cli
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
@click.option("--labels", metavar="A,B,...", help="Names of the values, separated by commas.")
@click.option("--labels-file", type=FILE, metavar="FILE", help="File with the name of one value per line.")
@click.option("--domain-size", type=int, metavar="D", help="Number of values, if they have no names.")
@click.option(
    "--parameter",
    "parameters",
    multiple=True,
    metavar="KEY=VALUE",
    help="Parameter of the protocol, such as g=2 for olh or rates=1/5,3/4 for response. Repeat the option for several.",
)
def document(
    protocol: str,
    epsilon: str | None,
    labels: str | None,
    labels_file: Path | None,
    domain_size: int | None,
    parameters: tuple[str, ...],
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
    """  # noqa: D301
    from ldp import files, oracle, oracles
    from ldp.oracles.explicit import ExplicitChannel
    from ldp.stream import Stream

    try:
        if protocol not in oracles.PROTOCOLS:
            raise ValueError(f"--protocol is {protocol!r}; allowed are {', '.join(oracles.PROTOCOLS)}")
        if [labels, labels_file, domain_size].count(None) != 2:
            raise ValueError("exactly one of --labels, --labels-file and --domain-size is required")
        names = None if labels is None else [label.strip() for label in labels.split(",")]
        if labels_file is not None:
            names = files.labels(labels_file)
        takes = oracles.parameters_of(protocol)
        own: dict[str, int | str | list[str]] = {}
        for parameter in parameters:
            key, equals, value = parameter.partition("=")
            if not equals or key not in takes:
                allowed = ", ".join(f"{name}=..." for name in takes) or "no parameter"
                raise ValueError(f"--parameter is {parameter!r}; {protocol} takes {allowed}")
            own[key] = int(value) if value.isascii() and value.isdigit() else value
            if key == "rates":
                own[key] = value.split(",")
        size = domain_size if names is None else len(names)
        stream = Stream(
            NAME, oracle(protocol, epsilon, size or 0, **own), None if names is None else tuple(names)
        )
    except UnicodeDecodeError as error:
        raise click.UsageError(f"{labels_file} is not UTF-8: {error}") from None
    except (OSError, TypeError, ValueError) as error:
        raise click.UsageError(str(error)) from None
    if isinstance(stream.oracle, ExplicitChannel):
        echo(f"ldp: privacy loss of one report: {stream.oracle.promise}", err=True)
    echo_json(json.dumps(stream.document(), ensure_ascii=False))
