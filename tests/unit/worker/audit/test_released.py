"""The audit recounts what a least increment lets the publisher release."""

import json

import pytest

from tests.unit.worker.audit.publishing import World
from tests.unit.worker.audit.streams import STREAMS
from worker.counting.rules import RecordLimits
from worker.counting.windows import Windowing

HOPPING = Windowing(("all", "1m", "3m every 1m"), grace=0, max_out_of_orderness=60_000)


@pytest.mark.parametrize("windowing", [HOPPING, None], ids=["windows", "all time"])
@pytest.mark.parametrize("name", ["grr-3"])
@pytest.mark.parametrize("seed", range(8))
def test_released_counts_are_recounted_from_the_log_and_the_head(seed, name, windowing):
    limits = RecordLimits(100, True, windowing=windowing, fewest_new=2 + seed)
    world = World(seed, limits, stream=STREAMS[name]).run()
    verdict = world.audit()
    assert world.head()["released"]["rest"]
    assert verdict.difference is None, verdict
    print(verdict)
