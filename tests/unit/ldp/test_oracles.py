"""The contract of every protocol, and what is particular to each."""

import itertools
import random
import secrets
from collections import Counter
from fractions import Fraction
from math import comb

import numpy as np
import pytest
import scipy.stats

import ldp
from ldp import sampling
from ldp.oracles import ORACLES
from ldp.oracles.olh import HASHES, best_g
from ldp.oracles.subset import best_k
from tests.unit.ldp.test_sampling import exp_bracket

pytestmark = pytest.mark.statistical

CONTRACT = [
    *(ldp.GRR(epsilon, d) for epsilon, d in [("1", 1), ("0.1", 256), ("1", 257), ("4", 70_000), ("64", 3)]),
    *(ldp.OLH(epsilon, d) for epsilon, d in [("1", 1), ("1/3", 845), ("64", 12)]),
    ldp.OLH("1", 100, hash="xxh32", g=256),
    ldp.OLH("1", 100, g=257),
    ldp.OLH("1", 100, g=2),
    *(unary(epsilon, d) for unary in (ldp.OUE, ldp.SUE) for epsilon, d in [("1", 1), ("0.1", 8), ("64", 12)]),
    ldp.OUE("1/3", 845),
    *(ldp.SubsetSelection(epsilon, d) for epsilon, d in [("1", 2), ("1/3", 845), ("6", 300), ("64", 12)]),
    ldp.SubsetSelection("1", 16, k=15),
    *(ldp.HadamardResponse(epsilon, d) for epsilon, d in [("1", 1), ("1", 255), ("1/3", 256), ("64", 7)]),
    *(ldp.PGR(epsilon, d) for epsilon, d in [("1", 1), ("0.1", 255), ("64", 7)]),
    ldp.PGR("1", 300, prime=257, dimension=3),
    *(
        pytest.param(oracle, marks=pytest.mark.long)
        for oracle in (
            ldp.OUE("4", 70_001),
            ldp.SUE("4", 70_001),
            ldp.SubsetSelection("7", 70_000),
            ldp.HadamardResponse("4", 70_000),
        )
    ),
]
over_all = pytest.mark.parametrize("oracle", CONTRACT, ids=repr)


def supported(oracle, report):
    """The values that a report supports, by the protocol's definition."""
    domain = range(oracle.domain_size)
    match report.dtype.names:
        case ("seed", "bucket"):
            seed, bucket = report.tolist()
            return {v for v in domain if HASHES[oracle.hash](seed, v, oracle.g) == bucket}
        case ("bits",):
            return {v for v in domain if report["bits"][v // 8] >> v % 8 & 1}
        case ("indices",):
            return set(report["indices"].tolist())
    index = int(report["index"])
    return {index} if oracle.name == "grr" else {v for v in domain if SUPPORTS[oracle.name](oracle, index, v)}


# whether an index supports a value, for protocols that define this only by arithmetic
SUPPORTS = {
    "hadamard": lambda oracle, index, v: f"{index & v + 1:b}".count("1") % 2 == 0,
    "pgr": lambda oracle, index, v: (
        sum(a * b for a, b in zip(coordinates(oracle, index), coordinates(oracle, v), strict=True))
        % oracle.prime
        == 0
    ),
}


def coordinates(oracle, index):
    """A point of the projective space: first come those with the most zeros before their first 1."""
    for rest in range(oracle.dimension):
        if index < oracle.prime**rest:
            digits = [index // oracle.prime**k % oracle.prime for k in reversed(range(rest))]
            return [0] * (oracle.dimension - 1 - rest) + [1, *digits]
        index -= oracle.prime**rest
    raise AssertionError("no such point")


@pytest.fixture
def seeded_system(monkeypatch):
    """The exact path, with a seeded source in the system's place: a statistical test must not vary."""
    words = np.random.default_rng(20200223)
    numbers = random.Random(20200223)
    monkeypatch.setattr(sampling, "system_words", lambda n: words.integers(1 << 64, size=n, dtype=np.uint64))
    monkeypatch.setattr(secrets, "randbelow", numbers.randrange)
    monkeypatch.setattr(secrets, "randbits", numbers.getrandbits)


def test_every_protocol_is_tested_by_the_contract():
    assert {type(oracle) for oracle in CONTRACT} >= set(ORACLES.values())


@over_all
def test_parameters_reproduce_the_oracle(oracle):
    parameters = oracle.parameters()
    protocol = parameters.pop("protocol")
    again = ldp.oracle(protocol, **parameters)
    assert again == oracle
    assert hash(again) == hash(oracle)
    assert eval(repr(oracle), {protocol.__name__: protocol for protocol in ORACLES.values()}) == oracle
    assert again != ldp.oracle(protocol, **parameters | {"epsilon": "7/5"})
    assert oracle != "oracle"


@over_all
def test_probabilities_are_exact_and_of_the_lower_exponential(oracle):
    assert isinstance(oracle.p, Fraction)
    assert isinstance(oracle.q, Fraction)
    half = sampling.exp_below(oracle.epsilon / 2)
    assert (half * half if oracle.name == "sue" else sampling.exp_below(oracle.epsilon)) == oracle.E
    assert 0 < oracle.q < oracle.p <= 1


@over_all
def test_a_report_is_packed_little_endian_in_minimal_size(oracle):
    dtype = oracle.report_dtype
    assert dtype.names == tuple(oracle.fields)
    assert dtype.itemsize == sum(dtype[name].itemsize for name in dtype.names)
    for name, bound in oracle.fields.items():
        assert dtype[name].shape == (() if oracle.length is None else (oracle.length,))
        bits = 8 * dtype[name].base.itemsize
        assert dtype[name].base == np.dtype(f"<u{bits // 8}")
        assert bits == next(b for b in (8, 16, 32) if bound - 1 < 2**b)


@over_all
def test_perturb_returns_one_valid_report_per_value(oracle):
    d = min(oracle.domain_size, 256)
    values = [v % d for v in (0, 1, d - 1, 5, 7, d // 2)] * 20
    for given in (values, *(np.array(values, kind) for kind in (np.int64, np.uint8))):
        for rng in (None, np.random.default_rng(1)):
            reports = oracle.perturb(given, rng=rng)
            assert reports.dtype == oracle.report_dtype
            assert reports.shape == (120,)
            assert oracle.check(reports).all()
            assert oracle.perturb([], rng=rng).shape == (0,)


@over_all
def test_perturb_is_reproducible_only_with_a_generator(oracle):
    values = np.arange(400) % oracle.domain_size
    same = [oracle.perturb(values, rng=np.random.default_rng(1)).tobytes() for _ in range(2)]
    assert same[0] == same[1]
    if oracle.domain_size > 1 and float(oracle.p) < 0.99:
        assert oracle.perturb(values).tobytes() != oracle.perturb(values).tobytes()


@over_all
def test_perturb_one_returns_the_fields_of_a_report(oracle):
    for value in {0, oracle.domain_size - 1, np.int64(oracle.domain_size // 2)}:
        report = oracle.perturb_one(value)
        assert [type(number) for number in report] == [int] * (oracle.length or len(oracle.fields))
        wire = oracle.pack(report)
        assert len(wire) == oracle.report_dtype.itemsize
        (unpacked,) = np.frombuffer(wire, oracle.report_dtype)
        assert tuple(np.hstack([unpacked[name] for name in oracle.fields]).tolist()) == report
        assert oracle.check(np.array([unpacked])).all()
        with pytest.raises(ValueError, match="argument"):
            oracle.pack((*report, 0))


@over_all
def test_bad_values_are_refused(oracle):
    for values, error in (
        ([0.0], TypeError),
        ([True], TypeError),
        (["0"], TypeError),
        ([None], TypeError),
        ([2**70], TypeError),
        ([0, -1], ValueError),
        ([1 << 24], ValueError),
        ([[0]], ValueError),
        (0, TypeError),
    ):
        for rng in (None, np.random.default_rng(1)):
            with pytest.raises(error, match="value"):
                oracle.perturb(values, rng=rng)
    with pytest.raises(TypeError, match="rng"):
        oracle.perturb([0], rng=42)
    for value in (0.0, True, "0", None, np.float64(0), np.array([0, 0])):
        with pytest.raises(TypeError, match="value must be an integer"):
            oracle.perturb_one(value)
    for value in (-1, oracle.domain_size):
        with pytest.raises(ValueError, match=f"value is {value}; allowed is 0 to {oracle.domain_size - 1}"):
            oracle.perturb_one(value)


@over_all
def test_counts_match_the_defined_supports(oracle):
    n = 60
    reports = oracle.perturb(np.arange(n) % oracle.domain_size, rng=np.random.default_rng(2))
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
def test_states_of_parts_add_up(oracle):
    reports = oracle.perturb(np.arange(5000) % oracle.domain_size, rng=np.random.default_rng(3))
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
    reports = oracle.perturb(np.arange(200) % oracle.domain_size, rng=np.random.default_rng(4))
    expected, state = oracle.zeros(), oracle.zeros()
    oracle.accumulate(expected, reports[::2].copy())
    frozen = np.frombuffer(reports.tobytes(), oracle.report_dtype)[::2]
    oracle.accumulate(state, frozen)
    assert (state == expected).all()


@over_all
def test_malformed_reports_are_refused(oracle):
    for name, bound in oracle.fields.items():
        for wrong in malformed(oracle, name, bound):
            reports = oracle.perturb(np.zeros(4, int))
            reports[name][[1, 3]] = wrong
            assert oracle.check(reports).tolist() == [True, False, True, False]
            with pytest.raises(ValueError, match="report 1 is malformed"):
                oracle.accumulate(oracle.zeros(), reports)
            with pytest.raises(ValueError, match=r"^2 of 4 reports are malformed, at 1, 3; "):
                oracle.estimate_reports(reports)


def malformed(oracle, name, bound):
    """Invalid values of a field."""
    d, most = oracle.domain_size, np.iinfo(oracle.report_dtype[name].base).max
    if name == "indices":
        yield np.arange(oracle.k)[::-1] if oracle.k > 1 else most  # descending
        yield [*range(oracle.k - 1), max(oracle.k - 2, 0)] if oracle.k > 1 else d  # the last one twice
        if d <= most:
            yield [*range(oracle.k - 1), d]
            yield [*range(oracle.k - 1), most]
    elif name == "bits":
        full = np.zeros(8 * oracle.length, bool)
        size = oracle.k if oracle.name == "subset" else d
        full[:size] = True
        for v in range(d, full.size):  # a padding bit, instead of another bit and in addition
            yield np.packbits(np.where(np.arange(full.size) == v, True, full), bitorder="little")
            yield np.packbits(np.roll(full, 1) if v == size else np.arange(full.size) == v, bitorder="little")
        if oracle.name == "subset":
            yield np.packbits(np.arange(full.size) < size - 1, bitorder="little")
            yield np.packbits(np.arange(full.size) < size + 1, bitorder="little")
    elif bound <= most:
        yield bound
        yield most


@over_all
def test_other_arrays_are_refused(oracle):
    reports = oracle.perturb([0])
    for call in (
        oracle.check,
        lambda wrong: oracle.accumulate(oracle.zeros(), wrong),
    ):
        for wrong in (reports.view(np.uint8), np.zeros(1), [(0,)], np.zeros(1, [("x", "<u8")])):
            with pytest.raises(TypeError, match="reports must be an array"):
                call(wrong)
    with pytest.raises(ValueError, match="one dimension"):
        oracle.check(reports.reshape(1, 1))
    frozen = oracle.zeros()
    frozen.flags.writeable = False
    for call in (lambda state: oracle.accumulate(state, reports), oracle.support):
        for wrong in (oracle.zeros().astype(float), oracle.zeros().astype(np.int32), [0]):
            with pytest.raises(TypeError, match="state"):
                call(wrong)
        with pytest.raises(ValueError, match="state"):
            call(np.zeros(oracle.state_size + 1, np.int64))
    with pytest.raises(ValueError, match="writable"):
        oracle.accumulate(frozen, reports)


@over_all
def test_estimate_inverts_the_expected_counts(oracle):
    n = 1000
    users = np.random.default_rng(5).multinomial(n, np.full(oracle.domain_size, 1 / oracle.domain_size))
    counts = oracle.simulate(users, np.random.default_rng(6))
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
def test_estimate_refuses_impossible_counts(oracle):
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


@pytest.mark.parametrize(
    ("oracle", "counts", "n", "says"),
    [
        (
            ldp.GRR("1", 4),
            [1, 2, 3, 5],
            10,
            "sum to 11; each report supports one value: the sum must be n = 10",
        ),
        (ldp.GRR("1", 2), [1 << 62, 1 << 62], (1 << 62) + 5, f"sum to {1 << 63}"),
        (
            ldp.SubsetSelection("1", 6, k=2),
            [4, 4, 4, 4, 3, 2],
            10,
            "sum to 21; .*k = 2 .*must be k·n = 20",
        ),
        # the first value's count is how many messages have a last coordinate of 0; three values' are n or 3n in all
        (ldp.HadamardResponse("1", 3), [5, 5, 1], 10, r"sum to 11; .* allowed is 10 \+ j·2 for j = 0 to 5"),
        (ldp.HadamardResponse("1", 3), [2, 10, 10], 10, "sum to 22; each report supports 1 or all"),
        (ldp.PGR("1", 13, prime=3, dimension=3), [400] * 13, 1000, r"5200; .*4000 \+ j·9 for j = 0 to 0"),
    ],
)
def test_unreachable_counts_are_refused(oracle, counts, n, says):
    with pytest.raises(ValueError, match=says):
        oracle.estimate(counts, n)


SMALLEST = [
    *(ldp.GRR("1", d) for d in (1, 3)),
    ldp.SubsetSelection("1", 4, k=2),
    *(ldp.HadamardResponse("1", d) for d in (1, 3, 6)),
    *(ldp.PGR("1", d, prime=2, dimension=3) for d in (1, 3, 6)),
    ldp.PGR("1", 4, prime=3, dimension=2),
]


@pytest.mark.slow
@pytest.mark.parametrize("oracle", SMALLEST, ids=repr)
def test_reachable_counts_are_accepted(oracle):
    """Checks all sets of three reports; for GRR and Subset Selection no other counts pass."""
    d, n = oracle.domain_size, 3
    every = np.unique([oracle.perturb([v % d])[0] for v in range(60 * d)])
    possible = set()
    for some in itertools.combinations_with_replacement(every, n):
        state = oracle.zeros()
        oracle.accumulate(state, np.array(some))
        counts = oracle.support(state)
        assert oracle.estimate(counts, n).n == n
        possible.add(tuple(counts.tolist()))
    passed = set()
    for counts in itertools.product(range(n + 1), repeat=d):
        try:
            oracle.estimate(np.array(counts), n)
        except ValueError:
            continue
        passed.add(counts)
    assert possible <= passed
    if oracle.name in ("grr", "subset"):
        assert possible == passed


@over_all
def test_estimate_reports_equals_accumulate_support_and_estimate(oracle):
    reports = oracle.perturb(np.arange(50) % oracle.domain_size, rng=np.random.default_rng(7))
    state = oracle.zeros()
    oracle.accumulate(state, reports)
    made = oracle.estimate_reports(reports)
    assert made.n == 50
    assert made.frequencies.tolist() == oracle.estimate(oracle.support(state), 50).frequencies.tolist()
    with pytest.raises(TypeError, match="reports must be an array"):
        oracle.estimate_reports([0, 1])
    with pytest.raises(ValueError, match="n is 0"):
        oracle.estimate_reports(reports[:0])


@pytest.mark.parametrize("exact", [True, False], ids=["exact", "simulated"])
@pytest.mark.parametrize(
    "oracle",
    [
        ldp.GRR("1", 7),
        ldp.OLH("0.5", 12, hash="xxh32"),
        ldp.OLH("4", 12),
        ldp.OUE("1", 9),
        ldp.SUE("0.5", 30),
        ldp.SubsetSelection("4", 30),
        ldp.SubsetSelection("1", 6, k=5),
        ldp.HadamardResponse("1", 9),
        ldp.PGR("1", 12),
    ],
    ids=repr,
)
def test_reports_support_their_value_with_p_and_others_with_q(oracle, exact, seeded_system):
    n = 20_000
    rng = None if exact else np.random.default_rng(6)
    value = oracle.domain_size // 2
    state = oracle.zeros()
    oracle.accumulate(state, oracle.perturb(np.full(n, value), rng=rng))
    for v, count in enumerate(oracle.support(state)):
        p = float(oracle.p if v == value else oracle.q)
        assert abs(count - n * p) <= 6 * (n * p * (1 - p)) ** 0.5  # false alarm below 1e-6 over all values


def law(monkeypatch, oracle, value, seeds=()):
    """The exact law of a report, for each seed where there is one, from the rationals that the sampler uses."""
    weights, path = Counter(), []  # the draws so far: the chosen outcome, and the possible ones
    at, weight = 0, Fraction(1)

    def draw(outcomes):
        nonlocal at, weight
        if at == len(path):
            path.append([0, list(outcomes())])
        taken, among = path[at]
        at += 1
        weight *= among[taken][1]
        return among[taken][0]

    def integer(bound):
        if bound == 1 << 32:
            return draw(lambda: ((seed, Fraction(1)) for seed in seeds))
        return draw(lambda: ((k, Fraction(1, bound)) for k in range(bound)))

    def mask(p, n):
        weighted = [p**k * (1 - p) ** (n - k) for k in range(n + 1)]
        return draw(lambda: ((word, weighted[word.bit_count()]) for word in range(1 << n)))

    monkeypatch.setattr(sampling, "coin", lambda p: draw(lambda: [(True, p), (False, 1 - p)]))
    monkeypatch.setattr(sampling, "integer", integer)
    monkeypatch.setattr(sampling, "mask", mask)
    while True:
        at, weight = 0, Fraction(1)
        weights[oracle.perturb_one(value)] += weight
        while path and path[-1][0] + 1 == len(path[-1][1]):
            path.pop()
        if not path:
            return weights
        path[-1][0] += 1


@pytest.mark.parametrize("epsilon", ["0.1", "4"])
@pytest.mark.parametrize("d", [1, 2, 5])
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


@pytest.mark.slow
@pytest.mark.parametrize("hash_name", HASHES)
@pytest.mark.parametrize(("epsilon", "g", "d"), [("0.1", 2, 4), ("1", 4, 3), ("1", None, 2)])
def test_privacy_of_olh_over_every_class_of_hash_functions(monkeypatch, hash_name, epsilon, g, d):
    oracle = ldp.OLH(epsilon, d, hash=hash_name, g=g)
    classes = {}  # the buckets of all values -> one seed
    for seed in range(2000):
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


@pytest.mark.parametrize("epsilon", ["0.1", "4"])
@pytest.mark.parametrize("name", ["oue", "sue", "subset", "hadamard", "pgr"])
@pytest.mark.parametrize("d", [1, 2, 5])
def test_privacy_by_enumeration(monkeypatch, name, epsilon, d):
    """The ratio of every two users' probabilities for every report: exactly E at most, and E is below e^ε."""
    if name == "subset" and d == 1:
        return
    oracle = ldp.oracle(name, epsilon, d)
    low, _ = exp_bracket(oracle.epsilon)
    assert 1 < oracle.E < low
    laws = [law(monkeypatch, oracle, value) for value in range(d)]
    supports = {report: supported(oracle, unpacked(oracle, report)) for report in laws[0]}
    number = {
        "subset": comb(d, getattr(oracle, "k", 0)),
        "hadamard": oracle.state_size,
        "pgr": oracle.state_size,
    }
    assert len(supports) == number.get(name, 2**d)
    for value, reports in enumerate(laws):
        assert reports.keys() == supports.keys()
        assert sum(reports.values()) == 1
        for other in range(d):
            probability = sum(weight for report, weight in reports.items() if other in supports[report])
            assert probability == (oracle.p if other == value else oracle.q)
    ratios = {a[report] / b[report] for a, b in itertools.permutations(laws, 2) for report in a}
    assert max(ratios, default=oracle.E) == oracle.E
    assert min(ratios, default=1 / oracle.E) == 1 / oracle.E


def unpacked(oracle, report):
    return np.frombuffer(oracle.pack(report), oracle.report_dtype)[0]


@pytest.mark.parametrize("epsilon", ["1/1000000", "1", "2.5", "64"])
def test_e_of_sue_is_certified(epsilon):
    """H is the largest multiple below e^(ε/2)."""
    oracle = ldp.SUE(epsilon, 10)
    half = oracle.p / oracle.q
    assert (half * 2**64).denominator == 1
    assert half**2 == oracle.E
    low, high = exp_bracket(oracle.epsilon)
    assert low > oracle.E
    assert high < (half + Fraction(1, 2**64)) ** 2


@pytest.mark.parametrize("hash_name", HASHES)
@pytest.mark.parametrize("rng", [None, np.random.default_rng(1)], ids=["exact", "simulated"])
def test_arrays_perturb_the_hash_under_the_reported_seed(monkeypatch, hash_name, rng):
    oracle = ldp.OLH("1", 2000, hash=hash_name, g=300)
    monkeypatch.setattr(sampling, "responses", lambda symbols, m, E, rng: symbols)
    values = np.arange(2000)
    reports = oracle.perturb(values, rng=rng)
    expected = [HASHES[hash_name](int(s), int(v), 300) for s, v in zip(reports["seed"], values, strict=True)]
    assert reports["bucket"].tolist() == expected
    assert np.unique(reports["seed"]).size > 1990


@pytest.mark.parametrize("rng", [None, np.random.default_rng(1)], ids=["exact", "simulated"])
def test_arrays_draw_with_the_same_probabilities(monkeypatch, rng):
    """The array path takes from `sampling` what the path of one value takes, whose law is enumerated above."""
    asked = []
    heads = {True: np.ones, False: np.zeros}
    monkeypatch.setattr(
        sampling, "coins", lambda p, n, rng: asked.append(("coins", p)) or heads[own](n, bool)
    )
    monkeypatch.setattr(
        sampling,
        "masks",
        lambda p, m, n, rng: asked.append(("masks", p, m)) or np.full((n, -(-m // 8)), 0b1010, np.uint8),
    )
    monkeypatch.setattr(
        sampling, "integers", lambda bound, n, rng: asked.append(("integers", bound)) or np.arange(n)
    )
    for oracle in (ldp.OUE("1", 4), ldp.SUE("1", 4)):
        for own in (True, False):
            bits = oracle.perturb([0, 1, 2, 3], rng=rng)["bits"][:, 0].tolist()
            assert bits == ([0b1011, 0b1010, 0b1110, 0b1010] if own else [0b1010, 0b1000, 0b1010, 0b0010])
            assert sorted(asked) == [("coins", oracle.p), ("masks", oracle.q, 4)]
            asked.clear()
    oracle = ldp.HadamardResponse("1", 7)
    for own in (True, False):
        for value in range(7):
            columns = oracle.perturb(np.full(8, value), rng=rng)["index"].tolist()
            # each column of the half that was chosen, twice
            half = [j for j in range(8) if SUPPORTS["hadamard"](oracle, j, value) == own]
            assert sorted(columns) == sorted(half * 2)
            assert sorted(asked) == [("coins", oracle.p), ("integers", 8)]
            asked.clear()


def test_best_k_has_the_least_variance():
    """Against a search over every size, in exact rationals; in places it is not the integer nearest to d/(E+1)."""
    others = 0
    for step in range(2, 120, 9):
        epsilon = Fraction(step, 20)
        for d in (2, 3, 7, 25):
            E = sampling.exp_below(epsilon)
            oracles = [ldp.SubsetSelection(epsilon, d, k=k) for k in range(1, d)]
            variance = {o.k: o.q * (1 - o.q) / (o.p - o.q) ** 2 for o in oracles}
            assert best_k(E, d) == min(variance, key=variance.get)
            others += best_k(E, d) != min(max(round(d / (E + 1)), 1), d - 1)
    assert others > 0


def test_a_subset_has_the_smaller_form():
    for d, k, name, size in [
        (80, 10, "indices", 10),
        (80, 11, "bits", 10),
        (256, 32, "indices", 32),
        (256, 33, "bits", 32),
        (257, 16, "indices", 32),
        (257, 17, "bits", 33),
        (70_000, 2187, "indices", 8748),
        (70_000, 2188, "bits", 8750),
    ]:
        dtype = ldp.SubsetSelection("1", d, k=k).report_dtype
        assert dtype.names == (name,)
        assert dtype.itemsize == size


def test_hadamard_decoding_matches_the_matrix():
    """Against the matrix built by doubling, for states of all sizes, with entries that no 32 bits hold."""
    rng = np.random.default_rng(8)
    for d in (1, 2, 7, 8, 100):
        oracle = ldp.HadamardResponse("1", d)
        matrix = np.ones((1, 1), np.int64)
        while len(matrix) <= d:
            matrix = np.block([[matrix, matrix], [matrix, -matrix]])
        assert len(matrix) == oracle.state_size
        state = rng.integers(1 << 45, size=oracle.state_size)
        expected = [int(state[matrix[v + 1] == 1].sum()) for v in range(d)]
        assert oracle.support(state).tolist() == expected
        # every (message, value) pair
        for message in range(oracle.state_size):
            one = oracle.zeros()
            one[message] = 1
            assert oracle.support(one).tolist() == (matrix[1 : d + 1, message] == 1).tolist()


def test_best_g_has_the_least_variance():
    """Against a search, in exact rationals, for q(1−q)/(p−q)², also where round(E)+1 is another number."""
    others = 0
    for k in range(2, 180, 5):
        E = sampling.exp_below(Fraction(k, 50))
        variance = {g: Fraction(g - 1, g * g) / (E / (E + g - 1) - Fraction(1, g)) ** 2 for g in range(2, 45)}
        assert best_g(E) == min(variance, key=variance.get)
        others += best_g(E) != round(E) + 1
    assert others > 0


@pytest.mark.parametrize(
    ("name", "arguments", "error", "says"),
    [
        ("rappor", {}, ValueError, "allowed are grr, olh, oue, sue, subset, hadamard, pgr"),
        ("grr", {"epsilon": 1.0}, TypeError, "float"),
        ("grr", {"domain_size": 0}, ValueError, "domain_size is 0"),
        ("olh", {"domain_size": "7"}, TypeError, "domain_size"),
        ("olh", {"g": 1}, ValueError, "g is 1"),
        ("olh", {"g": 65537}, ValueError, "g is 65537"),
        ("olh", {"g": 4.0}, TypeError, "g must be"),
        ("olh", {"hash": "md5"}, ValueError, "mul32, xxh32"),
        ("grr", {"g": 4}, TypeError, "g"),
        ("sue", {"epsilon": Fraction(1, 2**64)}, ValueError, "too small"),
        ("subset", {"domain_size": 1}, ValueError, "domain_size is 1; allowed is 2 to"),
        ("subset", {"k": 10}, ValueError, "k is 10; allowed is 1 to 9"),
        ("subset", {"k": 2.0}, TypeError, "k must be"),
    ],
)
def test_bad_parameters_are_refused(name, arguments, error, says):
    with pytest.raises(error, match=says):
        ldp.oracle(name, **({"epsilon": "1", "domain_size": 10} | arguments))


def test_every_public_name_exists():
    for name in ldp.__all__:
        assert getattr(ldp, name) is not None
    assert set(dir(ldp)) == set(ldp.__all__)
    with pytest.raises(AttributeError, match="nothing"):
        _ = ldp.nothing


@pytest.mark.parametrize("protocol", [ldp.OUE, ldp.SUE])
@pytest.mark.parametrize("epsilon", ["1/100", "1", "64"])
def test_unlikely_weights_by_the_exact_law_of_small_domains(protocol, epsilon):
    """The law is convolved bit by bit, in exact fractions."""
    beyond = Fraction(5, 10**13)
    law = {}
    for d in range(1, 35):
        oracle = protocol(epsilon, domain_size=d)
        chance = oracle.p if d == 1 else oracle.q
        before = law or {0: Fraction(1)}
        law = {
            k: before.get(k, 0) * (1 - chance) + before.get(k - 1, 0) * chance for k in range(max(before) + 2)
        }
        assert sum(law.values()) == 1
        low, high = oracle.weight_bounds
        assert sum(law[k] for k in range(low)) <= beyond < sum(law[k] for k in range(low + 1))
        assert sum(law[k] for k in range(high + 1, d + 1)) <= beyond < sum(law[k] for k in range(high, d + 1))


@pytest.mark.parametrize("protocol", [ldp.OUE, ldp.SUE])
@pytest.mark.parametrize("epsilon", ["1/10", "4"])
@pytest.mark.parametrize("d", [1000, 1 << 20])
def test_unlikely_weights_of_large_domains(protocol, epsilon, d):
    oracle = protocol(epsilon, domain_size=d)
    low, high = oracle.weight_bounds
    p, others = float(oracle.p), scipy.stats.binom(d - 1, float(oracle.q))

    def fewer(k):
        return (1 - p) * others.cdf(k - 1) + p * others.cdf(k - 2)

    def more(k):
        return (1 - p) * others.sf(k) + p * others.sf(k - 1)

    assert fewer(low) <= 5e-13 * (1 + 1e-6)
    assert fewer(low + 1) > 5e-13 * (1 - 1e-6)
    assert more(high) <= 5e-13 * (1 + 1e-6)
    assert more(high - 1) > 5e-13 * (1 - 1e-6)


@pytest.mark.parametrize("oracle", [ldp.OUE("1", 300), ldp.SUE("3", 333)], ids=str)
def test_honest_reports_of_every_value_are_likely(oracle):
    rng = np.random.default_rng(19)
    for values in (np.zeros(5_000, int), rng.integers(0, oracle.domain_size, 5_000)):
        reports = oracle.perturb(values, rng=rng)
        assert oracle.likely(reports).all()
        ones = np.unpackbits(reports["bits"], axis=1).sum(axis=1)
        assert oracle.weight_bounds[0] <= ones.min() <= ones.max() <= oracle.weight_bounds[1]
    made = np.zeros(oracle.domain_size + 1, oracle.report_dtype)
    for ones in range(len(made)):
        made["bits"][ones] = np.packbits(np.arange(oracle.domain_size) < ones, bitorder="little")
    low, high = oracle.weight_bounds
    assert np.flatnonzero(oracle.likely(made)).tolist() == list(range(low, high + 1))
    assert oracle.check(made).all()
