"""Simulated users, drawn from real counts with a seed."""

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

Counts = npt.NDArray[np.int64]


class SimulationError(RuntimeError):
    """The counts or their file are invalid."""


class NoSuchColumnError(SimulationError):
    """The file of counts lacks a column."""


@dataclass(frozen=True)
class Crowd:
    """Simulated users with one value each."""

    histogram: Counts  # (d,) true number of users by value
    values: npt.NDArray[np.int64]  # (n,) in random order


def read_counts(path: Path, column: str, label_column: str, labels: Sequence[str] | None) -> Counts:
    """Reads the int64 count of each value from a CSV file.

    The file is UTF-8 with a header. Without labels, row i counts value i. A missing label counts 0.

    Raises:
        NoSuchColumnError: a column is missing.
        SimulationError: the file is unreadable or empty, a count is invalid, or a label is unknown.
    """
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:  # spreadsheets write a byte order mark
            rows = list(csv.DictReader(file))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise SimulationError(f"{path}: cannot be read ({error})") from None
    if not rows:
        raise SimulationError(f"{path}: no rows after the header")
    needed = [column] if labels is None else [column, label_column]
    for name in needed:
        if name not in rows[0]:
            raise NoSuchColumnError(
                f"{path}: no column {name!r}; the columns are {', '.join(filter(None, rows[0]))}"
            )
    counts = [_count(path, line, row[column]) for line, row in enumerate(rows, 2)]
    if labels is None:
        return np.array(counts, np.int64)
    index = {label: i for i, label in enumerate(labels)}
    result = np.zeros(len(labels), np.int64)
    for line, (row, count) in enumerate(zip(rows, counts, strict=True), 2):
        if row[label_column] not in index:
            raise SimulationError(f"{path}, line {line}: {row[label_column]!r} is not a label of the stream")
        result[index[row[label_column]]] += count
    return result


def _count(path: Path, line: int, text: str | None) -> int:
    if text is None or not text.isascii() or not text.isdigit():
        raise SimulationError(f"{path}, line {line}: {text!r} given; a count is an integer from 0")
    if len(text) > 15:
        raise SimulationError(f"{path}, line {line}: {text!r} given; a count has at most 15 digits")
    return int(text)


def draw(counts: Counts, users: int, seed: int) -> Crowd:
    """Draws users by counts; raises `SimulationError` if all counts are 0.

    Example:
        >>> crowd = draw(np.array([3, 0, 1]), users=1000, seed=7)
        >>> crowd.histogram[1], crowd.histogram.sum(), len(crowd.values)
        (np.int64(0), np.int64(1000), 1000)
    """
    total = counts.sum(dtype=np.float64)
    if not total:
        raise SimulationError("all counts are 0; at least one must be positive")
    rng = np.random.default_rng(seed)
    histogram = rng.multinomial(users, counts / total)
    return Crowd(histogram, rng.permutation(np.repeat(np.arange(len(counts)), histogram)))
