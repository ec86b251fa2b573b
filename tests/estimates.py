"""Estimates of counts that need not be those of any reports: for tests that look at each value by itself."""

import numpy as np
import numpy.typing as npt

import ldp


def estimated(oracle: ldp.Oracle, counts: npt.ArrayLike, n: int) -> ldp.Estimate:
    """Equation 2, as `Oracle.estimate`, which refuses counts whose sum the protocol cannot give."""
    frequencies = (np.asarray(counts) / n - float(oracle.q)) / float(oracle.p - oracle.q)
    return ldp.Estimate(frequencies, n, oracle, counts=np.asarray(counts))
