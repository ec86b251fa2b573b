"""The numbered steps: docstring, body and kill points agree."""

import importlib
import inspect
import re
from collections.abc import Callable
from typing import Any

import pytest

from tests.long.kills.steps import IMPORTING, SHUFFLING, STEPS, TURNS, UPLOADING
from worker.counting.ownership import Ownership
from worker.importing import Import
from worker.kafka.intake.partition import KafkaIntake
from worker.kafka.snapshots.producer import KafkaSnapshotProducer
from worker.publishing.publisher import Publisher
from worker.service.shuffle import StreamShuffler
from worker.shuffling.partition import OwnedIntake

PUBLISHING = (Publisher.tick, Publisher._publish, KafkaSnapshotProducer.publish)
CLAIMING = (Ownership.claim, Ownership._decide, Ownership._adopt)
COMMITTING = (Ownership.commit, Ownership.prepare, Ownership.write, Ownership.settle)


@pytest.mark.parametrize(
    ("turn", "body", "first"),
    [
        ("claim", CLAIMING, Ownership.claim),
        ("commit", COMMITTING, Ownership.commit),
        ("publish", PUBLISHING, Publisher.tick),
        ("import", (Import,), Import.run),
        ("intake", (StreamShuffler, OwnedIntake.claim), OwnedIntake.claim),
        ("batch", (OwnedIntake._next, OwnedIntake.tidy, KafkaIntake), OwnedIntake.step),
    ],
    ids=["claim", "commit", "publish", "import", "intake", "batch"],
)
def test_steps_have_the_same_numbers_in_docstring_code_and_kill_points(
    turn: str, body: tuple[Callable[..., Any], ...], first: Callable[..., Any]
) -> None:
    said = [int(number) for number in re.findall(r"^ +(\d+)\. ", first.__doc__ or "", re.MULTILINE)]
    assert said == list(range(1, len(said) + 1))
    marks = [n for part in body for n in re.findall(r"# Steps? ([\d and]+)\.", inspect.getsource(part))]
    assert sorted(int(number) for mark in marks for number in mark.split(" and ")) == said
    kills = [step for step in [*STEPS, *IMPORTING, *SHUFFLING] if step.turn == turn]
    assert sorted({step.number for step in kills}) == said


WRAPPED = {(step.owner, step.call) for step in [*STEPS, *IMPORTING, *SHUFFLING, *UPLOADING]} | {
    function for functions in TURNS.values() for function in functions
}


@pytest.mark.parametrize(("owner", "call"), sorted(WRAPPED))
def test_functions_wrapped_by_kill_points_exist(owner: str, call: str) -> None:
    module, _, name = owner.partition(":")
    found: Any = importlib.import_module(module)
    assert callable(getattr(getattr(found, name) if name else found, call))
