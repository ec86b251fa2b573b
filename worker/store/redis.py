"""The store in Redis; `worker.counting.layout` describes its keys.

A step on a partition is one command or one script in this folder, except that staging takes one command per blob. Steps
on many partitions are sent together, without MULTI, and each has its own outcome.
"""

from collections.abc import Callable, Collection, Generator, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from worker.counting import layout
from worker.counting.ports import Answer, Failure, Metadata, StateLost, StoredPartition, Unavailable
from worker.redis.advice import described, remedy
from worker.redis.connecting import Client
from worker.redis.errors import ERRORS
from worker.redis.pipelining import Command, together
from worker.redis.script import Script

STAGED_SECONDS = 600
"""Expiry of staged blobs: far longer than an attempt, short enough to free memory after a failure."""
_NAMES = ("claim", "promote", "install", "compare", "cut")
_TEXTS = tuple((Path(__file__).parent / f"{name}.lua").read_text() for name in _NAMES)

_T = TypeVar("_T")
_Step = Generator[list[Command], list[Any], _T]
"""A step of one partition: a generator that yields commands, receives their replies, and returns the result.

A reply can be a WRONGTYPE error, which means that another program wrote a key. Other errors end the step.
"""
_WRONG_TYPE = "WRONGTYPE"


class RedisStore:
    """The counts of one stream in Redis; see `worker.counting.ports.Store`.

    Args:
        client: from `connect`; may be shared between threads.
        stream: the stream's name.
    """

    def __init__(self, client: Client, stream: str) -> None:
        self._client, self._stream = client, stream
        self._claim, self._promote, self._install, self._compare, self._cut = (
            Script(client, text) for text in _TEXTS
        )
        self._cut_before: dict[int, Metadata] = {}

    def peek(self, partition: int) -> Metadata | None:
        """Returns a partition's metadata, or None if nothing is stored."""
        return _result(self.peek_all([partition])[partition])

    def stage(self, partition: int, attempt: str, blobs: Mapping[str, bytes]) -> None:
        """Writes the attempt's blobs, which expire."""
        _result(self.stage_all({partition: (attempt, blobs)})[partition])

    def install(self, partition: int, attempt: str, metadata: Metadata) -> Answer:
        """Stores the counts of a partition that has none, in one script."""
        return _result(self._together({partition: self._installing(partition, attempt, metadata)})[partition])

    def peek_all(self, partitions: Collection[int]) -> dict[int, Metadata | Failure | None]:
        """Returns each partition's metadata, or None if nothing is stored."""
        return self._together({p: self._peeking(p) for p in partitions})

    def claim_all(
        self, wanted: Mapping[int, tuple[Metadata | None, Metadata]]
    ) -> dict[int, StoredPartition | Failure | None]:
        """Raises epochs and loads partitions, in one script per partition."""
        return self._together({p: self._claiming(p, *each) for p, each in wanted.items()})

    def stage_all(
        self, attempts: Mapping[int, tuple[str, Mapping[str, bytes]]]
    ) -> dict[int, Unavailable | None]:
        """Writes the attempts' blobs, which expire."""
        return self._together({p: self._staging(p, *each) for p, each in attempts.items()})

    def promote_all(
        self, attempts: Mapping[int, tuple[str, Metadata, Metadata]]
    ) -> dict[int, Answer | Unavailable]:
        """Compares metadata and promotes blobs, in one script per partition."""
        return self._together({p: self._promoting(p, *each) for p, each in attempts.items()})

    def compare_all(self, held: Mapping[int, Metadata]) -> dict[int, Answer | Unavailable]:
        """Checks metadata and the presence of blobs, in one script per partition."""
        return self._together({p: self._comparing(p, metadata) for p, metadata in held.items()})

    def cut_all(self, partitions: Collection[int]) -> dict[int, StoredPartition | Failure | None]:
        """Reads each partition in one step; None if nothing is stored."""
        return self._together({p: self._cutting(p) for p in partitions})

    def _peeking(self, partition: int) -> _Step[Metadata | StateLost | None]:
        key = self._meta(partition)
        (fields,) = yield [Command.plain(key, lambda client: client.hgetall(key))]
        if isinstance(fields, Exception):
            return _mistyped(fields)
        return _metadata(fields, key) if fields else None

    def _claiming(
        self, partition: int, found: Metadata | None, initial: Metadata
    ) -> _Step[StoredPartition | StateLost | None]:
        key = self._meta(partition)

        def args(found: Metadata | None) -> list[Any]:
            if found is None:
                return [
                    0,
                    *[""] * 6,
                    *(item for pair in layout.fields(initial, key).items() for item in pair),
                ]
            expected = [found.epoch, found.lineage, found.commit_id]
            raised = layout.fields(replace(found, epoch=found.epoch + 1), key)
            after = [raised["epoch"], raised["lineage"], raised["checksum"]]
            return [len(found.blobs), *expected, *after, *found.blobs]

        return self._loading(partition, self._claim, args, found)

    def _staging(self, partition: int, attempt: str, blobs: Mapping[str, bytes]) -> _Step[None]:
        keys = {layout.staged_key(self._stream, partition, attempt, cell): blobs[cell] for cell in blobs}
        yield [Command.plain(key, _setting(key, blob)) for key, blob in keys.items()]

    def _promoting(self, partition: int, attempt: str, before: Metadata, after: Metadata) -> _Step[Answer]:
        changed = [cell for cell, commit_id in after.blobs.items() if commit_id == after.commit_id]
        keys = self._staged_and_live(partition, attempt, changed)
        keys += self._live(partition, before.blobs.keys() - after.blobs.keys())
        args = [before.lineage, before.epoch, before.offset, before.commit_id]
        fields = layout.fields(after, self._meta(partition))
        new = [fields[name] for name in ("offset", "commit_id", "blobs", "totals", "checksum")]
        return self._answering(self._promote, partition, keys, [*args, *new, len(changed)])

    def _installing(self, partition: int, attempt: str, metadata: Metadata) -> _Step[Answer]:
        fields = layout.fields(metadata, self._meta(partition))
        compared = {name: fields[name] for name in ("lineage", "offset", "commit_id")}  # order of the script
        args = [item for pair in (compared | fields).items() for item in pair]
        keys = self._staged_and_live(partition, attempt, metadata.blobs)
        return self._answering(self._install, partition, keys, args)

    def _comparing(self, partition: int, held: Metadata) -> _Step[Answer]:
        args = [held.lineage, held.epoch, held.offset, held.commit_id]
        return self._answering(self._compare, partition, self._live(partition, held.blobs), args)

    def _cutting(self, partition: int) -> _Step[StoredPartition | StateLost | None]:
        def args(before: Metadata | None) -> list[str]:
            return [] if before is None else list(before.blobs)

        stored = yield from self._loading(partition, self._cut, args, self._cut_before.get(partition))
        if isinstance(stored, StoredPartition):
            self._cut_before[partition] = stored.metadata
        return stored

    def _answering(self, script: Script, partition: int, keys: list[str], args: list[Any]) -> _Step[Answer]:
        (answer,) = yield [script.on([self._meta(partition), *keys], args)]
        return Answer.LINEAGE if isinstance(answer, Exception) else Answer(answer.decode())

    def _loading(
        self,
        partition: int,
        script: Script,
        args: Callable[[Metadata | None], list[Any]],
        known: Metadata | None,
    ) -> _Step[StoredPartition | StateLost | None]:
        """Loads a partition; runs the script again if ``known`` is outdated."""
        while True:
            keys = [self._meta(partition), *self._live(partition, [] if known is None else known.blobs)]
            (reply,) = yield [script.on(keys, args(known))]
            if reply is None:
                return None
            if isinstance(reply, Exception):
                return _mistyped(reply)
            metadata = _metadata(dict(zip(reply[0][::2], reply[0][1::2], strict=True)), keys[0])
            if isinstance(metadata, StateLost):
                return metadata
            known = metadata
            if len(reply) == 3:
                found = zip(*reply[1:], strict=True)
                return StoredPartition(metadata, {name.decode(): blob for name, blob in found if blob})

    def _meta(self, partition: int) -> str:
        return layout.meta_key(self._stream, partition)

    def _live(self, partition: int, cells: Iterable[str]) -> list[str]:
        return [layout.cell_key(self._stream, partition, cell) for cell in cells]

    def _staged_and_live(self, partition: int, attempt: str, cells: Iterable[str]) -> list[str]:
        stream = self._stream
        return [
            key
            for cell in cells
            for key in (
                layout.staged_key(stream, partition, attempt, cell),
                layout.cell_key(stream, partition, cell),
            )
        ]

    def _together(self, steps: Mapping[int, _Step[_T]]) -> dict[int, _T | Unavailable]:
        """Runs steps of many partitions, with their commands in one pipeline."""
        outcomes = dict[int, _T | Unavailable]()
        replies = dict[int, Any](dict.fromkeys(steps))  # a generator's first send must be None
        while replies:
            due = dict[int, list[Command]]()
            for partition, got in replies.items():
                try:
                    due[partition] = steps[partition].send(got)
                except StopIteration as ended:
                    outcomes[partition] = ended.value
            answers = iter(together(self._client, [one for commands in due.values() for one in commands]))
            replies = {}
            for partition, commands in due.items():
                got = [next(answers) for _ in commands]
                if failed := [one for one in got if isinstance(one, ERRORS) and _WRONG_TYPE not in str(one)]:
                    outcomes[partition] = _unavailable(failed[0])
                else:
                    replies[partition] = got
        return outcomes


def _setting(key: str, blob: bytes) -> Callable[[Any], Any]:
    return lambda client: client.set(key, blob, ex=STAGED_SECONDS)


def _result(outcome: _T | Failure) -> _T:
    if isinstance(outcome, Unavailable | StateLost):
        raise outcome
    return outcome


def _unavailable(error: Exception) -> Unavailable:
    unavailable = Unavailable(f"Redis: {described(error)}", remedy(error))
    unavailable.__cause__ = error
    return unavailable


def _mistyped(error: Exception) -> StateLost:
    return StateLost(f"a key in Redis has another type than the worker wrote ({described(error)})")


def _metadata(fields: Mapping[bytes, bytes], key: str) -> Metadata | StateLost:
    try:
        return layout.parse(layout.decoded(fields), key)
    except StateLost as error:
        return error
