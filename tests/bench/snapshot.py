"""One snapshot, all eleven bodies: against its methods alone, and its writing against the standard library's."""

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import orjson

import ldp
from ldp.consistency import METHODS
from ldp.snapshot import JSON, Cut, encode, take
from tests.bench.consistency import estimated
from tests.bench.measure import Line, compare
from worker.simulation.crowd import read_counts

DEMO = Path(__file__).parents[2] / "deploy" / "demo"
LARGEST = 8192  # the largest domain whose vectors stand in the bodies


def lines() -> Iterator[Line]:
    """Seconds a snapshot, for the demo's 845 emoji and for a large domain."""
    labels = tuple((DEMO / "emoji.txt").read_text(encoding="utf-8").split())
    counts = read_counts(DEMO.parents[1] / "ldp/experiments/emoji.csv", "count_2020_06_16", "emoji", labels)
    stream = ldp.Stream("emoji", ldp.OLH("1", domain_size=len(labels)), labels)
    yield from of(stream, counts * 884_427 // counts.sum())
    weights = 1.0 / np.arange(1, LARGEST + 1)
    stream = ldp.Stream("zipf", ldp.OLH("1", domain_size=LARGEST))
    yield from of(stream, (weights / weights.sum() * 1_000_000).astype(np.int64))


def of(stream: ldp.Stream, histogram: np.ndarray[tuple[int, ...], np.dtype[np.int64]]) -> Iterator[Line]:
    """Of a stream whose users have a histogram: taken and written; written alone."""
    estimate = estimated(stream.oracle, histogram)
    cut = Cut(dict.fromkeys(range(8), 110_000), {})
    labelled = "labels" if stream.labels else "no labels"
    setup = f"OLH, ε=1, d={stream.oracle.domain_size}, n={estimate.n}, {labelled}, no queries"
    yield compare(
        "snapshot taken and written",
        lambda: encode(take(stream, estimate, cut, sequence=1)),
        lambda: [method(estimate) for method in METHODS.values()],
        peer_name="Base and the ten methods alone",
        setup=setup,
    )
    taken = take(stream, estimate, cut, sequence=1)
    documents = [json.loads(part.body) for part in encode(taken) if part.content_type == JSON]
    assert all(orjson.loads(json.dumps(document)) == document for document in documents)
    yield compare(
        "snapshot written",
        lambda: encode(taken),
        lambda: [json.dumps(document, ensure_ascii=False, separators=(",", ":")) for document in documents],
        peer_name="json of the standard library, of the same documents as lists, which is what was used before",
        setup=setup,
    )
