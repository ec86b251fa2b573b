"""Rules: what decides whether and where a record counts, each kept with the offset from which it holds.

The counts of a partition are a function of its log and of its rules, so rules are recorded with the counts. A changed
configuration adds a rule; records before it keep theirs. During a roll-out workers of the old and the new
configuration take turns: a revision says which is the newer, so that each configuration adds at most one rule.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from worker.counting.windows import Windowing

MOST_REPORTS = 10_000
"""How many reports a record may have where the configuration does not say."""
MAX_BATCH_BYTES = 16 << 20
"""How many bytes a record batch may have after decompression where the configuration does not say."""

FIELDS = frozenset(("offset", "revision", "most_reports", "hamming_weight", "max_batch_bytes")).union(
    ("windows", "grace", "max_out_of_orderness")
)
"""What a recorded rule can have."""


@dataclass(frozen=True)
class RecordLimits:
    """The limits of a record, and its windows.

    Attributes:
        most_reports: the most reports of a record; None for any number.
        hamming_weight: whether a unary report with an implausible number of ones is rejected.
        max_batch_bytes: the most bytes of a record batch after decompression; None for any number. The rule of a
            batch's first offset holds for the whole batch.
        windowing: the windows to count in; None for all time only.
    """

    most_reports: int | None
    hamming_weight: bool
    max_batch_bytes: int | None = None
    windowing: Windowing | None = None

    def __str__(self) -> str:
        most = (
            "any number of reports" if self.most_reports is None else f"at most {self.most_reports} reports"
        )
        batch = "of any size" if self.max_batch_bytes is None else f"of at most {self.max_batch_bytes} bytes"
        weight = "" if self.hamming_weight else ", any number of ones"
        said = f"{most} a record{weight}, in batches {batch}"
        return said if self.windowing is None else f"{said}, {self.windowing}"


@dataclass(frozen=True)
class RequestedRule:
    """The rule of a configuration.

    Attributes:
        revision: the higher of two revisions is the newer; None if not configured.
        limits: the limits of a record.
    """

    revision: int | None = None
    limits: RecordLimits = RecordLimits(MOST_REPORTS, hamming_weight=True, max_batch_bytes=MAX_BATCH_BYTES)


@dataclass(frozen=True)
class Rule:
    """Limits that hold from an offset on, until the next rule's.

    Attributes:
        offset: the first offset.
        revision: higher than that of every rule before it.
        limits: the limits of a record.
    """

    offset: int
    revision: int
    limits: RecordLimits

    def as_json(self) -> dict[str, Any]:
        """Returns the rule in JSON's types, without absent limits and windows.

        Example:
            >>> Rule(7, 1, RecordLimits(100, hamming_weight=True)).as_json()
            {'offset': 7, 'revision': 1, 'most_reports': 100, 'hamming_weight': True}
        """
        said: dict[str, Any] = {"offset": self.offset, "revision": self.revision}
        said |= {"most_reports": self.limits.most_reports, "hamming_weight": self.limits.hamming_weight}
        if self.limits.max_batch_bytes is not None:
            said["max_batch_bytes"] = self.limits.max_batch_bytes
        if (w := self.limits.windowing) is not None:
            said |= {"windows": [*w.windows], "grace": w.grace}
            said["max_out_of_orderness"] = w.max_out_of_orderness
        return said


@dataclass(frozen=True)
class Older:
    """A configuration that is not followed, because a newer rule is recorded.

    Attributes:
        why: which of both is which.
        hint: how to make workers follow it anyway.
    """

    why: str
    hint: str


def continues(rules: Sequence[object], others: Sequence[object]) -> bool:
    """Returns whether rules begin with all of the others."""
    return list(rules[: len(others)]) == list(others)


def first(configured: RequestedRule, start: int) -> Rule:
    """Returns the rule with which counting begins at an offset."""
    return Rule(start, configured.revision or 1, configured.limits)


def parse(listed: Sequence[Mapping[str, Any]], start: int) -> list[Rule]:
    """Reads recorded rules, as `Rule.as_json` writes them.

    Args:
        listed: the rules in JSON's types.
        start: the offset at which counting began.

    Raises:
        KeyError, TypeError, ValueError: no rules, unknown ones, or not in order.
    """
    rules = []
    for said in listed:
        fields = dict(said)
        if "windows" in fields:
            windows = tuple(fields.pop("windows"))
            fields["windowing"] = Windowing(windows, fields.pop("grace"), fields.pop("max_out_of_orderness"))
        rules.append(Rule(fields.pop("offset"), fields.pop("revision"), RecordLimits(**fields)))
    if not all(map(_typed, rules)):
        raise TypeError(f"rules {listed} are not of the types that they are written in")
    offsets, revisions = [rule.offset for rule in rules], [rule.revision for rule in rules]
    if not rules or offsets[0] > start or offsets != sorted(offsets) or revisions != sorted({*revisions}):
        raise ValueError(f"rules {listed} do not ascend from offset {start} on")
    return rules


def _typed(rule: Rule) -> bool:
    """Returns whether the numbers of a rule are numbers."""
    limits = rule.limits
    numbers: list[object] = [rule.offset, rule.revision]
    numbers += [n for n in (limits.most_reports, limits.max_batch_bytes) if n is not None]
    if limits.windowing is not None:
        numbers += [limits.windowing.grace, limits.windowing.max_out_of_orderness]
    return isinstance(limits.hamming_weight, bool) and all(type(n) is int and n >= 0 for n in numbers)


def decide(recorded: Sequence[Rule], configured: RequestedRule, offset: int) -> Rule | Older | None:
    """Decides whether a configuration adds a rule to the recorded ones.

    The higher revision is the newer. Without a revision, limits that were never recorded are new, and limits that
    others have replaced are old: their worker awaits the roll-out.

    Args:
        recorded: the rules so far; some may begin beyond the offset.
        configured: the configured rule.
        offset: the first offset without a decoded record.

    Returns:
        A rule to append; or that the configuration is older; or None if the last rule is the configured one.

    Example:
        >>> first, second = (RecordLimits(most, hamming_weight=True) for most in (100, 1))
        >>> recorded = [Rule(0, 1, first), Rule(9, 2, second)]
        >>> added = decide(recorded, RequestedRule(limits=RecordLimits(50, hamming_weight=True)), offset=20)
        >>> added.offset, added.revision
        (20, 3)
        >>> decide(recorded, RequestedRule(limits=second), offset=20)
        >>> decide(recorded, RequestedRule(limits=first), offset=20).hint
        'to go back to it, set streams.revision to 3'
    """
    last, revision, limits = recorded[-1], configured.revision, configured.limits
    if revision is None and limits == last.limits:
        return None
    if revision is None and limits in [rule.limits for rule in recorded]:
        return _older(last, f"{limits}, which was replaced", "to go back to it")
    if revision is not None and revision < last.revision:
        return _older(last, f"{limits}, revision {revision}", "to have it followed")
    if revision == last.revision:
        if limits == last.limits:
            return None
        return _older(last, f"{limits}, of the same revision", "to have it followed")
    return Rule(max(offset, last.offset), revision or last.revision + 1, limits)


def _older(last: Rule, asked: str, to: str) -> Older:
    return Older(
        f"counted by {last.limits}, as revision {last.revision} says; the configuration asks for {asked}",
        f"{to}, set streams.revision to {last.revision + 1}",
    )
