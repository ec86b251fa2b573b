"""The methods: the audit computes each published method from the plain estimate, and finds every change."""

import json
import random
from functools import partial

import numpy as np
import pytest

import ldp
from ldp.privacy.declaration import Declaration
from ldp.query import SetQuery, TopQuery
from ldp.snapshot import Cut, Period, body_document, take
from ldp.snapshot.documents import vectors
from ldp.snapshot.taking import announce
from tests.unit.worker.audit.streams import STREAMS, every_stream, some_reports
from worker.audit.decoding import chances_of, expect_spent
from worker.audit.errors import Difference
from worker.audit.intervals import expect_intervals
from worker.audit.methods import METHODS, Estimate, expect_method
from worker.audit.vectors import read

OF_BASE = [("anytime_low", 1e-6), ("anytime_high", -1e-6)]
OF_BASE += [("poisoning_tolerance", 1), ("poisoning_tolerance", -1)]


def snapshot_of(stream, n, seed=1):
    """A snapshot of simulated reports: from users with a few frequent values, or only noise."""
    rng, coins = random.Random(seed), np.random.default_rng(seed)
    oracle, d = stream.oracle, stream.oracle.domain_size
    if seed % 3:
        values = np.minimum(coins.geometric(0.3, n) - 1, d - 1)
        reports = oracle.perturb(values, rng=coins)
    else:
        reports = np.array(some_reports(stream, rng, n), oracle.report_dtype)
    state = oracle.zeros()
    oracle.accumulate(state, reports)
    queries = (SetQuery("some", range(0, d, 2) and tuple(range(0, d, 2))), TopQuery("most", min(3, d)))
    return take(stream, oracle.estimate(oracle.support(state), n), Cut({}, {}), 3, queries)


def expect(snapshot, change=lambda method, said: None, methods=METHODS):
    document = snapshot.document
    base = snapshot.bodies["base"]
    own = Estimate(base.frequencies, snapshot.reports, *chances_of(document))
    for method in sorted({*methods} & snapshot.bodies.keys()):
        said = json.loads(
            json.dumps(body_document(snapshot, method, inline=1 << 30), default=np.ndarray.tolist)
        )
        change(method, said)
        listed = {
            name: read(name, method, said, {}, {}) for name in vectors(snapshot, snapshot.bodies[method])
        }
        expect_method(method, said, own, listed)
        if method == "base":
            expect_intervals(said, own, listed)


@every_stream
@pytest.mark.parametrize("n", [1, 5000])
def test_each_published_method_matches_its_estimate(stream, n):
    if stream.oracle.domain_size > 1000 and n > 1000:
        n = 1000
    for seed in (1, 3) if stream.oracle.domain_size < 1000 else (1,):
        expect(snapshot_of(stream, n, seed))


@pytest.mark.parametrize("epsilon", ["1/20", "1", "6"])
@pytest.mark.parametrize("d", [1, 2, 900])
def test_estimates_match_for_many_reports_and_domain_sizes(epsilon, d):
    rng = np.random.default_rng(d)
    for make in (ldp.OUE, ldp.OLH):
        stream = ldp.Stream("s", make(epsilon, domain_size=d))
        for n in (10_000, 1 << 22, 1 << 33):
            p, q = float(stream.oracle.p), float(stream.oracle.q)
            shares = rng.dirichlet(np.full(d, 0.1))
            counts = rng.binomial(n, np.clip(q + shares * (p - q), 0, 1))
            expect(take(stream, stream.oracle.estimate(counts, n), Cut({}, {}), 1))


@pytest.mark.parametrize("method", sorted(METHODS))
def test_a_changed_number_of_a_method_is_detected(method):
    snapshot = snapshot_of(STREAMS["olh-mul32"], 500)

    def least(vector, v):
        def change(name, said):
            if name == method:
                said[vector][v] += 1e-4

        return change

    vectors_ = ["frequencies", *(["low", "high"] if method == "base" else [])]
    for vector in vectors_:
        for v in (0, 1, 60, 119):
            with pytest.raises(Difference, match=method):
                expect(snapshot, least(vector, v), [method])
    for key in ("sum", "standard_error"):
        with pytest.raises(Difference, match=f"{method}: {key}"):
            expect(snapshot, lambda _, said, key=key: said.update({key: said[key] + 1e-5}), [method])
    with pytest.raises(Difference, match=f"{method}: query 'some'"):
        expect(snapshot, lambda _, said: said["queries"][0].update(frequency=2.0), [method])
    with pytest.raises(Difference, match=f"{method}: query 'most'"):
        expect(snapshot, lambda _, said: said["top"][0]["values"].reverse(), [method])
    with pytest.raises(Difference, match=f"{method}: query 'most'"):
        expect(snapshot, lambda _, said: said["top"][0]["frequencies"].__setitem__(0, 0.9), [method])
    with pytest.raises(Difference, match=method):
        expect(snapshot, lambda _, said: said["frequencies"].pop(), [method])


def test_an_unknown_method_is_named():
    own = Estimate(np.zeros(3), 1, *chances_of(STREAMS["grr-3"].document()))
    with pytest.raises(Difference, match="guess is not a method"):
        expect_method("guess", {}, own, {"frequencies": np.zeros(3)})


@pytest.mark.parametrize(("name", "by"), [*OF_BASE, ("low", 1e-6)])
def test_a_changed_number_of_base_is_detected(name, by):
    for stream in [*STREAMS.values()][:4]:
        snapshot = snapshot_of(stream, 3000)
        value = int(np.argmax(snapshot.bodies["base"].poisoning_tolerance))

        def change(_, said, value=value):
            said[name][value] += by

        with pytest.raises(Difference, match=rf"base: {name}\[{value}\] is "):
            expect(snapshot, change, ["base"])


def test_a_falsely_infinite_poisoning_tolerance_is_detected():
    snapshot = snapshot_of(next(iter(STREAMS.values())), 3000)

    def never(_, said):
        said["poisoning_tolerance"] = [-1] * len(said["poisoning_tolerance"])

    with pytest.raises(Difference, match=r"base: poisoning_tolerance\[\d+\] is -1"):
        expect(snapshot, never, ["base"])


@pytest.mark.parametrize("name", ["grr-3", "olh-mul32", "oue-64", "subset-bits", "hadamard-10", "pgr-10"])
def test_a_changed_number_of_a_top_query_is_detected(name):
    snapshot = snapshot_of(STREAMS[name], 3000)
    for key, by in OF_BASE:
        with pytest.raises(Difference, match=rf"base: query 'most': {key}\[0\]"):
            expect(snapshot, lambda _, said, key=key, by=by: _add_first(said["top"][0][key], by), ["base"])


def _add_first(said, by):
    said[0] = 7 if said[0] == -1 else said[0] + by


@every_stream
def test_only_the_epsilon_of_the_stream_is_accepted(stream):
    document = stream.document()
    due = announce(stream, Cut({}, {}), 1, None, "ab" * 16).epsilon
    expect_spent({} if due is None else {"epsilon": due}, document)
    for other in ["1/1", "infinite", None]:
        if other != due:
            with pytest.raises(Difference, match="epsilon is "):
                expect_spent({} if other is None else {"epsilon": other}, document)


@pytest.mark.parametrize(
    "oracle", [ldp.RAPPOR("1/2", "3/4", "1/2", 4), ldp.GRR("2", 4), ldp.OUE("2", 4)], ids=repr
)
@pytest.mark.parametrize("window", [Period(), Period("7d", 0, 7 * 86_400_000)], ids=["all", "7d"])
def test_intervals_of_repeated_reports_use_the_declaration(oracle, window):
    declared = Declaration("device", 2, "36h", "memoised", "30d")
    counts = oracle.simulate([2000, 1500, 1000, 500], np.random.default_rng(1))
    estimate = oracle.estimate(counts, 5000).declared(declared)
    if window.start is not None:
        estimate = estimate.within(window.start, window.end)
    stream = ldp.Stream("s", oracle, privacy=declared)
    taken = partial(take, stream, cut=Cut({}, {}), sequence=1, queries=[TopQuery("most", 2)], window=window)
    expect(taken(estimate=estimate))
    with pytest.raises(Difference, match="base: low"):
        expect(taken(estimate=estimate.declared(None)))
    with pytest.raises(Difference, match="base: low"):
        expect(taken(estimate=estimate.within(0, 86_400_000)))
