"""Poisoning reports that raise the estimate of value 0, or of the values 0 to 9."""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

import ldp
from ldp import kernels

Reports = npt.NDArray[np.void]
Poison = Callable[[int, np.random.Generator], Reports]
"""Makes a number of poisoning reports."""

TARGETS = 10
SEARCH = 1 << 16
"""Seeds that an attacker on OLH tries to find those that support most targets."""


def one_vector(oracle: ldp.OUE, rng: np.random.Generator) -> Poison:
    """Repeats one vector with the target and the most ones that are accepted."""
    vector = most_ones(oracle)(1, rng)
    return lambda n, _: np.repeat(vector, n)


def most_ones(oracle: ldp.OUE) -> Poison:
    """Draws vectors with the target and the most ones that are accepted."""

    def poison(n: int, rng: np.random.Generator) -> Reports:
        others = rng.random((n, oracle.domain_size - 1)).argsort(axis=1)[:, : oracle.most_supported - 1] + 1
        return _reports(oracle, np.hstack([np.zeros((n, 1), np.int64), others]))

    return poison


def mean_ones(oracle: ldp.OUE) -> Poison:
    """Draws vectors with the target and the mean number of ones of honest vectors."""
    ones = round(float(oracle.p + (oracle.domain_size - 1) * oracle.q))

    def poison(n: int, rng: np.random.Generator) -> Reports:
        others = rng.random((n, oracle.domain_size - 1)).argsort(axis=1)[:, : ones - 1] + 1
        return _reports(oracle, np.hstack([np.zeros((n, 1), np.int64), others]))

    return poison


def seeds(oracle: ldp.OLH, many: int) -> Poison:
    """Draws one of the best seeds found, with the bucket that supports most targets."""
    tried = np.random.default_rng(8).integers(1 << 32, size=SEARCH, dtype=np.uint32)
    hashed = np.stack(
        [kernels.HASH[oracle.hash](tried, np.full(SEARCH, v), oracle.g) for v in range(TARGETS)]
    )
    supported = np.stack([(hashed == bucket).sum(axis=0) for bucket in range(oracle.g)])
    best = np.argsort(-supported.max(axis=0))[:many]
    chosen = np.zeros(many, oracle.report_dtype)
    chosen["seed"], chosen["bucket"] = tried[best], supported[:, best].argmax(axis=0)
    return lambda n, rng: chosen[rng.integers(many, size=n)]


def one_index(oracle: ldp.Oracle, value: int = 0) -> Poison:
    """Repeats one index that supports the target."""
    index = int(oracle.perturb([value], rng=np.random.default_rng(1))["index"][0])
    report = np.array([(index,)], oracle.report_dtype)
    return lambda n, _: np.repeat(report, n)


def copies(oracle: ldp.Oracle, times: int) -> Poison:
    """Sends each honest report of the target several times."""
    return lambda n, rng: np.repeat(oracle.perturb(np.zeros(-(-n // times), np.int64), rng=rng), times)[:n]


def honest_but_one(oracle: ldp.Oracle) -> Poison:
    """Perturbs the target honestly: no test can distinguish these reports."""
    return lambda n, rng: oracle.perturb(np.zeros(n, np.int64), rng=rng)


def _reports(oracle: ldp.OUE, ones: npt.NDArray[np.int64]) -> Reports:
    bits = np.zeros((len(ones), oracle.report_bytes * 8), np.bool_)
    np.put_along_axis(bits, ones, True, axis=1)
    reports = np.zeros(len(ones), oracle.report_dtype)
    reports["bits"] = np.packbits(bits, axis=1, bitorder="little")
    return reports


def attacks() -> dict[str, tuple[ldp.Oracle, Poison]]:
    """Returns the attacks by name, each with its protocol."""
    oue, olh = ldp.OUE("1", domain_size=1024), ldp.OLH("1", domain_size=1024)
    hadamard, subset = ldp.HadamardResponse("1", domain_size=845), ldp.SubsetSelection("1", domain_size=20)
    return {
        "oue, one vector": (oue, one_vector(oue, np.random.default_rng(1))),
        "oue, most ones": (oue, most_ones(oue)),
        "oue, mean number of ones": (oue, mean_ones(oue)),
        "oue, honest but for the value": (oue, honest_but_one(oue)),
        "olh, 1 seed": (olh, seeds(olh, 1)),
        "olh, 100 seeds": (olh, seeds(olh, 100)),
        "olh, 10,000 seeds": (olh, seeds(olh, 10_000)),
        "hadamard, one index": (hadamard, one_index(hadamard)),
        "subset d=20, 20 copies": (subset, copies(subset, 20)),
        "subset d=20, 2 copies": (subset, copies(subset, 2)),
    }
