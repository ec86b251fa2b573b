"""Metrics of a worker, and their page."""

from pathlib import Path

from prometheus_client import generate_latest

from worker.observe import metrics

PAGE = Path(__file__).parents[3] / "docs/reference/metrics.md"


def test_every_metric_of_ours_is_in_the_table():
    shown = metrics.Metrics()
    families = {
        line.split()[2] for line in generate_latest(shown.registry).decode().splitlines() if "# HELP" in line
    }
    ours = {name for name in families if name.startswith("ldp_worker_") and not name.endswith("_created")}
    rows = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("| `")]
    assert ours == {row.split("`")[1] for row in rows}


def test_what_is_heard_of_the_room_no_more_is_dropped():
    shown = metrics.Metrics()
    asked = (
        ("ldp_worker_redis_used_bytes", {"server": "redis://a:1"}),
        ("ldp_worker_redis_limit_bytes", {"server": "redis://a:1"}),
        ("ldp_worker_partition_first_offset", {"stream": "s", "partition": "0"}),
    )
    for memory, logs, values in (
        ({"redis://a:1": {"used_memory": 3, "maxmemory": 9}}, {"s": {0: (7, 9, 8)}}, [3, 9, 7]),
        ({"redis://a:1": {"used_memory": 4}}, {}, [4, 0, None]),
        ({}, {"s": {0: (8, 9, 8)}}, [None, None, 8]),
    ):
        shown.capacity(memory, logs)
        assert [shown.registry.get_sample_value(*each) for each in asked] == values
