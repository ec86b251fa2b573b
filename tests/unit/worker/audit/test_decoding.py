"""Decoding: supports and Base's frequencies of a state equal the oracle's bit for bit."""

import numpy as np

import ldp
from tests.unit.worker.audit.streams import every_stream
from worker.audit.decoding import chances_of, frequencies, support


@every_stream
def test_frequencies_match_the_oracle(stream):
    oracle, rng = stream.oracle, np.random.default_rng(1)
    reports = oracle.perturb(rng.integers(0, oracle.domain_size, 500), rng=rng)
    state = oracle.zeros()
    oracle.accumulate(state, reports)
    document = stream.document()
    counts, estimate = support(document, state), oracle.estimate(oracle.support(state), 500)
    np.testing.assert_array_equal(counts, oracle.support(state))
    assert chances_of(document) == (oracle.p, oracle.q)
    due = estimate.frequencies
    assert frequencies(document, counts, 500).tobytes() == due.tobytes()


def test_an_oversized_geometry_is_not_decoded():
    stream = ldp.Stream("s", ldp.PGR("6", domain_size=70_000, prime=401, dimension=3))
    assert support(stream.document(), stream.oracle.zeros()) is None
