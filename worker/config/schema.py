"""Schema of the configuration: tables, keys, types, defaults and limits."""

import re
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    SecretStr,
    StrictBool,
    StrictFloat,
    StrictInt,
    StringConstraints,
    Tag,
    model_validator,
)

from ldp.consistency import METHODS
from worker.config import address
from worker.config.redaction import is_endpoint
from worker.config.values import (
    LABEL_TAGS,
    Broker,
    HostName,
    Lasting,
    Length,
    Name,
    Number,
    Probability,
    Retention,
    Seconds,
    TopicName,
    are_methods,
    exact,
    must,
    split,
    window,
)
from worker.counting.rules import MAX_BATCH_BYTES, MOST_REPORTS
from worker.counting.windows import ALL
from worker.login import Credentials, tokens_of

_BEAT_MS = 1_000
PARTS = 16
"""Fraction of a stream's memory for a batch: two are decoded, with columns of four times the size."""


class Table(BaseModel):
    """A table of the file: refuses unknown keys, and hides values in errors."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)


def secret(value: SecretStr | None) -> str | None:
    """Returns the text of a secret."""
    return None if value is None else value.get_secret_value()


_LOGIN = ("sasl_mechanism", "sasl_username", "sasl_password")
_ENDPOINT = "sasl_oauthbearer_token_endpoint_url"


class Kafka(Table):
    """``[kafka]``: the connection to the brokers."""

    bootstrap_servers: Annotated[list[Broker], BeforeValidator(split), Field(min_length=1)] = [
        "localhost:9092"
    ]
    security_protocol: Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"] = "PLAINTEXT"
    sasl_mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"] | None = None
    sasl_username: str | None = None
    sasl_password: SecretStr | None = None
    sasl_oauthbearer_token_endpoint_url: Annotated[
        str | None,
        must(
            lambda url: url is None or is_endpoint(url),
            "allowed is https://host:port/path, or http://, without a user or password",
        ),
    ] = None
    sasl_oauthbearer_scope: str | None = None
    ssl_cafile: Path | None = None
    ssl_certfile: Path | None = None
    ssl_keyfile: Path | None = None
    max_batch_bytes: Annotated[
        StrictInt,
        must(lambda n: 1 << 10 <= n <= 1 << 30, "allowed are 1024 (1 KiB) to 1073741824 (1 GiB) bytes"),
    ] = MAX_BATCH_BYTES
    memory_bytes: Annotated[
        StrictInt,
        must(
            lambda n: 1 << 24 <= n <= 1 << 36, "allowed are 16777216 (16 MiB) to 68719476736 (64 GiB) bytes"
        ),
    ] = 256 << 20
    session_timeout_seconds: Annotated[
        StrictFloat, must(lambda seconds: 1 <= seconds <= 1800, "allowed are 1 to 1800 seconds")
    ] = 10.0
    member: Annotated[
        str | None,
        must(
            lambda name: name is None or re.fullmatch(r"(?!\.{1,2}$)[A-Za-z0-9._-]{1,200}", name),
            "allowed are 1 to 200 of A-Z a-z 0-9 . _ - but not . or .. alone",
        ),
    ] = None

    @model_validator(mode="after")
    def _sasl(self) -> Self:
        given = {
            key
            for key in type(self).model_fields
            if key.startswith("sasl_") and getattr(self, key) is not None
        }
        if not self.security_protocol.startswith("SASL"):
            if given:
                raise ValueError(
                    f"sasl_* needs security_protocol SASL_SSL or SASL_PLAINTEXT, not {self.security_protocol}"
                )
            return self
        by_token = self.sasl_mechanism == "OAUTHBEARER"
        if not given.issuperset(_LOGIN):
            raise ValueError(
                f"security_protocol {self.security_protocol} needs sasl_mechanism, sasl_username and sasl_password"
            )
        if by_token and _ENDPOINT not in given:
            raise ValueError(f"sasl_mechanism OAUTHBEARER needs {_ENDPOINT}")
        if not by_token and (unused := sorted(key for key in given if key not in _LOGIN)):
            raise ValueError(f"{' and '.join(unused)}: of no use with sasl_mechanism {self.sasl_mechanism}")
        return self

    @model_validator(mode="after")
    def _room(self) -> Self:
        if self.memory_bytes < PARTS * self.max_batch_bytes:
            raise ValueError(
                f"memory_bytes is {self.memory_bytes}; at least {PARTS} times max_batch_bytes is needed, here"
                f" {PARTS * self.max_batch_bytes}"
            )
        return self

    def client(self) -> dict[str, Any]:
        """Returns the keyword arguments of every kafka-python client."""
        settings: dict[str, Any] = {
            "bootstrap_servers": self.bootstrap_servers,
            "security_protocol": self.security_protocol,
        }
        if self.sasl_mechanism is not None:
            settings["sasl_mechanism"] = self.sasl_mechanism
        if self.sasl_oauthbearer_token_endpoint_url is not None:
            credentials = Credentials(
                self.sasl_oauthbearer_token_endpoint_url,
                self.sasl_username or "",
                secret(self.sasl_password) or "",
                self.sasl_oauthbearer_scope,
                None if self.ssl_cafile is None else str(self.ssl_cafile),
            )
            settings["sasl_oauth_token_provider"] = tokens_of(credentials)
        elif self.sasl_username is not None:
            settings |= {
                "sasl_plain_username": self.sasl_username,
                "sasl_plain_password": secret(self.sasl_password),
            }
        for key in ("ssl_cafile", "ssl_certfile", "ssl_keyfile"):
            if (path := getattr(self, key)) is not None:
                settings[key] = str(path)
        if self.security_protocol.endswith(
            "SSL"
        ):  # otherwise OpenSSL prompts for the password of an encrypted key
            settings["ssl_password"] = ""
        return settings

    def membership(self) -> dict[str, Any]:
        """Returns the additional keyword arguments of a group's member."""
        timeout = int(1000 * self.session_timeout_seconds)
        # a member learns of a rebalance at its next heartbeat; three may be missed
        settings: dict[str, Any] = {
            "session_timeout_ms": timeout,
            "heartbeat_interval_ms": min(_BEAT_MS, timeout // 3),
        }
        return settings if self.member is None else settings | {"group_instance_id": self.member}

    def numbered(self, number: int) -> Self:
        """Returns the table of one of several processes, whose member is ``NAME-0``."""
        return self if self.member is None else self.model_copy(update={"member": f"{self.member}-{number}"})


class Redis(Table):
    """``[redis]``: the connection to Redis; `worker.config.redaction` redacts the URL."""

    url: Annotated[str, Field(repr=False), must(address.read, address.ALLOWED)] = "redis://localhost:6379/0"
    password: SecretStr | None = None
    sentinel_password: SecretStr | None = None
    ssl_cafile: Path | None = None
    ssl_certfile: Path | None = None
    ssl_keyfile: Path | None = None

    @property
    def address(self) -> address.Address:
        """The parsed URL."""
        found = address.read(self.url)
        assert found is not None
        return found

    @model_validator(mode="after")
    def _fitting(self) -> Self:
        at = self.address
        if self.password is not None and at.password is not None:
            raise ValueError("a password in url and another in password; give one of them")
        if self.sentinel_password is not None and at.kind != "sentinel":
            raise ValueError("sentinel_password needs a url of redis+sentinel:// or rediss+sentinel://")
        if not at.tls and any(
            getattr(self, key) for key in type(self).model_fields if key.startswith("ssl_")
        ):
            raise ValueError("ssl_* needs a url of rediss://, rediss+sentinel:// or rediss+cluster://")
        return self


class Http(Table):
    """``[http]``: the server of metrics, probes and the page; port 0 takes a free one."""

    host: Annotated[
        str,
        must(
            lambda host: re.fullmatch(r"[\w.:-]*", host), "allowed is a name or an address, such as 0.0.0.0"
        ),
    ] = "127.0.0.1"
    port: Annotated[StrictInt, must(lambda port: 0 <= port <= 65535, "allowed is 0 to 65535")] = 9464
    page: StrictBool = True
    names: Annotated[list[HostName], BeforeValidator(split)] = []


class Snapshots(Table):
    """``[snapshots]``: the snapshot topic and its contents."""

    topic: TopicName = "ldp-snapshots"
    every_seconds: Seconds = 5.0
    level: Annotated[
        StrictFloat, must(lambda level: 0 < level < 1, "it must be greater than 0 and less than 1")
    ] = 0.95
    methods: Annotated[
        list[str],
        must(
            lambda names: are_methods(names) and "base" in names,
            f"allowed is a list with base and any others, each once, of {', '.join(METHODS)}",
        ),
        AfterValidator(lambda names: [name for name in METHODS if name in names]),
    ] = list(METHODS)
    changed_level: Annotated[
        StrictFloat,
        must(lambda level: 0 <= level < 1, "allowed are 0, never, and what is greater and less than 1"),
    ] = 0.01
    changed_at_least: Annotated[
        StrictFloat, must(lambda least: 0 <= least < 1, "it must be at least 0 and less than 1")
    ] = 0.0
    fewest_new: Annotated[StrictInt, must(lambda n: n >= 0, "allowed is 0 or a larger whole number")] = 0


class Rows(Table):
    """``[rows]``: the optional topic of flat records for databases."""

    topic: TopicName | None = None
    methods: Annotated[
        list[str],
        must(
            are_methods,
            f"allowed is a list with one or more, each once, of {', '.join(METHODS)}",
        ),
    ] = ["base", "norm-sub"]


class DeadLetters(Table):
    """``[dead_letters]``: the topic of malformed records."""

    topic: TopicName = "ldp-dead-letters"


class QueryTable(Table):
    """``[[streams.queries]]``: a named set of values, or the most frequent values."""

    name: Annotated[str, StringConstraints(min_length=1, max_length=200)]
    values: Annotated[list[str | StrictInt], Field(min_length=1)] | None = None
    where: Annotated[list[str], Field(min_length=1)] | None = None
    top: StrictInt | None = None

    @model_validator(mode="after")
    def _one(self) -> Self:
        if [self.values, self.where, self.top].count(None) != 2:
            raise ValueError("give one of values, where and top, and only one")
        return self


class StreamTable(Table):
    """``[[streams]]``: a topic of reports and its protocol."""

    name: Name
    topic: TopicName
    protocol: str
    epsilon: Annotated[str | StrictInt | None, exact("ε")] = None
    p: Probability | None = None
    q: Probability | None = None
    f: Probability | None = None
    rates: Annotated[list[Probability], Field(min_length=1)] | None = None
    domain_size: StrictInt | None = None
    hash: str | None = None
    g: StrictInt | None = None
    k: StrictInt | None = None
    prime: StrictInt | None = None
    dimension: StrictInt | None = None
    recount_after: (
        Annotated[StrictInt, must(lambda n: n >= 0, "allowed is a snapshot's number, or 0")] | None
    ) = None
    labels: (
        Annotated[
            Annotated[list[str], Tag(LABEL_TAGS[0])] | Annotated[Path, Tag(LABEL_TAGS[1])],
            Discriminator(lambda given: LABEL_TAGS[isinstance(given, str)]),
        ]
        | None
    ) = None
    most_reports: Number = MOST_REPORTS
    revision: Number | None = None
    windows: Annotated[list[Annotated[str, AfterValidator(window)]], Field(min_length=1)] = [ALL]
    grace: Length = "0s"
    out_of_order: Length = "10s"
    idle_after: Lasting = "5m"
    retain: Retention = "7d"
    late_letters: StrictBool = False
    queries: list[QueryTable] = []


class File(Table):
    """The whole file."""

    group: Name = "ldp-worker"
    commit_every_seconds: Seconds = 1.0
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    kafka: Kafka = Kafka()
    redis: Redis = Redis()
    http: Http = Http()
    snapshots: Snapshots = Snapshots()
    rows: Rows = Rows()
    dead_letters: DeadLetters = DeadLetters()
    streams: Annotated[list[StreamTable], Field(min_length=1)]
