"""Ingest benchmark: fills, counts, recounts, recovers and reads the topic of each case.

Each line compares a case with one peer. ``ours`` and ``peer`` are records per CPU second: for the worker from the
claim to the last stored count, for the peer from its first read to its end (see `usage`). They exclude the CPU
seconds of the broker and Redis, which run on other cores. Further columns:

- ``seconds``: from the claim to the last count;
- ``recovery_seconds``: from SIGKILL, after a third of the records, to the first snapshot of the restarted worker,
  including 10 s in which the group waits for the killed one;
- ``state_bytes_per_second``: bytes that Redis appended to its file from the claim to the last count;
- ``wrong``: counts that differ from the sent reports; always 0, else there is no rate;
- ``audit``: the verdict of `ldp-worker audit`, if it ran;
- ``peak_bytes``, ``peer_peak_bytes``: the largest resident sets;
- ``peer_seconds``, ``peer_records``: time and records of the peer; slow peers get fewer records.
"""

import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import redis

from deploy.local.services import Services, kafka_version
from tests.bench.ingest import pool as pools
from tests.bench.ingest import processes
from tests.bench.ingest.beside import PEERS, FailedError
from tests.bench.ingest.cases import CASES, Case
from tests.bench.ingest.filled import Topic, filled
from tests.bench.ingest.ours import Run, WrongError
from tests.bench.ingest.usage import Cores, on

SHORT = ("grr", "batches-of-10")
SHORT_RECORDS = 10_000_000

Line = dict[str, Any]


def lines(names: Sequence[str] = SHORT, records: int | None = SHORT_RECORDS) -> Iterator[Line]:
    """Runs cases, each with at most a number of records; None for the case's number."""
    if not Path("/proc/self/task").is_dir():
        yield from ({"bench": f"ingest {name}", "skipped": "it needs Linux's /proc"} for name in names)
        return
    cores = Cores.here()
    with on(cores.others), Services.start(_say) as services:
        store = redis.Redis.from_url(services.redis.address)
        store.config_set("auto-aof-rewrite-percentage", 0)  # so that its file only grows
        for case in CASES:
            if case.name in names:
                short = replace(case, records=min(case.records, records or case.records))
                yield from measured(short, services, store, cores)
        if processes.CASE.name in names:
            most = processes.CASE.records
            yield from processes.lines(services, store, cores, min(most, records or most))


def measured(case: Case, services: Services, store: "redis.Redis", cores: Cores) -> Iterator[Line]:
    """The lines of a case."""
    pool = pools.make(case)
    turns = pool.turns(-(-case.records // case.partitions))
    kafka = services.kafka.address
    with (
        filled(kafka, services.folder / "kafka", pool, case.partitions, turns) as topic,
        tempfile.TemporaryDirectory() as folder,
    ):
        line: Line = {"bench": f"ingest {case.name}"}
        _say(f"{line['bench']}: {topic.records} records")
        try:
            counted = Run(case, topic, services, store, Path(folder), cores).count()
            recovered = Run(case, topic, services, store, Path(folder), cores).recover()
        except WrongError as error:
            yield line | {"skipped": f"ours failed: {error}"}
            return
        ours = topic.records / counted.cpu_seconds
        line |= {"ours": _rounded(ours)}
        columns = {
            "setup": setup(case, topic, shared=cores.measured == cores.others),
            "seconds": _rounded(counted.seconds),
            "recovery_seconds": _rounded(recovered),
            "state_bytes_per_second": round(counted.state_bytes / counted.seconds),
            "wrong": counted.wrong,
            "peak_bytes": counted.peak_bytes,
        }
        if counted.audit is not None:
            columns["audit"] = counted.audit
        for name in case.peers:
            _say(f"{line['bench']}: {name}")
            yield line | beside(name, ours, topic, cores) | columns


def beside(name: str, ours: float, topic: Topic, cores: Cores) -> Line:
    """Fields of a line about a peer."""
    peer = PEERS[name]
    try:
        theirs = peer.measure(topic, cores)
        if theirs.wrong:
            raise FailedError(f"{theirs.wrong} of its counts are wrong")
    except FailedError as error:
        return {"peer_name": peer.title, "skipped": str(error)}
    rate = theirs.records / max(theirs.cpu_seconds, 0.01)  # the resolution is a hundredth
    return {
        "peer": _rounded(rate),
        "peer_name": peer.title,
        "unit": "records/CPU-s",
        "ratio": _rounded(ours / rate),
        "peer_seconds": _rounded(theirs.seconds),
        "peer_records": theirs.records,
        "peer_peak_bytes": theirs.peak_bytes,
    }


def setup(case: Case, topic: Topic, *, shared: bool) -> str:
    """The sizes and parameters."""
    batch = topic.pool.batches[0]
    codec = case.codec if batch[22] & 7 else "no codec"
    return (
        f"{topic.pool.stream.oracle!r}, {case.reports} {'JSON' if case.as_json else 'binary'} a record, "
        f"{case.batch} records a batch of {len(batch)} bytes ({codec}), {topic.records} records in "
        f"{topic.partitions} partition(s), Kafka {kafka_version()} on {'the same core' if shared else 'another core'}"
    )


def _rounded(number: float) -> float:
    return float(f"{number:.4g}")


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
