"""States of a single document: cells by pane, and rules that name the document."""

from collections.abc import Sequence
from dataclasses import replace

import ldp
from worker.counting.cells import Cell, CellKey
from worker.counting.partition_state import PartitionState
from worker.counting.rules import Rule, Status
from worker.counting.windows import Pane


def cells_of(state: PartitionState) -> dict[str, Cell]:
    """Returns each cell by pane as text, or `all`."""
    return {str(key).partition("@")[0]: cell for key, cells in state.cells.items() for cell in cells.values()}


def key_in(state: PartitionState, pane: str = "all") -> CellKey:
    """Returns the key of a cell by pane as text, or `all`."""
    return CellKey(None if pane == "all" else Pane(*map(int, pane.split("+"))), *state.documents)


def naming(stream: ldp.Stream, rules: Sequence[Rule]) -> list[Rule]:
    """Returns rules; the first one names the stream's document."""
    return [replace(rules[0], documents={stream.fingerprint.hex(): Status()}), *rules[1:]]


def ruled(stream: ldp.Stream, rules: Sequence[Rule], start: int = 0) -> PartitionState:
    """Returns an empty state with rules."""
    state = PartitionState.fresh(ldp.Fleet((stream,)), start)
    state.set_rules(naming(stream, rules))
    return state
