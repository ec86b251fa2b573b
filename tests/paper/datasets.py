"""The data of the evaluation (Section V, Experimental Setup)."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import numpy.typing as npt

from ldp.analysis.method_selection import apportion

ZIPF_DOMAIN, ZIPF_EXPONENT, ZIPF_USERS = 1024, 1.5, 1_000_000
EMOJI_USERS = 884_427  # n of the paper's Emoji data
EMOJI = Path(__file__).parents[2] / "deploy/demo/emoji.csv"


@dataclass(frozen=True, eq=False)
class Dataset:
    """A population. `histogram` has the users per value."""

    name: str
    histogram: npt.NDArray[np.int64]
    labels: tuple[str, ...] | None
    subgroups: Mapping[str, npt.NDArray[np.intp]]

    @property
    def users(self) -> int:
        """The number of users, n."""
        return int(self.histogram.sum())

    @property
    def frequencies(self) -> npt.NDArray[np.float64]:
        """The (d,) true frequencies."""
        frequencies: npt.NDArray[np.float64] = self.histogram / self.users
        return frequencies


def zipf(users: int = ZIPF_USERS, domain_size: int = ZIPF_DOMAIN, exponent: float = ZIPF_EXPONENT) -> Dataset:
    """Returns Zipf data: frequencies ∝ 1/v^exponent, or 1/v^1.5 by default."""
    weights = np.arange(1, domain_size + 1, dtype=np.float64) ** -exponent
    return Dataset("zipf", apportion(weights, users), None, {})


def shaped(name: str, weights: npt.NDArray[np.float64]) -> Dataset:
    """Returns a population of 10⁶ users in proportion to (d,) weights ≥ 0."""
    return Dataset(name, apportion(weights, ZIPF_USERS), None, {})


@cache
def emoji(users: int = EMOJI_USERS) -> Dataset:
    """Returns a population of `users` over 845 emoji, in 93 subgroups.

    The frequencies are those of the emoji on Twitter until 2020-06-16. The paper's data, 1,573 emoji from an emoji
    keyboard, are no longer public.
    """
    with EMOJI.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    weights = np.array([float(row["count_2020_06_16"]) for row in rows])
    order = np.argsort(-weights, kind="stable")
    rows = [rows[i] for i in order]
    members: dict[str, list[int]] = {}
    for index, row in enumerate(rows):
        members.setdefault(row["subgroup"], []).append(index)
    subgroups = {name: np.array(indices, np.intp) for name, indices in members.items()}
    return Dataset("emoji", apportion(weights[order], users), tuple(row["emoji"] for row in rows), subgroups)
