"""Projective Geometry Response: counting against np.bincount, decoding against one FFT, both against OLH."""

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
from scipy import fft

import ldp
from tests.bench.measure import Line, compare, instruction_set

REPORTS = 10_000_000
OLH_REPORTS = 2_048


def lines() -> Iterator[Line]:
    """Counting, decoding, and the whole path."""
    rng = np.random.default_rng(9)
    for d in (1024, 1_000_000):
        pgr = ldp.PGR("1", domain_size=d)
        yield count(pgr, pgr.perturb(rng.integers(d, size=1_000_000), rng=rng))
    yield decode(pgr, rng.multinomial(REPORTS, np.full(pgr.points, 1 / pgr.points)))
    yield whole(1 << 20, rng)


def count(pgr: ldp.PGR, reports: npt.NDArray[np.void]) -> Line:
    """Adding a batch to the state, against counting its indices into a new array."""
    indices, state = np.ascontiguousarray(reports["index"]), pgr.zeros()
    pgr.accumulate(state, reports)
    assert np.array_equal(state, np.bincount(indices, minlength=pgr.points)), "numpy counts otherwise"
    return compare(
        f"count PGR reports, d={pgr.domain_size}",
        lambda: pgr.accumulate(state, reports),
        lambda: np.bincount(indices, minlength=pgr.points),
        peer_name="np.bincount of the same indices",
        setup=f"ε=1, K={pgr.points} counters, {len(reports)} reports a call",
        rate=(len(reports), "reports"),
    )


def decode(pgr: ldp.PGR, state: npt.NDArray[np.int64]) -> Line:
    """The supports of all values, against the transform alone of the counters at all multiples of the points."""
    lifted, words = lift(pgr, state)
    shape = (pgr.prime,) * pgr.dimension
    sums = fft.fftn(lifted.reshape(shape)).real.ravel()[words[: pgr.domain_size]]
    expected = np.rint((sums + state.sum()) / pgr.prime).astype(np.int64)
    assert np.array_equal(pgr.support(state), expected), "the transform of the lifted counters says otherwise"
    return compare(
        f"decode PGR, d={pgr.domain_size}",
        lambda: pgr.support(state),
        lambda: fft.rfftn(lifted.reshape(shape)),
        peer_name="scipy.fft.rfftn of the lifted counters, made before",
        setup=f"ε=1, prime {pgr.prime}, dimension {pgr.dimension}, K={pgr.points}, n={state.sum()}, "
        f"{lifted.size} lifted counters",
    )


def lift(pgr: ldp.PGR, state: npt.NDArray[np.int64]) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.int64]]:
    """The counters at all multiples of their points, and the points as numbers in base ``prime``."""
    q, t = pgr.prime, pgr.dimension
    words = np.concatenate([np.arange(q**m, 2 * q**m) for m in range(t)])
    lifted = np.zeros(q**t)
    for factor in range(1, q):
        lifted[sum(words // q**m % q * factor % q * q**m for m in range(t))] = state
    return lifted, words


def whole(d: int, rng: np.random.Generator) -> Line:
    """From reports to supports, against OLH's counting of fewer reports, which costs the same for each."""
    pgr, olh = ldp.PGR("1", domain_size=d), ldp.OLH("1", domain_size=d)
    reports = np.empty(REPORTS, pgr.report_dtype)
    reports["index"] = rng.integers(pgr.points, size=REPORTS)
    hashed = olh.perturb(rng.integers(d, size=OLH_REPORTS), rng=rng)
    counts = olh.zeros()

    def path() -> None:
        state = pgr.zeros()
        pgr.accumulate(state, reports)
        pgr.support(state)

    return compare(
        f"from PGR reports to counts, d={d}",
        path,
        lambda: olh.accumulate(counts, hashed),
        peer_name="counting OLH reports, mul32",
        setup=f"ε=1; PGR: {REPORTS} reports and one decoding, K={pgr.points}; OLH: {OLH_REPORTS} reports, so its rate "
        f"for as many is extrapolated; {instruction_set()}",
        rate=(REPORTS, "reports"),
        peer_handles=OLH_REPORTS,
    )
