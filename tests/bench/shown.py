"""Time until the page shows a snapshot, and the longest task of an update, in a real Chromium.

``python -m tests.bench.shown`` prints JSON lines for all eleven methods: ``loaded`` is the time from navigation to the
first bars without a cache, with the bytes; ``updated`` is the longest task of the page while it draws a newer snapshot.
"""

import json
from collections.abc import Iterator
from typing import Any

import numpy as np

import ldp
from ldp.consistency import METHODS
from ldp.consistency.together import by_method
from tests.bench.measure import Line
from tests.support.chromium import launched, page_of
from tests.support.harness.standin import Shown, Standin

DOMAINS = (1_024, 100_000)
_TIMES = 5
_TASKS = """() => { window.longest = 0; new PerformanceObserver(list => {
    for (const task of list.getEntries()) window.longest = Math.max(window.longest, task.duration);
}).observe({ type: "longtask" }); }"""
_BYTES = """() => performance.getEntriesByType("navigation").concat(performance.getEntriesByType("resource"))
    .reduce((sum, entry) => sum + entry.transferSize, 0)"""
_DRAWN = "([id]) => document.querySelectorAll('#values tbody tr').length > 9 && performance.now()"
_NEWER = "([text]) => document.body.innerText.includes(text)"


def main() -> None:
    """Prints the lines."""
    with launched() as browser:
        for d in DOMAINS:
            for line in of(browser, d):
                print(json.dumps(line), flush=True)


def of(browser: Any, d: int) -> Iterator[Line]:
    """Cost of showing a snapshot of this many values: the median of some first loads, and the longest task of
    updates."""
    first, second = (_shown(d, seed) for seed in (1, 2))
    seconds, received, longest = [], [], []
    for _ in range(_TIMES):
        with Standin("words") as server, page_of(browser) as page:
            server.streams[0]["domain_size"] = d
            server.snapshots["words", "all", ""] = first
            page.goto(server.address)
            seconds.append(page.wait_for_function(_DRAWN, arg=[""]).json_value() / 1000)
            received.append(page.evaluate(_BYTES))
            page.evaluate(_TASKS)
            server.publish(second, "words")
            page.wait_for_function(_NEWER, arg=["1,000,002"])
            page.wait_for_timeout(200)  # the browser reports a task after its end
            longest.append(page.evaluate("window.longest") / 1000)
    common = {"peer_name": "", "peer": None, "ratio": None, "setup": f"{d:,} values, eleven methods"}
    yield {"bench": "page loaded", "ours": float(np.median(seconds)), "unit": "s"} | common
    yield {"bench": "page loaded", "ours": float(max(received)), "unit": "bytes"} | common
    yield {"bench": "page updated", "ours": float(max(longest)), "unit": "s"} | common


def _shown(d: int, seed: int) -> Shown:
    oracle, n = ldp.OLH("1", domain_size=d), 1_000_000 + seed
    counts = np.random.default_rng(seed).binomial(n, float(oracle.q), d)
    estimate = oracle.estimate(counts, n)
    (low, high), (first, last) = estimate.interval(), estimate.anytime_interval()
    ends = {"low": low, "high": high, "anytime_low": first, "anytime_high": last}
    return Shown(
        {name: vector.tolist() for name, vector in by_method(estimate, list(METHODS)).items()},
        [f"word {v}" for v in range(d)],
        {name: vector.tolist() for name, vector in ends.items()},
        {"reports": n, "snapshot": f"{seed:032x}", "sequence": seed},
    )


if __name__ == "__main__":
    main()
