"""Attacks on the recount of released counts."""

from dataclasses import replace

import pytest

import ldp
from tests.unit.worker.audit.publishing import LENGTH, World
from tests.unit.worker.audit.streams import STREAMS
from tests.unit.worker.audit.test_windows import HOPS, START, Counting
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


@pytest.mark.parametrize("seed", range(6))
def test_windows_published_before_a_loss_are_not_wrong(seed):
    """One partition's store and a part of its log are lost."""
    limits = replace(HOPS, fewest_new=3)
    world = World(seed, limits, stream=STREAMS["grr-3"]).run(to=60)
    each, head = world.partitions[0], world.head()
    lost = head["offsets"]["0"] - (10, 30, 55)[seed % 3]
    each.counting = Counting(each.rng, each.counting.records, limits)
    each.state.windows.admit(head["floors"]["0"])
    each.state.skip(lost)
    each.counting.to(START + 60, droppings=False)
    world.run(to=LENGTH, since=60)
    assert world.head()["gaps"]
    assert world.audit(begins={0: lost}).verdict == "gap"
