"""Command `document`: prints a document of a stream."""

import json
from typing import TYPE_CHECKING

import click

from ldp.terminal import echo_json
from worker.cli.command import command, complain, stream_option

if TYPE_CHECKING:
    from worker.config import Config


@command("document")
@stream_option
@click.option("--fingerprint", metavar="HEX", help="Print this recorded document, not the newest.")
def document(config: "Config", stream: str | None, fingerprint: str | None) -> int:
    """Print the public document of a stream.

    ldp perturb --document takes the output. The command prints the fingerprint on stderr. Without --fingerprint, it
    prints the newest document of the configuration.

    \b
    ldp-worker document --stream colours > colours.json
    """  # noqa: D301
    served = config.served(stream)
    configured = {each.fingerprint.hex(): each for each in served.fleet.documents}
    name = served.stream.fingerprint.hex() if fingerprint is None else fingerprint
    if name in configured:
        echo_json(json.dumps(configured[name].document(), ensure_ascii=False))
        complain(f"stream {served.name}, fingerprint {name}")
        return 0
    from worker.check import recorded_documents
    from worker.counting.ports import StateLost, Unavailable

    try:
        recorded = recorded_documents(config, served, complain)
    except (StateLost, Unavailable) as error:
        complain(str(error))
        return 1
    if name not in recorded:
        listed = ", ".join(dict.fromkeys([*configured, *recorded]))
        complain(f"--fingerprint: {name!r} given; the documents of stream {served.name} are {listed}")
        return 2
    echo_json(recorded[name])
    complain(f"stream {served.name}, fingerprint {name}; labels, if any, are recorded only as their SHA-256")
    return 0
