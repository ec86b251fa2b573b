"""The formulas: what a stream takes of Kafka, Redis, processors and memory.

Bytes follow from the layouts, and few constants here are measured ones: `tests.bench.sizing` measures all of it anew,
on a Redis and a Kafka of the machine it runs on, and says how far each formula is off. Seconds are CPU seconds of the
machine that docs/operate/capacity.md names.
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
from ldp.snapshot.documents import BESIDE
from worker.config.windows import Cost
from worker.counting import layout
from worker.service.publishing import MOST_VALUES

RECORD_BYTES, BATCH_BYTES = 8, 61
"""What a record of the topic has of its own, beside its frame: six numbers of a byte, and a byte or two of time; and
what a record batch has."""
COMMIT, COMMIT_CHANGED, COMMIT_NAMED = 603, 235, 60
"""What a commit sends for a partition beside its blobs: the script's call and the totals; for each blob its keys; for
each cell its name and the commit that wrote it."""
CUT, CUT_NAMED = 586, 86
"""What a cut returns for a partition beside its blobs, and for each cell."""
KEYS, CELL_KEY = 970, 120
"""What Redis keeps of a partition beside its blobs, metadata and keys; and for each cell."""
SDS, OBJECT = 10, 16
"""What Redis puts around a blob in one allocation, and the object that it is."""
NUMBER, NUMBER_IN_CHUNKS = 16, 2.9
"""The length of a frequency as JSON with its comma, on average; a 0.0 is shorter. And its bytes in chunks, where few
values stand out of the noise, so that other methods have zeros; where all do, it has 4."""
VECTORS = len(METHODS) + len(BESIDE)
"""The vectors of a snapshot of all methods: each one's frequencies, and what Base has beside."""
BODY, OFFSET = 500, 13
"""What a body has beside its vectors, and for each partition."""
MESSAGE, LZ4_JSON, LZ4_CHUNKS = 100, 0.5, 0.8
"""What a message has on the topic beside its body, compressed; and how much lz4 leaves of a body where few values stand
out of the noise: the other methods' zeros go. Where all do, it leaves nearly all."""
ROW = 51
"""A row for databases, compressed with the others, as `tests.bench.rows` says."""

RECORD_SECONDS = {"seed": 0.14e-6, "index": 0.07e-6, "indices": 0.07e-6, "bits": 0.07e-6}
"""To count a record of one report, by the report's first field, but for what depends on the domain: of the records a
CPU second that `tests.bench.ingest` says."""
HASH_SECONDS, BIT_SECONDS = 0.1e-9, 0.027e-9
"""For each value of the domain: a hash that is computed and compared, a bit that is added."""
COMMIT_SECONDS, COMMIT_CELL_SECONDS = 0.3e-3, 25e-6
"""Of a worker, for a partition's commit, and for each cell of it that changed."""
COMMIT_COUNTER_SECONDS, COMMIT_BYTE_SECONDS = 1e-9, 0.7e-9
"""And for each counter of these, to look how wide it is, and each byte that is written of it."""
CUT_SECONDS = 0.26e-3
"""Of the publisher, to read a partition."""
CACHE, CUT_COUNTER_SECONDS = 32 << 20, (5e-9, 16e-9)
"""And for each counter of it: where three int64 vectors of a state fit in the processor's cache, and where not."""
SUM_SECONDS, SUM_COUNTER_SECONDS = 2e-6, 0.5e-9
"""To add up one more window: for each cell of a partition, and for each counter of it."""
SNAPSHOT_SECONDS, VALUE_SECONDS = 7.5e-3, 0.8e-6
"""For a snapshot; for each value, estimated by all methods, written, compressed and sent."""
POWER, POWER_SECONDS = 1_800, 12e-6
"""Power integrates for each value, of larger domains for so many points; and for how long for each."""
STEP_SECONDS = 4.6e-9
"""For each step of the transform that decodes a state."""
PROCESS = 235e6
"""The memory of a process with everything imported, and its kernels loaded."""
HELD, VALUE_MEMORY, TRANSFORM_MEMORY = 8, 430, 40
"""And for each counter that is read or held, each value of a snapshot, each counter of a transform."""
BACKLOG = 40e6
"""And what a worker has fetched and decoded of a backlog of small records; `kafka.memory_bytes` bounds it."""
DAY = 86_400


@dataclass(frozen=True)
class Load:
    """A stream, and how it is counted.

    Attributes:
        name: for people.
        oracle: its protocol.
        partitions: of its topic.
        cell_reports: how many reports each cell of a partition has: that of all time, then its panes.
        rate: reports a second, on average.
        batch: reports a record.
        due: what a snapshot has: all time, and the windows that are open.
        changed: cells that change between two commits: all time, or the newest pane.
        commit_every: seconds.
        publish_every: seconds.
        methods: how many are published.
        rows: for databases, of each window and of all time.
    """

    name: str
    oracle: ldp.Oracle
    partitions: int
    cell_reports: tuple[int, ...]
    rate: float = 0.0
    batch: int = 1
    due: int = 1
    changed: int = 1
    commit_every: float = 1.0
    publish_every: float = 5.0
    methods: int = len(METHODS)
    rows: int = 0

    @classmethod
    def of(
        cls,
        name: str,
        oracle: ldp.Oracle,
        rate: float,
        partitions: int,
        cost: Cost | None = None,
        pane_seconds: float = 3600,
        days: float = 365,
        batch: int = 1,
        commit_every: float = 1.0,
        publish_every: float = 5.0,
        methods: int = len(METHODS),
        rows: int = 0,
    ) -> Self:
        """A stream that was counted for days; of the panes that its windows may have, its own reports keep half."""
        panes = 0 if cost is None else cost.panes // 2
        reports = rate / partitions
        cells = (math.ceil(reports * days * DAY), *[math.ceil(reports * pane_seconds)] * panes)
        due = 1 if cost is None else 1 + cost.open
        return cls(
            name, oracle, partitions, cells, rate, batch, due, 1, commit_every, publish_every, methods, rows
        )

    @property
    def topic_bytes_a_second(self) -> float:
        """What reports take on their topic, not compressed and not replicated."""
        frame = wire.frame_bytes(self.oracle.report_bytes)
        return self.rate * (
            (RECORD_BYTES + frame) / self.batch + (1 - 1 / self.batch) * self.oracle.report_bytes
        )

    @cached_property
    def blobs(self) -> tuple[int, ...]:
        """The bytes of each cell of a partition."""
        state = self.oracle.state_size
        return tuple(layout.HEADER_BYTES + width(self.oracle, n) * state for n in self.cell_reports)

    @property
    def redis_bytes(self) -> int:
        """What all partitions keep; a commit has what it stages beside it, one partition for each worker."""
        cells = sum(allocated(blob + SDS) + OBJECT + CELL_KEY for blob in self.blobs)
        return self.partitions * (KEYS + cells)

    def commit_bytes(self, changed: int) -> int:
        """What a commit of all partitions sends to Redis, and about what it appends to its file."""
        blobs = sum(sorted(self.blobs)[-changed:])
        beside = COMMIT + COMMIT_CHANGED * changed + COMMIT_NAMED * len(self.blobs)
        return self.partitions * (blobs + beside)

    @property
    def cut_bytes(self) -> int:
        """What the publisher reads from Redis each time."""
        return self.partitions * (sum(self.blobs) + CUT + CUT_NAMED * len(self.blobs))

    @property
    def vectors(self) -> int:
        """The vectors of one snapshot."""
        return self.methods + len(BESIDE)

    @property
    def vector_bytes(self) -> float:
        """The bytes of the vectors of one snapshot, or of one window's."""
        d = self.oracle.domain_size
        return self.vectors * d * (NUMBER_IN_CHUNKS if d > INLINE else NUMBER)

    @property
    def snapshot_bytes(self) -> float:
        """The bytes of all bodies of one snapshot."""
        return self.vector_bytes + (self.methods + 1) * (BODY + OFFSET * self.partitions)

    @property
    def topic_bytes(self) -> float:
        """What a snapshot takes on its topic, and its rows on theirs, with all that is due, compressed and once."""
        d = self.oracle.domain_size
        messages = self.methods + 1 + (self.vectors * -(-d // CHUNK) if d > INLINE else 0)
        vectors = self.vector_bytes * (LZ4_CHUNKS if d > INLINE else LZ4_JSON)
        return self.due * (MESSAGE * messages + vectors + ROW * self.rows)

    @property
    def counting_cores(self) -> float:
        """CPU seconds a second that counting and committing takes."""
        return self.report_cores + self.commit_seconds(self.changed) / self.commit_every

    @property
    def report_cores(self) -> float:
        """CPU seconds a second that counting takes."""
        record = RECORD_SECONDS[next(iter(self.oracle.fields))] / self.batch
        return self.rate * (record + work_seconds(self.oracle))

    def commit_seconds(self, changed: int) -> float:
        """CPU seconds of the workers, for a commit of all partitions."""
        each = COMMIT_SECONDS + COMMIT_CELL_SECONDS * changed
        each += COMMIT_COUNTER_SECONDS * changed * self.oracle.state_size
        return self.partitions * (each + COMMIT_BYTE_SECONDS * sum(sorted(self.blobs)[-changed:]))

    @property
    def counters(self) -> int:
        """How many counters there are in all partitions and cells."""
        return self.partitions * len(self.blobs) * self.oracle.state_size

    @property
    def cut_seconds(self) -> float:
        """CPU seconds of the publisher, to read all partitions and add them up."""
        small, large = CUT_COUNTER_SECONDS
        counter = small if 3 * HELD * self.oracle.state_size <= CACHE else large
        return CUT_SECONDS * self.partitions + counter * self.counters

    @property
    def window_seconds(self) -> float:
        """To add up a window of all panes."""
        return SUM_SECONDS * self.partitions * len(self.blobs) + SUM_COUNTER_SECONDS * self.counters

    @property
    def estimate_seconds(self) -> float:
        """CPU seconds from a sum to its messages on the topic."""
        d = self.oracle.domain_size
        return VALUE_SECONDS * d + POWER_SECONDS * min(d, POWER) + STEP_SECONDS * self.steps

    @property
    def publish_seconds(self) -> float:
        """CPU seconds of the publisher, for a snapshot with all that is due."""
        windows = (self.due - 1) * (self.window_seconds + self.estimate_seconds)
        return SNAPSHOT_SECONDS + self.cut_seconds + self.estimate_seconds + windows

    @property
    def steps(self) -> float:
        """Of the transform that decodes a state, K log₂ K; 0 without one."""
        size = self.oracle.state_size
        return size * math.log2(size) if isinstance(self.oracle, PreferredMessages) else 0

    @property
    def publisher_bytes(self) -> float:
        """The most memory of a process that publishes and counts nothing: it reads all counters, as int64."""
        transform = TRANSFORM_MEMORY * self.oracle.state_size if self.steps else 0
        return PROCESS + HELD * self.counters + VALUE_MEMORY * self.oracle.domain_size + transform

    @property
    def is_large(self) -> bool:
        """Whether the publisher is a process of its own."""
        return self.due * self.oracle.domain_size > MOST_VALUES * self.publish_every

    @property
    def worker_bytes(self) -> float:
        """Of a worker that has all partitions and publishes: held, and read."""
        return self.publisher_bytes + self.is_large * PROCESS + BACKLOG + HELD * self.counters


def work_seconds(oracle: ldp.Oracle) -> float:
    """CPU seconds of a report that depend on the domain."""
    each = {"seed": HASH_SECONDS, "bits": BIT_SECONDS}.get(next(iter(oracle.fields)), 0.0)
    return each * oracle.domain_size


def chance(oracle: ldp.Oracle) -> float:
    """The most likely that a report counts in a counter, whatever its user's value is.

    Example:
        >>> round(chance(ldp.GRR("1", 3)), 4), round(chance(ldp.oracle("hadamard", "1", 1000)), 6)
        (0.5761, 0.001428)
    """
    shares = oracle.preferred if isinstance(oracle, PreferredMessages) else 1
    return float(oracle.p) / shares


def width(oracle: ldp.Oracle, reports: int) -> int:
    """Returns the bytes of a counter that so many reports need, whatever the values are, but for chance.

    Example:
        >>> [width(ldp.GRR("1", 3), reports) for reports in (100, 10_000, 10**6, 10**10)]
        [1, 2, 4, 8]
    """
    mean = reports * chance(oracle)
    most = min(reports, mean + 6 * math.sqrt(mean) + 6)
    return next((w for w in (1, 2, 4) if most < 1 << 8 * w), 8)


def allocated(size: int) -> int:
    """Returns what jemalloc takes for so many bytes: of its sizes there are four between two powers of two.

    Example:
        >>> [allocated(size) for size in (100, 129, 1000, 1025, 5000)]
        [112, 160, 1024, 1280, 5120]
    """
    step = 1 << max(4, (size - 1).bit_length() - 3)
    return -(-size // step) * step
