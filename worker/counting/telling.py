"""What is told of a batch that is counted: letters of the records that are to have one, and what became of all."""

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from worker.counting.columns import Batch
from worker.counting.lateness import Late
from worker.counting.partition import PartitionState
from worker.counting.ports import DeadLetters, Events
from worker.counting.rejections import Rejections, counted


@dataclass(frozen=True)
class Standing:
    """How a state stood before a batch."""

    reports: int
    late: Counter[str]
    undated: int

    @classmethod
    def of(cls, state: PartitionState) -> "Standing":
        """Notes it."""
        return cls(state.reports, Counter(state.late), state.undated)


@dataclass(frozen=True)
class LeftOut:
    """How many of a batch's records left no letter: malformed ones, and late ones."""

    malformed: int
    late: int

    @classmethod
    def sending(
        cls,
        dead_letters: DeadLetters,
        batch: Batch,
        verdicts: npt.NDArray[np.uint8],
        late: Iterable[Late],
    ) -> "LeftOut":
        """Sends the letters of a batch, which are safe with step 3 of its commit; says how many were left out.

        Raises:
            Unavailable: they cannot be sent now; some may have been.
        """
        rejected = bool(verdicts.any()) or bool(batch.unreadable)
        malformed = dead_letters.add(batch, verdicts) if rejected else 0
        return cls(malformed, sum(dead_letters.add_late(batch, some) for some in late))


@dataclass
class Telling:
    """Tells of counted batches.

    Attributes:
        events: who is told.
        clock: seconds, for how often rejections are said together.
    """

    events: Events
    clock: Callable[[], float]
    rejections: Rejections = field(init=False)

    def __post_init__(self) -> None:
        self.rejections = Rejections(self.clock, self.events.rejected)

    def counted(
        self,
        before: Standing,
        state: PartitionState,
        batch: Batch,
        verdicts: npt.NDArray[np.uint8],
        left_out: LeftOut,
    ) -> None:
        """Tells of a batch, with the verdicts on its records and the letters that they did not leave."""
        reasons = counted(verdicts, len(batch.unreadable))
        if reasons:
            self.events.malformed(reasons, left_out.malformed)
        self.rejections.add(batch, verdicts, left_out.malformed)
        if batch.keyed:
            self.events.keyed(batch.keyed)
        late, undated = Counter(state.late) - before.late, state.undated - before.undated
        if late or undated:
            self.events.misplaced(late, undated, left_out.late)
        accepted = len(verdicts) - int(np.count_nonzero(verdicts))
        self.events.counted(accepted, reasons.total(), state.reports - before.reports)
