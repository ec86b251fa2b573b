"""The store as workers of layouts 1 and 2 saw it: with their scripts, and with the bytes that they wrote."""

import json
import struct
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, cast

from tests.simulation.store import Pipeline
from worker.counting.ports import Metadata, NewerState, StoredPartition
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

    def _peeking(self, partition: int) -> Any:
        return self._readable((yield from super()._peeking(partition)))

    def _claiming(self, partition: int, found: Metadata | None, initial: Metadata) -> Any:
        lineage = json.loads(initial.lineage) | {"layout": self.layout, "windows": "cumulative"}
        begin = replace(initial, lineage=json.dumps(lineage, sort_keys=True), totals=_totals(initial.totals))
        return self._readable((yield from super()._claiming(partition, found, begin)))

    def _staging(self, partition: int, attempt: str, blobs: Mapping[str, bytes]) -> Any:
        older = {cell: _blob(blob, self.layout) for cell, blob in blobs.items()}
        return super()._staging(partition, attempt, older)

    def _promoting(self, partition: int, attempt: str, before: Metadata, after: Metadata) -> Any:
        return super()._promoting(partition, attempt, before, replace(after, totals=_totals(after.totals)))

    def _cutting(self, partition: int) -> Any:
        return self._readable((yield from super()._cutting(partition)))

    def _readable(self, found: Any) -> Any:
        metadata = found.metadata if isinstance(found, StoredPartition) else found
        if (
            isinstance(metadata, Metadata)
            and (layout := json.loads(metadata.lineage)["layout"]) > self.layout
        ):
            return NewerState(f"the counts in Redis are of layout {layout}: a newer version wrote them")
        return found


class _Older:
    """A client whose scripts compare the lineage before the epoch."""

    def __init__(self, client: Any) -> None:
        self._client = client

    def evaluating(self, text: str, count: int, *rest: Any) -> Any:
        epoch, lineage = (
            text[text.index(begin) : text.index("end\n", text.index(begin)) + 4] if begin in text else ""
            for begin in ("if stored[2] ~= ARGV[2]", "if stored[1] ~= ARGV[1]")
        )
        swapped = text.replace(epoch + lineage, lineage + epoch) if epoch and lineage else text
        return self._client.evaluating(swapped, count, *rest)

    def pipeline(self, transaction: bool) -> Pipeline:
        return Pipeline(self)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)


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
