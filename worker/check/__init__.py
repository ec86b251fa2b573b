"""Check of configuration, machine, Kafka, Redis and stored counts.

Only `kafka.look` and `redis.look` connect. The `assess_...` functions need no cluster.
"""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import ldp
from ldp.privacy.summary import DELTA, LINES, READERS, as_text, readers_as_text, summary
from worker.check import kafka, machine, redis
from worker.check.finding import Finding, Level
from worker.config import Config, Served
from worker.config.redaction import shown_path

__all__ = ["Finding", "Level", "findings", "recorded_documents"]


def findings(
    config: Config,
    on_waiting: Callable[[str], object] = lambda _: None,
    ship: tuple[str, ldp.Stream] | None = None,
) -> list[Finding]:
    """Returns all findings, from the configuration to the stored counts.

    Args:
        config: the configuration.
        on_waiting: called with a message if no broker accepts the client within a second.
        ship: a stream's name and the document for its clients; an error unless it is in force in all partitions.
    """
    here = [
        Finding(Level.OK, "configuration", _summary(config)),
        *assess_streams(config),
        *assess_privacy(config),
        machine.assess_cache(os.environ.get("NUMBA_CACHE_DIR"), machine.cache_folder()),
        *assess_keys(config.gateway.ohttp.key_files),
    ]
    in_kafka, cluster, heads, newest = kafka.look(config, on_waiting)
    return [*here, *in_kafka, *redis.look(config, cluster, heads, newest, ship)]


def recorded_documents(
    config: Config, served: Served, on_waiting: Callable[[str], object]
) -> Mapping[str, str]:
    """Returns a stream's recorded documents: fingerprint -> sealed text."""
    head, partitions = kafka.recorded(config, served, on_waiting)
    return redis.recorded(config, served, partitions, head).documents


def assess_streams(config: Config) -> list[Finding]:
    """Returns a warning for each probable mistake in a live document."""
    return [
        Finding(
            Level.WARNING,
            f"stream {_named(served, document)}",
            text,
            "change the stream before devices report",
        )
        for served in config.streams
        for document in _live(served)
        for text in document.warnings
    ]


def assess_privacy(config: Config) -> list[Finding]:
    """Returns the privacy losses of each live document.

    With `fewest_new`, also those to readers of snapshots.
    """
    fewest = config.snapshots.fewest_new if config.snapshots.fewest_new > 1 else None
    found = list[Finding]()
    for served in config.streams:
        batch = served.shuffle_batch_size if served.intake else None
        for document in _live(served):
            losses = summary(document.oracle, document.privacy, fewest, DELTA, batch)
            found += _losses(f"privacy of {_named(served, document)}", losses)
    return found


def _losses(subject: str, losses: Mapping[str, Any]) -> Iterator[Finding]:
    lines = [f"{line}: {as_text(losses['operator'][key])}" for key, line in LINES.items()]
    yield Finding(Level.OK, subject, f"against the operator, {'; '.join(lines)}")
    for key, (reader, _) in READERS.items():
        if losses[key]:
            text = (
                f"one report, to {reader}: {readers_as_text(losses[key])};"
                f" to the operator: {as_text(losses['operator']['one_report'])}."
                f" The reader {losses[key]['adversary']}"
            )
            yield Finding(Level.OK, subject, text)


def assess_keys(files: Sequence[Path]) -> list[Finding]:
    """Returns a finding for the keys of oblivious HTTP, if there are any."""
    if not files:
        return []
    subject = "gateway.ohttp.key_files"
    try:
        from worker.gateway import ohttp  # needs the extra `gateway`

        keys = ohttp.read_keys(files)
    except (ImportError, ValueError) as error:
        return [Finding(Level.ERROR, subject, str(error), "let the gateway's user read a key in each file")]
    if seen := [shown_path(file) for file in files if file.stat().st_mode & 0o007]:
        return [
            Finding(Level.WARNING, subject, f"all users can read {', '.join(seen)}", "remove this permission")
        ]
    first, *more = keys
    return [
        Finding(
            Level.OK, subject, f"key {first} is current; also accepted: {', '.join(map(str, more)) or 'none'}"
        )
    ]


def _live(served: Served) -> list[ldp.Stream]:
    return [served.fleet.documents[i] for i in served.fleet.live]


def _named(served: Served, document: ldp.Stream) -> str:
    """Returns a stream's name, with the document if there are several."""
    several = len(served.fleet.documents) > 1
    return f"{served.name}, document {document.fingerprint.hex()}" if several else served.name


def _summary(config: Config) -> str:
    streams = ", ".join(
        f"{served.name} ({'; '.join(_described(served, one) for one in _live(served))})"
        for served in config.streams
    )
    return f"read; group {config.group}, serving {streams}"


def _described(served: Served, document: ldp.Stream) -> str:
    several = len(served.fleet.documents) > 1
    name = f"document {document.fingerprint.hex()}: " if several else ""
    return f"{name}{document.oracle.name}, {document.oracle.promise}, d = {document.oracle.domain_size}"
