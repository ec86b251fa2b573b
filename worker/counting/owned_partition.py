"""A partition that this worker counts, with its pending commit.

The states of a partition that the group assigns to this worker:

==============  =============================================  ========================================
state           event                                          next
==============  =============================================  ========================================
assigned        claimed                                        held, or waiting (windows, no head yet)
assigned        cannot be claimed now                          postponed
postponed       the pause is over                              assigned
waiting         a head names the partition, or frees capacity  held
held            records are counted                            ahead
ahead           `Ownership.prepare`                            commit pending; counting continues
ahead           no capacity for another pane                   waiting
commit pending  DONE                                           held, or ahead if more was counted
commit pending  no answer, or STAGING_EXPIRED                  commit pending: the same commit again
commit pending  FENCED or CONFLICT                             dropped, and postponed
any             the counts seem lost                           dropped, and postponed
any             the group revokes the partition                released, after a last attempt to commit
==============  =============================================  ========================================
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
    """One partition's commit, retried unchanged until its outcome is known."""

    partition: int
    before: Metadata
    after: Metadata
    blobs: Mapping[str, bytes]


@dataclass
class OwnedPartition:
    """A counted partition: its stored metadata and its state in memory."""

    metadata: Metadata
    state: PartitionState
    pending: PendingCommit | None = None
    waiting: bool = False  # for a head that names it, or for capacity for another pane
    headless: bool = False  # claimed without a readable head

    @property
    def ahead(self) -> bool:
        """Whether memory has records, a rule or an eviction that the store lacks."""
        # before the first record, a rule with windows needs a commit, so that a head can name the partition
        committable = self.metadata.commit_id != "" or self.waiting or self.state.windowing is not None
        # a claim by an older configuration would not know joined names that only this worker's memory has
        committable = committable or any(any(rule.names) for rule in self.state.rules[1:])
        differs = committable and self.metadata.totals != layout.totals(self.state)
        return self.state.offset != self.metadata.offset or differs


@dataclass
class Backoff:
    """The pause before a partition is claimed again; all times in seconds."""

    until: float = 0.0
    length: float = FIRST_WAIT / 2

    def again(self, now: float) -> None:
        """Starts a pause twice as long, shortened at random by up to half."""
        self.length = min(2 * self.length, LONGEST_WAIT)
        self.until = now + self.length * (0.5 + random.random() / 2)  # noqa: S311  # no secret
