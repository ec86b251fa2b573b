"""What an owner holds of a partition: what is stored, the state beyond it, and the commit that is under way.

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
commit pending  no answer, or UNSTAGED              commit pending: the same flush again
commit pending  FENCED or FORKED                    dropped, and postponed
any             its counts are in doubt             dropped, and postponed
any             the group takes it away             released, after a last attempt to commit
==============  ==================================  =======================================
"""

import random
from collections.abc import Mapping
from dataclasses import dataclass, field

from worker.counting import layout
from worker.counting.partition_state import PartitionState
from worker.counting.ports import Metadata

FIRST_WAIT, LONGEST_WAIT = 0.1, 5.0


@dataclass(frozen=True, eq=False)
class PendingCommit:
    """One partition's commit under way; tried again, the same, until its outcome is known.

    Attributes:
        partition: whose counts.
        before: the metadata that they started from.
        after: the metadata that are to be stored.
        blobs: what changed with them.
    """

    partition: int
    before: Metadata
    after: Metadata
    blobs: Mapping[str, bytes]


@dataclass
class OwnedPartition:
    """A partition that this worker counts: what is stored, and the state beyond it.

    In a stream of windows it may have to wait: until a head names it, or until it has room for another pane. It is
    headless if the head could not be read when it was claimed.
    """

    metadata: Metadata
    state: PartitionState
    flush: PendingCommit | None = None
    waiting: bool = False
    headless: bool = False

    @property
    def ahead(self) -> bool:
        """Whether the state is beyond what is stored: by records; or by a rule or a drop.

        Where nothing was judged yet, a rule is stored with the first commit, but for one of windows: only what is
        stored is published, and who waits for a head to name it would wait for ever.
        """
        told = self.metadata.flush != "" or self.waiting or self.state.windowing is not None
        ruled = told and self.metadata.totals != layout.totals(self.state)
        return self.state.offset != self.metadata.offset or ruled


@dataclass
class Backoff:
    """How long a partition that could not be claimed waits before it is claimed again.

    Attributes:
        until: the time at which it is over.
        length: of the last one, in seconds; the next one is twice as long.
    """

    until: float = 0.0
    length: float = field(default=FIRST_WAIT / 2)

    def again(self, now: float) -> None:
        """Begins the next one, up to `LONGEST_WAIT`; by chance up to half as long, so that many are spread."""
        self.length = min(2 * self.length, LONGEST_WAIT)
        self.until = now + self.length * (0.5 + random.random() / 2)  # noqa: S311  # no secret
