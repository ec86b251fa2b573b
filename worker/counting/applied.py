"""What became of a batch that was counted."""

from collections import Counter
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from worker.counting.lateness import Late


@dataclass
class Applied:
    """What became of a batch, as `worker.counting.partition_state.PartitionState.apply` returns it.

    Attributes:
        verdicts: (m,) uint8, on its records as `ldp.frames.Decoded` has them; fewer than there are where one has no
            room.
        rejected: how many were rejected, by reason, unreadable record batches among them.
        late: accepted records that were too late for their pane, by age.
        undated: accepted records without a time.
        reports: the reports that were counted, in an array for each rule that judged some.
        late_records: which records were late, where that was asked for.
    """

    verdicts: npt.NDArray[np.uint8]
    rejected: Counter[str] = field(default_factory=Counter)
    late: Counter[str] = field(default_factory=Counter)
    undated: int = 0
    reports: list[npt.NDArray[np.void]] = field(default_factory=list)
    late_records: list[Late] = field(default_factory=list)

    @property
    def accepted(self) -> int:
        """How many records were accepted."""
        return len(self.verdicts) - int(np.count_nonzero(self.verdicts))
