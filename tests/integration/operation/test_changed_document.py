"""A changed document stops the stream; the remedy loses no report."""

import pytest

from tests.support.harness import World
from worker import check, config

pytestmark = [pytest.mark.integration, pytest.mark.long]

TABLE = {"protocol": "grr", "epsilon": "1", "domain_size": 3, "labels": ["red", "green", "blue"]}


def test_a_changed_document_is_named_and_its_remedy_loses_no_report(kafka, redis_url, tmp_path):
    change, field = {"epsilon": "2"}, 'epsilon: "1" → "2"'
    with World(kafka, redis_url, tmp_path, partitions=2, **TABLE) as world:
        (worker,) = world.start()
        world.send(40)
        world.covered()
        assert worker.terminate() == 0
        toml = world.configure("changed", **change)

        stopped = world.launch(toml).stopped_for()
        assert f"Redis has counts of another history: {field}" in stopped
        found = {finding.subject: finding for finding in check.findings(config.load(toml, {}))}
        counts, snapshots = found[f"counts of {world.name}"], found[f"snapshots of {world.name}"]
        assert field in counts.text
        assert field in snapshots.text
        world.redis.delete(*world.redis.scan_iter(f"{{{world.name}:*"))
        without_redis = world.launch(toml).stopped_for()
        assert f"belongs to other counts: {field}" in without_redis
        for remedy in (stopped, counts.hint, snapshots.hint, without_redis):
            assert "another name and another topic" in remedy
            assert '{"' not in remedy

    (tmp_path / "remedy").mkdir()
    with World(kafka, redis_url, tmp_path / "remedy", partitions=2, **TABLE | change) as remedy:
        remedy.start()
        remedy.send(40)
        remedy.assert_right(remedy.covered())
        assert remedy.totals()["rejected"] == {}
