"""The compiled loops against plain Python and other implementations."""

import itertools
import json
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from llvmlite.binding import get_host_cpu_features
from numba import njit

from ldp import OLH, kernels
from ldp.oracles.olh import HASHES, mul32, xxh32
from tests.support.counting import addresses_of, count_hashes

pytestmark = pytest.mark.statistical

PURE_LDP = json.loads((Path(__file__).parents[2] / "vectors" / "pure_ldp.json").read_text())
G = [2, 3, 4, 56, 255, 256, 257, 40960, 65535, 65536]


def recount(name, seeds, buckets, g, values):
    """Supports, one hash at a time."""
    return [sum(HASHES[name](int(s), v, g) == b for s, b in zip(seeds, buckets, strict=True)) for v in values]


def draw(n, g, seed=1):
    rng = np.random.default_rng(seed)
    seeds = rng.integers(1 << 32, size=n, dtype=np.uint32)
    buckets = rng.integers(g, size=n).astype(np.uint32)
    seeds[:2], buckets[:2] = (0, 0xFFFFFFFF)[: min(n, 2)], (0, g - 1)[: min(n, 2)]
    return seeds, buckets


@pytest.mark.parametrize("seed, value, expected", PURE_LDP["hashes"])
def test_xxh32_matches_xxhash(seed, value, expected):
    assert xxh32(seed, value, 1 << 32) == expected
    for g in (2, 7, 65536):
        assert xxh32(seed, value, g) == expected % g
        assert kernels.hash_xxh32(np.array([seed], np.uint32), np.array([value]), g)[0] == expected % g


def test_mul32_matches_its_definition_step_by_step():
    """The definition once more, in numpy's own 32-bit arithmetic, which wraps."""
    rng = np.random.default_rng(3)
    seeds, values = rng.integers(1 << 32, size=500, dtype=np.uint32), rng.integers(1 << 24, size=500)
    v = values.astype(np.uint32)
    words = []  # e, b, and the factor of c
    for _ in range(3):
        x = (words[-1] if words else v) + np.uint32(0x9E3779B1)
        x ^= x >> np.uint32(16)
        x *= np.uint32(0x7FEB352D)
        x ^= x >> np.uint32(15)
        x *= np.uint32(0x846CA68B)
        words.append(x ^ x >> np.uint32(16))
    e, b, c = words
    x = (seeds ^ e) * (np.uint32(0xC2B2AE3D) + np.uint32(0x78DDE6C4) * v)
    x ^= x >> np.uint32(11) ^ b
    x *= c & np.uint32(0xCCCCCCCC) | np.uint32(0x11111111)
    for g in G:
        expected = (x.astype(np.uint64) * np.uint64(g) >> np.uint64(32)).tolist()
        assert kernels.hash_mul32(seeds, values, g).tolist() == expected
        assert [mul32(int(s), int(v), g) for s, v in zip(seeds, values, strict=True)] == expected


@pytest.mark.slow
@pytest.mark.parametrize("g", G)
@pytest.mark.parametrize("name", HASHES)
def test_counts_equal_a_recount(name, g):
    d = 405
    seeds, buckets = draw(37, g)
    # half of the reports support something for sure, also where g is far above d
    own = np.random.default_rng(2).integers(d, size=37)
    buckets[::2] = kernels.HASH[name](seeds, own, g)[::2]
    state = np.zeros(d, np.int64)
    count_hashes(name, state, seeds, buckets, g)
    assert state.tolist() == recount(name, seeds, buckets, g, range(d))
    assert (state[own[::2]] > 0).all()


GROUP, TILE = kernels.hashing.GROUP, kernels.hashing.TILE


@pytest.mark.slow
@pytest.mark.parametrize("n", [0, 1, GROUP, GROUP + 1, TILE - 1, TILE, 2 * TILE + 17])
@pytest.mark.parametrize("g", [2, 6])
@pytest.mark.parametrize("name", HASHES)
def test_counts_across_groups_and_tiles(name, g, n):
    """Padding of the last group supports no value, also after a full tile."""
    d = 4
    seeds, buckets = draw(n, g)
    state = np.full(d, 5, np.int64)
    count_hashes(name, state, seeds, buckets, g)
    assert (state - 5).tolist() == recount(name, seeds, buckets, g, range(d))


@pytest.mark.slow
@pytest.mark.parametrize("g", [5, 65536])
@pytest.mark.parametrize("name", HASHES)
def test_counts_of_the_largest_domain(name, g):
    """Every length of the decimal string, at its limits and at random, in a single run over 2²⁴ values."""
    d = 1 << 24
    seeds, buckets = draw(9, g)
    state = np.zeros(d, np.int64)
    count_hashes(name, state, seeds, buckets, g)
    borders = [v for k in range(1, 8) for v in (10**k - 1, 10**k, 10**k + 1)] + [0, d - 1]
    values = borders + np.random.default_rng(5).integers(d, size=400).tolist()
    assert state[values].tolist() == recount(name, seeds, buckets, g, values)
    if g < 65536:  # the sum over all values is n·d/g for a uniform hash, whatever the buckets are
        assert abs(state.sum() - 9 * d / g) < 6 * (9 * d * (g - 1) / g**2) ** 0.5


def seed_of(x):
    """The seed under which mul32's last 32-bit number of the value 0 is x: its steps, undone."""
    e, b, c = 0x6D523710, 0x0009ACAC, 0x195555D1
    x = x * pow(c, -1, 1 << 32) % (1 << 32) ^ b
    x ^= x >> 11 ^ x >> 22
    return x * pow(0xC2B2AE3D, -1, 1 << 32) % (1 << 32) ^ e


@pytest.mark.parametrize("g", G)
def test_mul32_at_the_borders_of_a_bucket(g):
    """The comparison of count_mul32 at the very numbers where a bucket begins and ends."""
    for b in {0, 1, g // 2, g - 1}:
        first = -(-(b << 32) // g)
        for x in {max(first - 1, 0), first, min(first + 1, 2**32 - 1), 2**32 - 1}:
            assert mul32(seed_of(x), 0, g) == x * g >> 32
            state = np.zeros(1, np.int64)
            count_hashes("mul32", state, np.array([seed_of(x)], np.uint32), np.array([b], np.uint32), g)
            assert state[0] == (x * g >> 32 == b)


@pytest.mark.slow
@pytest.mark.parametrize("g", [65535, 49999])
def test_xxh32_below_its_bucket_does_not_wrap(g):
    """For a hash h below b, h − b + 2³² may be a multiple of g, which is not a match."""
    d = 1 << 20
    hashes = kernels.hash_xxh32(np.zeros(d, np.uint32), np.arange(d), 1 << 32)
    small = np.flatnonzero(hashes + 2**32 % g < g)
    assert small.size > 3
    for v in small.tolist():
        for b, expected in [(hashes[v] + 2**32 % g, 0), (hashes[v], 1)]:
            state = np.zeros(v + 1, np.int64)
            count_hashes("xxh32", state, np.zeros(1, np.uint32), np.array([b], np.uint32), g)
            assert state[v] == expected


@pytest.mark.long
@pytest.mark.parametrize("name", HASHES)
def test_hashes_are_computed_in_the_widest_vectors(name):
    """The multiplications in the machine code, compiled again: cached code cannot be inspected."""
    fresh = njit(nogil=True)(getattr(kernels.hashing, f"_count_{name}").py_func)
    further = {"mul32": "u4[:, ::1]", "xxh32": "i8[:, ::1], i8[::1]"}
    fresh.compile(f"(i8[::1], i8[::1], u4[::1], u4[::1], UniTuple(i8, 2), u4[:, ::1], {further[name]})")
    (code,) = fresh.inspect_asm().values()
    has = get_host_cpu_features()
    widest = [("avx512dq", r"vpmulld\s.*%zmm"), ("avx2", r"vpmulld\s.*%ymm"), ("neon", r"mul\s+v\d+\.4s")]
    expected = next((product for feature, product in widest if has.get(feature)), "mul")
    assert len(re.findall(expected, code)) >= 4


@pytest.mark.parametrize("case", PURE_LDP["cases"], ids=lambda case: f"eps={case['epsilon']},d={case['d']}")
def test_counts_of_pure_ldp_reports_match_its_server(case):
    oracle = OLH(case["epsilon"], case["d"], hash="xxh32", g=case["g"])
    reports = np.empty(len(case["seeds"]), oracle.report_dtype)
    reports["seed"], reports["bucket"] = case["seeds"], case["buckets"]
    state = oracle.zeros()
    oracle.accumulate(state, reports)
    assert oracle.support(state).tolist() == case["counts"]


@pytest.mark.parametrize("g", [2, 56])
@pytest.mark.parametrize("name", HASHES)
def test_two_values_collide_with_probability_one_in_g(name, g):
    """The premise of q = 1/g, for pairs that a weak hash would reveal: neighbours, one bit, one digit apart."""
    seeds = np.random.default_rng(11).integers(1 << 32, size=200_000, dtype=np.uint32)
    allowed = 6 * (seeds.size * (g - 1)) ** 0.5 / g  # six standard deviations
    for a, b in [(0, 1), (1, 2), (7, 15), (0, 512), (1000, 2000), (844, 845), (0, (1 << 24) - 1)]:
        first, second = (kernels.HASH[name](seeds, np.full(seeds.size, v), g) for v in (a, b))
        assert abs((first == second).sum() - seeds.size / g) < allowed


@pytest.mark.slow
@pytest.mark.parametrize("d", [1, 8, 9, 63, 64, 511, 512, 513, 1000, 10_000])
def test_bit_counts_equal_a_recount(d):
    """For numbers of reports around the 255 that a byte can count."""
    sizes = [0, 1, 254, 255, 256, 512]
    rng = np.random.default_rng(1)
    values = rng.random((max(sizes), d)) < rng.choice([0.3, 1.0], size=d)  # some bits are set in every report
    bits = np.packbits(values, axis=1, bitorder="little")
    for n in sizes:
        state = np.full(d, 5, np.int64)
        kernels.count_bits(addresses_of(state), np.array([n]), bits[:n], d)
        assert (state - 5 == values[:n].sum(axis=0)).all()


@pytest.mark.slow
@pytest.mark.parametrize("kind", [np.uint8, np.uint16, np.uint32])
def test_index_counts_and_order_equal_a_recount(kind):
    rng = np.random.default_rng(3)
    m = min(1 << 24, np.iinfo(kind).max + 1)
    indices = rng.integers(m, size=(500, 7)).astype(kind)
    indices[::3].sort(axis=1)
    indices[3, 3] = indices[3, 4]  # not strictly
    indices[0] = [0, 1, 2, 3, 4, 5, m - 1]
    state = np.full(m, 5, np.int64)
    for part in (indices[:0], indices):
        ends = np.array([part.size])
        kernels.count_indices(addresses_of(state), 0 * ends, ends, part.reshape(-1))
    assert (state - 5 == np.bincount(indices.reshape(-1), minlength=m)).all()
    expected = [sorted(set(row)) == row for row in indices.tolist()]
    assert kernels.ascends(indices).tolist() == expected
    assert 1 < sum(expected) < 400
    assert kernels.ascends(indices[:, :1]).all()
    assert kernels.ascends(indices[:0]).size == 0


@pytest.mark.parametrize(("m", "k"), [(2, 1), (5, 2), (6, 5), (6, 3)])
def test_each_subset_is_drawn_equally_often(m, k):
    """Over all possible draws: with the user's symbol, and without it."""
    draws = np.array(list(itertools.product(*(range(m - k + j) for j in range(k)))))
    for symbol in range(m):
        for own in (True, False):
            chosen = draws.copy()
            symbols, keep = np.full(len(draws), symbol), np.full(len(draws), own)
            kernels.choose_subsets(chosen, symbols, keep, m)
            law = Counter(frozenset(row) for row in chosen.tolist())
            others = set(range(m)) - {symbol}
            expected = [{symbol, *rest} for rest in itertools.combinations(others, k - 1)]
            if not own:
                expected = itertools.combinations(others, k)
            assert law.keys() == set(map(frozenset, expected))
            assert len(set(law.values())) == 1


@pytest.mark.parametrize("exponent", [0, 1, 5, 11, 12, 13])
def test_walsh_hadamard_equals_the_sums_of_its_definition(exponent):
    K = 1 << exponent
    rng = np.random.default_rng(6)
    counters = rng.integers(-(1 << 40), 1 << 40, size=K)
    transformed = counters.copy()
    kernels.walsh_hadamard(transformed)
    columns = np.arange(K)
    for r in {0, K - 1, K // 2, K // 3, *rng.integers(K, size=20).tolist()}:
        signs = 1 - 2 * (np.bitwise_count(columns & r) % 2).astype(np.int64)
        assert transformed[r] == (signs * counters).sum()


@pytest.mark.slow
def test_kernels_compile_on_first_use_and_load_from_the_cache():
    """For every protocol and size, a worker's reports use only kernels that its stream's `warm` compiled."""
    code = (
        "import numpy as np, ldp, ldp.compiling\n"
        "from ldp import kernels\n"
        "from ldp.oracles import partitioned\n"
        "loops = {name: loop for name, loop in vars(kernels).items()\n"
        "         if hasattr(loop, 'signatures') and not name.startswith('_')}\n"
        "assert len(loops) >= 11, loops\n"
        "assert not any(loop.signatures for loop in loops.values())\n"
        "for name in ldp.oracles.ORACLES:\n"
        "    for epsilon, d in [('1', 10), ('8', 200), ('1', 1000), ('8', 60000), ('9', 70000)]:\n"
        "        oracle = ldp.oracle(name, epsilon, d)\n"
        "        stream, rng = ldp.Stream('s', oracle), np.random.default_rng(1)\n"
        "        reports = oracle.perturb([0, 1, 2], rng=rng)\n"
        "        [loop._reset_overloads() for loop in loops.values()]\n"
        "        ldp.compiling.warm(stream), ldp.compiling.warm_json()\n"
        "        compiled = {name: list(loop.signatures) for name, loop in loops.items()}\n"
        "        frames = ldp.frames.encode(stream, reports) + ldp.frames.encode_json(stream, reports)\n"
        "        bounds = np.array([0, 5 + reports.nbytes, len(frames)])\n"
        "        state, decoded = oracle.zeros(), ldp.frames.decode(stream, frames, bounds[:-1], bounds[1:])\n"
        "        assert decoded.counts.tolist() == [3, 3]\n"
        "        oracle.accumulate(state, decoded.reports)\n"
        "        oracle.accumulate(state, np.frombuffer(frames[5:5 + reports.nbytes], oracle.report_dtype)[::2])\n"
        "        states = [state, oracle.zeros()]\n"
        "        addresses = np.array([partitioned.address_of(oracle, each) for each in states])\n"
        "        [*partitioned.accumulate_partitioned(oracle, addresses, decoded.reports,\n"
        "            np.array([[0, 1], [2, 6]]), 9)]\n"
        "        oracle.support(state)\n"
        "        assert compiled == {name: list(loop.signatures) for name, loop in loops.items()}, name\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)
