"""Permutes the reports of a batch, and splits them into frames."""

import os
import secrets
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

import ldp
from ldp import frames, wire


def permute(
    reports: npt.NDArray[np.void], random: Callable[[int], bytes] = os.urandom
) -> npt.NDArray[np.void]:
    """Returns reports in a uniformly random order, from system randomness.

    Sorts independent 64-bit keys. Equal keys would favour an order, so all keys are drawn again. `random`: returns that
    many random bytes.

    Example:
        >>> sorted(permute(np.arange(3)).tolist())
        [0, 1, 2]
    """
    while True:
        keys = np.frombuffer(random(8 * reports.size), np.uint64)
        order = np.argsort(keys)
        if (np.diff(keys[order]) > 0).all():
            return reports[order]


def split(
    stream: ldp.Stream, reports: npt.NDArray[np.void], most_reports: int, partitions: int
) -> list[tuple[int, bytes]]:
    """Splits n reports into equal frames; returns (partition, frame) pairs.

    The numbers of reports differ by at most 1. Each partition gets a frame if n is large enough, so that a batch
    advances every partition's watermark. The partition of the first frame is random. Boundaries and partitions depend
    on n and on this choice only.

    Example:
        >>> stream = ldp.Stream("colours", ldp.GRR("1", domain_size=3))
        >>> found = split(stream, stream.oracle.perturb([0, 1, 2, 0, 1]), most_reports=4, partitions=2)
        >>> sorted(partition for partition, _ in found), [len(frame) for _, frame in found]
        ([0, 1], [8, 7])
    """
    largest = max(1, (wire.LARGEST_FRAME - wire.HEADER_BYTES) // stream.oracle.report_bytes)
    n, first = reports.size, secrets.randbelow(partitions)
    count = max(-(-n // min(most_reports, largest)), min(n, partitions))
    parts = np.array_split(reports, count)
    return [((first + i) % partitions, frames.encode(stream, part)) for i, part in enumerate(parts)]
