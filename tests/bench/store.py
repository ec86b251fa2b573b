"""One partition's commit to a real Redis: staged and promoted against increments in a transaction."""

import sys
from collections.abc import Iterator
from uuid import uuid4

import numpy as np
import redis

import ldp
from deploy.local.services import Services
from tests.bench.measure import Line, compare
from tests.stores import Singly
from worker.counting import layout
from worker.counting.lineage import lineage_of
from worker.counting.partition_state import Counts, PartitionState
from worker.counting.ports import Answer
from worker.counting.windows import ALL

REPORTS = 10_000
"""Reports a flush, about what a worker counts between two commits."""


def lines() -> Iterator[Line]:
    """Seconds a flush, by the size of the domain and by how soon Redis writes its log to disk."""
    with Services.start(lambda text: print(text, file=sys.stderr, flush=True)) as services:
        services.kafka.kill()  # only Redis is measured
        client = redis.Redis.from_url(services.redis.address)
        for sync in ("always", "everysec"):
            client.config_set("appendfsync", sync)
            for d in (1_024, 65_536):
                client.flushall()
                yield line(client, d, sync)


def line(client: "redis.Redis", d: int, sync: str) -> Line:
    """One comparison: both flush the same counts, and both keep the offset with them."""
    stream = ldp.Stream("bench", ldp.OLH("1", domain_size=d))
    delta = np.random.default_rng(5).binomial(REPORTS, float(stream.oracle.q), size=d).astype(np.int64)
    state = PartitionState.fresh(stream, 0)
    store = Singly(client, stream.name)
    claimed = store.claim(0, None, layout.initial(lineage_of("bench", stream, "topic"), state))
    assert claimed is not None
    stored = claimed.metadata

    def ours() -> None:
        nonlocal stored
        window = state.cells[ALL]
        window.state += delta
        window.reports += REPORTS
        state.offset += REPORTS
        state.changed.add(ALL)
        after, blobs = layout.dump(state, stored, uuid4().hex)
        state.changed.clear()
        attempt = uuid4().hex
        store.stage(0, attempt, blobs)
        verdict = store.promote(0, attempt, stored, after)
        assert verdict is Answer.DONE, verdict
        stored = after

    def peer() -> None:
        pipeline = client.pipeline(transaction=True)
        for value, count in enumerate(delta.tolist()):
            pipeline.hincrby("counts", str(value), count)
        pipeline.hincrby("counts", "offset", REPORTS)
        pipeline.execute()

    result = compare(
        f"commit a partition, d={d}, appendfsync {sync}",
        ours,
        peer,
        peer_name="HINCRBY for each value, in MULTI",
        setup=f"redis-py with hiredis, Redis {client.info('server')['redis_version']} on the same core, appendonly",
    )
    check(client, stream, store, delta)
    return result


def check(client: "redis.Redis", stream: ldp.Stream, store: Singly, delta: Counts) -> None:
    """Both ways have stored the counts of as many flushes as their offset says."""
    cut = store.cut(0)
    assert cut is not None
    flushed = layout.load(stream, cut.metadata, cut.blobs)
    assert np.array_equal(flushed.cells[ALL].state, delta * (flushed.offset // REPORTS))
    fields = client.hgetall("counts")
    flushes = int(fields.pop(b"offset")) // REPORTS
    assert [int(fields[str(v).encode()]) for v in range(len(delta))] == (delta * flushes).tolist()
