"""Streams of every protocol, reports of them, and what the worker makes of these."""

from itertools import pairwise

import numpy as np
import pytest

import ldp
from ldp import frames
from tests.support.cells import naming
from worker.counting.columns import Batch, Columns
from worker.counting.partition_state import PartitionState

STREAMS = {
    "grr-3": ldp.Stream("s", ldp.GRR("1", domain_size=3), labels=["rot", "grün", "blau"]),
    "grr-256": ldp.Stream("s", ldp.GRR("1", domain_size=256)),
    "grr-70000": ldp.Stream("s", ldp.GRR("1", domain_size=70_000)),
    "olh-mul32": ldp.Stream("s", ldp.OLH("1", domain_size=120)),
    "olh-xxh32": ldp.Stream("s", ldp.OLH("2", domain_size=120, hash="xxh32")),
    "olh-g300": ldp.Stream("s", ldp.OLH("1/3", domain_size=11, g=300)),
    "oue-10": ldp.Stream("s", ldp.OUE("1", domain_size=10)),
    "oue-64": ldp.Stream("s", ldp.OUE("1", domain_size=64)),
    "oue-1": ldp.Stream("s", ldp.OUE("1", domain_size=1)),
    "sue-77": ldp.Stream("s", ldp.SUE("2", domain_size=77)),
    "subset-bits": ldp.Stream("s", ldp.SubsetSelection("1", domain_size=29)),
    "subset-bits-full": ldp.Stream("s", ldp.SubsetSelection("1", domain_size=16)),
    "subset-u1": ldp.Stream("s", ldp.SubsetSelection("3", domain_size=100)),
    "subset-u2": ldp.Stream("s", ldp.SubsetSelection("5", domain_size=1000)),
    "subset-u4": ldp.Stream("s", ldp.SubsetSelection("1", domain_size=70_000, k=3)),
    "subset-tie": ldp.Stream("s", ldp.SubsetSelection("1", domain_size=20, k=3)),
    "hadamard-10": ldp.Stream("s", ldp.HadamardResponse("1", domain_size=10)),
    "hadamard-255": ldp.Stream("s", ldp.HadamardResponse("1", domain_size=255)),
    "hadamard-256": ldp.Stream("s", ldp.HadamardResponse("1", domain_size=256)),
    "pgr-10": ldp.Stream("s", ldp.PGR("1", domain_size=10)),
    "pgr-line": ldp.Stream("s", ldp.PGR("3", domain_size=10, prime=11, dimension=2)),
    "pgr-300": ldp.Stream("s", ldp.PGR("2", domain_size=300, prime=7, dimension=4)),
    "response-5": ldp.Stream("s", ldp.Response("1/3", domain_size=5)),
    "unary-12": ldp.Stream("s", ldp.Unary("0.9", "0.1", domain_size=12)),
    "unary-90": ldp.Stream("s", ldp.Unary("2/3", "1/7", domain_size=90)),
    "rappor-20": ldp.Stream("s", ldp.RAPPOR("1/2", "3/4", "1/2", domain_size=20)),
    "told-9": ldp.Stream("s", ldp.Unary("1", "1/4", domain_size=9, epsilon="infinite")),
    "pgr-70000": ldp.Stream("s", ldp.PGR("1", domain_size=70_000)),
}
every_stream = pytest.mark.parametrize("stream", STREAMS.values(), ids=STREAMS.keys())


def counted_by_worker(stream, records, start=0, cuts=(), recorded=None):
    """The worker's path over the same records, in batches cut at the given indices."""
    state = PartitionState.fresh(ldp.Fleet((stream,)), start)
    state.rules = naming(stream, recorded or state.rules)
    edges = [0, *cuts, len(records)]
    for first, last in pairwise(edges):
        part = records[first:last]
        columns = Columns.of(range(start + first, start + last), [t for t, _ in part], [v for _, v in part])
        state.apply(Batch(0, start + first, start + last, columns))
    return state


def frame(stream, *reports):
    return frames.encode(stream, np.array(list(reports), stream.oracle.report_dtype))


def some_reports(stream, rng, n):
    """Well-formed reports, uniformly drawn; vector reports as users send them."""
    oracle = stream.oracle
    if oracle.length is None:
        return [tuple(rng.randrange(bound) for bound in oracle.fields.values()) for _ in range(n)]
    coins = np.random.default_rng(rng.getrandbits(64))
    return list(oracle.perturb(coins.integers(0, oracle.domain_size, n), rng=coins))
