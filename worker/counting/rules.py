"""Rules: limits and windows of records from an offset on.

The counts of a partition depend on its log and on its rules, so rules are stored with the counts. A changed
configuration adds a rule for later records. During a roll-out, workers with the old and the new configuration can own
a partition in turn. The revision shows which configuration is newer, so each configuration adds at most one rule.

The names of documents and segments are joined, never replaced: a rule records the names that it adds or whose status it
raises. In any order of workers, the names of all partitions converge.
"""

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, NamedTuple

import ldp
from worker.counting.windows import Windowing

MOST_REPORTS = 10_000
"""Default limit of reports per record."""
MAX_BATCH_BYTES = 16 << 20
"""Default limit of a record batch after decompression, in bytes."""

FIELDS = frozenset(("offset", "revision", "most_reports", "hamming_weight", "max_batch_bytes")).union(
    ("windows", "grace", "max_out_of_orderness", "fewest_new", "documents", "segments")
)
"""Fields that a recorded rule can have."""


@dataclass(frozen=True)
class RecordLimits:
    """The limits of a record, and its windows.

    Attributes:
        most_reports: limit of reports per record; None for no limit.
        hamming_weight: whether a unary report with an implausible Hamming weight is rejected.
        max_batch_bytes: limit of a record batch after decompression, in bytes; None for no limit. The rule of a
            batch's first offset applies to the whole batch.
        windowing: the windows to count in; None for all time only.
        fewest_new: smallest number of new reports by which a published count changes, at least 2; 0 for no limit. The
            publisher applies the highest number of all partitions.
    """

    most_reports: int | None
    hamming_weight: bool
    max_batch_bytes: int | None = None
    windowing: Windowing | None = None
    fewest_new: int = 0

    def __str__(self) -> str:
        most = (
            "any number of reports" if self.most_reports is None else f"at most {self.most_reports} reports"
        )
        batch = "any size" if self.max_batch_bytes is None else f"up to {self.max_batch_bytes} bytes"
        weight = "" if self.hamming_weight else ", any Hamming weight"
        text = f"{most} per record{weight}, in batches of {batch}"
        text = text if self.windowing is None else f"{text}, {self.windowing}"
        return f"{text}, at least {self.fewest_new} new reports a snapshot" if self.fewest_new else text


class Status(NamedTuple):
    """Whether a document or a segment is accepted.

    Names of several rules are joined: the higher status applies, so `retired` wins in one version.

    Attributes:
        version: `streams.revision` of the configuration; 0 without one, and for the only document of a stream.
        retired: whether its reports are no longer accepted.
    """

    version: int = 0
    retired: bool = False


class Names(NamedTuple):
    """The documents and segments of rules, or of a configuration.

    Attributes:
        documents: fingerprint -> status.
        segments: segment -> status.
    """

    documents: Mapping[str, Status] = MappingProxyType({})
    segments: Mapping[str, Status] = MappingProxyType({})

    def joined(self, *others: "Names") -> "Names":
        """Returns all names, each with its highest status."""
        documents, segments = dict(self.documents), dict(self.segments)
        for other in others:
            for mine, theirs in ((documents, other.documents), (segments, other.segments)):
                for name in sorted(theirs):
                    mine[name] = max(mine.get(name, theirs[name]), theirs[name])
        return Names(documents, segments)

    def beyond(self, known: "Names") -> "Names":
        """Returns the names that others lack, or have with a lower status."""
        return Names(
            *(
                {
                    name: status
                    for name, status in sorted(mine.items())
                    if name not in old or old[name] < status
                }
                for mine, old in zip(self, known, strict=True)
            )
        )


@dataclass(frozen=True)
class RequestedRule:
    """The rule that a configuration requests.

    Attributes:
        revision: a higher revision is newer; None if not configured.
        limits: the limits of a record.
        segments: segment -> status; the version of each is the revision, or 0.
    """

    revision: int | None = None
    limits: RecordLimits = RecordLimits(MOST_REPORTS, hamming_weight=True, max_batch_bytes=MAX_BATCH_BYTES)
    segments: Mapping[str, Status] = field(default_factory=dict, hash=False)

    def names(self, fleet: ldp.Fleet) -> Names:
        """Returns the configured names.

        The version of a stream's only document is always 0: only another document can retire it.

        Example:
            >>> old, new = ldp.Stream("s", ldp.GRR("1", 3)), ldp.Stream("s", ldp.GRR("2", 3))
            >>> RequestedRule(7).names(ldp.Fleet((old,))).documents
            {'8e9f39d0': Status(version=0, retired=False)}
            >>> RequestedRule(7).names(ldp.Fleet((new, old), frozenset([old.fingerprint]))).documents
            {'64007a33': Status(version=7, retired=False), '8e9f39d0': Status(version=7, retired=True)}
        """
        version = self.revision or 0 if len(fleet.documents) > 1 else 0
        documents = {
            each.fingerprint.hex(): Status(version, each.fingerprint in fleet.retired)
            for each in fleet.documents
        }
        return Names(documents, self.segments)


@dataclass(frozen=True)
class Rule:
    """Limits that apply from an offset up to the next rule.

    Attributes:
        offset: the first offset.
        revision: higher than the revision of every earlier rule. A rule that only changes names has the limits and the
            revision of the rule before.
        limits: the limits of a record.
        documents: fingerprint -> status, if it differs from that of earlier rules.
        segments: likewise for segments.
    """

    offset: int
    revision: int
    limits: RecordLimits
    documents: Mapping[str, Status] = field(default_factory=dict)
    segments: Mapping[str, Status] = field(default_factory=dict)

    @property
    def names(self) -> Names:
        """The names that the rule adds, or whose status it raises."""
        return Names(self.documents, self.segments)

    def as_json(self) -> dict[str, Any]:
        """Returns the rule in JSON types; omits unset limits and unchanged names.

        Example:
            >>> Rule(7, 1, RecordLimits(100, hamming_weight=True)).as_json()
            {'offset': 7, 'revision': 1, 'most_reports': 100, 'hamming_weight': True}
        """
        fields: dict[str, Any] = {"offset": self.offset, "revision": self.revision}
        fields |= {"most_reports": self.limits.most_reports, "hamming_weight": self.limits.hamming_weight}
        if self.limits.max_batch_bytes is not None:
            fields["max_batch_bytes"] = self.limits.max_batch_bytes
        if (w := self.limits.windowing) is not None:
            fields |= {"windows": [*w.windows], "grace": w.grace}
            fields["max_out_of_orderness"] = w.max_out_of_orderness
        if self.limits.fewest_new:
            fields["fewest_new"] = self.limits.fewest_new
        names = {"documents": self.documents, "segments": self.segments}
        return fields | {
            kind: {n: [*status] for n, status in own.items()} for kind, own in names.items() if own
        }


@dataclass(frozen=True)
class Older:
    """A configuration that is ignored in part because of recorded rules.

    Attributes:
        why: the recorded and the configured limits or names.
        hint: how to apply the configuration anyway.
        refused: whether to refuse the configuration, because it asks for larger increments than the newest rule and has
            no lower revision.
    """

    why: str
    hint: str
    refused: bool = False


def continues(rules: Sequence[object], others: Sequence[object]) -> bool:
    """Returns whether a list of rules begins with all rules of another list."""
    return list(rules[: len(others)]) == list(others)


def joined(listed: Iterable[Rule]) -> Names:
    """Returns the names of rules, each with its highest status."""
    return Names().joined(*(rule.names for rule in listed))


def first(configured: RequestedRule, start: int, names: Names) -> Rule:
    """Returns the first rule of a partition that is counted from an offset on."""
    return Rule(start, configured.revision or 1, configured.limits, *names)


def published(recorded: Sequence[Rule], fingerprint: str) -> list[dict[str, Any]]:
    """Returns rules in JSON types as a head records them.

    The first rule omits the stream's first document, the only one that most streams have.

    Example:
        >>> rule = first(RequestedRule(), 7, Names({"8e9f39d0": Status()}))
        >>> published([rule], "8e9f39d0")[0].keys() & {"documents"}
        set()
    """
    rule, *later = recorded
    rule = replace(rule, documents={}) if rule.documents == {fingerprint: Status()} else rule
    return [each.as_json() for each in (rule, *later)]


def parse(listed: Sequence[Mapping[str, Any]], start: int, fingerprint: str = "") -> list[Rule]:
    """Parses recorded rules from `Rule.as_json`, or from `published`.

    Args:
        listed: the rules in JSON types.
        start: the offset at which counting began.
        fingerprint: the stream's first document, for published rules.

    Raises:
        KeyError, TypeError, ValueError: no rules, unknown fields, wrong types, or wrong order.
    """
    rules = []
    for rule in listed:
        fields = dict(rule)
        if "windows" in fields:
            windows = tuple(fields.pop("windows"))
            fields["windowing"] = Windowing(windows, fields.pop("grace"), fields.pop("max_out_of_orderness"))
        names = [
            {name: Status(version, retired) for name, (version, retired) in fields.pop(kind, {}).items()}
            for kind in ("documents", "segments")
        ]
        rules.append(Rule(fields.pop("offset"), fields.pop("revision"), RecordLimits(**fields), *names))
    if fingerprint and rules and not rules[0].documents:
        rules[0] = replace(rules[0], documents={fingerprint: Status()})
    if not all(map(_has_right_types, rules)):
        raise TypeError(f"rules {listed} have fields of a wrong type")
    offsets = [rule.offset for rule in rules]
    follow = all(
        rule.revision > last.revision
        or ((rule.revision, rule.limits) == (last.revision, last.limits) and any(rule.names))
        for last, rule in itertools.pairwise(rules)
    )
    if not rules or offsets[0] > start or offsets != sorted(offsets) or not follow:
        raise ValueError(f"rules {listed} do not ascend from offset {start}")
    return rules


def _has_right_types(rule: Rule) -> bool:
    limits = rule.limits
    numbers: list[object] = [rule.offset, rule.revision, limits.fewest_new]
    numbers += [n for n in (limits.most_reports, limits.max_batch_bytes) if n is not None]
    statuses = [*rule.documents.values(), *rule.segments.values()]
    numbers += [status.version for status in statuses]
    if limits.windowing is not None:
        numbers += [limits.windowing.grace, limits.windowing.max_out_of_orderness]
    flags = [limits.hamming_weight, *(status.retired for status in statuses)]
    return all(type(flag) is bool for flag in flags) and all(type(n) is int and n >= 0 for n in numbers)


def decide(recorded: Sequence[Rule], configured: RequestedRule, offset: int) -> Rule | Older | None:
    """Decides whether a configuration adds a rule to the recorded ones.

    The higher revision is newer. Without a revision, limits that were never recorded are new. Limits that were replaced
    are old: they come from a worker that does not have the new configuration yet.

    Args:
        recorded: the rules so far; some may begin after the offset.
        configured: the configured rule.
        offset: the first offset that no worker has counted.

    Returns:
        A rule to append, `Older` if a newer rule is recorded, or None if the last rule is the configured one.

    Example:
        >>> first, second = (RecordLimits(most, hamming_weight=True) for most in (100, 1))
        >>> recorded = [Rule(0, 1, first), Rule(9, 2, second)]
        >>> added = decide(recorded, RequestedRule(limits=RecordLimits(50, hamming_weight=True)), offset=20)
        >>> added.offset, added.revision
        (20, 3)
        >>> decide(recorded, RequestedRule(limits=second), offset=20)
        >>> decide(recorded, RequestedRule(limits=first), offset=20).hint
        'to apply it, set streams.revision to 3'
    """
    last, revision, limits = recorded[-1], configured.revision, configured.limits
    if revision is None and limits == last.limits:
        return None
    refused = limits.fewest_new > last.limits.fewest_new
    if revision is None and limits in [rule.limits for rule in recorded]:
        return _older(last, f"{limits}, which was replaced", refused=refused)
    if revision is not None and revision < last.revision:
        return _older(last, f"{limits}, revision {revision}", refused=False)
    if revision == last.revision:
        return (
            None
            if limits == last.limits
            else _older(last, f"{limits}, of the same revision", refused=refused)
        )
    return Rule(max(offset, last.offset), revision or last.revision + 1, limits)


def joining(recorded: Sequence[Rule], decided: Rule | None, names: Names, offset: int) -> Rule | None:
    """Returns the rule that also joins names to the recorded ones, or None.

    Args:
        recorded: the rules so far.
        decided: the rule that `decide` adds, if any.
        names: configured names, and recorded names of other partitions.
        offset: the first offset that no worker has counted.

    Example:
        >>> recorded = [first(RequestedRule(), 0, Names({"8e9f39d0": Status()}))]
        >>> rule = joining(recorded, None, Names({"8e9f39d0": Status(), "9f86d081": Status()}), offset=20)
        >>> rule.offset, rule.revision, rule.documents
        (20, 1, {'9f86d081': Status(version=0, retired=False)})
    """
    last, added = recorded[-1], names.beyond(joined(recorded))
    if decided is None and not any(added):
        return None
    rule = decided or Rule(max(offset, last.offset), last.revision, last.limits)
    return replace(rule, documents=added.documents, segments=added.segments)


def outdated(recorded: Names, configured: Names) -> Older | None:
    """Returns how configured names contradict recorded ones, or None.

    Example:
        >>> recorded = Names({"8e9f39d0": Status(0, retired=True), "9f86d081": Status()})
        >>> older = outdated(recorded, Names({"8e9f39d0": Status()}))
        >>> older.why
        'counted by the recorded rules: document 8e9f39d0 is retired at revision 0'
        >>> older.hint
        'to accept it again, set streams.revision to 1'
    """
    kinds = (
        ("document", recorded.documents, configured.documents),
        ("segment", recorded.segments, configured.segments),
    )
    for kind, known, named in kinds:
        for name, status in known.items():
            if name not in named:
                why, hint = (
                    "is recorded; the configuration does not name it",
                    f"list it among the live or the retired {kind}s",
                )
            elif (asked := named[name]) < status and asked.retired != status.retired:
                done, again = ("retired", "accept") if status.retired else ("accepted", "retire")
                revision = status.version + status.retired
                why = f"is {done} at revision {status.version}"
                hint = f"to {again} it{' again' * status.retired}, set streams.revision to {revision}"
            else:
                continue
            return Older(f"counted by the recorded rules: {kind} {name} {why}", hint)
    return None


def _older(last: Rule, asked: str, *, refused: bool) -> Older:
    return Older(
        f"counted by {last.limits} (revision {last.revision}); the configuration has {asked}",
        f"to apply it, set streams.revision to {last.revision + 1}",
        refused,
    )
