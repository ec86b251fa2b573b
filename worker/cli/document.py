"""Command `document`: prints a document of a stream."""

import json
from typing import TYPE_CHECKING, Any

import click

from ldp.terminal import echo_json
from worker.cli.command import command, complain, stream_option

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from worker.config import Config

_SECONDS = 10.0
"""Longest time to read the labels on the snapshot topic."""


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
        echo_json(configured[name].document())
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
    sealed = json.loads(recorded[name])
    found = with_labels(sealed, name, _published(config, served.name, name))
    lacking = "" if found is not None else ", without its labels: only their SHA-256 is recorded"
    echo_json(found or sealed)
    complain(f"stream {served.name}, fingerprint {name}{lacking}")
    return 0


def _published(config: "Config", stream: str, fingerprint: str) -> "Iterator[Sequence[str]]":
    """Yields the published labels of a document and of its stream."""
    from ldp.snapshot.parts import part_of
    from worker.kafka.snapshots.reader import SnapshotReader

    for name in (part_of(stream, document=fingerprint), stream):
        with SnapshotReader(config, name) as reader:
            snapshot = reader.latest(0.0) if reader.catch_up(_SECONDS) else None
        yield () if snapshot is None else snapshot.labels or ()


def with_labels(
    sealed: dict[str, Any], fingerprint: str, published: "Iterable[Sequence[str]]"
) -> dict[str, Any] | None:
    """Returns a document with its labels, or None if no labels have its hash.

    A stream's labels begin with the labels of its first document.

    Example:
        >>> import ldp
        >>> stream = ldp.Stream("s", ldp.GRR("1", 2), ["no", "yes"])
        >>> sealed, name = json.loads(stream.hashed), stream.fingerprint.hex()
        >>> with_labels(sealed, name, [(), ("no", "yes", "unknown")])["labels"]
        ['no', 'yes']
        >>> with_labels(sealed, name, [("yes", "no")])
    """
    from ldp.stream import fingerprint as hash_of

    if "labels" not in sealed:
        return sealed
    for labels in published:
        document = {**sealed, "labels": list(labels[: sealed["domain_size"]])}
        if hash_of(document).hex() == fingerprint:
            return document
    return None
