"""The snapshot topic as a data frame: Base with its intervals and each method.

python snapshots.py BOOTSTRAP TOPIC STREAM
"""

import sys

from kafka import KafkaConsumer, TopicPartition

from ldp import snapshot

bootstrap, topic, stream = sys.argv[1:]
consumer = KafkaConsumer(bootstrap_servers=bootstrap, isolation_level="read_committed")
partition = TopicPartition(topic, 0)
consumer.assign([partition])
(end,) = consumer.end_offsets([partition]).values()
consumer.seek_to_beginning(partition)
newest = {}  # the topic is compacted: of each key the newest message counts
while consumer.position(partition) < end:
    for record in consumer.poll(1000).get(partition, []):
        newest[record.key.decode()] = (dict(record.headers), record.value)
consumer.close()

said = snapshot.assemble(stream, newest)
frame = said.estimate().to_frame(
    {method: body.frequencies for method, body in said.bodies.items()}, level=said.level
)
print(f"snapshot {said.sequence} of {said.stream}: {said.reports} reports")
print(frame.to_csv(index=False), end="")
