"""Published increments of at least m reports: the path from rules over the head to the next publisher.

The tests of a single report, a late report and overlapping windows fail with commit cb95fd6: it compared totals.
"""

import json
import random
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import ldp
from ldp import frames
from ldp.privacy import summary
from ldp.privacy.amplification import Blanket, blanket
from ldp.privacy.declaration import Declaration
from tests.support.cells import cells_of
from tests.support.memory import Process
from tests.unit.worker.counting.still import STREAM, alone, turn
from tests.unit.worker.counting.windowed import Windowed, configured, finals, listen, settle
from tests.unit.worker.test_release_rule import smallest_class, smallest_combination
from worker.counting.partition_state import PartitionState
from worker.counting.ports import StateLost, Unavailable
from worker.counting.rules import RecordLimits, RequestedRule, Rule, parse
from worker.counting.windows import Windowing

HOPPING = Windowing(("all", "1s", "3s every 1s"), grace=500, max_out_of_orderness=500)


SEEDS = range(60)


class Marked(Windowed):
    """A world in which each report has another value, so that a vector shows which reports it covers."""

    def __init__(self, fewest: int, partitions: int = 1, windowing: Windowing | None = HOPPING) -> None:
        super().__init__(partitions, windowing)
        self.stream = ldp.Stream(STREAM.name, ldp.GRR(epsilon="1", domain_size=256))
        self.sent = 0
        self.choose(fewest)

    def at(self, partition: int, *times: int) -> None:
        for time in times:
            value = frames.encode(self.stream, np.array([(self.sent,)], self.stream.oracle.report_dtype))
            self.produce(partition, value, [self.sent])
            self.logs[partition][-1].timestamp = time
            self.sent += 1

    def vectors(self) -> list[Any]:
        """Returns the reports that each published vector covers."""
        p, q = float(self.stream.oracle.p), float(self.stream.oracle.q)
        return [
            np.rint(said["reports"] * (np.array(said["frequencies"]) * (p - q) + q)).astype(int)
            for said in self.published
        ]


def times(second: int, count: int) -> list[int]:
    return [1000 * second + 10 * i for i in range(count)]


def shown(world: Windowed, name: str = "1s") -> list[tuple[int, int, int]]:
    """Published windows: start in seconds, reports, withheld reports."""
    found = [said for said in world.published if said["window"]["name"] == name]
    return [
        (start, n, said["withheld"]) for said, (start, _, n) in zip(found, finals(world, name), strict=True)
    ]


def test_heads_have_the_privacy_loss_of_the_rule_in_force(monkeypatch: pytest.MonkeyPatch) -> None:
    summary._epsilon_of.cache_clear()
    calls = []
    epsilon = Blanket.epsilon
    monkeypatch.setattr(Blanket, "epsilon", lambda *given: calls.append(given[1:]) or epsilon(*given))
    world = Marked(21)
    worker, heads = world.member(1), dict[int, Any]()
    for second in range(0, 30, 6):
        world.at(0, *times(second, 21))
        settle(world, worker)
        if world.received:  # the newest head with bodies
            head = json.loads(world.received[f"{STREAM.name}/head"][1])
            heads[head["sequence"]] = head["privacy_loss"]
    readers = epsilon(blanket(world.stream.oracle), 21, 1e-8)
    expected = {"fewest_new": 21, "operator": 1.0, "readers": readers, "delta": 1e-8}
    assert list(heads.values()) == [expected] * len(heads)
    assert len(heads) > 2
    assert calls == [(21, 1e-8)]  # computed once for all snapshots


def test_heads_with_memoised_noise_have_no_loss_to_readers() -> None:
    world = Marked(21, windowing=None)
    world.stream = ldp.Stream(
        STREAM.name, world.stream.oracle, privacy=Declaration("device", 1, "24h", "memoised", "365d")
    )
    world.at(0, *times(0, 21))
    settle(world, world.member(1))
    head = json.loads(world.received[f"{STREAM.name}/head"][1])
    assert head["privacy_loss"] == {"fewest_new": 21, "operator": 1.0, "readers": None, "delta": 1e-8}


def test_a_single_report_in_a_pane_is_not_a_window() -> None:
    """19 reports in one pane and 1 in the next."""
    world = Marked(20)
    world.at(0, *times(0, 20), *times(1, 19), *times(2, 1), *times(6, 1))
    settle(world, world.member(1))
    assert smallest_class(world.vectors()) == smallest_combination(world.vectors()) == 20
    assert shown(world) == [(0, 20, 0)]
    assert shown(world, "3s every 1s") == [(0, 20, 20)]
    assert world.heads[-1].reports == 40  # 19 and 1 together are an increment


def test_a_late_report_is_not_the_difference_of_all_and_a_window() -> None:
    """19 reports on time and 1 late, after 20 that were published."""
    world = Marked(20)
    process = world.member(1)
    world.at(0, *times(0, 20), *times(5, 20), 7000)
    settle(world, process)
    world.at(0, 10, *times(9, 1))
    settle(world, process)
    assert smallest_class(world.vectors()) >= 20
    assert (world.heads[-1].reports, world.heads[-1].offsets) == (40, {0: 43})
    world.at(0, *[20] * 18, *times(12, 1))  # one late report more, with that of 7 s and that of 9 s: 21
    settle(world, process)
    assert smallest_class(world.vectors()) >= 20
    assert world.heads[-1].reports == 61


def test_differences_of_overlapping_windows_do_not_give_small_panes() -> None:
    world = Marked(10)
    world.at(0, *(time for second in range(8) for time in times(second, 10 if second % 2 else 3)), 12_000)
    settle(world, world.member(1), turns=60)
    assert smallest_class(world.vectors()) >= 10
    assert {n % 10 for _, n, _ in shown(world, "3s every 1s")} == {0}
    assert [withheld for _, _, withheld in shown(world, "3s every 1s")][:6] == [6, 3, 6, 3, 6, 3]


@pytest.mark.parametrize(
    "sent",
    [
        [*times(0, 19), *times(1, 1), *times(6, 1)],
        [*times(0, 19), 7000, 10],
        [time for second in range(8) for time in times(second, 10 if second % 2 else 3)],
    ],
    ids=["small pane", "late", "overlapping"],
)
def test_without_a_limit_the_same_reports_are_isolated(sent: list[int]) -> None:
    world = Marked(0)
    world.at(0, *sent, 20_000)
    settle(world, world.member(1), turns=30)
    assert smallest_class(world.vectors()) < 10


def test_larger_increments_need_a_new_revision() -> None:
    """Upgraded workers must not publish without a limit that was configured before it became a rule."""
    world = Marked(0, windowing=None)
    world.configured = replace(world.configured, revision=1)
    world.at(0, *range(5))
    settle(world, world.member(1))
    world.configured = replace(world.configured, limits=replace(world.configured.limits, fewest_new=20))
    with pytest.raises(StateLost, match=r"Smaller increments would be published.*set streams.revision to 2"):
        settle(world, alone(world, 2))
    world.configured = replace(world.configured, revision=2)
    process = alone(world, 3)
    world.at(0, *range(19))
    settle(world, process)
    assert world.heads[-1].reports == 5


@pytest.mark.parametrize("fewest", [0, 1])
def test_without_a_limit_rules_heads_and_bodies_have_no_new_fields(fewest: int) -> None:
    limits = RecordLimits(100, hamming_weight=True)
    rule = {"offset": 0, "revision": 1, "most_reports": 100, "hamming_weight": True}
    assert [one.as_json() for one in parse([rule], 0)] == [rule]
    assert parse([rule], 0)[0].limits == limits
    world = Windowed()
    world.configured = configured()
    world.at(0, *times(0, 3), *times(5, 1))
    settle(world, world.member(1))
    assert world.heads[-1].released is None
    assert not any({"released", "withheld", "privacy_loss"} & said.keys() for said in world.published)
    assert [said["reports"] for said in world.published if said["window"]["name"] == "1s"][:1] == [3]


def test_the_next_publisher_continues_from_the_published_counts() -> None:
    world = Marked(10, windowing=None)
    world.at(0, *range(12))
    settle(world, world.member(1))
    world.at(0, *range(9))
    settle(world, alone(world, 2))
    assert world.heads[-1].reports == 12
    world.at(0, 1)
    settle(world, alone(world, 3))
    assert world.heads[-1].reports == 22
    assert smallest_combination(world.vectors()) == 10


def test_a_lost_reply_does_not_release_counts_twice() -> None:
    world = Marked(10)
    world.at(0, *times(0, 12), *times(3, 1))
    process = world.member(1)
    lose_replies(world, process, random.Random(1), 0.7)
    settle(world, process, turns=20)
    world.at(0, *times(6, 12), *times(9, 1))
    settle(world, process, turns=20)
    assert world.heads[-1].reports == 24
    assert smallest_class(world.vectors()) == 12


def lose_replies(world: Windowed, process: Process, rng: random.Random, chance: float) -> None:
    """Hides the outcome of each transaction; half of them are committed."""
    listen(world, process)
    snapshot_producer: Any = process.publisher._snapshot_producer
    publish = snapshot_producer.publish

    def lossy(*given: Any) -> None:
        lost = rng.random() < chance
        if lost and rng.random() < 0.5:
            raise Unavailable("the transaction was aborted")
        publish(*given)
        if lost:
            raise Unavailable("the reply was lost")

    snapshot_producer.publish = lossy


def test_a_change_of_m_holds_from_its_offset_on() -> None:
    world = Marked(10, windowing=None)
    world.at(0, *range(12))
    settle(world, world.member(1))
    world.choose(20)
    process = alone(world, 2)
    settle(world, process)
    assert [rule.get("fewest_new") for rule in world.heads[-1].rules[0]] == [10, 20]
    for sent, published in ((19, 12), (1, 32)):
        world.at(0, *range(sent))
        settle(world, process)
        assert world.heads[-1].reports == published


def test_windows_shown_in_part_before_the_limit_are_not_shown_again() -> None:
    world = Marked(0)
    world.configured = RequestedRule(1, world.configured.limits)
    process = world.member(1)
    world.at(0, *times(0, 12), *times(1, 3), *times(2, 5))
    settle(world, process)
    assert (world.heads[-1].reports, finals(world)) == (20, [(0, True, 12)])
    before = len(world.published)
    world.choose(10)
    process = alone(world, 2)
    world.at(0, *times(2, 4), *times(3, 11), *times(7, 1))
    settle(world, process)
    after = world.published[before:]
    assert [
        (said["window"]["name"], said["reports"])
        for said in after
        if said["window"]["name"] not in ("all", "late")
    ] == [
        ("1s", 11),
        *[("3s every 1s", 11)] * 3,
    ]
    assert {said["reports"] for said in after if said["window"]["name"] == "all"} == {20, 31}
    assert {*lates(world)} == {20}
    assert smallest_class(world.vectors()[before:]) >= 10


def lates(world: Windowed) -> list[int]:
    return [said["reports"] for said in world.published if said["window"]["name"] == "late"]


def test_late_has_the_released_reports_that_are_in_no_window() -> None:
    """12 reports in a pane; 3 and 4 in small panes; 2 late and 2 undated; the last one is in an open pane."""
    world = Marked(10)
    process = world.member(1)
    world.at(0, *times(0, 12), *times(1, 3), *times(2, 4), *times(6, 1))
    settle(world, process)
    assert (shown(world), lates(world)) == ([(0, 12, 0)], [])  # 7 reports of the rest wait
    world.at(0, 10, 20, -1, -1)
    settle(world, process)
    assert (world.heads[-1].reports, lates(world)) == (23, [11])
    late = json.loads(world.received[f"{STREAM.name}/late/base"][1])
    assert late["window"] == {"name": "late", "start": None, "end": None, "final": False}
    assert (late["sequence"], late["reports"]) == (world.heads[-1].sequence, 11)
    assert np.flatnonzero(world.vectors()[-1]).tolist() == [*range(12, 19), *range(20, 24)]
    process = alone(world, 2)  # takes over, after the panes were evicted
    world.at(0, *times(7, 12), *times(12, 10), *([30] * 9))
    settle(world, process)
    assert (world.heads[-1].reports, lates(world)[-1]) == (45, 21)  # and the report of 6 s
    assert smallest_combination(world.vectors()) >= 10


def test_late_is_not_published_without_windows_and_begins_with_them() -> None:
    world = Marked(4, windowing=None)
    world.at(0, *times(0, 6))
    settle(world, world.member(1))
    assert (released := world.heads[-1].reports) >= 4
    assert lates(world) == []
    world.configured = RequestedRule(9, replace(world.configured.limits, windowing=HOPPING))
    world.at(0, *times(3, 5), *times(9, 1))
    settle(world, alone(world, 2))
    assert lates(world)[0] == released
    assert lates(world)[-1] == world.heads[-1].reports - sum(n for _, n, _ in shown(world))
    assert smallest_class(world.vectors()) >= 4


def test_late_is_deleted_when_the_limit_ends() -> None:
    world = Marked(4)
    world.at(0, *times(0, 5), *times(1, 2), *times(6, 1), *[0] * 3)
    settle(world, world.member(1))
    assert lates(world) == [5]
    world.choose(0)
    world.at(0, *times(7, 1))
    settle(world, alone(world, 2))
    assert world.heads[-1].released is None
    newest = {m.key: m.body for sent in world.messages for m in sent if "/late/" in m.key}
    assert f"{STREAM.name}/late/base" in newest
    assert not any(newest.values())


def test_windows_progress_as_without_a_limit() -> None:
    lines = []
    for fewest in (0, 30):
        world = Marked(fewest)
        process = world.member(1)
        for second in range(12):
            world.at(0, *times(second, 1 + second % 5))
            settle(world, process, turns=3)
        lines.append({name: line.closed for name, line in world.heads[-1].progress.items()})
    assert lines[0] == lines[1]


def history(seed: int) -> tuple[Marked, int, int]:
    """Plays a random history; returns its world, the lowest m and the last m."""
    rng = random.Random(seed)
    m = rng.choice([2, 4, 6])
    world = Marked(
        m, rng.choice([1, 1, 2, 3]), rng.choice([HOPPING, HOPPING, Windowing(("1s",), 0, 0), None])
    )
    process, number, least, now = world.member(1), 1, m, 0
    lose_replies(world, process, rng, 0.2)
    for _ in range(rng.randint(8, 25)):
        now += rng.choice([0, 300, 1000, 2500])
        for _ in range(rng.choice([0, 1, 3, 8])):
            if world.sent < 250:
                time = rng.choice([now, now, now, now + 400, max(0, now - 3000), -1])
                world.at(rng.randrange(len(world.logs)), time)
        match rng.random():
            case chance if chance < 0.1:
                m = rng.choice([2, 4, 6])
                least = min(least, m)
                world.choose(m)
                number += 1
                process = alone(world, number)
                lose_replies(world, process, rng, 0.2)
            case chance if chance < 0.2:
                number += 1
                process = alone(world, number)
                lose_replies(world, process, rng, 0.2)
            case chance if chance < 0.25 and len(world.logs) < 4:
                world.grow()
                world.told = len(world.logs)
        for _ in range(rng.randint(1, 4)):
            process.ownership.compare()
            turn(process)
            process.publisher.tick()
    settle(world, process, turns=20)
    return world, least, m


@pytest.mark.parametrize("seed", SEEDS)
def test_random_histories_release_no_small_increment(seed: int) -> None:
    world, least, m = history(seed)
    assert smallest_class(world.vectors() or [np.zeros(1)]) >= least
    states = [world.state(p) for p in world.stored]
    waiting = sum(cell.reports for s in states for name, cell in cells_of(s).items() if name != "all")
    counted = sum(state.reports for state in states)
    assert world.sent == counted
    assert counted - (world.heads[-1].reports if world.heads else 0) <= waiting + m - 1


def test_an_added_partition_does_not_add_to_a_decided_pane() -> None:
    """Panes of 1 s are closed before any window, and an added partition begins where windows are closed."""
    world = Marked(3, windowing=Windowing(("all", "2s", "3s"), grace=500, max_out_of_orderness=500))
    world.at(0, *times(0, 3), 2500)
    settle(world, world.member(1))
    world.grow()
    world.told = 2
    process = alone(world, 2)
    settle(world, process)
    world.at(1, *times(0, 2), *times(9, 1))
    world.at(0, *times(9, 1))
    settle(world, process)
    assert (shown(world, "2s"), shown(world, "3s")) == ([(0, 5, 0)], [(0, 5, 1)])
    assert smallest_class(world.vectors()) >= 3


def test_panes_that_a_full_partition_merged_are_not_decided_later() -> None:
    world = Marked(4, 2, Windowing(("all", "1s", "3s every 1s"), 0, 0))
    process = world.member(1)
    world.at(1, *times(0, 2))
    world.at(0, *(time for second in range(30) for time in times(second, 3 + second % 3)))
    settle(world, process, turns=100)
    assert world.heads[-1].progress["1s"].bounded
    assert world.heads[-1].released is not None
    assert world.heads[-1].released.fewest == ((0, None),)
    assert (shown(world), world.heads[-1].reports > 80) == ([], True)
    world.at(1, *times(0, 5), *(time for second in range(30) for time in times(second, 1)), 60_000)
    world.at(0, *times(60, 1))
    settle(world, process, turns=100)
    assert next(start for start, *_ in shown(world)) > 20
    assert smallest_class(world.vectors()) >= 4


def test_the_highest_m_of_all_partitions_holds_during_a_rollout() -> None:
    world = Marked(4, 2, windowing=None)
    first = world.member(1)
    world.at(0, *range(4))
    world.at(1, *range(4))
    settle(world, first)
    world.choose(8)
    second = world.member(2)
    settle(world, first, second)
    for sent, published in ((7, 8), (1, 16)):
        world.at(0, *range(sent))
        settle(world, first, second)
        assert world.heads[-1].reports == published
    assert sorted(rules[-1].get("fewest_new") for rules in world.heads[-1].rules.values()) == [4, 8]


def test_a_publisher_begins_again_after_it_published_without_a_limit() -> None:
    world = Marked(3, 2, windowing=None)
    world.configured = replace(world.configured, revision=1)
    old, reports = world.member(5), list[int]()
    world.at(1, *range(4))
    settle(world, old)
    world.choose(0)
    publisher = world.member(1)
    world.at(0, *range(4))
    settle(world, publisher, old)
    reports.append(world.heads[-1].reports)
    world.members.discard(5)
    world.rebalance()
    world.at(0, 1)
    settle(world, publisher)
    reports.append(world.heads[-1].reports)
    world.choose(3)
    newest = world.member(6)
    settle(world, publisher, newest)
    for _ in range(2):
        world.at(1, *range(2))
        settle(world, publisher, newest)
        reports.append(world.heads[-1].reports)
    assert reports == [8, 9, 9, 13]


def test_m_changes_at_the_offset_of_its_rule() -> None:
    first, then = (RecordLimits(100, True, fewest_new=fewest) for fewest in (2, 9))
    listed = [Rule(0, 1, first), Rule(5, 2, then)]
    states = [PartitionState(0, offset, {}, listed) for offset in (0, 4, 5, 9)]
    assert [state.fewest_new for state in states] == [2, 2, 9, 9]


@pytest.mark.parametrize("seed", range(40))
def test_lost_counts_release_no_small_increment(seed: int) -> None:
    """The store and the beginning of the log are lost, so that published reports are no longer counted."""
    rng, m = random.Random(seed), 3
    world = Marked(m, windowing=None)
    process, number = world.member(1), 1
    for _ in range(rng.randint(3, 9)):
        world.at(0, *range(rng.choice([1, 2, 4, 7])))
        if world.heads and rng.random() < 0.4:
            world.deliver()
            world.stored.pop(0, None)
            world.firsts[0] = rng.randint(world.firsts[0], len(world.logs[0]))
            world.recount_after = len(world.heads)
            number += 1
            process = alone(world, number)
        settle(world, process, turns=4)
    assert smallest_combination(world.vectors()) >= m
    assert world.heads[-1].gaps == {} or world.heads[-1].reports


def test_open_panes_join_the_rest_once_windows_are_not_counted() -> None:
    world = Marked(4, 2)
    world.at(0, *times(0, 5), *times(5, 3))
    world.at(1, *times(0, 1), *times(4, 2))
    settle(world, world.member(1))
    assert world.heads[-1].reports == 6
    world.configured = RequestedRule(9, replace(world.configured.limits, windowing=None))
    world.at(0, *times(6, 1))
    settle(world, alone(world, 2))
    assert world.heads[-1].reports == 11  # and one waits
    assert smallest_class(world.vectors()) >= 4
