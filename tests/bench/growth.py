"""How cost grows with the domain: at four sizes, and as the exponent of a power fitted to them."""

from collections.abc import Callable, Iterator

import numpy as np

import ldp
from tests.bench.measure import Line, growth

SIZES = (1 << 10, 1 << 13, 1 << 16, 1 << 20)
REPORTS = {"olh": 1_024, "oue": 512, "pgr": 1_000_000, "hadamard": 1_000_000}


def lines() -> Iterator[Line]:
    """Seconds to count a report, and to decode a state."""
    rng = np.random.default_rng(10)
    for name, parameters in (
        ("olh", {"hash": "mul32"}),
        ("olh", {"hash": "xxh32"}),
        ("oue", {}),
        ("pgr", {}),
        ("hadamard", {}),
    ):
        oracles = [ldp.oracle(name, "1", d, **parameters) for d in SIZES]
        title = " ".join([name, *parameters.values()])
        setup = f"ε=1, {REPORTS[name]} reports a call; 1 is proportional to the domain"
        calls = {oracle.domain_size: counting(oracle, rng) for oracle in oracles}
        yield growth(f"growth: count {title} reports", calls, setup=setup, rate=(REPORTS[name], "report"))
        if oracles[0].state_size != oracles[0].domain_size:
            calls = {oracle.domain_size: decoding(oracle, rng) for oracle in oracles}
            counters = ", ".join(str(oracle.state_size) for oracle in oracles)
            yield growth(f"growth: decode {title}", calls, setup=f"ε=1; {counters} counters")


def counting(oracle: ldp.Oracle, rng: np.random.Generator) -> Callable[[], object]:
    """Counts reports of uniform fields, which cost what others do."""
    reports = np.zeros(REPORTS[oracle.name], oracle.report_dtype)
    for field, limit in oracle.fields.items():
        reports[field] = rng.integers(limit, size=reports[field].shape, dtype=reports[field].dtype)
    state = oracle.zeros()
    return lambda: oracle.accumulate(state, reports)


def decoding(oracle: ldp.Oracle, rng: np.random.Generator) -> Callable[[], object]:
    """Decodes a state of about ten reports a counter."""
    state = rng.poisson(10, size=oracle.state_size)
    return lambda: oracle.support(state)
