"""Soaks a stream: load, and one seeded fault after the other.

Run as ``python -m tests.long.soak --minutes 10``. After each fault, all records are published within a deadline, the
audit is equal, snapshot numbers have no hole, and each window is final once. At the end, published reports equal sent
ones, except for records that a producer repeated, and each window equals a recount of the log. A difference ends the
soak with exit code 1. ``--lines`` writes a line of JSON for each fault and the end.
"""

import argparse
import itertools
import json
import random
import statistics
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ldp import kernels
from tests.long.soak.faults import FAULTS, Fault
from tests.long.soak.stage import Stage
from tests.long.soak.watch import Latencies, Watch
from worker.counting import lateness
from worker.kafka.decoding import records

_CALM_SECONDS = 2.0
"""Between two faults."""


def drawn(faults: Sequence[Fault], seed: int, until: float) -> Iterator[Fault]:
    """Yields all faults in seeded orders until a moment."""
    rng = random.Random(seed)
    while True:
        for fault in rng.sample(faults, len(faults)):
            if time.monotonic() > until:
                return
            yield fault


class Soak:
    """One soak: the recoveries, by fault, and the measurements."""

    def __init__(self, stage: Stage, tell: Callable[[dict[str, Any]], None]) -> None:
        self._stage, self._tell = stage, tell
        self.recoveries: dict[str, list[float]] = defaultdict(list)
        self._panes: list[int] = []
        self._latencies = {"commit": Latencies("commit_seconds"), "snapshot": Latencies("snapshot_seconds")}

    def meet(self, fault: Fault) -> None:
        """Has a fault happen, and sees that the stream recovers."""
        stage = self._stage
        self._note()
        began = time.monotonic()
        fault(stage)
        took = time.monotonic() - began
        seconds = stage.recovered()
        stage.assert_serving()
        verdict = stage.assert_right()
        self._panes.append(verdict.panes)
        self.recoveries[fault.__name__].append(seconds)
        self._tell(
            {
                "fault": fault.__name__,
                "seconds": round(took, 1),
                "recovery_seconds": round(seconds, 2),
                "panes": verdict.panes,
                "late": verdict.late,
                "finals": len(stage.published.finals),
                "deleted": len(stage.published.deleted),
            }
        )
        time.sleep(_CALM_SECONDS)

    def _note(self) -> None:
        for worker, latencies in itertools.product(self._stage.workers, self._latencies.values()):
            latencies.note(worker)

    def report(self, watch: Watch) -> dict[str, Any]:
        """Returns the summary."""
        self._note()
        ended = self._stage.finish()
        every = [seconds for some in self.recoveries.values() for seconds in some]
        return {
            **ended,
            "equal": ended["reports_sent"] + ended["reports_repeated"] == ended["reports_counted"]
            and ended["malformed_sent"] + ended["malformed_repeated"] == ended["records_rejected"]
            and not ended["unacknowledged"],
            "audit": "equal",
            "faults": len(every),
            "recovery_seconds": {"median": statistics.median(every), "most": max(every)},
            "panes": {"median": statistics.median(self._panes), "most": max(self._panes)},
            "memory_mib": asdict(watch.memory()),
            "memory_mib_peaks": watch.peaks(),
            "open_files": asdict(watch.files()),
            **{
                f"{name}_seconds_at_most": {f"{q:.0%}": latencies.quantile(q) for q in (0.5, 0.99)}
                for name, latencies in self._latencies.items()
            },
        }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0, help="how long there are faults")
    parser.add_argument("--seed", type=int, default=0, help="for the faults, their order and the load")
    parser.add_argument("--rate", type=float, default=200.0, help="records a second")
    parser.add_argument("--only", default="", help="faults whose name has this text")
    parser.add_argument("--each", action="store_true", help="each fault once instead of for some minutes")
    parser.add_argument("--lines", type=Path, help="where lines of JSON go")
    arguments = parser.parse_args()
    began = time.monotonic()
    if arguments.lines:
        arguments.lines.parent.mkdir(parents=True, exist_ok=True)
    with arguments.lines.open("w") if arguments.lines else nullcontext() as lines:

        def say(line: str) -> None:
            print(f"{time.monotonic() - began:6.1f} s  {line}", flush=True)

        def tell(facts: dict[str, Any]) -> None:
            facts = {"at": round(time.monotonic() - began, 1)} | facts
            say(", ".join(f"{name} {said}" for name, said in facts.items() if name != "at"))
            if lines:
                print(json.dumps(facts), file=lines, flush=True)

        for part in (kernels, records, lateness):
            part.warm()  # here: the workers have a deadline
        with Stage(arguments.seed, arguments.rate, say) as stage, Watch(stage.pids) as watch:
            soak, end = Soak(stage, tell), time.monotonic() + 60 * arguments.minutes
            chosen = [fault for fault in FAULTS if arguments.only in fault.__name__]
            for fault in chosen if arguments.each else drawn(chosen, arguments.seed, end):
                say(fault.__name__)
                soak.meet(fault)
            tell(report := soak.report(watch))
    sys.exit(0 if report["equal"] else 1)


if __name__ == "__main__":
    main()
