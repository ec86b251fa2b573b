"""A stream with windows in memory: counted partitions, the worker's publisher, and its topic."""

import json
import random
from collections import Counter
from dataclasses import dataclass
from typing import cast

import ldp
from ldp.query import SetQuery, TopQuery
from tests.support.memory.process import Silence
from tests.unit.worker.audit.streams import STREAMS
from tests.unit.worker.audit.test_windows import GROUP, START, Counting, log
from worker.audit.comparison import assess
from worker.audit.parsing import by_fingerprint
from worker.audit.records import Records
from worker.audit.snapshots import Message
from worker.audit.verdict import Compared, StreamVerdict
from worker.audit.verification import headless, published_of
from worker.counting import layout
from worker.counting.head import Head
from worker.counting.lineage import lineage_of
from worker.counting.ports import Events, StoredPartition
from worker.publishing.planning import Content
from worker.publishing.publisher import Group, Publisher
from worker.publishing.recommender import Recommender
from worker.publishing.rows import RowTopic

STREAM = STREAMS["grr-3"]
LENGTH = 120


class Partition:
    """One partition with its counted and committed state."""

    def __init__(self, rng, records, limits, changes=(), stream=STREAM):
        self.rng, self.stream, self.commits = rng, stream, 0
        self.counting = Counting(rng, records, limits, changes, stream)
        self.metadata = layout.initial(lineage_of(GROUP, "t"), self.state)
        self.blobs = {}

    @property
    def state(self):
        return self.counting.state

    def commit(self):
        self.commits += 1
        self.metadata, blobs = layout.dump(self.state, self.metadata, f"{self.commits:032x}")
        self.blobs = {
            name: blob for name, blob in (self.blobs | blobs).items() if name in self.metadata.blobs
        }
        self.state.changed = set()


@dataclass
class Sent:
    """A message on the topic."""

    key: str
    headers: dict
    value: bytes


class World:
    """A stream, its partitions, and its publisher, whose windows stay on the topic for `retain` milliseconds."""

    def __init__(self, seed, limits, changes=(), retain=None, stream=STREAM, queries=False):
        self.rng, self.stream, self.topic = random.Random(seed), stream, []
        self.partitions = [
            Partition(self.rng, log(self.rng, LENGTH, stream), limits, changes, stream) for _ in range(2)
        ]
        self.queries = (SetQuery("some", (0, 2)), TopQuery("most", 2)) if queries else ()
        self.rows_there = {}
        self.publisher = self.publisher_of(retain)

    def publisher_of(self, retain, rows=None, **content):
        silence = cast(Events, Silence())
        return Publisher(
            ldp.Fleet((self.stream,)),
            Content(self.queries, retain=retain, rows=rows or RowTopic(), **content),
            self,
            self,
            Group(lambda: range(len(self.partitions)), lambda _: (), lambda: 1),
            Recommender((), silence),
            silence,
        )

    def peek(self, partition):
        return self.partitions[partition].metadata

    def cut(self, partition):
        return StoredPartition(self.partitions[partition].metadata, dict(self.partitions[partition].blobs))

    def cut_all(self, partitions):
        return {partition: self.cut(partition) for partition in partitions}

    def open(self):
        return Head.parse(head) if (head := self.head()) else Head()

    def publish(self, sequence, messages, rows=()):
        self.topic += [Sent(each.key, dict(each.headers(sequence)), each.body) for each in messages]
        self.rows_there |= {row.key: row.value for row in rows}
        self.rows_there = {key: value for key, value in self.rows_there.items() if value}

    def newest(self, begin, read):
        return read({each.key: (each.headers, each.value) for each in self.topic})

    def rows(self):
        return list(self.rows_there)

    def close(self):
        pass

    def head(self):
        heads = [each for each in self.topic if each.key == "s/head" and each.value]
        return json.loads(heads[-1].value) if heads else {}

    def tick(self, times=1):
        for _ in range(times):
            for each in self.partitions:
                each.commit()
            self.publisher.tick()
            head = self.open()
            for p, each in enumerate(self.partitions):
                if each.state.windows.admitted_from is None and p in head.floors:
                    each.state.windows.admit(head.floors[p])
                if each.state.windows.admitted_from is not None:
                    each.state.evict(
                        min(each.state.windows.closed, head.needed_from(each.state.windows.first_start))
                    )
                each.commit()

    def run(self, to=LENGTH, step=15, since=0):
        self.tick()
        for end in range(since + step, to + 1, step):
            for each in self.partitions:
                each.counting.to(START + min(to, end + self.rng.randrange(5)), droppings=False)
            self.tick()
        return self

    def audit(self, begin=START, begins=None, topic=None):
        """The verdict, of the topic as it is or of another; the logs begin at an offset, or each at its own."""
        documents = by_fingerprint(self.stream.document())
        sent = self.topic if topic is None else topic
        named = [(*each.key.partition("/")[::2], each) for each in sent]
        messages = [Message(key, each.headers, each.value, name[1:]) for name, key, each in named]
        heads = [each.value for each in messages if each.key == "head" and not each.part]
        head = json.loads(heads[-1]) if heads and heads[-1] else {}
        published, differing = (published_of if head else headless)(documents, lambda: messages)
        verdicts = []
        for p, each in enumerate(self.partitions):

            def read(first, last, caps, records=each.counting.records):
                pieces = range(first, last, 7)
                return [Records.of(records[a - START : min(a + 7, last) - START], a) for a in pieces]

            cut = layout.fields(each.metadata, layout.meta_key("s", p)), dict(each.blobs)
            bounds = (begins or {}).get(p, begin), START + LENGTH
            facts = {"cut": cut, "bounds": bounds, "read": read, "published": published}
            facts["head"] = head
            verdicts.append(assess(documents, p, stream="s", group=GROUP, **facts))
        there = range(len(self.partitions))
        compared = Compared(published=differing) if differing else published.compare(there)
        return StreamVerdict("s", tuple(verdicts), **vars(compared))

    def wholes(self):
        """Positions of the messages on the topic: for each window, or `all`."""
        newest = {each.key: i for i, each in enumerate(self.topic)}
        there = [i for i in newest.values() if self.topic[i].value]
        found = {}
        for i in there:
            if (key := self.topic[i].key).endswith("/base"):
                mark = self.topic[i].headers["snapshot"]
                of = key.removeprefix("s/").removesuffix("/base")
                found[of] = [j for j in there if self.topic[j].headers["snapshot"] == mark]
        return found

    def compacted(self):
        """The topic with only the newest message of each key."""
        newest = {each.key: i for i, each in enumerate(self.topic)}
        return [each for i, each in enumerate(self.topic) if newest[each.key] == i]

    def counts(self):
        """Numbers of final and of open windows."""
        places = [at for of, at in self.wholes().items() if of not in ("all", "late")]
        found = Counter(of_final(self.topic[at[0]]) for at in places)
        return found[True], found[False]


def of_final(sent):
    return sent.headers["final"] == b"true"
