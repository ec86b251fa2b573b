"""Kills workers at every numbered step, on a real Kafka and a real Redis.

Run as ``python -m tests.long.kills``; prints a line for each kill, and a summary. After each kill the audit is equal,
the snapshots' numbers have no hole, each window is final once, and all records are published within a deadline.
"""

import argparse
import statistics
import tempfile
import time
from collections import Counter
from pathlib import Path

from deploy.local.services import Services
from tests.long.kills import points, runs
from tests.support.fork_server import ForkServer
from tests.support.harness import Forked


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=0, help="for the order, the moments, and who dies")
    parser.add_argument("--only", default="", help="points that have this text, such as 'commit 5'")
    parser.add_argument("--most", type=int, default=1 << 30, help="how many")
    parser.add_argument("--changing", action="store_true", help="only streams whose documents change")
    arguments = parser.parse_args()
    chosen = [point for point in points.points(arguments.seed) if arguments.only in str(point)]
    began = time.monotonic()

    def say(line: str) -> None:
        print(f"{time.monotonic() - began:6.1f} s  {line}", flush=True)

    with (
        Services.start(say) as services,
        tempfile.TemporaryDirectory(prefix="ldp-kills.") as folder,
        ForkServer() as Forked.fork_server,
    ):
        outcomes = runs.run(
            chosen[: arguments.most],
            services.kafka.address,
            services.redis.address,
            Path(folder),
            arguments.seed,
            say,
            changing=arguments.changing,
        )
    took = sorted(outcome.seconds for outcome in outcomes)
    ways = Counter(f"{outcome.point.aim.turn}, {outcome.point.way}" for outcome in outcomes)
    say(f"{len(outcomes)} kills: " + ", ".join(f"{count} {way}" for way, count in sorted(ways.items())))
    say(
        "every audit equal, no hole in the snapshots, each window final once; all published after"
        f" {statistics.median(took):.1f} s in the median, {took[-1]:.1f} s at most"
    )


if __name__ == "__main__":
    main()
