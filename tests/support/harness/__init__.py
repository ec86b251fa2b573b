"""A test's stream on real services, its workers and expected counts."""

from tests.support.harness.dead_letters import DeadLetters, dead_letters
from tests.support.harness.foreign import Message, assert_snapshot_topic, foreign
from tests.support.harness.hostile import Hostile, Watched
from tests.support.harness.processes import Forked, Worker, frozen
from tests.support.harness.published import Published
from tests.support.harness.times import EVENT_TIME, WINDOWED, event_time
from tests.support.harness.truth import METHODS
from tests.support.harness.waiting import TIMEOUT_SECONDS, until
from tests.support.harness.world import Sending, World

__all__ = [
    "EVENT_TIME",
    "METHODS",
    "TIMEOUT_SECONDS",
    "WINDOWED",
    "DeadLetters",
    "Forked",
    "Hostile",
    "Message",
    "Published",
    "Sending",
    "Watched",
    "Worker",
    "World",
    "assert_snapshot_topic",
    "dead_letters",
    "event_time",
    "foreign",
    "frozen",
    "until",
]
