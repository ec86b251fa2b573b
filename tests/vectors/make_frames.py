"""Make wire-1/frames: records of report streams, valid ones in one file per stream, invalid ones in another.

    python make_frames.py

It needs only the standard library and shares no code with the project: it derives valid records, and the reason
against each other record, from docs/reference/wire-format.md, case by case.
"""

import hashlib
import json
import struct
from base64 import b64encode
from math import comb
from pathlib import Path

DIGITS = 5000  # more than Python turns into an integer by itself
DEPTH = 100  # brackets, more than any report has


def fingerprint(document):
    plain = dict(document)
    if "labels" in plain:
        plain["labels"] = hashlib.sha256(canonical(plain["labels"])).hexdigest()
    return hashlib.sha256(canonical(plain)).digest()[:4]


def canonical(tree):
    return json.dumps(tree, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


class Stream:
    """A stream's way to write reports; `form` is for `struct`, `reports` has the lowest and the highest."""

    def __init__(self, document, form, reports, most=None):
        self.document, self.form, self.reports, self.most = document, struct.Struct(form), reports, most
        self.mark = fingerprint(document)

    def wire(self, report):
        return bytes.fromhex(report) if isinstance(report, str) else self.form.pack(*fields(report))

    def item(self, report):
        """A report in JSON's types."""
        return b64encode(bytes.fromhex(report)).decode() if isinstance(report, str) else report

    def frame(self, *reports, mark=None, version=1):
        return bytes([version]) + (mark or self.mark) + b"".join(map(self.wire, reports))

    def text(self, *reports, mark=None):
        items = [self.item(report) for report in reports]
        return json.dumps({"fingerprint": mark or self.mark.hex(), "reports": items})

    def raw(self, reports, mark=None):
        """A JSON record whose list of reports is text, good JSON or not."""
        return f'{{"fingerprint":"{mark or self.mark.hex()}","reports":{reports}}}'


def fields(report):
    return report if isinstance(report, list | str) else [report]


def good(stream):
    one, several = stream.reports[0], stream.reports
    items = [json.dumps(stream.item(report)) for report in several]
    mark = stream.mark.hex()
    yield "one report", stream.frame(one), [one]
    yield "several reports, the lowest and the highest among them", stream.frame(*several), several
    yield "JSON, one report", stream.text(one), [one]
    yield "JSON, several reports", stream.text(*several), several
    spaced = '{ "reports" :\n[' + ",\t".join(items) + f'], "fingerprint": "{mark}" }}\n'
    yield "JSON, keys in the other order, white space inside and after", spaced, several
    yield "JSON, escapes in strings", f'{{"\\u0066ingerprint":"{mark}","reports":[{items[0]}]}}', [one]


def bad_frames(stream):
    several, mark = stream.reports, stream.mark
    frame, text = stream.frame(*several), stream.text(*several)
    yield "no bytes", b"", "empty"
    yield "version 0", stream.frame(*several, version=0), "version"
    yield "version 3", stream.frame(*several, version=3), "version"
    yield "a segment", stream.frame(mark=stream.mark + b"\2DE", version=2) + frame[5:], "segment"
    yield "a segment and no report", stream.frame(mark=stream.mark + b"\2DE", version=2), "segment"
    yield "a segment, another fingerprint", b"\2" + mark[::-1] + b"\2DE" + frame[5:], "fingerprint"
    yield "JSON after a space", " " + text, "version"
    yield "JSON after a byte order mark", "\ufeff" + text, "version"
    yield "a JSON array", f"[{text}]", "version"
    yield "version byte alone", frame[:1], "length"
    yield "truncated fingerprint", frame[:4], "length"
    yield "no report", frame[:5], "length"
    if stream.form.size > 1:
        yield "truncated report", frame[:-1], "length"
        yield "one byte too many", frame + b"\0", "length"
    first, last = bytes([mark[0] ^ 1]) + mark[1:], mark[:3] + bytes([mark[3] ^ 0x80])
    yield "another fingerprint", stream.frame(*several, mark=first), "fingerprint"
    yield "another fingerprint in its last byte", stream.frame(*several, mark=last), "fingerprint"
    truncated = stream.frame(*several, mark=mark[::-1])[:-1]
    yield "another fingerprint and a truncated report", truncated, "fingerprint"


def out_of_range(stream, what, report, *, binary=True):
    """A report outside what the protocol allows, after a good one."""
    one = stream.reports[0]
    if binary:
        yield f"{what} after a good report", stream.frame(one, report), "range"
    yield f"JSON, {what}", stream.text(one, report), "range"


def bad_json(stream, types):
    """Faults of JSON records; types: texts that are not reports of the stream."""
    text, mark = stream.text(*stream.reports), stream.mark.hex()
    item = json.dumps(stream.item(stream.reports[0]))
    other = ("0" if mark[0] != "0" else "1") + mark[1:]

    def replaced(value):
        return text.replace(f'"{mark}"', value)

    yield "no report", stream.text(), "length"
    yield "another fingerprint", stream.text(*stream.reports, mark=other), "fingerprint"
    yield "fingerprint in upper case", replaced(f'"{mark[:4]}ABCD"'), "json"
    yield "fingerprint too short", replaced(f'"{mark[:-1]}"'), "json"
    yield "fingerprint with a line break", replaced(f'"{mark}\\n"'), "json"
    yield "fingerprint a number", replaced("12345678"), "json"
    yield "fingerprint null", replaced("null"), "json"
    yield "unknown key", text[:-1] + ', "user": "alice"}', "json"
    yield "repeated key", stream.raw(f'[{item}],"reports":[{item}]'), "json"
    yield "key missing", f'{{"fingerprint":"{mark}"}}', "json"
    yield "other key missing", f'{{"reports":[{item}]}}', "json"
    yield "empty object", "{}", "json"
    yield "a segment", text[:-1] + ', "segment": "DE"}', "segment"
    yield "a segment null", text[:-1] + ', "segment": null}', "json"
    yield "truncated", text[:-1], "json"
    yield "something after it", text + "x", "json"
    yield "single quotes", text.replace('"', "'"), "json"
    yield "trailing comma", text[:-1] + ",}", "json"
    yield "UTF-16", text.encode("utf-16-le"), "json"
    yield "invalid UTF-8", text[:-1].encode() + b',"\xff":0}', "json"
    yield "nested deeply", stream.raw("[" * DEPTH)[:-1], "json"
    yield "nested and closed", stream.raw("[" * DEPTH + "]" * DEPTH), "json"
    yield "an object as a report", stream.raw('[{"fingerprint":1,"reports":2}]'), "json"
    inner = f'[{{"fingerprint":"{mark}","reports":[]}},{{"a":0.5}}]'
    yield "an object as a report, under another fingerprint", stream.raw(inner, other), "json"
    yield "reports not a list", stream.raw("7"), "json"
    yield "reports an object", stream.raw("{}"), "json"
    for wrong in types:
        yield f"a report is {wrong}", stream.raw(f"[{item},{wrong}]"), "json"


def of_grr(stream):
    d = stream.document["domain_size"]
    yield from out_of_range(stream, "index = d", d)
    if stream.form.size == 1:
        yield from out_of_range(stream, "index 256", 256, binary=False)
    else:
        yield from out_of_range(stream, "largest index", 65535)
        for what, index in (("-1", -1), ("65536", 65536), ("2^64", 1 << 64)):
            yield from out_of_range(stream, f"index {what}", index, binary=False)


def of_olh(stream):
    g = stream.document["g"]
    yield from out_of_range(stream, "bucket = g", [1, g])
    if stream.form.size == 6:
        yield from out_of_range(stream, "largest bucket", [1, 65535])
        yield from out_of_range(stream, "bucket 65536", [1, 65536], binary=False)
    else:
        yield from out_of_range(stream, "largest bucket", [1, 255])
        for what, bucket in (("-1", -1), ("256", 256)):
            yield from out_of_range(stream, f"bucket {what}", [1, bucket], binary=False)
        for what, seed in (("-1", -1), ("2^32", 1 << 32), ("2^64", 1 << 64)):
            yield from out_of_range(stream, f"seed {what}", [seed, 0], binary=False)


def of_many(stream):
    """One report more than a record may have: that comes before what the reports are, but not before whose."""
    d, more = stream.document["domain_size"], [*stream.reports, stream.reports[0]]
    assert len(stream.reports) == stream.most
    yield "a report too many", stream.frame(*more), "many"
    yield "a report too many, one out of range", stream.frame(*more[:-1], d), "many"
    yield "a report too many and a truncated one", stream.frame(*more, 7)[:-1], "length"
    yield "a report too many, another fingerprint", stream.frame(*more, mark=stream.mark[::-1]), "fingerprint"
    yield "JSON, a report too many", stream.text(*more), "many"
    yield "JSON, a report too many, one out of range", stream.text(*more[:-1], d), "many"
    items = ",".join(map(str, stream.reports))
    yield "JSON, a report too many, one of another protocol", stream.raw(f"[{items},[1,2]]"), "many"
    yield "JSON, a report too many, one of no protocol", stream.raw(f"[{items},null]"), "json"
    yield "JSON, a report too many, another fingerprint", stream.text(*more, mark="00c0ffee"), "fingerprint"


def of_unary(stream):
    d, one = stream.document["domain_size"], stream.reports[0]
    low, high = LIKELY[stream.document["protocol"]]
    padding = (
        (1 << d | int.from_bytes(bytes.fromhex(one), "little")).to_bytes(stream.form.size, "little").hex()
    )
    yield from out_of_range(stream, "a padding bit", padding)
    for what, bits in ((f"{low - 1} ones", ones(low - 1, d)), (f"{high + 1} ones", ones(high + 1, d))):
        yield f"{what} after a good report", stream.frame(one, bits), "ones"
        yield f"JSON, {what}", stream.text(one, bits), "ones"
    yield from out_of_range(stream, f"{d} ones and then a padding bit", "ff" * stream.form.size)
    yield f"{d} ones, then a padding bit in another report", stream.frame(ones(d, d), padding), "range"


def of_segments(stream):
    """Records of a document with the key segment, whose records have the version 2."""
    one, several, mark = stream.reports[0], stream.reports, stream.mark

    def frame(segment, *reports, length=None):
        head = bytes([len(segment) if length is None else length]) + segment.encode()
        return stream.frame(*reports, mark=mark + head, version=2)

    def text(segment, *reports):
        return stream.text(*reports)[:-1] + f', "segment": {json.dumps(segment)}}}'

    longest = ["A" * 32 + ":" + "z" * 31, "0:" * 31 + "9", "-._:" + "x" * 32, "DE", "US:4.3", "a"]
    for segment in longest:
        yield f"segment {segment}", frame(segment, *several), (segment, several)
        yield f"JSON, segment {segment}", text(segment, one), (segment, [one])
    first = stream.text(one)
    yield "JSON, the segment first", '{"segment":"DE",' + first[1:], ("DE", [one])
    yield "JSON, the segment in escapes", first[:-1] + ',"segm\\u0065nt":"\\u0044E"}', ("DE", [one])
    yield "JSON, reports and then segment", stream.raw(f'[{json.dumps(one)}],"segment":"DE"'), ("DE", [one])
    for segment in (
        "",
        ":",
        "DE:",
        ":DE",
        "US::4",
        "D E",
        "DE~",
        "DE\n",
        "x" * 33,
        "A" * 32 + ":" + "z" * 32,
        "0:" * 33,
    ):
        yield f"segment {segment!a}", frame(segment, one), "segment"
        yield f"JSON, segment {segment!a}", text(segment, one), "segment"
    yield "segment Ü", frame("Ü", one), "segment"
    yield "JSON, segment Ü", text("Ü", one), "segment"
    yield "JSON, a segment with a zero byte", text("DE\0", one), "segment"
    yield "no segment", stream.frame(*several), "segment"
    yield "JSON, no segment", first, "segment"
    yield "no length of the segment", frame("", one)[:5], "segment"
    yield "truncated segment", frame("US:4.3")[:-1], "segment"
    yield "a segment of 255 characters in a short record", frame("DE", one, length=255), "segment"
    yield "no report", frame("DE"), "length"
    yield "truncated report", frame("DE", one)[:-1], "length"
    yield "malformed segment and a truncated report", frame("D E", one)[:-1], "segment"
    yield "malformed segment, another fingerprint", b"\2" + mark[::-1] + frame("D E", one)[5:], "fingerprint"
    yield "truncated fingerprint", frame("DE", one)[:4], "length"
    yield "version 3", stream.frame(one, mark=mark + b"\2DE", version=3), "version"
    beyond = stream.document["domain_size"]
    yield "report out of range", frame("DE", one, beyond), "range"
    yield "JSON, report out of range", text("DE", one, beyond), "range"
    for segment in (7, None, ["DE"], {}, True):
        yield f"JSON, segment {json.dumps(segment)}", text(segment, one), "json"
    yield "JSON, two segments", text("DE", one)[:-1] + ',"segment":"DE"}', "json"
    yield "JSON, a segment and another key", text("DE", one)[:-1] + ',"app":"DE"}', "json"
    yield "JSON, malformed segment and a report of a wrong type", text("D E", None), "json"
    yield "JSON, malformed segment and a report of another protocol", text("D E", [1, 2]), "segment"
    yield "JSON, a report of another protocol", text("DE", [1, 2]), "json"
    yield "JSON, malformed segment and no report", text("D E"), "segment"


def ones(number, d):
    """A report with this many 1 bits, at the highest values."""
    return ((1 << d) - (1 << d - number)).to_bytes(-(-d // 8), "little").hex()


def likely(own, other, whole, d):
    """The fewest and the most 1 bits of an honest report, by the definition: the tail outside each is at most
    5·10⁻¹³."""
    # The user's bit is 1 with probability own/whole, each of the d−1 others with other/whole.
    of_others = [comb(d - 1, k) * other**k * (whole - other) ** (d - 1 - k) for k in range(d)]
    with_own = zip([*of_others, 0], [0, *of_others], strict=True)
    law = [(whole - own) * without + own * rest for without, rest in with_own]
    beyond = whole**d // (2 * 10**12)
    low = max(k for k in range(d + 1) if sum(law[:k]) <= beyond)
    return low, min(k for k in range(d + 1) if sum(law[k + 1 :]) <= beyond)


NO_INDEX = [
    "[7]",
    "7.0",
    "7e0",
    "true",
    "null",
    '"7"',
    "{}",
    "NaN",
    "Infinity",
    "-Infinity",
    "07",
    "+7",
    "0x7",
]
NO_PAIR = [
    "7",
    "[7]",
    "[7,1,0]",
    "[]",
    "[7.0,1]",
    "[7,1.0]",
    "[true,1]",
    "[7,false]",
    "[null,1]",
    '["7",1]',
    "[[7,1]]",
    '{"seed":7,"bucket":1}',
    "[NaN,1]",
    "[1e0,1]",
]

NO_BITS = [
    "7",
    "[7]",
    '""',
    '"AAAAAAAAAAAAAAAADw"',
    '"AAAAAAAAAAAAAAAAAAAADw=="',
    '"!AAAAAAAAAAAAAAADw=="',
]

GRR = {"protocol": "grr", "epsilon": "1/1", "domain_size": 845}
LABELS = {"protocol": "grr", "epsilon": "1/2", "domain_size": 3, "labels": ["rouge", "grün", "青"]}
OLH = {"protocol": "olh", "epsilon": "1/1", "domain_size": 845, "g": 4, "hash": "mul32"}
SEGMENTS = {"protocol": "grr", "epsilon": "1/1", "domain_size": 845, "segment": "country:app"}
WIDE = {"protocol": "olh", "epsilon": "6/1", "domain_size": 100, "g": 404, "hash": "xxh32"}
OUE = {"protocol": "oue", "epsilon": "1/1", "domain_size": 100}
SUE = {"protocol": "sue", "epsilon": "1/1", "domain_size": 100}
W, N, M = 2**64, 50143449209799256682, 30413539329486470295  # as in "Exact coins": e and √e
LIKELY = {"oue": likely((N + W) // 2, W, N + W, 100), "sue": likely(M, W, M + W, 100)}


def unary(document):
    """A stream of bits; each other value, then the fewest and the most ones that are likely."""
    low, high = LIKELY[document["protocol"]]
    return Stream(document, "13s", ["5a" * 12 + "0a", ones(low, 100), ones(high, 100)])


STREAMS = {
    # the stream, values out of its range, invalid reports, and one just out of range
    "grr": (Stream(GRR, "<H", [7, 0, 844]), of_grr, NO_INDEX, 845),
    "grr-labels": (Stream(LABELS, "<B", [2, 0]), of_grr, ["false"], 3),
    "olh": (Stream(OLH, "<IB", [[0x12345678, 2], [0, 0], [(1 << 32) - 1, 3]]), of_olh, NO_PAIR, [1, 4]),
    "olh-wide": (Stream(WIDE, "<IH", [[0x01020304, 403], [0, 256]]), of_olh, ["[7,1,0]"], [1, 404]),
    "most-reports": (Stream(GRR, "<H", [7, 0, 844], most=3), of_many, ["[7]"], 845),
    "segments": (Stream(SEGMENTS, "<H", [7, 0, 844]), of_segments, None, None),
    "oue": (unary(OUE), of_unary, NO_BITS, "00" * 12 + "10"),
    "sue": (unary(SUE), of_unary, NO_BITS, "00" * 12 + "10"),
}


def records(name):
    stream, ranges, types, beyond = STREAMS[name]
    if name == "segments":
        yield from of_segments(stream)
        return
    yield from good(stream)
    yield from bad_frames(stream)
    yield from ranges(stream)
    for what, content, reason in bad_json(stream, types):
        yield f"JSON, {what}", content, reason
    item, long = json.dumps(stream.item(stream.reports[0])), "1" * DIGITS
    if name == "grr":
        yield f"JSON, a report is {long}", stream.raw(f"[{item},{long}]"), "range"
    # a record is parsed as JSON before any range is checked
    wrong = stream.raw(f"[{json.dumps(stream.item(beyond))},null]")
    yield "JSON, a report of a wrong type after one out of range", wrong, "json"


def line(what, content, outcome):
    made = {"what": what} | ({"hex": content.hex()} if isinstance(content, bytes) else {"text": content})
    if isinstance(outcome, str):
        return json.dumps(made | {"reason": outcome})
    if isinstance(outcome, tuple):
        made["segment"], outcome = outcome
    return json.dumps(made | {"reports": [fields(report) for report in outcome]})


def text(name, stream, records, bad) -> str:
    """A stream's good records, or its bad ones: a line for each."""
    lines = ",\n  ".join(line(*record) for record in records if isinstance(record[-1], str) == bad)
    limit = "" if stream.most is None else f' "most_reports": {stream.most},\n'
    return (
        f'{{"version": 1,\n "name": "{named(name, bad)}",\n "document": {json.dumps(stream.document)},\n{limit}'
        f' "fingerprint": "{stream.mark.hex()}",\n "records": [\n  {lines}\n ]}}\n'
    )


def named(name, bad):
    return f"bad_{name}" if bad else name


def files(streams=STREAMS, records=records) -> dict[str, str]:
    """Every file by its name."""
    return {
        f"{named(name, bad)}.json": text(name, stream, list(records(name)), bad)
        for name, (stream, *_) in streams.items()
        for bad in (False, True)
    }


if __name__ == "__main__":
    for name, content in files().items():
        (Path(__file__).parent / "wire-1" / "frames" / name).write_text(content, encoding="utf-8")
