"""A running stream gets new documents, while old and new workers take turns."""

import json
import math
import time
from collections import Counter
from dataclasses import dataclass

import numpy as np
import pytest
from click.testing import CliRunner
from kafka.admin import NewPartitions

import ldp
from ldp import frames
from ldp.snapshot import assemble, assemble_window, part_of
from tests.support.harness import EVENT_TIME, World, dead_letters, until
from tests.support.harness.truth import Reports, base
from worker.cli import cli

pytestmark = pytest.mark.integration

PARTITIONS, MINUTE = 4, 60_000

INLINE = {"protocol": "grr", "epsilon": "1", "domain_size": 3, "labels": ["red", "green", "blue"]}
WINDOWS = {"windows": ["all", "1m"], "grace": "0s", "max_out_of_orderness": "10s"}
REPORTS = EVENT_TIME | {"message.timestamp.after.max.ms": "10000"}
SEGMENTS = ["DE", "US:4.3"]
SENT = ["DE:1", "DE:2", "US:4.3", "US:9.9", "FR:1", "US:4.3"]
"""Segments of the reports of the document with segments, in turn."""


@dataclass(frozen=True)
class Record:
    """A record of one report that counts."""

    document: ldp.Stream
    segment: str | None
    minute: int
    reports: Reports

    def is_in(self, segment: str) -> bool:
        return f"{self.segment}:".startswith(f"{segment}:")


class Fleet(World):
    """A stream whose documents change."""

    def __enter__(self):
        super().__enter__()
        name = self.name
        self.first = self.stream
        self.second = ldp.Stream(name, ldp.OLH("2", 4, hash="xxh32"), [*INLINE["labels"], "grey"])
        self.third = ldp.Stream(name, ldp.OLH("1", 3), ["grey", "violet", "blue"], segment="country:app")
        self.recorded: list[Record] = []
        self.began = int(time.time() * 1000) // MINUTE * MINUTE - 60 * MINUTE
        self.minute = self.refused = 0
        printed = self.command("document", "--config", self.toml)
        (self.folder / "1.json").write_text(printed.stdout, encoding="utf-8")
        for number, document in ((2, self.second), (3, self.third)):
            (self.folder / f"{number}.json").write_text(json.dumps(document.document()), encoding="utf-8")
        return self

    def command(self, *arguments):
        return CliRunner().invoke(cli, [*map(str, arguments)])

    def configured(self, file, *documents, **more):
        """Writes a configuration of documents, newest first."""
        files = [f"{number}.json" for number in documents]
        segments = SEGMENTS if 3 in documents else []
        more |= {"snapshots": {"parts_fewest": 1}} | dict.fromkeys(INLINE)
        return self.configure(file, documents=files, segments=segments, **more)

    def check(self, number, toml):
        """Returns the exit code of `check --document` and its texts about the document."""
        file = self.folder / f"{number}.json"
        found = self.command("check", "--config", toml, "--document", file, "--json")
        fingerprint = (self.first, self.second, self.third)[number - 1].fingerprint.hex()
        subject = f"document {fingerprint} of {self.name}"
        return found.exit_code, [one["text"] for one in json.loads(found.stdout) if one["subject"] == subject]

    def ship(self, *documents, refused=(), partitions=None):
        """Sends reports of a minute; returns once all are counted, or rejected."""
        for document in (*documents, *refused):
            for i in range(3 * (partitions or self.partitions)):
                drawn = document.oracle.perturb(self.rng.integers(document.oracle.domain_size, size=1))
                segment = SENT[i % len(SENT)] if document.segment else None
                at = self.began + self.minute * MINUTE + 20_000 + i
                value = frames.encode(document, drawn, segment)
                self.sent.futures.append(self.put(value, i % (partitions or self.partitions), timestamp=at))
                if document in refused:
                    self.refused += 1
                else:
                    self.recorded.append(Record(document, segment, self.minute, drawn))
        self.minute += 1
        self.settle()
        ends = self.ends()
        until(lambda: self.totals()["offsets"] == ends, "all counted")
        totals = self.totals()
        assert totals["accepted"] == len(self.recorded)
        assert totals["rejected"] == ({"retired": self.refused} if self.refused else {})

    def take_over(self, toml):
        """Kills all workers with SIGKILL, and starts one that claims everything."""
        self.toml = toml
        dead = [worker for worker in self.workers if worker.alive()]
        for worker in dead:
            worker.kill()
        (worker,) = self.join(1, dead)
        until(lambda: len(worker.owned()) == self.partitions, f"{worker.log.name} owns all")
        return worker

    def add_partition(self):
        self.partitions += 1
        self.admin.create_partitions({self.topic: NewPartitions(self.partitions)})
        self.producer = self.open_producer()  # its metadata are new

    def expect(self, snapshot, records):
        """Asserts the population, Σ n f / Σ n over the documents that have a label."""
        by_document = {
            document: [one.reports for one in records if one.document is document]
            for document in (self.first, self.second, self.third)
        }
        known, sums = Counter[str](), Counter[str]()
        for document, reports in by_document.items():
            if reports:
                for label, share in zip(
                    document.labels, base(document, np.concatenate(reports)), strict=True
                ):
                    known[label] += len(reports)
                    sums[label] += len(reports) * share
        assert snapshot.reports == len(records)
        expected = [sums[label] / known[label] if known[label] else math.nan for label in snapshot.labels]
        np.testing.assert_allclose(snapshot.bodies["base"].frequencies, expected, rtol=1e-9, atol=1e-12)
        each_known = [known[label] for label in snapshot.labels]
        assert each_known == (
            [len(records)] * len(each_known) if snapshot.known is None else [*snapshot.known]
        )


def test_an_upgrade_of_a_running_stream_loses_nothing(kafka, redis_url, tmp_path):
    table = INLINE | WINDOWS
    with Fleet(kafka, redis_url, tmp_path, partitions=PARTITIONS, reports=REPORTS, **table) as world:
        first, second, third = world.first, world.second, world.third
        one, two, three = world.toml, world.configured("two", 2, 1), world.configured("three", 3, 2, 1)
        retired = world.configured("retired", 3, 2, retired=["1.json"])
        again = world.configured("again", 3, 2, 1, revision=1)

        (old,) = world.join(1)
        world.ship(first)
        assert world.check(2, two)[0] == 1
        world.toml = two
        (new,) = world.join(1)
        until(lambda: len(old.owned()) == len(new.owned()) == 2, "both own two partitions")
        until(lambda: world.check(2, two)[1][-1].startswith("in force in 2 of 4 partitions"), "half is done")
        assert world.check(2, two)[0] == 1
        world.ship(first)
        old.kill()
        world.expel([old.member])
        until(lambda: world.check(2, two)[0] == 0, "the second document in force")
        world.ship(first, second)

        # in a new partition, too, a worker that lacks the document joins it, because the head shows it
        world.add_partition()
        assert world.check(2, two)[0] == 1
        old = world.take_over(one)
        until(lambda: world.check(2, two)[0] == 0, "the second document in force in the new partition, too")
        world.ship(first, second, partitions=4)  # the new partition waits for a publisher with all documents
        (why,) = {event["why"] for event in old.events("config.outdated")}
        assert f"document {second.fingerprint.hex()} is recorded" in why
        until(lambda: old.events("documents.unnamed"), "its publisher waits")

        assert world.check(3, three)[0] == 1
        world.take_over(three)
        until(lambda: world.check(3, three)[0] == 0, "the third document in force")
        world.ship(first, second, third)
        world.take_over(two)
        world.ship(first, second, third)

        world.take_over(retired)
        gone = "retired in 5 of 5 partitions"
        until(
            lambda: world.check(3, retired)[0] == 0 and world.check(1, retired)[1][-1].startswith(gone), gone
        )
        world.ship(second, third, refused=[first])
        world.take_over(one)  # it would accept the document
        world.ship(second, third, refused=[first])

        assert world.check(1, again)[0] == 1
        world.take_over(again)
        until(lambda: world.check(1, again)[0] == 0, "the first document in force again")
        world.ship(first, second, third)
        world.take_over(retired)  # it would retire the document
        world.ship(first, second, third)
        newest = world.covered()

        # the topic
        records = world.recorded
        assert newest.labels == ("red", "green", "blue", "grey", "violet")
        world.expect(newest, records)
        parts = {part_of(world.name, segment=name): name for name in ("DE", "US", "US:4.3")}
        parts |= {
            part_of(world.name, document=each.fingerprint.hex()): each for each in (first, second, third)
        }

        def of(part):
            return [r for r in records if (r.document is part or (isinstance(part, str) and r.is_in(part)))]

        received, closed = world.snapshots.messages(), world.minute - 1
        for name, part in parts.items():
            world.expect(assemble(name, received), of(part))
        for minute in range(closed):
            start = world.began + minute * MINUTE
            for name, some in {
                world.name: records,
                **{name: of(part) for name, part in parts.items()},
            }.items():
                if counted := [record for record in some if record.minute == minute]:
                    window = assemble_window(name, received, "1m", start)
                    assert window.window.final
                    world.expect(window, counted)
        shown = {name: len(of(name)) for name in ("DE", "US", "US:4.3")}
        assert newest.cut.segments == shown
        assert newest.cut.hidden == len(records) - shown["DE"] - shown["US"]
        assert {
            d["fingerprint"]: (d["reports"], d["retired"], d["partitions"]) for d in newest.documents
        } == {
            each.fingerprint.hex(): (len(of(each)), False, world.partitions)
            for each in (first, second, third)
        }

        letters = dead_letters(world, world.refused, once=False)
        assert all(
            headers["__connect.errors.exception.class.name"] == "retired" for _, headers in letters.values()
        )
        audit = json.loads(world.command("audit", "--config", again, "--json").stdout)
        assert (audit["verdict"], audit["lag"], audit["reports"]) == ("equal", 0, len(records))
        world.assert_keys()
