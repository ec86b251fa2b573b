"""What a worker answers to its page, on real services: it equals the messages on the topic, whoever counts them."""

import http.client
import json
from http import HTTPStatus

import pytest

from ldp import frames, snapshot
from ldp.snapshot import Cut, Line, Period
from tests.integration.harness import TIMEOUT_SECONDS, World, foreign, until
from worker.kafka.snapshots.following import Follower
from worker.kafka.snapshots.reader import SnapshotReader

pytestmark = pytest.mark.integration

HOUR = 3_600_000
FIRST = 1_700_000_000_000 // HOUR * HOUR
LABELS = ["red", "green", "blue", "<b>\u202e"]
TABLE = {"labels": LABELS, "domain_size": 4, "windows": ["all", "1h"], "grace": "0s", "out_of_order": "0s"}
SETTINGS = {"message.timestamp.type": "CreateTime", "retention.ms": "-1"}


def send(world, hours):
    """A record of each hour to each partition."""
    for hour in hours:
        for partition in range(world.partitions):
            drawn = world.draw(20)
            value = frames.encode(world.stream, drawn)
            world.sent.futures.append(world.put(value, partition, timestamp=FIRST + hour * HOUR))
            world.sent.reports.append(drawn)


class Topic:
    """The newest message of each key, as another program reads it."""

    def __init__(self, world):
        read = foreign(world.kafka, world.config.snapshots.topic)
        newest = {message.key: message for message in read}
        self._said = {key: json.loads(message.value) for key, message in newest.items() if message.value}
        self._name = world.name
        self.head, self.labels = (
            self._said[f"{self._name}/head"],
            self._said[f"{self._name}/domain"]["labels"],
        )

    def bodies(self, place):
        prefix = f"{self._name}/{place}/"
        return {key.removeprefix(prefix): said for key, said in self._said.items() if key.startswith(prefix)}


def answered(worker, path):
    # asked again while the topic is not read yet, as it says
    status, kind, body = until(
        lambda: (said := worker.get(path))[0] != HTTPStatus.SERVICE_UNAVAILABLE and said, f"{path} is read"
    )
    assert (status, kind) == (200, "application/json"), body
    return json.loads(body)


def assert_is(answer, bodies, labels):
    """Asserts that the document of a snapshot says what its messages do, number for number."""
    assert answer["labels"] == labels
    assert answer["methods"].keys() == bodies.keys()
    for method, body in bodies.items():
        said = answer["methods"][method]
        for name in body:
            assert (answer if name in answer else said).get(name, body[name]) == body[name], (method, name)
        assert body.keys() - said.keys() - answer.keys() == {"schema", "method", "chunks"}
        assert said.keys() <= body.keys()


@pytest.mark.long
def test_a_worker_without_partition_0_shows_what_is_on_the_topic(kafka, redis_url, tmp_path):
    queries = [{"name": "warm", "values": ["red", "blue"]}, {"name": "most", "top": 2}]
    with World(kafka, redis_url, tmp_path, partitions=2, reports=SETTINGS, queries=queries, **TABLE) as world:
        (other,) = (worker for worker in world.start(2) if 0 not in worker.owned())
        send(world, range(3))
        last = world.covered()
        path = f"/streams/{world.name}"
        until(lambda: answered(other, f"{path}/snapshot")["sequence"] == last.sequence, "it reads the newest")
        topic = Topic(world)
        said = answered(other, f"{path}/snapshot")
        assert_is(said, topic.bodies("all"), topic.labels)
        assert {name: said[name] for name in topic.head if name != "schema"} == {
            name: of for name, of in topic.head.items() if name != "schema"
        }
        for start in (FIRST, FIRST + HOUR):
            window = answered(other, f"{path}/snapshot?window=1h&start={start}")
            assert_is(window, topic.bodies(f"1h/{start}"), topic.labels)
            assert window["window"]["final"]

        (stream,) = answered(other, "/streams")
        assert stream["partitions"] == {"0": "elsewhere", "1": "here"}
        assert stream["newest"]["reports"] == world.n == 120
        assert stream["state"] == "serving"
        assert [(one["start"], one["final"]) for one in stream["available"]["1h"]] == [
            (FIRST, True),
            (FIRST + HOUR, True),
            (FIRST + 2 * HOUR, False),
        ]
        excerpt = answered(other, f"{path}/excerpt?method=norm-sub&top=3")
        base = topic.bodies("all")["base"]
        order = sorted(range(4), key=lambda value: -base["frequencies"][value])[:3]
        assert [row["value"] for row in excerpt["values"]] == order
        assert [row["high"] for row in excerpt["values"]] == [base["high"][value] for value in order]


def test_events_tell_of_a_new_snapshot(kafka, redis_url, tmp_path):
    with World(kafka, redis_url, tmp_path, partitions=1, reports=SETTINGS, **TABLE) as world:
        (worker,) = world.start()
        send(world, range(1))
        first = world.covered()
        connection = http.client.HTTPConnection("127.0.0.1", worker.port(), timeout=TIMEOUT_SECONDS)
        connection.request("GET", f"/events?stream={world.name}&window=all")
        with connection.getresponse() as events:
            assert events.headers["Content-Type"] == "text/event-stream"

            def hear(name):
                """Reads on until an event of a name; returns its data."""
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
            assert worker.terminate() == 0  # whoever hears events holds nothing up
        connection.close()


@pytest.mark.long
def test_several_processes_have_one_page(kafka, redis_url, tmp_path):
    with World(kafka, redis_url, tmp_path, partitions=2, **TABLE) as world:
        worker = world.launch(None, "--processes", "2")
        until(worker.ready, "both serve")
        until(lambda: len(worker.owned()) == 2, "all partitions are counted")
        world.send(10)
        last = world.covered()
        until(lambda: answered(worker, "/streams")[0]["newest"], "the topic is read")
        (stream,) = answered(worker, "/streams")
        assert (stream["state"], stream["partitions"]) == ("serving", {"0": "here", "1": "here"})
        assert stream["accepted"] == 10
        said = answered(worker, f"/streams/{world.name}/snapshot?method=base")
        assert said["methods"]["base"]["frequencies"] == last.bodies["base"].frequencies.tolist()


def publish(world, sequence, hours):
    """A snapshot of all time and of windows, as a publisher of before may have left it."""
    estimate = world.stream.oracle.estimate([4, 3, 2, 1], 10)
    producer, topic = world.open_producer(), world.config.snapshots.topic
    for window in (snapshot.ALL_TIME, *(Period("1h", h * HOUR, (h + 1) * HOUR, True) for h in hours)):
        cut, identity = Cut({0: 10}, {}, lines={"1h": Line(0, (), ())}), f"{sequence:032x}"
        one = snapshot.take(world.stream, estimate, cut, sequence, window=window, identity=identity)
        for part in (snapshot.encode if window.start is None else snapshot.encode_window)(one):
            headers = part.headers(sequence)
            producer.send(topic, key=part.key.encode(), value=part.body, headers=headers, partition=0)
    producer.flush()


@pytest.mark.long
def test_a_topic_that_is_made_again_is_read_anew(kafka, redis_url, tmp_path):
    """What was on the one that is deleted is not shown, and no window of it is the newest."""
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
