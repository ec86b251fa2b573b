"""The recount, compared with definitions, with another package's counts and with the worker's path."""

import dataclasses
import json
import random
from base64 import b64encode
from pathlib import Path

import numpy as np
import pytest

import ldp
from ldp import frames
from ldp.oracles import PROTOCOLS
from tests.support.cells import cells_of
from tests.support.wire_vectors import streams
from tests.unit.worker.audit.streams import STREAMS, counted_by_worker, every_stream, frame, some_reports
from worker.audit import AuditError
from worker.audit.parsing import Limits, by_fingerprint, fingerprint_of
from worker.audit.records import Records
from worker.audit.recount import Cell
from worker.audit.recount import recount as recount_of

FOLDER = Path(__file__).parents[3] / "vectors"
VECTORS = json.loads((FOLDER / "pure_ldp.json").read_text())
FRAMES, ORACLE_VECTORS = streams("frames"), streams("oracles")


def recount(stream, records):
    return recount_of(by_fingerprint(stream.document()), [Records.of(records)])


def state_of(stream, found):
    """The counts of all time of the only document."""
    return found.total().get((stream.fingerprint.hex(), ""), Cell(0, stream.oracle.zeros())).state


def assert_agree(stream, records, cuts=()):
    mine, theirs = recount(stream, records), counted_by_worker(stream, records, cuts=cuts)
    if dict(mine.rejected) != theirs.rejected:  # say which record, not only how many
        for record in records:
            reasons = dict(recount(stream, [record]).rejected), counted_by_worker(stream, [record]).rejected
            assert reasons[0] == reasons[1], record[1]
    assert dict(mine.rejected) == theirs.rejected
    assert (mine.accepted, mine.watermark) == (theirs.accepted, theirs.windows.watermark)
    assert mine.reports == cells_of(theirs)["all"].reports
    np.testing.assert_array_equal(state_of(stream, mine), cells_of(theirs)["all"].state)
    return mine


@every_stream
def test_similar_records_are_classified_together_as_one_by_one(stream):
    rng = random.Random(7)
    good = [(1000 + i, frame(stream, *some_reports(stream, rng, 1 + i % 2))) for i in range(60)]
    assert_agree(stream, good)
    for wrong in (b"\x03", b"\x01\0\0\0\0"):
        i = rng.randrange(60)
        mixed = [*good]
        mixed[i] = (5, wrong + mixed[i][1][len(wrong) :])
        assert assert_agree(stream, mixed).rejected.total() == 1
    out_of_range = good[0][1][:5] + b"\xff" * (len(good[0][1]) - 5)
    assert_agree(stream, [*good, (7, out_of_range)])


def test_an_unreadable_batch_is_one_rejected_record():
    stream = STREAMS["grr-3"]
    records = Records.of([(5, frame(stream, (1,)))])
    found = recount_of(
        by_fingerprint(stream.document()), [records, dataclasses.replace(Records.of([]), unreadable=2)]
    )
    assert (found.accepted, dict(found.rejected), found.watermark) == (1, {"batch": 2}, 5)


@pytest.mark.parametrize("case", VECTORS["cases"], ids=lambda case: f"eps={case['epsilon']} d={case['d']}")
def test_xxh32_counts_match_pure_ldp(case):
    stream = ldp.Stream("s", ldp.OLH(case["epsilon"], domain_size=case["d"], hash="xxh32", g=case["g"]))
    records = [(0, frame(stream, report)) for report in zip(case["seeds"], case["buckets"], strict=True)]
    assert state_of(stream, recount(stream, records)).tolist() == case["counts"]


@pytest.mark.parametrize("g", [2, 7, 257, 1 << 16])
def test_mul32_matches_its_definition(g):
    rng, d, word = random.Random(g), 130, 0xFFFFFFFF
    stream = ldp.Stream("s", ldp.OLH("1", domain_size=d, g=g))
    seeds = [0, word, *(rng.getrandbits(32) for _ in range(200))]
    expected = [0] * d
    reports = []
    for i, seed in enumerate(seeds):
        buckets = []
        for v in range(d):
            words = [v]
            for _ in range(3):
                x = words[-1] + 0x9E3779B1 & word
                for shift, factor in ((16, 0x7FEB352D), (15, 0x846CA68B), (16, 1)):
                    x = (x ^ x >> shift) * factor & word
                words.append(x)
            _, e, b, c = words
            y = (seed ^ e) * (0xC2B2AE3D + 0x78DDE6C4 * v) & word
            x = (y ^ y >> 11 ^ b) * (c & 0xCCCCCCCC | 0x11111111) & word
            buckets.append(x * g // 2**32)
        reports.append((seed, buckets[i % d]))
        expected = [
            count + (bucket == buckets[i % d]) for count, bucket in zip(expected, buckets, strict=True)
        ]
    found = recount(stream, [(0, frame(stream, *reports))])
    assert state_of(stream, found).tolist() == expected


def test_a_recount_does_not_depend_on_the_division_of_work(monkeypatch):
    stream, rng = STREAMS["olh-xxh32"], random.Random(5)
    records = [(0, frame(stream, *some_reports(stream, rng, 40))) for _ in range(20)]
    whole = state_of(stream, recount(stream, records))
    monkeypatch.setattr("worker.audit.hashes._LANE", 64)
    monkeypatch.setattr("worker.audit.recount._PENDING_BYTES", 700)
    cut = [Records.of(records[i : i + 3]) for i in range(0, 20, 3)]
    found = recount_of(by_fingerprint(stream.document()), cut)
    np.testing.assert_array_equal(state_of(stream, found), whole)


def test_every_registered_protocol_is_audited():
    assert {stream.oracle.name for stream in STREAMS.values()} == set(PROTOCOLS)


def test_an_unknown_protocol_is_refused():
    with pytest.raises(AuditError, match=r"rappor.*supports the protocols grr, olh"):
        recount_of(by_fingerprint({"protocol": "rappor", "domain_size": 3}), [])
    document = STREAMS["olh-mul32"].document() | {"hash": "md5"}
    with pytest.raises(AuditError, match="md5"):
        recount_of(by_fingerprint(document), [])


@pytest.mark.parametrize("vector", ORACLE_VECTORS, ids=lambda vector: vector["name"])
def test_reports_of_the_vectors_have_the_recorded_supports(vector):
    document, reports = vector["document"], vector["reports"]
    assert fingerprint_of(document).hex() == vector["fingerprint"]
    wire = b"".join(bytes.fromhex(report["wire"]) for report in reports)
    head = b"\x01" + bytes.fromhex(vector["fingerprint"])
    said = json.dumps({"fingerprint": vector["fingerprint"], "reports": [r["json"] for r in reports]})
    for value in (head + wire, said.encode()):
        result = recount_of(by_fingerprint(document), [Records.of([(0, value)])])
        assert (result.accepted, result.reports) == (1, len(reports))
        state = result.all[vector["fingerprint"], ""].state
        if document["protocol"] in ("hadamard", "pgr"):  # counted by index, decoded by the reader
            expected = np.bincount([report["json"] for report in reports], minlength=len(state))
            np.testing.assert_array_equal(state, expected)
            oracle = ldp.Stream.from_document("s", document).oracle
            assert oracle.support(state).tolist() == vector["support"]
        else:
            assert state.tolist() == vector["support"]


@pytest.mark.parametrize("vector", [*FRAMES, *ORACLE_VECTORS], ids=lambda vector: vector["name"])
def test_frame_vectors_are_counted_as_recorded(vector):
    document = vector["document"]
    assert fingerprint_of(document).hex() == vector["fingerprint"]
    for item in vector["records"]:
        value = bytes.fromhex(item["hex"]) if "hex" in item else item["text"].encode()
        result = recount_of(
            by_fingerprint(document), [Records.of([(0, value)])], Limits(vector.get("most_reports"))
        )
        if "reason" in item:
            assert (result.accepted, dict(result.rejected)) == (0, {item["reason"]: 1}), item["what"]
        else:
            assert (result.accepted, result.reports) == (1, len(item["reports"]))


SCRAPS = [
    *'{}[],:"\\ \n\t01-.\x00é\ufeff',
    *("-0", ".0", "e3", "00", "true", "null", "NaN", "Infinity", "[]", "{}", '""', "\\u0030", "\\ud83d"),
    *(
        "\\ud83d\\ude00",
        '"fingerprint"',
        '"reports"',
        '"reports":',
        "99999999999999999999",
        "4294967296",
        "256",
    ),
    '"00000000"',
]


def mutated_frame(stream, rng):
    value = bytearray(frame(stream, *some_reports(stream, rng, rng.randrange(1, 5))))
    for _ in range(rng.randrange(3)):
        at = rng.randrange(len(value) + 1)
        removed = rng.choice((0, 1, rng.randrange(4), len(value)))
        value[at : at + removed] = rng.randbytes(rng.choice((0, 1, rng.randrange(12))))
    return bytes(value)


def mutated_json(stream, rng):
    reports = some_reports(stream, rng, rng.randrange(4))
    if stream.oracle.length is not None:
        items = [mutated_base64(report.tobytes(), rng) for report in reports]
    else:
        items = [report[0] for report in reports] if len(stream.oracle.fields) == 1 else reports
    mark = stream.fingerprint.hex() if rng.randrange(8) else "0123abcd"
    keys = {"fingerprint": mark, "reports": items}
    text = json.dumps(
        dict(rng.sample(list(keys.items()), 2)), separators=rng.choice([(",", ":"), (", ", " : ")])
    )
    for _ in range(rng.randrange(4)):
        at = rng.randrange(1, len(text) + 1)
        text = text[:at] + rng.choice([*SCRAPS, "", "", ""]) + text[at + rng.choice([0, 0, 1, 2, 5]) :]
    value = text.encode()
    if rng.randrange(20) == 0:
        at = rng.randrange(1, len(value) + 1)
        value = value[:at] + rng.choice([b"\xff", b"\xed\xa0\x80", b"\xc0\xaf", b"\x80"]) + value[at:]
    return value


def mutated_base64(wire, rng):
    """The base64 of a report, most often unchanged; else changed bytes or characters."""
    wire = bytearray(wire)
    match rng.randrange(60):
        case 0:
            wire[rng.randrange(len(wire))] = rng.randrange(256)
        case 1:
            wire[-1] ^= 1 << rng.randrange(8)
        case 2:
            wire += rng.randbytes(1)
        case 3:
            del wire[-1]
    text = b64encode(wire).decode()
    if rng.randrange(30) == 0:
        at = rng.randrange(len(text) + 1)
        return text[:at] + rng.choice([*"=A/+-_ \n\0é\ud800B", "==", "AAAA"]) + text[at + rng.randrange(2) :]
    return text.rstrip("=") if rng.randrange(60) == 0 else text


@pytest.mark.long
@every_stream
@pytest.mark.parametrize("make", [mutated_frame, mutated_json])
def test_recount_agrees_with_the_worker_on_mutated_records(stream, make):
    rng = random.Random(f"{make.__name__} {stream.fingerprint.hex()}")
    records = [(rng.randrange(10**12), make(stream, rng)) for _ in range(3000)]
    result = assert_agree(stream, records, cuts=sorted(rng.sample(range(1, 3000), 9)))
    assert result.accepted > 300
    reached = {"version" if make is mutated_frame else "json", "fingerprint", "length"}
    if any_bytes_are_a_report(stream):
        assert result.rejected["range"] == 0 or stream.oracle.length is None
    else:
        reached |= {"range"}
    assert reached <= set(result.rejected)


def any_bytes_are_a_report(stream):
    oracle = stream.oracle
    if oracle.name in ("oue", "sue"):
        return oracle.domain_size % 8 == 0
    widths = [256 ** oracle.report_dtype[name].itemsize for name in oracle.fields]
    return oracle.length is None and widths == list(oracle.fields.values())


@every_stream
def test_recount_agrees_with_the_worker_on_noise(stream):
    rng = random.Random(11)
    starts = [b"", b"\x01", b"\x01" + stream.fingerprint, b"{", b'{"fingerprint":']
    records = [(0, rng.choice(starts) + rng.randbytes(rng.randrange(40))) for _ in range(2000)]
    records += [(0, rng.randbytes(1_000_000)), (0, b"{" + rng.randbytes(1_000_000)), (0, None)]
    assert_agree(stream, records)


@every_stream
def test_recount_agrees_with_the_worker_on_perturbed_users(stream):
    rng = np.random.default_rng(3)
    reports = stream.oracle.perturb(rng.integers(0, stream.oracle.domain_size, 1000), rng=rng)
    parts = np.array_split(reports, 70)
    records = [(t, frames.encode(stream, part)) for t, part in enumerate(parts)]
    records += [(t, frames.encode_json(stream, part)) for t, part in enumerate(parts)]
    assert assert_agree(stream, records).reports == 2000
