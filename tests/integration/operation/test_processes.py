"""`ldp-worker run --processes 2`: two members behind one endpoint."""

import contextlib
import json
import os
import signal
import time
from pathlib import Path

import pytest

from tests.support.harness import Sending, assert_snapshot_topic, until

pytestmark = [pytest.mark.integration, pytest.mark.long]

DEADLINE = 30.0
"""Seconds to stop, five times the promise."""


def start(world):
    """Starts two processes and waits until they share the partitions."""
    worker = world.launch(None, "--processes", "2")
    until(worker.ready, "both serve")
    until(lambda: shared(world, worker), "each owns two partitions")
    return worker


def shared(world, worker):
    """Returns whether each process owns two partitions."""
    owned = [sample.labels for sample in worker.samples("partition_owned")]
    by_process = {n: {int(of["partition"]) for of in owned if of["process"] == n} for n in ("0", "1")}
    return len(owned) == world.partitions and sorted(map(len, by_process.values())) == [2, 2]


def pids(worker):
    """Returns the newest process ids from the log."""
    return {event["process"]: event["pid"] for event in worker.events("process.started")}


def gone(pid):
    """Returns whether a process has ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


def stop(worker):
    """Sends SIGTERM twice; returns the exit code."""
    began = time.monotonic()
    worker.process.terminate()
    time.sleep(0.3)
    with contextlib.suppress(ProcessLookupError):
        worker.process.terminate()
    code = worker.ended()
    assert time.monotonic() - began < DEADLINE
    assert all(gone(pid) for pid in pids(worker).values())
    return code


def test_two_processes_count_as_two_workers_and_a_killed_one_restarts(world):
    worker = start(world)
    assert len(world.members()) == 2
    with Sending(world) as sending:
        sending.more()
        before = pids(worker)
        (victim,) = map(int, until(lambda: worker.by_label("publisher", "process"), "one of them publishes"))
        os.kill(before[victim], signal.SIGKILL)
        until(
            lambda: worker.by_label("process_restarts_total", "process") == {str(victim): 1}, "started again"
        )
        until(worker.ready, "both serve again")
        until(lambda: shared(world, worker), "each owns two partitions again")
        assert pids(worker)[victim] != before[victim]
        assert pids(worker)[1 - victim] == before[1 - victim]
        sending.more()
    last = world.covered()
    world.assert_right(last)
    assert last.complete
    assert assert_snapshot_topic(world) == last.sequence

    # one endpoint has all metrics
    up = {"0": 1, "1": 1}
    until(lambda: worker.by_label("process_up", "process") == up, "both answer")
    until(lambda: worker.metric("stream_up") == 2, "the stream is up in both")
    until(lambda: worker.metric("publisher") == 1, "one of them publishes")
    until(lambda: worker.metric("partition_offset") == sum(world.ends().values()), "all offsets are shown")
    serving = {n: {"streams": {world.name: "serving"}} for n in ("0", "1")}
    until(lambda: json.loads(worker.get("/readyz")[2])["processes"] == serving, "both serve")
    assert {event["process"] for event in worker.events("partition.claimed")} == {0, 1}

    assert stop(worker) == 0
    assert {event.get("process") for event in worker.events("worker.stopped")} == {0, 1, None}
    assert world.totals()["offsets"] == world.ends()


def test_the_processes_of_a_killed_parent_end_and_lose_nothing(world):
    worker = start(world)
    world.send(20)
    world.covered()
    children = pids(worker).values()
    world.send(20)
    worker.kill()
    until(lambda: all(map(gone, children)), "both are gone")
    assert {event["process"] for event in worker.events("worker.stopped")} == {0, 1}
    until(lambda: not world.members(), "they left the group")
    start(world)
    world.send(20)
    world.assert_right(world.covered())
