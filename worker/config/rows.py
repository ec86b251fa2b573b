"""Computes and limits the number of rows of a stream."""

from collections.abc import Sequence

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
    window, cost = places.size, served.cost
    snapshot, topic = window * (1 + cost.at_once), window * (1 + cost.open + (cost.kept or 0))
    less = "list fewer rows.methods, or lower the top of queries"
    if snapshot > MOST_AT_ONCE_ROWS:
        why = f"one snapshot could have {snapshot:,} rows, {window:,} per window"
        raise ConfigError(f"{key}: {why}, and at most {MOST_AT_ONCE_ROWS:,} are allowed; {less}")
    if topic > MOST_ROWS:
        why = f"{topic:,} rows could be on the topic of rows, {window:,} per window"
        raise ConfigError(
            f"{key}: {why}, and at most {MOST_ROWS:,} are allowed; {less}, or lower streams.retain"
        )
