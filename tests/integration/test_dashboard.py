"""Every query of the dashboard and every alert's expression has data in a Prometheus that scrapes real workers."""

import json
from functools import partial
from pathlib import Path

import pytest

from deploy.local import services
from tests import prometheus
from tests.alerts.rules import RULES, alerts, rules
from tests.integration.harness import Sending, World, until

pytestmark = pytest.mark.integration

DEPLOY = Path(services.__file__).parent.parent
DASHBOARD = json.loads((DEPLOY / "grafana/dashboards/ldp-worker.json").read_text(encoding="utf-8"))
QUERIES = {
    f"{panel['title']}, {target['refId']}": target["expr"]
    for panel in DASHBOARD["panels"]
    for target in panel.get("targets", [])
}


def test_every_query_returns_data_from_real_workers(local_services, tmp_path):
    queries = [{"name": f"value {v}", "values": [v]} for v in range(3)]
    with World(
        local_services.kafka.address,
        local_services.redis.address,
        tmp_path,
        partitions=3,
        queries=queries,
        windows=["5s"],
        retain="1m",
    ) as world:
        workers = [world.launch(None, "--processes", "2"), *world.start()]
        wanted = {
            **{name: for_grafana(query, world.name) for name, query in QUERIES.items()},
            **{name: alert.left for name, alert in alerts().items()},
        }
        targets = [f"127.0.0.1:{worker.port()}" for worker in workers]
        with prometheus.running(tmp_path, targets, RULES) as scraper, Sending(world) as sending:
            sending.more()
            # something to try again: a store that is away for a moment
            local_services.redis.kill()
            until(lambda: any(worker.metric("errors_total") for worker in workers), "an attempt that failed")
            local_services.redis.restart()

            def answers(query: str) -> list[float]:
                world.put(b"noise")  # so that there is a rate of rejections, too
                return scraper.values(query)

            for name, query in wanted.items():
                until(partial(answers, query), f"data for {name}: {query}")

            methods = scraper.get("label/method/values", match="ldp_worker_snapshot_query_frequency")
            assert {"base", "norm-sub", "power-ns"} <= set(methods)
            assert scraper.get("label/stream/values", match="ldp_worker_stream_up") == [world.name]
            evaluated = [rule for group in scraper.get("rules")["groups"] for rule in group["rules"]]
            named = [rule.get("record") or rule["alert"] for rule in rules()]
            assert {rule["name"]: rule["health"] for rule in evaluated} == dict.fromkeys(named, "ok")


def for_grafana(query: str, stream: str) -> str:
    """A query as Grafana sends it, its variables filled in."""
    filled = (
        query.replace("$stream", stream).replace("$method", "norm-sub").replace("$__rate_interval", "20s")
    )
    assert "$" not in filled
    return filled
