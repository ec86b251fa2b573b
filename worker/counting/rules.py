"""Rules: what decides whether a record counts, each kept with the offset from which it holds.

The counts of a partition are a function of its log and of these rules, so a rule is recorded with the counts and never
taken from a worker's configuration: a changed configuration adds a rule, records before it stay judged as they were.
While a change is rolled out, workers of the old and of the new configuration take turns; a revision tells them which
is the newer, so that the recorded rules only ever grow at their end, by one for each configuration at most.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from worker.counting.windows import Windowing

MOST_REPORTS = 10_000
"""How many reports a record may have where the configuration does not say."""
MAX_BATCH_BYTES = 16 << 20
"""How many bytes a record batch may have after decompression where the configuration does not say."""

FIELDS = frozenset(
    ("offset", "revision", "most_reports", "ones", "max_batch_bytes", "windows", "grace", "out_of_order")
)
"""What a recorded rule can have."""


@dataclass(frozen=True)
class RecordLimits:
    """What a rule demands of a record.

    Attributes:
        most_reports: how many reports it may have; None for any number.
        ones: whether a unary report is rejected for a number of ones that no honest client would send.
        max_batch_bytes: how many bytes the record batch that it came in may have after decompression; None for any
            number. What holds at a batch's first offset holds for the whole of it.
        windowing: the windows that it counts in; None for that of all time alone.
    """

    most_reports: int | None
    ones: bool
    max_batch_bytes: int | None = None
    windowing: Windowing | None = None

    def __str__(self) -> str:
        most = (
            "any number of reports" if self.most_reports is None else f"at most {self.most_reports} reports"
        )
        batch = "of any size" if self.max_batch_bytes is None else f"of at most {self.max_batch_bytes} bytes"
        said = f"{most} a record" + ("" if self.ones else ", any number of ones") + f", in batches {batch}"
        return said if self.windowing is None else f"{said}, {self.windowing}"


@dataclass(frozen=True)
class RequestedRule:
    """What a configuration asks for.

    Attributes:
        revision: of two configurations the higher one is the newer; None where the configuration does not say.
        terms: what it demands of a record.
    """

    revision: int | None = None
    terms: RecordLimits = RecordLimits(MOST_REPORTS, ones=True, max_batch_bytes=MAX_BATCH_BYTES)


@dataclass(frozen=True)
class Rule:
    """Limits that hold from an offset on, until the next rule's.

    Attributes:
        offset: the first one that they hold for.
        revision: higher than that of every rule before it.
        terms: what is demanded of a record.
    """

    offset: int
    revision: int
    terms: RecordLimits

    def as_json(self) -> dict[str, Any]:
        """Returns the rule in JSON's types, without a limit for batches and without windows where it has none.

        Example:
            >>> Rule(7, 1, RecordLimits(100, ones=True)).as_json()
            {'offset': 7, 'revision': 1, 'most_reports': 100, 'ones': True}
        """
        said: dict[str, Any] = {"offset": self.offset, "revision": self.revision}
        said |= {"most_reports": self.terms.most_reports, "ones": self.terms.ones}
        if self.terms.max_batch_bytes is not None:
            said["max_batch_bytes"] = self.terms.max_batch_bytes
        if (w := self.terms.windowing) is not None:
            said |= {"windows": [*w.windows], "grace": w.grace, "out_of_order": w.out_of_order}
        return said


@dataclass(frozen=True)
class Older:
    """A configuration that is not followed, because what is recorded is newer.

    Attributes:
        why: which of both is which.
        todo: how to have it followed all the same.
    """

    why: str
    todo: str


def continues(rules: Sequence[object], others: Sequence[object]) -> bool:
    """Returns whether rules begin with all of the others.

    Example:
        >>> old, new = Rule(0, 1, RecordLimits(100, ones=True)), Rule(9, 2, RecordLimits(1, ones=True))
        >>> continues([old, new], [old]), continues([old], [old, new]), continues([old], [])
        (True, False, True)
    """
    return list(rules[: len(others)]) == list(others)


def first(configured: RequestedRule, start: int) -> Rule:
    """Returns the rule with which counting begins at an offset."""
    return Rule(start, configured.revision or 1, configured.terms)


def parse(listed: Sequence[Mapping[str, Any]], start: int) -> list[Rule]:
    """Reads recorded rules.

    Args:
        listed: as `Rule.as_json` writes them.
        start: the offset that counting began at.

    Raises:
        KeyError, TypeError, ValueError: no rules, one that this version does not know, or some that are not in order.

    Example:
        >>> rules = parse([{"offset": 7, "revision": 1, "most_reports": 100, "ones": True}], start=7)
        >>> rules == [Rule(7, 1, RecordLimits(100, ones=True))]
        True
    """
    rules = []
    for said in listed:
        terms = dict(said)
        if "windows" in terms:
            windows = tuple(terms.pop("windows"))
            terms["windowing"] = Windowing(windows, terms.pop("grace"), terms.pop("out_of_order"))
        rules.append(Rule(terms.pop("offset"), terms.pop("revision"), RecordLimits(**terms)))
    if not all(map(_typed, rules)):
        raise TypeError(f"rules {listed} are not of the types that they are written in")
    offsets, revisions = [rule.offset for rule in rules], [rule.revision for rule in rules]
    if not rules or offsets[0] > start or offsets != sorted(offsets) or revisions != sorted({*revisions}):
        raise ValueError(f"rules {listed} do not ascend from offset {start} on")
    return rules


def _typed(rule: Rule) -> bool:
    """Returns whether the numbers of a rule that was read are numbers."""
    terms = rule.terms
    numbers: list[object] = [rule.offset, rule.revision]
    numbers += [n for n in (terms.most_reports, terms.max_batch_bytes) if n is not None]
    if terms.windowing is not None:
        numbers += [terms.windowing.grace, terms.windowing.out_of_order]
    return isinstance(terms.ones, bool) and all(type(n) is int and n >= 0 for n in numbers)


def decide(recorded: Sequence[Rule], configured: RequestedRule, offset: int) -> Rule | Older | None:
    """Decides what becomes of a configuration where rules are recorded already.

    With a revision, the higher one is the newer. Without, terms that were never recorded are new, and terms that others
    have replaced are old: they are those of a worker that a roll-out has not reached yet.

    Args:
        recorded: the rules so far; some may begin beyond the offset.
        configured: what this worker's configuration asks for.
        offset: the first one that a new rule may hold for: no record from it on has been judged yet.

    Returns:
        A rule to add at the end of the recorded ones; or that the configuration is older than they are; or None, if it
        asks for what the last of them says.

    Example:
        >>> recorded = [Rule(0, 1, RecordLimits(100, ones=True)), Rule(9, 2, RecordLimits(1, ones=True))]
        >>> added = decide(recorded, RequestedRule(terms=RecordLimits(50, ones=True)), offset=20)
        >>> added.offset, added.revision
        (20, 3)
        >>> decide(recorded, RequestedRule(terms=RecordLimits(1, ones=True)), offset=20)
        >>> decide(recorded, RequestedRule(terms=RecordLimits(100, ones=True)), offset=20).todo
        'to go back to it, set streams.revision to 3'
    """
    last, revision, terms = recorded[-1], configured.revision, configured.terms
    if revision is None and terms == last.terms:
        return None
    if revision is None and terms in [rule.terms for rule in recorded]:
        return _older(last, f"{terms}, which was replaced", "to go back to it")
    if revision is not None and revision < last.revision:
        return _older(last, f"{terms}, revision {revision}", "to have it followed")
    if revision == last.revision:
        if terms == last.terms:
            return None
        return _older(last, f"{terms}, of the same revision", "to have it followed")
    return Rule(max(offset, last.offset), revision or last.revision + 1, terms)


def _older(last: Rule, asked: str, to: str) -> Older:
    return Older(
        f"counted by {last.terms}, as revision {last.revision} says; the configuration asks for {asked}",
        f"{to}, set streams.revision to {last.revision + 1}",
    )
