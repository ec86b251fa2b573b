"""Where the head is looked for, of a topic that is compacted while it is read."""

from types import SimpleNamespace

import pytest
from kafka import TopicPartition

import ldp
from ldp import snapshot
from ldp.snapshot import Cut
from worker.kafka.outbox import KafkaOutbox

STREAM = ldp.Stream("s", ldp.GRR("1", 2))
TP = TopicPartition("snapshots", 0)


def head(sequence):
    taken = snapshot.announce(STREAM, Cut({0: sequence}, {}), sequence, {}, "0" * 32)
    return snapshot.encode(taken)[0].body


class Compacted:
    """A topic: what its log holds, and what becomes of it before each read.

    ``meanwhile`` are numbers of heads: each is written behind the end before a read, and compaction takes the others.
    """

    name = "snapshots"

    def __init__(self, records, end, meanwhile):
        self.records, self.end, self.meanwhile = dict(records), end, list(meanwhile)
        self.reads = []

    def admin(self):
        def asked(specs, isolation_level):
            ((tp, spec),) = specs.items()
            return {tp: SimpleNamespace(offset=0 if spec.name == "EARLIEST" else self.end)}

        return SimpleNamespace(list_partition_offsets=asked, close=lambda: None)

    def consumer(self, level):
        at = [0]

        def seek(_tp, offset):
            at[0] = offset
            self._pass()
            self.reads.append(offset)

        def poll(_ms):
            begin, at[0] = at[0], self.end
            return {
                TP: [
                    SimpleNamespace(key=key, value=value, offset=offset)
                    for offset, (key, value) in sorted(self.records.items())
                    if offset >= begin
                ]
            }

        return SimpleNamespace(
            assign=lambda _tps: None,
            seek=seek,
            poll=poll,
            position=lambda _tp: at[0],
            close=lambda autocommit: None,
        )

    def _pass(self):
        if self.meanwhile:
            self.records = {
                offset: record for offset, record in self.records.items() if record[0] != b"s/head"
            }
            self.records[self.end] = b"s/head", head(self.meanwhile.pop(0))
            self.end += 7  # what else is written


def looked(meanwhile, records=None, end=40):
    records = {3: (b"s/head", head(1)), 39: (b"t/head", head(9))} if records is None else records
    topic = Compacted(records, end, meanwhile)
    return KafkaOutbox(topic, STREAM).head(decided=True).sequence, topic.reads


@pytest.mark.parametrize(
    ("meanwhile", "sequence", "reads"),
    [
        ([], 1, [0]),
        # one is written behind the end, and compaction takes the one before it
        ([2], 2, [0, 40]),
        # and once more, while what is behind is read
        ([2, 3], 3, [0, 40, 47]),
    ],
)
def test_a_head_that_is_replaced_and_compacted_away_while_it_is_looked_for_is_found(
    meanwhile, sequence, reads
):
    assert looked(meanwhile) == (sequence, reads)


def test_where_there_is_none_nothing_is_read_for_ever():
    others = {39: (b"t/head", head(9))}
    assert looked([], others) == (0, [0])
    assert looked([], {}, end=0) == (0, [])


def test_a_head_that_is_deleted_on_purpose_is_not_looked_for_behind():
    assert looked([], {3: (b"s/head", head(4)), 5: (b"s/head", b"")}) == (0, [0])
