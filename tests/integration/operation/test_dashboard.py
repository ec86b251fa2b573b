"""Dashboard queries and alert expressions return data from real workers."""

import re
from functools import partial
from urllib.parse import urlsplit

import pytest

from tests.long.alerts.rules import RULES, alerts, rules
from tests.support import prometheus
from tests.support.dashboards import DASHBOARDS, filled, queries
from tests.support.harness import Sending, World, until
from tests.support.harness.front import Front
from tests.support.harness.proxy import Proxy

pytestmark = [pytest.mark.integration, pytest.mark.long]

MAY_BE_NONE = ("Recommended method", "Alerts")
"""Panels without data in a healthy stream."""


def test_every_query_returns_data_from_real_workers(kafka, redis_url, tmp_path):
    folder = tmp_path / "front"
    folder.mkdir()
    queries = [{"name": f"value {v}", "values": [v]} for v in range(3)]
    store = urlsplit(redis_url)
    with (
        Proxy((store.hostname, store.port)) as proxy,
        World(
            kafka,
            f"redis://127.0.0.1:{proxy.port}{store.path}",
            tmp_path,
            partitions=3,
            queries=queries,
            windows=["5s"],
            retain="1m",
        ) as world,
        Front(kafka, folder, stream=world.name) as front,
    ):
        front.start("shuffle")
        workers = [world.launch(None, "--processes", "2"), *world.start()]
        wanted = {
            **{name: said(name, query) for name, query in asked(world).items()},
            **{name: alert.left for name, alert in alerts().items()},
        }
        targets = [f"127.0.0.1:{worker.port()}" for worker in workers]
        with (
            prometheus.running(tmp_path, targets, RULES, jobs=front.jobs) as scraper,
            Sending(world) as sending,
        ):
            sending.more()
            # something to try again: a store that is away for a moment
            proxy.refuse()
            until(lambda: any(worker.metric("errors_total") for worker in workers), "an attempt that failed")
            proxy.mend()

            def answers(query: str) -> list[float]:
                world.put(b"noise")  # so that there is a rate of rejections, too
                front.upload(0)
                return scraper.values(query)

            for name, query in wanted.items():
                until(partial(answers, query), f"data for {name}: {query}")

            for name, (label, metric) in listed(world).items():
                assert scraper.get(f"label/{label}/values", match=metric), name
            methods = scraper.get("label/method/values", match="ldp_worker_snapshot_query_frequency")
            assert {"base", "norm-sub", "power-ns"} <= set(methods)
            assert scraper.get("label/stream/values", match="ldp_worker_stream_up") == [world.name]
            evaluated = [rule for group in scraper.get("rules")["groups"] for rule in group["rules"]]
            named = [rule.get("record") or rule["alert"] for rule in rules()]
            assert {rule["name"]: rule["health"] for rule in evaluated} == dict.fromkeys(named, "ok")


def variables(world):
    """Returns the query of each query variable."""
    return {
        f"{name}, {variable['name']}": filled(variable["query"]["query"], stream=world.name)
        for name, dashboard in DASHBOARDS.items()
        for variable in dashboard["templating"]["list"]
        if variable["type"] == "query"
    }


def listed(world):
    """Returns the variables of label values as (label, metric)."""
    found = {
        name: re.fullmatch(r"label_values\((.*), (\w+)\)", query) for name, query in variables(world).items()
    }
    return {name: (one[2], one[1]) for name, one in found.items() if one and one[2] != "namespace"}


def said(name, query):
    """Returns a query without its fallback, except for panels without data."""
    return query if any(panel in name for panel in MAY_BE_NONE) else query.partition(" or on () ")[0]


def asked(world):
    """Returns each dashboard query for the stream."""
    return {name: filled(query, stream=world.name) for name, query in queries()}
