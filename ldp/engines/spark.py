"""Counts records on Spark's executors, and merges the states in stages.

Each task counts its records into one state per partition of the log. The executors add the states of a partition in
`LANES` parallel lanes, and then add the lanes. The driver receives one state per partition.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from ldp.engines.tally import Places, Tally
from ldp.state import State

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

    from ldp.stream import Stream

    Batches = Iterator["pa.RecordBatch"]

LANES = 16
_LOG = ("topic", "partition", "offset")
_TYPES = {
    "value": ("binary",),
    "topic": ("string",),
    "partition": ("int", "bigint"),
    "offset": ("bigint",),
    "timestamp": ("timestamp", "bigint"),
}
_STATES = "topic string, partition int, lane int, state binary"


def count(records: DataFrame, stream: Stream, *, most_reports: int | None = None) -> list[State]:
    """Counts a DataFrame's records into states, one per partition.

    Args:
        records: a DataFrame with frames in the binary column ``value``. With the columns ``topic``, ``partition`` and
            ``offset`` of Spark's source for Kafka, a state records its offset range, from the lowest offset to the
            highest. Drop these columns if the DataFrame lacks records of the range. An optional column ``timestamp``
            has the type timestamp, or bigint for milliseconds since the epoch.
        stream: the stream of the records.
        most_reports: limit of reports per record, ``streams.most_reports`` of the service; None for no limit.

    Returns:
        States in the order of topics and partitions; one state if ``topic``, ``partition`` or ``offset`` is missing.

    Raises:
        ValueError: if a column is missing or has another type. Spark's error contains a ValueError if a record has no
            offset, or if records outnumber offsets (use ``dropDuplicates(["topic", "partition", "offset"])``).
    """
    types = dict(records.dtypes)
    for name in ("value", *(name for name in _TYPES if name in types)):
        if types.get(name) not in _TYPES[name]:
            given = f"has type {types[name]}" if name in types else "is missing"
            raise ValueError(f"column {name} {given}; type {' or '.join(_TYPES[name])} is required")
    columns = [name for name in _TYPES if name in types] if types.keys() >= {*_LOG} else ["value"]
    states = records.select(*columns).mapInArrow(_counting(stream, most_reports), _STATES)
    for keys in (("topic", "partition", "lane"), ("topic", "partition")):
        states = states.repartition(*keys).mapInArrow(_adding(stream, most_reports), _STATES)
    found = Tally(stream, most_reports)
    found.merge(State.from_bytes(bytes(row.state), stream.name) for row in states.select("state").collect())
    if "offset" not in columns:
        return found.states() or [State(stream, 0, stream.oracle.zeros(), 0)]
    return sorted(found.states(), key=lambda state: [(one.topic, one.partition) for one in state.log])


def _counting(stream: Stream, most_reports: int | None) -> Callable[[Batches], Batches]:
    def counting(batches: Batches) -> Batches:
        from pyspark import TaskContext

        task, tally = TaskContext.get(), Tally(stream, most_reports)
        for batch in batches:
            if batch.num_rows:
                tally.count(*_column(batch.column("value")), _places(batch))
        yield _rows(tally.states(), 0 if task is None else task.partitionId() % LANES)

    return counting


def _adding(stream: Stream, most_reports: int | None) -> Callable[[Batches], Batches]:
    def adding(batches: Batches) -> Batches:
        tally = Tally(stream, most_reports)
        for batch in batches:
            tally.merge(State.from_bytes(state.as_py()) for state in batch.column("state"))
        yield _rows(tally.states(), 0)

    return adding


def _column(values: pa.Array) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Returns a binary column's bytes, and the starts and ends of its values."""
    import pyarrow as pa

    values = values.fill_null(b"") if values.null_count else values
    width = np.int64 if pa.types.is_large_binary(values.type) else np.int32
    _, bounds, data = values.buffers()
    at = np.frombuffer(bounds, width)[values.offset : values.offset + len(values) + 1].astype(np.int64)
    return np.frombuffer(b"" if data is None else data, np.uint8), at[:-1], at[1:]


def _places(batch: pa.RecordBatch) -> Places | None:
    """Returns a batch's log positions; None without a column ``offset``."""
    if "offset" not in batch.schema.names:
        return None
    for name in _LOG:
        if batch.column(name).null_count:
            raise ValueError(f"a record has no {name}; give each record one, or drop the column offset")
    topics = batch.column("topic").dictionary_encode()
    numbers = batch.column("partition").cast("int64").to_numpy()
    pairs, which = np.unique(topics.indices.to_numpy().astype(np.int64) << 32 | numbers, return_inverse=True)
    names = topics.dictionary.to_pylist()
    partitions = [(names[pair >> 32], pair & (1 << 32) - 1) for pair in pairs.tolist()]
    times = None
    if "timestamp" in batch.schema.names:
        column = batch.column("timestamp")
        unit = 1 if str(column.type) == "int64" else 1000  # Spark's timestamps are microseconds
        times = column.cast("int64").fill_null(-unit).to_numpy() // unit
    return Places(partitions, which, batch.column("offset").to_numpy(), times)


def _rows(states: Iterable[State], lane: int) -> pa.RecordBatch:
    import pyarrow as pa

    rows = [
        {
            "topic": state.log[0].topic if state.log else None,
            "partition": state.log[0].partition if state.log else None,
            "lane": lane,
            "state": state.to_bytes(),
        }
        for state in states
    ]
    types = {"topic": pa.string(), "partition": pa.int32(), "lane": pa.int32(), "state": pa.binary()}
    return pa.RecordBatch.from_pylist(rows, pa.schema(types))
