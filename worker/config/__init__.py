"""Configuration: one TOML file, overridden by environment variables, checked in full before anything starts.

Every key of every table but ``[[streams]]`` can be overridden by ``LDP_WORKER_<TABLE>__<KEY>`` (top-level keys:
``LDP_WORKER_<KEY>``), written as in TOML; a bare word is a string and a comma separates the items of a list.
"""

import contextlib
import math
import os
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
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
    StrictFloat,
    StrictInt,
    StringConstraints,
    ValidationError,
    model_validator,
)

import ldp
from ldp import files
from ldp.oracles import ORACLES
from worker.config import certificates
from worker.config.redaction import is_broker, is_redis_url, is_showable, key_name, position, said, shown_path
from worker.counting.rules import MOST_REPORTS, Configured, Terms

PREFIX = "LDP_WORKER_"
FILE_VARIABLE = "LDP_WORKER_CONFIG"
"""Names the file; the one variable with the prefix that overrides nothing in it."""
_OF_A_SERVICE = re.compile(
    "LDP_WORKER_([A-Z0-9_]+_)?(SERVICE_HOST|SERVICE_PORT(_[A-Z0-9_]+)?|PORT_[0-9]+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)"
    "|LDP_WORKER_([A-Z0-9_]+_)?PORT=(tcp|udp|sctp)://.*"
)
"""What Kubernetes tells every pod beside a Service whose name begins with ldp-worker: no key of ours."""


class ConfigError(ValueError):
    """What is wrong with the configuration, a line a fault: key, value if it can be no secret, what is allowed."""


def _split(value: object) -> object:
    return [item.strip() for item in value.split(",")] if isinstance(value, str) else value


def _that(holds: Callable[[Any], object], allowed: str) -> AfterValidator:
    """Returns what refuses a value for which something does not hold, and says what is allowed."""

    def validate(value: Any) -> Any:
        if not holds(value):
            raise ValueError(allowed)
        return value

    return AfterValidator(validate)


def _exact(value: object) -> object:
    if isinstance(value, float) and math.isfinite(value):
        raise ValueError(f'write it in quotes, "{value}": ε is taken exactly as written, which no float is')
    return value


Topic = Annotated[
    str,
    _that(
        lambda name: re.fullmatch(r"(?!\.{1,2}$)[A-Za-z0-9._-]{1,249}", name),
        "allowed are 1 to 249 of A-Z a-z 0-9 . _ - but not . or .. alone",
    ),
]
Name = Annotated[
    str,
    _that(
        lambda name: re.fullmatch(r"[A-Za-z0-9._-]{1,200}", name), "allowed are 1 to 200 of A-Z a-z 0-9 . _ -"
    ),
]
Broker = Annotated[
    str,
    _that(is_broker, "allowed is host:port, such as localhost:9092, without a scheme, user or password"),
]
Seconds = Annotated[
    StrictFloat, _that(lambda seconds: 0.05 <= seconds <= 3600, "allowed are 0.05 to 3600 seconds")
]


Number = Annotated[StrictInt, _that(lambda number: 1 <= number < 1 << 31, "allowed is 1 to 2147483647")]


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)


def _secret(value: SecretStr | None) -> str | None:
    return None if value is None else value.get_secret_value()


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
    ssl_password: SecretStr | None = None

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
        from worker.kafka import transport

        transport.install()
        settings: dict[str, Any] = {
            "bootstrap_servers": self.bootstrap_servers,
            "security_protocol": self.security_protocol,
        }
        if self.sasl_mechanism is not None:
            settings |= {
                "sasl_mechanism": self.sasl_mechanism,
                "sasl_plain_username": self.sasl_username,
                "sasl_plain_password": _secret(self.sasl_password),
            }
        for key in ("ssl_cafile", "ssl_certfile", "ssl_keyfile"):
            if (path := getattr(self, key)) is not None:
                settings[key] = str(path)
        if self.security_protocol.endswith("SSL"):  # without a password OpenSSL asks for one on the terminal
            settings["ssl_password"] = _secret(self.ssl_password) or ""
        return settings


class Redis(_Table):
    """``[redis]``: where the counts live; what may be shown of the URL says `worker.config.redaction.redacted`."""

    url: Annotated[
        str,
        Field(repr=False),
        _that(
            is_redis_url,
            "allowed is redis://host:port/number or rediss://host:port/number, or unix:// and a path;"
            " without options",
        ),
    ] = "redis://localhost:6379/0"
    password: SecretStr | None = None
    timeout_seconds: Seconds = 5.0

    @model_validator(mode="after")
    def _once(self) -> Self:
        if self.password is not None and urlsplit(self.url).password is not None:
            raise ValueError("a password in url and another in password; give one of them")
        return self


class Http(_Table):
    """``[http]``: where ``/metrics``, ``/healthz`` and ``/readyz`` answer; port 0 takes a free one."""

    host: Annotated[
        str,
        _that(
            lambda host: re.fullmatch(r"[\w.:-]*", host), "allowed is a name or an address, such as 0.0.0.0"
        ),
    ] = "127.0.0.1"
    port: Annotated[StrictInt, _that(lambda port: 0 <= port <= 65535, "allowed is 0 to 65535")] = 9464


class Snapshots(_Table):
    """``[snapshots]``: the output topic, and how often a stream publishes to it."""

    topic: Topic = "ldp-snapshots"
    every_seconds: Seconds = 5.0
    level: Annotated[
        StrictFloat, _that(lambda level: 0 < level < 1, "it must be greater than 0 and less than 1")
    ] = 0.95
    fewest_new: Annotated[StrictInt, _that(lambda n: n >= 0, "allowed is 0 or a larger whole number")] = 0
    recommend_every_seconds: Annotated[
        StrictFloat,
        _that(
            lambda seconds: seconds == 0 or 1 <= seconds <= 86400,
            "allowed are 0, never, and 1 to 86400 seconds",
        ),
    ] = 60.0


class DeadLetters(_Table):
    """``[dead_letters]``: the topic that malformed records go to."""

    topic: Topic = "ldp-dead-letters"


class Query(_Table):
    """``[[streams.queries]]``: a named set of values, or the most frequent ones; answered in every snapshot.

    A set is listed in ``values``, or consists of the values whose label matches a pattern of ``where``.
    """

    name: Annotated[str, StringConstraints(min_length=1, max_length=200)]
    values: Annotated[list[str | StrictInt], Field(min_length=1)] | None = None
    where: Annotated[list[str], Field(min_length=1)] | None = None
    top: StrictInt | None = None

    @model_validator(mode="after")
    def _one(self) -> Self:
        if [self.values, self.where, self.top].count(None) != 2:
            raise ValueError("give one of values, where and top, and only one")
        return self


class StreamTable(_Table):
    """``[[streams]]``: one topic of reports, and the protocol that its clients speak."""

    name: Name
    topic: Topic
    protocol: str
    epsilon: Annotated[str | StrictInt, BeforeValidator(_exact)]
    domain_size: StrictInt | None = None
    hash: str | None = None
    g: StrictInt | None = None
    k: StrictInt | None = None
    prime: StrictInt | None = None
    dimension: StrictInt | None = None
    recount_after: (
        Annotated[StrictInt, _that(lambda n: n >= 0, "allowed is a snapshot's number, or 0")] | None
    ) = None
    labels: list[str] | None = None
    labels_file: Path | None = None
    most_reports: Number = MOST_REPORTS
    revision: Number | None = None
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
    """A stream, the topic that carries its reports, and how it is counted.

    Attributes:
        stream: what is counted.
        topic: where its reports come from.
        configured: the rule by which they are to be counted.
        recount_after: see `worker.counting.ownership.Ownership`.
    """

    stream: ldp.Stream
    topic: str
    configured: Configured = Configured()  # noqa: RUF009  # frozen
    recount_after: int | None = None


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
        worker.config.ConfigError: group: a text given; allowed are 1 to 200 of A-Z a-z 0-9 . _ -
        streams: nothing given; write [[streams]], in double brackets, above each stream
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
        """Returns the consumer group that counts a stream."""
        return f"{self.group}-{stream.name}"

    def transactional_id(self, stream: ldp.Stream) -> str:
        """Returns the id under which a stream's snapshots are published.

        Without the group: whoever publishes a stream of that name to that topic fences every other off.
        """
        return f"ldp-worker/{self.snapshots.topic}/{stream.name}"

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
        tree = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ConfigError(
            f"{shown_path(path)}: there is no such file; name one by --config or {FILE_VARIABLE}"
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{shown_path(path)}: cannot be read ({_reason(error)})") from None
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{shown_path(path)}: not valid TOML{position(error)}") from None
    return _checked(tree, path.parent, os.environ if environ is None else environ)


def parse(text: str, environ: Mapping[str, str] | None = None) -> Config:
    """Reads a configuration from TOML text; relative paths in it are relative to the working directory.

    Raises:
        ConfigError: the text is not TOML or says something that is not allowed; all faults are named at once.
    """
    try:
        tree = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"not valid TOML{position(error)}") from None
    return _checked(tree, Path(), environ or {})


def _checked(tree: dict[str, Any], folder: Path, environ: Mapping[str, str]) -> Config:
    """Returns what a file's tree and the environment say together."""
    variables = _override(tree, environ)
    try:
        return _config(tree, folder)
    except ConfigError as error:
        faults = str(error).splitlines()
    raise ConfigError("\n".join(_traced(fault, variables) for fault in faults))


def _traced(fault: str, variables: Mapping[str, str]) -> str:
    """Names the variables that a fault's key comes from beside it."""
    key, colon, rest = fault.partition(": ")
    path = re.split(r"[.[]", key)
    # the key that a variable sets, a part of it, or a table that it is in
    origins = [
        v for k, v in variables.items() if all(a == b for a, b in zip(k.split("."), path, strict=False))
    ]
    return f"{key} ({', '.join(origins)}){colon}{rest}" if origins else fault


def _config(tree: Mapping[str, Any], folder: Path) -> Config:
    try:
        file = _File.model_validate(tree)
    except ValidationError as error:
        faults = dict.fromkeys(_fault(fault) for fault in error.errors(include_url=False))
        raise ConfigError("\n".join(_shortened(list(faults)))) from None
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
    """Returns the table with its files' paths relative to the configuration's folder; they must be there, and whole."""
    paths = {}
    for key in ("ssl_cafile", "ssl_certfile", "ssl_keyfile"):
        if (path := getattr(kafka, key)) is not None:
            paths[key] = folder / path
            if not os.path.isfile(paths[key]):  # noqa: PTH113  # Path's raises on a key instead of its path
                raise ConfigError(
                    f"kafka.{key}: there is no such file; a path is needed, from {folder.absolute()} on"
                )
    found = kafka.model_copy(update=paths)
    try:
        certificates.check(
            found.ssl_cafile, found.ssl_certfile, found.ssl_keyfile, _secret(found.ssl_password)
        )
    except ValueError as error:
        raise ConfigError(str(error)) from None
    return found


def _override(tree: dict[str, Any], environ: Mapping[str, str]) -> dict[str, str]:
    """Lays the environment's values over the file's; returns which key comes from which variable."""
    variables = {}
    for variable, text in environ.items():
        if not variable.startswith(PREFIX) or variable == FILE_VARIABLE or _is_of_a_service(variable, text):
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
        variables[".".join([*tables, key])] = variable
    return variables


def _is_of_a_service(variable: str, text: str) -> bool:
    """Returns whether Kubernetes set a variable; by its value, where its name could be a misspelt key."""
    return "__" not in variable and any(map(_OF_A_SERVICE.fullmatch, (variable, f"{variable}={text}")))


_MANY = 20
"""Faults that are said, at most: a list of a thousand labels can have a thousand."""
_ALLOWED = {
    "string_type": "a string is needed, in quotes",
    "path_type": "a path is needed, in quotes",
    "int_type": "a whole number is needed",
    "float_type": "a number is needed",
    "string_or_int": "a string or a whole number is needed",
    "literal_error": "allowed is {expected}",
    "missing": "it is needed",
    "too_short": "at least one is needed",
    "string_too_short": "at least one character is needed",
    "string_too_long": "at most {max_length} characters are allowed",
    "list_type": "a list is needed, in square brackets",
    "model_type": "a table is needed",
    "value_error": "{error}",
}
"""What is allowed, by the type of pydantic's fault."""
_ARRAYS = {"streams": "stream", "queries": "query"}
"""The keys that are tables in double brackets, and what each table is."""


def _fault(fault: Any) -> str:
    """Says one fault as ``key: value given; what is allowed``; a value that may be a secret is not shown."""
    path, kind = list(fault["loc"]), fault["type"]
    if path[-1] in ("str", "int") and kind != "extra_forbidden":  # no key, but which of two types it is not
        path.pop()
        kind = "string_or_int"
    value = None if kind == "missing" else fault["input"]
    key = "".join(f"[{part}]" if isinstance(part, int) else f".{key_name(part)}" for part in path)[1:]
    if kind == "extra_forbidden":  # its value may be a secret whose key is misspelt
        return f"{key}: no such key; there are {', '.join(_model(path[:-1]).model_fields)}"
    allowed = _ALLOWED[kind].format_map(fault.get("ctx", {})) if kind in _ALLOWED else fault["msg"]
    if isinstance(value, Mapping) and kind == "value_error":  # about several keys of it
        return f"{key}: {allowed}"
    if path[-1] in _ARRAYS and kind in ("missing", "too_short", "list_type"):
        heading = ".".join(part for part in path if isinstance(part, str))
        allowed = f"write [[{heading}]], in double brackets, above each {_ARRAYS[path[-1]]}"
    elif isinstance(path[-1], str) and kind == "model_type":
        allowed += f", under [{key}]"
    return f"{key}: {said(key, value)} given; {allowed}"


def _shortened(faults: list[str]) -> list[str]:
    return faults if len(faults) <= _MANY else [*faults[:_MANY], f"... and {len(faults) - _MANY} faults more"]


def _model(path: Sequence[object]) -> type[BaseModel]:
    """Returns the table at a path."""
    model: type[BaseModel] = _File
    for part in path:
        if isinstance(part, str):
            model = next(_tables(model.model_fields[part].annotation))
    return model


def _tables(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for argument in get_args(annotation):
        yield from _tables(argument)


def _reason(error: OSError | UnicodeDecodeError) -> str:
    return str(error.strerror if isinstance(error, OSError) else error)


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
            labels = files.labels(path)
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(
                f"{key}.labels_file: {shown_path(path)} cannot be read ({_reason(error)})"
            ) from None
    size = table.domain_size if table.domain_size is not None else len(labels or ())
    if not size:
        given = "nothing" if table.domain_size is None else "0"
        raise ConfigError(
            f"{key}.domain_size: {given} given; a whole number of at least 1 is needed, or labels"
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
        stream = ldp.Stream(table.name, oracle, labels=None if labels is None else tuple(labels))
        sets = [(query.name, _values(query, stream)) for query in table.queries if query.top is None]
        top = [(query.name, query.top) for query in table.queries if query.top is not None]
        stream = replace(stream, queries=tuple(sets), top=tuple(top))
        configured = Configured(table.revision, Terms(table.most_reports, ones=True))
        return Served(stream, table.topic, configured, table.recount_after)
    except (TypeError, ValueError) as error:
        what = re.sub(r"^streams.*?: ", "", str(error))
        for text in (table.protocol, table.hash, str(table.epsilon)):
            if text is not None and not is_showable(text):
                what = what.replace(repr(text), "a text").replace(text, "a text")
        raise ConfigError(f"{key}: {what}") from None


def _values(query: Query, stream: ldp.Stream) -> tuple[int, ...]:
    """Turns a query's patterns, labels or numbers into indices of the domain."""
    if query.where is not None:
        try:
            return stream.where(*query.where)
        except ValueError as error:
            raise ValueError(f"query {query.name!r}: {error}") from None
    index = {label: i for i, label in enumerate(stream.labels or ())}
    size = stream.oracle.domain_size
    values = []
    for value in query.values or ():
        i = index.get(value, -1) if isinstance(value, str) else value
        if not 0 <= i < size:
            allowed = f"a label or a whole number from 0 to {size - 1}"
            raise ValueError(f"query {query.name!r}: {value!r} given; allowed is {allowed}")
        values.append(i)
    return tuple(values)
