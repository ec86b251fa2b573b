"""Counting of reports that belong to several states."""

import numpy as np
import pytest

import ldp
from ldp.oracles import ORACLES
from ldp.oracles.partitioned import accumulate_partitioned, address_of
from worker.audit.protocols import protocol_of


def addresses_of(oracle, states):
    return np.array([address_of(oracle, state) for state in states])


@pytest.mark.parametrize("name", sorted(ORACLES))
@pytest.mark.parametrize("turns", ["one after the other", "mixed", "one alone", "each twice"])
@pytest.mark.parametrize("most", [1 << 30, 7])
def test_each_state_counts_its_reports(name, turns, most):
    rng = np.random.default_rng(11)
    oracle, m, n = ldp.oracle(name, "3", 60), 1 if turns == "one alone" else 5, 400
    reports = oracle.perturb(rng.integers(60, size=n), rng=rng)
    owners = rng.integers(m, size=n)
    if turns == "one after the other":
        owners.sort()
    last = np.flatnonzero(np.append(owners[1:] != owners[:-1], True))
    if turns == "each twice":  # a run may be followed by another of the same state
        last = np.arange(n)
    runs = np.stack([owners[last], last + 1])
    states = [oracle.zeros() for _ in range(m)]
    expected = [oracle.zeros() for _ in range(m)]
    for owner, state in enumerate(expected):
        oracle.accumulate(state, reports[owners == owner])
    reports.flags.writeable = False
    steps = len(list(accumulate_partitioned(oracle, addresses_of(oracle, states), reports, runs, most)))
    assert [state.tolist() for state in states] == [state.tolist() for state in expected]
    assert steps == -(-n // most)


SIZES = [1, 0, 2, 3, 4, 5, 63, 64, 65, 0, 0, 254, 255, 256, 300, 0]


@pytest.mark.parametrize("sizes", [SIZES, [*SIZES, 2047, 0], [2048, 2049, *SIZES], [4096]])
@pytest.mark.parametrize("d", [1, 60, 1030])
@pytest.mark.parametrize("name", [*sorted(ORACLES), "xxh32", "xxh32 of 4", "few"])
def test_states_of_all_sizes_count_as_the_audit_does(name, d, sizes):
    """Counts each state by other code: sizes around a group, a tile and a byte, and empty states at any place."""
    options = {"xxh32": {"hash": "xxh32", "g": 6}, "xxh32 of 4": {"hash": "xxh32", "g": 4}}.get(name, {})
    protocol = "olh" if options else "subset" if name == "few" else name
    oracle = ldp.oracle(protocol, "9" if name == "few" else "1", max(d, 2), **options)
    n, m, rng = sum(sizes), len(sizes), np.random.default_rng(12)
    owners = rng.permutation(np.repeat(np.arange(m), sizes))
    reports = oracle.perturb(rng.integers(oracle.domain_size, size=n), rng=rng)
    states = [oracle.zeros() for _ in sizes]
    runs = np.stack([owners, np.arange(1, n + 1)])
    list(accumulate_partitioned(oracle, addresses_of(oracle, states), reports, runs, n))
    audited = protocol_of(ldp.Stream("s", oracle).document())
    for owner, state in enumerate(states):
        own, expected = reports[owners == owner], np.zeros(audited.entries, np.int64)
        if own.size:
            audited.count(expected, *(own[field] for field in own.dtype.names))
        assert (state == expected).all()


def test_shared_states_count_the_reports_of_both():
    grr = ldp.GRR("1", 3)
    state, other = grr.zeros(), grr.zeros()
    reports = np.array([(0,), (1,), (2,)], grr.report_dtype)
    addresses = addresses_of(grr, [state, other, state])
    list(accumulate_partitioned(grr, addresses, reports, np.array([[0, 1, 2], [1, 2, 3]]), 9))
    assert (state.tolist(), other.tolist()) == ([1, 0, 1], [0, 1, 0])


@pytest.mark.parametrize("name", ["grr", "oue"])
def test_a_state_of_another_shape_has_no_address(name):
    oracle = ldp.oracle(name, "1", 8)
    read_only = oracle.zeros()
    read_only.flags.writeable = False
    for wrong in (np.zeros(7, np.int64), np.zeros(16, np.int64)[::2], read_only):
        with pytest.raises(ValueError, match="state"):
            address_of(oracle, wrong)
    with pytest.raises(TypeError, match="int64"):
        address_of(oracle, np.zeros(8))  # type: ignore[arg-type]
