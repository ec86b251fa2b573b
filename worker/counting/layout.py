"""How a partition's state is laid out in Redis: its keys, its metadata, its blobs.

All keys of a partition share the hash tag ``{stream:partition}``, so one script may touch them all on a cluster too:

- ``{stream:partition}:meta``: a hash with the fields of `Metadata`, and their ``checksum``: the BLAKE2b digest, 16
  bytes in hexadecimal, of this key and the stored values of lineage, epoch, offset, flush, blobs and totals, joined by
  newlines. So metadata under the key of another partition or stream are noticed;
- ``{stream:partition}:window:<cell>``: one blob a cell;
- ``{stream:partition}:staged:<attempt>:<cell>``: a blob on its way in, gone by itself if its writer is.

A blob is little-endian: the magic ``LDP3``, a u32 count of state entries, the i64 offset and the 16 bytes of the flush
that wrote it, the i64 number of reports, the u32 width of an entry, a u32 checksum, then the state as unsigned integers
of that width: the narrowest of 1, 2, 4 and 8 bytes that holds every one of them. The checksum is the CRC-32C of the
cell's name and of all other bytes of the blob. Metadata name the flush that wrote each live blob. So a blob that is
missing, damaged, or of another flush or cell is noticed. One of another partition or stream is of another flush: each
commit of each partition has a random id, and that of an import is a digest of what it imports, its topic and partition
among that. So the place of a blob needs no checksum of its own.

All this is layout 3, as what is stored says in its lineage. Layout 2 has no checksums: metadata have one field less,
and a blob has the magic ``LDP2`` and a u64 width. There is one cell, `all`, and totals say nothing of windows. In
layout 1, too, a blob has the magic ``LDP1`` and no width, and its state is i64; and a rule has no limit for batches. A
layout is never changed. Another one has the next number; `parse` and `load` then read all of them, and a partition is
rewritten where it is claimed, in the script that raises its epoch, so that no owner of before is left that could write
the old one. What is rewritten there is the lineage: it names the newest layout that any part of the partition is of. A
blob of an older one is read as it is, and is written anew by the next commit that changes its cell.
"""

import hashlib
import json
import struct
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import crc32c
import numpy as np
import numpy.typing as npt

import ldp
from ldp.state import narrowest
from worker.counting import invariants, rules
from worker.counting.lineage import layout_of, newer
from worker.counting.partition import Cell, PartitionState
from worker.counting.ports import Metadata, NewerState, StateLost
from worker.counting.rules import Rule

_HEADER = struct.Struct("<4sIq16sqII")
_MAGIC = b"LDP3"
_OLDER = {b"LDP2": struct.Struct("<4sIq16sqQ"), b"LDP1": struct.Struct("<4sIq16sq")}
_CHECKSUM_BYTES = 4
_CHECKED = ("lineage", "epoch", "offset", "flush", "blobs", "totals")
_CHECKED_SINCE = 3
"""The first layout that has checksums."""
_WIDTHS = (1, 2, 4, 8)
_EVER = (0, (1 << 63) - 1)
"""The times around a gap of before there were windows: any."""

_MALFORMED = (KeyError, ValueError, TypeError, AttributeError, RecursionError)
"""What reading a field raises whose value is not the one that was written."""

HEADER_BYTES = _HEADER.size
"""What a blob has before its state."""


def demand_readable(lineage: str) -> None:
    """Demands that this version can go on with what is stored under a lineage.

    Raises:
        NewerState: a newer version wrote it.
    """
    if (said := newer(lineage)) is not None:
        raise NewerState(
            f"the counts in Redis are of {said}: a newer version of ldp-worker wrote them. Run that version, or a newer"
            " one; the counts are whole, and it goes on with them."
        )


def fields(metadata: Metadata, key: str) -> dict[str, str]:
    """Returns the fields of a partition's hash in Redis.

    Args:
        metadata: what to store.
        key: where, as `meta_key` has it.
    """
    fields = {
        "lineage": metadata.lineage,
        "epoch": str(metadata.epoch),
        "offset": str(metadata.offset),
        "flush": metadata.flush,
        "blobs": json.dumps(dict(metadata.blobs), sort_keys=True),
        "totals": metadata.totals,
    }
    if layout_of(metadata.lineage) >= _CHECKED_SINCE:
        fields["checksum"] = _checksum(fields, key)
    return fields


def _checksum(fields: Mapping[str, str], key: str) -> str:
    text = "\n".join([key, *(fields[name] for name in _CHECKED)])
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def decoded(fields: Mapping[bytes, bytes]) -> dict[str, str]:
    """Decodes the fields of a hash; bytes that are not UTF-8 are replaced, which changes the checksum."""
    return {name.decode(errors="replace"): value.decode(errors="replace") for name, value in fields.items()}


def parse(fields: Mapping[str, str], key: str) -> Metadata:
    """Reads the fields of a partition's hash in Redis.

    Args:
        fields: as they are stored.
        key: under which, as `meta_key` has it.

    Raises:
        NewerState: a newer version wrote them.
        StateLost: a field is missing, malformed, unknown, or changed since it was written; or they were written
            elsewhere.
    """
    demand_readable(fields.get("lineage", ""))
    try:
        due = _checksum(fields, key) if layout_of(fields["lineage"]) >= _CHECKED_SINCE else ""
        if fields.get("checksum", "") != due:
            raise StateLost(
                "the metadata in Redis are damaged, or of another partition: their checksum is another one"
            )
        if due and (unknown := fields.keys() - {*_CHECKED, "checksum"}):
            raise StateLost(
                f"the metadata in Redis have fields that their layout does not: {sorted(unknown)}"
            )
        blobs = dict(json.loads(fields["blobs"]))
        if not all(isinstance(said, str) for said in (*blobs, *blobs.values())):
            raise TypeError("blobs name something else than commits")
        return Metadata(
            lineage=fields["lineage"],
            epoch=int(fields["epoch"]),
            offset=int(fields["offset"]),
            flush=fields["flush"],
            blobs=blobs,
            totals=fields["totals"],
        )
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
    """Returns the key of a cell's blob while one attempt of a commit stages it."""
    return f"{hash_tag(stream, partition)}:staged:{attempt}:{cell}"


def initial(lineage: str, state: PartitionState) -> Metadata:
    """Returns the metadata of a partition that nothing was committed for yet; the first claim writes them."""
    return Metadata(lineage, 1, state.offset, "", {}, totals(state))


def dump(state: PartitionState, before: Metadata, flush: str) -> tuple[Metadata, dict[str, bytes]]:
    """Encodes a state as the metadata after a commit and the blobs of the cells that changed; O(state).

    Args:
        state: what to store.
        before: the metadata that the commit starts from.
        flush: a fresh id for this commit, 32 hex digits.
    """
    blobs = {}
    for name in state.changed:
        cell = state.cells[name]
        counts = narrowest(cell.state)
        said = (len(counts), state.offset, bytes.fromhex(flush), cell.reports, counts.itemsize)
        header = _HEADER.pack(_MAGIC, *said, 0)[:-_CHECKSUM_BYTES]
        checksum = _crc(name, header, counts)
        blobs[name] = header + checksum.to_bytes(_CHECKSUM_BYTES, "little") + counts.tobytes()
    written = {name: flush if name in state.changed else before.blobs[name] for name in state.cells}
    after = replace(before, offset=state.offset, flush=flush, blobs=written, totals=totals(state))
    return after, blobs


def load(stream: ldp.Stream, metadata: Metadata, blobs: Mapping[str, bytes]) -> PartitionState:
    """Decodes what `dump` encoded, in this layout or an older one; O(state).

    Raises:
        StateLost: a blob is missing, damaged, of another commit than the metadata name, or of another size; or counting
            cannot reach what is stored (`worker.counting.invariants`).
    """
    try:
        said = json.loads(metadata.totals)
        state = PartitionState(
            start=said["start"],
            offset=metadata.offset,
            rules=recorded(metadata),
            accepted=said["accepted"],
            rejected=dict(said["rejected"]),
            late=dict(said["late"] or {}),
            undated=said.get("undated", 0),
            watermark=said["watermark"],
            closed=said.get("closed", 0),
            floor=said.get("floor"),
            dropped=said.get("dropped", 0),
            readmitted=[(at, floor) for at, floor in said.get("readmitted", ())],
            since=dict(said.get("since", {})),
            gaps=[(begin, end) for begin, end in said["gaps"]],
            around=[(line, first) for line, first in said.get("around", [_EVER] * len(said["gaps"]))],
        )
    except _MALFORMED as error:
        raise _unreadable(metadata, error) from None
    if not metadata.flush:
        fresh = PartitionState.fresh(stream, state.start)
        state.cells, state.changed = fresh.cells, fresh.changed
        if metadata.blobs or metadata.offset != state.start:
            raise StateLost("the metadata are of before the first commit, and name counts")
    for name, flush in metadata.blobs.items():
        state.cells[name] = _cell(stream, metadata, name, flush, blobs.get(name))
    invariants.demand_state(stream, state)
    return state


def _cell(stream: ldp.Stream, metadata: Metadata, name: str, flush: str, blob: bytes | None) -> Cell:
    where = f"the counts of {name!r}"
    if blob is None:
        raise StateLost(f"{where} are missing")
    size, magic = stream.oracle.state_size, blob[:4]
    header = _OLDER.get(magic, _HEADER)
    if len(blob) < header.size:
        raise StateLost(f"{where} have {len(blob)} bytes; {header.size} and more are due")
    _, entries, offset, written, reports, *rest = header.unpack_from(blob)
    if (magic != _MAGIC and magic not in _OLDER) or (entries, written.hex()) != (size, flush):
        raise StateLost(f"{where} are of another commit than the metadata say")
    width = rest[0] if rest else 8
    if width not in _WIDTHS or len(blob) != header.size + width * size:
        raise StateLost(f"{where} have {len(blob)} bytes for {size} entries of {width}")
    counts = np.frombuffer(blob, f"<u{width}", offset=header.size)
    if magic == _MAGIC and rest[1] != _crc(name, blob[: header.size - _CHECKSUM_BYTES], counts):
        raise StateLost(f"{where} are damaged: their checksum is another one")
    if offset > metadata.offset or (flush == metadata.flush and offset != metadata.offset):
        raise StateLost(f"{where} are of offset {offset}, the metadata of {metadata.offset}")
    return Cell(reports, counts.astype(np.int64))


def _crc(name: str, header: bytes, counts: npt.NDArray[np.unsignedinteger[Any]]) -> int:
    """Returns the checksum of a blob: of its cell's name, its header and its counts."""
    return crc32c.crc32c(counts.data, crc32c.crc32c(name.encode() + header))


def recorded(metadata: Metadata) -> list[Rule]:
    """Returns the rules that a partition is counted by.

    Raises:
        StateLost: they cannot be read.
    """
    try:
        said = json.loads(metadata.totals)
        start = said["start"]
        return rules.parse(said["rules"], start) if "rules" in said else [rules.before(start)]
    except _MALFORMED as error:
        raise _unreadable(metadata, error) from None


def start(metadata: Metadata) -> int:
    """Returns the offset at which a partition's counting began.

    Raises:
        StateLost: it cannot be read.
    """
    try:
        return int(json.loads(metadata.totals)["start"])
    except _MALFORMED as error:
        raise _unreadable(metadata, error) from None


def gaps(metadata: Metadata) -> list[tuple[int, int]]:
    """Returns the recorded gaps of a partition, [from, to), in ascending order.

    Raises:
        StateLost: they cannot be read.
    """
    try:
        return [(int(begin), int(end)) for begin, end in json.loads(metadata.totals)["gaps"]]
    except _MALFORMED as error:
        raise _unreadable(metadata, error) from None


def _unreadable(metadata: Metadata, error: Exception) -> StateLost:
    return StateLost(f"totals {metadata.totals[:200]!r} cannot be read ({error!r})")


def totals(state: PartitionState) -> str:
    """Returns what is stored of a state beside its offset and its blobs."""
    return json.dumps(
        {
            "start": state.start,
            "rules": [rule.as_json() for rule in state.rules],
            "accepted": state.accepted,
            "rejected": dict(sorted(state.rejected.items())),
            "late": state.late,
            "undated": state.undated,
            "watermark": state.watermark,
            "closed": state.closed,
            "floor": state.floor,
            "dropped": state.dropped,
            "since": state.since,
            "gaps": state.gaps,
            "around": state.around,
        }
        | ({"readmitted": state.readmitted} if state.readmitted else {}),
        sort_keys=True,
    )
