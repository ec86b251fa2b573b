"""The layout of a partition's state in Redis: keys, metadata and blobs.

All keys of a partition share the hash tag ``{stream:partition}``, so one script can use them all on a cluster:

- ``{stream:partition}:meta``: a hash with the fields of `Metadata` and a ``checksum``. The checksum is the 16-byte
  BLAKE2b digest, in hexadecimal, of this key and the values of the other fields in order, joined by newlines.
- ``{stream:partition}:window:<cell>``: one blob per cell.
- ``{stream:partition}:staged:<attempt>:<cell>``: a staged blob, which expires.

A cell's name is ``all`` or a pane's start and length in ms, then the document: ``7200000+3600000@8e9f39d0``. A blob has
all segments of a cell, and is little-endian. The header has the magic ``LDP1``, the u32 number K of state entries, the
i64 offset and 16-byte id of the commit that wrote it, the u32 number of segments, and a u32 checksum. For each segment,
in ascending order, the u8 length of its name, the name, the i64 number of reports and the u8 width of an entry follow;
then the states in this order. A state is K unsigned integers of 1, 2, 4 or 8 bytes, the smallest width that fits all of
them. A document without segments has one segment, with an empty name. The checksum is the CRC-32C of the cell's name
and of all other bytes of the blob. The metadata contain the id of the commit that wrote each blob. The id is random, or
a digest of imported counts, so a worker detects a missing, damaged or exchanged blob.
The lineage contains the version of this layout, 1. A worker rejects newer versions.
"""

import hashlib
import json
import struct
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, TypeVar

import crc32c
import numpy as np

import ldp
from ldp.state import narrowest
from worker.counting import invariants, rules
from worker.counting.cells import Cell, Segment, key_of
from worker.counting.documents import Document, opened, seal, unnamed
from worker.counting.lineage import newer
from worker.counting.partition_state import PartitionState
from worker.counting.ports import Metadata, NewerState, StateLost
from worker.counting.rules import Rule
from worker.counting.window_state import WindowState

_HEADER = struct.Struct("<4sIq16sII")
_SEGMENT = struct.Struct("<qB")
HEADER_BYTES = _HEADER.size + 1 + _SEGMENT.size
"""Size of a blob with one segment without a name, except its state."""
_MAGIC = b"LDP1"
_CHECKSUM_BYTES = 4
_CHECKED = ("lineage", "epoch", "offset", "commit_id", "blobs", "totals")
_T = TypeVar("_T")

_MALFORMED = (KeyError, ValueError, TypeError, AttributeError, RecursionError)  # raised by malformed fields


def fields(metadata: Metadata, key: str) -> dict[str, str]:
    """Returns the fields to store under a partition's `meta_key`."""
    blobs = json.dumps(dict(metadata.blobs), sort_keys=True)
    numbers = str(metadata.epoch), str(metadata.offset)
    values = metadata.lineage, *numbers, metadata.commit_id, blobs, metadata.totals
    checked = dict(zip(_CHECKED, values, strict=True))
    return checked | {"checksum": _checksum(checked, key)}


def _checksum(fields: Mapping[str, str], key: str) -> str:
    text = "\n".join([key, *(fields[name] for name in _CHECKED)])
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def decoded(fields: Mapping[bytes, bytes]) -> dict[str, str]:
    """Decodes a Redis hash's fields; invalid UTF-8 fails the checksum later."""
    return {name.decode(errors="replace"): value.decode(errors="replace") for name, value in fields.items()}


def parse(fields: Mapping[str, str], key: str) -> Metadata:
    """Parses stored metadata fields; raises StateLost or NewerState."""
    if (part := newer(fields.get("lineage", ""))) is not None:
        raise NewerState(
            f"the counts in Redis have {part}: a newer version of ldp-worker wrote them. Run that version, or a newer"
            " one: it continues from these counts, which are complete."
        )
    try:
        if fields["checksum"] != _checksum(fields, key):
            raise StateLost("the metadata in Redis is damaged, or of another partition: wrong checksum")
        if unknown := fields.keys() - {*_CHECKED, "checksum"}:
            raise StateLost(f"the metadata in Redis has unknown fields: {sorted(unknown)}")
        blobs = dict(json.loads(fields["blobs"]))
        if not all(isinstance(text, str) for text in (*blobs, *blobs.values())):
            raise TypeError("blobs must map cells to commit ids")
        epoch, offset = int(fields["epoch"]), int(fields["offset"])
        return Metadata(fields["lineage"], epoch, offset, fields["commit_id"], blobs, fields["totals"])
    except _MALFORMED as error:
        raise StateLost(f"metadata with fields {sorted(fields)} cannot be read ({error!r})") from None


def hash_tag(stream: str, partition: int) -> str:
    """Returns the prefix that all keys of a partition share."""
    return f"{{{stream}:{partition}}}"


def meta_key(stream: str, partition: int) -> str:
    """Returns the key of a partition's metadata."""
    return f"{hash_tag(stream, partition)}:meta"


def cell_key(stream: str, partition: int, cell: str) -> str:
    """Returns the key of a cell's live blob."""
    return f"{hash_tag(stream, partition)}:window:{cell}"


def staged_key(stream: str, partition: int, attempt: str, cell: str) -> str:
    """Returns the key under which a commit attempt stages a cell's blob."""
    return f"{hash_tag(stream, partition)}:staged:{attempt}:{cell}"


def initial(lineage: str, state: PartitionState) -> Metadata:
    """Returns the metadata that the first claim of a partition writes."""
    return Metadata(lineage, 1, state.offset, "", {}, totals(state))


def dump(state: PartitionState, before: Metadata, commit_id: str) -> tuple[Metadata, dict[str, bytes]]:
    """Encodes a state; returns metadata and the blobs of changed cells."""
    blobs, written = {}, {}
    for key, cells in state.cells.items():
        name = str(key)
        written[name] = commit_id if key in state.changed else before.blobs[name]
        if key in state.changed:
            blobs[name] = _blob(name, cells, state.offset, commit_id)
    after = replace(before, offset=state.offset, commit_id=commit_id, blobs=written, totals=totals(state))
    return after, blobs


def _blob(name: str, cells: Mapping[Segment, Cell], offset: int, commit_id: str) -> bytes:
    listed = [
        (segment.encode(), cells[segment].reports, narrowest(cells[segment].state))
        for segment in sorted(cells)
    ]
    size = len(listed[0][2])
    header = _HEADER.pack(_MAGIC, size, offset, bytes.fromhex(commit_id), len(listed), 0)[:-_CHECKSUM_BYTES]
    parts = [bytes([len(text)]) + text + _SEGMENT.pack(n, counts.itemsize) for text, n, counts in listed]
    body = b"".join([*parts, *(counts.data for _, _, counts in listed)])
    return header + _crc(name, header, body).to_bytes(_CHECKSUM_BYTES, "little") + body


def load(fleet: ldp.Fleet, metadata: Metadata, blobs: Mapping[str, bytes]) -> PartitionState:
    """Decodes a state; raises StateLost if it is damaged, invalid or foreign."""
    sealed = documents(metadata)
    if why := unnamed(sealed, fleet):
        raise StateLost("; ".join(why))
    state = _read(
        metadata,
        lambda stored: PartitionState(
            start=stored["start"],
            offset=metadata.offset,
            documents={name: opened(text) for name, text in sealed.items()},
            rules=recorded(metadata),
            accepted=stored["accepted"],
            rejected=dict(stored["rejected"]),
            gaps=[(begin, end) for begin, end in stored["gaps"]],
            windows=WindowState.load(stored),
        ),
    )
    if not metadata.commit_id:
        state.begin_cells()
        if metadata.blobs or metadata.offset != state.start:
            raise StateLost("the metadata has counts, but no commit")
    for name, commit_id in metadata.blobs.items():
        try:
            document = state.documents[(key := key_of(name)).fingerprint]
        except (ValueError, KeyError) as error:
            raise StateLost(
                f"the metadata has counts of {name!r}, of no recorded document ({error!r})"
            ) from None
        state.cells[key] = _cells(document, metadata, name, commit_id, blobs.get(name))
    invariants.demand_state(state)
    return state


def _cells(
    document: Document, metadata: Metadata, name: str, commit_id: str, blob: bytes | None
) -> dict[Segment, Cell]:
    where = f"the counts of {name!r}"
    if blob is None:
        raise StateLost(f"{where} are missing")
    if len(blob) < HEADER_BYTES:
        raise StateLost(f"{where} have {len(blob)} bytes; at least {HEADER_BYTES} are expected")
    size, at = document.oracle.state_size, _HEADER.size
    magic, entries, offset, written, segments, checksum = _HEADER.unpack_from(blob)
    if (magic, entries, written.hex()) != (_MAGIC, size, commit_id):
        raise StateLost(f"{where} have another format, size or commit than the metadata")
    if checksum != _crc(name, blob[: at - _CHECKSUM_BYTES], memoryview(blob)[at:]):
        raise StateLost(f"{where} are damaged: wrong checksum")
    if offset > metadata.offset or (commit_id == metadata.commit_id and offset != metadata.offset):
        raise StateLost(f"{where} have offset {offset}, the metadata {metadata.offset}")
    try:
        return _segments(blob, at, segments, size)
    except (ValueError, IndexError, struct.error) as error:
        raise StateLost(f"{where} have {len(blob)} bytes that cannot be read ({error})") from None


def _segments(blob: bytes, at: int, segments: int, size: int) -> dict[Segment, Cell]:
    """Reads the segments of a blob; the caller handles malformed ones."""
    listed = list[tuple[str, int, int]]()
    for _ in range(segments):
        begin, end = at + 1, at + 1 + blob[at]
        listed.append((blob[begin:end].decode("ascii"), *_SEGMENT.unpack_from(blob, end)))
        at = end + _SEGMENT.size
    names, widths = [name for name, _, _ in listed], [width for _, _, width in listed]
    if (
        not listed
        or names != sorted({*names})
        or not {*widths} <= {1, 2, 4, 8}
        or len(blob) != at + size * sum(widths)
    ):
        raise ValueError(f"segments {names} of {size} entries of {widths} bytes")
    cells = {}
    for name, reports, width in listed:
        cells[name] = Cell(reports, np.frombuffer(blob, f"<u{width}", size, at).astype(np.int64))
        at += width * size
    return cells


def _crc(name: str, header: bytes, body: bytes | memoryview) -> int:
    return crc32c.crc32c(body, crc32c.crc32c(name.encode() + header))


def recorded(metadata: Metadata) -> list[Rule]:
    """Returns the recorded rules of a partition; raises StateLost."""
    return _read(metadata, lambda stored: rules.parse(stored["rules"], stored["start"]))


def documents(metadata: Metadata) -> dict[str, str]:
    """Returns the sealed documents by fingerprint; raises StateLost."""
    return _read(
        metadata, lambda stored: {name: seal(each, name) for name, each in stored["documents"].items()}
    )


def start(metadata: Metadata) -> int:
    """Returns the offset at which counting began; raises StateLost."""
    return _read(metadata, lambda stored: int(stored["start"]))


def gaps(metadata: Metadata) -> list[tuple[int, int]]:
    """Returns the recorded gaps [from, to) in order; raises StateLost."""
    return _read(metadata, lambda stored: [(int(begin), int(end)) for begin, end in stored["gaps"]])


def _read(metadata: Metadata, read: Callable[[Any], _T]) -> _T:
    """Applies a function to the parsed totals; raises StateLost if it fails."""
    try:
        return read(json.loads(metadata.totals))
    except _MALFORMED as error:
        raise StateLost(f"totals {metadata.totals[:200]!r} cannot be read ({error!r})") from None


def totals(state: PartitionState) -> str:
    """Returns a state as canonical JSON, without the offset and the cells."""
    counted = {"start": state.start, "rules": [rule.as_json() for rule in state.rules], "gaps": state.gaps}
    records = {"accepted": state.accepted, "rejected": state.rejected}
    sealed = {name: document.parsed for name, document in state.documents.items()}
    return json.dumps(counted | records | {"documents": sealed} | state.windows.stored(), sort_keys=True)
