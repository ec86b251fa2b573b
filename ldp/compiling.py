"""Compiles the kernels of a stream before its first report."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ldp import kernels
from ldp.frames import decode, decode_all
from ldp.oracles import Oracle
from ldp.oracles.grr import GRR
from ldp.oracles.partitioned import accumulate_partitioned, address_of
from ldp.stream import Stream


def warm(*documents: Stream) -> None:
    """Compiles or loads the kernels that count documents' binary reports.

    It decodes and counts an empty batch as a worker does. The kernels of `Oracle.support` are included.
    """
    nothing = np.empty(0, np.int64)
    decoded = decode_all(documents, b"", nothing, nothing)
    for document, reports in zip(documents, decoded.reports, strict=True):
        _warm(document.oracle, reports)


def _warm(oracle: Oracle, reports: npt.NDArray[np.void]) -> None:
    states = [oracle.zeros(), oracle.zeros()]
    addresses = np.array([address_of(oracle, state) for state in states])
    for counted in (addresses[:1], addresses):
        runs = np.array([[0], [0]])
        for _ in accumulate_partitioned(oracle, counted, reports, runs, 1):
            pass
    if "bits" in oracle.fields:
        kernels.count_ones(oracle.column(reports, "bits"))
    if oracle.name in ("hadamard", "pgr"):
        kernels.walsh_hadamard(np.zeros(2, np.int64))


def warm_json() -> None:
    """Compiles the decoder of JSON reports, or loads it; see `warm`."""
    at = np.array([0, 1])
    decode(Stream("json", GRR("1", domain_size=2)), b"{", at[:1], at[1:])
