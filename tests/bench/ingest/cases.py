"""Cases: the records, their batches, and the peers."""

from dataclasses import dataclass, field
from typing import Any

NATURAL = 7_000
"""Records of one report in a batch, about what a producer under load makes of them in 64 KiB compressed."""

READERS = ("confluent", "confluent-awake", "bare")
"""Peers that count nothing; they read whatever there is."""
COUNTERS = ("kafka-python", "quix", "kafka-streams", "flink")
"""The client that the worker is built on, and stream processors with a state; these count GRR's reports."""


@dataclass(frozen=True)
class Case:
    """A topic to fill and to count."""

    name: str
    stream: dict[str, Any] = field(hash=False)
    records: int = 30_000_000  # rounded up to whole turns of the pool
    batch: int = NATURAL  # records in a batch
    codec: str = "lz4"
    reports: int = 1  # in a record
    as_json: bool = False
    partitions: int = 1  # share the records
    peers: tuple[str, ...] = READERS
    audited: bool = False  # `ldp-worker audit` recounts it too


GRR = {"protocol": "grr", "epsilon": "1", "domain_size": 1024}
PGR = {"protocol": "pgr", "epsilon": "1", "domain_size": 1024}
OLH = {"protocol": "olh", "epsilon": "1", "domain_size": 1024}
LARGE = {"domain_size": 65_536}

CASES = (
    Case("grr", GRR, peers=READERS + COUNTERS),
    Case("pgr", PGR),
    Case("olh", OLH),
    Case("pgr-65536", PGR | LARGE),
    Case("olh-65536", OLH | LARGE, records=500_000),
    Case("json", GRR, as_json=True, records=10_000_000),
    Case("frames-of-100", PGR, batch=500, reports=100, records=3_000_000),
    Case("batches-of-100", PGR, batch=100, records=10_000_000),
    Case("batches-of-10", PGR, batch=10, records=6_000_000),
    Case("batches-of-1", PGR, batch=1, codec="none", records=3_000_000, audited=True),
    Case("zstd", PGR, codec="zstd"),
    Case("gzip", PGR, codec="gzip"),
    Case("snappy", PGR, codec="snappy"),
    Case("none", PGR, codec="none"),
    Case("two-partitions", PGR, partitions=2),
)
