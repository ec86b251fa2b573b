"""Benchmarks against peers: one JSON line a result on stdout, progress on stderr. Run as ``python -m tests.bench``.

A line's ``ours`` and ``peer`` are medians in ``unit``, and ``ratio`` is ours / peer: for a rate (…/s) above 1 is faster
than the peer, for seconds (s) below 1 is. A line about what must not depend on the value has ``costs`` by value, and
the ``ratio`` of the largest to the least. A line with ``skipped`` says what is missing. Everything runs on one core,
except that `ingest` has its servers on another core, and `readers` has all cores. `ingest` is the short version of
``python -m tests.bench.ingest``, which says what its columns are.
"""

import json
import os
import sys
import time


def main() -> None:
    """Runs every benchmark."""
    if hasattr(os, "sched_setaffinity"):  # before numpy is imported, which counts the cores for its threads
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    from tests.bench import engines, javascript, perturb, readers
    from tests.bench.ingest import bench as ingest

    start = time.perf_counter()
    for module in (
        perturb,
        javascript,
        engines,
        readers,
        ingest,
    ):
        for line in module.lines():
            print(json.dumps(line, ensure_ascii=False), flush=True)
            print(f"{time.perf_counter() - start:5.1f} s  {line['bench']}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
