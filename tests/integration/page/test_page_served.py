"""Event streams and snapshots over HTTP on real services."""

import http.client
import json
from http import HTTPStatus

import pytest

from ldp import frames, snapshot
from ldp.snapshot import Closed, Cut, Period
from tests.support.harness import TIMEOUT_SECONDS, World, until
from worker.kafka.snapshots.follower import Follower
from worker.kafka.snapshots.reader import SnapshotReader

pytestmark = pytest.mark.integration

HOUR = 3_600_000
FIRST = 1_700_000_000_000 // HOUR * HOUR
LABELS = ["red", "green", "blue", "<b>\u202e"]
TABLE = {"labels": LABELS, "domain_size": 4, "windows": ["all", "1h"]}
TABLE |= {"grace": "0s", "max_out_of_orderness": "0s"}
SETTINGS = {"message.timestamp.type": "CreateTime", "retention.ms": "-1"}


def send(world, hours):
    """Sends a record of each hour to each partition."""
    for hour in hours:
        for partition in range(world.partitions):
            drawn = world.draw(20)
            value = frames.encode(world.stream, drawn)
            world.sent.futures.append(world.put(value, partition, timestamp=FIRST + hour * HOUR))
            world.sent.reports.append(drawn)


def answered(worker, path):
    # repeated while the topic is not read yet, as the answer requests
    status, kind, body = until(
        lambda: (said := worker.get(path))[0] != HTTPStatus.SERVICE_UNAVAILABLE and said, f"{path} is read"
    )
    assert (status, kind) == (200, "application/json"), body
    return json.loads(body)


def test_event_streams_announce_a_new_snapshot(kafka, redis_url, tmp_path):
    with World(kafka, redis_url, tmp_path, partitions=1, reports=SETTINGS, **TABLE) as world:
        (worker,) = world.start()
        send(world, range(1))
        first = world.covered()
        connection = http.client.HTTPConnection("127.0.0.1", worker.port(), timeout=TIMEOUT_SECONDS)
        connection.request("GET", f"/events?stream={world.name}&window=all")
        with connection.getresponse() as events:
            assert events.headers["Content-Type"] == "text/event-stream"

            def hear(name):
                """Reads until an event of a name; returns its data."""
                for line in events:
                    if line == f"event: {name}\n".encode():
                        return json.loads(next(events).removeprefix(b"data: "))
                raise AssertionError("the events ended")

            while (newest := hear("streams")[0]["newest"]) is None or newest["sequence"] < first.sequence:
                pass
            send(world, range(1))
            world.settle()
            while (news := hear("snapshot"))["reports"] < world.n:
                pass
            assert (news["stream"], news["window"]["name"]) == (world.name, "all")
            said = answered(worker, f"/streams/{world.name}/snapshot?method=base")
            assert (said["snapshot"], said["sequence"]) == (news["snapshot"], news["sequence"])
            assert worker.terminate() == 0  # event readers block nothing
        connection.close()


def publish(world, sequence, hours):
    """Publishes a snapshot of all time and of windows."""
    estimate = world.stream.oracle.estimate([4, 3, 2, 1], 10)
    producer, topic = world.open_producer(), world.config.snapshots.topic
    for window in (snapshot.ALL_TIME, *(Period("1h", h * HOUR, (h + 1) * HOUR, True) for h in hours)):
        cut, identity = Cut({0: 10}, {}, progress={"1h": Closed(0, (), ())}), f"{sequence:032x}"
        one = snapshot.take(world.stream, estimate, cut, sequence, window=window, identity=identity)
        for part in (snapshot.encode if window.start is None else snapshot.encode_window)(one):
            headers = part.headers(sequence)
            producer.send(topic, key=part.key.encode(), value=part.body, headers=headers, partition=0)
    producer.flush()


@pytest.mark.long
def test_a_recreated_snapshot_topic_is_read_from_its_start(kafka, redis_url, tmp_path):
    with (
        World(kafka, redis_url, tmp_path, partitions=1, **TABLE) as world,
        SnapshotReader(world.config, world.name, "1h") as reader,
    ):
        follower = Follower(world.config)

        def there():
            return {key for key, whole in follower.newest(world.name).items() if whole.methods}

        publish(world, 1, range(1, 6))
        until(lambda: ("1h", 5 * HOUR) in there(), "it is read")
        assert follower.read(world.name, follower.find(world.name, "1h")).window.start == 5 * HOUR
        assert reader.catch_up(TIMEOUT_SECONDS)
        assert reader.latest(TIMEOUT_SECONDS).window.start == 5 * HOUR
        world.admin.delete_topics([world.config.snapshots.topic])
        until(lambda: world.config.snapshots.topic not in world.admin.list_topics(), "it is deleted")
        world.create_topics()
        publish(world, 1, [1])
        until(lambda: there() == {("all", None), ("1h", HOUR)}, "the new one is read")
        assert follower.read(world.name, follower.find(world.name, "1h")).window.start == HOUR
        assert reader.latest(TIMEOUT_SECONDS).window.start == HOUR
        assert [window.start for window in reader.windows] == [HOUR]
        follower._idle_seconds = 0.0  # its thread ends before the brokers do
        until(lambda: not follower.running, "it ends")
