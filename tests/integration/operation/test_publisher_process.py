"""The publisher process of a large domain: killed, orphaned, stopped."""

import os
import signal
import time
from pathlib import Path

import pytest

from tests.support.harness import Sending, World, assert_snapshot_topic, until

pytestmark = [pytest.mark.integration, pytest.mark.long]

STREAM = {"protocol": "olh", "epsilon": "1", "domain_size": 20_000}
KILLS = 4


@pytest.fixture
def world(kafka, redis_url, tmp_path):
    with World(kafka, redis_url, tmp_path, **STREAM) as world:
        yield world


def publishers(worker):
    """Returns the process ids of the publisher processes from the log."""
    return [event["pid"] for event in worker.events("publisher.started")]


def gone(pid):
    """Returns whether a process has ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


def test_a_killed_publisher_process_restarts_while_counting_continues(world):
    (worker,) = world.start()
    with Sending(world) as sending:
        for kill in range(KILLS):
            until(lambda: worker.metric("publisher"), "it publishes")
            (pid,) = publishers(worker)[kill:]
            seen = worker.metric("snapshots_total")
            # at any moment: the first while it starts, the others the later the more of a snapshot they have made
            until(
                lambda kill=kill, seen=seen: worker.metric("snapshots_total") > seen or not kill,
                "another snapshot",
            )
            time.sleep(kill * 0.15)
            os.kill(pid, signal.SIGKILL)
            until(lambda kill=kill: len(publishers(worker)) == kill + 2, "another one is started")
        sending.more()
    last = world.covered()
    world.assert_right(last)
    assert assert_snapshot_topic(world) == last.sequence
    until(worker.ready, "ready once more")
    # counts were never released, nor read again
    assert [event["start"] for event in worker.events("partition.claimed")] == ["fresh"] * world.partitions
    assert worker.by_label("errors_total", "step")["publish"] >= KILLS
    assert all(gone(pid) for pid in publishers(worker)[:-1])
    # its events are shown: the newest snapshot, and its most frequent values
    until(lambda: worker.metric("snapshot_sequence") == last.sequence, "the newest snapshot is shown")
    assert worker.metric("snapshot_reports") == world.n
    shown = {int(s.labels["value"]): s.value for s in worker.samples("snapshot_value_low")}
    top = last.estimate().most_frequent(10).tolist()
    assert shown == {value: pytest.approx(last.bodies["base"].low[value]) for value in top}
    assert worker.terminate() == 0
    until(lambda: all(map(gone, publishers(worker))), "its publishers are gone")


def test_a_publisher_process_ends_with_its_killed_worker(world):
    (worker,) = world.start()
    world.send(20)
    before = world.covered()
    world.send(20)
    (pid,) = publishers(worker)
    worker.kill()
    until(lambda: gone(pid), "its publisher is gone")
    world.start()
    world.send(20)
    after = world.covered()
    assert after.sequence > before.sequence
    world.assert_right(after)
    assert assert_snapshot_topic(world) == after.sequence


def test_signals_to_the_whole_process_group_lose_no_snapshot(world):
    (worker,) = world.start()
    world.send(20)
    world.covered()  # it has opened the topic: one snapshot is left for the four seconds that an end may take
    (pid,) = publishers(worker)
    for number in (signal.SIGTERM, signal.SIGINT):  # as an init system does that knows no parents
        os.kill(pid, number)
    world.send(20)
    world.settle()
    until(lambda: world.totals().get("offsets") == world.ends(), "all is counted")
    assert worker.terminate() == 0
    until(lambda: gone(pid), "its publisher is gone")
    assert publishers(worker) == [pid]

    def is_last():
        last = world.snapshots.newest()
        return last is not None and last.reports == world.n

    if worker.events("worker.stopped")[-1]["unfinished"]:  # on a machine that stalls
        world.launch()
    until(is_last, "a snapshot of all")  # the marker comes after the commit is acknowledged
