"""Many partitions on real services: how long a claim, a handover and a round of commits take.

Run as ``python -m tests.bench.partitions``. A proxy in front of Redis delays each answer. Lines have seconds, and
their upper limit. Two workers, Kafka, Redis, and the bench share the cores: the bench sends a report to each
partition twice a second and reads all offsets 20 times a second.
"""

import json
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from pathlib import Path

from deploy.local.services import Services
from tests.bench.measure import Line
from tests.support.harness import World, until
from tests.support.harness.processes import Worker
from tests.support.harness.proxy import Proxy
from worker.counting import layout

LATE, LATE_SECONDS = 1_000, 0.05
"""Number of partitions to claim with a slow Redis, and its delay."""
HANDED_OVER = 300
WATCHED_SECONDS = 20.0
PATIENCE = 600.0


def lines() -> Iterator[Line]:
    """Seconds of a claim where Redis answers late, and of a handover and of commits where it does not."""
    with Services.start(lambda text: print(text, file=sys.stderr, flush=True)) as services:
        yield from _claimed_late(services)
        with _world(services, HANDED_OVER) as world:
            first, second = world.launch(), world.launch()
            until(world.balanced, "each of the two owns partitions", PATIENCE)
            yield from _committed(world)
            yield _handed_over(world, first, second)


def _claimed_late(services: Services) -> Iterator[Line]:
    host, port = services.redis.address.removeprefix("redis://").split("/")[0].split(":")
    with Proxy((host, int(port))) as proxy, _world(services, LATE) as world:
        proxy.delay = LATE_SECONDS / 2  # delay in either direction
        late = world.configure("late", redis_url=f"redis://127.0.0.1:{proxy.port}/0")
        began, worker = time.monotonic(), world.launch(late)
        silent = set[str]()
        until(lambda: _all_owned(world, worker, silent), "all are claimed", PATIENCE)
        yield _line(
            f"claim {LATE} partitions, Redis answers {LATE_SECONDS:g} s late",
            time.monotonic() - began,
            120.0,
            setup=f"from the start of the worker; said to be silent: {sorted(silent) or 'never'}",
        )


def _all_owned(world: World, worker: Worker, silent: set[str]) -> bool:
    assert worker.alive(), f"it ended with {worker.process.returncode}"
    if "no step has finished" in (said := worker.says()):
        silent.add(said)
    return worker.owned() == set(range(world.partitions))


def _handed_over(world: World, first: Worker, second: Worker) -> Line:
    began = time.monotonic()
    first.process.terminate()
    until(lambda: second.owned() == set(range(world.partitions)), "all are handed over", PATIENCE)
    return _line(
        f"hand over {HANDED_OVER} partitions",
        time.monotonic() - began,
        10.0,
        setup="from SIGTERM of one of two workers until the other counts all",
    )


def _committed(world: World) -> Iterator[Line]:
    """Longest time of a partition between two commits, under steady traffic."""
    ending = threading.Event()

    def send() -> None:
        while not ending.wait(0.5):
            world.send(world.partitions)

    sending = threading.Thread(target=send)
    sending.start()
    keys = [layout.meta_key(world.name, partition) for partition in range(world.partitions)]
    try:
        until(lambda: all(world.redis.hget(key, "commit_id") for key in keys), "each commits once", PATIENCE)
        began, longest = time.monotonic(), 0.0
        offsets, since = [b""] * len(keys), [began] * len(keys)
        while (now := time.monotonic()) < began + WATCHED_SECONDS:
            pipeline = world.redis.pipeline(transaction=False)
            for key in keys:
                pipeline.hget(key, "offset")
            for i, offset in enumerate(pipeline.execute()):
                if offset != offsets[i]:
                    offsets[i], since[i] = offset, now
                longest = max(longest, now - since[i])
            time.sleep(0.05)
    finally:
        ending.set()
        sending.join()
    yield _line(
        f"commit {HANDED_OVER} partitions",
        longest,
        3.0,
        setup=f"the longest that any waited between two commits in {WATCHED_SECONDS:g} s; two workers",
    )


@contextmanager
def _world(services: Services, partitions: int) -> Iterator[World]:
    with tempfile.TemporaryDirectory() as folder:
        at = services.kafka.address, services.redis.address, Path(folder)
        with redirect_stdout(sys.stderr), World(*at, partitions=partitions) as world:  # its end prints logs
            yield world


def _line(bench: str, seconds: float, bar: float, setup: str) -> Line:
    return {"bench": bench, "ours": round(seconds, 2), "bar": bar, "unit": "s", "setup": setup}


if __name__ == "__main__":
    out = sys.stdout  # a world redirects it
    for line in lines():
        print(json.dumps(line), file=out, flush=True)
