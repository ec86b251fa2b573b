"""Streams of a configuration."""

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ldp
from ldp import files
from ldp.arguments import as_integer
from ldp.oracles import PROTOCOLS, parameters_of
from ldp.privacy.declaration import Declaration
from worker.config.faults import ConfigError, key_in, reason, refuse_doubles
from worker.config.redaction import is_showable, said, shown_path
from worker.config.schema import QueryTable, StreamTable
from worker.config.windows import Cost, cost, refuse_absurd, retained, windowing_of
from worker.counting.rules import RecordLimits, RequestedRule
from worker.counting.windows import UNITS, milliseconds


@dataclass(frozen=True)
class Served:
    """A stream with its topic and settings.

    Attributes:
        fleet: the documents, newest first.
        idle_timeout: seconds without a later report after which a partition is idle.
        retain: milliseconds that a final window stays on the snapshot topic; None to keep it forever.
        intake: topic of the uploads; None without uploads.
        shuffle_batch_size: number of uploads in a batch of the shuffler.
    """

    fleet: ldp.Fleet
    topic: str
    queries: tuple[ldp.query.Query, ...] = ()
    configured: RequestedRule = RequestedRule()  # noqa: RUF009  # frozen
    recount_after: int | None = None
    idle_timeout: float = 300.0
    retain: int | None = None
    late_dead_letters: bool = False
    intake: str | None = None
    shuffle_batch_size: int = 1000

    @property
    def name(self) -> str:
        """The name of the stream."""
        return self.fleet.name

    @property
    def stream(self) -> ldp.Stream:
        """The newest document, which new clients hold."""
        return self.fleet.documents[0]

    @property
    def cost(self) -> Cost | None:
        """Cost of the stream's windows; None without windows."""
        windowing = self.configured.limits.windowing
        return None if windowing is None else cost(windowing, self.stream.oracle.state_size, self.retain)


def served_from(
    table: StreamTable, key: str, folder: Path, max_batch_bytes: int, fewest_new: int = 0
) -> Served:
    """Builds a stream from its table; raises ConfigError for the first fault."""
    labels, declared = _labels(table, key, folder), _declared(table, key)
    size = table.domain_size if table.domain_size is not None else len(labels or ())
    if not size:
        given = "nothing" if table.domain_size is None else "0"
        raise ConfigError(
            f"{key}.domain_size: {given} given; a whole number of at least 1 is needed, or labels"
        )
    parameters = _parameters(table, key)
    try:
        oracle = ldp.oracle(table.protocol, table.epsilon, size, **parameters)
    except (TypeError, ValueError) as error:
        what = _redacted(error, (table.protocol, table.epsilon, *parameters.values()))
        raise ConfigError(f"{key}.{key_in(what, table.model_fields_set, 'protocol')}: {what}") from None
    try:
        stream = ldp.Stream(table.name, oracle, None if labels is None else tuple(labels), declared)
    except ValueError as error:
        raise ConfigError(f"{key}.labels: {str(error).removeprefix(f'stream {table.name}: ')}") from None
    queries = _queries(table.queries, stream, key)
    windowing, retain = windowing_of(table, key), retained(table)
    limits = RecordLimits(
        table.most_reports, True, max_batch_bytes, windowing, fewest_new if fewest_new > 1 else 0
    )
    served = Served(
        ldp.Fleet((stream,)),
        table.topic,
        queries,
        RequestedRule(table.revision, limits),
        table.recount_after,
        milliseconds(table.idle_timeout) / UNITS["s"],
        retain,
        table.late_dead_letters,
        table.intake,
        table.shuffle_batch_size,
    )
    if windowing is not None and served.cost is not None:
        refuse_absurd(windowing, served.cost, key)
    return served


def _parameters(table: StreamTable, key: str) -> dict[str, Any]:
    known = table.protocol in PROTOCOLS
    every = sorted({name for protocol in PROTOCOLS for name in parameters_of(protocol)})
    parameters = {name: value for name in every if (value := getattr(table, name)) is not None}
    takes = parameters_of(table.protocol) if known else every
    for name, value in parameters.items():
        if name not in takes:
            allowed = f"{table.protocol} takes {' and '.join(takes) or 'no parameters of its own'}"
            raise ConfigError(f"{key}.{name}: {value!r} given; {allowed}")
    if known and "epsilon" in PROTOCOLS[table.protocol][0].exact and table.epsilon is None:
        raise ConfigError(f"{key}.epsilon: no value given; {table.protocol} needs one")
    return parameters


def _declared(table: StreamTable, key: str) -> Declaration | None:
    try:
        return None if table.privacy is None else Declaration.from_document(table.privacy)
    except (TypeError, ValueError) as error:
        texts = itertools.chain(*(table.privacy or {}).items())
        raise ConfigError(f"{key}.privacy: {_redacted(error, texts)}") from None


def _redacted(error: Exception, given: Iterable[object]) -> str:
    """Returns an error's text without given texts that can be secrets."""
    what = str(error)
    for text in map(str, given):
        if not is_showable(text):
            what = what.replace(repr(text), "a text").replace(text, "a text")
    return what


def _labels(table: StreamTable, key: str, folder: Path) -> list[str] | None:
    if not isinstance(table.labels, Path):
        return table.labels
    path = folder / table.labels
    try:
        return files.labels(path)
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{key}.labels: {shown_path(path)} cannot be read ({reason(error)})") from None


def _queries(tables: Sequence[QueryTable], stream: ldp.Stream, key: str) -> tuple[ldp.query.Query, ...]:
    refuse_doubles((f"{key}.queries[{i}].name", table.name) for i, table in enumerate(tables))
    queries = []
    for i, table in enumerate(tables):
        try:
            queries.append(_query(table, stream))
        except ValueError as error:
            (given,) = table.model_fields_set - {"name"}
            raise ConfigError(f"{key}.queries[{i}].{given}: {error}") from None
    return sum(ldp.query.of_domain(queries, stream.oracle.domain_size), ())


def _query(table: QueryTable, stream: ldp.Stream) -> ldp.query.Query:
    size = stream.oracle.domain_size
    if table.top is not None:
        return ldp.query.TopQuery(table.name, as_integer("top", table.top, 1, size))
    if table.where is not None:
        return ldp.query.SetQuery(table.name, stream.where(*table.where))
    index = {label: i for i, label in enumerate(stream.labels or ())}
    values = []
    for value in table.values or ():
        i = index.get(value, -1) if isinstance(value, str) else value
        if not 0 <= i < size:
            raise ValueError(
                f"{said('streams', value)} given; allowed is a label or a whole number from 0 to {size - 1}"
            )
        values.append(i)
    return ldp.query.SetQuery(table.name, tuple(values))
