"""OwnedPartition: a partition that this worker counts, with its pending commit.

The states of a partition that the group assigns to this worker:

==============  ==================================  =======================================
state           event                               next
==============  ==================================  =======================================
assigned        claimed                             held; with windows, waiting if no head names it
assigned        cannot be claimed now               postponed
postponed       its wait is over                    assigned
waiting         a head names it, or there is room   held
held            records are counted                 ahead
ahead           `Ownership.prepare`                 commit pending; it goes on counting
ahead           no room for another pane            waiting
commit pending  DONE                                held, or ahead by what was counted meanwhile
commit pending  no answer, or STAGING_EXPIRED       commit pending: the same commit again
commit pending  FENCED or CONFLICT                  dropped, and postponed
any             its counts are in doubt             dropped, and postponed
any             the group takes it away             released, after a last attempt to commit
==============  ==================================  =======================================
"""

import random
from collections.abc import Mapping
from dataclasses import dataclass

from worker.counting import layout
from worker.counting.partition_state import PartitionState
from worker.counting.ports import Metadata

FIRST_WAIT, LONGEST_WAIT = 0.1, 5.0


@dataclass(frozen=True, eq=False)
class PendingCommit:
    """One partition's commit from ``before`` to ``after``, retried unchanged until its outcome is known."""

    partition: int
    before: Metadata
    after: Metadata
    blobs: Mapping[str, bytes]


@dataclass
class OwnedPartition:
    """A partition that this worker counts: the stored metadata, and the state beyond them."""

    metadata: Metadata
    state: PartitionState
    pending: PendingCommit | None = None
    waiting: bool = False  # for a head that names it, or for room for another pane
    headless: bool = False  # claimed while the head was not readable

    @property
    def ahead(self) -> bool:
        """Whether the state is beyond what is stored, by records, by a rule or by an eviction."""
        # before the first record only a rule with windows needs a commit: a head names what is stored
        told = self.metadata.commit_id != "" or self.waiting or self.state.windowing is not None
        ruled = told and self.metadata.totals != layout.totals(self.state)
        return self.state.offset != self.metadata.offset or ruled


@dataclass
class Backoff:
    """The pause before a partition is claimed again, in seconds of the clock."""

    until: float = 0.0
    length: float = FIRST_WAIT / 2

    def again(self, now: float) -> None:
        """Doubles the pause up to `LONGEST_WAIT`, and begins it, shortened at random by up to a half."""
        self.length = min(2 * self.length, LONGEST_WAIT)
        self.until = now + self.length * (0.5 + random.random() / 2)  # noqa: S311  # no secret
