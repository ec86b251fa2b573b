"""Records of several documents with segments, decoded together and by a decoder per record."""

import json
from dataclasses import replace

import numpy as np
import pytest

import ldp
from ldp import frames
from ldp.frame_tables import marks_table
from ldp.segments import Segments, prefixes
from tests.support.reading import cell_of, is_segment, read_any, rows_of

DOCUMENTS = [
    ldp.Stream("s", ldp.GRR("1", 3), segment="country"),
    ldp.Stream("s", ldp.OLH("1", 10)),
    ldp.Stream("s", ldp.OUE("1", 40), segment="country:app"),
    ldp.Stream("s", ldp.GRR("1", 70_000)),
    ldp.Stream("s", ldp.SubsetSelection("1", 12, k=4), segment="app"),
]
RETIRED = [ldp.Stream("s", ldp.GRR("2", 3)), ldp.Stream("s", ldp.OUE("2", 40), segment="country")]
FOREIGN = ldp.Stream("s", ldp.GRR("1/2", 3))
DECLARED = ["DE", "US:4.3", "US:4.2", "FR:a:b", "FR", "A" * 32 + ":" + "b" * 31]
SEGMENTS = [
    *DECLARED,
    *("US", "US:9", "XX", "FR:a", "FR:a:c", "DE:x", "DE:x:y", "D", "DEE", "x" * 32, "1:2:3", "A" * 32),
    "A" * 32 + ":" + "b" * 30 + ":",
]
MALFORMED = [
    "",
    ":",
    "DE:",
    ":DE",
    "D E",
    "US::4",
    "x" * 33,
    "DE~",
    "~",
    "Ü",
    "\x00",
    "a:" * 32 + "a",
    "DE\n",
]


def columns(records):
    bounds = np.cumsum([0, *map(len, records)], dtype=np.int64)
    return b"".join(records), bounds[:-1], bounds[1:]


def written(rng, stream, reports, segment, *, as_json):
    """A frame, in any spelling that JSON allows."""
    if not as_json:
        text = b"" if segment is None else bytes([len(segment) % 256]) + segment.encode("latin-1")
        return bytes([1 if segment is None else 2]) + stream.fingerprint + text + reports.tobytes()
    items = json.loads(frames.encode_json(replace(stream, segment=None), reports))["reports"]
    pairs = [("fingerprint", stream.fingerprint.hex()), ("reports", items)]
    pairs += [] if segment is None else [("segment", segment)]
    pairs = [pairs[i] for i in rng.permutation(len(pairs))]
    space = rng.choice(["", " ", "\n\t"])
    texts = [json.dumps(key) + space + ":" + space + json.dumps(value) for key, value in pairs]
    text = "{" + space + ("," + space).join(texts) + space + "}" + space
    if rng.random() < 0.2:
        letter = rng.choice(list("fprsgeD4"))
        text = text.replace(str(letter), f"\\u{ord(letter):04x}", 1)
    return text.encode()


def damaged(rng, record):
    changed = bytearray(record)
    match rng.integers(8):
        case 0 if changed:
            changed[rng.integers(len(changed))] = rng.choice(list(b'\x00\x01\x02{}":,[]0aZ\xff'))
        case 1:
            del changed[rng.integers(len(changed) + 1) :]
        case 2:
            changed += rng.bytes(int(rng.integers(1, 4)))
        case 3 if changed:
            del changed[rng.integers(len(changed))]
        case 4 if changed:
            changed[int(rng.integers(min(8, len(changed))))] ^= 1 << int(rng.integers(8))
    return bytes(changed)


def generated(rng, n):
    for _ in range(n):
        known = DOCUMENTS if rng.random() < 0.85 else [*RETIRED, FOREIGN]
        stream = known[rng.integers(len(known))]
        size = int(rng.choice([1, 1, 1, 2, 4]))
        reports = stream.oracle.perturb(rng.integers(stream.oracle.domain_size, size=size), rng=rng)
        if stream.oracle.name == "oue" and rng.random() < 0.05:
            reports["bits"][-1] = 255  # an unlikely weight
        segment = None if stream.segment is None else str(rng.choice(SEGMENTS))
        match rng.integers(12):
            case 0:
                segment = str(rng.choice(MALFORMED))
            case 1:
                segment = "DE" if segment is None else None
        record = written(rng, stream, reports, segment, as_json=rng.random() < 0.5)
        yield record if rng.random() < 0.7 else damaged(rng, record)


def check(documents, retired, declared, records, most):
    segments = Segments(declared)
    decoded = frames.decode_all(
        documents,
        *columns(records),
        retired={stream.fingerprint for stream in retired},
        segments=segments,
        most_reports=most,
    )
    marks = {stream.fingerprint for stream in retired}
    due = [read_any(documents, record, most, marks, declared) for record in records]
    reasons = [frames.VERDICTS[verdict] if verdict else None for verdict in decoded.verdicts.tolist()]
    assert reasons == [answer if isinstance(answer, str) else None for answer in due]
    answers = [("", -1, "", []) if isinstance(answer, str) else ("ok", *answer) for answer in due]
    assert decoded.document.tolist() == [one for _, one, _, _ in answers]
    assert [segments.cells[i] for i in decoded.segment.tolist()] == [cell for *_, cell, _ in answers]
    assert decoded.counts.tolist() == [len(rows) for *_, rows in answers]
    for i, stream in enumerate(documents):
        assert decoded.reports[i].dtype == stream.oracle.report_dtype
        assert rows_of(decoded.reports[i]) == [row for _, one, _, rows in answers if one == i for row in rows]
    return reasons


def test_several_documents_are_decoded_together_as_one_by_one():
    rng = np.random.default_rng(1)
    found = []
    for most in (None, 3):
        for n in (1, 2, 40, 4_000):
            found += check(DOCUMENTS, RETIRED, DECLARED, list(generated(rng, n)), most)
    assert {*found} == {None, *frames.Reason} - {"rate"}
    assert found.count(None) > 3_000


@pytest.mark.parametrize("live", [[0], [1], [2], [3, 1], [4, 3]])
def test_few_documents_are_decoded_as_one_by_one(live):
    rng = np.random.default_rng(2)
    documents = [DOCUMENTS[i] for i in live]
    for retired in ([], RETIRED):
        found = check(documents, retired, [], list(generated(rng, 2_000)), None)
        assert "segment" in found
        assert ("retired" in found) == bool(retired)


def test_short_records_before_others_are_decoded_as_one_by_one():
    """Another kernel reads the first records that have one short report each."""
    rng = np.random.default_rng(6)
    documents = [ldp.Stream("s", each) for each in (ldp.GRR("1", 3), ldp.OLH("1", 10), ldp.OUE("1", 40))]
    for n in range(40):
        records = []
        for _ in range(n):
            stream = documents[rng.integers(len(documents))]
            reports = stream.oracle.perturb(rng.integers(stream.oracle.domain_size, size=1), rng=rng)
            records.append(written(rng, stream, reports, None, as_json=False))
        check(documents, RETIRED, [], records, None)
        check(documents, RETIRED, [], records, 0)
        check(documents, RETIRED, [], [*records, *generated(rng, 3), *records], 2)
        data, begins, ends = columns([*records, *records[:1], b""])
        overlapping = begins - (np.arange(begins.size) == n)
        with pytest.raises(ValueError, match="begins or ends"):
            frames.decode_all(documents, data, overlapping, ends)


def test_a_fingerprint_in_the_slot_of_a_document_is_unknown():
    made = [ldp.Stream("s", ldp.GRR("1", d)) for d in range(3, 103)]
    documents, unknown, rng = made[:3], made[3:], np.random.default_rng(7)
    table, _, multiplier = marks_table(tuple(each.fingerprint for each in documents), ())
    marks = [int.from_bytes(each.fingerprint, "little") for each in unknown]
    assert {int(table[(mark * multiplier & 0xFFFFFFFF) * table.size >> 32]) for mark in marks} == {
        -1,
        0,
        1,
        2,
    }
    reports = documents[0].oracle.perturb([0], rng=rng)
    known = [written(rng, documents[0], reports, None, as_json=False)] * 4
    for stream in unknown:
        for as_json in (False, True):
            record = written(rng, stream, reports, None, as_json=as_json)
            assert check(documents, [], [], [record, *known], None)[0] in ("fingerprint", "json")


def test_sixteen_documents_with_sixteen_retired_ones():
    rng = np.random.default_rng(3)
    made = [ldp.Stream("s", ldp.GRR("1", d), segment="x" if d % 2 else None) for d in range(2, 34)]
    records = []
    for _ in range(3_000):
        stream = made[rng.integers(len(made))]
        reports = stream.oracle.perturb([0], rng=rng)
        segment = "DE" if stream.segment else None
        records.append(written(rng, stream, reports, segment, as_json=rng.random() < 0.3))
    found = check(made[:16], made[16:], DECLARED, records, None)
    assert {*found} == {None, "retired", "json"}  # an escape may be in a number


def test_one_document_decodes_as_part_of_several():
    """A stream's only document takes a path of its own for binary records."""
    rng = np.random.default_rng(4)
    records = list(generated(rng, 2_000))
    for stream in DOCUMENTS:
        alone = frames.decode(stream, *columns(records))
        assert alone.reasons == {
            i: answer
            for i, answer in enumerate(read_any([stream], record) for record in records)
            if isinstance(answer, str)
        }


def test_a_batch_never_depends_on_how_it_is_cut():
    rng = np.random.default_rng(5)
    records = list(generated(rng, 300))
    marks = {stream.fingerprint for stream in RETIRED}
    arguments = {"retired": marks, "segments": Segments(DECLARED)}
    whole = frames.decode_all(DOCUMENTS, *columns(records), **arguments)
    parts = [frames.decode_all(DOCUMENTS, *columns([record]), **arguments) for record in records]
    for name in ("verdicts", "counts", "document", "segment"):
        assert getattr(whole, name).tolist() == [getattr(part, name)[0] for part in parts]
    for i in range(len(DOCUMENTS)):
        assert whole.reports[i].tobytes() == b"".join(part.reports[i].tobytes() for part in parts)


def test_segments_count_in_the_rest_of_the_longest_declared_prefix():
    rng = np.random.default_rng(6)
    for _ in range(50):
        names = {
            ":".join(rng.choice(list("abc"), size=rng.integers(1, 5))) for _ in range(rng.integers(0, 12))
        }
        segments = Segments(sorted(names))
        for _ in range(50):
            text = ":".join(rng.choice(list("abcd"), size=rng.integers(1, 6)))
            assert segments.cells[segments.index(text)] == cell_of(text, names), (names, text)


def test_a_retired_segment_counts_in_the_rest_of_its_parent():
    before, after = Segments(["US:4.2", "DE"]), Segments(["DE"], retired=["US:4.2"])
    for text in ("US:9", "US", "XX", "DE", "DE:1"):
        assert after.cells[after.index(text)] == before.cells[before.index(text)]
    assert after.cells[after.index("US:4.2")] == after.cells[after.index("US:4.2:x")] == "US:~"
    assert list(prefixes("a:b:c")) == ["a", "a:b", "a:b:c"]


@pytest.mark.parametrize("text", [*SEGMENTS, *MALFORMED])
def test_names_of_segments_are_checked_as_in_frames(text):
    if is_segment(text):
        assert Segments([text]).cells[2] == text
        return
    with pytest.raises(ValueError, match="allowed are levels"):
        Segments([text])
    with pytest.raises(ValueError, match="allowed are levels"):
        ldp.Stream("s", ldp.GRR("1", 3), segment=text)


def test_256_segments_in_one_batch():
    rng = np.random.default_rng(7)
    names = [f"{a}{b}:{k}" for a in "ABCDEFGH" for b in "ABCDEFGH" for k in range(4)]
    stream = DOCUMENTS[0]
    asked = [
        str(rng.choice(names)) if rng.random() < 0.8 else str(rng.choice(SEGMENTS)) for _ in range(3_000)
    ]
    records = [written(rng, stream, stream.oracle.perturb([1]), text, as_json=False) for text in asked]
    assert {*check([stream], [], names, records, None)} >= {None}


def test_a_document_given_twice_is_refused():
    with pytest.raises(ValueError, match="same fingerprint"):
        frames.decode_all([*DOCUMENTS, DOCUMENTS[0]], *columns([b""]))


def test_a_document_in_both_lists_is_retired():
    """If all documents of a partition are retired, counting passes them in both lists."""
    rng = np.random.default_rng(8)
    for documents in (DOCUMENTS[:1], DOCUMENTS):
        found = check(documents, documents, DECLARED, list(generated(rng, 500)), None)
        assert None not in found
        assert "retired" in found
