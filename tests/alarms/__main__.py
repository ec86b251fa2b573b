"""Alarms on simulated streams, honest and forged: ``python -m tests.alarms``, or with names only those parts.

``honest`` (10 minutes): how many of 10,000 streams of 10⁶ honest reports raise an alarm at the risk of service, and how
many of 1,000 at a risk of 10 %, which shows how far the bounds are above what happens. ``forged`` (10 minutes): after
how many reports that were looked at there is an alarm, by the share of forged ones; the median of 9 streams. ``cost``
(1 minute): what a watch adds to decoding and counting. One core, 1 GiB.
"""

import sys
import time
from collections.abc import Callable, Iterator

import numpy as np

import ldp
from ldp import frames
from ldp.alarms import Ones, Repeats, Uniform, Watch
from ldp.alarms.watch import BLOCK, ENOUGH, PART, RISK
from tests.alarms.forging import Forge, attacks

STREAMS = {RISK: 10_000, 0.1: 1000}
BLOCKS = -(-ENOUGH // BLOCK)
SHARES = (0.001, 0.01, 0.05)
RUNS = 9


def honest() -> None:
    """Prints how many honest streams raise an alarm, at two risks: the law of what tests are given is drawn from."""
    rng = np.random.default_rng(5)
    raisers: dict[str, Callable[[float], bool]] = {
        "ones, oue d=1024": lambda risk: ones_raise(risk, rng),
        "uniform, olh": lambda risk: uniform_raises(ldp.OLH("1", 1024), risk, rng),
        "uniform, hadamard d=845": lambda risk: uniform_raises(ldp.HadamardResponse("1", 845), risk, rng),
        "repeats, olh": lambda risk: repeats_raise(risk, rng),
    }
    print(f"honest streams of {BLOCKS * BLOCK:,} reports that raise an alarm")
    for risk, streams in STREAMS.items():
        for name, raises in raisers.items():
            raised = sum(raises(risk) for _ in range(streams))
            print(f"  risk {risk:<8g} {name:24} {raised:6,d} of {streams:,}", flush=True)


def ones_raise(risk: float, rng: np.random.Generator) -> bool:
    """Whether a stream's sums of ones do; each block's is drawn from two binomials, as the law has it."""
    oracle = ldp.OUE("1", 1024)
    ones = Ones(oracle, risk)
    others = rng.binomial(BLOCK * (oracle.domain_size - 1), float(oracle.q), size=BLOCKS)
    totals = others + rng.binomial(BLOCK, float(oracle.p), size=BLOCKS)
    return any(ones.count(BLOCK, int(total)) for total in totals)


def uniform_raises(oracle: ldp.Oracle, risk: float, rng: np.random.Generator) -> bool:
    """Whether a stream's bins do; each block's are drawn."""
    uniform = Uniform(oracle, risk)
    drawn = rng.multinomial(BLOCK, np.full(uniform.bins, 1 / uniform.bins), size=BLOCKS)
    return any(uniform.count(counts) for counts in drawn)


def repeats_raise(risk: float, rng: np.random.Generator) -> bool:
    """Whether a stream's repeated reports do; of seeds alone, which come again more often than reports."""
    repeats = Repeats(ldp.OLH("1", 1024), risk)
    seeds = np.sort(rng.integers(1 << 32, size=(BLOCKS, BLOCK), dtype=np.uint32), axis=1)
    return any(repeats.count(BLOCK, int(again)) for again in (seeds[:, 1:] == seeds[:, :-1]).sum(axis=1))


def forged() -> None:
    """Prints after how many reports that are looked at there is an alarm, and by which tests."""
    print(f"{'attack':32}" + "".join(f"{share:>24.1%}" for share in SHARES))
    for name, (oracle, forge) in attacks().items():
        row = ""
        for share in SHARES:
            met = sorted(until_alarm(oracle, forge, share, seed) for seed in range(RUNS))
            reports, tests = met[RUNS // 2]
            row += f"{'none' if not tests else f'{reports:,} {tests}':>24}"
        print(f"{name:32}{row}", flush=True)


def until_alarm(oracle: ldp.Oracle, forge: Forge, share: float, seed: int) -> tuple[int, str]:
    """Reports until the first alarm, and the tests that raise it; of none the end of a period and no test."""
    rng = np.random.default_rng(seed)
    tests: list[Ones | Uniform | Repeats] = [
        kind(oracle, RISK / 2) for kind in (Ones, Uniform, Repeats) if kind.applies(oracle)
    ]
    pool = oracle.perturb(rng.integers(oracle.domain_size, size=16 * BLOCK), rng=rng)
    for block in range(1, BLOCKS + 1):
        if block % 16 == 0:
            pool = oracle.perturb(rng.integers(oracle.domain_size, size=16 * BLOCK), rng=rng)
        reports = pool[block % 16 * BLOCK :][:BLOCK].copy()
        fakes = np.flatnonzero(rng.random(BLOCK) < share)
        reports[fakes] = forge(fakes.size, rng)
        if raised := [test.name for test in tests if test.look(reports)]:
            return block * BLOCK, "+".join(raised)
    return BLOCKS * BLOCK, ""


def cost() -> None:
    """Prints what a watch adds to decoding and counting, as a share, of batches of some sizes."""
    print(f"{'protocol':12}{'reports a batch':>16}{'counted, ns':>14}{'watched, ns':>14}{'share':>10}")
    oracles: dict[str, ldp.Oracle] = {
        "oue d=1024": ldp.OUE("1", 1024),
        "olh d=1024": ldp.OLH("1", 1024),
        "olh d=128": ldp.OLH("1", 128),
        "hadamard": ldp.HadamardResponse("1", 845),
        "pgr": ldp.PGR("1", 1024),
    }
    for name, oracle in oracles.items():
        for size in (1000, 10_000, 100_000):
            counted, watched = sides(oracle, size)
            print(f"{name:12}{size:16,d}{counted:14.1f}{watched:14.2f}{watched / counted:10.2%}", flush=True)


def sides(oracle: ldp.Oracle, size: int) -> tuple[float, float]:
    """Nanoseconds a report of decoding and counting a batch, and of a watch over it: medians of turns."""
    stream = ldp.Stream("cost", oracle)
    rng = np.random.default_rng(3)
    reports = oracle.perturb(rng.integers(oracle.domain_size, size=size), rng=rng)
    records = [frames.encode(stream, reports[i : i + 1]) for i in range(size)]
    ends = np.cumsum([len(record) for record in records])
    begins, data, state = np.concatenate([[0], ends[:-1]]), b"".join(records), oracle.zeros()
    watch = Watch(oracle, time.monotonic)
    batches = max(1, 2 * PART * BLOCK // size)  # some blocks are completed in each turn

    def turn() -> tuple[float, float]:
        began = time.perf_counter()
        decoded = frames.decode(stream, data, begins, ends)
        oracle.accumulate_judged(state, decoded.reports)
        between = time.perf_counter()
        for _ in range(batches):
            watch.look(reports)
        return between - began, (time.perf_counter() - between) / batches

    turn()
    counted, watched = zip(*(turn() for _ in range(7)), strict=True)
    return float(np.median(counted)) / size * 1e9, float(np.median(watched)) / size * 1e9


PARTS = {"honest": honest, "forged": forged, "cost": cost}


def chosen() -> Iterator[str]:
    """The parts that are asked for."""
    for name in sys.argv[1:] or PARTS:
        if name not in PARTS:
            sys.exit(f"{name!r} is no part; there are {', '.join(PARTS)}")
        yield name


if __name__ == "__main__":
    for part in [*chosen()]:
        start = time.perf_counter()
        PARTS[part]()
        print(f"{time.perf_counter() - start:.0f} s  {part}", file=sys.stderr, flush=True)
