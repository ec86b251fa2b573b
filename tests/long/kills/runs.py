"""Runs the kill points on streams of three kinds."""

from collections.abc import Callable, Sequence
from pathlib import Path

from tests.long.kills.changing import Changing
from tests.long.kills.points import Ground, Outcome, Point

FEWEST_NEW = 450
"""m of every third stream; a pane has about 500 reports, so that some panes are released and others are not."""
FEWEST_CHANGED = 50
"""m of every second stream that changes; a pane has about 170 reports of each document, and 55 of each segment."""
MOST = 12
"""So many points at most on a stream that is not fresh: each audit reads all of its log."""


def run(
    chosen: Sequence[Point],
    kafka: str,
    redis_url: str,
    folder: Path,
    seed: int,
    say: Callable[[str], object],
    *,
    changing: bool = False,
) -> list[Outcome]:
    """Kills at each point, on a new stream for each fresh one; raises AssertionError with each violation.

    A stream has one document, limits its increments, or changes its documents; changing: all streams do. Every second
    stream that changes also limits its increments.
    """
    fresh = [point for point in chosen if point.way == "fresh"]
    others = [point for point in chosen if point.way != "fresh"]
    outcomes, streams = list[Outcome](), max(len(fresh), -(-len(others) // MOST))
    for number in range(streams):
        at, kind = folder / f"stream-{number + 1}", 2 if changing else number % 3
        made = Changing if kind == 2 else Ground
        every_second = (number if changing else number // 3) % 2 == 0
        fewest_new = FEWEST_CHANGED * every_second if kind == 2 else FEWEST_NEW * kind
        with made(kafka, redis_url, at, seed + number, fewest_new) as ground:
            for point in [*fresh[number : number + 1], *others[number::streams]]:
                say(f"{len(outcomes) + 1}/{len(chosen)} {point}")
                outcomes.append(ground.kill(point))
                say(str(outcomes[-1]))
            ground.finish()
    return outcomes
