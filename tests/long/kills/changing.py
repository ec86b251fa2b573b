"""A stream whose documents and segments change while workers are killed."""

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np

import ldp
from ldp import frames
from ldp.snapshot import assemble, part_of
from tests.long.kills.points import Ground
from tests.support.harness import Message, Worker, assert_snapshot_topic, foreign, until
from tests.support.harness.archive import records
from tests.support.harness.truth import Reports
from worker import config

_LABELS = tuple(f"v{i}" for i in range(40))
_SEGMENTS = ["DE", "FR", "US"]
"""Segments of reports. Two of them are declared at times."""


def _documents(name: str) -> list[ldp.Stream]:
    return [
        ldp.Stream(name, ldp.OLH("1", 40), _LABELS),
        ldp.Stream(name, ldp.GRR("3", 30), (*_LABELS[20:], *(f"w{i}" for i in range(10)))),
        ldp.Stream(name, ldp.OUE("2", 20), _LABELS[:20][::-1], segment="country"),
    ]


def _lists(stage: int) -> dict[str, Any]:
    """Returns the keys of a stage: each adds, retires or accepts again."""
    files = ["1.json", "2.json", "3.json"]
    if stage < 3:
        live, retired = (["1.json"], ["2.json", "1.json"], ["2.json"])[stage], files[: stage // 2]
        return {"documents": live, "retired": retired}
    revision, odd = divmod(stage - 1, 2)
    retired = [files[revision % 2]] * odd
    gone = ["FR"] * odd
    return {
        "documents": [file for file in reversed(files) if file not in retired],
        "retired": retired,
        "segments": [name for name in ("DE", "FR") if name not in gone],
        "retired_segments": gone,
        "revision": revision,
    }


class Changing(Ground):
    """A ground that changes its configuration before each kill; the seed selects the first one."""

    def __init__(self, kafka: str, redis_url: str, folder: Path, seed: int, fewest_new: int) -> None:
        folder.mkdir(parents=True)
        name = f"s{uuid4().hex[:10]}"
        self.documents, self._stage, self._known = _documents(name), seed % 5, dict[int, int]()
        for number, document in enumerate(self.documents, 1):
            (folder / f"{number}.json").write_text(json.dumps(document.document()), encoding="utf-8")
        inline = dict.fromkeys(("protocol", "epsilon", "domain_size"))
        super().__init__(kafka, redis_url, folder, seed, fewest_new, name=name, **inline)

    def configure(self, file: str, *more: Mapping[str, Any], **changes: Any) -> Path:
        """Writes the configuration of the stage."""
        return super().configure(file, *more, **(_lists(self._stage) | changes))

    def launch(self, toml: Path | None = None, *options: str) -> Worker:
        """Starts a worker, and notes the documents that it knows."""
        worker = super().launch(toml, *options)
        self._known[worker.process.pid] = len(self.served.fleet.documents)
        return worker

    def draw_record(self, n: int, rng: np.random.Generator) -> tuple[bytes, Reports]:
        """Returns a record of any of the documents, whether or not it is accepted."""
        document = self.documents[rng.integers(len(self.documents))]
        drawn = document.oracle.perturb(rng.integers(document.oracle.domain_size, size=n), rng=rng)
        segment = None if document.segment is None else _SEGMENTS[rng.integers(len(_SEGMENTS))]
        return frames.encode(document, drawn, segment), drawn

    def change(self, way: str) -> None:
        """Takes the next configuration.

        The worker that dies while it joins has it, or else one that joins before and can publish all documents.
        """
        if not self.workers:
            return
        self._stage += 1
        self.toml = self.configure(f"worker-{self._stage}")
        self.config = config.load(self.toml, {})
        (self.served,) = self.config.streams
        if way != "joins":
            self._counting += self.join(1)
            self.changed()
            self._drop(self._counting[:-2])

    def changed(self) -> None:
        """Replaces the workers that lack a document, as their publisher waits."""
        newest = len(self.served.fleet.documents)
        old = [worker for worker in self._counting if self._known[worker.process.pid] < newest]
        if len(old) == len(self._counting):
            self._counting += self.join(1)
        self._drop(old)

    def _drop(self, old: list[Worker]) -> None:
        for worker in old:
            worker.kill()
            self._counting.remove(worker)
        self.expel([worker.member for worker in old if worker.member])

    def finish(self) -> None:
        """Ends the load; recounts the documents by the recorded rules."""
        self._sending.__exit__()
        last = None if self._fewest_new else self.covered()
        self.settle()
        until(lambda: self.audit().lag == 0, "all is counted")
        self.assert_audit_equal()
        last = last or self.snapshots.newest()
        assert last is not None and last.complete
        assert assert_snapshot_topic(self) == last.sequence
        self.published.read(last.sequence)
        accepted, rejected = self._recount()
        totals = self.totals()
        assert (totals["accepted"], totals["rejected"]) == (accepted.total(), rejected)
        assert accepted.total() + rejected.total() == self._sending.records + self._malformed
        verdict = self.audit()
        assert verdict.parts == verdict.parts_recounted
        if self._fewest_new:
            assert last.cut.released is not None
            assert_increments(foreign(self.kafka, self.config.snapshots.topic), self._fewest_new)
            return
        assert {each["fingerprint"]: each["reports"] for each in last.documents} == {
            each["fingerprint"]: 2 * accepted[each["fingerprint"]] for each in last.documents
        }
        assert last.reports == verdict.reports == 2 * accepted.total()
        received = self.snapshots.messages()
        for name in accepted:
            part = assemble(part_of(self.name, document=name), received)
            assert part.reports == 2 * accepted[name]

    def _recount(self) -> tuple[Counter[str], Counter[str]]:
        """Returns accepted records by document, and rejected ones by reason."""
        rules = {}
        for partition in range(self.partitions):
            meta: Any = self.redis.hgetall(f"{{{self.name}:{partition}}}:meta")
            rules[partition] = json.loads(meta[b"totals"])["rules"]
        accepted, rejected = Counter[str](), Counter[str]()
        for record in records(self):
            name, status = record.value[1:5].hex(), list[Any]()
            for rule in rules[record.partition]:
                if rule["offset"] <= record.offset:
                    status = max(status, rule.get("documents", {}).get(name, []))
            if record.value[0] > 2:
                rejected["version"] += 1
            elif status and not status[1]:
                accepted[name] += 1
            else:
                rejected["retired" if status else "fingerprint"] += 1
        return accepted, rejected


def assert_increments(messages: Iterable[Message], fewest: int) -> None:
    """Asserts that each published number of reports grows by 0 or at least m.

    There is one number for each document in each snapshot of the stream, a part or a window, and for each released
    segment of a document.
    """
    published = Counter[tuple[str, str]]()
    for message in messages:
        if not message.value or not message.key.endswith(("/base", "/released")):
            continue
        body = json.loads(message.value)
        if message.key.endswith("/released"):
            numbers = body["reports"]
        else:
            numbers = {one["fingerprint"]: one["reports"] for one in body.get("documents", [body])}
        for name, n in numbers.items():
            new = n - published[message.key, name]
            assert new == 0 or new >= fewest, f"{message.key}: {new} new reports of {name}"
            published[message.key, name] = n
