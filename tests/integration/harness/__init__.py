"""What the integration tests share: one test's own stream on real services, its workers as processes, and the truth.

The truth is what the test itself sent, counted here by the protocols' definitions; nothing in these files asks the code
under test what the right answer is.
"""

from tests.integration.harness.foreign import Message, assert_snapshot_topic, foreign
from tests.integration.harness.hostile import Hostile, Watched
from tests.integration.harness.letters import Letters, dead_letters
from tests.integration.harness.processes import Worker, frozen
from tests.integration.harness.truth import METHODS
from tests.integration.harness.waiting import TIMEOUT_SECONDS, until
from tests.integration.harness.world import Sending, World

__all__ = [
    "METHODS",
    "TIMEOUT_SECONDS",
    "Hostile",
    "Letters",
    "Message",
    "Sending",
    "Watched",
    "Worker",
    "World",
    "assert_snapshot_topic",
    "dead_letters",
    "foreign",
    "frozen",
    "until",
]
