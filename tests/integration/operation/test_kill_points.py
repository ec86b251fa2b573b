"""A few kill points of tests/long/kills; `make kills` runs all of them."""

import pytest

from tests.long.kills import points, runs
from tests.long.kills.dying import Aim
from tests.long.kills.points import Point
from tests.long.kills.steps import ALONE, DELETED, FINAL

pytestmark = pytest.mark.integration

CHOSEN = [
    Point("fresh", Aim("claim", 8, "after")),
    Point("runs", Aim("commit", 5, "during", 3, 0.001)),
    Point("runs", Aim("publish", 9, "before", of=FINAL)),
    Point("runs", Aim("publish", 9, "after", of=DELETED)),
]
"""Steps in the middle of writes."""


def test_a_worker_killed_at_any_step_loses_nothing(kafka, redis_url, tmp_path):
    outcomes = runs.run(CHOSEN, kafka, redis_url, tmp_path / "kills", 0, print)
    assert [outcome.point for outcome in outcomes] == CHOSEN
    assert outcomes[-1].finals > outcomes[-1].deleted > 0


def test_every_step_has_kill_points():
    made = points.points()
    assert len(made) >= 200
    assert len({str(point) for point in made}) == len(made)
    aims = {(point.aim.turn, point.aim.number, point.aim.side) for point in made}
    steps = {(step.turn, step.number) for step in points.STEPS}
    sides = {"before", "during", "after"}
    whole = {(turn, number, side) for turn, number in steps for side in sides}
    # workers react to a head's new partitions once in their lives
    assert whole - aims == {("heed", 2, "during"), ("heed", 4, "during")}
    windows = {(point.aim.of, point.aim.number) for point in made if point.aim.of}
    assert windows == {(of, number) for of in (FINAL, DELETED) for number in range(5, 11)} | {
        (ALONE, number) for number in range(5, 10)
    }
    assert set(CHOSEN) - set(made) == {CHOSEN[1]}  # its moment is fixed
