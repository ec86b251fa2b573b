"""Command `document`: prints a stream's public document."""

import json
from typing import TYPE_CHECKING

from ldp.terminal import echo_json
from worker.cli.command import command, complain, stream_option

if TYPE_CHECKING:
    from worker.config import Config


@command("document")
@stream_option
def document(config: "Config", stream: str | None) -> int:
    """Print the public document of a stream.

    ldp perturb --document takes the output. The command prints the fingerprint on stderr.

    \b
    ldp-worker document --stream colours > colours.json
    """  # noqa: D301
    served = config.served(stream)
    echo_json(json.dumps(served.stream.document(), ensure_ascii=False))
    complain(f"stream {served.name}, fingerprint {served.stream.fingerprint.hex()}")
    return 0
