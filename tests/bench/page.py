"""CPU seconds of a worker's process for the page's requests, by domain size.

``python -m tests.bench.page`` prints JSON lines with the minimum of several runs, on a local Kafka: ``followed`` and
``read`` are snapshots of all eleven methods, followed on the topic or read for a request; ``excerpt``, ``found`` (by
a text in the labels), ``csv`` and ``whole`` are answers from a snapshot; ``idle`` is a second of following
without messages.
"""

import json
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from deploy.local.services import Services
from ldp.snapshot import Cut, Snapshot, encode, take
from tests.bench.measure import Line
from worker.config import Config, parse
from worker.http import documents
from worker.kafka.snapshots.follower import Follower
from worker.kafka.snapshots.producer import KafkaSnapshotProducer
from worker.kafka.snapshots.topic import SnapshotTopic

DOMAINS = (1_000, 100_000)
_TIMES, _SNAPSHOTS, _IDLE_SECONDS = 5, 5, 5.0


def main() -> None:
    """Prints the lines."""
    with Services.start() as services:
        for d in DOMAINS:
            for line in of(services.kafka.address, d):
                print(json.dumps(line), flush=True)


def of(kafka: str, d: int) -> Iterator[Line]:
    """The costs of a stream with this many values."""
    config = _config(kafka, d)
    publish(config)
    follower = Follower(config)
    began = time.process_time()
    name = config.streams[0].stream.name
    while (head := follower.newest(name).get(("all", None))) is None or head.fields["sequence"] < _SNAPSHOTS:
        follower.wait(1.0)
    followed = (time.process_time() - began) / _SNAPSHOTS

    def read() -> Snapshot:
        follower._kept.clear()
        return follower.read(name, head, 60.0)

    snapshot = read()
    methods = list(snapshot.bodies)
    size = sum(map(len, documents.whole(snapshot, methods)))
    setup = f"d={d}, {len(methods)} methods, labels"
    costs = {
        "followed": followed,
        "read": _least(read),
        "excerpt": _least(lambda: documents.json(documents.excerpt(snapshot, methods))),
        "found": _least(lambda: documents.json(documents.excerpt(snapshot, methods, find="99"))),
        "csv": _least(lambda: sum(map(len, documents.csv(snapshot, methods)))),
        "whole": _least(lambda: sum(map(len, documents.whole(snapshot, methods)))),
    }
    for what, seconds in costs.items():
        yield {"name": f"page: {what}", "setup": setup, "ours": round(seconds, 4), "unit": "s"}
    yield {"name": "page: whole", "setup": setup, "ours": size, "unit": "bytes"}
    began = time.process_time()
    time.sleep(_IDLE_SECONDS)
    idle = (time.process_time() - began) / _IDLE_SECONDS
    yield {"name": "page: idle", "setup": setup, "ours": round(idle, 4), "unit": "s a second"}


def _config(kafka: str, d: int) -> Config:
    labels = json.dumps([f"value {i:06}" for i in range(d)])
    return parse(
        f'kafka.bootstrap_servers = ["{kafka}"]\nsnapshots.topic = "page-{d}-{time.time_ns()}"\n'
        f'[[streams]]\nname = "page-{d}"\ntopic = "t"\nprotocol = "olh"\nepsilon = "1"\nlabels = {labels}\n'
    )


def publish(config: Config) -> None:
    """Publishes snapshots as a worker does, on a topic that is made for them."""
    from kafka.admin import KafkaAdminClient, NewTopic

    stream = config.streams[0].stream
    settings, topic = config.kafka.client(), config.snapshots.topic
    admin = KafkaAdminClient(**settings)
    admin.create_topics(
        [
            NewTopic(
                name=topic,
                num_partitions=1,
                replication_factor=1,
                topic_configs={"max.message.bytes": "10485760"},
            )
        ]
    )
    admin.close()
    snapshot_producer = KafkaSnapshotProducer(SnapshotTopic(settings, topic, topic), stream)
    snapshot_producer.open()
    weights = 1.0 / np.random.default_rng(1).permutation(np.arange(1, stream.oracle.domain_size + 1))
    counts = (1_000_000 * (0.3 + 0.5 * weights / weights.sum())).astype(np.int64)
    estimate = stream.oracle.estimate(counts, 1_000_000)
    for sequence in range(1, _SNAPSHOTS + 1):
        taken = take(stream, estimate, Cut({0: 1_000_000}, {}), sequence)
        snapshot_producer.publish(sequence, encode(taken))
    snapshot_producer.close()


def _least(run: Callable[[], Any]) -> float:
    """The least CPU seconds of some runs, of all threads."""
    took = []
    for _ in range(_TIMES):
        began = time.process_time()
        run()
        took.append(time.process_time() - began)
    return min(took)


if __name__ == "__main__":
    main()
