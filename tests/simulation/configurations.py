"""Configurations of several documents and segments, in the order in which they are rolled out."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field

import ldp
from tests.simulation.documents import DECLARED, POOL, Statuses
from worker.counting.rules import RequestedRule, Status


@dataclass(frozen=True)
class Configured(RequestedRule):
    """A configuration: its rule and its documents."""

    fleet: ldp.Fleet = field(default=ldp.Fleet((POOL[0],)), hash=False)

    @property
    def named(self) -> tuple[Statuses, Statuses]:
        """The documents and segments that it names."""
        version = (self.revision or 0) if len(self.fleet.documents) > 1 else 0
        return {
            each.fingerprint.hex(): (version, each.fingerprint in self.fleet.retired)
            for each in self.fleet.documents
        }, {name: (status.version, status.retired) for name, status in self.segments.items()}


def alone(rule: RequestedRule, stream: ldp.Stream) -> Configured:
    """Returns a configuration of one document."""
    return Configured(rule.revision, rule.limits, rule.segments, ldp.Fleet((stream,)))


def rolled_out(
    rules: Sequence[RequestedRule],
    rng: random.Random,
    most: int,
    *,
    imports: bool = False,
    edited: bool = False,
) -> list[Configured]:
    """Returns configurations with documents and segments; each but the first changes those of the one before.

    None has more documents than ``most``: then those that were live the longest are no longer named. With ``edited``,
    the last one has another document in the place of all.
    """
    pool = range(len(POOL) - edited)
    documents = dict.fromkeys([0] if imports else rng.sample(pool, rng.choice([1, 1, 2])), False)
    segments, listed = dict[str, bool](), list[Configured]()
    for rule in rules:
        for _ in range(rng.choice([0, 1, 1, 2]) if listed else 1):
            change = rng.random()
            if change < 0.4:
                documents.setdefault(rng.choice(pool), False)
            elif change < 0.6 and sum(not gone for gone in documents.values()) > 1:
                documents[rng.choice([i for i, gone in documents.items() if not gone])] = True
            elif change < 0.7:
                documents[rng.choice(list(documents))] = False
            elif change < 0.9:
                segments[rng.choice(DECLARED)] = False
            elif segments:
                segments[rng.choice(list(segments))] = True
        while len(documents) > most:
            del documents[next(iter(documents))]
        newest_first = tuple(POOL[i] for i in sorted(documents, reverse=True))
        retired = frozenset(POOL[i].fingerprint for i, gone in documents.items() if gone)
        version = rule.revision or 0
        apart = any(each.segment for each in newest_first)
        declared = {name: Status(version, gone) for name, gone in segments.items() if apart}
        fleet = ldp.Fleet(newest_first, retired if len(retired) < len(newest_first) else frozenset())
        listed.append(Configured(rule.revision, rule.limits, declared, fleet))
    if edited:
        listed[-1] = Configured(listed[-1].revision, listed[-1].limits, {}, ldp.Fleet((POOL[-1],)))
    return listed
