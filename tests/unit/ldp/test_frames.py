"""Frames: vectors, round trip, decoding against a decoder per record."""

import base64
import json
import runpy
import sys

import numpy as np
import pytest

import ldp
from ldp import frames, kernels
from ldp.oracles import ORACLES
from ldp.oracles.olh import HASHES
from ldp.segments import Segments
from tests.long.fuzz import json_frames
from tests.support.reading import bounds_of, read_one, rows_of, weight_bounds
from tests.support.wire_vectors import FOLDER, streams

EVERY = streams("oracles")
VECTORS = streams("frames") + EVERY + streams("channels")
STREAMS = {vector["name"]: ldp.Stream.from_document(vector["name"], vector["document"]) for vector in VECTORS}
MOST = {vector["name"]: vector["most_reports"] for vector in VECTORS if "most_reports" in vector}

ONE_DOCUMENT = set(frames.Reason) - {"retired"}


def columns(records):
    bounds = np.cumsum([0, *map(len, records)], dtype=np.int64)
    return b"".join(records), bounds[:-1], bounds[1:]


def decode(stream, *records):
    return frames.decode(stream, *columns(records), most_reports=MOST.get(stream.name))


def record_of(vector):
    return bytes.fromhex(vector["hex"]) if "hex" in vector else vector["text"].encode()


def as_row(report):
    return bytes.fromhex(report) if isinstance(report, str) else tuple(report)


def check_against_one_by_one(stream, records):
    decoded = decode(stream, *records)
    expected = [read_one(stream, record, MOST.get(stream.name)) for record in records]
    assert decoded.reasons == {i: answer for i, answer in enumerate(expected) if isinstance(answer, str)}
    assert decoded.counts.dtype == np.int64
    assert decoded.counts.tolist() == [0 if isinstance(answer, str) else len(answer) for answer in expected]
    assert decoded.reports.dtype == stream.oracle.report_dtype
    assert rows_of(decoded.reports) == [
        row for answer in expected if not isinstance(answer, str) for row in answer
    ]
    assert stream.oracle.check(decoded.reports).all()


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector["name"])
def test_vectors_are_decoded_and_rejected_as_recorded(vector):
    stream = STREAMS[vector["name"]]
    assert stream.fingerprint.hex() == vector["fingerprint"]
    for item in vector["records"]:
        decoded = decode(stream, record_of(item))
        if "reason" in item:
            assert decoded.reasons == {0: item["reason"]}, item["what"]
            assert decoded.counts.tolist() == [0]
            assert decoded.reports.size == 0
        else:
            assert decoded.reasons == {}, item["what"]
            assert rows_of(decoded.reports) == [as_row(report) for report in item["reports"]]
            assert decoded.counts.tolist() == [len(item["reports"])]
            segments = Segments([item["segment"]] if "segment" in item else [])
            decoded = frames.decode_all([stream], *columns([record_of(item)]), segments=segments)
            assert segments.cells[decoded.segment[0]] == item.get("segment", "")


@pytest.mark.parametrize("vector", EVERY, ids=lambda vector: vector["name"])
def test_vectors_have_the_documented_supports(vector):
    stream = STREAMS[vector["name"]]
    oracle, whole = stream.oracle, stream.oracle.zeros()
    for item in vector["reports"]:
        reports = np.frombuffer(bytes.fromhex(item["wire"]), oracle.report_dtype)
        assert reports.shape == (1,)
        assert json.loads(frames.encode_json(stream, reports))["reports"] == [item["json"]]
        state = oracle.zeros()
        oracle.accumulate(state, reports)
        expected = np.zeros(oracle.domain_size, int)
        expected[item["supports"]] = 1
        assert (oracle.support(state) == expected).all()
        whole += state
    assert oracle.support(whole).tolist() == vector["support"]
    for seed, value, bucket in vector.get("hashes", []):
        assert HASHES[oracle.hash](seed, value, oracle.g) == bucket


def test_every_reason_has_a_vector():
    reasons = {item.get("reason") for vector in VECTORS for item in vector["records"]}
    assert reasons - {None} == ONE_DOCUMENT == {str(reason) for reason in ONE_DOCUMENT}


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector["name"])
def test_encode_reproduces_the_vectors(vector):
    stream = STREAMS[vector["name"]]
    for item in (item for item in vector["records"] if "reports" in item):
        if "segment" in item and item["segment"].count(":") != stream.segment.count(":"):
            continue  # the server accepts any number of levels
        rows = [as_row(report) for report in item["reports"]]
        dtype = stream.oracle.report_dtype
        reports = (
            np.frombuffer(b"".join(rows), dtype) if isinstance(rows[0], bytes) else np.array(rows, dtype)
        )
        if "hex" in item:
            assert frames.encode(stream, reports, item.get("segment")).hex() == item["hex"]
        else:
            made = frames.encode_json(stream, reports, item.get("segment"))
            assert json.loads(made) == json.loads(item["text"])


def test_a_record_with_too_many_reports_is_rejected_completely():
    stream = STREAMS["grr"]
    reports = np.zeros(10_001, stream.oracle.report_dtype)
    for encode in (frames.encode, frames.encode_json):
        records = [encode(stream, reports), encode(stream, reports[:10_000]), encode(stream, reports[:1])]
        decoded = frames.decode(stream, *columns(records), most_reports=10_000)
        assert (decoded.counts.tolist(), decoded.reasons) == ([0, 10_000, 1], {0: "many"})
        assert frames.decode(stream, *columns(records)).counts.tolist() == [10_001, 10_000, 1]
    assert "more reports" in frames.REASONS["many"]


@pytest.mark.parametrize("oracle", [ldp.OUE("2", 40), ldp.SUE("1", 40)], ids=str)
def test_only_unlikely_weights_are_rejected(oracle):
    stream = ldp.Stream("s", oracle)
    d = oracle.domain_size
    low, high = weight_bounds(oracle)
    reports = np.zeros(d + 1, oracle.report_dtype)
    for ones in range(d + 1):
        reports["bits"][ones] = np.packbits(np.arange(d) < ones, bitorder="little")
    for encode in (frames.encode, frames.encode_json):
        records = [encode(stream, report) for report in reports[:, None]]
        decoded = frames.decode(stream, *columns(records))
        wrong = [ones for ones in range(d + 1) if not low <= ones <= high]
        assert decoded.reasons == dict.fromkeys(wrong, "ones")
        assert frames.decode(stream, *columns(records), check_weight=False).reasons == {}
    assert "ones" in frames.REASONS["ones"]


@pytest.mark.parametrize("name", ORACLES)
@pytest.mark.parametrize("encode", [frames.encode, frames.encode_json])
def test_round_trip_for_every_protocol(name, encode):
    stream = ldp.Stream("s", ldp.oracle(name, "2", 300))
    rng = np.random.default_rng(2)
    parts = [stream.oracle.perturb(rng.integers(300, size=n), rng=rng) for n in rng.integers(1, 6, size=100)]
    decoded = decode(stream, *(encode(stream, part) for part in parts))
    assert decoded.reasons == {}
    assert decoded.counts.tolist() == [part.size for part in parts]
    assert decoded.reports.tobytes() == b"".join(part.tobytes() for part in parts)


def test_only_valid_reports_are_encoded():
    stream = STREAMS["olh"]
    for encode in (frames.encode, frames.encode_json):
        with pytest.raises(ValueError, match="at least one"):
            encode(stream, np.empty(0, stream.oracle.report_dtype))
        with pytest.raises(ValueError, match="report 1 is malformed"):
            encode(stream, np.array([(1, 3), (1, 4)], stream.oracle.report_dtype))
        with pytest.raises(TypeError, match="reports must be"):
            encode(stream, b"\x00")


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview, lambda b: np.frombuffer(b, np.uint8)])
def test_decode_accepts_any_buffer_and_any_part_of_one(kind):
    stream = STREAMS["grr"]
    frame = frames.encode(stream, np.array([(5,), (6,)], stream.oracle.report_dtype))
    buffer, begins, ends = columns([b"before", frame, frame, b"after"])
    decoded = frames.decode(stream, kind(buffer), begins[1:-1], ends[1:-1])
    assert decoded.reports.tolist() == [(5,), (6,), (5,), (6,)]
    assert decoded.counts.tolist() == [2, 2]


def test_decode_accepts_empty_input():
    for buffer in (b"", np.empty(0, np.uint8)):
        decoded = frames.decode(STREAMS["olh"], buffer, np.empty(0, np.int64), np.empty(0, np.int64))
        assert decoded.reports.size == decoded.counts.size == 0
        assert decoded.reasons == {}
        nowhere = np.zeros(2, np.int64)
        assert frames.decode(STREAMS["olh"], buffer, nowhere, nowhere).reasons == {0: "empty", 1: "empty"}


@pytest.mark.parametrize(
    ("begins", "ends"),
    [
        ([0], []),
        ([0, 5], [5, 4]),
        ([0, 4], [5, 6]),
        ([0], [11]),
        ([0, 2**62], [2**62, 4]),
        (np.array([0.0]), np.array([4.0])),
        (np.array([0], np.int32), np.array([4], np.int32)),
        ([[0]], [[4]]),
    ],
)
def test_invalid_bounds_are_refused(begins, ends):
    begins, ends = (np.array(a, getattr(a, "dtype", np.int64)) for a in (begins, ends))
    with pytest.raises(ValueError, match=r"begins|ends"):
        frames.decode(STREAMS["grr"], bytes(10), begins, ends)


def test_a_large_record_of_noise_is_one_rejected_record():
    rng = np.random.default_rng(3)
    noise = rng.bytes(1 << 20)
    stream = STREAMS["olh"]
    head = b'{"fingerprint":"' + stream.fingerprint.hex().encode() + b'","reports":'
    deep = [b"[" * (1 << 20), b'{"a":' * (1 << 18), head + b"[" * (1 << 20), head + b"9" * (1 << 20) + b"}"]
    records = [b"\x00" + noise, b"{" + noise, *deep, b'{"' + b"\x00" * (1 << 20), b"\x01" + noise]
    expected = ["version", "json", "version", "json", "json", "json", "json", "fingerprint"]
    assert decode(stream, *records).reasons == dict(enumerate(expected))


def test_nesting_close_to_the_recursion_limit_is_rejected():
    stream = STREAMS["olh"]
    head = b'{"fingerprint":"' + stream.fingerprint.hex().encode() + b'","reports":['
    limit = sys.getrecursionlimit()
    records = [head + b"[" * depth + b"]" * depth + b"]}" for depth in range(1, limit + 50, 7)]
    assert decode(stream, *records).reasons == dict.fromkeys(range(len(records)), "json")


GOOD = {
    name: [record_of(item) for item in vector["records"] if "reports" in item]
    for name, vector in ((vector["name"], vector) for vector in VECTORS)
}


@pytest.mark.slow
@pytest.mark.parametrize("name", STREAMS)
def test_a_large_batch_of_damaged_records(name):
    """Many records of all kinds at once, so that places and indices across the batch are put to the test."""
    rng = np.random.default_rng(4)
    records = []
    for _ in range(600):
        record = bytearray(GOOD[name][rng.integers(len(GOOD[name]))])
        if rng.random() < 0.3:
            record[rng.integers(len(record))] = rng.integers(256)
        if rng.random() < 0.1:
            del record[rng.integers(len(record)) :]
        records.append(bytes(record))
    check_against_one_by_one(STREAMS[name], records)


@pytest.mark.slow
def test_generated_texts_are_decoded_together_as_one_by_one():
    found = json_frames.fuzz(10_000, seed=7)
    assert found.total() == 10_000
    assert set(found) == {"accepted", *ONE_DOCUMENT}
    assert found["accepted"] > 2_500


def test_strings_are_accepted_as_python_accepts_them():
    """Strings in a frame for another stream, so that readers distinguish other types: UTF-8 limits, and all escapes."""
    edges = [b"", *(bytes([byte]) for byte in b"\x00\x22\x5c\x7f\x80\x8f\x90\x9f\xa0\xbf\xc0\xff")]
    wide = [
        bytes([a]) + b + c + d for a in range(128, 256) for b in edges for c in edges[4:] for d in edges[4::3]
    ]
    escapes = [
        b"\\" + bytes([a]) + tail
        for a in range(256)
        for tail in (b"", b"0041", b"004", b"00aF", b"0`41", b"00g1")
    ]
    digits = [b"\\u" + b"0" * k + bytes([a]) + b"0" * (3 - k) for a in range(256) for k in range(4)]
    records = [b'{"fingerprint":"00000000","reports":["' + some + b'"]}' for some in wide + escapes + digits]
    read = [read_one(STREAMS["oue"], record, None) for record in records]
    assert decode(STREAMS["oue"], *records).reasons == dict(enumerate(read))
    assert read.count("fingerprint") > 500


def test_kernel_verdicts_match_the_order_of_the_reasons():
    assert [verdict.name for verdict in kernels.Verdict] == [
        "ACCEPTED",
        *(reason.name for reason in frames.Reason),
    ]
    assert [*kernels.Verdict] == [0, *(frames.VERDICTS.index(reason, 1) for reason in frames.Reason)]


@pytest.mark.parametrize(
    "oracle",
    [ldp.GRR("1", 200), ldp.GRR("1", 70_000), ldp.OLH("1", 9), ldp.OUE("1", 12), ldp.OUE("1", 24)],
    ids=str,
)
@pytest.mark.parametrize("most", [1, 1 << 62])
def test_decoding_never_writes_beyond_its_buffer(oracle, most):
    """Records with the most and the shortest reports, some of them wrong, under a memory limit."""
    stream, size = ldp.Stream("s", oracle), oracle.report_bytes
    fields = np.array(
        [(bound, 4 if bound > 65536 else 1) for bound in bounds_of(oracle) or []], np.int64
    ).reshape(-1, 2)
    sound = {0: '"' + base64.b64encode(bytes(size)).decode() + '"', 1: "0", 2: "[0,0]"}[len(fields)]
    head = '{"fingerprint":"' + stream.fingerprint.hex() + '","reports":['
    parts = [
        [sound] * 3000,
        [sound] * 3000 + ["[]"],
        ["[0,0]"] * 3000,
        ["0"] * 3000,
        ['"' + "A" * 9000 + '"'],
        [sound],
    ]
    for texts in (parts, parts[:1], parts[2:3], parts[3:4], parts[:1] * 2):
        records = [(head + ",".join(part) + "]}").encode() for part in texts]
        records += [b"\x01" + stream.fingerprint + bytes(size * n) for n in (1, 1000) if len(texts) > 1]
        data, begins, ends = columns(records)
        room = kernels.frames_capacity(len(data), size, len(fields))
        reports = np.full(room + 10_000, 0xA5, np.uint8)
        counts, verdicts = np.empty(len(records), np.int64), np.empty(len(records), np.uint8)
        rules = [[size, kernels.least_text(size, len(fields)), 0, 0, 0, len(fields)]]
        mark = np.array([int.from_bytes(stream.fingerprint, "little")])
        tables = (np.zeros(1, np.int16), mark, 1), np.array(rules), fields, None
        found = counts, verdicts, np.empty(len(records), np.int16), np.empty(len(records), np.int32)
        text, totals = np.full(kernels.TEXT_BYTES, 0xA5, np.uint8), np.zeros(1, np.int64)
        records_ = np.frombuffer(data, np.uint8), begins, ends
        assert kernels.read_documents(*records_, 0, *tables, most, reports, text, found, totals)
        total = int(totals[0])
        assert (reports[room:] == 0xA5).all()
        assert total == counts.sum() == counts[verdicts == 0].sum()
        assert counts[0] == (3000 if most > 1 and texts[0] == [sound] * 3000 else 0)
        assert not reports[: total * size].any()


def test_false_bounds_are_detected_before_writing_beyond_the_buffer():
    stream = ldp.Stream("s", ldp.GRR("1", 200))
    header = np.frombuffer(b"\x01" + stream.fingerprint, np.uint8)
    data = np.frombuffer(header.tobytes() + bytes(5000), np.uint8)
    reports = np.full(10_000, 0xA5, np.uint8)
    begins, ends = np.array([0, 0]), np.array([5000, 8])
    columns = np.empty(2, np.int64), np.empty(2, np.uint8)
    assert kernels.read_frames(data, begins, ends, header, (1, 1 << 62), reports, *columns) == -1
    assert (reports[kernels.frames_capacity(8, 1, 1) :] == 0xA5).all()
    for documents in ([stream], [stream, STREAMS["olh"]]):
        with pytest.raises(ValueError, match="ascend"):
            frames.decode_all(documents, data, begins, ends)


@pytest.mark.parametrize("name", ["frames", "channels"])
def test_vector_files_equal_the_output_of_the_script(monkeypatch, name):
    monkeypatch.syspath_prepend(str(FOLDER.parent))
    made = runpy.run_path(str(FOLDER.parent / f"make_{name}.py"))["files"]()
    assert made == {path.name: path.read_text(encoding="utf-8") for path in (FOLDER / name).iterdir()}
