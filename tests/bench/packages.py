"""Counting OLH reports: against the two Python packages for local differential privacy, on the same reports.

Both hash with xxHash32, one value of one report at a time. They are installed apart from the project, in a virtual
environment below the user's cache folder that the first run builds from `packages.txt`, made by

    uv pip compile --universal --python-version 3.11 --generate-hashes --no-header --no-annotate packages.in

from ``pure-ldp==1.2.0``, ``multi-freq-ldpy==0.2.5``, and what the former needs and does not declare: ``scikit-learn``,
``statsmodels``, ``bitarray``, ``bitstring`` and ``xxhash<4`` (newer ones refuse a `str`).
"""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt

import ldp
from ldp.consistency import METHODS
from tests.bench.environment import environment
from tests.bench.measure import Line, compare, instruction_set

HERE = Path(__file__).parent
D = 1024
REPORTS = 1024
BENCHES = ("count OLH reports as pure-ldp does", "estimate from OLH reports as multi-freq-ldpy does")


def lines() -> Iterator[Line]:
    """Reports a second, for each package."""
    try:
        python = environment(HERE / "packages.txt")
    except subprocess.CalledProcessError as error:
        reason = f"the peers' environment could not be built: {error.stderr.strip().splitlines()[-1:]}"
        yield from ({"bench": bench, "skipped": reason} for bench in BENCHES)
        return
    oracle = ldp.OLH("1", domain_size=D, hash="xxh32")
    rng = np.random.default_rng(6)
    reports = oracle.perturb(rng.zipf(1.5, size=REPORTS) % D, rng=rng)
    with subprocess.Popen(
        [python, HERE / "packages_server.py"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as server:
        assert server.stdin is not None
        task = {"epsilon": 1.0, "d": D, "reports": reports[["bucket", "seed"]].tolist()}
        server.stdin.write(json.dumps(task) + "\n")
        yield from measured(oracle, reports, server)
        server.stdin.close()


def measured(
    oracle: ldp.OLH, reports: npt.NDArray[np.void], server: "subprocess.Popen[str]"
) -> Iterator[Line]:
    """The comparisons, each after a check that both give the same."""

    def ask(function: str) -> list[float]:
        assert server.stdin is not None
        assert server.stdout is not None
        print(function, file=server.stdin, flush=True)
        answer: list[float] = json.loads(server.stdout.readline())
        return answer

    def count() -> npt.NDArray[np.int64]:
        state = oracle.zeros()
        oracle.accumulate(state, reports)
        return oracle.support(state)

    def estimate() -> npt.NDArray[np.float64]:
        return METHODS["norm-mul"](oracle.estimate(count(), len(reports)))

    assert count().tolist() == ask("pure_ldp"), "pure-ldp counts otherwise"
    assert np.allclose(estimate(), ask("multi_freq_ldpy"), rtol=1e-12, atol=1e-15), (
        "multi-freq-ldpy estimates otherwise"
    )
    setup = f"xxh32, d={D}, ε=1, g={oracle.g}, {REPORTS} reports a call; ours with {instruction_set()}"
    rate = (REPORTS, "reports")
    yield compare(
        BENCHES[0],
        count,
        lambda: ask("pure_ldp"),
        peer_name="LHServer of pure-ldp 1.2.0",
        setup=setup,
        rate=rate,
    )
    yield compare(
        BENCHES[1],
        estimate,
        lambda: ask("multi_freq_ldpy"),
        peer_name="LH_Aggregator_MI of multi-freq-ldpy 0.2.5",
        setup=setup,
        rate=rate,
    )
