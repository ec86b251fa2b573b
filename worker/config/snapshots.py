"""Computes and limits the size of a stream's snapshots."""

from ldp.consistency import METHODS
from ldp.query import SetQuery
from ldp.segments import prefixes
from ldp.snapshot import INLINE
from worker.config.faults import ConfigError
from worker.config.schema import Snapshots
from worker.config.streams import Served

MOST_BYTES = 8 << 30
"""Maximum bytes of a snapshot's bodies, which the publisher holds in memory."""
_BASES_MORE = 5
"""Number of additional vectors of Base: bounds of two intervals, and poisoning tolerances."""
_KEPT = 64 << 20
"""Bytes that a reader needs for a snapshot of any size."""


def most_bytes(table: Snapshots, served: Served) -> int:
    """Returns the maximum bytes of the bodies of a stream's snapshot.

    Example:
        >>> import ldp
        >>> served = Served(ldp.Fleet((ldp.Stream("s", ldp.GRR(epsilon="1", domain_size=10**6)),)), "reports")
        >>> most_bytes(Snapshots(), served)
        64000000
    """
    values = served.fleet.size
    numbers = (len(table.methods) + _BASES_MORE) * values
    if len(served.fleet.documents) > 1:  # Base of each document
        numbers += (1 + _BASES_MORE) * sum(each.oracle.domain_size for each in served.fleet.documents)
    parts = len({prefix for name in served.configured.segments for prefix in prefixes(name)})
    numbers += parts * (len(table.parts_methods) + _BASES_MORE) * values
    return (1 + served.cost.at_once) * (16 if values <= INLINE else 4) * numbers


def most_kept(served: Served) -> int:
    """Returns an upper bound of the bytes of a snapshot's messages.

    Example:
        >>> import ldp
        >>> most_kept(Served(ldp.Fleet((ldp.Stream("s", ldp.GRR(epsilon="1", domain_size=10**6)),)), "reports"))
        323108864
    """
    named = sum(len(query.values) if isinstance(query, SetQuery) else query.k for query in served.queries)
    labels = sum(len(label.encode()) + 8 for label in served.fleet.labels or ())
    numbers = (len(METHODS) + _BASES_MORE) * served.fleet.size
    return _KEPT + 16 * numbers + 2 * labels + 64 * len(METHODS) * named


def refuse_absurd_snapshots(table: Snapshots, served: Served, key: str) -> None:
    """Raises ConfigError for a stream whose snapshots are too large."""
    size = most_bytes(table, served)
    if size <= MOST_BYTES:
        return
    windows, values = 1 + served.cost.at_once, served.fleet.size
    raise ConfigError(
        f"{key}: one snapshot could have {windows:,} windows of {values:,} values and"
        f" {len(table.methods)} methods, {size:,} bytes in total, and at most {MOST_BYTES:,} bytes are allowed; list"
        " fewer snapshots.methods, set longer hops of windows, or use a smaller domain"
    )
