"""The whole of a worker in memory: twenty thousand seeded histories of everything that can go wrong."""

import collections

import pytest

from tests.simulation.directed import SCRIPTS
from tests.simulation.history import history
from tests.simulation.running import run
from tests.simulation.themes import AFTER, DIRECTED, EACH, RUN

HISTORIES, BLOCKS = 20_000, 10
HAPPENED: dict[int, collections.Counter[str]] = {}
"""What happened in each block of histories."""
OFTEN = (
    "a head alone",
    "a process hangs",
    "a request arrived late",
    "a window is not complete",
    "admitted",
    "another stream's transaction is open",
    "commit",
    "crash after a step",
    "crash before a step",
    "expelled",
    "final",
    "late",
    "lost reply",
    "lost request",
    "lost without a word",
    "named",
    "panes dropped",
    "provisional",
    "rebalance",
    "retention",
    "snapshot",
    "tombstone",
    "undated",
    "upgraded",
)
RARE = (
    "a batch expired",
    "a clock jumps",
    "a heartbeat says that it is no member",
    "a partition more",
    "a transaction is aborted by the next producer",
    "a transaction times out",
    "a window less",
    "a window more",
    "another deployment is refused",
    "bounded",
    "claimed, gap",
    "compacted",
    "damaged on the way",
    "fenced",
    "floor",
    "forked",
    "given up",
    "head deleted",
    "letter refused",
    "loss noticed",
    "lost and regained without a word",
    "named, with a floor",
    "no room",
    "offsets expired",
    "publisher fenced",
    "rule added",
    "sent twice",
    "state lost",
    "store went back",
    "the topic's id is not known",
    "topic created again",
    "truncated",
    "unstaged",
)


@pytest.mark.slow
@pytest.mark.parametrize("block", range(BLOCKS))
def test_every_history_is_as_its_recount_says(block: int) -> None:
    total: collections.Counter[str] = collections.Counter()
    for _, happened in run(HISTORIES // BLOCKS, block * HISTORIES // BLOCKS):
        total.update(happened)
    HAPPENED[block] = total
    # a block that lacks one of these would prove little
    assert [event for event in OFTEN if not total[event]] == []


@pytest.mark.slow
def test_every_directed_history_is_as_its_recount_says() -> None:
    total: collections.Counter[str] = collections.Counter()
    for number in range(len(DIRECTED)):
        for _, happened in run(RUN, AFTER + EACH * number):
            total.update(happened)
    assert total["as the script says"] > RUN * len(SCRIPTS) // 2


@pytest.mark.slow
def test_what_is_rare_happened_in_some_history() -> None:
    if len(HAPPENED) < BLOCKS:
        return  # only some blocks were asked for
    total = sum(HAPPENED.values(), collections.Counter())
    assert {event: total[event] for event in RARE if total[event] < 3} == {}


def test_a_seed_is_one_history() -> None:
    assert history(7) == history(7)
