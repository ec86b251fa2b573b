"""The store in memory as the last version has it that writes an older layout: with its scripts, and with its bytes."""

import json
import struct
from collections.abc import Mapping
from dataclasses import replace

from tests.faults.memory.store import MemoryStore
from tests.faults.memory.world import World
from worker.counting.ports import Answer, Metadata, NewerState, StoredPartition

_WINDOWS = {"undated", "closed", "floor", "dropped", "since", "around"}
"""What totals say since layout 3."""


class OlderStore(MemoryStore):
    """What a worker of layout 1 or 2 sees of the store, and leaves there.

    The code around it is today's. What it makes of layout 3 is turned into its own on its way in; what is stored of a
    newer layout than its own is refused, as those versions did. The scripts of layout 1 compare the lineage before the
    epoch, those of layout 2 the epoch first, as today's do.
    """

    def __init__(self, world: World, layout: int) -> None:
        super().__init__(world)
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
        super().stage(partition, attempt, {cell: _blob(blob, self.layout) for cell, blob in blobs.items()})

    def promote(self, partition: int, attempt: str, before: Metadata, after: Metadata) -> Answer:
        if self.layout == 1 and self._replaced(partition, before):
            return Answer.LINEAGE
        return super().promote(partition, attempt, before, replace(after, totals=_totals(after.totals)))

    def compare(self, partition: int, held: Metadata) -> Answer:
        if self.layout == 1 and self._replaced(partition, held):
            return Answer.LINEAGE
        return super().compare(partition, held)

    def cut(self, partition: int) -> StoredPartition | None:
        found = super().cut(partition)
        return None if found is None else replace(found, metadata=self._readable(found.metadata))

    def _replaced(self, partition: int, held: Metadata) -> bool:
        stored = self.world.stored.get(partition)
        return stored is None or stored.metadata.lineage != held.lineage

    def _readable(self, metadata: Metadata) -> Metadata:
        if (layout := json.loads(metadata.lineage)["layout"]) > self.layout:
            raise NewerState(f"the counts in Redis are of layout {layout}: a newer version wrote them")
        return metadata


def _totals(totals: str) -> str:
    said = {name: value for name, value in json.loads(totals).items() if name not in _WINDOWS}
    assert not said["late"]  # it counted without windows
    return json.dumps(said | {"late": 0}, sort_keys=True)


def _blob(blob: bytes, layout: int) -> bytes:
    magic, entries, offset, flush, reports, width, _ = struct.unpack_from("<4sIq16sqII", blob)
    assert magic == b"LDP3"
    if layout == 2:
        return struct.pack("<4sIq16sqQ", b"LDP2", entries, offset, flush, reports, width) + blob[48:]
    state = struct.unpack_from(f"<{entries}{' BH I   Q'[width]}", blob, 48)
    return struct.pack(f"<4sIq16sq{entries}q", b"LDP1", entries, offset, flush, reports, *state)
