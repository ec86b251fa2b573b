"""One snapshot, all eleven bodies: against writing down their numbers and nothing else."""

import json
from collections.abc import Iterator
from pathlib import Path

import ldp
from ldp.consistency import METHODS
from ldp.snapshot import Cut, messages
from tests.bench.consistency import estimated
from tests.bench.measure import Line, compare
from worker.simulation.crowd import read_counts

DEMO = Path(__file__).parents[2] / "deploy" / "demo"


def lines() -> Iterator[Line]:
    """Seconds a snapshot, for the demo's 845 emoji."""
    labels = tuple((DEMO / "emoji.txt").read_text(encoding="utf-8").split())
    counts = read_counts(DEMO.parents[1] / "ldp/experiments/emoji.csv", "count_2020_06_16", "emoji", labels)
    histogram = counts * 884_427 // counts.sum()
    stream = ldp.Stream("emoji", ldp.OLH("1", domain_size=len(labels)), labels)
    estimate = estimated(stream.oracle, histogram)
    cut = Cut(dict.fromkeys(range(8), 110_000), {})
    vectors = [method(estimate).tolist() for method in METHODS.values()]
    yield compare(
        "snapshot messages",
        lambda: messages(stream, estimate, cut, sequence=1),
        lambda: [json.dumps(vector) for vector in vectors],
        peer_name="json.dumps of the eleven vectors, computed before",
        setup=f"OLH, ε=1, d={len(labels)}, n={estimate.n}, labels, no queries",
    )
