"""Counting bits and subsets: the compiled kernels against numpy."""

from collections.abc import Callable, Iterator

import numpy as np
import numpy.typing as npt

import ldp
from tests.bench.measure import Line, compare

D = 1024
REPORTS = 16_384

Reports = npt.NDArray[np.void]


def lines() -> Iterator[Line]:
    """Reports a second, for each of the protocols whose report names many values."""
    for name, epsilon in (("oue", "1"), ("sue", "1"), ("subset", "1"), ("subset", "4")):
        oracle = ldp.oracle(name, epsilon, D)
        rng = np.random.default_rng(8)
        reports = oracle.perturb(rng.integers(D, size=REPORTS), rng=rng)
        yield line(oracle, reports)


def line(oracle: ldp.Oracle, reports: Reports) -> Line:
    """One comparison, after a check that both count the same."""
    field = (reports.dtype.names or ())[0]
    column = np.ascontiguousarray(reports[field])
    peers: dict[str, tuple[str, Callable[[], npt.NDArray[np.int64]]]] = {
        "bits": (
            "np.unpackbits and a sum",
            lambda: np.unpackbits(column, axis=1, bitorder="little").sum(axis=0, dtype=np.int64)[:D],
        ),
        "indices": ("np.bincount", lambda: np.bincount(column.ravel(), minlength=D)),
    }
    peer_name, peer = peers[field]
    state = oracle.zeros()
    oracle.accumulate(state, reports)
    assert np.array_equal(state, peer()), f"numpy counts {oracle.name} otherwise"
    return compare(
        f"count {oracle.name} reports, {field}",
        lambda: oracle.accumulate(state, reports),
        peer,
        peer_name=peer_name,
        setup=f"d={D}, ε={oracle.epsilon}, {reports.dtype.itemsize} bytes a report, {REPORTS} reports a call",
        rate=(REPORTS, "reports"),
    )
