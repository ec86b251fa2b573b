"""Formulas for a stream's use of Kafka, Redis, CPU and memory.

Byte counts follow from the storage layouts; other constants are measured. `tests.bench.sizing` measures all of them
against a local Redis and Kafka, and prints each formula's error. Seconds are CPU seconds of the machine in
docs/operate/capacity.md.
"""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Self

import ldp
from ldp import wire
from ldp.consistency import METHODS
from ldp.oracles.preferred import PreferredMessages
from ldp.snapshot import CHUNK, INLINE
from ldp.snapshot.documents import BASE_ONLY
from worker.config.windows import Cost, cost
from worker.counting import layout
from worker.service.publishing import MOST_VALUES

RECORD_BYTES = 8
"""Bytes of a record without its frame: six 1-byte numbers, a time of 1 or 2 bytes."""
PARTITION, CELL = 1_000, 150
"""Approximate bytes of names and metadata for each partition and cell: in Redis memory, in a commit and in a cut."""
SEGMENT = 17
"""Bytes of a segment in a blob, with a name of 7 characters."""
ALLOCATED = 1.25
"""Largest ratio of the memory that Redis allocates for a blob to the blob's size: sizes are rounded up in quarters."""
NUMBER, NUMBER_IN_CHUNKS = 5.6, 1.4
"""Mean bytes of a frequency with gzip: in JSON, and in chunks. They hold for noise with few frequent values, because
methods other than Base then have zeros. With lz4, multiply them by 1.4."""
MESSAGE = 100
"""Bytes of a compressed message without its vectors."""
ROW = 39
"""Bytes of a compressed row for databases; `tests.bench.rows` measures them."""

RECORD_SECONDS = {"seed": 0.14e-6, "index": 0.07e-6, "indices": 0.07e-6, "bits": 0.07e-6}
"""Seconds to count a record of one report, by the report's first field, without the part that depends on the domain.
`tests.bench.ingest` measures them."""
HASH_SECONDS, BIT_SECONDS = 0.1e-9, 0.027e-9
"""Seconds for each value of the domain: to compute and compare a hash, or to add a bit."""
COMMIT_SECONDS, COMMIT_COUNTER_SECONDS = 0.3e-3, 2.4e-9
"""Seconds of the worker for a partition's commit, and for each counter of the changed cell."""
CUT_SECONDS = 0.26e-3
"""Seconds of the publisher to read a partition."""
CACHE, CUT_COUNTER_SECONDS = 32 << 20, (5e-9, 16e-9)
"""Bytes of the CPU's cache; seconds to read a counter if three int64 vectors of a state fit in the cache, or not."""
SUM_SECONDS, SUM_COUNTER_SECONDS = 2e-6, 0.5e-9
"""Seconds to sum one more window: for each cell of a partition, and for each counter."""
SNAPSHOT_SECONDS, VALUE_SECONDS = 7.5e-3, 0.8e-6
"""Seconds for a snapshot, and for each of its values: to estimate by all methods, encode, compress and send."""
POWER, POWER_SECONDS = 1_800, 12e-6
"""Maximum number of points at which Power integrates (smaller domains: one per value), and seconds for each point."""
STEP_SECONDS = 4.6e-9
"""Seconds for each step of the transform that decodes a state."""
PROCESS = 235e6
"""Bytes of memory of a process with all imports and kernels loaded."""
HELD, VALUE_MEMORY, TRANSFORM_MEMORY = 8, 430, 40
"""Bytes of memory for each counter that is read or held, each value of a snapshot, and each counter of a transform."""
BACKLOG = 40e6
"""Bytes of memory of fetched and decoded small records in a backlog; `kafka.memory_bytes` is their limit."""
DAY = 86_400
NO_WINDOWS = cost(None, 0, None)


@dataclass(frozen=True)
class Load:
    """A stream with its rates and periods.

    Attributes:
        name: name in the table.
        oracle: protocol of the stream.
        partitions: number of the topic's partitions.
        cell_reports: reports in each cell of a partition: all time first, then the panes.
        rate: mean number of reports per second.
        due: number of results per snapshot: all time, and the open windows.
        commit_every: seconds between commits.
        publish_every: seconds between snapshots.
        methods: number of published methods.
        rows: database rows of each window, and of all time.
        segments: number of segments with reports in each cell, with rests; 1 for a document without segments.
        parts: (segments and prefixes that are published for all time, methods of each, new reports that a publication
            of one needs).
    """

    name: str
    oracle: ldp.Oracle
    partitions: int
    cell_reports: tuple[int, ...]
    rate: float = 0.0
    due: int = 1
    commit_every: float = 1.0
    publish_every: float = 5.0
    methods: int = len(METHODS)
    rows: int = 0
    segments: int = 1
    parts: tuple[int, int, int] = (0, 0, 1)

    @classmethod
    def of(
        cls,
        name: str,
        oracle: ldp.Oracle,
        rate: float,
        partitions: int,
        windows: Cost = NO_WINDOWS,
        pane_seconds: float = 3600,
        commit_every: float = 1.0,
        publish_every: float = 5.0,
        methods: int = len(METHODS),
        rows: int = 0,
        segments: int = 1,
        parts: tuple[int, int, int] = (0, 0, 1),
    ) -> Self:
        """Returns a stream after a year, with half of its maximum panes."""
        panes = windows.panes // 2
        reports = rate / partitions
        cells = (math.ceil(reports * 365 * DAY), *[math.ceil(reports * pane_seconds)] * panes)
        due, periods = 1 + windows.open, (commit_every, publish_every)
        return cls(name, oracle, partitions, cells, rate, due, *periods, methods, rows, segments, parts)

    @property
    def topic_bytes_a_second(self) -> float:
        """Uncompressed bytes of reports per second, on one replica of the topic."""
        return self.rate * (RECORD_BYTES + wire.frame_bytes(self.oracle.report_bytes))

    @cached_property
    def blobs(self) -> tuple[int, ...]:
        """Bytes of each cell of a partition."""
        reports = [math.ceil(n / self.segments) for n in self.cell_reports]
        more = SEGMENT * (self.segments - 1)
        return tuple(layout.HEADER_BYTES + more + width(self.oracle, n) * self.cell_counters for n in reports)

    @property
    def cell_counters(self) -> int:
        """Number of counters in a cell."""
        return self.segments * self.oracle.state_size

    @property
    def _overhead(self) -> int:
        return self.partitions * (PARTITION + CELL * len(self.blobs))

    @property
    def redis_bytes(self) -> float:
        """Redis memory of all partitions, without staged commits."""
        return ALLOCATED * self.partitions * sum(self.blobs) + self._overhead

    @property
    def commit_bytes(self) -> int:
        """Bytes of a commit of all partitions; one cell of each changes."""
        return self.partitions * max(self.blobs) + self._overhead

    @property
    def cut_bytes(self) -> int:
        """Bytes that the publisher reads from Redis for a snapshot."""
        return self.partitions * sum(self.blobs) + self._overhead

    @property
    def topic_bytes(self) -> float:
        """Compressed bytes of a snapshot with windows and rows, per replica."""
        whole = self._messages_bytes(self.methods) + ROW * self.rows
        return self.due * whole + self.parts_due * self._messages_bytes(self.parts[1])

    def _messages_bytes(self, methods: int) -> float:
        """Returns the bytes of the messages of all time, of a window or of a part."""
        d, vectors = self.oracle.domain_size, methods + len(BASE_ONLY)
        messages = methods + 1 + (vectors * -(-d // CHUNK) if d > INLINE else 0)
        return MESSAGE * messages + vectors * d * (NUMBER_IN_CHUNKS if d > INLINE else NUMBER)

    @property
    def parts_due(self) -> float:
        """Number of parts in a mean snapshot, if all have the same rate."""
        parts, _, fewest = self.parts
        return parts * min(1.0, self.rate * self.publish_every / self.segments / fewest)

    @property
    def counting_cores(self) -> float:
        """CPU seconds per second for counting and commits."""
        record = RECORD_SECONDS[next(iter(self.oracle.fields))] + work_seconds(self.oracle)
        return self.rate * record + self.commit_seconds / self.commit_every

    @property
    def commit_seconds(self) -> float:
        """CPU seconds of all workers for a commit of all partitions."""
        return self.partitions * (COMMIT_SECONDS + COMMIT_COUNTER_SECONDS * self.cell_counters)

    @property
    def counters(self) -> int:
        """Number of counters in all partitions and cells."""
        return self.partitions * len(self.blobs) * self.cell_counters

    @property
    def cut_seconds(self) -> float:
        """CPU seconds of the publisher to read and sum all partitions."""
        small, large = CUT_COUNTER_SECONDS
        counter = small if 3 * HELD * self.oracle.state_size <= CACHE else large
        return CUT_SECONDS * self.partitions + counter * self.counters

    @property
    def window_seconds(self) -> float:
        """CPU seconds to sum a window that contains all panes."""
        return SUM_SECONDS * self.partitions * len(self.blobs) + SUM_COUNTER_SECONDS * self.counters

    @property
    def estimate_seconds(self) -> float:
        """CPU seconds to estimate a sum and publish the result."""
        d = self.oracle.domain_size
        return VALUE_SECONDS * d + POWER_SECONDS * min(d, POWER) + STEP_SECONDS * self.steps

    @property
    def publish_seconds(self) -> float:
        """CPU seconds of the publisher for a snapshot with its open windows."""
        windows = (self.due - 1) * (self.window_seconds + self.estimate_seconds)
        own = (1 + self.parts_due) * self.estimate_seconds
        return SNAPSHOT_SECONDS + self.cut_seconds + own + windows

    @property
    def steps(self) -> float:
        """Steps of the transform that decodes K counters: K log₂ K, or 0."""
        size = self.oracle.state_size
        return size * math.log2(size) if isinstance(self.oracle, PreferredMessages) else 0

    @property
    def publisher_bytes(self) -> float:
        """Maximum memory of a publisher process, which reads counters as int64."""
        transform = TRANSFORM_MEMORY * self.oracle.state_size if self.steps else 0
        return PROCESS + HELD * self.counters + VALUE_MEMORY * self.oracle.domain_size + transform

    @property
    def is_large(self) -> bool:
        """Whether the worker publishes from a separate process."""
        return self.due * self.oracle.domain_size > MOST_VALUES * self.publish_every

    @property
    def worker_bytes(self) -> float:
        """Memory of a worker that owns all partitions and publishes."""
        return self.publisher_bytes + self.is_large * PROCESS + BACKLOG + HELD * self.counters


def work_seconds(oracle: ldp.Oracle) -> float:
    """Returns the part of a report's CPU seconds that grows with the domain."""
    each = {"seed": HASH_SECONDS, "bits": BIT_SECONDS}.get(next(iter(oracle.fields)), 0.0)
    return each * oracle.domain_size


def chance(oracle: ldp.Oracle) -> float:
    """Returns the highest probability that a report raises a given counter.

    Example:
        >>> round(chance(ldp.GRR("1", 3)), 4), round(chance(ldp.oracle("hadamard", "1", 1000)), 6)
        (0.5761, 0.001428)
    """
    shares = oracle.preferred if isinstance(oracle, PreferredMessages) else 1
    return float(oracle.p) / shares


def width(oracle: ldp.Oracle, reports: int) -> int:
    """Returns a counter's bytes for the mean plus 6 standard deviations.

    Example:
        >>> [width(ldp.GRR("1", 3), reports) for reports in (100, 10_000, 10**6, 10**10)]
        [1, 2, 4, 8]
    """
    mean = reports * chance(oracle)
    most = min(reports, mean + 6 * math.sqrt(mean) + 6)
    return next((w for w in (1, 2, 4) if most < 1 << 8 * w), 8)
