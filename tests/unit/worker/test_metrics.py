"""Metrics of the servers and the topics."""

from worker.observe import metrics


def test_outdated_capacity_metrics_are_removed():
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
