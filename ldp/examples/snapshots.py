# /// script
# requires-python = ">=3.11"
# dependencies = ["kafka-python", "ldp-worker", "pandas"]
# ///
"""Prints the newest snapshot on the snapshot topic as a data frame.

python snapshots.py TOPIC STREAM

LDP_WORKER_KAFKA__BOOTSTRAP_SERVERS names the brokers; without it, they are at localhost:9092.
"""

import os
import sys

from kafka import KafkaConsumer, TopicPartition

from ldp import snapshot

topic, stream = sys.argv[1:]
servers = os.environ.get("LDP_WORKER_KAFKA__BOOTSTRAP_SERVERS", "localhost:9092")
consumer = KafkaConsumer(bootstrap_servers=servers, isolation_level="read_committed")
partition = TopicPartition(topic, 0)
consumer.assign([partition])
(end,) = consumer.end_offsets([partition]).values()
consumer.seek_to_beginning(partition)
newest = {}  # the topic is compacted, so only the newest message of each key counts
while consumer.position(partition) < end:
    for record in consumer.poll(1000).get(partition, []):
        newest[record.key.decode()] = (dict(record.headers), record.value)
consumer.close()

found = snapshot.assemble(stream, newest)
frame = found.estimate().to_frame(
    {method: body.frequencies for method, body in found.bodies.items()}, level=found.level
)
print(f"snapshot {found.sequence} of {found.stream}: {found.reports} reports")
print(frame.to_csv(index=False), end="")
