"""Benchmarks against peers: one JSON line per result on stdout, progress on stderr. Run as ``python -m tests.bench``.

In a line, ``ours`` and ``peer`` are medians in ``unit``, and ``ratio`` is ours / peer: better above 1 for a rate (…/s),
and below 1 for seconds (s). A line about work that must not depend on the value has ``costs`` by value, and the
``ratio`` of the largest to the smallest. A line with ``skipped`` names the missing part. Everything runs on one core,
except the servers of `ingest` and `uploads`, and `readers`, which uses all cores. `ingest` is the short version of
``python -m tests.bench.ingest``, which documents its columns.
"""

import json
import os
import sys
import time


def main() -> None:
    """Runs every benchmark."""
    if hasattr(os, "sched_setaffinity"):  # before numpy is imported, which counts the cores for its threads
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    from tests.bench import engines, javascript, mixed, perturb, readers, uploads
    from tests.bench.ingest import bench as ingest

    start = time.perf_counter()
    for module in (
        perturb,
        javascript,
        engines,
        mixed,
        readers,
        ingest,
        uploads,
    ):
        for line in module.lines():
            print(json.dumps(line, ensure_ascii=False), flush=True)
            print(f"{time.perf_counter() - start:5.1f} s  {line['bench']}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
