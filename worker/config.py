"""Configuration: one TOML file, overridden by environment variables, checked in full before anything starts.

Every key of every table but ``[[streams]]`` can be overridden by ``LDP_WORKER_<TABLE>__<KEY>`` (top-level keys:
``LDP_WORKER_<KEY>``), written as in TOML; a bare word is a string and a comma separates the items of a list.
"""

import contextlib
import os
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, Self, get_args
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SecretStr,
    StrictInt,
    StringConstraints,
    ValidationError,
    model_validator,
)

import ldp
from ldp.oracles import ORACLES

PREFIX = "LDP_WORKER_"
FILE_VARIABLE = "LDP_WORKER_CONFIG"
"""Names the file; the one variable with the prefix that overrides nothing in it."""

Topic = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9._-]{1,249}$")]
Name = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9._-]{1,200}$")]
Seconds = Annotated[float, Field(ge=0.05, le=3600)]


Broker = Annotated[str, StringConstraints(pattern=r"^.+:[0-9]{1,5}$")]


class ConfigError(ValueError):
    """What is wrong with the configuration: one line a fault, each naming the key, the value and what is allowed."""


def _split(value: object) -> object:
    return [item.strip() for item in value.split(",")] if isinstance(value, str) else value


def _redis_url(url: str) -> str:
    parts = urlsplit(url)
    _ = parts.port  # raises ValueError for what is no port
    if parts.query or (parts.scheme != "unix" and not re.fullmatch(r"(/[0-9]*)?", parts.path)):
        raise ValueError("allowed is scheme://host:port/number, without options")
    return url


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)


class Kafka(_Table):
    """``[kafka]``: how to reach the brokers."""

    bootstrap_servers: Annotated[list[Broker], BeforeValidator(_split), Field(min_length=1)] = [
        "localhost:9092"
    ]
    security_protocol: Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"] = "PLAINTEXT"
    sasl_mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"] | None = None
    sasl_username: str | None = None
    sasl_password: SecretStr | None = None
    ssl_cafile: Path | None = None
    ssl_certfile: Path | None = None
    ssl_keyfile: Path | None = None

    @model_validator(mode="after")
    def _sasl(self) -> Self:
        given = [self.sasl_mechanism, self.sasl_username, self.sasl_password]
        if self.security_protocol.startswith("SASL") and None in given:
            raise ValueError(
                f"security_protocol {self.security_protocol} needs sasl_mechanism, sasl_username and sasl_password"
            )
        if not self.security_protocol.startswith("SASL") and given != [None] * 3:
            raise ValueError(
                f"sasl_* needs security_protocol SASL_SSL or SASL_PLAINTEXT, not {self.security_protocol}"
            )
        return self

    def client(self) -> dict[str, Any]:
        """Returns the keyword arguments that every kafka-python client takes."""
        settings: dict[str, Any] = {
            "bootstrap_servers": self.bootstrap_servers,
            "security_protocol": self.security_protocol,
        }
        if self.sasl_mechanism is not None:
            password = self.sasl_password.get_secret_value() if self.sasl_password else None
            settings |= {
                "sasl_mechanism": self.sasl_mechanism,
                "sasl_plain_username": self.sasl_username,
                "sasl_plain_password": password,
            }
        for key in ("ssl_cafile", "ssl_certfile", "ssl_keyfile"):
            if (path := getattr(self, key)) is not None:
                settings[key] = str(path)
        return settings


class Redis(_Table):
    """``[redis]``: where the counts live."""

    url: Annotated[
        str, StringConstraints(pattern=r"^(redis|rediss|unix)://.+"), AfterValidator(_redis_url)
    ] = "redis://localhost:6379/0"
    password: SecretStr | None = None
    timeout_seconds: Seconds = 5.0


class Http(_Table):
    """``[http]``: where ``/metrics``, ``/healthz`` and ``/readyz`` answer; port 0 takes a free one."""

    host: str = "0.0.0.0"  # noqa: S104  # probes and Prometheus come from outside the container
    port: Annotated[int, Field(ge=0, le=65535)] = 9464


class Snapshots(_Table):
    """``[snapshots]``: the output topic, and how often a stream publishes to it."""

    topic: Topic = "ldp-snapshots"
    every_seconds: Seconds = 5.0
    level: Annotated[float, Field(gt=0, lt=1)] = 0.95


class DeadLetters(_Table):
    """``[dead_letters]``: the topic that malformed records go to."""

    topic: Topic = "ldp-dead-letters"


class Query(_Table):
    """``[[streams.queries]]``: a named set of values, answered in every snapshot."""

    name: Annotated[str, StringConstraints(min_length=1, max_length=200)]
    values: Annotated[list[str | StrictInt], Field(min_length=1)]


class StreamTable(_Table):
    """``[[streams]]``: one topic of reports, and the protocol that its clients speak."""

    name: Name
    topic: Topic
    protocol: str
    epsilon: str | StrictInt
    domain_size: StrictInt | None = None
    hash: str | None = None
    g: StrictInt | None = None
    k: StrictInt | None = None
    prime: StrictInt | None = None
    dimension: StrictInt | None = None
    labels: list[str] | None = None
    labels_file: Path | None = None
    queries: list[Query] = []


class _File(_Table):
    group: Name = "ldp-worker"
    commit_every_seconds: Seconds = 1.0
    kafka: Kafka = Kafka()
    redis: Redis = Redis()
    http: Http = Http()
    snapshots: Snapshots = Snapshots()
    dead_letters: DeadLetters = DeadLetters()
    streams: Annotated[list[StreamTable], Field(min_length=1)]


@dataclass(frozen=True)
class Served:
    """A stream and the topic that carries its reports."""

    stream: ldp.Stream
    topic: str


@dataclass(frozen=True)
class Config:
    """The whole configuration, checked.

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
        >>> parse('group = "a b"')
        Traceback (most recent call last):
            ...
        worker.config.ConfigError: group: 'a b' given; String should match pattern '^[A-Za-z0-9._-]{1,200}$'
        streams: nothing given; Field required
    """

    group: str
    commit_every_seconds: float
    kafka: Kafka
    redis: Redis
    http: Http
    snapshots: Snapshots
    dead_letters: DeadLetters
    streams: tuple[Served, ...]

    def consumer_group(self, stream: ldp.Stream) -> str:
        """Returns the consumer group that counts a stream; also the transactional id of its publisher."""
        return f"{self.group}-{stream.name}"

    def served(self, name: str | None) -> Served:
        """Returns the stream of that name, or the only one there is.

        Raises:
            ConfigError: no such stream, or several and no name.
        """
        names = [served.stream.name for served in self.streams]
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
    """Reads a configuration file; relative paths in it are relative to the file.

    Raises:
        ConfigError: the file cannot be read, is not TOML, or says something that is not allowed.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: cannot be read ({error})") from None
    return parse(text, path.parent, os.environ if environ is None else environ)


def parse(text: str, folder: Path | None = None, environ: Mapping[str, str] | None = None) -> Config:
    """Reads a configuration from TOML text.

    Raises:
        ConfigError: the text is not TOML or says something that is not allowed; all faults are named at once.
    """
    try:
        tree = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"not valid TOML: {error}") from None
    _override(tree, environ or {})
    try:
        file = _File.model_validate(tree)
    except ValidationError as error:
        raise ConfigError(
            "\n".join(_fault(tree, fault) for fault in error.errors(include_url=False))
        ) from None
    folder = folder or Path()
    kafka = _with_paths(file.kafka, folder)
    streams = tuple(_served(table, f"streams[{i}]", folder) for i, table in enumerate(file.streams))
    for what, values in (("name", [s.stream.name for s in streams]), ("topic", [s.topic for s in streams])):
        if doubles := sorted({value for value in values if values.count(value) > 1}):
            raise ConfigError(
                f"streams: the {what} {doubles[0]!r} is given twice; each stream has a {what} of its own"
            )
    outputs = {"snapshots.topic": file.snapshots.topic, "dead_letters.topic": file.dead_letters.topic}
    for key, topic in outputs.items():
        others = [served.topic for served in streams] + [t for k, t in outputs.items() if k != key]
        if topic in others:
            raise ConfigError(f"{key}: {topic!r} given; it must be a topic that nothing else uses")
    return Config(
        group=file.group,
        commit_every_seconds=file.commit_every_seconds,
        kafka=kafka,
        redis=file.redis,
        http=file.http,
        snapshots=file.snapshots,
        dead_letters=file.dead_letters,
        streams=streams,
    )


def _with_paths(kafka: Kafka, folder: Path) -> Kafka:
    """Returns the table with its files' paths relative to the configuration's folder; they must be there."""
    paths = {}
    for key in ("ssl_cafile", "ssl_certfile", "ssl_keyfile"):
        if (path := getattr(kafka, key)) is not None:
            paths[key] = folder / path
            if not paths[key].is_file():
                raise ConfigError(f"kafka.{key}: {str(paths[key])!r} given; there is no such file")
    return kafka.model_copy(update=paths)


def _override(tree: dict[str, Any], environ: Mapping[str, str]) -> None:
    """Lays the environment's values over the file's."""
    for variable, text in environ.items():
        if not variable.startswith(PREFIX) or variable == FILE_VARIABLE:
            continue
        *tables, key = variable.removeprefix(PREFIX).lower().split("__")
        if [*tables, key][0] == "streams":
            raise ConfigError(f"{variable}: streams are configured in the file only")
        value: object = text
        if not _is_text(tables, key):
            with contextlib.suppress(tomllib.TOMLDecodeError):
                value = tomllib.loads(f"value = {text}")["value"]
        table = tree
        for name in tables:
            table = table.setdefault(name, {})
            if not isinstance(table, dict):
                raise ConfigError(f"{variable}: {name} is no table")
        table[key] = value


def _fault(tree: Mapping[str, Any], fault: Any) -> str:
    """Says one fault as ``key: value given; what is allowed``; values of secrets stay unsaid."""
    value: Any = tree
    key = ""
    for part in fault["loc"]:
        key += f"[{part}]" if isinstance(part, int) else f".{part}" if key else str(part)
        if isinstance(value, Mapping):
            value = value.get(part)
        elif isinstance(value, Sequence) and isinstance(part, int) and part < len(value):
            value = value[part]
    if fault["type"] == "extra_forbidden":
        return f"{key}: no such key"  # its value may be a secret whose key is misspelt
    given = "nothing" if value is None else "a secret" if "password" in key else unsaid(repr(value))
    return f"{key}: {given} given; {fault['msg'].removeprefix('Value error, ')}"


def unsaid(text: str) -> str:
    """Returns a text with the user and password of any URL in it left out."""
    return re.sub(r"//?[^/@\s]*@", "//***@", text)


def _is_text(tables: Sequence[str], key: str) -> bool:
    """Returns whether a key's value is a text, so that digits in the environment stay one."""
    model: Any = _File
    for name in tables:
        field = model.model_fields.get(name)
        model = field.annotation if field is not None else None
        if not (isinstance(model, type) and issubclass(model, BaseModel)):
            return False
    field = model.model_fields.get(key)
    if field is None:
        return False
    kinds = {field.annotation, *get_args(field.annotation)}
    return bool(kinds & {str, SecretStr, Path}) and not kinds & {int, float, list}


def _served(table: StreamTable, key: str, folder: Path) -> Served:
    """Builds a stream from its table."""
    labels = table.labels
    if table.labels_file is not None:
        if labels is not None:
            raise ConfigError(f"{key}: give labels or labels_file, not both")
        path = folder / table.labels_file
        try:
            labels = path.read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"{key}.labels_file: {str(path)!r} cannot be read ({error})") from None
    size = table.domain_size if table.domain_size is not None else len(labels or ())
    if not size:
        raise ConfigError(
            f"{key}.domain_size: nothing given; a whole number of at least 1 is needed, or labels"
        )
    own = sorted({name for protocol in ORACLES.values() for name in protocol.own_parameters})
    parameters = {name: value for name in own if (value := getattr(table, name)) is not None}
    takes = ORACLES[table.protocol].own_parameters if table.protocol in ORACLES else own
    for name, value in parameters.items():
        if name not in takes:
            allowed = f"{table.protocol} takes {' and '.join(takes) or 'no parameters of its own'}"
            raise ConfigError(f"{key}.{name}: {value!r} given; {allowed}")
    try:
        oracle = ldp.oracle(table.protocol, epsilon=table.epsilon, domain_size=size, **parameters)
        queries = tuple((query.name, _values(query, labels, size)) for query in table.queries)
        return Served(
            ldp.Stream(table.name, oracle, labels=None if labels is None else tuple(labels), queries=queries),
            table.topic,
        )
    except (TypeError, ValueError) as error:
        raise ConfigError(f"{key}: {re.sub(r'^streams.*?: ', '', str(error))}") from None


def _values(query: Query, labels: Sequence[str] | None, size: int) -> tuple[int, ...]:
    """Turns a query's labels or numbers into indices of the domain."""
    index = {label: i for i, label in enumerate(labels or ())}
    values = []
    for value in query.values:
        i = index.get(value, -1) if isinstance(value, str) else value
        if not 0 <= i < size:
            allowed = f"a label or a whole number from 0 to {size - 1}"
            raise ValueError(f"query {query.name!r}: {value!r} given; allowed is {allowed}")
        values.append(i)
    return tuple(values)
