"""Effect of one poisoning report, against every possible report."""

import json

import numpy as np
import pytest
from click.testing import CliRunner

import ldp
from ldp import frames, query
from ldp.analysis.protocol_selection import plan
from ldp.cli import cli
from ldp.oracles.olh import HASHES
from ldp.poisoning import effect, set_tolerance, tolerance
from tests.unit.ldp.test_laws import MIDDLE, SMALL, reports

pytestmark = pytest.mark.statistical


def accepted(oracle):
    """Supports of each report that passes the Hamming weight check."""
    supports, _ = reports(oracle)
    if isinstance(oracle, ldp.OUE | ldp.SUE):
        low, high = oracle.weight_bounds
        ones = supports.sum(axis=1)
        supports = supports[(low <= ones) & (ones <= high)]
    return supports


@pytest.mark.parametrize("oracle", SMALL, ids=repr)
def test_the_strongest_report_matches_enumeration(oracle):
    supports = accepted(oracle)
    p, q = float(oracle.p), float(oracle.q)
    moved = (supports - q) / (p - q)  # users, for each report and value
    one = effect(oracle, 1000)
    assert one.up == pytest.approx(moved.max(), rel=1e-9)
    if not supports.all():
        assert one.down == pytest.approx(-moved.min(), rel=1e-9)
    assert one.values == supports.sum(axis=1).max()
    raised, lowered = moved.clip(min=0).sum(axis=1), -moved.clip(max=0).sum(axis=1)
    assert one.total == pytest.approx(raised.max(), rel=1e-9)
    assert lowered.max() <= one.total * (1 + 1e-9)
    estimate = ldp.Estimate(np.zeros(oracle.domain_size), 1000, oracle)
    assert one.share * one.up == pytest.approx(estimate.sigma, rel=1e-9)


@pytest.mark.parametrize("protocol", ["oue", "sue"])
def test_a_report_of_many_ones_is_rejected(protocol):
    stream = ldp.Stream("s", ldp.oracle(protocol, "1", domain_size=1024))
    most = effect(stream.oracle, 10).values
    for ones, reasons in ((most, {}), (most + 1, {0: "ones"})):
        bits = np.packbits(np.arange(1024) < ones, bitorder="little")
        report = np.zeros(1, stream.oracle.report_dtype)
        report["bits"] = bits
        frame = frames.encode(stream, report)
        assert dict(frames.decode(stream, frame, np.array([0]), np.array([len(frame)])).reasons) == reasons


def subsets(d, seed):
    """Sets of every size, at random."""
    rng = np.random.default_rng(seed)
    return [rng.choice(d, m, replace=False) for m in range(1, d + 1) for _ in range(3)]


@pytest.mark.parametrize("oracle", SMALL, ids=repr)
def test_the_strongest_report_for_a_set_matches_enumeration(oracle):
    supports = accepted(oracle)
    for subset in subsets(oracle.domain_size, 23):
        within = supports[:, subset].sum(axis=1)
        assert oracle.supported_of(subset) == (within.min(), within.max())


def strongest(oracle, subset, up):
    """Real reports of a stream's protocol that support as much, or as little, of a set as any does."""
    rng = np.random.default_rng(24)
    best = oracle.supported_of(np.array(subset))[up]
    for _ in range(400):
        drawn = oracle.perturb(rng.integers(oracle.domain_size, size=2000), rng=rng)
        for report in drawn:
            state = oracle.zeros()
            oracle.accumulate(state, np.array([report], drawn.dtype))
            if oracle.support(state)[subset].sum() == best:
                return report
    raise AssertionError(f"{oracle} has no report that supports {best}")


@pytest.mark.parametrize("name", ["grr", "olh", "oue", "sue", "subset", "hadamard", "pgr"])
@pytest.mark.parametrize("subset", [[3], [0, 2, 5]], ids=["value", "set"])
def test_exactly_the_tolerated_poisoning_reports_move_the_estimate_out(name, subset):
    """An attack with real reports: this number suffices in at least one direction, and one fewer in none."""
    oracle = ldp.oracle(name, "4", domain_size=7)
    rng = np.random.default_rng(25)
    state = oracle.zeros()
    oracle.accumulate(state, oracle.perturb(rng.integers(7, size=3000), rng=rng))
    estimate = oracle.estimate(oracle.support(state), 3000)
    low, high = query.interval(estimate, subset)
    fewest = set_tolerance(estimate, subset, low, high)
    if len(subset) == 1:
        assert tolerance(estimate, *estimate.interval())[subset[0]] == fewest
    outside = {}
    for fakes in (int(fewest) - 1, int(fewest)):
        for up in (False, True):
            poisoning = np.repeat(np.array([strongest(oracle, subset, up)], oracle.report_dtype), fakes)
            attacked = state.copy()
            oracle.accumulate(attacked, poisoning)
            moved = query.answer(oracle.estimate(oracle.support(attacked), 3000 + fakes), subset, "base")
            outside[fakes, up] = not low <= moved <= high
    assert not outside[fewest - 1, False] and not outside[fewest - 1, True]
    assert outside[fewest, False] or outside[fewest, True]


def test_an_immovable_value_has_infinite_tolerance():
    """Few reports: the interval contains full and no support."""
    estimate = ldp.OUE("1", domain_size=3).estimate([1, 0, 1], n=2)
    assert tolerance(estimate, np.full(3, -9.0), np.full(3, 9.0)).tolist() == [np.inf] * 3


@pytest.mark.parametrize("oracle", MIDDLE, ids=repr)
def test_the_strongest_report_of_larger_geometries_is_known(oracle):
    supports, _ = reports(oracle)
    assert effect(oracle, 10).values == supports.sum(axis=1).max()


@pytest.mark.parametrize("hash_name", HASHES)
@pytest.mark.parametrize(("d", "g"), [(3, 4), (6, 2), (4, 5)])
def test_the_strongest_report_of_olh_is_found_by_a_search(hash_name, d, g):
    oracle = ldp.OLH("1", d, hash=hash_name, g=g)
    found = max(
        sum(HASHES[hash_name](seed, v, g) == bucket for v in range(d))
        for seed in range(5000)
        for bucket in range(g)
    )
    assert found == effect(oracle, 10).values == d


def test_the_strongest_olh_report_of_a_large_domain_is_a_full_bucket():
    assert ldp.OLH("1", 32, g=2).most_supported == 32  # 2³³ buckets, 2³² sets of values
    assert ldp.OLH("1", 40, g=2).most_supported < 40
    d, g = 1 << 20, 4
    assert d / g < ldp.OLH("1", d, g=g).most_supported < 1.02 * d / g


def test_the_poisoning_effect_is_printed_by_the_plan():
    asked = ("plan", "--epsilon", "1", "--domain-size", "1024", "--reports", "1000000", "--poisoning-effect")
    rows = plan("1", 1024, 10**6).rows
    lines = CliRunner().invoke(cli, asked).output.splitlines()[1 : 1 + len(rows)]
    assert [line.split()[0] for line in lines] == [row.protocol for row in rows]
    told = json.loads(CliRunner().invoke(cli, [*asked, "--json"]).output)["protocols"]
    for row, said in zip(rows, told, strict=True):
        stream = ldp.Stream.from_document("s", row.document)
        assert said["poisoning_effect"] == vars(effect(stream.oracle, 10**6))
