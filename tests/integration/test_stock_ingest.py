"""The client library decodes where the configuration says so, or where it is not the one that is known."""

import pytest

from tests.integration.harness import World, until

pytestmark = pytest.mark.integration


def test_stock_ingest_counts_the_same_and_says_so(kafka, redis_url, tmp_path):
    with World(kafka, redis_url, tmp_path, partitions=2, client={"ingest": "stock"}) as world:
        (worker,) = world.start()
        aborted = world.open_producer(transactional_id=world.name)
        aborted.init_transactions()
        world.send(200, reports=3)
        aborted.begin_transaction()
        world.send(20, counted=False, producer=aborted)
        aborted.flush()
        aborted.abort_transaction()
        bad = [world.put(value) for value in (b"", b"noise", None)]
        world.send(200, as_json=True)
        world.sent.futures += bad
        world.assert_right(world.covered())
        assert world.totals()["rejected"] == {"empty": 2, "version": 1}
        assert worker.metric("ingest_stock") == 1
        (said,) = worker.events("ingest.stock")
        assert (said["level"], said["why"]) == ("warning", "kafka.ingest is stock")
        assert "limits" in said["remedy"]
        until(lambda: worker.metric("partition_lag") == 0, "no lag")
