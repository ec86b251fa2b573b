"""The store in memory as the last version has it that writes layout 1: with its scripts, and with its bytes."""

import json
import struct
from collections.abc import Mapping
from dataclasses import replace

from tests.faults.memory.store import MemoryStore
from worker.counting.ports import Answer, Metadata, NewerState, StoredPartition


class Layout1Store(MemoryStore):
    """What a worker of layout 1 sees of the store, and leaves there.

    The code around it is today's. What it makes of layout 2 is turned into layout 1 on its way in; what is stored of
    layout 2 is refused, as that version did; and the scripts compare the lineage before the epoch, as its own do.
    """

    def peek(self, partition: int) -> Metadata | None:
        found = super().peek(partition)
        return None if found is None else _readable(found)

    def claim(self, partition: int, found: Metadata | None, initial: Metadata) -> StoredPartition | None:
        begin = replace(initial, lineage=_of_layout_1(initial.lineage))
        loaded = super().claim(partition, found, begin)
        return None if loaded is None else replace(loaded, metadata=_readable(loaded.metadata))

    def stage(self, partition: int, attempt: str, blobs: Mapping[str, bytes]) -> None:
        super().stage(partition, attempt, {window: _blob(blob) for window, blob in blobs.items()})

    def promote(self, partition: int, attempt: str, before: Metadata, after: Metadata) -> Answer:
        if self._replaced(partition, before):
            return Answer.LINEAGE
        return super().promote(partition, attempt, before, after)

    def compare(self, partition: int, held: Metadata) -> Answer:
        return Answer.LINEAGE if self._replaced(partition, held) else super().compare(partition, held)

    def cut(self, partition: int) -> StoredPartition | None:
        found = super().cut(partition)
        return None if found is None else replace(found, metadata=_readable(found.metadata))

    def _replaced(self, partition: int, held: Metadata) -> bool:
        stored = self.world.stored.get(partition)
        return stored is None or stored.metadata.lineage != held.lineage


def _readable(metadata: Metadata) -> Metadata:
    if (layout := json.loads(metadata.lineage)["layout"]) > 1:
        raise NewerState(f"the counts in Redis are of layout {layout}: a newer version wrote them")
    return metadata


def _of_layout_1(lineage: str) -> str:
    return json.dumps(json.loads(lineage) | {"layout": 1}, sort_keys=True)


def _blob(blob: bytes) -> bytes:
    magic, entries, offset, flush, reports, width = struct.unpack_from("<4sIq16sqQ", blob)
    assert magic == b"LDP2"
    state = struct.unpack_from(f"<{entries}{' BH I   Q'[width]}", blob, 48)
    return struct.pack(f"<4sIq16sq{entries}q", b"LDP1", entries, offset, flush, reports, *state)
