"""Themes: histories that are dense in one kind of fault.

Some guards matter only where two rare faults meet. In histories of a theme they meet within hundreds.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tests.simulation.directed import SCRIPTS
from tests.simulation.script import Step
from tests.simulation.world import Faults
from worker.counting.rules import MAX_BATCH_BYTES, RecordLimits, RequestedRule
from worker.counting.windows import Windowing

EVERY, THEMED, AGAIN = 20, 2_000, 20_000
"""Each theme has one seed in this many, among the first seeds: their histories take longer."""

_CHANGING = [
    Windowing(("all", "2s"), grace=500, max_out_of_orderness=500),
    Windowing(("all", "2s", "4s every 2s"), grace=0, max_out_of_orderness=0),
    Windowing(("4s every 2s",), grace=2000, max_out_of_orderness=1000),
    Windowing(("all", "3s", "6s every 3s"), grace=1000, max_out_of_orderness=500),
    Windowing(("all", "1s"), grace=0, max_out_of_orderness=500),
    None,
    None,
]
_TIGHT = [
    Windowing(("all", "1s"), grace=0, max_out_of_orderness=0),
    Windowing(("all", "2s", "4s every 2s"), grace=0, max_out_of_orderness=0),
    Windowing(("2s", "6s every 2s"), grace=500, max_out_of_orderness=500),
]
_NARROWING = [
    Windowing(("all", "1s"), grace=15_000, max_out_of_orderness=0),
    Windowing(("all", "1s"), grace=0, max_out_of_orderness=0),
    Windowing(("all", "3s"), grace=15_000, max_out_of_orderness=0),
    Windowing(("all", "1s", "12s every 1s"), grace=0, max_out_of_orderness=500),
]
_LENGTHENING = [
    Windowing(("all", "1s"), grace=0, max_out_of_orderness=500),
    Windowing(("all", "1s", "60s"), grace=0, max_out_of_orderness=500),
    Windowing(("all", "2s", "60s every 20s"), grace=500, max_out_of_orderness=0),
    None,
]


@dataclass(frozen=True)
class Theme:
    """Settings of the histories of a theme."""

    faults: Mapping[str, float | tuple[float, ...]] = field(
        default_factory=dict
    )  # always most often, over the drawn value
    turns: Sequence[int] = ()
    steps: int = 10  # maximum per turn
    windows: Sequence[Windowing | None] = ()  # one for each configuration, instead of the drawn ones
    changes: int = 1  # number of configurations, each newer than the one before
    stops: float | None = None  # probability per turn of a stop signal
    produces: float = 0.3  # probability per turn of new records
    one_sided: float = 0.0  # share of the records in one partition, while the others are idle
    times: Mapping[str, float] = field(default_factory=dict)  # attributes of `Times`
    two: bool = False  # whether there is another deployment of the same name
    partitions: tuple[int, int] = (1, 3)  # minimum and maximum per topic
    bad: float = 0.15  # share of the records that cannot be read
    replaces: float = 0.7  # probability that all workers are replaced when faults stop
    counting: tuple[float, float] = (0.05, 1.5)  # probability that counting takes long, and its seconds
    memory: int = 64 << 20  # bytes that a worker may have fetched
    forgets: int = 2  # a log loses at most this fraction at once
    script: Sequence[Step] = ()
    calm: bool = False  # whether all other faults are off
    imports: bool = False  # whether some partitions begin by an import, before or while workers run
    refuses: bool = False  # whether reads of snapshots are refused instead of returning no record
    recounts: bool = False  # whether the operator always has lost records counted again
    together: int = 32 << 20  # bytes of states that are sent to the store together
    fewest: Sequence[int] = ()  # smallest increments of the configurations
    fleet: bool = False  # whether reports have several documents and segments
    most_documents: int = 16  # bound of documents
    edited: bool = False  # whether the last configuration has no document of those before
    in_order: bool = False  # whether the configurations have the windows one after the other

    def of(self, drawn: Faults, rng: random.Random) -> Faults:
        """Returns its faults, and the drawn faults for the rest."""
        chosen = {
            name: rng.choice(chance) if isinstance(chance, tuple) else chance
            for name, chance in self.faults.items()
            if rng.random() < 0.7
        }
        return (Faults() if self.calm else drawn).but(**chosen)

    def configured(self, rng: random.Random) -> list[RequestedRule]:
        """Returns the configurations, the older ones first."""
        first = rng.choice([None, 1])
        if self.changes == 1:
            chosen = [(first, rng.choice(self.windows))]
        else:
            revisions = [first, *range(2, 1 + self.changes)] if rng.random() < 0.7 else [None] * self.changes
            windows = self.windows if self.in_order else [rng.choice(self.windows) for _ in revisions]
            chosen = list(zip(revisions, windows, strict=True))
        return [
            RequestedRule(revision, RecordLimits(rng.choice([1, 2, 3]), True, MAX_BATCH_BYTES, windows))
            for revision, windows in chosen
        ]


THEMES = {
    # rules and windows change again and again, while the store, the head and the group do not agree
    "rules": Theme({"crash": 0.004, "lost_mirror": (0.0, 0.9), "rebalance": 0.01, "go_back": 0.003,
        "slow": 0.01, "retain": 0.002}, (40,), 40, _CHANGING, changes=4, stops=0.1),
    # late reports, closed, final and evicted windows
    "finals": Theme({"retain": 0.004, "grow": 0.006, "rebalance": 0.005, "go_back": 0.001, "crash": 0.003},
        (50,), 20, _CHANGING[:-2], produces=0.6, forgets=1, times={"late": 0.3, "idle": 0.1, "grid": 500,
        "undated": 0.05, "early": 0.1}),
    # one partition goes far ahead of the others
    "room": Theme({"retain": 0.003, "grow": 0.002, "jump": 0.003}, (50,), 20, _TIGHT, produces=0.5,
        one_sided=0.9, times={"late": 0.1, "idle": 0.2, "appended": 0}),
    # transactions, of this stream's publishers and of others
    "snapshot_producer": Theme({"crash": 0.003, "lost_reply": 0.05, "expired_batch": 0.15, "hang": 0.002, "slow": 0.02,
        "open_another": 0.02, "compact": 0.01, "rebalance": 0.02, "keep_unread": 0.001}, (40,), 40, stops=0.05),
    # ownership of partitions
    "claims": Theme({"rebalance": 0.02, "silent": 0.5, "slow_join": 0.3, "expelled": 0.1, "unknown": 0.05,
        "hang": 0.002, "slow": 0.05, "late_request": 0.03, "twice": 0.05, "lost_reply": 0.03, "staging_expired": 0.05,
        "held_again": 0.5}, (40,), 30, produces=0.5, replaces=0.4, partitions=(1, 5)),
    # the store loses what it had acknowledged, and the group its offsets
    "store": Theme({"go_back": 0.003, "lose": 0.002, "expire": 0.002, "delete_head": (0.0, 0.002),
        "lost_mirror": (0.0, 1.0), "crash": 0.003, "retain": 0.004, "slow": 0.01}, (40,), 30, replaces=0.2),
    # the log loses its beginning or its end, is recreated, grows, and arrives damaged
    "log": Theme({"retain": 0.005, "truncate": 0.001, "recreate": 0.002, "grow": 0.004, "damaged": 0.15,
        "slow": 0.02, "lost_mirror": 0.5, "rebalance": 0.01}, (40,), 30, produces=0.6, replaces=0.4,
        counting=(0.1, 3.0), memory=800 << 10, forgets=1),
    # records that cannot be read, and dead letters that cannot be sent
    "dead_letters": Theme({"lost_request": 0.08, "lost_reply": 0.03, "damaged": 0.1, "crash": 0.002,
        "rebalance": 0.01}, (40,), 20, produces=0.5, bad=0.5),
    # two deployments under one name, of one topic
    "two": Theme({"crash": 0.003, "lost_reply": 0.05, "open_another": 0.01, "slow": 0.02, "go_back": 0.001},
        (40,), 20, two=True),
}  # fmt: skip
assert 2 * len(THEMES) < EVERY, "most histories have no theme"

_LONG: dict[str, Any] = {"turns": (60,), "steps": 30, "produces": 0.7, "calm": True}
_RELEASED: dict[str, Any] = {"turns": (60,), "steps": 20, "produces": 0.6, "calm": True}
_RELEASING: Mapping[str, float | tuple[float, ...]] = {
    "crash": 0.003,
    "lost_reply": (0.0, 0.05),
    "rebalance": 0.01,
    "go_back": (0.0, 0.002),
    "lose": (0.0, 0.0, 0.001),
    "retain": 0.004,
    "grow": 0.003,
    "compact": 0.01,
    "hang": 0.002,
    "lost_mirror": (0.0, 0.9),
}
_FLEET: dict[str, Any] = {
    "turns": (40,),
    "steps": 30,
    "produces": 0.7,
    "calm": True,
    "fleet": True,
    "bad": 0.05,
}
_FLEETS = {
    # documents and segments are added, retired and accepted again
    "documents": Theme({"crash": 0.004, "rebalance": 0.01, "go_back": (0.0, 0.002), "grow": (0.0, 0.003),
        "lost_mirror": (0.0, 0.9), "retain": (0.0, 0.002), "slow": 0.01, "lost_reply": (0.0, 0.05)}, **_FLEET,
        windows=_CHANGING, changes=4, stops=0.15),
    # final windows, and those that expire
    "parted": Theme({"rebalance": 0.01, "crash": 0.002, "grow": (0.0, 0.002), "compact": 0.01}, **_FLEET | {
        "produces": 0.9, "turns": (60,)}, windows=_TIGHT, changes=3, stops=0.05, partitions=(1, 2),
        times={"step": 400, "late": 0.1, "idle": 0.1}),
    # partitions are added, and an old configuration claims them first
    "extended": Theme({"grow": 0.012, "rebalance": 0.03, "crash": 0.004, "keep_unread": (0.0, 0.001)}, **_FLEET,
        windows=(None, None, _TIGHT[1]), changes=4, stops=0.3, partitions=(1, 2)),
    # the store loses rules
    "reverted": Theme({"go_back": 0.005, "lose": (0.0, 0.002), "lost_mirror": (0.0, 1.0), "crash": 0.006,
        "rebalance": 0.01, "expire": (0.0, 0.002)}, **_FLEET, windows=_CHANGING, changes=4, stops=0.15),
    # the head cannot be read while partitions are claimed
    "unlit": Theme({"keep_unread": 0.006, "rebalance": 0.05, "crash": 0.003, "go_back": (0.0, 0.002),
        "grow": (0.0, 0.003), "lost_mirror": (0.0, 0.9), "slow": 0.01}, **_FLEET, windows=(None, None, _TIGHT[1]),
        changes=4, stops=0.2, partitions=(1, 4), refuses=True),
    # an import, and documents that are added to it
    "adopted": Theme({"crash": 0.005, "late_request": (0.0, 0.03), "twice": (0.0, 0.03), "lost_reply": 0.03,
        "rebalance": 0.01, "grow": 0.002}, **_FLEET, windows=(None, *_CHANGING[:3]), changes=3, stops=0.1,
        partitions=(1, 4), imports=True),
    # more documents are configured than there may be
    "crowded": Theme({"rebalance": 0.02, "crash": 0.003, "grow": (0.0, 0.003)}, **_FLEET, windows=(None, _TIGHT[1]),
        changes=4, stops=0.2, most_documents=2),
    # the last configuration has another document in the place of all
    "edited": Theme({"rebalance": 0.02, "crash": 0.003, "lost_mirror": (0.0, 0.9)}, **_FLEET,
        windows=(None, _TIGHT[1]), changes=3, stops=0.2, edited=True),
}  # fmt: skip
"""Histories of several documents and segments."""
DIRECTED = {
    "blobs": Theme(**_LONG),
    "lineage": Theme(**_LONG, windows=(None,)),
    "overtaken": Theme(**_LONG | {"produces": 1.0}, partitions=(5, 5), counting=(0.5, 0.3)),
    "taken": Theme(**_LONG | {"produces": 1.0}, partitions=(5, 5), counting=(0.5, 0.3)),
    "dropped": Theme(**_LONG, partitions=(3, 5)),
    "foreign": Theme(**_LONG, two=True),
    "deleted": Theme(**_LONG, windows=_CHANGING[1:4], times={"late": 0.3, "idle": 0.1, "grid": 500,
        "early": 0.1}),
    "range": Theme(**_LONG),
    "unread": Theme(**_LONG | {"turns": (150,), "steps": 40}),
    "falls": Theme({"crash": 0.003, "rebalance": 0.01}, **_LONG, windows=_CHANGING[:5], changes=4, stops=0.1),
    "peeked": Theme(**_LONG, partitions=(3, 5)),
    "regone": Theme(**_LONG, partitions=(3, 5)),
    "reruled": Theme({"crash": 0.002}, **_LONG, windows=(None,), changes=4, stops=0.2, partitions=(3, 5)),
    "unheard": Theme({"silent": 1.0, "rebalance": 0.03, "lost_request": 0.1}, **_LONG),
    "forgotten": Theme(**_LONG, windows=_CHANGING[1:4], times={"late": 0.3, "idle": 0.1, "grid": 500,
        "early": 0.1}),
    "overruled": Theme(**_LONG, windows=(None,), changes=4, stops=0.01, partitions=(3, 5)),
    "disputed": Theme(**_LONG, windows=(None,), changes=4, stops=0.01, partitions=(3, 5)),
    "imported": Theme({"crash": 0.01, "lost_request": 0.03, "late_request": 0.03, "twice": 0.03,
        "lost_reply": 0.05, "staging_expired": 0.1, "lost_mirror": 0.5, "rebalance": 0.01, "go_back": 0.002,
        "retain": 0.002, "grow": 0.002, "slow": 0.02}, **_LONG, partitions=(1, 5), imports=True),
    "forestalled": Theme(**_LONG, imports=True),
    "unruled": Theme(**_LONG | {"produces": 0.3}, windows=(None,), changes=4, stops=0.2, partitions=(3, 5)),
    "succeeded": Theme(**_LONG, windows=(Windowing(("all", "2s", "4s every 2s"), grace=0, max_out_of_orderness=0),)),
    "widened": Theme(**_LONG, windows=(None, _TIGHT[0], _TIGHT[1]), changes=4, stops=0.1, partitions=(3, 5),
        one_sided=0.5, times={"step": 800, "late": 0}),
    "stalled": Theme(**_LONG | {"turns": (20,)}, windows=_TIGHT[:1], one_sided=0.97, partitions=(2, 3),
        times={"step": 800, "late": 0, "early": 0, "idle": 0, "wild": 0, "undated": 0, "appended": 0}),
    # a rule leaves more panes open than the next one can hold
    "narrowed": Theme({"grow": 0.001, "rebalance": 0.005, "crash": 0.002}, **_LONG, windows=_NARROWING,
        changes=4, stops=0.1, partitions=(1, 2), times={"step": 800, "late": 0, "idle": 0, "wild": 0,
        "undated": 0, "appended": 0}),
    # a window comes whose close time lies far beyond the counted records
    "lengthened": Theme({"grow": 0.003, "rebalance": 0.005, "crash": 0.002}, **_LONG, windows=_LENGTHENING,
        changes=4, stops=0.1, times={"late": 0.1, "idle": 0, "wild": 0}),
    # a log loses what was not counted, and what comes behind that is late
    "delayed": Theme({"retain": 0.02, "hang": 0.01, "crash": 0.002}, **_LONG, windows=_CHANGING[:1],
        partitions=(1, 2), forgets=1, times={"late": 0.6, "step": 100, "idle": 0, "wild": 0, "undated": 0,
        "appended": 0, "early": 0}),
    # the brokers of some partitions are away
    "leaderless": Theme({"unlead": 0.02, "rebalance": 0.01, "crash": 0.002, "go_back": 0.001, "grow": 0.001,
        "slow": 0.02}, **_LONG, partitions=(2, 5)),
    # the nodes of the store that have some partitions refuse them
    "refused": Theme({"refuse": 0.006, "rebalance": 0.01, "crash": 0.002, "go_back": 0.001, "slow": 0.02},
        **_LONG, partitions=(3, 5), together=1),
    "unnoticed": Theme(**_LONG | {"produces": 0.1}, replaces=0.0, partitions=(1, 1)),
    "gapped": Theme(**_LONG, partitions=(1, 3)),
    "mixed": Theme(**_LONG, windows=(None,), partitions=(2, 2)),
    # windows are no longer counted, and their published snapshots must be deleted
    "unwindowed": Theme(**_LONG, windows=(*_TIGHT[:2], None), changes=3, stops=0.05, partitions=(1, 2),
        times={"step": 800} ),
    # a stored byte differs from the written one
    "rotten": Theme({"rebalance": 0.01, "crash": 0.002}, **_LONG, partitions=(1, 2)),
    "misread": Theme({"rebalance": 0.01, "crash": 0.002}, **_LONG, partitions=(1, 2)),
    # brokers answer wrongly where logs begin and end
    "lied": Theme({"lied": 0.2, "rebalance": 0.03, "crash": 0.003, "lost_mirror": (0.0, 0.9),
        "retain": (0.0, 0.002), "slow": 0.01}, **_LONG | {"turns": (40,)}, windows=(*_CHANGING[:3], None),
        partitions=(1, 4)),
    # snapshots cannot be read, while partitions change hands, rules change and stores go back
    "darkened": Theme({"keep_unread": 0.005, "rebalance": 0.05, "crash": 0.003, "go_back": 0.002,
        "retain": 0.002, "lost_mirror": (0.0, 0.9), "slow": 0.01}, **_LONG,
        windows=(*_CHANGING[:3], None, None), changes=3, stops=0.1, partitions=(1, 4), refuses=True),
    # brokers have logs again that they reported as lost
    "returned": Theme({"give_back": 0.01, "retain": 0.02, "hang": 0.02, "rebalance": 0.02, "crash": 0.004,
        "lost_reply": (0.0, 0.05), "late_request": (0.0, 0.03), "twice": (0.0, 0.03), "staging_expired": (0.0, 0.1),
        "lost_mirror": (0.0, 0.9), "lied": (0.0, 0.1), "go_back": (0.0, 0.0, 0.001), "slow": 0.01},
        **_LONG | {"turns": (80,), "produces": 1.0}, windows=(*[None] * 6, _CHANGING[0]), changes=2, stops=0.05,
        partitions=(2, 4), replaces=1.0, forgets=1, recounts=True),
    "recalled": Theme(**_LONG, windows=(None,), partitions=(1, 2)),
    "vanished": Theme(**_LONG, partitions=(1, 2)),
    "shortened": Theme(**_LONG | {"produces": 0.2}, partitions=(1, 2)),
    "cut": Theme(**_LONG | {"produces": 0.2}, partitions=(1, 2)),
    "uncounted": Theme(**_LONG, windows=(None,), partitions=(3, 3)),
    "unheeded": Theme(**_LONG, windows=_TIGHT, stops=1e-9, replaces=0.0, partitions=(1, 2)),
    "leftover": Theme(**_LONG | {"produces": 1.0}, windows=(None,), partitions=(1, 2), counting=(0.7, 1.5)),
    "stood": Theme(**_LONG | {"produces": 1.0}, windows=(None,), replaces=0.0, partitions=(1, 2)),
    "darkgap": Theme(**_LONG, partitions=(1, 3), refuses=True),
    # a log loses what comes behind windows that another partition holds back
    "closedgap": Theme(**_LONG, windows=_CHANGING[:1], partitions=(2, 2), one_sided=0.9, times={"step": 800,
        "late": 0, "idle": 0, "wild": 0, "undated": 0, "appended": 0}),
    "forsaken": Theme({"rebalance": 0.02, "crash": 0.006}, **_LONG | {"turns": (150,)},
        windows=(None, *[_TIGHT[0]] * 4, None), changes=6, stops=0.05, partitions=(1, 1), in_order=True),
    # fetches come damaged, again and again
    "flawed": Theme({"damaged": 0.5}, **_LONG, partitions=(1, 2)),
    "outrun": Theme({"lost_mirror": 1.0}, **_LONG, windows=(None,), partitions=(2, 2), recounts=True),
    "silenced": Theme({"silent": 1.0}, **_LONG, windows=(None,), partitions=(2, 3)),
    "outruled": Theme(**_LONG, windows=(None,), changes=4, stops=0.01, partitions=(3, 5)),
    # published counts change by several reports at once
    "released": Theme(_RELEASING, **_RELEASED, windows=_CHANGING[:1], fewest=(2, 3, 10)),
    "relimited": Theme(_RELEASING, **_RELEASED, windows=_CHANGING, changes=4, stops=0.1, fewest=(0, 2, 3, 10)),
    "doubted": Theme(**_LONG, windows=_CHANGING[:4], fewest=(2, 3)),
    "begun": Theme({"retain": 0.01, "rebalance": 0.005}, **_RELEASED | {"turns": (80,)}, windows=_CHANGING[:4],
        changes=3, stops=0.03, fewest=(0, 0, 3, 10)),
    "depleted": Theme(**_LONG, windows=_CHANGING[1:4], fewest=(2, 3)),
    **_FLEETS,
    # published counts of documents and segments change by several reports at once
    "sliced": Theme(_RELEASING, **_FLEET | _RELEASED | {"turns": (60,)}, windows=_CHANGING[:4], changes=2, stops=0.05,
        fewest=(2, 3)),
    "resliced": Theme({"rebalance": 0.01, "crash": 0.003}, **_FLEET | _RELEASED, windows=_CHANGING, changes=4,
        stops=0.1, fewest=(0, 0, 2, 3)),
    # limits, documents and segments change, while publishers die between the messages of snapshots
    "revised": Theme({"rebalance": 0.003}, **_FLEET | {"turns": (60,), "produces": 0.9}, windows=(None, *_TIGHT),
        changes=6, stops=0.1, partitions=(1, 2), times={"step": 400, "late": 0.1}, fewest=(2, 2, 3)),
}  # fmt: skip
"""Directed histories: settings of each, in addition to its script."""
AFTER, EACH = 20_000, 50
"""The seed of the first directed history, and the number of seeds for each theme."""
FLEETS = 10**9
"""The seed from which on all histories have several documents."""
RUN = 25
"""Number of directed histories that a long run adds."""


def directed(each: int) -> list[int]:
    """Returns the seeds of a number of directed histories of each theme."""
    return [AFTER + EACH * number + one for number in range(len(DIRECTED)) for one in range(each)]


def theme_of(seed: int) -> str | None:
    """Returns the theme of a seed's history; None for most."""
    if seed >= FLEETS:
        return list(_FLEETS)[seed % len(_FLEETS)]
    if AFTER <= seed < AFTER + EACH * len(DIRECTED):
        return list(DIRECTED)[(seed - AFTER) // EACH]
    at = seed % EVERY
    themed = seed % AGAIN < THEMED and at % 2 and at // 2 < len(THEMES)
    return list(THEMES)[at // 2] if themed else None


def themed(theme: str | None) -> Theme:
    """Returns the settings of a theme's histories, or the default ones."""
    if theme in DIRECTED:
        return replace(DIRECTED[theme], script=SCRIPTS.get(theme, ()))
    return Theme() if theme is None else THEMES[theme]


def seeds_of(theme: str | None, count: int) -> list[int]:
    """Returns directed and first seeds; the seeds of a theme come first."""
    seeds = {*range(count), *range(AFTER, AFTER + EACH * len(DIRECTED))} if count else ()
    return sorted(seeds, key=lambda seed: (theme is not None and theme_of(seed) != theme, seed))
