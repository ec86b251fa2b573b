"""Loading and validation of a configuration."""

import os
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError

from ldp.snapshot import Slots
from worker.config import certificates
from worker.config.environment import FILE_VARIABLE, override, traced
from worker.config.faults import ConfigError, config_error, reason, refuse_doubles, with_names
from worker.config.lines import line_of, line_of_error
from worker.config.redaction import position, shown_path
from worker.config.rows import refuse_absurd_rows, refuse_others, slots_of
from worker.config.schema import (
    DeadLetters,
    File,
    Gateway,
    Http,
    Kafka,
    Ohttp,
    Redis,
    Rows,
    Shuffle,
    Snapshots,
)
from worker.config.snapshots import refuse_absurd_snapshots
from worker.config.streams import Served, served_from

_Tls = TypeVar("_Tls", Kafka, Redis, Gateway)


@dataclass(frozen=True)
class Config:
    """A validated configuration.

    Example:
        >>> config = parse('''
        ... [[streams]]
        ... name = "colours"
        ... topic = "colour-reports"
        ... protocol = "grr"
        ... epsilon = "1"
        ... labels = ["red", "green", "blue"]
        ... ''')
        >>> config.streams[0].stream.oracle.domain_size, config.kafka.bootstrap_servers
        (3, ['localhost:9092'])
    """

    group: str
    commit_every_seconds: float
    log_level: str
    kafka: Kafka
    redis: Redis
    http: Http
    snapshots: Snapshots
    rows: Rows
    dead_letters: DeadLetters
    gateway: Gateway
    shuffle: Shuffle
    streams: tuple[Served, ...]

    def consumer_group(self, stream: str) -> str:
        """Returns the name of the consumer group of a stream."""
        return f"{self.group}-{stream}"

    def transactional_id(self, stream: str) -> str:
        """Returns the publisher's transactional id, which all groups share."""
        return f"ldp-worker/{self.snapshots.topic}/{stream}"

    def shuffle_group(self, stream: str) -> str:
        """Returns the name of the consumer group of a stream's shufflers."""
        return f"{self.group}-shuffle-{stream}"

    def shuffle_id(self, stream: str, partition: int) -> str:
        """Returns the transactional id of an intake partition's owner."""
        return f"{self.group}-shuffle/{stream}/{partition}"

    def slots(self, served: Served) -> Slots | None:
        """Returns which rows each window of a stream has; None without rows."""
        return slots_of(self.rows, served)

    def served(self, name: str | None) -> Served:
        """Returns the stream `name`, or the only stream if `name` is None.

        Raises ConfigError unless there is exactly one such stream.
        """
        names = [served.name for served in self.streams]
        if name is None:
            if len(names) > 1:
                raise ConfigError(
                    f"--stream: needed with several streams; the configuration has {', '.join(names)}"
                )
            return self.streams[0]
        if name not in names:
            raise ConfigError(f"--stream: {name!r} given; the configuration has {', '.join(names)}")
        return self.streams[names.index(name)]


def load(path: Path, environ: Mapping[str, str] | None = None) -> Config:
    """Reads a configuration file; relative paths start at the file's folder.

    Raises:
        ConfigError: the file cannot be read, is not TOML, or is not valid.
    """
    try:
        text = path.read_text(encoding="utf-8")
        tree = _tree(text)
    except FileNotFoundError:
        raise ConfigError(
            f"{shown_path(path)}: there is no such file; name one with --config or {FILE_VARIABLE}"
        ) from None
    except ConfigError as error:
        raise ConfigError(f"{shown_path(path)}: {error}") from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{shown_path(path)}: cannot be read ({reason(error)})") from None
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(
            f"{shown_path(path)}:{line_of_error(text, error)}: not valid TOML{position(error)}"
        ) from None

    def placed(fault: str) -> str:
        line = line_of(text, fault.partition(": ")[0])
        named = with_names(fault, tree)
        return named if line is None else f"{shown_path(path)}:{line}: {named}"

    return _checked(tree, path.parent, os.environ if environ is None else environ, placed)


def parse(text: str, environ: Mapping[str, str] | None = None) -> Config:
    """Parses TOML; relative paths start at the working directory.

    Raises:
        ConfigError: the text is not TOML or not valid; the message contains all faults.
    """
    try:
        tree = _tree(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"not valid TOML{position(error)}") from None
    return _checked(tree, Path(), environ or {}, lambda fault: with_names(fault, tree))


def _tree(text: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        raise
    except RecursionError:
        raise ConfigError("not valid TOML: nested too deeply") from None
    except ValueError:
        raise ConfigError("not valid TOML: a number has too many digits") from None


def _checked(
    tree: dict[str, Any], folder: Path, environ: Mapping[str, str], placed: Callable[[str], str]
) -> Config:
    """Validates file and environment; adds variable or line to each fault."""
    variables = override(tree, environ, folder)
    try:
        return _config(tree, folder)
    except ConfigError as error:
        faults = [(fault, traced(fault, variables)) for fault in str(error).splitlines()]
    raise ConfigError("\n".join(placed(fault) if told == fault else told for fault, told in faults))


def _config(tree: Mapping[str, Any], folder: Path) -> Config:
    try:
        file = File.model_validate(tree)
    except ValidationError as error:
        raise config_error(error) from None
    kafka, redis = _with_tls_paths("kafka", file.kafka, folder), _with_tls_paths("redis", file.redis, folder)
    ohttp = Ohttp(key_files=[folder / path for path in file.gateway.ohttp.key_files])
    streams = tuple(
        served_from(table, f"streams[{i}]", folder, kafka.max_batch_bytes, file.snapshots.fewest_new)
        for i, table in enumerate(file.streams)
    )
    refuse_doubles([(f"streams[{i}].name", table.name) for i, table in enumerate(file.streams)])
    refuse_doubles(_topics(file))
    refuse_others(file.rows, file.snapshots.methods)
    for i, served in enumerate(streams):
        refuse_absurd_rows(file.rows, served, f"streams[{i}]")
        refuse_absurd_snapshots(file.snapshots, served, f"streams[{i}]")
        _refuse_absurd_batch(file.gateway, served, f"streams[{i}]")
        _refuse_fleet_uploads(served, f"streams[{i}]")
    gateway = _with_tls_paths("gateway", file.gateway, folder).model_copy(update={"ohttp": ohttp})
    return Config(**dict(file) | {"kafka": kafka, "redis": redis, "gateway": gateway, "streams": streams})


def _topics(file: File) -> list[tuple[str, str]]:
    """Returns keys of topics and the topics; configured outputs come last."""
    tables: dict[str, Snapshots | DeadLetters | Rows] = {
        "snapshots": file.snapshots,
        "dead_letters": file.dead_letters,
        "rows": file.rows,
    }
    keys = [(f"streams[{i}].topic", table.topic) for i, table in enumerate(file.streams)]
    keys += [(f"streams[{i}].intake", table.intake) for i, table in enumerate(file.streams) if table.intake]
    for name, table in tables.items():
        if table.topic is not None:
            keys.insert(len(keys) if "topic" in table.model_fields_set else 0, (f"{name}.topic", table.topic))
    return keys


_MOST_BATCH = 1 << 30
"""Largest batch in bytes, which the shuffler holds in memory."""


def _refuse_absurd_batch(gateway: Gateway, served: Served, key: str) -> None:
    if served.intake is not None and served.shuffle_batch_size * gateway.max_body_bytes > _MOST_BATCH:
        most = _MOST_BATCH // gateway.max_body_bytes
        raise ConfigError(
            f"{key}.shuffle_batch_size: {served.shuffle_batch_size} given; allowed is up to {most} with"
            f" gateway.max_body_bytes {gateway.max_body_bytes}, because the shuffler holds a batch in memory"
        )


def _refuse_fleet_uploads(served: Served, key: str) -> None:
    several = len(served.fleet.documents) > 1 or served.stream.segment is not None
    if served.intake is not None and several:
        raise ConfigError(
            f"{key}.intake: {served.intake} given; allowed for a stream with one document without the key segment,"
            " because the shuffler moves reports without their document and segment"
        )


def _with_tls_paths(name: str, table: _Tls, folder: Path) -> _Tls:
    paths = {}
    for key in ("ssl_cafile", "ssl_certfile", "ssl_keyfile"):
        if (path := getattr(table, key, None)) is not None:
            paths[key] = folder / path
            if not os.path.isfile(paths[key]):  # noqa: PTH113  # Path.is_file raises an error for some invalid paths
                raise ConfigError(
                    f"{name}.{key}: there is no such file; a path is needed, from {folder.absolute()} on"
                )
    found = table.model_copy(update=paths)
    try:
        certificates.check(name, getattr(found, "ssl_cafile", None), found.ssl_certfile, found.ssl_keyfile)
    except ValueError as error:
        raise ConfigError(str(error)) from None
    return found
