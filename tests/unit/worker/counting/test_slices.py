"""Many partitions: claimed, committed and compared in slices, each with a sign of life."""

from collections import Counter
from typing import Any

import pytest

from tests.support.memory import Process
from tests.unit.worker.counting.still import Still
from worker.counting import ownership

MANY, MOST = 250, 100


def counting_calls(side: Any, *names: str) -> Counter[str]:
    """Counts calls of a worker's log or store."""
    calls = Counter[str]()

    def counted(name: str, call: Any) -> Any:
        def counting(*args: Any, **named: Any) -> Any:
            calls[name] += 1
            return call(*args, **named)

        return counting

    for name in names:
        setattr(side, name, counted(name, getattr(side, name)))
    return calls


def joined(partitions: int = MANY) -> tuple[Still, Process]:
    world = Still(partitions)
    world.send(1)
    process = world.member(1)
    process.log.poll()
    return world, process


def test_a_turn_claims_a_hundred_partitions_with_one_request_per_step() -> None:
    _, process = joined()
    kafka = counting_calls(process.log, "committed", "bounds", "firsts", "confirm")
    redis = counting_calls(process.ownership._store, "peek_all", "claim_all")
    beats = list[int]()
    for turn in (1, 2, 3):
        process.ownership.claim(lambda: beats.append(turn))  # noqa: B023
        assert len(process.ownership.counted()) == min(turn * MOST, MANY)
        # the worker asks twice for missing keys
        assert kafka == {"committed": 2 * turn, "bounds": 2 * turn, "firsts": turn, "confirm": turn}
        # a fresh claim needs a decided head, and the metadata once more
        assert redis == {"peek_all": 2 * turn, "claim_all": turn}
        assert turn in beats


def test_partitions_are_committed_in_hundreds_with_heartbeats() -> None:
    _, process = joined()
    owner = process.ownership
    while len(owner.counted()) < MANY:
        owner.claim()
    for _ in range(20):
        for batch in process.log.poll():
            owner.apply(batch)
    assert owner.counted() == dict.fromkeys(range(MANY), 1)
    redis = counting_calls(owner._store, "stage_all", "promote_all", "compare_all")
    beats = list[int]()
    owner.commit(heartbeat=lambda: beats.append(1))
    assert owner.stored() == owner.counted()
    assert redis == {"stage_all": 3, "promote_all": 3}
    assert len(beats) == 3
    owner.compare(lambda: beats.append(1))
    assert redis["compare_all"] == 3
    assert len(beats) == 6


def test_large_states_are_claimed_in_small_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    world, process = joined(4)
    process.ownership.claim()
    for _ in range(20):
        for batch in process.log.poll():
            process.ownership.apply(batch)
    process.ownership.commit()
    process.ownership.drop(range(4))
    world.clock += 10
    monkeypatch.setattr(ownership, "_MOST_BYTES", 2 * process.ownership._cell_bytes)
    redis = counting_calls(process.ownership._store, "claim_all")
    process.ownership.claim()
    assert process.ownership.stored() == dict.fromkeys(range(4), 1)
    assert redis == {"claim_all": 2}
