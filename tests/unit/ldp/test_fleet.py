"""Fleets of several documents: exact sums, coverage, sets, most frequent values, poisoning."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

import ldp
from ldp import poisoning, query
from ldp.analysis import changes, method_selection
from ldp.consistency import EXTRA, METHODS, normalization
from ldp.consistency.together import by_method
from ldp.fleet import Fleet
from ldp.intervals import confidence_sequence
from ldp.privacy.declaration import Declaration
from tests.long.fleets import (
    PROTOCOLS,
    by_inverse_variance,
    covered,
    difficult,
    random_fleet,
    simulated,
)


def stream(name, oracle, labels=None, **more):
    return ldp.Stream(name, oracle, labels and tuple(labels), **more)


def counted(fleet, histograms, rng):
    """The fleet's estimate, for the users of each document with each of its values."""
    return fleet.estimate(
        [
            each.oracle.estimate(each.oracle.simulate(users, rng), int(sum(users))) if sum(users) else None
            for each, users in zip(fleet.documents, histograms, strict=True)
        ]
    )


OLD = stream("colours", ldp.GRR("1", 3), ["red", "blue", "grey"])
NEW = stream(
    "colours", ldp.OUE("2", 4), ["green", "blue", "red", "pink"]
)  # one removed, two added, reordered
TINY = stream("colours", ldp.OLH("1/2", 2), ["pink", "black"])
NONE = stream("colours", ldp.SubsetSelection("1", 5), ["white", "red", "blue", "grey", "pink"])
FLEET = Fleet((OLD, NEW, NONE, TINY), frozenset({OLD.fingerprint}))
USERS = [[900, 500, 600], [700, 100, 900, 300], [0] * 5, [300, 700]]


def example(seed=1):
    return counted(FLEET, USERS, np.random.default_rng(seed))


def test_joined_labels_are_those_of_the_first_document_then_what_each_adds():
    assert FLEET.labels == ("red", "blue", "grey", "green", "pink", "white", "black")
    assert [places.tolist() for places in FLEET.places] == [[0, 1, 2], [3, 1, 0, 4], [5, 0, 1, 2, 4], [4, 6]]
    for k in range(1, 4):
        assert FLEET.labels[: Fleet(FLEET.documents[:k]).size] == Fleet(FLEET.documents[:k]).labels
    without = Fleet(
        (stream("s", ldp.GRR("1", 2)), stream("s", ldp.GRR("1", 5)), stream("s", ldp.GRR("1", 3)))
    )
    assert (without.labels, without.size) == (None, 5)


def test_frequencies_are_exactly_the_sums_over_documents():
    for seed in range(20):
        found = example(seed)
        sums, known = dict.fromkeys(FLEET.labels, Fraction(0)), dict.fromkeys(FLEET.labels, 0)
        for document, one in zip(FLEET.documents, found.estimates, strict=True):
            p, q = document.oracle.p, document.oracle.q
            for label, count in zip(
                document.labels, [] if one is None else one.counts.tolist(), strict=False
            ):
                sums[label] += (count - q * one.n) / (p - q)
                known[label] += one.n
        assert found.known.tolist() == list(known.values()) == [4000, 4000, 2000, 2000, 3000, 0, 1000]
        assert found.n == 5000
        for frequency, label in zip(found.frequencies, FLEET.labels, strict=True):
            if label == "white":  # only in the document without reports
                assert math.isnan(frequency)
            else:
                assert frequency == pytest.approx(float(sums[label] / known[label]), abs=1e-12)


def test_frequencies_are_the_mean_contribution_of_all_reports():
    rng = np.random.default_rng(2)
    streams = stream("s", ldp.GRR("1", 3), "abc"), stream("s", ldp.OUE("2", 3), "cbd")
    reports = [each.oracle.perturb(rng.integers(3, size=500), rng=rng) for each in streams]
    found = Fleet(streams).estimate(
        [each.oracle.estimate_reports(made) for each, made in zip(streams, reports, strict=True)]
    )
    contributions = {label: [] for label in "abcd"}
    for each, made in zip(streams, reports, strict=True):
        for report in made:
            state = each.oracle.zeros()
            each.oracle.accumulate(state, np.array([report]))
            for label, supported in zip(each.labels, state, strict=True):
                contributions[label].append((supported - each.oracle.q) / (each.oracle.p - each.oracle.q))
    due = [float(sum(each) / len(each)) for each in contributions.values()]
    assert found.frequencies == pytest.approx(due, abs=1e-12)


ORACLES = [
    *(ldp.oracle(name, "1", 7) for name in [*PROTOCOLS, "subset", "hadamard"]),
    ldp.OLH("1", 7, g=2),
    ldp.RAPPOR("1/2", "3/4", "1/2", 7),
]


@pytest.mark.parametrize("oracle", ORACLES, ids=repr)
def test_one_document_gives_its_own_results(oracle):
    privacy = Declaration("device", 1, "24h", "memoised", "7d") if oracle.name == "unary" else None
    one = stream("s", oracle, "abcdefg", privacy=privacy)
    fleet = Fleet((one, stream("s", ldp.GRR("1", 2), "az")))
    own = oracle.estimate(
        oracle.simulate([5000, 3000, 900, 600, 400, 100, 0], np.random.default_rng(3)), 10_000
    )
    own, found = own.declared(privacy), fleet.estimate([own, None])
    assert found.frequencies[:7].tolist() == own.frequencies.tolist()
    assert found.std_error()[:7] == pytest.approx(own.std_error(), rel=1e-12)
    for level, of in itertools.product((0.5, 0.95), ("reports", "population")):
        for end, due in zip(found.interval(level, of), own.interval(level, of), strict=True):
            assert np.clip(end[:7], 0, 1) == pytest.approx(np.clip(due, 0, 1), abs=1e-12)
            assert math.isnan(end[7])
        for values in ([2], [0, 3, 5], range(7)):
            due = np.clip(query.interval(own, values, level, of), 0, 1)
            ends = np.clip(query.interval(found, values, level, of), 0, 1)
            assert ends == pytest.approx(due, abs=1e-11)
            assert query.std_error(found, values) == pytest.approx(query.std_error(own, values), rel=1e-9)
    for name, method in (METHODS | EXTRA).items():
        assert method(found)[:7].tolist() == method(own).tolist(), name
        assert query.answer(found, [1, 6], name) == query.answer(own, [1, 6], name)
    assert query.top(found, 3).tolist() == query.top(own, 3).tolist()
    assert found.sum == pytest.approx(sum(own.frequencies), abs=1e-12)


def test_an_interval_of_two_documents_by_hand():
    """GRR with p = 3/5 and q = 1/5 has A = 1 and B = 1/2; with p = 3/4 and q = 1/4, A = 3/4 and B = 0."""
    streams = stream("s", ldp.Response("3/5", 3), "abc"), stream("s", ldp.Response("3/4", 2), "ab")
    found = Fleet(streams).estimate(
        [streams[0].oracle.estimate([36, 36, 28], 100), streams[1].oracle.estimate([150, 150], 300)]
    )
    # f̃_a is 0.4 and 0.5; w = 1/4, 3/4; V = (1 + 0.2)/4 + (3/4)·3/4 = 0.8625, B = (0.3·0.5)/0.8625
    assert found.frequencies[:2] == pytest.approx([0.475, 0.475], abs=1e-12)
    z, bend = stats.norm.isf(0.025), 0.15 / 0.8625
    low, high = found.interval()
    for end in (low[0], high[0], low[1], high[1]):
        assert (end - 0.475) ** 2 == pytest.approx(z**2 * (0.8625 + bend * (end - 0.475)) / 400, rel=1e-9)
    assert low[0] < 0.475 < high[0]
    assert found.std_error()[0] == pytest.approx(math.sqrt(0.8625 / 400), rel=1e-12)
    assert (low[2], high[2]) == pytest.approx([end[2] for end in found.estimates[0].interval()], abs=1e-12)


@pytest.mark.statistical
def test_intervals_cover_where_documents_depend_on_values_and_inverse_variance_does_not():
    rng, fleets, hits, tilted = np.random.default_rng(20_261), 250, [], []
    for _ in range(fleets):
        found, truth = simulated(*random_fleet(rng), rng)
        frequent = np.argsort(-truth)[:8]
        hits.append(covered(found, truth)[frequent].mean())
        tilted.append(by_inverse_variance(found, truth)[frequent].mean())

    def passes(shares):
        return abs(np.mean(shares) - 0.95) < 0.005 + 5 * np.std(shares) / math.sqrt(fleets)

    assert passes(hits)
    assert not passes(tilted)
    assert np.mean(tilted) < 0.6


@pytest.mark.statistical
@pytest.mark.parametrize("of", ["reports", "population"])
def test_set_intervals_cover(of):
    rng, repeats, hits = np.random.default_rng(20_262), 600, 0
    streams = stream("s", ldp.PGR("1", 7), "abcdefg"), stream("s", ldp.GRR("2", 9), "gfedcbaxy")
    shares = np.array([0.3, 0.2, 0.2, 0.1, 0.1, 0.1, 0]), np.array([0.1, 0, 0.1, 0.1, 0, 0.1, 0.5, 0.1, 0])
    for _ in range(repeats):
        new = rng.binomial(3000, 1 / 3)  # users have either document by chance
        users = [rng.multinomial(n, share) for n, share in zip((3000 - new, new), shares, strict=True)]
        found = counted(Fleet(streams), users, rng)
        truth = (
            0.6 * 2 / 3 + 0.6 / 3
            if of == "population"
            else (users[0][[0, 2, 4]].sum() + users[1][[2, 4, 6]].sum()) / 3000
        )
        low, high = query.interval(found, ["a", "c", "e"], 0.9, of)
        hits += low <= truth <= high
    assert hits == pytest.approx(0.9 * repeats, abs=5.5 * math.sqrt(0.09 * repeats) + 6)


DAILY = Declaration("device", 1, "24h", "fresh", "30d")
TWO_STAGE = Declaration("device", 1, "24h", "memoised", "30d")


def test_a_label_of_one_document_has_its_interval_whatever_devices_send_with_others():
    many, once = stream("s", ldp.GRR("4", 3), "abc", privacy=DAILY), stream("s", ldp.GRR("1", 3), "abx")
    found = Fleet((many, once)).estimate(
        [many.oracle.estimate([40, 30, 30], 100), once.oracle.estimate([400, 400, 200], 1000)]
    )
    for of, (one, own, joined) in itertools.product(
        ("reports", "population"), ((found.estimates[0], 2, 2), (found.estimates[1], 2, 3))
    ):
        due = np.clip([end[own] for end in one.interval(0.9, of)], 0, 1)
        ends = [end[joined] for end in found.interval(0.9, of)], query.interval(found, [joined], 0.9, of)
        for found_ends in ends:
            assert np.clip(found_ends, 0, 1) == pytest.approx(due, abs=1e-9)


def two_stage(devices, k, rng):
    """Counts of k reports of each device with RAPPOR: permanent bits, then fresh noise."""
    permanent = [rng.binomial(u, 3 / 4) + rng.binomial(devices.sum() - u, 1 / 4) for u in devices]
    return np.array(
        [rng.binomial(k * x, 3 / 4) + rng.binomial(k * (devices.sum() - x), 1 / 2) for x in permanent]
    )


@pytest.mark.statistical
@pytest.mark.parametrize(
    ("oracle", "privacy"), [(ldp.GRR("4", 4), DAILY), (ldp.RAPPOR("1/2", "3/4", "1/2", 4), TWO_STAGE)]
)
@pytest.mark.parametrize("of", ["reports", "population"])
def test_intervals_cover_if_devices_of_a_document_have_several_reports(oracle, privacy, of):
    """Devices with the first document have 30 reports, and devices with the second have one."""
    rng, runs, k, sizes = np.random.default_rng(20_264), 600, 30, (1000, 30_000)
    first, second = stream("s", oracle, "abcd", privacy=privacy), stream("s", ldp.GRR("3", 4), "abcd")
    fleet, hits, widths = Fleet((first, second)), np.zeros(5), []
    shares = np.array([0.4, 0.3, 0.2, 0.1]), np.array([0.1, 0.2, 0.3, 0.4])
    for _ in range(runs):
        users = [rng.multinomial(n, share) for n, share in zip(sizes, shares, strict=True)]
        counts = two_stage(users[0], k, rng) if privacy.memoised else oracle.simulate(k * users[0], rng)
        found = fleet.estimate(
            [
                oracle.estimate(counts, k * sizes[0]),
                second.oracle.estimate(second.oracle.simulate(users[1], rng), sizes[1]),
            ]
        )
        truth = np.mean(shares if of == "population" else [users[0] / sizes[0], users[1] / sizes[1]], axis=0)
        low, high = found.interval(of=of)
        ends = query.interval(found, [0, 2], of=of)
        hits += [*((low <= truth) & (truth <= high)), ends[0] <= truth[[0, 2]].sum() <= ends[1]]
        widths.append(high - low)
    assert (hits >= 0.95 * runs - 5.5 * math.sqrt(0.0475 * runs)).all()
    assert (hits[:4] <= 0.995 * runs).any()  # not the variance of 30 reports of each device


@pytest.mark.statistical
@pytest.mark.parametrize("name", difficult())
def test_intervals_of_difficult_fleets_cover(name):
    rng, runs, hits = np.random.default_rng(20_265), 300, 0.0
    parts = difficult()[name]
    fleet = Fleet(tuple(stream("s", oracle) for oracle, _, _ in parts))
    users = [rng.multinomial(n, shares / shares.sum()) for _, n, shares in parts]
    for _ in range(runs):
        found, truth = simulated(fleet, users, rng)
        hits += covered(found, truth)[np.argsort(-truth)[:10]].mean()
        channels = [(float(oracle.p), float(oracle.q)) for oracle, _, _ in parts]
        largest = found.mixture(
            np.full(oracle.domain_size, max(p * (1 - p), q * (1 - q)) / (p - q) ** 2)
            for (oracle, _, _), (p, q) in zip(parts, channels, strict=True)
        )
        low, high = found.interval()
        assert (
            np.maximum(high - found.frequencies, found.frequencies - low) ** 2
            <= 3.8415 * largest / found.known
        ).all()
    assert hits / runs == pytest.approx(0.95, abs=0.005 + 5.5 * math.sqrt(0.0475 / runs))


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    "names", [*itertools.combinations(["grr", "oue", "sue", "subset", "hadamard", "olh", "pgr"], 2)]
)
def test_results_are_finite_for_the_largest_and_smallest_epsilon(names):
    rng = np.random.default_rng(7)
    for epsilons, sizes in itertools.product(
        [("64", "64"), ("64", "1/1000000"), ("40", "64")], [(1, 10**6), (10**6, 1)]
    ):
        pairs = zip(names, epsilons, strict=True)
        fleet = Fleet(tuple(stream("s", ldp.oracle(name, epsilon, 3)) for name, epsilon in pairs))
        found = counted(fleet, [[n, 0, 0] for n in sizes], rng)
        ends = [*found.interval(), *found.interval(of="population"), *found.anytime_interval()]
        for subset in ([1], [0, 2], [0, 1, 2]):
            anytime = query.anytime_interval(found, subset)
            assert anytime[0] - 1e-9 <= (0 in subset) <= anytime[1] + 1e-9
            ends += [query.interval(found, subset), query.interval(found, subset, of="population"), anytime]
        assert np.isfinite(np.concatenate(ends)).all()


CHANNELS = [ldp.Response("1/2", 4), ldp.Unary("1/2", "1/5", 4)]


@pytest.mark.parametrize("subset", [["a"], ["a", "b"]])
@pytest.mark.parametrize("users", [[(9, 3), (10, 6)], [(0, 12), (15, 0)], [(30, 5), (0, 1)]])
def test_anytime_intervals_miss_with_at_most_their_risk(users, subset):
    """Enumerates all counts of one n."""
    fleet = Fleet(tuple(stream("s", each, "abcd") for each in CHANNELS))
    m, laws = len(subset), []
    for oracle, (without, having) in zip(CHANNELS, users, strict=True):
        if oracle.name == "response":  # a report supports one value
            own = stats.binom(having, float(oracle.p + (m - 1) * oracle.q)).pmf(np.arange(having + 1))
            other = stats.binom(without, float(m * oracle.q)).pmf(np.arange(without + 1))
        else:
            own = np.convolve(
                stats.binom(having, 0.5).pmf(np.arange(having + 1)),
                stats.binom(having * (m - 1), 0.2).pmf(np.arange(having * (m - 1) + 1)),
            )
            other = stats.binom(without * m, 0.2).pmf(np.arange(without * m + 1))
        laws.append(np.convolve(own, other))
    n = [sum(each) for each in users]
    truth, missed = sum(having for _, having in users) / sum(n), np.zeros(2)
    for totals in np.ndindex(*(law.size for law in laws)):
        chance = math.prod(law[total] for law, total in zip(laws, totals, strict=True))
        if chance < 1e-7:
            continue
        estimates = []
        for oracle, total, reports in zip(CHANNELS, totals, n, strict=True):
            first = min(total, reports)
            counts = np.array([first, total - first, 0, 0])
            if oracle.name == "response":
                counts[-1] = reports - total
            estimates.append(oracle.estimate(counts, reports) if reports else None)
        low, high = query.anytime_interval(fleet.estimate(estimates), subset, 0.5)
        missed += chance * np.array([low > truth, high < truth])
    assert (missed <= 0.25).all()


@pytest.mark.statistical
def test_anytime_intervals_hold_at_all_looks_while_documents_and_shares_change():
    rng, runs, missed, widths = np.random.default_rng(20_263), 60, np.zeros(2), []
    streams = tuple(stream("s", ldp.oracle(name, "1", 20)) for name in ("oue", "grr", "olh"))
    fleet, subset = Fleet(streams), [0, 4, 5]
    for _ in range(runs):
        users, counts = np.zeros((3, 20), int), np.zeros((3, 20), int)
        outside = np.zeros(2, bool)
        for look in range(30):
            speed = np.array([1.2 ** (30 - look), 30, 1.2**look]) + 20  # the last document replaces the first
            for row, (each, n) in enumerate(zip(streams, speed.astype(int), strict=True)):
                new = rng.multinomial(n, rng.dirichlet(1 / np.arange(1 + row, 21 + row)))
                users[row] += new
                counts[row] += each.oracle.simulate(new, rng)
            parts = [
                each.oracle.estimate(count, int(n))
                for each, count, n in zip(streams, counts, users.sum(axis=1), strict=True)
            ]
            found, truth = fleet.estimate(parts), users.sum(axis=0) / users.sum()
            for place, (values, share) in enumerate((([0], truth[0]), (subset, truth[subset].sum()))):
                low, high = query.anytime_interval(found, values)
                outside[place] |= not low <= share <= high
        missed += outside
        ends = np.array([query.anytime_interval(found, subset), query.interval(found, subset)])
        widths.append(np.diff(ends)[0, 0] / np.diff(ends)[1, 0])
    assert (missed <= 0.05 * runs + 5.5 * math.sqrt(0.0475 * runs)).all()
    assert np.mean(widths) < 2.3


def test_methods_are_mixtures_of_each_documents_own_result():
    found, names = example(), [*METHODS]
    vectors = by_method(found, iter(names))
    for name in names:
        due = np.zeros(7)
        for one, places in zip(found.estimates, FLEET.places, strict=True):
            if one is not None:
                due[places] += one.n / np.maximum(found.known[places], 1) * METHODS[name](one)
        assert np.array_equal(vectors[name], METHODS[name](found), equal_nan=True)
        assert vectors[name] == pytest.approx(np.where(found.known, due, np.nan), abs=1e-15, nan_ok=True)
    assert np.nanmin(vectors["norm-sub"]) >= 0


def test_the_sum_exceeds_one_by_what_other_users_could_not_report():
    streams = stream("s", ldp.GRR("1", 2), "ab"), stream("s", ldp.GRR("2", 3), "abc")  # each sums to 1
    found = counted(Fleet(streams), [[300, 300], [100, 100, 200]], np.random.default_rng(5))
    assert found.sum == pytest.approx(1 + found.frequencies[2] * 600 / 1000, abs=1e-12)


def test_sets_use_the_documents_that_have_every_label():
    found = example()
    old, new, _, tiny = found.estimates
    both = query.answer(found, ["blue", "red"], "base")
    assert both == pytest.approx(0.5 * (sum(old.frequencies[:2]) + sum(new.frequencies[1:3])), abs=1e-12)
    for subset, one, own in (
        (["grey", "red"], old, [2, 0]),
        (["pink", "green"], new, [3, 0]),
        (["black"], tiny, [1]),
    ):
        for name in METHODS:
            assert query.answer(found, subset, name) == query.answer(one, own, name)
        assert query.interval(found, subset) == pytest.approx(query.interval(one, own), abs=1e-12)
        assert query.std_error(found, subset) == pytest.approx(query.std_error(one, own), rel=1e-12)
    errors = query.std_error(old, [0, 1]), query.std_error(new, [2, 1])
    assert query.std_error(found, ["red", "blue"]) == pytest.approx(math.hypot(*errors) / 2, rel=1e-12)
    with pytest.raises(ValueError, match="no document with reports has every value of the set"):
        query.interval(found, ["grey", "green"])
    with pytest.raises(ValueError, match="no document with reports has every value of the set"):
        query.answer(found, ["white"], "base")


def test_anytime_intervals_of_sets_are_as_narrow_as_those_of_values():
    """The documents differ in how a report's variance depends on the user's value."""
    rng = np.random.default_rng(6)
    fleet = Fleet(
        tuple(stream("s", ldp.oracle(name, epsilon, 300)) for name, epsilon in (("oue", 1), ("grr", 2)))
    )
    found = counted(fleet, [[15_000] + [50] * 299, [1500] + [50] * 299], rng)
    for subset in ([0], [0, 1, 2]):
        ends = np.array([query.anytime_interval(found, subset), query.interval(found, subset)])
        assert 1.6 < np.diff(ends)[0, 0] / np.diff(ends)[1, 0] < 2.05
    both = stream("s", ldp.GRR("1", 3)), stream("s", ldp.GRR("2", 3))
    whole = Fleet(both).estimate([each.oracle.estimate([5, 3, 2], 10) for each in both])
    assert query.anytime_interval(whole, [0, 1, 2]) == pytest.approx((1.0, 1.0), abs=1e-12)
    assert query.interval(whole, [0, 1, 2]) == (1.0, 1.0)


@pytest.mark.parametrize("subset", [[1], [0, 2], [0, 1, 2, 3, 4]])
def test_each_line_of_an_anytime_interval_has_a_mean_of_at_most_one(subset, monkeypatch):
    """For a report of each document: log E e^(λX) ≤ b(λ) for other users, and ≤ b(λ) + γ for those of the set."""
    oracles = [
        ldp.GRR("2", 6),
        ldp.OUE("1", 6),
        ldp.SUE("4", 6),
        ldp.Response("1/5", 6),
        ldp.Unary("1/2", "2/5", 6),
    ]
    fleet, calls, m = Fleet(tuple(stream("s", each) for each in oracles)), [], len(subset)
    real = confidence_sequence._lower
    monkeypatch.setattr(confidence_sequence, "_lower", lambda *given: (calls.append(given), real(*given))[1])
    query.anytime_interval(counted(fleet, [[90, 30, 20, 10, 5, 1]] * 5, np.random.default_rng(1)), subset)
    for side, (_, _, lam, base, gamma, _) in zip((1.0, -1.0), calls, strict=True):
        for oracle, each, rest in zip(oracles, side * lam, base, strict=True):
            p, q = float(oracle.p), float(oracle.q)
            if oracle.own_bits:
                other = m * np.log1p(q * np.expm1(each))
                own = other + np.log1p(p * np.expm1(each)) - np.log1p(q * np.expm1(each))
            else:
                own, other = (np.log1p(x * np.expm1(each)) for x in (p + (m - 1) * q, m * q))
            if side < 0:  # for one value, reports without support are counted
                own, other = (x - (each if m == 1 else 0.0) for x in (other, own))
            assert (other <= rest + 1e-12).all()
            assert (own <= rest + gamma + 1e-12).all()


@pytest.mark.parametrize("subset", [["a"], ["a", "c"]])
def test_the_first_report_of_a_document_changes_no_line_of_an_anytime_interval(subset, monkeypatch):
    """Otherwise the interval could miss under the lines before the report, and again under those after it."""
    streams = stream("s", ldp.OUE("1", 3), "abc"), stream("s", ldp.GRR("1/10", 4), "cabd")
    before, after = [], []
    real = confidence_sequence._lower
    for calls, counts in ((before, None), (after, streams[1].oracle.estimate([1, 0, 0, 0], 1))):
        monkeypatch.setattr(
            confidence_sequence,
            "_lower",
            lambda *given, calls=calls: (calls.append(given[2]), real(*given))[1],
        )
        found = Fleet(streams).estimate([streams[0].oracle.estimate([60, 50, 40], 90), counts])
        query.anytime_interval(found, subset)
    for lam, due in zip(before, after, strict=True):
        assert lam.tolist() == due.tolist()


def test_most_frequent_values_have_enough_reports_and_bounds_for_all_values():
    found = example()
    order = sorted(np.flatnonzero(found.known >= 2000), key=lambda v: -found.frequencies[v])
    assert found.most_frequent(3, fewest=2000).tolist() == order[:3]
    assert set(found.most_frequent(7).tolist()) == {0, 1, 2, 3, 4, 6}
    assert query.top(found, 2).tolist() == found.most_frequent(2).tolist()
    low, high = found.top_bounds(found.most_frequent(3, 2000), 0.9)
    for end, due in zip((low, high), found.anytime_interval(1 - 0.1 / 7, order[:3]), strict=True):
        assert end.tolist() == due.tolist()
    assert [end.size for end in query.top_interval(found, 5)] == [5, 5]
    with pytest.raises(ValueError, match="allowed is 'reports' for the most frequent values of a fleet"):
        query.top_interval(found, 2, of="population")


def test_exactly_the_stated_poisoning_reports_of_accepted_documents_move_the_estimate_out():
    """All reports are from one document, and support as many of the set's values as possible, or as few."""
    found = example()
    ends = found.interval()
    needed = poisoning.tolerance(found, *ends)
    assert (
        poisoning.tolerance(found, ends[0][[4, 0]], ends[1][[4, 0]], np.array([4, 0])).tolist()
        == needed[[4, 0]].tolist()
    )

    def is_moved(subset, low, high, reports):
        indices, out = found.indices(subset), []
        n, parts = found.parts(subset)
        total = n * sum(w * one.frequencies[own].sum() for w, one, own in parts)
        for number, own in FLEET.having(indices).items():
            oracle = FLEET.documents[number].oracle
            for supported in oracle.supported_of(own) if number > 0 else ():  # the first one is retired
                share = float((supported - len(own) * oracle.q) / (oracle.p - oracle.q))
                out.append(not low <= (total + reports * share) / (n + reports) <= high)
        return any(out)

    for value in (0, 1, 3, 4, 6):
        low, high = ends[0][value], ends[1][value]
        assert is_moved([value], low, high, needed[value])
        assert not is_moved([value], low, high, needed[value] - 1)
        assert poisoning.set_tolerance(found, [value], low, high) == needed[value]
    for subset in (["red", "blue"], ["pink", "green"]):
        low, high = query.interval(found, subset)
        number = poisoning.set_tolerance(found, subset, low, high)
        assert is_moved(subset, low, high, number)
        assert not is_moved(subset, low, high, number - 1)
    assert needed[5] == math.inf  # unknown
    assert np.isnan([*found.anytime_interval(), *found.interval(), found.std_error()])[:, 5].all()
    only_old = Fleet((OLD, NEW), frozenset({OLD.fingerprint})).estimate([found.estimates[0], None])
    assert poisoning.tolerance(only_old, *only_old.interval())[2] == math.inf  # no accepted document has it
    assert poisoning.set_tolerance(only_old, ["grey", "red"], 0.1, 0.9) == math.inf


@pytest.mark.parametrize(
    "use",
    [
        lambda each: method_selection.choose(each, method_selection.Values(), np.random.default_rng(1)),
        lambda each: changes.between(each, each),
        lambda each: each.merge(each),
        lambda each: OLD.oracle.estimate([1, 0, 0], 1).within(0, 1).merge(each),
        normalization.norm_sub,
    ],
)
def test_errors_name_a_document_that_can_be_read(use):
    advice = f"read the estimate of one document, such as colours@{OLD.fingerprint.hex()}"
    with pytest.raises(TypeError, match=f"Estimate.*not (a )?FleetEstimate: {advice}"):
        use(example())


def test_invalid_fleets_and_estimates_are_refused():
    with pytest.raises(ValueError, match="there are 0 documents"):
        Fleet(())
    with pytest.raises(ValueError, match="some documents have labels and some have none"):
        Fleet((OLD, stream("s", ldp.GRR("1", 3))))
    with pytest.raises(ValueError, match="there are 1 estimates for 4 documents"):
        FLEET.estimate([None])
    with pytest.raises(ValueError, match="no document has reports"):
        FLEET.estimate([None] * 4)
    with pytest.raises(ValueError, match="is given for a document of"):
        FLEET.estimate([None, ldp.OUE("1", 4).estimate([1] * 4, 1), None, None])
    with pytest.raises(ValueError, match=f"document {OLD.fingerprint.hex()} is a duplicate"):
        Fleet((OLD, NEW, OLD))
    old, new, *_ = example().estimates
    with pytest.raises(TypeError, match="an Estimate is needed, not a ndarray"):
        FLEET.estimate([old.frequencies, None, None, None])
    with pytest.raises(
        ValueError, match="other labels than its document; give estimates in the documents' order"
    ):
        FLEET.estimate([old.labelled(["blue", "red", "grey"]), None, None, None])
    with pytest.raises(ValueError, match="estimates have different windows"):
        FLEET.estimate([old.within(0, 10), new, None, None])
    memoised = stream("s", ldp.OUE("1", 3), "abc", privacy=Declaration("device", 1, "24h", "memoised", "7d"))
    found = Fleet((memoised,)).estimate([memoised.oracle.estimate([5, 5, 5], 10)])
    with pytest.raises(ValueError, match="anytime-valid intervals need independent reports"):
        found.anytime_interval()
    with pytest.raises(ValueError, match="anytime-valid intervals need independent reports"):
        query.anytime_interval(found, ["a", "b"])
    other = stream("s", ldp.GRR("1", 2), "xy")
    both = Fleet((memoised, other)).estimate([*found.estimates, other.oracle.estimate([5, 5], 10)])
    own = query.anytime_interval(both, ["x"])  # no memoised report has the label
    assert own[0] < 0.5 < own[1]
    undeclared = Fleet([other]).estimate([both.estimates[1].declared(memoised.privacy)])
    assert undeclared.estimates[0].per_device == found.estimates[0].per_device > 1
