"""Privacy losses against the operator, and to readers."""

from __future__ import annotations

import functools
import math
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from ldp.privacy.ledger import ledger

if TYPE_CHECKING:
    from ldp.oracles import Oracle
    from ldp.privacy.amplification import Blanket
    from ldp.privacy.declaration import Declaration

DELTA = 1e-8
"""Default δ of the loss to readers."""
LINES = {"one_report": "one report", "same_value": "a value that stays", "any_history": "any history"}
"""Text for each loss against the operator."""
READERS = {
    "snapshots": ("a reader of snapshots", "an increment"),
    "batches": ("a reader of reports", "a batch"),
}
"""Text for each reader, and for the reports that this reader sees together."""
_MOST = 10**9  # reports of the computed bound, which also holds for more; above 10¹² floats overflow


def summary(
    oracle: Oracle,
    declared: Declaration | None,
    fewest_new: int | None = None,
    delta: float = DELTA,
    batch_size: int | None = None,
) -> dict[str, Any]:
    """Returns a stream's privacy losses as JSON.

    Args:
        oracle: the protocol.
        declared: the declaration in the document; None without one.
        fewest_new: smallest number of new reports that a snapshot releases together; None if readers of snapshots are
            not considered.
        delta: δ of the loss to readers.
        batch_size: number of uploads in a batch of the shuffler; None if readers of reports are not considered.

    Example:
        >>> import ldp
        >>> found = summary(ldp.GRR("1", domain_size=1024), None, 10_000)
        >>> found["operator"]["one_report"], found["snapshots"]["epsilon"]
        (1.0, 0.004)
    """
    losses = ledger(oracle, declared)
    return {
        "privacy": None if declared is None else declared.document(),
        "reports": None if declared is None else declared.most_reports(),
        "operator": {
            key: None if (loss := getattr(losses, key)) is None else rounded_up(loss) for key in LINES
        },
        "snapshots": None
        if fewest_new is None
        else {"fewest_new": fewest_new}
        | _of_reader("snapshots", oracle, declared, losses.any_history, fewest_new, delta),
        "batches": None
        if batch_size is None
        else {"shuffle_batch_size": batch_size}
        | _of_reader("batches", oracle, declared, losses.any_history, batch_size, delta),
    }


def to_readers(
    oracle: Oracle, declared: Declaration | None, fewest_new: int, delta: float = DELTA
) -> float | None:
    """Returns ε of one report for readers of snapshots or of shuffled reports.

    It is infinite if a report rules out a value. It is None with memoised noise, because repeated noise of other users
    can reveal a report. The result is cached: the computation takes up to seconds.

    Example:
        >>> import ldp
        >>> to_readers(ldp.GRR("1", domain_size=1024), None, 10_000)
        0.004
    """
    from ldp.privacy.amplification import blanket

    if declared is not None and declared.memoised:
        return None
    found = blanket(oracle)
    return math.inf if found is None else _epsilon_of(found, min(fewest_new, _MOST), delta)


@functools.lru_cache(maxsize=256)
def _epsilon_of(found: Blanket, n: int, delta: float) -> float:
    return found.epsilon(n, delta)


def _of_reader(
    reader: str,
    oracle: Oracle,
    declared: Declaration | None,
    most: Fraction | float | None,
    n: int,
    delta: float,
) -> dict[str, Any]:
    """Returns the loss to a reader who sees at least n reports together."""
    from ldp.privacy.amplification import ADVERSARIES, of_group

    epsilon = to_readers(oracle, declared, n, delta)
    shown: dict[str, Any] = {"epsilon": None if epsilon is None else rounded_up(epsilon), "delta": delta}
    if epsilon is not None and declared is not None and most is not None:
        k, most = declared.most_reports(), float(most)
        together, at_once = of_group(epsilon, delta, k)
        shown["all_reports"] = {"epsilon": rounded_up(min(k * epsilon, most)), "delta": min(1.0, k * delta)}
        key = f"all_reports_in_one_{READERS[reader][1].split()[1]}"
        shown[key] = {"epsilon": rounded_up(min(together, most)), "delta": at_once}
    return shown | {"adversary": ADVERSARIES[reader]}


def rounded_up(loss: Fraction | float) -> float | str:
    """Returns a loss rounded up to six decimal places, as JSON.

    Example:
        >>> rounded_up(Fraction(1, 3)), rounded_up(math.inf)
        (0.333334, 'infinite')
    """
    if loss == math.inf:
        return "infinite"
    millionths = loss * 10**6 if isinstance(loss, Fraction) else round(1e6 * loss, 3)
    return math.ceil(millionths) / 10**6


def as_text(loss: float | str | None) -> str:
    """Returns a loss of `summary` as text.

    Example:
        >>> as_text(0.5), as_text("infinite"), as_text(None)
        ('ε ≤ 0.5', 'ε is infinite', 'not declared')
    """
    if loss is None:
        return "not declared"
    return "ε is infinite" if isinstance(loss, str) else f"ε ≤ {loss:,.6f}".rstrip("0").rstrip(".")


def readers_as_text(found: dict[str, Any]) -> str:
    """Returns the loss to a reader, from the result of `summary`, as text."""
    if found["epsilon"] is None:
        return "as against the operator, because memoised noise repeats"
    return f"{as_text(found['epsilon'])}, δ = {found['delta']:g}"
