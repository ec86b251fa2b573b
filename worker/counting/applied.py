"""The outcome of a counted batch."""

from collections import Counter
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from worker.counting.lateness import Late


@dataclass
class Applied:
    """The outcome of a batch, which `PartitionState.apply` returns.

    Attributes:
        verdicts: (m,) the verdicts of `ldp.frames.Decoded` on the m records before the limit of panes.
        rejected: number of rejected records by reason, including unreadable record batches.
        late: number of late records by age.
        undated: number of accepted records without a valid timestamp.
        reports: the counted reports, one (fingerprint, reports) per rule and document.
        late_records: the late records under each rule, if requested.
    """

    verdicts: npt.NDArray[np.uint8]
    rejected: Counter[str] = field(default_factory=Counter)
    late: Counter[str] = field(default_factory=Counter)
    undated: int = 0
    reports: list[tuple[str, npt.NDArray[np.void]]] = field(default_factory=list)
    late_records: list[Late] = field(default_factory=list)

    @property
    def accepted(self) -> int:
        """The number of accepted records."""
        return len(self.verdicts) - int(np.count_nonzero(self.verdicts))
