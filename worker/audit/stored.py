"""Decoding of a partition's state as stored in Redis."""

import json
import struct
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from hashlib import blake2b, sha256
from itertools import pairwise
from typing import Any

import crc32c
import numpy as np
import numpy.typing as npt

from worker.audit.errors import Difference
from worker.audit.hashes import State
from worker.audit.parsing import Documents, Key, Limits, Status
from worker.audit.protocols import protocol_of
from worker.audit.records import Range
from worker.audit.windows import Windows, ends_of


@dataclass(frozen=True)
class StoredCell:
    """Counts of a cell; `entries` has the integer type of the blob."""

    reports: int
    entries: npt.NDArray[Any]

    @property
    def state(self) -> State:
        """Counts as 64-bit integers."""
        return self.entries.astype(np.int64)


@dataclass(frozen=True)
class Stored:
    """Stored counts of a partition's offsets [start, offset) except its gaps."""

    start: int
    offset: int
    accepted: int  # records counted
    rejected: Mapping[str, int]  # malformed records by reason
    late: Mapping[str, int]  # late records by age
    undated: int  # undated records while windows were configured
    watermark: int | None  # the highest accepted timestamp in milliseconds
    closed: int  # panes that end at or before this time are closed
    admitted_from: int | None  # start of the partition's windows, from a head
    evicted_to: int  # panes that end at or before this time are merged into `all`
    readmitted: list[tuple[int, int]]  # (offset, value of admitted_from up to it), ascending
    first_start: Mapping[str, int]  # first start of each published window
    gaps: list[Range]  # offset ranges recorded as lost, ascending
    gap_bounds: list[tuple[int, int | None]]  # watermark before each gap, first new highest timestamp after
    rules: list[tuple[int, Limits]]  # (offset at which they begin, limits), ascending
    documents: Documents  # every recorded document
    cells: Mapping[str, Mapping[Key, StoredCell]]  # by pane; `all` has the counts that are in no pane

    @property
    def reports(self) -> int:
        """Number of counted reports."""
        return sum(cell.reports for cells in self.cells.values() for cell in cells.values())

    def total(self) -> dict[Key, StoredCell]:
        """Returns the all-time counts; O(cells · K)."""
        total = dict[Key, StoredCell]()
        for cells in self.cells.values():
            for key, cell in cells.items():
                own = total.get(key)
                before = (0, 0) if own is None else (own.reports, own.entries)
                total[key] = StoredCell(before[0] + cell.reports, before[1] + cell.state)
        return total

    def where(self, pane: str, key: Key) -> str:
        """Describes a cell after the name of a value; omits the only document."""
        document, segment = key
        parts = {"pane": pane if pane != "all" else "", "segment": segment}
        parts["document"] = document if len(self.documents) > 1 else ""
        return "".join(f" of {kind} {name}" for kind, name in parts.items() if name)


StoredCut = tuple[Mapping[str, str], Mapping[str, bytes | None]]
"""(fields of a partition's metadata, its blobs by name); a missing blob is None."""

_LAYOUT = 1
_BLOB = struct.Struct("<4sIq16sII")
"""Header of a blob: magic, number of entries, offset, commit id, number of segments, checksum."""
_SEGMENT = struct.Struct("<qB")
"""After the length of a segment's name and the name: reports and bytes per entry. All states follow all segments."""
_CHECKED = ("lineage", "epoch", "offset", "commit_id", "blobs", "totals")
"""Fields that the checksum of the metadata covers."""
_RULE = {"offset", "revision", "most_reports", "hamming_weight"}
_NAMES = {"documents", "segments"}
_OF_WINDOWS = {"windows", "grace", "max_out_of_orderness"}


def decode(
    fields: Mapping[str, str],
    blobs: Mapping[str, bytes | None],
    place: str,
    group: str,
    topic_id: str | None,
    configured: Collection[str],
) -> Stored | None:
    """Decodes the counts of a partition; returns None if it is uncounted.

    `place` is ``stream:partition``, and `configured` has the fingerprints of the configured documents. Raises
    `Difference` if the data is damaged or inconsistent, or belongs to another stream, topic or group.
    """
    if not fields:
        if any(blob is not None for blob in blobs.values()):
            raise Difference("metadata: missing, but counts exist")
        return None
    try:
        lineage, named, totals = (json.loads(fields[key]) for key in ("lineage", "blobs", "totals"))
        offset, commit_id = int(fields["offset"]), fields["commit_id"]
        _expect_lineage(lineage, group, topic_id)
        _expect_checksum(fields, place)
        rules, documents = _rules(totals), dict(totals["documents"])
        _expect_documents(documents, rules[-1][1], configured)
        return Stored(
            start=int(totals["start"]),
            offset=offset,
            accepted=totals["accepted"],
            rejected=dict(totals["rejected"]),
            late=dict(totals["late"]),
            undated=int(totals["undated"]),
            watermark=totals["watermark"],
            closed=int(totals["closed"]),
            admitted_from=None if (line := totals["admitted_from"]) is None else int(line),
            evicted_to=int(totals["evicted_to"]),
            readmitted=[(int(at), int(floor)) for at, floor in totals.get("readmitted", ())],
            first_start=dict(totals["first_start"]),
            gaps=[(begin, end) for begin, end in totals["gaps"]],
            gap_bounds=[(line, first) for line, first in totals["gap_bounds"]],
            rules=rules,
            documents=documents,
            cells=_cells(named, blobs, offset, commit_id, documents),
        )
    except (KeyError, ValueError, TypeError, AttributeError, RecursionError) as error:
        raise Difference(f"metadata: {dict(fields)} cannot be read ({error!r})") from None


def _expect_lineage(lineage: Mapping[str, Any], group: str, topic_id: str | None) -> None:
    if lineage["layout"] > _LAYOUT:
        raise Difference(
            f"lineage: layout {lineage['layout']} in Redis, this version reads up to {_LAYOUT}: audit with the"
            " version that wrote it"
        )
    for key, value in {"group": group, "layout": _LAYOUT}.items():
        if lineage[key] != value:
            raise Difference(f"lineage: {key} is {lineage[key]!r} in Redis, {value!r} in the configuration")
    if topic_id is not None and (theirs := lineage["topic_id"]) != topic_id:
        raise Difference(
            f"lineage: the counts belong to topic id {theirs}, but the topic has {topic_id}: it was recreated"
        )


def _expect_documents(recorded: Documents, limits: Limits, configured: Collection[str]) -> None:
    if not recorded.keys() & {*configured}:
        raise Difference(
            f"documents: {', '.join(recorded)} in Redis, {', '.join(configured)} in the configuration"
        )
    for fingerprint, document in recorded.items():
        expect_sealed(document, fingerprint)
    if recorded.keys() != limits.documents.keys():
        raise Difference(
            f"rules: they name documents {sorted(limits.documents)}, but {sorted(recorded)} are recorded"
        )


def expect_sealed(document: Mapping[str, Any], fingerprint: str) -> None:
    """Raises `Difference` unless a recorded document has the fingerprint."""
    text = json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    if (found := sha256(text.encode()).hexdigest()[:8]) != fingerprint:
        raise Difference(f"documents: {fingerprint} is recorded with a document of fingerprint {found}")


def _expect_checksum(fields: Mapping[str, str], place: str) -> None:
    digest = blake2b(f"{{{place}}}:meta".encode(), digest_size=16)
    for name in _CHECKED:
        digest.update(b"\n" + fields[name].encode())
    due = digest.hexdigest()
    if (found := fields.get("checksum", "")) != due:
        raise Difference(
            f"metadata: damaged, or of another partition: checksum {due}, but {found or 'none'} in Redis"
        )
    if unknown := fields.keys() - {*_CHECKED, "checksum"}:
        raise Difference(f"metadata: fields {sorted(unknown)} are unknown in layout {_LAYOUT}")


def _rules(totals: Mapping[str, Any]) -> list[tuple[int, Limits]]:
    rules = rules_of(totals["rules"])
    offsets = [offset for offset, _ in rules]
    if not rules or offsets[0] > totals["start"] or offsets != sorted(offsets):
        raise ValueError(f"rules at offsets {offsets}")
    return rules


def rules_of(listed: Iterable[Mapping[str, Any]], first: str = "") -> list[tuple[int, Limits]]:
    """Parses recorded rules into (offset, limits) pairs.

    Joins the names of each rule and all before. `first` is the document that the first rule of a head names if it names
    none. Raises `KeyError`, `TypeError` or `ValueError` if a rule is invalid.
    """
    rules = list[tuple[int, Limits]]()
    names: dict[str, dict[str, Status]] = {"documents": {}, "segments": {}}
    for rule in map(dict, listed):
        windows = None
        if "windows" in rule:
            windows = Windows.of(rule["windows"], rule["grace"], rule["max_out_of_orderness"])
        if rule.keys() - {"max_batch_bytes", "fewest_new"} - _NAMES != _RULE | (
            _OF_WINDOWS if windows else set()
        ):
            raise ValueError(f"rule with unknown or missing keys: {sorted(rule)}")
        if first and not rules and "documents" not in rule:
            rule["documents"] = {first: (0, False)}
        names = {kind: _joined(so_far, rule.get(kind, {})) for kind, so_far in names.items()}
        limits = Limits(
            most=rule["most_reports"],
            hamming_weight=rule["hamming_weight"],
            batch=rule.get("max_batch_bytes"),
            windows=windows,
            fewest_new=rule.get("fewest_new", 0),
            documents=names["documents"],
            segments=names["segments"],
        )
        rules.append((int(rule["offset"]), limits))
    return rules


def _joined(names: Mapping[str, Status], changes: Mapping[str, Any]) -> dict[str, Status]:
    joined = dict(names)
    for name, (version, retired) in changes.items():
        if type(version) is not int or type(retired) is not bool or version < 0:
            raise TypeError(f"status {version!r}, {retired!r} of {name}")
        if name in joined and (version, retired) <= joined[name]:
            raise ValueError(f"rule with the unchanged status {version}, {retired} of {name}")
        joined[name] = version, retired
    return joined


def _cells(
    named: Mapping[str, str],
    blobs: Mapping[str, bytes | None],
    offset: int,
    commit_id: str,
    documents: Documents,
) -> dict[str, dict[Key, StoredCell]]:
    cells = dict[str, dict[Key, StoredCell]](all={})
    if not commit_id:
        if any(blob is not None for blob in blobs.values()):
            raise Difference("metadata: no commit yet, but counts exist")
        return cells
    only = [f"all@{name}" for name, own in documents.items() if len(documents) == 1 and "segment" not in own]
    if any(name not in named for name in only):  # other cells begin with a report
        raise Difference(f"metadata: blobs {sorted(named)}, but {only[0]!r} is missing")
    for name, by in named.items():
        pane, _, document = name.partition("@")
        if document not in documents:
            raise Difference(
                f"metadata: blob {name!r} belongs to a document other than {', '.join(documents)}"
            )
        if pane != "all":
            ends_of(pane)
        try:
            found = _decode_blob(name, blobs.get(name), by, offset, commit_id, documents[document])
        except Difference as difference:
            where = "counts" if pane == "all" else f"counts of pane {pane}"
            raise Difference(f"{where}: {difference}") from None
        cells.setdefault(pane, {}).update({(document, segment): cell for segment, cell in found.items()})
    return cells


def _decode_blob(
    name: str, blob: bytes | None, named: str, offset: int, commit_id: str, document: Mapping[str, Any]
) -> dict[str, StoredCell]:
    if blob is None:
        raise Difference("the blob in the metadata is missing")
    if blob[:4] != b"LDP1" or len(blob) < _BLOB.size:
        raise Difference(
            f"the blob begins with {blob[:4]!r} and has {len(blob)} bytes; expected b'LDP1' and a header"
        )
    _, entries, written_at, written_by, segments, checksum = _BLOB.unpack_from(blob)
    if entries != (size := protocol_of(document).entries):
        raise Difference(f"the blob has {entries} entries; expected {size}")
    try:
        cells = _segments(blob, segments, size, segmented="segment" in document)
    except (IndexError, ValueError, struct.error) as error:
        raise Difference(f"the blob has {len(blob)} bytes that cannot be read ({error!r})") from None
    # covers the cell's name and the blob without its checksum
    due = crc32c.crc32c(b"".join((name.encode(), blob[:36], blob[40:])))
    if checksum != due:
        raise Difference(f"the blob is damaged: checksum {due:08x}, stored {checksum:08x}")
    if written_by.hex() != named:
        raise Difference(f"the blob is from commit {written_by.hex()}, but the metadata names {named}")
    if written_at > offset or (named == commit_id and written_at != offset):
        raise Difference(f"the blob is from offset {written_at}, the metadata from {offset}")
    return cells


def _segments(blob: bytes, segments: int, size: int, *, segmented: bool) -> dict[str, StoredCell]:
    at, listed = _BLOB.size, list[tuple[str, int, int]]()
    for _ in range(segments):
        text, at = blob[at + 1 : at + 1 + blob[at]].decode("ascii"), at + 1 + blob[at]
        listed.append((text, *_SEGMENT.unpack_from(blob, at)))
        at += _SEGMENT.size
    names = [text for text, _, _ in listed]
    if names != sorted({*names}) or (segmented and "" in names) or not (segmented or names == [""]):
        kind = "ascending names of segments" if segmented else "one segment without a name"
        raise Difference(f"the blob has segments {names}; expected {kind}")
    if not {width for _, _, width in listed} <= {1, 2, 4, 8}:
        raise Difference(f"the blob has entries of {[width for _, _, width in listed]} bytes")
    if len(blob) != (due := at + size * sum(width for _, _, width in listed)):
        raise Difference(f"the blob has {len(blob)} bytes, expected {due}")
    cells = {}
    for text, reports, width in listed:
        cells[text] = StoredCell(reports, np.frombuffer(blob, f"<u{width}", size, at))
        at += size * width
    return cells


def ranges_of(stored: Stored, begin: int, end: int) -> tuple[list[Range], list[Range]]:
    """Returns the counted ranges that the log still has, and the deleted ones."""
    if stored.start > begin:
        raise Difference(f"start: {stored.start} in Redis, but the log begins at {begin}, before it")
    if stored.offset > end:
        raise Difference(
            f"offset: {stored.offset} in Redis, but the log ends at {end}: truncated or recreated"
        )
    at, ranges = stored.start, []
    for lost, found in [*stored.gaps, (stored.offset, stored.offset)]:
        if not at <= lost <= found <= stored.offset:
            raise Difference(
                f"gaps: {stored.gaps} are not ascending within [{stored.start}, {stored.offset})"
            )
        if begin < found and lost < found:
            raise Difference(f"gaps: [{lost}, {found}) in Redis, but the log has offsets from {begin} on")
        if at < lost:
            ranges.append((at, lost))
        at = found
    there = [(max(a, begin), b) for a, b in ranges if begin < b]
    return there, [(a, min(b, begin)) for a, b in ranges if a < begin]


def ruled(stored: Stored, ranges: list[Range]) -> Iterator[tuple[int, int, Limits]]:
    """Splits ranges at each change of the rule or of the windows' start."""
    until = [offset for offset, _ in stored.rules[1:]] + [stored.offset]
    given_up = [at for at, _ in stored.readmitted]
    for (since, rule), end in zip(stored.rules, until, strict=True):
        for a, b in ranges:
            begin, stop = max(a, since), min(b, end)
            if begin < stop:
                edges = sorted({begin, stop, *(at for at in given_up if begin < at < stop)})
                yield from ((first, last, rule) for first, last in pairwise(edges))
