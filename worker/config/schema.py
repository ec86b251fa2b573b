"""Schema of the configuration: tables, keys, types, defaults and limits.

This file has all tables; that is why it is longer than others.
"""

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
from ldp.wire import LARGEST_FRAME
from worker.config import address
from worker.config.redaction import is_endpoint
from worker.config.values import (
    FOREVER,
    LABEL_TAGS,
    Broker,
    HostName,
    Methods,
    Name,
    Number,
    Port,
    Probability,
    Seconds,
    Segment,
    Share,
    TopicName,
    are_methods,
    exact,
    lasting,
    like,
    must,
    split,
    window,
    within,
)
from worker.counting.rules import MAX_BATCH_BYTES, MOST_REPORTS
from worker.counting.windows import ALL
from worker.login import Credentials, tokens_of

_BEAT_MS = 1_000
PARTS = 16
"""Minimum ratio of a stream's memory to a batch. Two batches are decoded at once, and columns take 4 times the size."""


class Table(BaseModel):
    """A table of the file; refuses unknown keys and hides values in errors."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, hide_input_in_errors=True, use_attribute_docstrings=True
    )


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
    """Addresses of the brokers."""
    security_protocol: Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"] = "PLAINTEXT"
    """Protocol of the connection to the brokers."""
    sasl_mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"] | None = None
    """Login mechanism of a `SASL` protocol."""
    sasl_username: str | None = None
    """User name of the login. For `OAUTHBEARER`, the client's id."""
    sasl_password: SecretStr | None = None
    """Password of the login. For `OAUTHBEARER`, the client's secret."""
    sasl_oauthbearer_token_endpoint_url: Annotated[
        str | None,
        must(
            lambda url: url is None or is_endpoint(url),
            "allowed is https://host:port/path, or http://, without a user or password",
        ),
    ] = None
    """For `OAUTHBEARER`: the endpoint that issues tokens for client credentials. The worker sends the secret
    to the endpoint, so the URL must use `https://` unless the endpoint is on this machine. The system's
    authorities or `kafka.ssl_cafile` must have signed the endpoint's certificate. The worker renews tokens
    before they expire."""
    sasl_oauthbearer_scope: str | None = None
    """For `OAUTHBEARER`: the scope, if the endpoint needs one."""
    ssl_cafile: Path | None = None
    """Path of the certificate of the authority that signed the brokers' certificates."""
    ssl_certfile: Path | None = None
    """Path of the client certificate."""
    ssl_keyfile: Path | None = None
    """Path of the client certificate's key, which has no password."""
    max_batch_bytes: Annotated[StrictInt, within(1 << 10, 1 << 30, " bytes")] = MAX_BATCH_BYTES
    """Largest size of a record batch after decompression. The worker rejects a larger batch as one record,
    for every producer."""
    memory_bytes: Annotated[StrictInt, within(1 << 24, 1 << 36, " bytes")] = 256 << 20
    """Bytes per stream and process that may be fetched and decompressed but not counted yet. At least 16
    times `kafka.max_batch_bytes`. A fetch is 1/64 of this value."""
    session_timeout_seconds: Annotated[StrictFloat, within(1, 1800, " seconds")] = 10.0
    """Time without a heartbeat after which other workers receive the partitions. 1 to 1800, within the
    brokers' limits (`check` asks the brokers; their default is 6 to 1800). The value bounds the pause after a
    SIGKILL."""
    member: Annotated[
        str | None,
        must(
            lambda name: name is None or re.fullmatch(r"(?!\.{1,2}$)[A-Za-z0-9._-]{1,200}", name),
            "allowed are 1 to 200 of A-Z a-z 0-9 . _ - except . and ..",
        ),
    ] = None
    """Name of this worker, different for each worker. A worker that is killed and returns within the session
    timeout continues with its partitions at once, and no partition moves. Several processes use `NAME-0`,
    `NAME-1`, …"""

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
                    f"{min(given)} needs security_protocol SASL_SSL or SASL_PLAINTEXT, not {self.security_protocol}"
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
            raise ValueError(f"{unused[0]} needs sasl_mechanism OAUTHBEARER, not {self.sasl_mechanism}")
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
        """Returns the keyword arguments for any kafka-python client."""
        settings: dict[str, Any] = {
            "bootstrap_servers": self.bootstrap_servers,
            "security_protocol": self.security_protocol,
            "sasl_mechanism": self.sasl_mechanism,
        }
        if self.sasl_oauthbearer_token_endpoint_url is not None:
            credentials = Credentials(
                self.sasl_oauthbearer_token_endpoint_url,
                self.sasl_username or "",
                secret(self.sasl_password) or "",
                self.sasl_oauthbearer_scope,
                None if self.ssl_cafile is None else str(self.ssl_cafile),
            )
            settings["sasl_oauth_token_provider"] = tokens_of(credentials)
        else:
            settings["sasl_plain_username"] = self.sasl_username
            settings["sasl_plain_password"] = secret(self.sasl_password)
        for key in ("ssl_cafile", "ssl_certfile", "ssl_keyfile"):
            settings[key] = (path := getattr(self, key)) and str(path)
        if self.security_protocol.endswith("SSL"):
            settings["ssl_password"] = ""  # otherwise OpenSSL prompts for the password of an encrypted key
        return {key: value for key, value in settings.items() if value is not None}

    def membership(self) -> dict[str, Any]:
        """Returns the additional keyword arguments for a member of a group."""
        timeout = int(1000 * self.session_timeout_seconds)
        # a heartbeat's answer announces a rebalance; a member can miss three heartbeats
        settings: dict[str, Any] = {
            "session_timeout_ms": timeout,
            "heartbeat_interval_ms": min(_BEAT_MS, timeout // 3),
        }
        return settings if self.member is None else settings | {"group_instance_id": self.member}

    def numbered(self, number: int) -> Self:
        """Returns this table for process `number`: `member` gets ``-<number>``."""
        return self if self.member is None else self.model_copy(update={"member": f"{self.member}-{number}"})


class Redis(Table):
    """``[redis]``: the connection to Redis; messages redact the URL."""

    url: Annotated[str, Field(repr=False), must(address.read, address.ALLOWED)] = "redis://localhost:6379/0"
    """URL of Redis: `redis://host:port/number`, `unix://path`,
    `redis+sentinel://host:port,host:port/master/number` or `redis+cluster://host:port,host:port`. With TLS
    `rediss://`, `rediss+sentinel://` or `rediss+cluster://`. A user name precedes the hosts:
    `redis://worker@host`."""
    password: SecretStr | None = None
    """Password of Redis. In the URL, write `@ / ? #` as `%40 %2F %3F %23`."""
    sentinel_password: SecretStr | None = None
    """Password of the Sentinels, if they require one."""
    ssl_cafile: Path | None = None
    """Path of the certificate of the private authority that signed the certificate of Redis."""
    ssl_certfile: Path | None = None
    """Path of the client certificate, if Redis requires one."""
    ssl_keyfile: Path | None = None
    """Path of the client certificate's key, which has no password."""

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
            raise ValueError("a password in url and in password given; give only one")
        if self.sentinel_password is not None and at.kind != "sentinel":
            raise ValueError("sentinel_password needs a url of redis+sentinel:// or rediss+sentinel://")
        given = [key for key in type(self).model_fields if key.startswith("ssl_") and getattr(self, key)]
        if given and not at.tls:
            raise ValueError(f"{given[0]} needs a url of rediss://, rediss+sentinel:// or rediss+cluster://")
        return self


class Http(Table):
    """``[http]``: the server of metrics, probes and the page."""

    host: Annotated[str, like(r"[\w.:-]*", "allowed is a name or an address, such as 0.0.0.0")] = "127.0.0.1"
    """Address of `/metrics`, `/healthz`, `/readyz` and the page. `0.0.0.0` accepts connections from other
    machines and is the image's value."""
    port: Port = 9464
    """Port of the address. 0 takes a free port."""
    page: StrictBool = True
    """Serve a page at `/` that shows the streams and their snapshots to every client that reaches the port.
    The worker reads snapshots for the page only on request."""
    names: Annotated[list[HostName], BeforeValidator(split)] = []
    """Host names that the page accepts, in addition to `localhost`, `http.host` and IP addresses, such as the
    public name of a reverse proxy. Requests for other names get 421. Probes and `/metrics` answer under any name."""


class Snapshots(Table):
    """``[snapshots]``: the snapshot topic and its contents."""

    topic: TopicName = "ldp-snapshots"
    """Topic of the snapshots, compacted. All messages are in partition 0."""
    every_seconds: Seconds = 5.0
    """Interval between snapshots of a stream, if something changed."""
    compression: Literal["gzip", "lz4", "snappy", "zstd", "none"] = "gzip"
    """Codec of the messages on the topics of snapshots, rows and dead letters. Every Kafka client reads `gzip`.
    Consumers of another codec may need a package. `lz4` takes a quarter of the CPU, and up to 50 % more bytes."""
    level: Annotated[
        StrictFloat, must(lambda level: 0 < level < 1, "it must be greater than 0 and less than 1")
    ] = 0.95
    """Confidence level of Base's intervals."""
    methods: Methods = list(METHODS)
    """Methods whose frequencies are published: `base`, and any of the paper's ten, for example `["base",
    "norm-sub"]`. The worker does not recommend other methods, and deletes their earlier messages from the
    topic. A stream of one value has only those of `base`, `base-pos`, `post-pos` and `base-cut`."""
    parts_fewest: Number = 1000
    """Smallest number of reports, and of new reports, with which a document or a segment is published as a part of the
    stream. It limits noise, not privacy: the whole minus its parts shows the rest."""
    parts_methods: Methods = ["base", "norm-sub"]
    """Methods of segments. A document has only `base`."""
    changed_level: Share = 0.01
    """Largest average false discovery rate of the values and sets that the worker reports as changed from one
    final window to the next. Also the probability of a false alarm if nothing changed. `0` disables it."""
    changed_at_least: Share = 0.0
    """Largest difference of a frequency that does not count as a change. With many reports, even a tiny drift
    is detected."""
    fewest_new: Annotated[StrictInt, must(lambda n: n >= 0, "allowed is 0 or a larger whole number")] = 0
    """Smallest number of new reports by which a published count changes; 0 and 1 for no limit. From 2 on, only final
    windows are published, and each difference of published counts covers at least this number of reports ([release
    rule](../explanation/snapshots.md#release-rule)). `LdpSnapshotOld` may then fire at low traffic."""


class Rows(Table):
    """``[rows]``: the optional topic of flat records for databases."""

    topic: TopicName | None = None
    """Topic of flat records for databases, for example `"ldp-rows"`. Without a name, the worker publishes no
    rows."""
    methods: Annotated[
        list[str],
        must(are_methods, f"allowed is a list with one or more, each once, of {', '.join(METHODS)}"),
    ] = ["base", "norm-sub"]
    """Methods of the rows. Each must be in `snapshots.methods`."""


class DeadLetters(Table):
    """``[dead_letters]``: the topic of malformed records."""

    topic: TopicName = "ldp-dead-letters"
    """Topic of malformed records, with the reason in the headers. If there are many, the worker produces a
    sample. With `streams.late_dead_letters`, the topic includes late records."""


class Ohttp(Table):
    """``[gateway.ohttp]``: keys of oblivious HTTP."""

    key_files: Annotated[list[Path], BeforeValidator(split)] = []
    """Paths of keys for oblivious HTTP. The gateway publishes the first key, and accepts all."""


class Gateway(Table):
    """``[gateway]``: the HTTP server that accepts uploads."""

    host: str = "0.0.0.0"  # noqa: S104  # devices connect to it
    """Address of the server for uploads."""
    port: Annotated[StrictInt, within(1, 65535)] = 8080
    """Port for uploads. Limit the rate of requests in front of it."""
    metrics_port: Port = 9465
    """Port of `/metrics`, `/healthz` and `/readyz`. 0 takes a free port."""
    most_reports: Number = 100
    """Largest number of reports in an upload."""
    max_body_bytes: Annotated[StrictInt, within(1 << 10, LARGEST_FRAME, " bytes")] = 1 << 16
    """Largest upload."""
    max_inflight_bytes: Annotated[StrictInt, within(1 << 20, 1 << 36, " bytes")] = 1 << 24
    """Bytes of the uploads that may be read or unacknowledged at once. Each upload counts as `max_body_bytes`."""
    timeout_seconds: Annotated[StrictFloat, within(1, 60, " seconds")] = 10.0
    """Deadline for a request's headers, for its body, and for the acknowledgement by Kafka."""
    allow_origins: Annotated[list[str], BeforeValidator(split)] = []
    """Origins of the web pages that may upload, such as `["https://app.example.org"]` (CORS)."""
    ssl_certfile: Path | None = None
    """Path of the server's certificate. Without it, the server uses HTTP: put a TLS proxy in front of it."""
    ssl_keyfile: Path | None = None
    """Path of the certificate's key, which has no password."""
    ohttp: Ohttp = Ohttp()

    @model_validator(mode="after")
    def _tls(self) -> Self:
        if (self.ssl_certfile is None) != (self.ssl_keyfile is None):
            raise ValueError("one of ssl_certfile and ssl_keyfile given; set both or neither")
        return self


class Shuffle(Table):
    """``[shuffle]``: moves uploads to the topics of reports."""

    deduplicate_for: Annotated[str, lasting("40m")] = "1h"
    """Time in which the shuffler drops a second upload with the same id. At least 40 minutes, because clients
    retry for 30 minutes."""


class QueryTable(Table):
    """``[[streams.queries]]``: a set of values, or the most frequent values."""

    name: Annotated[
        str,
        StringConstraints(min_length=1, max_length=200),
        must(lambda name: not re.search(r"[\x00-\x1f\x7f-\x9f]", name), "control characters are not allowed"),
    ]
    """Name of the query: 1 to 200 characters, no control characters."""
    values: Annotated[list[str | StrictInt], Field(min_length=1)] | None = None
    """Set of values: labels or indices."""
    where: Annotated[list[str], Field(min_length=1)] | None = None
    """Values whose label matches at least one pattern, such as `["*heart*", "cupid"]`. `*` matches any characters,
    `?` one character, and `[abc]` one of these. Case matters."""
    top: StrictInt | None = None
    """Number k, for the k most frequent values."""

    @model_validator(mode="after")
    def _one(self) -> Self:
        if [self.values, self.where, self.top].count(None) != 2:
            raise ValueError("give one of values, where and top, and only one")
        return self


class StreamTable(Table):
    """``[[streams]]``: a topic of reports and its protocol."""

    name: Name
    """Name of the stream: 1 to 200 of `A-Z a-z 0-9 . _ -`."""
    topic: TopicName
    """Topic of the reports. One topic per stream, one stream per topic."""
    intake: TopicName | None = None
    """Topic of the uploads, which the shuffler moves to `topic`. Without a name, the stream has no uploads."""
    shuffle_batch_size: Number = 1000
    """Number of uploads that the shuffler permutes and moves together. Uploads of an intake partition wait for a
    full batch."""
    documents: Annotated[list[Path], Field(min_length=1)] | None = None
    """Paths of the accepted documents, newest first, as `ldp-worker document` prints them; in the place of `protocol`
    and the other keys of a document."""
    retired: list[Path] = []
    """Paths of the documents that are no longer accepted. Their counts stay, and snapshots need their labels."""
    segments: list[Segment] = []
    """Segments that are counted apart, such as `["DE", "US:4.3"]`, for documents with the key `segment`."""
    retired_segments: list[Segment] = []
    """Segments that are no longer counted apart. Their counts stay."""
    protocol: str | None = None
    """Protocol of the reports: `grr`, `olh`, `oue`, `sue`, `subset`, `hadamard` or `pgr`; or, with explicit
    probabilities, `response` or `unary`. Required without `documents`."""
    epsilon: Annotated[str | StrictInt | None, exact("ε")] = None
    """Privacy parameter ε: a string or a whole number, never a float, such as `"1"`, `"0.5"` or `"1/3"`.
    Explicit channels have no ε, except `"infinite"`."""
    p: Probability | None = None
    """Probability p of `response` or `unary`, such as `"3/4"` or `"0.75"`."""
    q: Probability | None = None
    """Probability q of `unary`."""
    f: Probability | None = None
    """RAPPOR's probability f of `unary`."""
    domain_size: StrictInt | None = None
    """Number of values, d; without this key, the number of labels."""
    hash: str | None = None
    """For `olh`: the hash function; without this key, `"mul32"`."""
    g: StrictInt | None = None
    """For `olh`: the number of buckets; without this key, the best number."""
    k: StrictInt | None = None
    """For `subset`: the number of values that a report names; without this key, the best number."""
    prime: StrictInt | None = None
    """For `pgr`: the prime of the reports' geometry; set both or neither of `prime` and `dimension`."""
    dimension: StrictInt | None = None
    """For `pgr`: the dimension of the reports' geometry; set both or neither of `prime` and `dimension`."""
    recount_after: (
        Annotated[StrictInt, must(lambda n: n >= 0, "allowed is a snapshot's number, or 0")] | None
    ) = None
    """If counts were lost: the number of the newest snapshot, to let the worker continue without them. The worker
    also restores recorded gaps that the topic can fill."""
    labels: (
        Annotated[
            Annotated[list[str], Tag(LABEL_TAGS[0])] | Annotated[Path, Tag(LABEL_TAGS[1])],
            Discriminator(lambda given: LABEL_TAGS[isinstance(given, str)]),
        ]
        | None
    ) = None
    """Names of the values, without control characters; or the path of a file with one label per line."""
    privacy: dict[str, Any] | None = None
    """Limit on the reports of a unit, and their noise; part of the document."""
    segment: Segment | None = None
    """Names of the levels of the segment that each report names in the clear, such as `"country:app"`; part of the
    document."""
    most_reports: Number = MOST_REPORTS
    """Largest number of reports in a record. The worker rejects a record with more. Set 1 if devices write to
    the topic themselves, because otherwise one record can have 1,000,000 votes."""
    revision: Number | None = None
    """Number that orders two configurations; the higher number is newer."""
    windows: Annotated[list[Annotated[str, AfterValidator(window)]], Field(min_length=1)] = [ALL]
    """Windows in event time, such as `"1h"` or `"24h every 1h"`. `all` always exists."""
    grace: Annotated[str, lasting("0s")] = "0s"
    """Time that a window waits for delayed reports. With the brokers' timestamps no report is delayed. With
    the producers' timestamps, set the longest delay of a device."""
    max_out_of_orderness: Annotated[str, lasting("0s")] = "10s"
    """Largest disorder of the timestamps in a topic. With the brokers' clocks the disorder is small. With the
    producers' timestamps, use the topic's `message.timestamp.after.max.ms`."""
    idle_timeout: Annotated[str, lasting("1s")] = "5m"
    """Time without a later report after which a partition is idle. Set more than a worker takes to restart."""
    retain: Annotated[str, lasting("1s", FOREVER)] = "7d"
    """Time that messages of a final window stay on the snapshot topic, in event time after the window's end;
    or `"forever"`."""
    late_dead_letters: StrictBool = False
    """Also produce a dead letter for each late record. The worker accepts and counts late records anyway."""
    queries: list[QueryTable] = []
    """Queries whose answers each snapshot contains: tables with a `name` and `values`, `where` or `top`."""


class File(Table):
    """Top-level keys and tables of the file."""

    group: Name = "ldp-worker"
    """Prefix of the consumer groups: `<group>-<stream>`."""
    commit_every_seconds: Seconds = 1.0
    """Interval between commits to Redis. If commits take more than a tenth of the time, the worker commits
    less often, at most 10 s later."""
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """Lowest level of logged events. `debug` includes the events of the Kafka client library."""
    kafka: Kafka = Kafka()
    redis: Redis = Redis()
    http: Http = Http()
    snapshots: Snapshots = Snapshots()
    rows: Rows = Rows()
    dead_letters: DeadLetters = DeadLetters()
    gateway: Gateway = Gateway()
    shuffle: Shuffle = Shuffle()
    streams: Annotated[list[StreamTable], Field(min_length=1)]
