"""Alarms on simulated streams: ``python -m tests.long.alarms [PART ...]``.

- ``honest`` (6 min): alarms of 10,000 honest streams of 8,192 reports, by protocol and test, at the risk of service and
  at 10 %.
- ``law`` (6 min): the same for 10,000 streams of 10⁶ reports; draws the statistics of each block instead of reports.
- ``poisoning`` (5 min): examined reports until an alarm, by the share of poisoning reports; the median of 5 streams.
- ``cost`` (3 s): CPU time of a watch.

One core, 1 GiB.
"""

import math
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial

import numpy as np

import ldp
from ldp import frames
from ldp.alarms import HammingWeight, Repeats, Uniform, Watch
from ldp.alarms.watch import BLOCK, ENOUGH, RISK
from tests.long.alarms import honest
from tests.long.alarms.poisoning import Poison, attacks
from worker.counting.columns import Batch, Columns
from worker.counting.partition_state import PartitionState

STREAMS = {RISK: 10_000, 0.1: 1000}
BLOCKS = -(-ENOUGH // BLOCK)
SHARES = (0.001, 0.01, 0.05)
RUNS = 5


def whole() -> None:
    """Prints how many honest streams raise an alarm at two risks, and the expected bound."""
    print(f"{honest.STREAMS:,} streams of {honest.BLOCKS} blocks of reports; alarms, and how many may be")
    print(f"{'protocol':16}{'test':10}" + "".join(f"{f'risk {risk:g}':>20}" for risk in honest.RISKS))
    for protocol, test, found in honest.rows():
        cells = (f"{f'{raised:,} of {may:,g}':>20}" for raised, may in found.values())
        print(f"{protocol:16}{test:10}" + "".join(cells), flush=True)


def law() -> None:
    """Prints how many honest streams raise an alarm at two risks, by drawn statistics."""
    raisers: dict[str, Callable[[float, np.random.Generator], bool]] = {
        "ones, oue d=1024": ones_raise,
        "uniform, olh": partial(uniform_raises, ldp.OLH("1", 1024)),
        "uniform, hadamard d=845": partial(uniform_raises, ldp.HadamardResponse("1", 845)),
        "repeats, olh": repeats_raise,
    }
    print(f"honest streams of {BLOCKS * BLOCK:,} reports that raise an alarm")
    for risk, streams in reversed(STREAMS.items()):
        for name, raises in raisers.items():
            rng = np.random.default_rng(5)
            raised = sum(raises(risk, rng) for _ in range(streams))
            print(f"  risk {risk:<8g} {name:24} {raised:6,d} of {streams:,}", flush=True)


def ones_raise(risk: float, rng: np.random.Generator) -> bool:
    """Returns whether the sums of ones raise an alarm; each is drawn from two binomials."""
    oracle = ldp.OUE("1", 1024)
    ones = HammingWeight(oracle, risk)
    others = rng.binomial(BLOCK * (oracle.domain_size - 1), float(oracle.q), size=BLOCKS)
    totals = others + rng.binomial(BLOCK, float(oracle.p), size=BLOCKS)
    return any(ones.count(BLOCK, int(total)) for total in totals)


def uniform_raises(oracle: ldp.Oracle, risk: float, rng: np.random.Generator) -> bool:
    """Returns whether the bins raise an alarm; each block is drawn."""
    uniform = Uniform(oracle, risk)
    drawn = rng.multinomial(BLOCK, np.full(uniform.bins, 1 / uniform.bins), size=BLOCKS)
    return any(uniform.count(counts) for counts in drawn)


def repeats_raise(risk: float, rng: np.random.Generator) -> bool:
    """Returns whether repeated reports of one value raise an alarm, by Poisson's law."""
    oracle = ldp.OLH("1", 1024)
    repeats, p = Repeats(oracle, risk), float(oracle.p)
    same = (p**2 + (1 - p) ** 2 / (oracle.g - 1)) / 2**32  # two reports
    drawn = rng.poisson(same * BLOCK * (BLOCK - 1) / 2, size=BLOCKS)
    expected = math.exp(repeats.log_peak) * BLOCK * (BLOCK - 1) / 2
    return any(repeats.count(BLOCK, np.ones(again, np.int64), expected) for again in drawn)


def poisoning() -> None:
    """Prints after how many examined reports which tests raise an alarm."""
    print(f"{'attack':32}" + "".join(f"{share:>24.1%}" for share in SHARES))
    for name, (oracle, poison) in attacks().items():
        row = ""
        for share in SHARES:
            met = sorted(until_alarm(oracle, poison, share, seed) for seed in range(RUNS))
            reports, tests = met[RUNS // 2]
            row += f"{'none' if not tests else f'{reports:,} {tests}':>24}"
        print(f"{name:32}{row}", flush=True)


def until_alarm(oracle: ldp.Oracle, poison: Poison, share: float, seed: int) -> tuple[int, str]:
    """Returns the reports until the first alarm and its tests; without an alarm, the reports of a period."""
    rng = np.random.default_rng(seed)
    tests: list[HammingWeight | Uniform | Repeats] = [
        kind(oracle, RISK / 2) for kind in (HammingWeight, Repeats) if kind.applies(oracle)
    ]
    if Uniform.applies(oracle):
        tests.append(Uniform(oracle, RISK / 2, np.random.default_rng([seed, 1])))
    pool = oracle.perturb(rng.integers(oracle.domain_size, size=16 * BLOCK), rng=rng)
    for block in range(1, BLOCKS + 1):
        if block % 16 == 0:
            pool = oracle.perturb(rng.integers(oracle.domain_size, size=16 * BLOCK), rng=rng)
        reports = pool[block % 16 * BLOCK :][:BLOCK].copy()
        fakes = np.flatnonzero(rng.random(BLOCK) < share)
        reports[fakes] = poison(fakes.size, rng)
        if raised := [test.name for test in tests if test.look(reports)]:
            return block * BLOCK, "+".join(raised)
    return BLOCKS * BLOCK, ""


def cost() -> None:
    """Prints the CPU time of a watch for a block, and for a batch that it skips."""
    print(
        f"{'protocol':14}{'a block, ms':>14}{'of a core':>12}{'a batch, µs':>14}{'counting 10,000, µs':>22}"
    )
    oracles: dict[str, ldp.Oracle] = {
        "oue d=1024": ldp.OUE("1", 1024),
        "oue ε=4 d=900": ldp.OUE("4", 900),
        "subset d=20": ldp.SubsetSelection("1", 20),
        "olh d=1024": ldp.OLH("1", 1024),
        "olh d=128": ldp.OLH("1", 128),
        "hadamard": ldp.HadamardResponse("1", 845),
        "pgr": ldp.PGR("1", 1024),
    }
    for name, oracle in oracles.items():
        block, batch, counting = costs(oracle)
        print(
            f"{name:14}{block * 1e3:14.2f}{block:12.2%}{batch * 1e6:14.2f}{counting * 1e6:22.0f}", flush=True
        )


def costs(oracle: ldp.Oracle) -> tuple[float, float, float]:
    """Returns median seconds of a block, of a skipped batch, and of counting 10,000 records."""
    stream, size, calls = ldp.Stream("cost", oracle), 10_000, 1000
    rng = np.random.default_rng(3)
    reports = oracle.perturb(rng.integers(oracle.domain_size, size=size), rng=rng)
    columns = Columns.of(
        range(size), [0] * size, [frames.encode(stream, reports[i : i + 1]) for i in range(size)]
    )
    now = [0.0]
    watch = Watch(oracle, lambda: now[0])

    def turn() -> tuple[float, float, float]:
        state = PartitionState.fresh(ldp.Fleet((stream,)), 0)
        now[0] += 1
        times = [time.perf_counter()]
        watch.look(reports[:BLOCK])
        times.append(time.perf_counter())
        for _ in range(calls):
            watch.look(reports)
        times.append(time.perf_counter())
        state.apply(Batch(0, 0, size, columns))
        times.append(time.perf_counter())
        return times[1] - times[0], (times[2] - times[1]) / calls, times[3] - times[2]

    turn()
    block, batch, counting = (
        float(np.median(side)) for side in zip(*(turn() for _ in range(25)), strict=True)
    )
    return block, batch, counting


PARTS = {"honest": whole, "law": law, "poisoning": poisoning, "cost": cost}


def chosen() -> Iterator[str]:
    """Yields the requested parts."""
    for name in sys.argv[1:] or PARTS:
        if name not in PARTS:
            sys.exit(f"{name!r} is no part; there are {', '.join(PARTS)}")
        yield name


if __name__ == "__main__":
    for part in [*chosen()]:
        start = time.perf_counter()
        PARTS[part]()
        print(f"{time.perf_counter() - start:.0f} s  {part}", file=sys.stderr, flush=True)
