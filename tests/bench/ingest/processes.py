"""Two processes on two cores compared with one on one core, for a CPU-bound case: OLH over 65,536 values.

``ours`` and ``peer`` are stored records per second of wall time, from when each process has a partition until the
first partition is done; later records do not count.
"""

import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import redis

from deploy.local.services import Services
from tests.bench.ingest import pool as pools
from tests.bench.ingest.cases import LARGE, OLH, Case
from tests.bench.ingest.filled import Topic, filled
from tests.bench.ingest.ours import Run, wait
from tests.bench.ingest.usage import Cores

CASE = Case("processes", OLH | LARGE, records=6_000_000, partitions=2)


def lines(services: Services, store: "redis.Redis", cores: Cores, records: int) -> Iterator[dict[str, Any]]:
    """The line of both."""
    pool = pools.make(CASE)
    turns = pool.turns(-(-records // CASE.partitions))
    with (
        filled(services.kafka.address, services.folder / "kafka", pool, CASE.partitions, turns) as topic,
        tempfile.TemporaryDirectory() as folder,
    ):
        both = Cores(cores.measured | cores.others, cores.others)
        ours, wrong = _rate(Run(CASE, topic, services, store, Path(folder), both), topic, 2)
        peer, wrong_alone = _rate(Run(CASE, topic, services, store, Path(folder), cores), topic, 1)
        yield {
            "bench": "ingest processes",
            "ours": round(ours),
            "peer": round(peer),
            "peer_name": "one process on one core",
            "unit": "records/s",
            "ratio": round(ours / peer, 3),
            "setup": f"{pool.stream.oracle!r}, {topic.records} records, 2 partitions, Kafka on the same cores",
            "wrong": wrong + wrong_alone,
        }


def _rate(run: Run, topic: Topic, processes: int) -> tuple[float, int]:
    """Counting speed of a worker of this many processes, and its number of wrong counts, which is 0; otherwise
    raises."""
    worker = run.start(*(["--processes", str(processes)] if processes > 1 else []))

    def spread() -> bool:
        owned = [sample for sample in worker.samples("partition_owned") if sample.value == 1]
        each = {sample.labels.get("process") for sample in owned}
        return len(owned) == topic.partitions and len(each) == processes

    try:
        wait(lambda: bool(worker.port()), worker, "the port")
        wait(spread, worker, "a partition for each process")
        began, before = _moved(run, [0] * topic.partitions)
        while max(run.offsets()) < topic.end:
            ended, after = _moved(run, run.offsets())
        rate = (sum(after) - sum(before)) / (ended - began)
        wait(lambda: min(run.offsets()) == topic.end, worker, "the last count")
        return rate, run.wrong()
    finally:
        worker.process.terminate()
        worker.process.wait(30)


def _moved(run: Run, before: list[int]) -> tuple[float, list[int]]:
    """When something was stored next, and how far that is."""
    while (offsets := run.offsets()) == before:
        time.sleep(0.01)
    return time.monotonic(), offsets
