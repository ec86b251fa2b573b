"""Clients get a new document when `check --document` allows it."""

import json
from collections import defaultdict

import pytest
from click.testing import CliRunner

import ldp
from ldp import frames
from tests.support.harness import World, until
from worker.cli import cli

pytestmark = [pytest.mark.integration, pytest.mark.long]

TABLE = {"protocol": "grr", "epsilon": "1", "domain_size": 3, "labels": ["red", "green", "blue"]}


def run(*arguments):
    return CliRunner().invoke(cli, [*map(str, arguments)])


def test_a_document_is_shipped_when_it_is_in_force_everywhere(kafka, redis_url, tmp_path):
    with World(kafka, redis_url, tmp_path, partitions=2, **TABLE) as world:
        old = world.stream
        new = ldp.Stream(world.name, ldp.OUE("2", 4), [*TABLE["labels"], "grey"])
        printed = run("document", "--config", world.toml)
        (tmp_path / "old.json").write_text(printed.stdout, encoding="utf-8")
        (tmp_path / "new.json").write_text(json.dumps(new.document()), encoding="utf-8")
        (worker,) = world.start()
        world.send(40)
        world.covered()

        inline = dict.fromkeys(TABLE)
        both = world.configure("both", **inline, documents=["new.json", "old.json"])
        retired = world.configure("retired", **inline, documents=["new.json"], retired=["old.json"])

        def check(toml, document="new.json"):
            found = run("check", "--config", toml, "--document", tmp_path / document, "--json")
            texts = defaultdict(list)
            for one in json.loads(found.stdout):
                texts[one["subject"]].append(one["text"])
            return found.exit_code, texts

        def names(stream):
            return f"document {stream.fingerprint.hex()} of {world.name}"

        def put(stream, records):
            reports = stream.oracle.perturb([0] * records)
            for i in range(records):
                world.put(frames.encode(stream, reports[i : i + 1]), i % 2)
            world.producer.flush()

        code, texts = check(both)
        assert code == 1
        change, force = texts[names(new)]
        assert change.startswith("safe, with a warning: added; ")
        assert force.startswith("in force in 0 of 2 partitions")
        assert worker.terminate() == 0

        worker = world.launch(both)
        until(lambda: check(both)[0] == 0, "the new document in force")
        put(new, 30)
        until(lambda: world.totals()["accepted"] == 70, "new reports counted")
        fingerprint = ("--fingerprint", new.fingerprint.hex())
        until(
            lambda: (
                json.loads(run("document", "--config", world.toml, *fingerprint).stdout) == new.document()
            ),
            "a snapshot with the labels of the new document",
        )

        assert worker.terminate() == 0
        worker = world.launch(world.toml)  # an old worker counts the new document, too
        put(new, 10)
        until(lambda: world.totals()["accepted"] == 80, "new reports counted by an old worker")
        assert "config.outdated" in worker.log.read_text(encoding="utf-8")
        assert worker.terminate() == 0

        worker = world.launch(retired)
        until(lambda: check(retired)[1][names(old)][-1].startswith("retired in 2 of 2 partitions"), "retired")
        put(old, 6)
        until(lambda: world.totals()["rejected"] == {"retired": 6}, "old reports rejected")
        assert check(retired, "old.json")[0] == 1
        assert worker.terminate() == 0
        change, force = check(both)[1][names(old)]
        assert change.startswith("impossible: retired at revision 0")
        assert force.startswith("retired in 2 of 2 partitions")


def test_segments_are_published_and_can_be_declared_later(kafka, redis_url, tmp_path):
    with World(kafka, redis_url, tmp_path, partitions=2, **TABLE, segment="country:app") as world:
        stream = world.stream

        def put(segment, records):
            reports = stream.oracle.perturb([0] * records)
            for i in range(records):
                world.put(frames.encode(stream, reports[i : i + 1], segment), i % 2)
            world.producer.flush()

        def configured(name, segments, revision=None, **lists):
            return world.configure(
                name, segments=segments, revision=revision, snapshots={"parts_fewest": 10}, **lists
            )

        def head():
            newest = world.snapshots.newest()
            return newest and (newest.reports, dict(newest.cut.segments), newest.cut.hidden)

        first, more = configured("first", ["DE"]), configured("more", ["DE", "US:4.3"])
        worker = world.launch(first)
        put("DE:4.2", 20)
        put("US:4.3", 30)
        put("FR:4.3", 4)
        until(lambda: world.totals()["accepted"] == 54, "reports counted")
        world.put(frames.encode(stream, stream.oracle.perturb([0]), "DE:1")[:-1])  # without a report
        until(lambda: sum(world.totals()["rejected"].values()) == 1, "a record rejected")
        until(lambda: (found := head()) and found[0] == 54 and found[1] == {"DE": 20}, "the part DE")
        assert worker.terminate() == 0

        found = json.loads(run("check", "--config", more, "--json").stdout)
        assert [one["text"] for one in found if one["subject"] == f"segment US:4.3 of {world.name}"] == [
            "safe: added; earlier reports stay in the rest of their prefix"
        ]
        worker = world.launch(more)
        until(lambda: "rules.added" in worker.log.read_text(encoding="utf-8"), "a rule")
        put("US:4.3", 12)
        until(lambda: (found := head()) and found[0] == 66, "a snapshot")
        until(lambda: head()[1].get("US:4.3") == 12, "the part US:4.3")
        shown = run("watch", "--config", more, "--stream", f"{world.name}:US:4.3", "--once", "--json")
        assert json.loads(shown.stdout)["head"]["reports"] == 12
        assert worker.terminate() == 0


def test_the_next_publisher_continues_from_the_released_counts_of_segments(kafka, redis_url, tmp_path):
    with World(kafka, redis_url, tmp_path, partitions=2, **TABLE, segment="country") as world:
        stream = world.stream
        few = world.configure("few", segments=["DE"], snapshots={"fewest_new": 10, "parts_fewest": 1})

        def put(segment, records):
            reports = stream.oracle.perturb([0] * records)
            for i in range(records):
                world.put(frames.encode(stream, reports[i : i + 1], segment), i % 2)
            world.producer.flush()

        def published():
            newest = world.snapshots.newest()
            return newest and (newest.reports, dict(newest.cut.segments), newest.cut.hidden)

        worker = world.launch(few)
        put("DE", 10)
        put("FR", 9)
        until(lambda: world.totals()["accepted"] == 19, "reports counted")
        until(lambda: published() == (10, {"DE": 10}, 0), "the released segment")
        for segment, records, due in (("FR", 1, (20, {"DE": 10}, 10)), ("DE", 10, (30, {"DE": 20}, 10))):
            assert worker.terminate() == 0
            worker = world.launch(few)  # it reads the released counts from the snapshot topic
            put(segment, records)
            until(lambda due=due: published() == due, "the next increment")
        assert worker.terminate() == 0
        assert json.loads(run("audit", "--config", few, "--json").stdout)["verdict"] == "equal"
