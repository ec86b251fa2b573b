"""Compares a client's reports with the protocol.

A `Rate` counts the reports with an event, such as support of a certain value. It is tested by exact binomial tails.
`Cells` partition all reports, and are tested by Pearson's χ². The expected number of reports in each cell is so large
that the χ² tail is near the exact tail.

Reports are independent, so the counts of several values with the same probabilities add up to another `Rate` or
`Cells`. This sum (`pooled`) shows a smaller deviation if all values have it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
from scipy.special import bdtr, bdtrc, chdtrc

from ldp import kernels
from ldp.oracles import OLH, Oracle, SubsetSelection
from ldp.oracles.preferred import PreferredMessages
from ldp.oracles.unary import UnaryEncoding

if TYPE_CHECKING:
    import numpy.typing as npt

    Reports = npt.NDArray[np.void]

OWN, OTHER_BITS = "reports that support it", "1 bits of other values"
_EXPECTED = 50  # Fewest expected reports of a cell: with fewer, χ² understates tails of 10⁻⁹
_BINS = 64  # Largest number of cells after grouping


@dataclass(frozen=True)
class Rate:
    """Number of reports with an event, and the probability of the event.

    `value` is the reported value, or None for all values.
    """

    value: int | None
    event: str
    count: int
    n: int
    probability: float

    def __add__(self, other: Rate) -> Rate:
        """Returns the rate of the reports of both."""
        return Rate(None, self.event, self.count + other.count, self.n + other.n, self.probability)

    @property
    def p_value(self) -> float:
        """Two-sided p-value: twice the smaller of the exact tails."""
        below = bdtr(self.count, self.n, self.probability)
        above = bdtrc(self.count - 1, self.n, self.probability) if self.count else 1.0
        return min(1.0, 2 * float(min(below, above)))

    @property
    def summary(self) -> str:
        """The measured and the expected rate, as text."""
        rate = self.count / max(self.n, 1)
        return f"{_what(self)}: {rate:.4%} of {self.n:,}, expected {self.probability:.4%}"


@dataclass(frozen=True)
class Cells:
    """A partition of all reports into m cells, with counts and probabilities."""

    value: int | None
    event: str
    counts: npt.NDArray[np.int64]
    probabilities: npt.NDArray[np.float64]

    def __add__(self, other: Cells) -> Cells:
        """Returns the cells of the reports of both."""
        return Cells(None, self.event, self.counts + other.counts, self.probabilities)

    @property
    def p_value(self) -> float:
        """The p-value of Pearson's χ² test."""
        expected = self.probabilities * self.counts.sum()
        statistic = float((((self.counts - expected) ** 2) / expected).sum())
        return float(chdtrc(self.counts.size - 1, statistic))

    @property
    def summary(self) -> str:
        """The cell with the largest deviation, as text."""
        expected = self.probabilities * self.counts.sum()
        worst = int((abs(self.counts - expected) / np.sqrt(expected)).argmax())
        return (
            f"{_what(self)}: uneven by χ² of {self.counts.size} cells; the worst cell has {self.counts[worst]:,}"
            f" reports, expected {expected[worst]:,.0f}"
        )


def _what(one: Rate | Cells) -> str:
    return f"{'all values' if one.value is None else f'value {one.value}'}, {one.event}"


def pooled(compared: Iterable[Rate | Cells]) -> Iterator[Rate | Cells]:
    """Yields the sums of the comparisons that have the same event and law."""
    rates, cells = dict[tuple[str, float], Rate](), dict[tuple[str, bytes], Cells]()
    for one in compared:
        if isinstance(one, Rate):
            rate = rates.get(key := (one.event, one.probability))
            rates[key] = rate + one if rate else one
        else:
            cell = cells.get(law := (one.event, one.probabilities.tobytes()))
            cells[law] = cell + one if cell else one
    sums: list[Rate | Cells] = [*rates.values(), *cells.values()]
    yield from (one for one in sums if one.value is None)


def supports(oracle: Oracle, reports: Reports, value: int) -> npt.NDArray[np.bool_]:
    """Returns an (n,) mask of the reports that support a value."""
    found: npt.NDArray[np.bool_]
    if isinstance(oracle, OLH):
        values = np.full(reports.size, value, np.int64)
        found = (
            kernels.HASH[oracle.hash](reports["seed"].astype(np.uint32), values, oracle.g)
            == reports["bucket"]
        )
    elif isinstance(oracle, PreferredMessages):
        found = oracle._supported(np.array([value]))[reports["index"]] == 1  # noqa: SLF001 - of the same package
    elif "bits" in oracle.fields:
        found = (reports["bits"][:, value // 8] >> value % 8 & 1).astype(np.bool_)
    elif "indices" in oracle.fields:
        found = (reports["indices"] == value).any(axis=1)
    else:
        found = reports["index"] == value
    return found


def evidence(oracle: Oracle, value: int, reports: Reports, others: Sequence[int]) -> Iterator[Rate | Cells]:
    """Tests a value's (n,) reports, including how often they support `others`."""
    n = reports.size
    of = {u: supports(oracle, reports, u) for u in dict.fromkeys([value, *others])}
    yield Rate(value, OWN, int(of[value].sum()), n, float(oracle.p))
    others = [u for u in of if u != value]
    counts = [int(of[u].sum()) for u in others]
    for u, count in zip(others, counts, strict=True):
        yield Rate(value, f"reports that support {u}", count, n, float(oracle.q))
    if isinstance(oracle, UnaryEncoding) and others:  # its bits are independent
        yield Rate(value, OTHER_BITS, sum(counts), n * len(others), float(oracle.q))
    yield from _pairs(oracle, value, of, others)
    if isinstance(oracle, OLH):
        yield from _hashed(oracle, value, reports, of[value])
    elif "index" in oracle.fields:
        yield from _messages(oracle, value, reports["index"].astype(np.int64))


def _pairs(
    oracle: Oracle, value: int, of: dict[int, npt.NDArray[np.bool_]], others: Sequence[int]
) -> Iterator[Rate]:
    """Tests how often a report supports two values at once."""
    own, neighbours = pair_probabilities(oracle)
    if own is None or neighbours is None:
        return
    for u in others:
        both = int((of[value] & of[u]).sum())
        yield Rate(value, f"reports that support it and {u}", both, of[u].size, float(own))
    for u, w in pairwise(others):
        both = int((of[u] & of[w]).sum())
        yield Rate(value, f"reports that support {u} and {w}", both, of[u].size, float(neighbours))


def pair_probabilities(oracle: Oracle) -> tuple[Fraction | None, Fraction | None]:
    """Returns the probabilities that a report supports two values at once.

    The first result is for the user's value and another value. The second result is for two other values. Both are None
    for OLH and for protocols whose report is an index. The second is None for Subset Selection with d = 2.
    """
    p, q, d = oracle.p, oracle.q, oracle.domain_size
    if isinstance(oracle, SubsetSelection):
        k = oracle.k
        own = p * Fraction(k - 1, d - 1)
        if d < 3:
            return own, None
        rest = (d - 1) * (d - 2)
        return own, (p * (k - 1) * (k - 2) + (1 - p) * k * (k - 1)) / rest
    if "bits" in oracle.fields:
        return p * q, q * q
    return None, None


def _hashed(oracle: OLH, value: int, reports: Reports, own: npt.NDArray[np.bool_]) -> Iterator[Rate | Cells]:
    """Tests seeds and buckets for uniformity and independence."""
    seeds, n = reports["seed"].astype(np.int64), reports.size
    for byte in range(4):
        yield from _even(value, f"byte {byte} of the seeds", seeds >> 8 * byte & 255, 256)
    for bit in range(32):
        both_true = own & (seeds >> bit & 1 == 1)
        event = f"reports that support it and have bit {bit} of the seed set"
        yield Rate(value, event, int(both_true.sum()), n, float(oracle.p) / 2)
    buckets = reports["bucket"].astype(np.int64)
    for shift in (0, 28):
        both = buckets * 16 + (seeds >> shift & 15)
        yield from _even(value, f"buckets by four bits of the seed from bit {shift}", both, 16 * oracle.g)
    values = np.full(n, value, np.int64)
    hashed = kernels.HASH[oracle.hash](seeds.astype(np.uint32), values, oracle.g).astype(np.int64)
    steps = (buckets - hashed) % oracle.g
    if oracle.g > 2:
        yield from _even(value, "buckets without support", steps[~own] - 1, oracle.g - 1)


def _messages(oracle: Oracle, value: int, index: npt.NDArray[np.int64]) -> Iterator[Cells]:
    """Tests the frequencies of messages. Rare messages are grouped."""
    K = oracle.fields["index"]
    everything = np.arange(K).astype(oracle.report_dtype["index"]).view(oracle.report_dtype)
    preferred = supports(oracle, everything, value)
    likely, unlikely = message_probabilities(oracle)
    weights = np.where(preferred, float(likely), float(unlikely))
    order = np.argsort(preferred, kind="stable")
    counts, probabilities = np.bincount(index, minlength=K)[order], weights[order]
    yield from _grouped(value, "messages", counts, probabilities)


def message_probabilities(oracle: Oracle) -> tuple[Fraction, Fraction]:
    """Returns the probabilities of a message with support and one without."""
    if isinstance(oracle, PreferredMessages):
        whole = oracle.preferred * oracle.E + oracle.state_size - oracle.preferred
        return oracle.E / whole, 1 / whole
    return oracle.p, oracle.q


def _even(value: int, event: str, numbers: npt.NDArray[np.int64], m: int) -> Iterator[Cells]:
    """Tests that numbers are uniform on 0..m−1."""
    yield from _grouped(value, event, np.bincount(numbers, minlength=m), np.full(m, 1 / m))


def _grouped(
    value: int, event: str, counts: npt.NDArray[np.int64], probabilities: npt.NDArray[np.float64]
) -> Iterator[Cells]:
    """Groups cells until each group expects enough reports."""
    n = int(counts.sum())
    least = max(_EXPECTED / max(n, 1), 1 / _BINS if counts.size > _BINS else 0.0)
    below = np.cumsum(probabilities) - probabilities / 2
    bins = (
        np.minimum((below / least).astype(np.int64), int(1 / least) - 1)
        if least < 1
        else np.zeros_like(counts)
    )
    if least <= probabilities.min():
        bins = np.arange(counts.size)
    _, bins = np.unique(bins, return_inverse=True)
    together = np.bincount(bins, weights=counts).astype(np.int64)
    if together.size > 1:
        yield Cells(value, event, together, np.bincount(bins, weights=probabilities).astype(np.float64))
