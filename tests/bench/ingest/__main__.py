"""Benchmark of ingestion: one JSON line per result on stdout, progress on stderr; see `bench` for the columns.

python -m tests.bench.ingest [--records N] [case ...]
"""

import argparse
import json

from tests.bench.ingest import bench, processes
from tests.bench.ingest.cases import CASES


def main() -> None:
    """Runs the cases that are named, or all."""
    names = [*(case.name for case in CASES), processes.CASE.name]
    parser = argparse.ArgumentParser(prog="python -m tests.bench.ingest")
    parser.add_argument("cases", nargs="*", metavar="case", help=f"of {', '.join(names)}; all without any")
    parser.add_argument("--records", type=int, help="at most so many a case")
    given = parser.parse_args()
    if unknown := set(given.cases) - set(names):
        parser.error(f"no such case: {', '.join(sorted(unknown))}; there are {', '.join(names)}")
    for line in bench.lines(given.cases or names, given.records):
        print(json.dumps(line, ensure_ascii=False), flush=True)


if __name__ == "__main__":
    main()
