"""Counts a batch of reports into several states."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from ldp import kernels
from ldp.arguments import check_counting, check_reports

if TYPE_CHECKING:
    import numpy.typing as npt

    from ldp.oracles.oracle import Oracle


def address_of(oracle: Oracle, state: npt.NDArray[np.int64]) -> int:
    """Returns the address of a state's counters, after a check.

    The address is valid as long as the array exists.

    Raises:
        TypeError: a state that is not int64.
        ValueError: a state that has another shape or is not writable and contiguous.
    """
    check_counting(state, oracle.state_size)
    return kernels.address_of(state)


def accumulate_partitioned(
    oracle: Oracle,
    addresses: npt.NDArray[np.int64],
    reports: npt.NDArray[np.void],
    runs: npt.NDArray[np.int64],
    most: int,
) -> Iterator[None]:
    """Counts each report into one of m states, in steps.

    Reports must be well-formed (`Oracle.check`). A run is a series of consecutive reports for the same state. `runs`,
    of shape (2, r), contains the state's index of each run, and the index after the run's last report. `addresses`, of
    shape (m,), contains the states' addresses from `address_of`; two may be equal. A wrong address corrupts memory.
    Each step counts at most `most` reports and yields None.

    Raises:
        TypeError: reports that are not of `report_dtype`.
        ValueError: reports with several dimensions.

    Example:
        >>> import ldp
        >>> grr = ldp.GRR("1", domain_size=3)
        >>> one, other = grr.zeros(), grr.zeros()
        >>> reports = np.array([(2,), (0,), (2,)], grr.report_dtype)
        >>> addresses = np.array([address_of(grr, one), address_of(grr, other)])
        >>> list(accumulate_partitioned(grr, addresses, reports, np.array([[0, 1, 0], [1, 2, 3]]), most=9))
        [None]
        >>> one.tolist(), other.tolist()
        ([0, 0, 2], [1, 0, 0])
    """
    check_reports(reports, oracle.report_dtype)
    n = len(reports)
    for first in range(0, max(n, 1), most):
        last = min(first + most, n)
        oracle.accumulate_runs(addresses, runs if n <= most else _cut(runs, first, last), reports[first:last])
        yield


def grouped(
    reports: npt.NDArray[np.void], runs: npt.NDArray[np.int64], m: int
) -> tuple[npt.NDArray[np.void], npt.NDArray[np.int64]]:
    """Returns the reports by state, and the end of each state's part."""
    if m == 1:
        return reports, runs[1, -1:]
    out, ends = np.empty_like(reports), np.empty(m, np.int64)
    data = np.ascontiguousarray(reports).view(np.uint8)
    data.flags.writeable = False  # the type that `kernels.warm` compiles
    kernels.gather(data, reports.dtype.itemsize, runs[0], runs[1], out.view(np.uint8), ends)
    return out, ends


def _cut(runs: npt.NDArray[np.int64], first: int, last: int) -> npt.NDArray[np.int64]:
    """Returns the runs of the reports from `first` to `last`."""
    ends = runs[1]
    part = runs[:, np.searchsorted(ends, first, "right") : np.searchsorted(ends, last) + 1].copy()
    part[1] = np.minimum(part[1], last) - first
    return part
