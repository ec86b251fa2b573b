"""Recounts the log of a windowed stream only by the contract."""

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field

from kafka import KafkaConsumer, TopicPartition

from ldp import frames
from tests.support.harness import World, until


@dataclass
class Plain:
    """Contents of a stream's log."""

    pane: int  # length in milliseconds
    hold: int  # grace and out of order together
    closed: dict[int, int]  # partition -> up to when its panes are closed
    panes: dict[int, int] = field(default_factory=lambda: defaultdict(int))  # start -> reports
    late: int = 0
    undated: int = 0
    repeated: Counter[str] = field(
        default_factory=Counter
    )  # reports that a producer wrote twice after a failure

    def add(self, partition: int, time: int, reports: int) -> None:
        """Counts an accepted record, in the partition's order."""
        closed = self.closed[partition]
        if time < 0:
            self.undated += 1
            return
        start = time // self.pane * self.pane
        if start + self.pane <= closed:
            self.late += 1
        else:
            self.panes[start] += reports
        self.closed[partition] = max(closed, time - self.hold)

    def finals(self, name: str, length: int) -> dict[tuple[str, int], int]:
        """Returns the reports of a name's windows that are over."""
        closed = min(self.closed.values())
        starts = {
            start - back
            for start, reports in self.panes.items()
            if reports
            for back in range(0, length, self.pane)
        }
        return {
            (name, start): sum(self.panes.get(pane, 0) for pane in range(start, start + length, self.pane))
            for start in starts
            if start + length <= closed
        }


def read(world: World, floors: Mapping[int, int], pane: int, hold: int) -> Plain:
    """Reads all of a stream's log; its partitions begin with their floors."""
    plain = Plain(pane, hold, {partition: floors[partition] for partition in range(world.partitions)})
    keys = set[bytes]()
    sizes = {len(frames.encode(world.stream, world.draw(n))): n for n in range(1, 4)}
    consumer = KafkaConsumer(
        bootstrap_servers=world.kafka, group_id=None, isolation_level="read_committed", max_poll_records=5000
    )
    try:
        wanted = [TopicPartition(world.topic, partition) for partition in plain.closed]
        consumer.assign(wanted)
        consumer.seek_to_beginning(*wanted)
        ends = consumer.end_offsets(wanted)

        def all_read() -> bool:
            for tp, records in consumer.poll(50).items():
                for record in records:
                    malformed = record.value == b"malformed"
                    reports = 1 if malformed else sizes[len(record.value)]
                    if not malformed:
                        plain.add(tp.partition, record.timestamp, reports)
                    if record.key in keys:
                        plain.repeated["malformed" if malformed else "reports"] += reports
                    elif record.key:
                        keys.add(record.key)
            return all(consumer.position(tp) >= end for tp, end in ends.items())

        until(all_read, "all of the log", 600)
    finally:
        consumer.close(autocommit=False)
    return plain
