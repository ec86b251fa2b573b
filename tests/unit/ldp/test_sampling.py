"""Exact coins: their numbers, and their law by enumeration."""

import itertools
import math
import secrets
from collections import Counter
from fractions import Fraction

import numpy as np
import pytest

from ldp import sampling

pytestmark = pytest.mark.statistical


@pytest.mark.parametrize(
    ("given", "number"),
    [("0.5", Fraction(1, 2)), ("1/3", Fraction(1, 3)), ("2/4", Fraction(1, 2)), (4, Fraction(4))],
)
def test_epsilon_is_read_exactly(given, number):
    assert sampling.parse_epsilon(given) == number


@pytest.mark.parametrize("given", [1.0, 0.1, float("nan"), True, None, b"1", 1j, np.float64(1)])
def test_an_epsilon_of_a_wrong_type_is_refused(given):
    with pytest.raises(TypeError, match="epsilon"):
        sampling.parse_epsilon(given)


@pytest.mark.parametrize(
    "given",
    ["", "0", "-1", "+1", "1e-999999999", "nan", " 1", "1\n", "1_0", "1/0", "٣", "64.01", 0, "9" * 5000],
)
def test_invalid_epsilons_are_refused(given):
    with pytest.raises(ValueError, match="epsilon"):
        sampling.parse_epsilon(given)


def exp_bracket(epsilon):
    """Rationals below and above e^ε, from (1 + x/m)^m < e^x < (1 − x/m)^−m with x = ε/2^k: no series, no float."""
    m = 1 << 400
    x = epsilon / m
    low, high = 1 + x, 1 / (1 - x)
    for _ in range(400):  # square, rounding away from e^ε to keep the numbers short
        low = Fraction(math.floor(low * low * (1 << 1200)), 1 << 1200)
        high = Fraction(math.ceil(high * high * (1 << 1200)), 1 << 1200)
    return low, high


@pytest.mark.parametrize("epsilon", ["1", "1/1000000", "37/3", "64"])
def test_e_is_the_largest_multiple_below_the_exponential(epsilon):
    epsilon = Fraction(epsilon)
    E = sampling.exp_below(epsilon)
    low, high = exp_bracket(epsilon)
    assert (E * 2**64).denominator == 1
    assert low > E
    assert high < E + Fraction(1, 2**64)


def test_an_epsilon_too_small_to_estimate_is_refused():
    assert sampling.exp_below(Fraction(1, 2**63)) > 1
    with pytest.raises(ValueError, match="too small"):
        sampling.exp_below(Fraction(1, 2**65))


# arrays: the words of the system are replaced, and the law follows from which words give True


def feed(monkeypatch, *batches):
    """Let the next calls of system_words return these words."""
    left = [np.array(batch, np.uint64) for batch in batches]

    def words(n):
        batch = left.pop(0)
        assert batch.size == n
        return batch.copy()

    monkeypatch.setattr(sampling, "system_words", words)
    return left


def threshold(monkeypatch, p, ties):
    """Number of next words, after these tied words, that give True, by bisection; True must come first."""

    def heads(word):
        left = feed(monkeypatch, *[[tie] for tie in ties], [word], [2**64 - 1], [2**64 - 1], [2**64 - 1])
        answer = bool(sampling.coins(p, 1)[0])
        return answer and len(left) == 3  # decided by this word, not by a later one

    low, high = -1, 2**64
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if heads(middle) else (low, middle)
    return high


@pytest.mark.parametrize(
    "p",
    [
        Fraction(1, 3),
        Fraction(2, 7),
        Fraction(2**64 - 1, 2**64 + 1),
        Fraction(3, 2**70),
        Fraction(1, 2),
        sampling.exp_below(Fraction(1)) / (sampling.exp_below(Fraction(1)) + 844),
    ],
)
def test_coins_compare_with_the_digits_of_p(monkeypatch, p):
    ties = []
    for _ in range(3):
        ties.append(threshold(monkeypatch, p, ties))
        if ties[-1] == 0 and sum(Fraction(t, 2 ** (64 * (i + 1))) for i, t in enumerate(ties)) == p:
            break
    prefix = sum(Fraction(digit, 2 ** (64 * (i + 1))) for i, digit in enumerate(ties))
    # the first three words give p up to a rest below one unit of the third
    assert 0 <= p - prefix < Fraction(1, 2 ** (64 * len(ties)))
    if p.denominator & (p.denominator - 1) == 0:
        assert prefix == p


def test_only_tied_coins_draw_more_words(monkeypatch):
    third = 0x5555555555555555
    left = feed(monkeypatch, [third - 1, third, third + 1, third], [third, third + 1], [third - 1])
    assert sampling.coins(Fraction(1, 3), 4).tolist() == [True, True, False, False]
    assert not left


@pytest.mark.parametrize("bound", [1, 3, 845, 2**16, 2**32 - 1, 2**32])
def test_integers_reject_the_last_incomplete_round(monkeypatch, bound):
    rounds = 2**64 // bound
    good = [0, bound - 1, rounds * bound - 1]
    over = range(rounds * bound, 2**64)  # words that must be drawn again
    feed(monkeypatch, good)
    assert sampling.integers(bound, 3).tolist() == [0, bound - 1, bound - 1]
    if over:
        left = feed(monkeypatch, [over[0], 5, over[-1]], [over[-1], 1], [0])
        assert sampling.integers(bound, 3).tolist() == [0, 5 % bound, 1 % bound]
        assert not left


def test_system_words_come_from_the_system(monkeypatch):
    monkeypatch.setattr("os.urandom", lambda n: bytes(range(n)))
    words = sampling.system_words(2)
    assert words.tobytes() == bytes(range(16))
    monkeypatch.undo()
    assert sampling.system_words(0).size == 0
    assert np.unique(sampling.system_words(1000)).size == 1000


def law_of_draws(monkeypatch, sample):
    """The exact law of a sampler, by running it over everything that randbelow could return."""
    bounds = []
    monkeypatch.setattr(secrets, "randbelow", lambda bound: bounds.append(bound) or 0)
    sample()
    law = Counter()
    for draws in itertools.product(*(range(bound) for bound in bounds)):
        feed_draws = iter(draws)
        monkeypatch.setattr(secrets, "randbelow", lambda bound, feed_draws=feed_draws: next(feed_draws))
        law[sample()] += Fraction(1, math.prod(bounds))
    return law


@pytest.mark.parametrize("E", [Fraction(3), Fraction(19, 7)])
@pytest.mark.parametrize("m", [1, 2, 3])
def test_respond_by_enumeration(monkeypatch, m, E):
    for symbol in range(m):
        law = law_of_draws(monkeypatch, lambda symbol=symbol: sampling.respond(symbol, m, E))
        expected = dict.fromkeys(range(m), 1 / (E + m - 1)) | {symbol: E / (E + m - 1)}
        assert law == expected


@pytest.mark.parametrize("m", [1, 845])
@pytest.mark.parametrize("E", [Fraction(7, 5), sampling.exp_below(Fraction(64))])
def test_responses_keep_the_value_with_total_probability_p(monkeypatch, m, E):
    drawn = {}
    monkeypatch.setattr(sampling, "coins", lambda p, n, rng: drawn.update(p=p) or np.array([True, False]))
    monkeypatch.setattr(
        sampling, "integers", lambda bound, n, rng: drawn.update(bound=bound) or np.zeros(n, int)
    )
    assert sampling.responses(np.array([m - 1, m - 1]), m, E).tolist() == [m - 1, 0]
    assert drawn["bound"] == m
    assert drawn["p"] + (1 - drawn["p"]) / m == E / (E + m - 1)
    assert (1 - drawn["p"]) / m == 1 / (E + m - 1)


def test_integers_with_a_bound_each(monkeypatch):
    bounds = np.array([1, 3, 7, 2**32, 845])
    left = feed(monkeypatch, [5, 2**64 - 1, 2**64 - 2, 2**64 - 1, 844], [10, 2**64 - 2], [2**64 - 3])
    # 2⁶⁴ is 1 modulo 3 and 2 modulo 7: the last word or two are drawn again, for 7 twice
    assert sampling.integers(bounds, 5).tolist() == [0, 1, (2**64 - 3) % 7, 2**32 - 1, 844]
    assert not left


def tossed(monkeypatch, p, words):
    """The bits of `mask` for these words of one binary digit of each U, and the bits of `masks` for the same words."""
    feed_bits = iter(words)
    monkeypatch.setattr(secrets, "randbits", lambda n: next(feed_bits))
    heads = sampling.mask(p, 64)
    pending = list(words)
    monkeypatch.setattr(sampling, "system_words", lambda n: np.full(n, pending.pop(0), np.uint64))
    assert sampling.masks(p, 64, 1).view("<u8").tolist() == [[heads]]
    return heads


def test_masks_of_64ths_by_enumeration(monkeypatch):
    """64 coins whose numbers U begin with all six binary digits that there are: U < k/64 for k of them."""
    words = [sum((u >> 5 - place & 1) << u for u in range(64)) for place in range(6)]
    for k in range(64):
        assert tossed(monkeypatch, Fraction(k, 64), words) == (1 << k) - 1


@pytest.mark.parametrize(
    "p",
    [
        Fraction(1, 3),
        Fraction(2**70 - 1, 2**70 + 1),
        1 / (sampling.exp_below(Fraction(4)) + 1),
    ],
)
def test_masks_compare_with_the_digits_of_p(monkeypatch, p):
    """Coin u is the first 100 digits of p with digit u flipped: only this digit decides."""
    digits = [math.floor(p * 2 ** (place + 1)) % 2 for place in range(100)]
    words = [sum((digits[place] ^ (place == u + 20)) << u for u in range(64)) for place in range(100)]
    assert tossed(monkeypatch, p, words) == sum(digits[u + 20] << u for u in range(64))


@pytest.mark.parametrize("rng", [None, np.random.default_rng(9)], ids=["exact", "simulated"])
def test_masks_in_several_parts_have_the_right_law_and_padding(monkeypatch, rng):
    """Each coin and each pair of neighbours has its probability, within six standard deviations."""
    words = np.random.default_rng(10)
    monkeypatch.setattr(sampling, "_WORDS", 1000)
    monkeypatch.setattr(sampling, "system_words", lambda n: words.integers(1 << 64, size=n, dtype=np.uint64))
    n, m = 50_000, 21
    tosses = np.unpackbits(sampling.masks(Fraction(27, 100), m, n, rng=rng), axis=1, bitorder="little")
    assert not tosses[:, m:].any()
    both = tosses[:, :m] & np.roll(tosses[:, :m], 1, axis=1)
    for share, p in ((tosses[:, :m].mean(axis=0), 0.27), (both.mean(axis=0), 0.27**2)):
        assert (abs(share - p) < 6 * math.sqrt(p * (1 - p) / n)).all()


@pytest.mark.parametrize("E", [Fraction(3), Fraction(19, 7)])
@pytest.mark.parametrize(("m", "k"), [(2, 1), (4, 2), (5, 4)])
def test_subset_by_enumeration(monkeypatch, m, k, E):
    """The exact law, by running it over everything that randbelow could return."""
    for symbol in range(m):
        law = law_of_draws(monkeypatch, lambda symbol=symbol: sampling.subset(symbol, m, k, E))
        weights = {
            members: E if symbol in members else Fraction(1)
            for members in itertools.combinations(range(m), k)
        }
        total = sum(weights.values())
        assert law == {members: weight / total for members, weight in weights.items()}


@pytest.mark.parametrize(("m", "k"), [(9, 2), (845, 227)])
def test_many_subsets_follow_the_law_of_a_single_one(monkeypatch, m, k):
    """The same numbers make the same subset, and the bounds and the probability are the same."""
    E, rng, n = Fraction(19, 7), np.random.default_rng(11), 40
    draws = np.array([[rng.integers(m - k + j) for j in range(k)] for _ in range(n)])
    own, symbols = rng.random(n) < 0.5, rng.integers(m, size=n)
    asked = {}
    monkeypatch.setattr(sampling, "coins", lambda p, n, rng: asked.update(p=p) or own)
    monkeypatch.setattr(
        sampling,
        "integers",
        lambda bound, n, rng: asked.update(bounds=bound.tolist()) or draws.reshape(-1).copy(),
    )
    members = sampling.subsets(symbols, m, k, E)
    one = {"bounds": []}
    for i in range(n):
        numbers = iter(draws[i].tolist())
        monkeypatch.setattr(sampling, "coin", lambda p, i=i: one.update(p=p) or bool(own[i]))
        monkeypatch.setattr(
            sampling, "integer", lambda bound, numbers=numbers: one["bounds"].append(bound) or next(numbers)
        )
        assert sampling.subset(int(symbols[i]), m, k, E) == tuple(members[i].tolist())
    assert asked == one
    assert asked["p"] == k * E / (k * E + m - k)


def test_simulated_coins_and_integers_follow_their_law():
    rng = np.random.default_rng(7)
    n = 400_000
    # 5.5 standard deviations: a false alarm has probability below 1e-7
    assert abs(sampling.coins(Fraction(3, 10), n, rng=rng).mean() - 0.3) < 5.5 * math.sqrt(0.21 / n)
    counts = np.bincount(sampling.integers(5, n, rng=rng), minlength=5)
    assert (abs(counts / n - 0.2) < 5.5 * math.sqrt(0.16 / n)).all()
