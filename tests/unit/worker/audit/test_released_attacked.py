"""Attacks on the recount of released counts."""

from dataclasses import replace

import pytest

import ldp
from tests.unit.worker.audit.publishing import World
from tests.unit.worker.audit.streams import STREAMS
from tests.unit.worker.audit.test_windows import HOPS
from worker.publishing.stored_cut import StoredCut


@pytest.mark.parametrize("fewest", [0, 2])
def test_a_publisher_that_ignores_the_recorded_m_is_detected(monkeypatch, fewest):
    monkeypatch.setattr(StoredCut, "fewest_new", property(lambda _: fewest))
    verdict = World(3, replace(HOPS, fewest_new=6), stream=STREAMS["grr-3"]).run().audit()
    assert verdict.verdict == "different"


def test_reports_without_support_are_recounted():
    """The head is published while a report without a bit waits."""
    limits = replace(HOPS, fewest_new=2, hamming_weight=False)
    world = World(0, limits, stream=ldp.Stream("s", ldp.OUE("9", domain_size=2))).run(to=20, step=2)
    for to in range(20, 61):
        verdict = world.run(to=to, step=1, since=to - 1).audit()
        assert (verdict.verdict, verdict.difference) == ("equal", None), to
