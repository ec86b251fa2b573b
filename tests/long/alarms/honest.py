"""Alarms on honest streams, examined block by block as in service."""

from collections import Counter
from collections.abc import Iterator
from itertools import count

import numpy as np

import ldp
from ldp.alarms import HammingWeight, Repeats, Uniform, Watch
from ldp.alarms.watch import RISK, block_of

STREAMS = 10_000
BLOCKS = 2
"""Blocks of a stream: each test is evaluated twice."""
RISKS = (RISK, 0.1)
"""The risk of service, and a risk large enough to count alarms."""

ORACLES: dict[str, ldp.Oracle] = {
    "oue d=32": ldp.OUE("1", 32),
    "sue d=32": ldp.SUE("1", 32),
    "unary d=32": ldp.Unary("3/4", "1/8", 32),
    "olh d=1024": ldp.OLH("1", 1024),
    "subset d=20": ldp.SubsetSelection("1", 20),
    "hadamard d=845": ldp.HadamardResponse("1", 845),
}
"""The protocols with alarms; domains are small where perturbation is slow."""


def rows() -> Iterator[tuple[str, str, dict[float, tuple[int, float]]]]:
    """Yields protocol, test, and per risk the alarms and the expected bound."""
    for name, oracle in ORACLES.items():
        raised = raisers(oracle, STREAMS, BLOCKS, np.random.default_rng(11))
        tests = [kind.name for kind in (HammingWeight, Uniform, Repeats) if kind.applies(oracle)]
        for test in tests:
            may = {risk: STREAMS * risk / len(tests) for risk in RISKS}
            yield name, test, {risk: (raised[risk, test], may[risk]) for risk in RISKS}


def raisers(
    oracle: ldp.Oracle, streams: int, blocks: int, rng: np.random.Generator
) -> Counter[tuple[float, str]]:
    """Counts honest streams that raise an alarm, by risk and test; values follow Zipf's law."""
    raised, size = Counter[tuple[float, str]](), block_of(oracle)
    shares = np.cumsum(1.0 / np.arange(1, oracle.domain_size + 1))
    for _ in range(streams):
        users = np.searchsorted(shares, rng.random(blocks * size) * shares[-1], side="right")
        reports = oracle.perturb(users, rng=rng)
        # a watch examines one block a second: each call of the clock is a second later
        watches = {risk: Watch(oracle, count().__next__, rng, risk) for risk in RISKS}
        for block in np.split(reports, blocks):
            raised.update((risk, alarm.test) for risk in RISKS for alarm in watches[risk].look(block))
    return raised
