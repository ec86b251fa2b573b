"""The store as workers of layouts 1 and 2 saw it: with their scripts, and with the bytes that they wrote."""

import json
import struct
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, cast

from worker.counting.ports import Answer, Metadata, NewerState, StoredPartition
from worker.counting.rules import Configured
from worker.store.redis import RedisStore

_WINDOWS = {"undated", "closed", "floor", "dropped", "since", "around"}
"""What totals say since layout 3."""


def of_layout(configured: Configured, layout: int) -> Configured:
    """Returns a configuration as far as workers of a layout know of it."""
    if layout < 3:
        configured = replace(configured, terms=replace(configured.terms, windowing=None))
    if layout < 2:
        configured = replace(configured, terms=replace(configured.terms, max_batch_bytes=None))
    return configured


class OlderStore(RedisStore):
    """What a worker of layout 1 or 2 sees of Redis, and leaves there.

    The code around it is today's. What it makes of layout 3 is turned into its own on its way in; what is stored of a
    newer layout than its own is refused, as those versions did. The scripts of layout 1 compare the lineage before the
    epoch.
    """

    def __init__(self, client: Any, stream: str, layout: int) -> None:
        super().__init__(cast(Any, _Older(client)) if layout == 1 else client, stream)
        self.layout = layout

    def peek(self, partition: int) -> Metadata | None:
        found = super().peek(partition)
        return None if found is None else self._readable(found)

    def claim(self, partition: int, found: Metadata | None, initial: Metadata) -> StoredPartition | None:
        lineage = json.loads(initial.lineage) | {"layout": self.layout, "windows": "cumulative"}
        begin = replace(initial, lineage=json.dumps(lineage, sort_keys=True), totals=_totals(initial.totals))
        loaded = super().claim(partition, found, begin)
        return None if loaded is None else replace(loaded, metadata=self._readable(loaded.metadata))

    def stage(self, partition: int, attempt: str, blobs: Mapping[str, bytes]) -> None:
        if self.layout == 1:
            blobs = {cell: _blob(blob) for cell, blob in blobs.items()}
        super().stage(partition, attempt, blobs)

    def promote(self, partition: int, attempt: str, before: Metadata, after: Metadata) -> Answer:
        return super().promote(partition, attempt, before, replace(after, totals=_totals(after.totals)))

    def cut(self, partition: int) -> StoredPartition | None:
        found = super().cut(partition)
        return None if found is None else replace(found, metadata=self._readable(found.metadata))

    def _readable(self, metadata: Metadata) -> Metadata:
        if (layout := json.loads(metadata.lineage)["layout"]) > self.layout:
            raise NewerState(f"the counts in Redis are of layout {layout}: a newer version wrote them")
        return metadata


class _Older:
    """A client whose scripts compare the lineage before the epoch."""

    def __init__(self, client: Any) -> None:
        self._client = client

    def eval(self, text: str, count: int, *rest: Any) -> Any:
        epoch, lineage = (
            text[text.index(begin) : text.index("end\n", text.index(begin)) + 4] if begin in text else ""
            for begin in ("if stored[2] ~= ARGV[2]", "if stored[1] ~= ARGV[1]")
        )
        swapped = text.replace(epoch + lineage, lineage + epoch) if epoch and lineage else text
        return self._client.eval(swapped, count, *rest)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)


def _totals(totals: str) -> str:
    said = {name: value for name, value in json.loads(totals).items() if name not in _WINDOWS}
    assert not said["late"]  # it counted without windows
    return json.dumps(said | {"late": 0}, sort_keys=True)


def _blob(blob: bytes) -> bytes:
    magic, entries, offset, flush, reports, width = struct.unpack_from("<4sIq16sqQ", blob)
    assert magic == b"LDP2"
    state = struct.unpack_from(f"<{entries}{' BH I   Q'[width]}", blob, 48)
    return struct.pack(f"<4sIq16sq{entries}q", b"LDP1", entries, offset, flush, reports, *state)
