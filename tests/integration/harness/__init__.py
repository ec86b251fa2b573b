"""A test's stream on real services, its workers and expected counts."""

from tests.integration.harness.foreign import Message, assert_snapshot_topic, foreign
from tests.integration.harness.hostile import Hostile, Watched
from tests.integration.harness.letters import Letters, dead_letters
from tests.integration.harness.processes import Forked, Worker, frozen
from tests.integration.harness.published import Published
from tests.integration.harness.times import EVENT_TIME, WINDOWED, event_time
from tests.integration.harness.truth import METHODS
from tests.integration.harness.waiting import TIMEOUT_SECONDS, until
from tests.integration.harness.world import Sending, World

__all__ = [
    "EVENT_TIME",
    "METHODS",
    "TIMEOUT_SECONDS",
    "WINDOWED",
    "Forked",
    "Hostile",
    "Letters",
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
