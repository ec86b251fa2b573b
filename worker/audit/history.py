"""What rules and gaps leave behind: where each window begins, and what was known on either side of each gap."""

from collections.abc import Sequence

from worker.audit.parsing import Limits
from worker.audit.recount import Recount
from worker.audit.stored import Stored

Around = tuple[set[int], int | None]
"""What the closed line before a gap may be, and the first timestamp accepted after it that is beyond all before."""


class History:
    """Follows a recount from offset to offset.

    A window that the rule before did not have begins at its first start beyond the highest timestamp accepted so far;
    one that the rule does not have any more is forgotten.

    Args:
        stored: whose rules and gaps.

    Attributes:
        since: for each window of the rules so far its first start.
        around: of each gap so far.
    """

    def __init__(self, stored: Stored) -> None:
        self.since: dict[str, int] = {}
        self.around: list[Around] = []
        self._rules, self._gaps = [*stored.rules], [*stored.gaps]
        self._all = [*stored.gaps]

    def reach(self, offset: int, counted: Recount) -> None:
        """Takes up what lies at an offset or before it, where everything before that is counted."""
        while self._rules and self._rules[0][0] <= offset:
            _, limits = self._rules.pop(0)
            self.since = _begun(limits, self.since, counted)
        self.around = _filled(self.around, counted)
        while self._gaps and self._gaps[0][0] <= offset:
            self._gaps.pop(0)
            # before the first record in a window the line may have been at the floor already, or not yet
            self.around.append(({counted.closed} | (set() if counted.in_windows else {0}), None))
            counted.first = None

    def at(self, offset: int, counted: Recount) -> tuple[dict[str, int], list[Around]]:
        """Returns what `since` and `around` are at an offset up to which everything is counted; takes nothing up."""
        since = self.since
        for _, limits in (rule for rule in self._rules if rule[0] <= offset):
            since = _begun(limits, since, counted)
        return since, _filled(self.around[: sum(begin < offset for begin, _ in self._all)], counted)


def _filled(around: Sequence[Around], counted: Recount) -> list[Around]:
    """Returns what is known of gaps where that which came after the last of them is counted."""
    return [(lines, counted.first if first is None else first) for lines, first in around]


def _begun(limits: Limits, since: dict[str, int], counted: Recount) -> dict[str, int]:
    """Returns where each window begins from a rule on."""
    begin = {} if limits.windows is None else limits.windows.begin_beyond(counted.watermark)
    return {name: since.get(name, start) for name, start in begin.items()}
