"""A batch count of a partition's log, as an engine makes it."""

from pathlib import Path

import numpy as np
from kafka import KafkaConsumer, TopicPartition

from ldp import frames
from ldp.frames import VERDICTS
from ldp.offset_range import OffsetRange
from ldp.state import State
from tests.support.harness.world import World
from worker.counting.windows import TIME_ENDS

MOST = 20
"""The most reports of a record for the batch."""


def history(world: World, partition: int, offset: int) -> Path:
    """Counts a partition's log up to an offset into a state file."""
    tp = TopicPartition(world.topic, partition)
    consumer = KafkaConsumer(bootstrap_servers=world.kafka, isolation_level="read_committed")
    consumer.assign([tp])
    consumer.seek(tp, 0)
    records = []
    while consumer.position(tp) < offset:
        records += [record for record in consumer.poll(1000).get(tp, []) if record.offset < offset]
    consumer.close()
    values = [record.value or b"" for record in records]
    sizes = np.array([len(value) for value in values], np.int64)
    ends = np.cumsum(sizes)
    decoded = frames.decode(world.stream, b"".join(values), ends - sizes, ends, most_reports=MOST)
    state = world.stream.oracle.zeros()
    world.stream.oracle.accumulate(state, decoded.reports)
    times = [
        record.timestamp if 0 <= record.timestamp < TIME_ENDS else -1
        for record, verdict in zip(records, decoded.verdicts, strict=True)
        if not verdict
    ]
    rejected = np.bincount(decoded.verdicts, minlength=len(VERDICTS)).tolist()
    counted = State(
        world.stream,
        len(decoded.reports),
        state,
        len(times),
        {str(VERDICTS[v]): n for v, n in enumerate(rejected) if v and n},
        log=(OffsetRange(world.topic, partition, records[0].offset, offset, max(times, default=None), MOST),),
    )
    path = world.folder / f"{partition}-{offset}.ldp"
    counted.write(path)
    return path
