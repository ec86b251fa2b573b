"""What the pictures are of: five minutes of a stream, counted by real workers and watched by a real Prometheus.

Users draw emoji from the counts of Twitter in `ldp/experiments/emoji.csv`. After some time a few malformed records
come, then a worker stands still for a while, and in the end one emoji that was rare is frequent.
"""

import csv
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from deploy.local.services import Services
from ldp import frames
from tests import prometheus
from tests.alerts.rules import RULES
from tests.integration.harness import TIMEOUT_SECONDS, World, until

COUNTS = Path(__file__).parents[2] / "ldp" / "experiments" / "emoji.csv"
SECONDS = 300
"""How long it takes, and what the pictures show."""
MALFORMED, STILL, CHANGED = (75, 95), (140, 165), 190
"""When there are malformed records, when a worker stands still, and from when on users are others."""
DOMAIN, RISING = 200, "beating heart"
REPORTS, RECORDS = 20, 100
"""Reports of a record, and records a second."""
NAME = "emoji"


def emoji() -> tuple[list[str], np.ndarray, dict[str, list[str]]]:
    """The names of the most used ones, how often they were, and which of them are of some subgroups of Unicode's."""
    with COUNTS.open(encoding="utf-8") as lines:
        rows = list(csv.DictReader(lines))[:DOMAIN]
    groups = {
        f"all of {group}": [row["name"] for row in rows if row["subgroup"] == group]
        for group in ("heart", "face-smiling", "hand-fingers-closed")
    }
    weights = np.array([int(row["count_2020_06_16"]) for row in rows], float)
    return [row["name"] for row in rows], weights / weights.sum(), groups


@contextmanager
def played() -> Iterator[tuple[prometheus.Prometheus, float, float]]:
    """Plays it; within the block the Prometheus that watched it answers, of the time from one moment to another."""
    names, weights, groups = emoji()
    with tempfile.TemporaryDirectory() as folder, Services.start() as services:
        world = World(
            services.kafka.address,
            services.redis.address,
            Path(folder),
            name=NAME,
            protocol="olh",
            epsilon="2",
            domain_size=DOMAIN,
            labels=names,
            queries=[
                *({"name": name, "values": values} for name, values in groups.items()),
                {"name": "the ten most used", "top": 10},
            ],
            windows=["all", "30s"],
            grace="3s",
            out_of_order="1s",
            retain="1h",
        )
        with world:
            toml = world.configure("shown", snapshots={"every_seconds": 2})
            workers = [world.launch(toml, "--processes", "2"), world.launch(toml)]
            until(world.balanced, "every worker owns a partition, and all are owned")
            targets = [f"127.0.0.1:{worker.port()}" for worker in workers]
            with prometheus.running(Path(folder), targets, RULES, scrape="2s", evaluate="5s") as scraper:
                users = _Users(world, weights, names.index(RISING))
                began = time.time()
                users.start()
                time.sleep(STILL[0])
                workers[1].pause()
                time.sleep(STILL[1] - STILL[0])
                workers[1].go_on()
                time.sleep(began + SECONDS - time.time())
                try:
                    yield scraper, began, began + SECONDS
                finally:
                    users.stop()


class _Users(threading.Thread):
    """They report, steadily."""

    def __init__(self, world: World, weights: np.ndarray, rising: int) -> None:
        super().__init__(daemon=True)
        self._world, self._weights, self._rising = world, weights, rising
        self._ends = threading.Event()

    def stop(self) -> None:
        """Ends it."""
        self._ends.set()
        self.join(TIMEOUT_SECONDS)

    def run(self) -> None:
        rng, began, sent = np.random.default_rng(16), time.monotonic(), 0
        oracle, producer = self._world.stream.oracle, self._world.open_producer()
        while not self._ends.wait(0.05):
            passed = time.monotonic() - began
            weights = self._weights.copy()
            if passed > CHANGED:
                weights[self._rising] += 0.06
            due = int(passed * RECORDS)
            drawn = rng.choice(DOMAIN, size=(due - sent, REPORTS), p=weights / weights.sum())
            for values in drawn:
                value = frames.encode(self._world.stream, oracle.perturb(values, rng=rng))
                if MALFORMED[0] < passed < MALFORMED[1] and rng.random() < 0.02:
                    value = b"{}" if rng.random() < 0.3 else b"no frame"
                self._world.put(value, None, producer)
            sent = due
