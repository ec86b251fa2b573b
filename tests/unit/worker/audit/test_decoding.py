"""Decoding: what a state supports, and Base's frequencies of it, are the oracle's to the last bit."""

import numpy as np

import ldp
from tests.unit.worker.audit.streams import every_stream
from worker.audit.decoding import chances_of, frequencies, support


@every_stream
def test_frequencies_are_those_that_the_oracle_publishes(stream):
    oracle, rng = stream.oracle, np.random.default_rng(1)
    reports = oracle.perturb(rng.integers(0, oracle.domain_size, 500), rng=rng)
    state = oracle.zeros()
    oracle.accumulate(state, reports)
    document = stream.document()
    counts = support(document, state)
    np.testing.assert_array_equal(counts, oracle.support(state))
    assert chances_of(document) == (oracle.p, oracle.q)
    due = oracle.estimate(counts, 500).frequencies
    assert frequencies(document, counts, 500).tobytes() == due.tobytes()


def test_a_geometry_that_is_too_large_is_not_decoded():
    stream = ldp.Stream("s", ldp.PGR("6", domain_size=70_000, prime=401, dimension=3))
    assert support(stream.document(), stream.oracle.zeros()) is None
