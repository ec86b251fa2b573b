"""A partition of several documents and segments: its log and its stored counts, built record by record."""

import hashlib
import json
import string
import struct
from collections import Counter
from dataclasses import dataclass, field

import crc32c
import numpy as np

import ldp
import ldp.frames
from tests.unit.worker.audit.streams import some_reports

GROUP, START = "ldp-worker-s", 100


def document_of(oracle, labels=None, segment=None):
    document = ldp.Stream("s", oracle, labels=labels).document()
    return document | ({"segment": segment} if segment else {})


def canonical(tree):
    return json.dumps(tree, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


def sealed(document):
    labels = (
        {"labels": hashlib.sha256(canonical(document["labels"])).hexdigest()} if "labels" in document else {}
    )
    return document | labels


def mark_of(document):
    return hashlib.sha256(canonical(sealed(document))).hexdigest()[:8]


OLD = document_of(ldp.GRR("1", domain_size=3), ["rot", "blau", "grau"])
NEW = document_of(ldp.OUE("1", domain_size=4), ["blau", "gelb", "rot", "lila"], "country:app")
HASHED = document_of(ldp.OLH("2", domain_size=4), ["rot", "lila", "blau", "gelb"], "country")
DOCUMENTS = {mark_of(each): each for each in (OLD, NEW, HASHED)}
MARKS = [*DOCUMENTS]
SEGMENTS = ("DE", "US:4.3", "US", "FR:2")
ORACLES = {
    mark: ldp.Stream.from_document("s", {k: v for k, v in each.items() if k != "segment"}).oracle
    for mark, each in DOCUMENTS.items()
}


def rule(offset, revision, documents=(), segments=(), windows=True):
    """A recorded rule, which names only changed statuses."""
    fields = {"offset": offset, "revision": revision, "most_reports": 3, "hamming_weight": True}
    if windows:
        fields |= {"windows": ["all", "20s every 10s"], "grace": 5000, "max_out_of_orderness": 0}
    names = {"documents": dict(documents), "segments": dict(segments)}
    return fields | {
        kind: {name: [*status] for name, status in own.items()} for kind, own in names.items() if own
    }


RULES = [
    rule(START, 1, {MARKS[0]: (0, False)}),
    rule(START + 30, 2, {MARKS[1]: (0, False)}, {"DE": (0, False), "US:4.3": (0, False)}),
    rule(START + 60, 3, {MARKS[2]: (0, False)}, {"US": (0, False), "FR:2": (0, True)}),
    rule(START + 90, 4, {MARKS[0]: (0, True)}, {"DE": (0, True)}),
    rule(START + 110, 5, {}, {"DE": (1, False)}, windows=False),
    rule(START + 130, 6, {MARKS[0]: (1, False)}),
]
TEXTS = ["DE", "DE:1", "US", "US:4.3", "US:9.9", "US:4.3:x", "FR:2", "FR:3", "FR", "XX", "a" * 32]
WRONG_TEXTS = ["", "DE:", ":", "~", "DE:~", "ü", "a" * 33, ("a" * 32 + ":") * 2 + "b", "a b"]


def record(rng, mark, n=None, text=None):
    """A well-formed record, or with another segment."""
    document, oracle = DOCUMENTS[mark], ORACLES[mark]
    stream = ldp.Stream("s", oracle)
    reports = some_reports(stream, rng, n or rng.randrange(1, 4))
    body = np.array(reports, oracle.report_dtype).tobytes()
    if text is None and "segment" in document:
        text = rng.choice(TEXTS)
    if rng.randrange(3):
        if text is None:
            return b"\x01" + bytes.fromhex(mark) + body
        named = text.encode("latin-1")
        return b"\x02" + bytes.fromhex(mark) + bytes([len(named)]) + named + body
    frame = json.loads(ldp.frames.encode_json(stream, np.array(reports, oracle.report_dtype)))
    return json.dumps({**frame, "fingerprint": mark} | ({} if text is None else {"segment": text})).encode()


def broken(rng):
    """A record that is rejected, with one exception: a document may be unknown or retired."""
    mark = bytes.fromhex(rng.choice(MARKS))
    text = '{"fingerprint": "%s", %s}'
    return rng.choice(
        [
            b"",
            b"\x03" + mark + b"\0",
            b"\x02" + mark[:3],
            b"\x01" + b"\0\0\0\0\x01",
            b"\x02" + mark,
            b"\x02" + mark + b"\x09DE",
            b"\x02" + mark + b"\x02DE",
            b"\x01" + mark,
            record(rng, rng.choice(MARKS), text=rng.choice(WRONG_TEXTS)),
            record(rng, rng.choice(MARKS), n=4),
            b"\x02" + bytes.fromhex(MARKS[1]) + b"\x02DE\xff",
            (text % (MARKS[1], '"reports": ["AQ=="], "segment": null')).encode(),
            (text % (MARKS[1], '"reports": [], "segment": "DE"')).encode(),
            (text % (MARKS[1], '"segment": "DE"')).encode(),
        ]
    )


def log(rng, n=150):
    """(timestamp, value) of records; some are late or malformed."""
    times = [1_000_000 + 700 * i - rng.randrange(1, 30_000) * rng.randrange(2) for i in range(n)]
    return [(at, broken(rng) if rng.randrange(5) == 0 else record(rng, rng.choice(MARKS))) for at in times]


@dataclass
class Counted:
    """Counts of a log's records, one by one."""

    rejected: Counter = field(default_factory=Counter)
    late: Counter = field(default_factory=Counter)
    watermark: int | None = None
    closed: int = 0
    accepted: int = 0
    first_start: int | None = None
    cells: dict = field(default_factory=dict)  # (pane, fingerprint) -> segment -> [reports, state]

    def take(self, timestamp, value, rules):
        verdict = verdict_of(value, rules)
        if isinstance(verdict, str):
            self.rejected[verdict] += 1
            return
        mark, segment, body = verdict
        self.accepted += 1
        pane = "all"
        if "windows" in rules[-1]:
            start = timestamp - timestamp % 10_000
            if start + 10_000 <= self.closed:
                since = self.closed - start - 10_000
                self.late[next(age for age, most in AGES.items() if since <= most)] += 1
            else:
                pane = f"{start}+10000"
        self.watermark = max(self.watermark or 0, timestamp)
        if "windows" in rules[-1]:
            self.closed = max(self.closed, self.watermark - 5000)
        oracle = ORACLES[mark]
        cell = self.cells.setdefault((pane, mark), {}).setdefault(segment, [0, oracle.zeros()])
        reports = np.frombuffer(body, oracle.report_dtype)
        cell[0] += len(reports)
        oracle.accumulate(cell[1], reports)


AGES = {"1m": 60_000, "10m": 600_000}


def joined(rules, kind):
    names = {}
    for each in rules:
        for name, status in each.get(kind, {}).items():
            names[name] = max(names.get(name, [0, False]), status)
    return names


def verdict_of(value, rules):
    """The reason of a rejection, or the document, the segment's cell and the reports."""
    if not value:
        return "empty"
    if value[:1] == b"{":
        frame = json.loads(value)
        if "reports" not in frame or not isinstance(frame.get("segment", ""), str):
            return "json"
        mark, text = frame["fingerprint"], frame.get("segment")
    else:
        if value[0] not in (1, 2):
            return "version"
        if len(value) < 5:
            return "length"
        mark, rest = value[1:5].hex(), value[5:]
        text = None
        if value[0] == 2:
            size = rest[0] if rest else 0
            text, rest = rest[1 : 1 + size].decode("latin-1"), rest[1 + size :]
            text = text if len(text) == size else ""
    documents, segments = joined(rules, "documents"), joined(rules, "segments")
    if mark not in documents:
        return "fingerprint"
    if documents[mark][1]:
        return "retired"
    if (text is None) == ("segment" in DOCUMENTS[mark]) or (text is not None and not is_segment(text)):
        return "segment"
    oracle = ORACLES[mark]
    stream = ldp.Stream("s", oracle)
    plain = rest if value[:1] != b"{" else None
    if plain is None:  # as a frame of the same document without a segment
        inner = json.dumps({"fingerprint": stream.fingerprint.hex(), "reports": frame["reports"]}).encode()
    else:
        inner = b"\x01" + stream.fingerprint + plain
    decoded = ldp.frames.decode(stream, inner, np.array([0]), np.array([len(inner)]), most_reports=3)
    if decoded.reasons:
        return str(decoded.reasons[0])
    return mark, "" if text is None else cell_of(text, segments), decoded.reports.tobytes()


def is_segment(text):
    levels = text.split(":")
    good = set(string.ascii_letters + string.digits + "._-")
    return len(text) <= 64 and all(1 <= len(level) <= 32 and {*level} <= good for level in levels)


def cell_of(text, segments):
    """The declared segment, or the rest of the longest prefix of a segment that is declared or was."""
    if text in segments and not segments[text][1]:
        return text
    known = {name for name, (_, retired) in segments.items() if not retired}
    known |= {name[:i] for name in segments for i in range(len(name)) if name[i] == ":"}
    found = [name for name in known if f"{text}:".startswith(f"{name}:")]
    return f"{max(found, key=len)}:~" if found else "~"


def stored(counted, rules, offset, names=("s", 0)):
    """The fields and blobs in Redis."""
    commit, key = "0123456789abcdef" * 2, "{{{}:{}}}:meta".format(*names)
    blobs = {}
    if len(first := rules[0]["documents"]) == 1:  # an only document has this cell from the start
        for mark in first:
            counted.cells.setdefault(("all", mark), {"": [0, ORACLES[mark].zeros()]})
    for (pane, mark), segments in counted.cells.items():
        name = f"{pane}@{mark}"
        body = b"".join(
            bytes([len(text)]) + text.encode() + struct.pack("<qB", segments[text][0], 8)
            for text in sorted(segments)
        )
        body += b"".join(segments[text][1].astype("<i8").tobytes() for text in sorted(segments))
        head = b"LDP1" + struct.pack("<Iq", len(next(iter(segments.values()))[1]), offset)
        head += bytes.fromhex(commit) + struct.pack("<I", len(segments))
        checksum = crc32c.crc32c(name.encode() + head + body)
        blobs[name] = head + struct.pack("<I", checksum) + body
    totals = {
        "start": START,
        "accepted": counted.accepted,
        "rejected": dict(counted.rejected),
        "late": dict(counted.late),
        "undated": 0,
        "watermark": counted.watermark,
        "closed": counted.closed,
        "admitted_from": None,
        "evicted_to": 0,
        "first_start": {} if counted.first_start is None else {"20s every 10s": counted.first_start},
        "gaps": [],
        "gap_bounds": [],
        "documents": {mark: sealed(DOCUMENTS[mark]) for mark in joined(rules, "documents")},
        "rules": rules,
    }
    fields = {
        "lineage": json.dumps({"group": GROUP, "topic_id": "t", "layout": 1}),
        "epoch": "1",
        "offset": str(offset),
        "commit_id": commit,
        "blobs": json.dumps(dict.fromkeys(blobs, commit)),
        "totals": json.dumps(totals),
    }
    text = "\n".join([key, *fields.values()])
    return fields | {"checksum": hashlib.blake2b(text.encode(), digest_size=16).hexdigest()}, blobs


def count(records, rules=RULES):
    """The counts of a log by rules."""
    counted, began = Counted(), False
    for offset, (timestamp, value) in enumerate(records, START):
        own = [each for each in rules if each["offset"] <= offset]
        if "windows" in own[-1] and not began:
            last = counted.watermark
            counted.first_start = 0 if last is None else last - last % 10_000 + 10_000
        began = "windows" in own[-1]
        if not began:
            counted.first_start = None
        counted.take(timestamp, value, own)
    return counted
