"""Measures ours and a peer in turns, so that a slow phase of the machine slows both."""

import math
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

REPETITIONS = 7
LEAST_SECONDS = 0.02
"""A repetition calls again until it has about this length."""

Line = dict[str, Any]


def compare(
    bench: str,
    ours: Callable[[], object],
    peer: Callable[[], object],
    *,
    peer_name: str,
    setup: str,
    rate: tuple[int, str] | None = None,
    clock: Callable[[], float] = time.perf_counter,
) -> Line:
    """Measures one call of each after a first one: records a second with `rate`, else seconds a call."""
    sides = [(side, _calls(side), clock) for side in (ours, peer)]
    result = _medians(sides)
    if rate is not None:
        result = [rate[0] / seconds for seconds in result]
    return {
        "bench": bench,
        "ours": _rounded(result[0]),
        "peer": _rounded(result[1]),
        "peer_name": peer_name,
        "unit": "s" if rate is None else f"{rate[1]}/s",
        "ratio": _rounded(result[0] / result[1]),
        "setup": setup,
    }


def spread(bench: str, costs: Mapping[int, Callable[[], object]], *, setup: str) -> Line:
    """Measures work whose cost should not depend on the value: the minimum of many short turns."""
    sides = [(call, max(1, _calls(call) // 10)) for call in costs.values()]
    turns = [[_seconds(*side) for side in sides] for _ in range(20 * REPETITIONS)]
    seconds = [min(turn) for turn in zip(*turns, strict=True)]
    return {
        "bench": bench,
        "costs": {value: _rounded(cost) for value, cost in zip(costs, seconds, strict=True)},
        "unit": "s",
        "ratio": _rounded(max(seconds) / min(seconds)),
        "setup": setup,
    }


def _medians(sides: Sequence[tuple[Callable[[], object], int, Callable[[], float]]]) -> list[float]:
    turns = [[_seconds(*side) for side in sides] for _ in range(REPETITIONS)]
    return [statistics.median(seconds) for seconds in zip(*turns, strict=True)]


def _calls(side: Callable[[], object]) -> int:
    side()
    return max(1, math.ceil(LEAST_SECONDS / _seconds(side, 1)))


def _seconds(side: Callable[[], object], calls: int, clock: Callable[[], float] = time.perf_counter) -> float:
    start = clock()
    for _ in range(calls):
        side()
    return (clock() - start) / calls


def _rounded(number: float) -> float:
    return float(f"{number:.4g}")
