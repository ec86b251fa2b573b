"""Computes and limits the number of rows of a stream."""

from collections.abc import Sequence
from dataclasses import dataclass

from ldp.consistency import applicable
from ldp.consistency.method import one_value
from ldp.snapshot import Slots, slots
from worker.config.faults import ConfigError
from worker.config.schema import Rows
from worker.config.streams import Served

MOST_AT_ONCE_ROWS = 100_000
"""Maximum number of rows of a snapshot, which one transaction writes."""
TOP = 100
"""Number of a window's most frequent values that have rows; a query for more values adds rows."""
MOST_ROWS = 5_000_000
"""Maximum number of rows of a stream on the topic; a new publisher may have to read all of them."""


@dataclass(frozen=True)
class RowCost:
    """Maximum number of rows of a stream.

    Attributes:
        topic: rows on the topic; None if windows stay forever.
    """

    window: int
    snapshot: int
    topic: int | None


def slots_of(table: Rows, served: Served) -> Slots | None:
    """Returns which rows each window of a stream has; None without rows.

    Raises ConfigError for one value and only methods that do not apply to it.
    """
    if table.topic is None:
        return None
    d = served.fleet.size
    if not (methods := applicable(d, table.methods)):
        raise ConfigError(f"rows.methods: {one_value(table.methods)}; stream {served.name} has one value")
    return slots(methods, TOP, served.queries, d)


def row_cost(places: Slots, served: Served) -> RowCost:
    """Returns the maximum number of rows of a stream.

    Example:
        >>> import ldp
        >>> served = Served(ldp.Fleet((ldp.Stream("s", ldp.GRR(epsilon="1", domain_size=1024)),)), "reports")
        >>> row_cost(Slots(("base", "norm-sub"), {"": 100}), served)
        RowCost(window=200, snapshot=200, topic=200)
    """
    window, windows = len(places.methods) * sum(places.ranks.values()), served.cost
    if windows is None:
        return RowCost(window, window, window)
    snapshot = window * (1 + windows.at_once)
    return RowCost(
        window, snapshot, None if windows.kept is None else window * (1 + windows.open + windows.kept)
    )


def refuse_others(table: Rows, published: Sequence[str]) -> None:
    """Raises ConfigError if rows use a method that snapshots do not publish."""
    others = [method for method in table.methods if method not in published]
    if table.topic is not None and others:
        raise ConfigError(
            f"rows.methods: {', '.join(others)} given; allowed are those of snapshots.methods, {', '.join(published)}"
        )


def refuse_absurd_rows(table: Rows, served: Served, key: str) -> None:
    """Raises ConfigError for a stream with too many rows."""
    if (places := slots_of(table, served)) is None:
        return
    found = row_cost(places, served)
    less = "list fewer rows.methods, or lower the top of queries"
    if found.snapshot > MOST_AT_ONCE_ROWS:
        why = f"one snapshot could have {found.snapshot:,} rows, {found.window:,} per window"
        raise ConfigError(f"{key}: {why}, and at most {MOST_AT_ONCE_ROWS:,} are allowed; {less}")
    if found.topic is not None and found.topic > MOST_ROWS:
        why = f"{found.topic:,} rows could be on the topic of rows, {found.window:,} per window"
        raise ConfigError(
            f"{key}: {why}, and at most {MOST_ROWS:,} are allowed; {less}, or lower streams.retain"
        )
