"""The default hash of OLH: one definition in all its implementations, and no pair of values that collides too often."""

import importlib.util
from pathlib import Path

import numpy as np
import pytest

import ldp
from ldp import kernels
from ldp.oracles.olh import mul32
from tests.long.attack.__main__ import NAMED, deviations
from tests.long.attack.collisions import (
    BUCKETS,
    collisions,
    exact_collisions,
    hashed,
    words_of_mix32,
    words_of_mul32,
)
from tests.support.counting import count_hashes
from tests.support.harness import truth
from worker.audit.hashes import HASHES

VECTORS = [
    # seed, value, g, the word that is scaled, the bucket
    (0, 0, 4, 0xB8229773, 2),
    (12345, 0, 3, 0x4D4A800B, 0),
    (12345, 1, 3, 0xC7200F4D, 2),
    (1, 223, 4, 0x0D3AFC7C, 0),
    (4294967295, 584543, 4, 0xEC8477B2, 3),
    (2654435769, 1311, 2, 0xD46E3B29, 1),
    (3141592653, 585631, 55, 0x7928BCC0, 26),
    (2147483648, 8388608, 256, 0xEB10183C, 235),
    (99, 16777215, 16, 0x89AA22C4, 8),
    (3735928559, 1048575, 65536, 0x5729B181, 22313),
]
every_vector = pytest.mark.parametrize(("seed", "v", "g", "x", "bucket"), VECTORS)
FEW = 6  # numbers of buckets for which 2²⁴ seeds give a normal law of the collisions


def second_client():
    """`make_reports.py`, which shares no code with the project."""
    path = Path(__file__).parents[2] / "vectors" / "make_reports.py"
    spec = importlib.util.spec_from_file_location("second_client", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@every_vector
def test_vectors_match_in_python_and_in_the_javascript_client(seed, v, g, x, bucket):
    for implementation in (mul32, second_client().mul32):
        assert (implementation(seed, v, 1 << 32), implementation(seed, v, g)) == (x, bucket)
    assert truth._mul32(np.array([seed], np.uint64), v, g).tolist() == [bucket]


@pytest.mark.slow
@every_vector
def test_vectors_match_in_the_kernels(seed, v, g, x, bucket):
    """Perturbing, counting, and what the attack attacks."""
    seeds = np.array([seed], np.uint32)
    assert kernels.hash_mul32(seeds, np.array([v]), g).tolist() == [bucket]
    assert kernels.hash_mul32(seeds, np.array([v]), 1 << 32).tolist() == [x]
    for scale in (g, 1 << 16):
        own = x * scale >> 32
        for r in (own, (own + 1) % scale):
            state = np.zeros(v + 1, np.int64)
            count_hashes("mul32", state, seeds, np.array([r], np.uint32), scale)
            assert state[v] == (r == own)
    (words,) = words_of_mul32(np.array([v]))
    word = np.empty(1, np.uint32)
    hashed(word, seeds, *words)
    assert word.tolist() == [x]


@every_vector
def test_vectors_match_in_the_audit(seed, v, g, x, bucket):
    for scale, own in ((g, bucket), (1 << 16, x >> 16)):
        for r in (own, (own + 1) % scale):
            supports = HASHES["mul32"](np.array([seed], np.uint32), np.array([r], np.uint64), scale)
            assert supports(np.array([[v]], np.uint32)).tolist() == [[r == own]]


@pytest.fixture(scope="module")
def seeds():
    return np.random.default_rng(21).integers(1 << 32, size=1 << 24, dtype=np.uint32)


def z_of(pairs, words_of, seeds):
    v, w = (words_of(np.array(column)) for column in zip(*pairs, strict=True))
    return deviations(collisions(v, w, seeds, BUCKETS[:FEW]), seeds.size)


def test_the_named_pairs_collide_once_in_g(seeds):
    """`python -m tests.long.attack named` has them under all 2³² seeds."""
    assert np.abs(z_of(NAMED, words_of_mul32, seeds)).max() < 5


def test_the_predecessor_fails_the_same_test(seeds):
    z = z_of([(223, 584543), (1311, 585631), (28682, 49754)], words_of_mix32, seeds)
    assert (np.abs(z).max(axis=1) > 20).all()


@pytest.mark.slow
def test_a_pair_collides_once_in_g_over_all_seeds():
    two_and_four = BUCKETS[[0, 2]]
    v, w = words_of_mul32(np.array([223, 584543]))
    collided = exact_collisions(v, w, two_and_four, 0, 1 << 32)
    assert np.abs(collided / 2**32 - 1 / two_and_four).max() < 1e-5


@pytest.mark.slow
def test_every_value_has_a_distinct_odd_multiplier():
    a = words_of_mul32(np.arange(1 << 24))[:, 1]
    assert (a % 4 == 1).all()
    met = np.zeros(1 << 24, bool)
    met[a % (1 << 26) >> 2] = True
    assert met.all()


@pytest.mark.long
def test_each_bucket_has_its_share_of_all_seeds():
    """For a few values, counted by the kernel itself: seed → x is a bijection."""
    g, r, part = 55, 7, 1 << 22
    state, buckets = np.zeros(3, np.int64), np.full(part, r, np.uint32)
    for start in range(0, 1 << 32, part):
        count_hashes("mul32", state, np.arange(start, start + part, dtype=np.uint32), buckets, g)
    share = -(-((r + 1) << 32) // g) - -(-(r << 32) // g)
    assert share in (2**32 // g, 2**32 // g + 1)
    assert state.tolist() == [share] * 3


def test_seed_and_bucket_follow_their_joint_law():
    """With secret coins: the user's bucket with probability p for any seed, else any other with equal
    probability."""
    n, v = 1 << 18, 584543
    oracle = ldp.OLH("1", 1 << 20)
    reports = oracle.perturb(np.full(n, v))
    own = kernels.hash_mul32(reports["seed"], np.full(n, v), oracle.g)
    turn = (reports["bucket"].astype(np.int64) - own) % oracle.g
    together = np.bincount(
        (reports["seed"] >> 28).astype(np.int64) * oracle.g + turn, minlength=16 * oracle.g
    )
    p = float(oracle.p)
    law = np.tile([p, *[(1 - p) / (oracle.g - 1)] * (oracle.g - 1)], 16) / 16
    assert (np.abs(together - n * law) < 7 * np.sqrt(n * law * (1 - law))).all()
