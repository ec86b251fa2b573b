"""Themes: what a history is dense in, where it is dense in one thing; most have no theme, and a bit of everything.

Some guards are needed only where two rare things meet. In histories of a theme they meet within some hundreds.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from worker.counting.rules import MAX_BATCH_BYTES, Configured, Terms
from worker.counting.windows import Windowing

EVERY = 20
"""Of so many seeds in a row, each theme has one."""

_CHANGING = [
    Windowing(("all", "2s"), grace=500, out_of_order=500),
    Windowing(("all", "2s", "4s every 2s"), grace=0, out_of_order=0),
    Windowing(("4s every 2s",), grace=2000, out_of_order=1000),
    Windowing(("all", "3s", "6s every 3s"), grace=1000, out_of_order=500),
    Windowing(("all", "1s"), grace=0, out_of_order=500),
    None,
]
_TIGHT = [
    Windowing(("all", "1s"), grace=0, out_of_order=0),
    Windowing(("all", "2s", "4s every 2s"), grace=0, out_of_order=0),
    Windowing(("2s", "6s every 2s"), grace=500, out_of_order=500),
]


@dataclass(frozen=True)
class Theme:
    """What a history of a theme has otherwise.

    Attributes:
        faults: how likely some of them are, whatever was drawn.
        turns: how many it has.
        steps: of a turn, at most.
        windows: which one of its configurations has, in the place of what was drawn.
        changes: how many configurations there are, each newer than the one before.
        stops: how often a worker is asked to stop, at a turn.
        produces: how often there are new records, at a turn.
        upgrades: how often workers of older layouts counted before.
        one_sided: how many of the records are in one partition, of which the others stand still.
        times: what is so of timestamps.
        two: whether there is another deployment of the same name.
    """

    faults: Mapping[str, float] = field(default_factory=dict)
    turns: Sequence[int] = ()
    steps: int = 10
    windows: Sequence[Windowing | None] = ()
    changes: int = 1
    stops: float | None = None
    produces: float = 0.3
    upgrades: float = 0.2
    one_sided: float = 0.0
    times: Mapping[str, float] = field(default_factory=dict)
    two: bool = False

    def configured(self, rng: random.Random) -> list[Configured]:
        """Returns the configurations, the older ones first."""
        first = rng.choice([None, 1])
        if self.changes == 1:
            chosen = [(first, rng.choice(self.windows))]
        else:
            revisions = [first, *range(2, 1 + self.changes)]
            chosen = [(revision, rng.choice(self.windows)) for revision in revisions]
        return [
            Configured(revision, Terms(rng.choice([1, 2, 3]), True, MAX_BATCH_BYTES, windows))
            for revision, windows in chosen
        ]


THEMES = {
    # rules and windows change again and again, while the store, the head and the group do not agree
    "rules": Theme(
        {"crash": 0.01, "lost_mirror": 0.5, "rebalance": 0.03, "lost_reply": 0.03, "late_request": 0.05},
        (40,),
        60,
        _CHANGING,
        changes=4,
        stops=0.1,
        upgrades=0.0,
    ),
    # what is late, closed, final, dropped
    "finals": Theme(
        {"retention": 0.01, "grown": 0.004, "rebalance": 0.01},
        (60,),
        20,
        _CHANGING[:-1],
        produces=0.6,
        upgrades=0.0,
        times={"late": 0.3, "idle": 0.1, "grid": 500, "undated": 0.05, "early": 0.1},
    ),
    # one partition goes far ahead of the others
    "room": Theme(
        {"retention": 0.003, "grown": 0.002, "clock": 0.003},
        (60,),
        20,
        _TIGHT,
        produces=0.5,
        upgrades=0.0,
        one_sided=0.9,
        times={"late": 0.1, "idle": 0.2, "appended": 0},
    ),
    # transactions, of this stream's publishers and of others
    "outbox": Theme(
        {
            "crash": 0.01,
            "lost_reply": 0.1,
            "lost_request": 0.03,
            "expired_batch": 0.15,
            "hang": 0.005,
            "other_transaction": 0.04,
            "compaction": 0.02,
            "rebalance": 0.04,
        },
        (30, 45),
    ),
    # who owns what
    "claims": Theme(
        {
            "rebalance": 0.08,
            "silent": 0.5,
            "slow_join": 0.3,
            "expelled": 0.2,
            "unknown": 0.05,
            "hang": 0.01,
            "late_request": 0.05,
            "twice": 0.05,
            "lost_reply": 0.1,
        },
        (30, 45),
    ),
    # the store loses what it had acknowledged, and the group its offsets
    "store": Theme(
        {
            "went_back": 0.01,
            "lost_state": 0.004,
            "expired": 0.005,
            "lost_mirror": 0.5,
            "unstaged": 0.05,
            "crash": 0.01,
            "retention": 0.01,
            "late_request": 0.05,
        },
        (30, 45),
        upgrades=0.0,
    ),
    # the log loses its beginning or its end, is made anew, grows, and comes damaged
    "log": Theme(
        {
            "retention": 0.02,
            "truncated": 0.004,
            "recreated": 0.004,
            "grown": 0.01,
            "damaged": 0.15,
            "crash": 0.005,
            "lost_mirror": 0.5,
        },
        (30, 45),
        produces=0.5,
    ),
    # two deployments under one name, of one topic
    "two": Theme(
        {
            "crash": 0.01,
            "lost_reply": 0.1,
            "other_transaction": 0.03,
            "hang": 0.005,
            "went_back": 0.004,
            "deleted_head": 0.002,
        },
        (30, 45),
        two=True,
    ),
}
assert 2 * len(THEMES) < EVERY, "most histories have no theme"


def theme_of(seed: int) -> str | None:
    """Returns the theme of a seed's history; None for most."""
    at = seed % EVERY
    return list(THEMES)[at // 2] if at % 2 and at // 2 < len(THEMES) else None


def seeds_of(theme: str | None, count: int) -> list[int]:
    """Returns the first seeds, those of a theme before the others."""
    return sorted(range(count), key=lambda seed: theme is not None and theme_of(seed) != theme)
