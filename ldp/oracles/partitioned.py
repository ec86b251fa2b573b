"""Counts a batch of reports into several states."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from ldp import kernels
from ldp.arguments import check_counting, check_reports

if TYPE_CHECKING:
    import numpy.typing as npt

    from ldp.oracles.oracle import Oracle


def accumulate_partitioned(
    oracle: Oracle,
    states: Sequence[npt.NDArray[np.int64]],
    reports: npt.NDArray[np.void],
    runs: npt.NDArray[np.int64],
    most: int,
) -> Iterator[None]:
    """Counts each report into one of m states, in steps.

    Reports must be well-formed, as for `Oracle.accumulate_checked`. A run is a series of consecutive reports for the
    same state. `runs`, of shape (2, r), contains the state's index of each run, and the index after the run's last
    report. `states` may contain the same array twice. Each step counts at most `most` reports and yields None. If a
    report is a single index and m > 1, one step counts all reports.

    Raises:
        TypeError: a state that is not int64, or reports that are not of `report_dtype`.
        ValueError: a state that has another shape or is not writable and contiguous.

    Example:
        >>> import ldp
        >>> grr = ldp.GRR("1", domain_size=3)
        >>> one, other = grr.zeros(), grr.zeros()
        >>> reports = np.array([(2,), (0,), (2,)], grr.report_dtype)
        >>> list(accumulate_partitioned(grr, [one, other], reports, np.array([[0, 1, 0], [1, 2, 3]]), most=9))
        [None]
        >>> one.tolist(), other.tolist()
        ([0, 0, 2], [1, 0, 0])
    """
    parts = [reports]
    if len(states) > 1:
        check_reports(reports, oracle.report_dtype)
        for state in states:
            check_counting(state, oracle.state_size)
        addresses = np.array([kernels.address_of(state) for state in states])
        if [*oracle.fields] == ["index"]:
            kernels.count_indices_partitioned(addresses, runs, oracle.column(reports, "index"))
            yield
            return
        grouped, ends = _grouped(reports, runs, len(states))
        if len(reports) <= most and oracle.accumulate_sorted(addresses, ends, grouped):
            yield
            return
        parts = np.split(grouped, ends[:-1])
    for state, part in zip(states, parts, strict=True):
        for first in range(0, len(part), most):
            oracle.accumulate_checked(state, part[first : first + most])
            yield


def _grouped(
    reports: npt.NDArray[np.void], runs: npt.NDArray[np.int64], m: int
) -> tuple[npt.NDArray[np.void], npt.NDArray[np.int64]]:
    """Returns a copy of the reports by state, and the end of each part."""
    out, ends = np.empty_like(reports), np.empty(m, np.int64)
    data = np.ascontiguousarray(reports).view(np.uint8)
    data.flags.writeable = False  # the type that `kernels.warm` compiles
    kernels.gather(data, reports.dtype.itemsize, runs, out.view(np.uint8), ends)
    return out, ends
