"""Estimates of arbitrary counts, for tests of single values."""

import numpy as np
import numpy.typing as npt

import ldp


def estimated(oracle: ldp.Oracle, counts: npt.ArrayLike, n: int) -> ldp.Estimate:
    """Applies equation 2 without the checks of `Oracle.estimate`."""
    frequencies = (np.asarray(counts) / n - float(oracle.q)) / float(oracle.p - oracle.q)
    return ldp.Estimate(frequencies, n, oracle, counts=np.asarray(counts))
