"""The store in memory."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import TypeVar

from tests.support.memory.world import World
from worker.counting import layout
from worker.counting.head import Head
from worker.counting.ports import (
    Answer,
    Failure,
    Metadata,
    StateLost,
    StoredPartition,
    Unavailable,
)

T = TypeVar("T")


class MemoryStore:
    """The store: the scripts next to `worker.store.redis`, in Python."""

    def __init__(self, world: World) -> None:
        self.world = world

    # one partition after the other, as each has its own outcome

    def peek_all(self, partitions: Collection[int]) -> dict[int, Metadata | Failure | None]:
        return {p: _outcome(self.peek, p) for p in partitions}

    def claim_all(
        self, wanted: Mapping[int, tuple[Metadata | None, Metadata]]
    ) -> dict[int, StoredPartition | Failure | None]:
        return {p: _outcome(self.claim, p, *each) for p, each in wanted.items()}

    def stage_all(
        self, attempts: Mapping[int, tuple[str, Mapping[str, bytes]]]
    ) -> dict[int, Unavailable | None]:
        return {p: _unless(self.stage, p, *each) for p, each in attempts.items()}

    def promote_all(
        self, attempts: Mapping[int, tuple[str, Metadata, Metadata]]
    ) -> dict[int, Answer | Unavailable]:
        return {p: _unless(self.promote, p, *each) for p, each in attempts.items()}

    def compare_all(self, held: Mapping[int, Metadata]) -> dict[int, Answer | Unavailable]:
        return {p: _unless(self.compare, p, metadata) for p, metadata in held.items()}

    def cut_all(self, partitions: Collection[int]) -> dict[int, StoredPartition | Failure | None]:
        return {p: _outcome(self.cut, p) for p in partitions}

    # one partition

    def peek(self, partition: int) -> Metadata | None:
        stored = self._stored(partition)
        return None if stored is None else stored.metadata

    def claim(self, partition: int, found: Metadata | None, initial: Metadata) -> StoredPartition | None:
        stored = self._stored(partition)
        expected = None if found is None else (found.epoch, found.lineage)
        if (None if stored is None else (stored.metadata.epoch, stored.metadata.lineage)) != expected:
            return None
        if stored is None:
            head = self.world.heads[-1] if self.world.heads else Head()
            fresh = head.offsets.get(partition, 0) <= initial.offset
            assert fresh or self.world.recount_after, "a fresh start of what was published"
            if self.world.recount_after:
                self.world.starts.pop(partition, None)  # it may begin elsewhere
            stored = StoredPartition(initial, {})
        else:
            raised = replace(stored.metadata, epoch=stored.metadata.epoch + 1)
            stored = replace(stored, metadata=raised)
        self.world.stored[partition] = stored
        return stored

    def stage(self, partition: int, attempt: str, blobs: Mapping[str, bytes]) -> None:
        self.world.staged[partition, attempt] = dict(blobs)

    def promote(self, partition: int, attempt: str, before: Metadata, after: Metadata) -> Answer:
        world = self.world
        stored = world.stored.get(partition)
        if stored is None:
            return Answer.LINEAGE
        now = stored.metadata
        if now.epoch != before.epoch:
            return Answer.FENCED
        if now.lineage != before.lineage:
            return Answer.LINEAGE
        if (now.offset, now.commit_id) == (after.offset, after.commit_id):
            return Answer.DONE
        if (now.offset, now.commit_id) != (before.offset, before.commit_id):
            return Answer.CONFLICT
        staged = world.staged.get((partition, attempt), {})
        changed = {window for window, commit_id in after.blobs.items() if commit_id == after.commit_id}
        if not changed <= staged.keys():
            return Answer.STAGING_EXPIRED
        world.past.setdefault(partition, []).append(stored)
        metadata = replace(
            now, offset=after.offset, commit_id=after.commit_id, blobs=after.blobs, totals=after.totals
        )
        promoted = {window: staged.pop(window) for window in changed}
        blobs = {**stored.blobs, **promoted}
        world.stored[partition] = StoredPartition(metadata, {n: blobs[n] for n in after.blobs if n in blobs})
        world.verify(partition, stored)
        return Answer.DONE

    def install(self, partition: int, attempt: str, metadata: Metadata) -> Answer:
        world = self.world
        if (stored := world.stored.get(partition)) is not None:
            now = stored.metadata
            same = (now.lineage, now.offset, now.commit_id) == (
                metadata.lineage,
                metadata.offset,
                metadata.commit_id,
            )
            return Answer.DONE if same else Answer.CONFLICT
        staged = world.staged.get((partition, attempt), {})
        if not metadata.blobs.keys() <= staged.keys():
            return Answer.STAGING_EXPIRED
        world.imported[partition] = metadata.offset
        world.starts.pop(partition, None)  # earlier data is lost
        world.stored[partition] = StoredPartition(metadata, {n: staged.pop(n) for n in metadata.blobs})
        world.verify(partition)
        return Answer.DONE

    def compare(self, partition: int, held: Metadata) -> Answer:
        stored = self.world.stored.get(partition)
        if stored is None:
            return Answer.LINEAGE
        now = stored.metadata
        if now.epoch != held.epoch:
            return Answer.FENCED
        if now.lineage != held.lineage:
            return Answer.LINEAGE
        if (now.offset, now.commit_id) != (held.offset, held.commit_id):
            return Answer.CONFLICT
        return Answer.DONE if held.blobs.keys() <= stored.blobs.keys() else Answer.LINEAGE

    def cut(self, partition: int) -> StoredPartition | None:
        return self._stored(partition)

    def _stored(self, partition: int) -> StoredPartition | None:
        """Returns the stored state, with its metadata parsed from hash fields as for Redis."""
        if (stored := self.world.stored.get(partition)) is None:
            return None
        key = layout.meta_key(self.world.stream.name, partition)
        fields = layout.fields(stored.metadata, key) | self.world.changed_fields.get(partition, {})
        return replace(stored, metadata=layout.parse(fields, key))


def _outcome(step: Callable[..., T], *args: object) -> T | Failure:
    try:
        return _unless(step, *args)
    except StateLost as error:
        return error


def _unless(step: Callable[..., T], *args: object) -> T | Unavailable:
    try:
        return step(*args)
    except Unavailable as error:
        return error
