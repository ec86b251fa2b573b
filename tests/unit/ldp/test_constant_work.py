"""Ψ of one value: draws and bytecodes do not depend on the value."""

import random
import sys
from fractions import Fraction
from pathlib import Path

import pytest

import ldp
from ldp import sampling

pytestmark = pytest.mark.statistical

FOLDER = str(Path(ldp.__file__).parent)
SEEDS = 6
CHOICE = 1  # `x if coin else y`, both made already: one way jumps over the other
WORKED = [
    *(ldp.GRR("1", d) for d in (1, 5, 3000)),
    *(ldp.OLH("1", 12_000, hash=name, g=g) for name in ("mul32", "xxh32") for g in (None, 300)),
    ldp.OLH("1", 1, hash="xxh32"),
    *(unary("1", d) for unary in (ldp.OUE, ldp.SUE) for d in (1, 9, 3000)),
    ldp.SubsetSelection("1", 2),
    ldp.SubsetSelection("1", 90),  # as bits
    ldp.SubsetSelection("4", 3000),  # as indices
    ldp.SubsetSelection("1", 6, k=5),
    *(ldp.HadamardResponse("1", d) for d in (1, 7, 3000)),
    *(ldp.PGR(epsilon, d) for epsilon in ("1", "4") for d in (1, 7, 845, 3000)),
    ldp.PGR("1", 400, prime=2, dimension=9),
    ldp.PGR("1", 10_000, prime=10_007, dimension=2),
]


class Counted:
    """Replacement of the module `secrets` with seeded coins: yields the drawn numbers."""

    def __init__(self, seed: int) -> None:
        self._coins, self.draws = random.Random(seed), []

    def randbelow(self, bound: int) -> int:
        self.draws.append(bound)
        return self._coins.randrange(bound)

    def randbits(self, n: int) -> int:
        self.draws.append(1 << n)
        return self._coins.getrandbits(n)


def bytecodes(call) -> int:
    """Number of the package's bytecodes that a call runs."""
    count = 0

    def step(frame, event, argument):
        nonlocal count
        count += event == "opcode"
        return step

    def enter(frame, event, argument):
        if not frame.f_code.co_filename.startswith(FOLDER):
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        return step

    before = sys.gettrace()
    sys._getframe().f_trace_opcodes = (
        True  # Python 3.12 looks once, at settrace, whether any frame wants them
    )
    sys.settrace(enter)
    try:
        call()
    finally:
        sys.settrace(before)
    return count


def some_values(d: int) -> list[int]:
    """Both ends, powers of 2, 3 and 10 and their neighbours, and some more."""
    powers = [base**k for base in (2, 3, 10) for k in range(24) if base**k <= d]
    near = {0, 1, 5, d - 1, d // 2, *(power + shift for power in powers for shift in (-2, -1, 0, 1))}
    return sorted(value for value in near if 0 <= value < d)


def work(monkeypatch, oracle, value: int, seed: int) -> tuple[tuple[int, ...], int]:
    """The bounds of the draws of a report, in their order, and its bytecodes."""
    coins = Counted(seed)
    monkeypatch.setattr(sampling, "secrets", coins)
    count = bytecodes(lambda: oracle.perturb_one(value))
    return tuple(coins.draws), count


@pytest.mark.slow
@pytest.mark.parametrize("oracle", WORKED, ids=repr)
def test_work_per_report_is_constant_over_values_and_outcomes(monkeypatch, oracle):
    work(monkeypatch, oracle, 0, 0)  # imports and caches
    done = [
        work(monkeypatch, oracle, value, seed)
        for seed in range(SEEDS)
        for value in some_values(oracle.domain_size)
    ]
    assert len({draws for draws, _ in done}) == 1
    counts = [count for _, count in done]
    assert min(counts) > 10
    assert max(counts) - min(counts) <= CHOICE


def test_the_bytecodes_of_a_loop_are_counted():
    two, four = (bytecodes(lambda p=p: sampling.mask(p, 8)) for p in (Fraction(1, 4), Fraction(1, 16)))
    assert 10 < two < four
