"""One contract, run over every registered protocol, and what is particular to each."""

import itertools
import random
import secrets
import subprocess
import sys
from collections import Counter
from fractions import Fraction

import numpy as np
import pytest

import ldp
from ldp import sampling
from ldp.oracles import ORACLES
from ldp.oracles.olh import HASHES, best_g

CONTRACT = [
    *(
        ldp.GRR(epsilon, d)
        for epsilon, d in [
            ("1", 1),
            ("0.1", 2),
            ("1", 255),
            ("1/3", 256),
            ("1", 257),
            ("4", 70_000),
            ("64", 3),
        ]
    ),
    *(ldp.OLH(epsilon, d) for epsilon, d in [("1", 1), ("0.1", 2), ("1/3", 845), ("64", 12)]),
    ldp.OLH("4", 1024, hash="xxh32"),
    ldp.OLH("1", 500, hash="xxh32", g=256),
    ldp.OLH("1", 500, g=257),
]
over_all = pytest.mark.parametrize("oracle", CONTRACT, ids=repr)


def supported(oracle, report):
    """The values that a report supports, by the protocol's definition."""
    if oracle.name == "grr":
        return {int(report["index"])}
    seed, bucket = report.tolist()
    return {v for v in range(oracle.domain_size) if HASHES[oracle.hash](seed, v, oracle.g) == bucket}


@pytest.fixture
def seeded_system(monkeypatch):
    """The exact path, with a seeded source in the system's place: a statistical test must not vary."""
    words = np.random.default_rng(20200223)
    numbers = random.Random(20200223)
    monkeypatch.setattr(sampling, "system_words", lambda n: words.integers(1 << 64, size=n, dtype=np.uint64))
    monkeypatch.setattr(secrets, "randbelow", numbers.randrange)


def test_every_protocol_is_under_the_contract():
    assert {oracle.name for oracle in CONTRACT} == set(ORACLES)
    assert {type(oracle) for oracle in CONTRACT} == set(ORACLES.values())


@over_all
def test_parameters_make_the_same_oracle_again(oracle):
    parameters = oracle.parameters()
    protocol = parameters.pop("protocol")
    again = ldp.oracle(protocol, **parameters)
    assert again == oracle
    assert hash(again) == hash(oracle)
    assert eval(repr(oracle), {"GRR": ldp.GRR, "OLH": ldp.OLH}) == oracle
    assert again != ldp.oracle(protocol, **parameters | {"epsilon": "7/5"})
    assert oracle != "oracle"


@over_all
def test_probabilities_are_exact_and_of_the_lower_exponential(oracle):
    assert isinstance(oracle.p, Fraction)
    assert isinstance(oracle.q, Fraction)
    assert sampling.exp_below(oracle.epsilon) == oracle.E
    assert 0 < oracle.q < oracle.p <= 1


@over_all
def test_a_report_is_packed_little_endian_and_as_small_as_can_be(oracle):
    dtype = oracle.report_dtype
    assert dtype.names == tuple(oracle.fields)
    assert dtype.itemsize == sum(dtype[name].itemsize for name in dtype.names)
    for name, bound in oracle.fields.items():
        bits = 8 * dtype[name].itemsize
        assert dtype[name] == np.dtype(f"<u{bits // 8}")
        assert bits == next(b for b in (8, 16, 32) if bound - 1 < 2**b)


@over_all
@pytest.mark.parametrize("kind", [list, np.int64, np.uint8, np.int32])
def test_perturb_gives_one_well_formed_report_a_value(oracle, kind):
    d = min(oracle.domain_size, 256)
    values = [v % d for v in (0, 1, d - 1, 5, 7, d // 2)] * 20
    values = values if kind is list else np.array(values, kind)
    for rng in (None, np.random.default_rng(1)):
        reports = oracle.perturb(values, rng)
        assert reports.dtype == oracle.report_dtype
        assert reports.shape == (120,)
        assert oracle.check(reports).tolist() == [True] * 120
        assert oracle.perturb([], rng).shape == (0,)


@over_all
def test_perturb_with_a_generator_repeats_and_without_does_not(oracle):
    values = np.arange(400) % oracle.domain_size
    same = [oracle.perturb(values, np.random.default_rng(1)).tobytes() for _ in range(2)]
    assert same[0] == same[1]
    if oracle.domain_size > 1 and float(oracle.p) < 0.99:
        assert oracle.perturb(values).tobytes() != oracle.perturb(values).tobytes()


@over_all
def test_perturb_one_gives_the_fields_of_a_report(oracle):
    for value in {0, oracle.domain_size - 1, np.int64(oracle.domain_size // 2)}:
        report = oracle.perturb_one(value)
        assert [type(number) for number in report] == [int] * len(oracle.fields)
        assert oracle.check(np.array([report], oracle.report_dtype)).all()


@over_all
@pytest.mark.parametrize(
    ("values", "error"),
    [
        ([0.0], TypeError),
        ([True], TypeError),
        (["0"], TypeError),
        ([None], TypeError),
        ([2**70], TypeError),
        ([0, -1], ValueError),
        ([2**64 - 1], ValueError),
        ([1 << 24], ValueError),
        ([[0]], ValueError),
        (0, ValueError),
    ],
)
def test_bad_values_are_refused(oracle, values, error):
    for rng in (None, np.random.default_rng(1)):
        with pytest.raises(error, match="value"):
            oracle.perturb(values, rng)


@over_all
@pytest.mark.parametrize("value", [0.0, True, "0", None, np.float64(0), np.array([0, 0])])
def test_one_bad_value_of_a_wrong_type(oracle, value):
    with pytest.raises(TypeError, match="value must be an integer"):
        oracle.perturb_one(value)


@over_all
def test_one_bad_value_outside_the_domain(oracle):
    for value in (-1, oracle.domain_size):
        with pytest.raises(ValueError, match=f"value is {value}; allowed is 0 to {oracle.domain_size - 1}"):
            oracle.perturb_one(value)


@over_all
def test_a_seed_is_not_a_generator(oracle):
    with pytest.raises(TypeError, match="rng"):
        oracle.perturb([0], 42)


@over_all
def test_counts_are_the_supports_of_the_definition(oracle):
    n = 60
    reports = oracle.perturb(np.arange(n) % oracle.domain_size, np.random.default_rng(2))
    state = oracle.zeros()
    assert state.shape == (oracle.state_size,)
    oracle.accumulate(state, reports)
    expected = Counter(v for report in reports for v in supported(oracle, report))
    counts = oracle.support(state)
    assert counts.dtype == np.int64
    assert counts.tolist() == [expected[v] for v in range(oracle.domain_size)]
    counts[:] = -1
    assert state.min() >= 0  # support gives a copy


@over_all
def test_states_of_parts_add(oracle):
    reports = oracle.perturb(np.arange(5000) % oracle.domain_size, np.random.default_rng(3))
    whole, parts = oracle.zeros(), []
    oracle.accumulate(whole, reports)
    for part in np.split(reports, [0, 1, 700, 701, 4000]):
        parts.append(oracle.zeros())
        oracle.accumulate(parts[-1], part)
    assert (sum(parts) == whole).all()
    for part in np.split(reports, [0, 1, 700]):
        oracle.accumulate(parts[0], part)
    assert (parts[0] == whole).all()


@over_all
def test_read_only_and_strided_reports_count_the_same(oracle):
    reports = oracle.perturb(np.arange(200) % oracle.domain_size, np.random.default_rng(4))
    expected, state = oracle.zeros(), oracle.zeros()
    oracle.accumulate(expected, reports[::2].copy())
    frozen = np.frombuffer(reports.tobytes(), oracle.report_dtype)[::2]
    oracle.accumulate(state, frozen)
    assert (state == expected).all()


@over_all
def test_malformed_reports_are_found_and_refused(oracle):
    for name, bound in oracle.fields.items():
        reports = oracle.perturb(np.zeros(4, int))
        most = np.iinfo(oracle.report_dtype[name]).max
        if bound > most:
            continue
        reports[name][[1, 3]] = bound, most
        assert oracle.check(reports).tolist() == [True, False, True, False]
        with pytest.raises(ValueError, match="report 1 is malformed"):
            oracle.accumulate(oracle.zeros(), reports)


@over_all
def test_other_arrays_are_refused(oracle):
    reports = oracle.perturb([0])
    for wrong in (reports.view(np.uint8), np.zeros(1), [(0,)], np.zeros(1, [("x", "<u8")])):
        with pytest.raises(TypeError, match="reports must be an array"):
            oracle.check(wrong)
        with pytest.raises(TypeError, match="reports must be an array"):
            oracle.accumulate(oracle.zeros(), wrong)
    with pytest.raises(ValueError, match="one dimension"):
        oracle.check(reports.reshape(1, 1))
    for wrong in (oracle.zeros().astype(float), oracle.zeros().astype(np.int32), [0]):
        with pytest.raises(TypeError, match="state"):
            oracle.accumulate(wrong, reports)
        with pytest.raises(TypeError, match="state"):
            oracle.support(wrong)
    for call in (lambda state: oracle.accumulate(state, reports), oracle.support):
        with pytest.raises(ValueError, match="state"):
            call(np.zeros(oracle.state_size + 1, np.int64))
    frozen = oracle.zeros()
    frozen.flags.writeable = False
    with pytest.raises(ValueError, match="writable"):
        oracle.accumulate(frozen, reports)


@over_all
def test_estimate_inverts_the_expected_counts(oracle):
    n = 1000
    counts = np.random.default_rng(5).integers(n + 1, size=oracle.domain_size)
    estimate = oracle.estimate(counts, n)
    assert estimate.n == n
    assert estimate.oracle is oracle
    assert np.isfinite(estimate.frequencies).all()
    for v in range(min(oracle.domain_size, 300)):
        exact = (Fraction(int(counts[v]), n) - oracle.q) / (oracle.p - oracle.q)
        assert estimate.frequencies[v] == pytest.approx(
            float(exact), rel=1e-12, abs=1e-12 / float(oracle.p - oracle.q)
        )


@over_all
def test_estimate_refuses_what_cannot_be_counts(oracle):
    d = oracle.domain_size
    good = np.zeros(d, int)
    for counts, n, error in [
        (good, 0, ValueError),
        (good, -1, ValueError),
        (good, 1.0, TypeError),
        (good, True, TypeError),
        (good.astype(float), 10, TypeError),
        (good.astype(bool), 10, TypeError),
        (good - 1, 10, ValueError),
        (good + 11, 10, ValueError),
        (np.zeros(d + 1, int), 10, ValueError),
        (good.reshape(1, d), 10, ValueError),
    ]:
        with pytest.raises(error):
            oracle.estimate(counts, n)


@pytest.mark.parametrize("exact", [True, False], ids=["exact", "simulated"])
@pytest.mark.parametrize(
    "oracle",
    [
        ldp.GRR("1", 1),
        ldp.GRR("1", 7),
        ldp.GRR("4", 300),
        ldp.OLH("1", 7),
        ldp.OLH("0.5", 40, hash="xxh32"),
        ldp.OLH("4", 40),
        ldp.OLH("1", 1),
    ],
    ids=repr,
)
def test_reports_support_the_own_value_with_p_and_any_other_with_q(oracle, exact, seeded_system):
    n = 60_000
    rng = None if exact else np.random.default_rng(6)
    value = oracle.domain_size // 2
    state = oracle.zeros()
    oracle.accumulate(state, oracle.perturb(np.full(n, value), rng))
    for v, count in enumerate(oracle.support(state)):
        p = float(oracle.p if v == value else oracle.q)
        assert abs(count - n * p) <= 6 * (n * p * (1 - p)) ** 0.5  # false alarm below 1e-6 over all values


@pytest.mark.parametrize(
    "oracle", [ldp.GRR("1", 7), ldp.OLH("1", 7), ldp.OLH("1", 7, hash="xxh32")], ids=repr
)
def test_one_report_at_a_time_has_the_same_law(oracle, seeded_system):
    n = 20_000
    reports = np.array([oracle.perturb_one(3) for _ in range(n)], oracle.report_dtype)
    state = oracle.zeros()
    oracle.accumulate(state, reports)
    for v, count in enumerate(oracle.support(state)):
        p = float(oracle.p if v == 3 else oracle.q)
        assert abs(count - n * p) <= 6 * (n * p * (1 - p)) ** 0.5


def law(monkeypatch, oracle, value, seeds=()):
    """The exact law of a report, for each seed where there is one, from the rationals that the sampler uses."""
    weights = Counter()

    def walk(script, weight):
        branches = []
        step = iter(script)

        def draw(outcomes):
            if (chosen := next(step, None)) is None:
                branches.extend(outcomes)
                raise StopIteration
            return chosen

        def integer(bound):
            return draw(
                [(s, Fraction(1)) for s in seeds]
                if bound == 1 << 32
                else [(k, Fraction(1, bound)) for k in range(bound)]
            )

        monkeypatch.setattr(sampling, "coin", lambda p: draw([(True, p), (False, 1 - p)]))
        monkeypatch.setattr(sampling, "integer", integer)
        try:
            report = oracle.perturb_one(value)
        except StopIteration:
            for outcome, probability in branches:
                walk([*script, outcome], weight * probability)
        else:
            weights[report] += weight

    walk([], Fraction(1))
    return weights


@pytest.mark.parametrize("epsilon", ["0.1", "1", "4"])
@pytest.mark.parametrize("d", [1, 2, 3, 5])
def test_privacy_of_grr_by_enumeration(monkeypatch, epsilon, d):
    oracle = ldp.GRR(epsilon, d)
    laws = [law(monkeypatch, oracle, value) for value in range(d)]
    for value, reports in enumerate(laws):
        assert set(reports) == {(index,) for index in range(d)}
        assert sum(reports.values()) == 1
        assert reports[value,] == oracle.p
        assert all(reports[other,] == oracle.q for other in range(d) if other != value)
    ratios = [a[report] / b[report] for a, b in itertools.permutations(laws, 2) for report in a]
    assert max(ratios, default=oracle.E) == oracle.E


@pytest.mark.parametrize("hash_name", HASHES)
@pytest.mark.parametrize(
    ("epsilon", "g", "d"), [("0.1", 2, 4), ("1", 4, 3), ("1", 2, 4), ("4", 5, 2), ("1", None, 2)]
)
def test_privacy_of_olh_over_every_class_of_hash_functions(monkeypatch, hash_name, epsilon, g, d):
    oracle = ldp.OLH(epsilon, d, hash=hash_name, g=g)
    classes = {}  # the buckets of all values -> one seed
    for seed in range(5000):
        classes.setdefault(tuple(HASHES[hash_name](seed, v, oracle.g) for v in range(d)), seed)
    assert len(classes) == oracle.g**d
    laws = [law(monkeypatch, oracle, value, list(classes.values())) for value in range(d)]
    for buckets, seed in classes.items():
        for value in range(d):
            assert sum(laws[value][seed, bucket] for bucket in range(oracle.g)) == 1
            assert laws[value][seed, buckets[value]] == oracle.p
    ratios = [a[report] / b[report] for a, b in itertools.permutations(laws, 2) for report in a]
    assert max(ratios) == oracle.E
    assert min(ratios) == 1 / oracle.E


@pytest.mark.parametrize("hash_name", HASHES)
@pytest.mark.parametrize("rng", [None, np.random.default_rng(1)], ids=["exact", "simulated"])
def test_arrays_perturb_the_hash_under_the_reported_seed(monkeypatch, hash_name, rng):
    oracle = ldp.OLH("1", 2000, hash=hash_name, g=300)
    monkeypatch.setattr(sampling, "responses", lambda symbols, m, E, rng: symbols)
    values = np.arange(2000)
    reports = oracle.perturb(values, rng)
    expected = [HASHES[hash_name](int(s), int(v), 300) for s, v in zip(reports["seed"], values, strict=True)]
    assert reports["bucket"].tolist() == expected
    assert np.unique(reports["seed"]).size > 1990


def test_best_g_has_the_least_variance():
    """Against a search, in exact rationals, for q(1−q)/(p−q)², also where round(E)+1 is another number."""
    others = 0
    for k in range(2, 180):
        E = sampling.exp_below(Fraction(k, 50))
        variance = {g: Fraction(g - 1, g * g) / (E / (E + g - 1) - Fraction(1, g)) ** 2 for g in range(2, 60)}
        assert best_g(E) == min(variance, key=variance.get)
        others += best_g(E) != round(E) + 1
    assert others > 0


@pytest.mark.parametrize(
    ("E", "g"),
    [
        (Fraction(1) + Fraction(1, 2**64), 2),
        (Fraction(7, 5), 2),
        (Fraction(3, 2), 3),
        (Fraction(65535), 65536),
        (Fraction(10**9), 65536),
    ],
)
def test_best_g_at_its_ends(E, g):
    assert best_g(E) == g


@pytest.mark.parametrize(
    ("name", "arguments", "error", "says"),
    [
        ("oue", {}, ValueError, "there are grr, olh"),
        ("grr", {"epsilon": 1.0}, TypeError, "float"),
        ("grr", {"domain_size": 0}, ValueError, "domain_size is 0"),
        ("grr", {"domain_size": 2**24 + 1}, ValueError, "domain_size"),
        ("olh", {"domain_size": "7"}, TypeError, "domain_size"),
        ("olh", {"domain_size": 7.0}, TypeError, "domain_size"),
        ("olh", {"domain_size": True}, TypeError, "domain_size"),
        ("olh", {"g": 1}, ValueError, "g is 1"),
        ("olh", {"g": 65537}, ValueError, "g is 65537"),
        ("olh", {"g": 4.0}, TypeError, "g must be"),
        ("olh", {"g": True}, TypeError, "g must be"),
        ("olh", {"hash": "md5"}, ValueError, "mix32, xxh32"),
        ("olh", {"epsilon": "0"}, ValueError, "epsilon"),
        ("grr", {"g": 4}, TypeError, "g"),
    ],
)
def test_bad_parameters_are_refused(name, arguments, error, says):
    with pytest.raises(error, match=says):
        ldp.oracle(name, **({"epsilon": "1", "domain_size": 10} | arguments))


def test_the_largest_domain():
    for oracle in (ldp.GRR("1", 1 << 24), ldp.OLH("1", 1 << 24)):
        reports = oracle.perturb([0, (1 << 24) - 1])
        assert oracle.check(reports).all()
    assert ldp.GRR("1", 1 << 24).report_dtype.itemsize == 4


def test_every_public_name_is_there():
    for name in ldp.__all__:
        assert getattr(ldp, name) is not None
    assert set(dir(ldp)) == set(ldp.__all__)
    with pytest.raises(AttributeError, match="nothing"):
        _ = ldp.nothing


def test_one_report_on_a_device_needs_no_numpy():
    code = (
        "import sys, ldp\n"
        "for oracle in (ldp.GRR('1', 10), ldp.OLH('1', 10), ldp.oracle('olh', '1', 10, hash='xxh32')):\n"
        "    oracle.perturb_one(3)\n"
        "    ldp.Stream('s', oracle).fingerprint\n"
        "assert not {'numpy', 'scipy', 'numba'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
