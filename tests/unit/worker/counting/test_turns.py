"""A store that fails partially: other partitions continue at whichever step it fails, and take turns."""

from typing import Any

import pytest

from tests.support.memory import Process
from tests.unit.worker.counting.still import Still, alone, count_all, turn
from worker.counting import ownership
from worker.counting.ports import Unavailable


def refusing(process: Process, step: str, bad: set[int]) -> list[int]:
    """Has a step of the store fail for partitions; returns for which it was tried, in order."""
    store: Any = process.ownership._store
    whole, tried = getattr(store, step), list[int]()

    def partly(partition: int, *more: Any) -> Any:
        tried.append(partition)
        if partition in bad:
            raise Unavailable("Redis: OOM command not allowed, on the node that has it")
        return whole(partition, *more)

    setattr(store, step, partly)
    return tried


@pytest.mark.parametrize("step", ["peek_all", "claim_all", "promote_all"])
def test_an_unavailable_store_costs_one_timeout_per_round(step: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ownership, "_MOST", 2)
    world = Still(partitions=5)
    world.send()
    process = world.member(1)
    if step == "promote_all":
        for _ in range(3):
            turn(process, commit=False)
    sent = list[set[int]]()

    def silent(partitions: Any) -> dict[int, Unavailable]:
        sent.append({*partitions})
        return {p: Unavailable("Redis: TimeoutError") for p in partitions}

    setattr(process.ownership._store, step, silent)
    for rounds in range(1, 20):
        turn(process)
        assert len(sent) == rounds
    assert set.union(*sent) == set(range(5))  # each has its turn


def test_partitions_without_an_answer_of_redis_block_no_comparison() -> None:
    world = Still(partitions=3)
    world.send()
    process = world.member(1)
    count_all(world, process)
    refusing(process, "compare", {0})
    turn(alone(world, 2))  # claims all of them
    for _ in range(2):
        process.ownership.compare()
    assert process.ownership.stored() == {0: 5}
