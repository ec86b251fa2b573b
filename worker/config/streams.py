"""Streams of a configuration."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import ldp
from ldp.arguments import as_integer
from ldp.segments import prefixes
from ldp.snapshot import part_of
from worker.config.documents import fleet_of
from worker.config.faults import ConfigError, refuse_doubles
from worker.config.redaction import said
from worker.config.schema import QueryTable, StreamTable
from worker.config.values import FOREVER
from worker.config.windows import Cost, cost, refuse_absurd, windowing_of
from worker.counting.bounds import cell_bytes, excess
from worker.counting.rules import RecordLimits, RequestedRule, Status
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
    def parts(self) -> list[str]:
        """The names of the parts that the configuration declares."""
        documents = self.fleet.documents if len(self.fleet.documents) > 1 else ()
        segments = {prefix for name in self.configured.segments for prefix in prefixes(name)}
        return [part_of(self.name, document=each.fingerprint.hex()) for each in documents] + [
            part_of(self.name, segment=each) for each in sorted(segments)
        ]

    @property
    def cost(self) -> Cost:
        """Cost of the stream's windows."""
        return cost(self.configured.limits.windowing, sum(self.cell_bytes.values()), self.retain)

    @property
    def cell_bytes(self) -> dict[str, int]:
        """Maximum bytes of each document's counts in a pane, by fingerprint."""
        return cell_bytes(self.fleet.documents, self.configured.segments)


def served_from(
    table: StreamTable, key: str, folder: Path, max_batch_bytes: int, fewest_new: int = 0
) -> Served:
    """Builds a stream from its table; raises ConfigError for the first fault."""
    fleet = fleet_of(table, key, folder)
    queries = _queries(table.queries, fleet, key)
    windowing, segments = windowing_of(table, key), _segments(table, fleet, key)
    if exceeded := excess(fleet.documents, segments, windowing):
        raise ConfigError(f"{key}: {exceeded}")
    limits = RecordLimits(
        table.most_reports, True, max_batch_bytes, windowing, fewest_new if fewest_new > 1 else 0
    )
    served = Served(
        fleet,
        table.topic,
        queries,
        RequestedRule(table.revision, limits, segments),
        table.recount_after,
        milliseconds(table.idle_timeout) / UNITS["s"],
        None if table.retain == FOREVER else milliseconds(table.retain),
        table.late_dead_letters,
        table.intake,
        table.shuffle_batch_size,
    )
    if windowing is not None:
        refuse_absurd(windowing, served.cost, key)
    return served


def _segments(table: StreamTable, fleet: ldp.Fleet, key: str) -> dict[str, Status]:
    """Returns the status of each declared segment; raises ConfigError."""
    found = dict[str, Status]()
    levels = max(
        (each.segment or "" for each in fleet.documents), key=lambda text: (bool(text), text.count(":"))
    )
    for name, listed in (("segments", table.segments), ("retired_segments", table.retired_segments)):
        if listed and not levels:
            raise ConfigError(f"{key}.{name}: given; it needs a document with the key segment")
        for i, segment in enumerate(listed):
            if segment in found:
                raise ConfigError(
                    f"{key}.{name}[{i}]: {segment!r} given more than once; list each segment once"
                )
            if segment.count(":") > levels.count(":"):
                raise ConfigError(f"{key}.{name}[{i}]: {segment!r} given; the levels of reports are {levels}")
            found[segment] = Status(table.revision or 0, name == "retired_segments")
    return found


def _queries(tables: Sequence[QueryTable], fleet: ldp.Fleet, key: str) -> tuple[ldp.query.Query, ...]:
    refuse_doubles((f"{key}.queries[{i}].name", table.name) for i, table in enumerate(tables))
    queries = []
    for i, table in enumerate(tables):
        try:
            queries.append(_query(table, fleet))
        except ValueError as error:
            (given,) = table.model_fields_set - {"name"}
            raise ConfigError(f"{key}.queries[{i}].{given}: {error}") from None
    return sum(ldp.query.of_domain(queries, fleet.size), ())


def _query(table: QueryTable, fleet: ldp.Fleet) -> ldp.query.Query:
    """Returns a query; its indices are joined indices of the fleet."""
    if table.top is not None:
        return ldp.query.TopQuery(table.name, as_integer("top", table.top, 1, fleet.size))
    if table.where is not None:
        return ldp.query.SetQuery(table.name, fleet.where(*table.where))
    index = {label: i for i, label in enumerate(fleet.labels or ())}
    several = fleet.labels is not None and len(fleet.documents) > 1
    allowed = "a label" if several else f"a label or a whole number from 0 to {fleet.size - 1}"
    values = []
    for value in table.values or ():
        i = index.get(value, -1) if isinstance(value, str) else -1 if several else value
        if not 0 <= i < fleet.size:
            raise ValueError(f"{said('streams', value)} given; allowed is {allowed}")
        values.append(i)
    return ldp.query.SetQuery(table.name, tuple(values))
