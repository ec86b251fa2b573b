"""Make estimates.json: counts of reports, and the estimates of other packages from the same reports.

Run it in an environment apart from the project's own; these packages are not among its dependencies:

    python -m pip install multi-freq-ldpy==0.2.5 opendp==0.16.0 pure-ldp==1.2.0 scikit-learn statsmodels bitarray \
        bitstring "xxhash<4" scipy
    python make_estimates.py

The reports are drawn here, because not every package has a seed. All three packages have the MIT licence.
"""

import json
from importlib.metadata import version
from pathlib import Path

import numpy as np
import opendp.prelude as dp
import xxhash
from multi_freq_ldpy.estimators.Histogram_estimator import MI_long
from multi_freq_ldpy.pure_frequency_oracles import GRR, LH, SS, UE
from pure_ldp.frequency_oracles.direct_encoding import DEServer
from pure_ldp.frequency_oracles.hadamard_response import HadamardResponseServer
from pure_ldp.frequency_oracles.local_hashing import LHServer
from pure_ldp.frequency_oracles.unary_encoding import UEServer

D, N = 12, 400
EPSILONS = ("0.5", "1", "4")
RNG = np.random.default_rng(20200616)
SHARES = np.linspace(1, 5, D) / np.linspace(1, 5, D).sum()


def values() -> list[int]:
    """Reports of one value."""
    return RNG.choice(D, N, p=SHARES).tolist()


def bits() -> np.ndarray:
    """Reports of one bit per value."""
    return (RNG.random((N, D)) < np.linspace(0.3, 0.7, D)).astype(int)


def hashed(g: int) -> tuple[list[tuple[int, int]], list[int]]:
    """Reports of a bucket and a seed, and for each value the number of supporting reports."""
    reports = [(int(RNG.integers(g)), int(RNG.integers(1 << 32))) for _ in range(N)]
    counts = [sum(xxhash.xxh32_intdigest(str(v), seed) % g == b for b, seed in reports) for v in range(D)]
    return reports, counts


def case(package, protocol, parameters, method, counts, estimate) -> dict:
    """A case of the file: `method` is the one of the paper that the package uses."""
    return {
        "package": package,
        "protocol": protocol,
        "parameters": parameters,
        "method": method,
        "n": N,
        "counts": np.asarray(counts, int).tolist(),
        "estimate": np.asarray(estimate, float).tolist(),
    }


def multi_freq_ldpy(epsilon: str):
    """Cases of GRR, OUE, SUE, OLH and Subset Selection."""
    e = float(epsilon)
    reports = values()
    found = [("grr", {}, np.bincount(reports, minlength=D), GRR.GRR_Aggregator_MI(reports, D, e))]
    for name, optimal in (("oue", True), ("sue", False)):
        reports = bits()
        found.append((name, {}, reports.sum(0), UE.UE_Aggregator_MI(list(reports), e, optimal)))
    g = round(np.exp(e)) + 1
    reports, counts = hashed(g)
    found.append(("olh", {"g": g, "hash": "xxh32"}, counts, LH.LH_Aggregator_MI(reports, D, e)))
    k = int(max(1, np.rint(D / (np.exp(e) + 1))))
    reports = [RNG.choice(D, k, replace=False, p=SHARES) for _ in range(N)]
    counts = np.bincount(np.concatenate(reports), minlength=D)
    found.append(("subset", {"k": k}, counts, SS.SS_Aggregator_MI(reports, D, e)))
    for name, more, counts, estimate in found:
        yield case("multi-freq-ldpy", name, {"epsilon": epsilon, **more}, "norm-mul", counts, estimate)


def pure_ldp(epsilon: str):
    """Cases of GRR, OUE, SUE, OLH and Hadamard Response."""
    e = float(epsilon)
    reports = values()
    found = [("grr", {}, np.bincount(reports, minlength=D), DEServer(e, D, index_mapper=int), reports)]
    for name, optimal in (("oue", True), ("sue", False)):
        reports = bits()
        found.append((name, {}, reports.sum(0), UEServer(e, D, use_oue=optimal, index_mapper=int), reports))
    g = round(np.exp(e)) + 1
    reports, counts = hashed(g)
    server = LHServer(e, D, use_olh=True, index_mapper=int)
    found.append(("olh", {"g": g, "hash": "xxh32"}, counts, server, reports))
    if e <= 1:  # above, the package uses another protocol
        reports = RNG.integers(16, size=N).tolist()
        counts = [sum((index & v + 1).bit_count() % 2 == 0 for index in reports) for v in range(D)]
        found.append(("hadamard", {}, counts, HadamardResponseServer(e, D, index_mapper=int), reports))
    for name, more, counts, server, reports in found:
        server.aggregate_all(reports)
        estimate = server.estimate_all(range(D), suppress_warnings=True) / N
        yield case("pure-ldp", name, {"epsilon": epsilon, **more}, "base", counts, estimate)


def rappor():
    """Cases of RAPPOR: one round in OpenDP, and both rounds in multi-freq-ldpy."""
    dp.enable_features("contrib")
    for f in ("1/4", "1/2", "3/4"):
        share, reports = int(f[0]) / int(f[2]), bits()
        packed = [np.packbits(report, bitorder="little").tobytes() for report in reports]
        estimate = np.array(dp.m.debias_randomized_response_bitvec(packed, share)[:D]) / N
        yield case("opendp", "unary", {"f": f, "p": "1", "q": "0"}, "base", reports.sum(0), estimate)
        counts = bits().sum(0)
        estimate = MI_long(counts, N, 1 - share / 2, share / 2, 0.75, 0.5)
        yield case("multi-freq-ldpy", "unary", {"f": f, "p": "3/4", "q": "1/2"}, "norm-mul", counts, estimate)


def main() -> None:
    """Write the file next to this script."""
    cases = [one for epsilon in EPSILONS for of in (multi_freq_ldpy, pure_ldp) for one in of(epsilon)]
    made_with = {name: version(name) for name in ("multi-freq-ldpy", "opendp", "pure-ldp")}
    document = {"made_with": made_with, "cases": [*cases, *rappor()]}
    Path(__file__).with_name("estimates.json").write_text(json.dumps(document, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
