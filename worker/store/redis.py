"""The store: Redis. Every step is one command or one script beside this file; see `layout` for the keys."""

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from redis import RedisError

from worker.counting import layout
from worker.counting.ports import Answer, Metadata, StoredPartition, Unavailable
from worker.redis.advice import remedy, said
from worker.redis.connecting import Client
from worker.redis.errors import ERRORS
from worker.redis.script import Script

STAGED_SECONDS = 600
"""How long a staged blob waits for its promotion: far longer than any attempt, short enough to leave no litter."""
_NAMES = ("claim", "promote", "install", "compare", "cut")
_TEXTS = tuple((Path(__file__).parent / f"{name}.lua").read_text() for name in _NAMES)

_T = TypeVar("_T")


class RedisStore:
    """The counts of one stream in Redis, as `worker.counting.ports.Store` describes them.

    Args:
        client: from `connect`; may be shared between threads.
        stream: the stream's name.
    """

    def __init__(self, client: Client, stream: str) -> None:
        self._client, self._stream = client, stream
        self._claim, self._promote, self._install, self._compare, self._cut = (
            Script(client, text) for text in _TEXTS
        )
        self._cells: dict[int, list[str]] = {}

    def peek(self, partition: int) -> Metadata | None:
        """Returns a partition's metadata, or None."""
        fields: Any = _call(lambda: self._client.hgetall(self._meta(partition)))
        return _metadata(fields) if fields else None

    def claim(self, partition: int, found: Metadata | None, initial: Metadata) -> StoredPartition | None:
        """Raises the epoch and replaces the lineage by compare-and-set, and loads the partition, in one script."""
        expected = ["", ""] if found is None else [str(found.epoch), found.lineage]
        fields = [item for pair in layout.fields(initial).items() for item in pair]

        def claim(cells: list[str]) -> Any:
            args = [len(cells), *expected, initial.lineage, *cells, *fields]
            return self._run(self._claim, partition, self._live(partition, cells), args)

        return self._loaded(partition, claim, [] if found is None else list(found.blobs))

    def stage(self, partition: int, attempt: str, blobs: Mapping[str, bytes]) -> None:
        """Writes the attempt's blobs, to vanish by themselves."""
        pipeline = self._client.pipeline(transaction=False)
        for cell, blob in blobs.items():
            pipeline.set(layout.staged_key(self._stream, partition, attempt, cell), blob, ex=STAGED_SECONDS)
        _call(lambda: _first_error(pipeline.execute(raise_on_error=False)))

    def promote(self, partition: int, attempt: str, before: Metadata, after: Metadata) -> Answer:
        """Compares and promotes in one script that reads everything before its first write."""
        changed = [cell for cell, flush in after.blobs.items() if flush == after.flush]
        keys = self._both(partition, attempt, changed)
        keys += self._live(partition, before.blobs.keys() - after.blobs.keys())
        args = [before.lineage, before.epoch, before.offset, before.flush]
        fields = layout.fields(after)
        new = [fields[name] for name in ("offset", "flush", "blobs", "totals")]
        return Answer(self._run(self._promote, partition, keys, [*args, *new, len(changed)]).decode())

    def install(self, partition: int, attempt: str, metadata: Metadata) -> Answer:
        """Puts counts where there are none, in one script that reads everything before its first write."""
        fields = layout.fields(metadata)
        compared = {
            name: fields[name] for name in ("lineage", "offset", "flush")
        }  # which the script reads first
        args = [item for pair in (compared | fields).items() for item in pair]
        keys = self._both(partition, attempt, metadata.blobs)
        return Answer(self._run(self._install, partition, keys, args).decode())

    def compare(self, partition: int, held: Metadata) -> Answer:
        """Compares metadata and the presence of blobs in one script."""
        args = [held.lineage, held.epoch, held.offset, held.flush]
        return Answer(self._run(self._compare, partition, self._live(partition, held.blobs), args).decode())

    def cut(self, partition: int) -> StoredPartition | None:
        """Returns a partition's metadata and blobs as they stand together, or None if nothing was claimed yet."""

        def cut(cells: list[str]) -> Any:
            return self._run(self._cut, partition, self._live(partition, cells), cells)

        return self._loaded(partition, cut, self._cells.get(partition, []))

    def _meta(self, partition: int) -> str:
        return layout.meta_key(self._stream, partition)

    def _live(self, partition: int, cells: Iterable[str]) -> list[str]:
        return [layout.cell_key(self._stream, partition, cell) for cell in cells]

    def _both(self, partition: int, attempt: str, cells: Iterable[str]) -> list[str]:
        """Returns the staged and the live key of each cell."""
        stream = self._stream
        return [
            key
            for cell in cells
            for key in (
                layout.staged_key(stream, partition, attempt, cell),
                layout.cell_key(stream, partition, cell),
            )
        ]

    def _loaded(
        self, partition: int, load: Callable[[list[str]], Any], cells: list[str]
    ) -> StoredPartition | None:
        """Loads a partition by a script that says which cells there are, where others are named than there are."""
        while (reply := load(cells)) is not None:
            metadata = _metadata(dict(zip(reply[0][::2], reply[0][1::2], strict=True)))
            self._cells[partition] = cells = list(metadata.blobs)
            if len(reply) == 3:
                found = zip(*reply[1:], strict=True)
                return StoredPartition(metadata, {name.decode(): blob for name, blob in found if blob})
        return None

    def _run(self, script: Script, partition: int, keys: list[str], args: list[Any]) -> Any:
        return _call(lambda: script(keys=[self._meta(partition), *keys], args=args))


def _call(step: Callable[[], _T]) -> _T:
    try:
        return step()
    except ERRORS as error:
        raise Unavailable(f"Redis: {said(error)}", remedy(error)) from error


def _first_error(replies: list[Any]) -> None:
    """Raises the first error of a pipeline as Redis said it: the library would add what was sent, a blob."""
    for reply in replies:
        if isinstance(reply, RedisError):
            raise reply


def _metadata(fields: Mapping[bytes, bytes]) -> Metadata:
    return layout.parse({name.decode(): value.decode() for name, value in fields.items()})
