"""The audit's recount against brute force, against another package's counts and against the worker's own path."""

import ast
import json
import random
import struct
from base64 import b64encode
from collections import Counter
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

import ldp
from ldp import frames
from ldp.oracles import ORACLES
from worker import audit
from worker.counting import layout, rules
from worker.counting.columns import Batch, Columns
from worker.counting.partition import PartitionState
from worker.counting.rules import Rule, Terms

FOLDER = Path(__file__).parents[2] / "vectors"
VECTORS = json.loads((FOLDER / "pure_ldp.json").read_text())
FRAMES = json.loads((FOLDER / "frames.json").read_text())["streams"]
ORACLE_VECTORS = json.loads((FOLDER / "oracles.json").read_text())["streams"]


STREAMS = {
    "grr-3": ldp.Stream("s", ldp.GRR("1", domain_size=3), labels=["rot", "grün", "blau"]),
    "grr-256": ldp.Stream("s", ldp.GRR("1", domain_size=256)),
    "grr-70000": ldp.Stream("s", ldp.GRR("1", domain_size=70_000)),
    "olh-mul32": ldp.Stream("s", ldp.OLH("1", domain_size=120)),
    "olh-xxh32": ldp.Stream("s", ldp.OLH("2", domain_size=120, hash="xxh32")),
    "olh-g300": ldp.Stream("s", ldp.OLH("1/3", domain_size=11, g=300)),
    "oue-10": ldp.Stream("s", ldp.OUE("1", domain_size=10)),
    "oue-64": ldp.Stream("s", ldp.OUE("1", domain_size=64)),
    "oue-1": ldp.Stream("s", ldp.OUE("1", domain_size=1)),
    "sue-77": ldp.Stream("s", ldp.SUE("2", domain_size=77)),
    "subset-bits": ldp.Stream("s", ldp.SubsetSelection("1", domain_size=29)),
    "subset-bits-full": ldp.Stream("s", ldp.SubsetSelection("1", domain_size=16)),
    "subset-u1": ldp.Stream("s", ldp.SubsetSelection("3", domain_size=100)),
    "subset-u2": ldp.Stream("s", ldp.SubsetSelection("5", domain_size=1000)),
    "subset-u4": ldp.Stream("s", ldp.SubsetSelection("1", domain_size=70_000, k=3)),
    "subset-tie": ldp.Stream("s", ldp.SubsetSelection("1", domain_size=20, k=3)),
    "hadamard-10": ldp.Stream("s", ldp.HadamardResponse("1", domain_size=10)),
    "hadamard-255": ldp.Stream("s", ldp.HadamardResponse("1", domain_size=255)),
    "hadamard-256": ldp.Stream("s", ldp.HadamardResponse("1", domain_size=256)),
    "pgr-10": ldp.Stream("s", ldp.PGR("1", domain_size=10)),
    "pgr-line": ldp.Stream("s", ldp.PGR("3", domain_size=10, prime=11, dimension=2)),
    "pgr-300": ldp.Stream("s", ldp.PGR("2", domain_size=300, prime=7, dimension=4)),
    "pgr-70000": ldp.Stream("s", ldp.PGR("1", domain_size=70_000)),
}
every_stream = pytest.mark.parametrize("stream", STREAMS.values(), ids=STREAMS.keys())


def recount(stream, records):
    return audit.recount(stream.document(), records)


def counted_by_worker(stream, records, start=0, cuts=(), recorded=None):
    """The worker's path over the same records, in batches cut at the given indices."""
    state = PartitionState.fresh(stream, start)
    state.rules = recorded or state.rules
    edges = [0, *cuts, len(records)]
    for first, last in pairwise(edges):
        part = records[first:last]
        columns = Columns.of(range(start + first, start + last), [t for t, _ in part], [v for _, v in part])
        state.apply(stream, Batch(0, start + first, start + last, columns))
    return state


def frame(stream, *reports):
    return frames.encode(stream, np.array(list(reports), stream.oracle.report_dtype))


def some_reports(stream, rng, n):
    """Well-formed reports, uniformly drawn; those that are vectors as users send them."""
    oracle = stream.oracle
    if oracle.length is None:
        return [tuple(rng.randrange(bound) for bound in oracle.fields.values()) for _ in range(n)]
    coins = np.random.default_rng(rng.getrandbits(64))
    return list(oracle.perturb(coins.integers(0, oracle.domain_size, n), rng=coins))


def assert_agree(stream, records, cuts=()):
    mine, theirs = recount(stream, records), counted_by_worker(stream, records, cuts=cuts)
    if dict(mine.rejected) != theirs.rejected:  # say which record, not only how many
        for record in records:
            reasons = dict(recount(stream, [record]).rejected), counted_by_worker(stream, [record]).rejected
            assert reasons[0] == reasons[1], record[1]
    assert dict(mine.rejected) == theirs.rejected
    assert (mine.accepted, mine.watermark) == (theirs.accepted, theirs.watermark)
    assert mine.reports == theirs.windows["all"].reports
    np.testing.assert_array_equal(mine.state, theirs.windows["all"].state)
    return mine


# --- what a report supports -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", VECTORS["cases"], ids=lambda case: f"eps={case['epsilon']} d={case['d']}")
def test_xxh32_counts_what_pure_ldp_counts(case):
    stream = ldp.Stream("s", ldp.OLH(case["epsilon"], domain_size=case["d"], hash="xxh32", g=case["g"]))
    records = [(0, frame(stream, report)) for report in zip(case["seeds"], case["buckets"], strict=True)]
    assert recount(stream, records).state.tolist() == case["counts"]


@pytest.mark.parametrize(("seed", "value", "hashed"), VECTORS["hashes"])
def test_xxh32_of_long_decimal_strings(seed, value, hashed):
    # one report at the largest g, so that its bucket tells 16 bits of the hash
    stream = ldp.Stream("s", ldp.OLH("1", domain_size=value + 1, hash="xxh32", g=1 << 16))
    assert recount(stream, [(0, frame(stream, (seed, hashed % (1 << 16))))]).state[value] == 1


@pytest.mark.parametrize("g", [2, 3, 4, 7, 256, 257, 1 << 16])
def test_mul32_by_its_definition(g):
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
    assert recount(stream, [(0, frame(stream, *reports))]).state.tolist() == expected


def test_recount_is_the_same_however_the_work_is_cut(monkeypatch):
    stream, rng = STREAMS["olh-xxh32"], random.Random(5)
    records = [(0, frame(stream, *some_reports(stream, rng, 40))) for _ in range(20)]
    whole = recount(stream, records).state
    monkeypatch.setattr(audit, "_LANE", 64)
    monkeypatch.setattr(audit, "_PENDING_BYTES", 700)
    np.testing.assert_array_equal(recount(stream, records).state, whole)


@every_stream
def test_fingerprint(stream):
    assert audit.fingerprint(stream.document()) == stream.fingerprint


def test_every_registered_protocol_is_audited():
    assert {stream.oracle.name for stream in STREAMS.values()} == set(ORACLES)


def test_unknown_protocol_is_refused():
    with pytest.raises(audit.AuditError, match=r"rappor.*knows the protocols grr, olh"):
        audit.recount({"protocol": "rappor", "domain_size": 3}, [])
    document = STREAMS["olh-mul32"].document() | {"hash": "md5"}
    with pytest.raises(audit.AuditError, match="md5"):
        audit.recount(document, [])


@pytest.mark.parametrize("vector", ORACLE_VECTORS, ids=lambda vector: vector["name"])
def test_reports_of_the_vectors_support_what_they_say(vector):
    document, reports = vector["document"], vector["reports"]
    assert audit.fingerprint(document).hex() == vector["fingerprint"]
    wire = b"".join(bytes.fromhex(report["wire"]) for report in reports)
    head = b"\x01" + bytes.fromhex(vector["fingerprint"])
    said = json.dumps({"fingerprint": vector["fingerprint"], "reports": [r["json"] for r in reports]})
    for value in (head + wire, said.encode()):
        result = audit.recount(document, [(0, value)])
        assert (result.accepted, result.reports) == (1, len(reports))
        if document["protocol"] in (
            "hadamard",
            "pgr",
        ):  # counted as they come, decoded by whoever reads the state
            expected = np.bincount([report["json"] for report in reports], minlength=len(result.state))
            np.testing.assert_array_equal(result.state, expected)
            oracle = ldp.Stream.from_document("s", document).oracle
            assert oracle.support(result.state).tolist() == vector["support"]
        else:
            assert result.state.tolist() == vector["support"]


@pytest.mark.parametrize(
    ("document", "entries"),
    [
        ({"protocol": "hadamard", "domain_size": 1}, 2),
        ({"protocol": "hadamard", "domain_size": 7}, 8),
        ({"protocol": "hadamard", "domain_size": 8}, 16),
        ({"protocol": "hadamard", "domain_size": 1 << 20}, 1 << 21),
        ({"protocol": "pgr", "domain_size": 3, "prime": 2, "dimension": 2}, 3),
        ({"protocol": "pgr", "domain_size": 10, "prime": 3, "dimension": 3}, 13),
        ({"protocol": "pgr", "domain_size": 1000, "prime": 3, "dimension": 7}, 1093),
        ({"protocol": "pgr", "domain_size": 2000, "prime": 53, "dimension": 3}, 2863),
    ],
    ids=str,
)
def test_the_state_of_an_index_has_an_entry_for_each(document, entries):
    mark = audit.fingerprint(document)
    width = 1 if entries <= 256 else 2 if entries <= 65536 else 4
    last = (entries - 1).to_bytes(width, "little")
    result = audit.recount(document, [(0, b"\x01" + mark + last)])
    assert len(result.state) == entries
    assert result.state[-1] == 1
    beyond = f'{{"fingerprint": "{mark.hex()}", "reports": [{entries}]}}'.encode()
    assert dict(audit.recount(document, [(0, beyond)]).rejected) == {"range": 1}


@pytest.mark.parametrize(
    ("d", "k", "good", "bad"),
    [
        (20, 3, "000113", "070000"),  # three bytes either way: indices
        (20, 4, "070008", "00010213"),  # four bytes of indices, three of bits
        (256, 32, bytes(range(32)).hex(), "ffffffff" + "00" * 28),  # the tie of a whole byte
        (256, 33, "ffffffff01" + "00" * 27, bytes(range(33)).hex()),
        (257, 16, "".join(f"{v:02x}00" for v in range(16)), "ffff" + "00" * 31),  # 32 bytes against 33
        (257, 17, "ffff01" + "00" * 30, "".join(f"{v:02x}00" for v in range(17))),
    ],
)
def test_a_subset_is_written_in_the_shorter_way(d, k, good, bad):
    document = {"protocol": "subset", "epsilon": "1/1", "domain_size": d, "k": k}
    head = b"\x01" + audit.fingerprint(document)
    result = audit.recount(document, [(0, head + bytes.fromhex(good)), (0, head + bytes.fromhex(bad))])
    assert (result.accepted, result.reports, result.rejected.total()) == (1, 1, 1)
    assert result.state[:k].sum() + result.state[-1] >= k
    assert result.state.sum() == k


# --- malformed records ------------------------------------------------------------------------------------------------

HEAD = bytes([1]) + STREAMS["olh-mul32"].fingerprint
MARK = STREAMS["olh-mul32"].fingerprint.hex()


def said(reports, fingerprint=f'"{MARK}"'):
    return f'{{"fingerprint":{fingerprint},"reports":{reports}}}'.encode()


MALFORMED = [
    (None, "empty"),
    (b"", "empty"),
    (b"\x00", "version"),
    (b"\x02" + HEAD[1:] + bytes(5), "version"),
    (b" " + said("[[1,2]]"), "version"),
    (b"\xef\xbb\xbf" + said("[[1,2]]"), "version"),
    (b"[]", "version"),
    (b"\x01", "length"),
    (HEAD[:4], "length"),
    (HEAD, "length"),
    (HEAD + bytes(4), "length"),
    (HEAD + bytes(6), "length"),
    (b"\x01\x00\x00\x00\x00" + bytes(5), "fingerprint"),
    (b"\x01\x00\x00\x00\x00", "fingerprint"),
    (HEAD + struct.pack("<IB", 1, 4), "range"),
    (HEAD + struct.pack("<IBIB", 1, 3, 1, 255), "range"),
    (b"{", "json"),
    (b"{}", "json"),
    (said("[[1,2]]") + b"}", "json"),
    (said("[[1,2]]") + b"\x00", "json"),
    (said("[[1,2]]").replace(b"reports", b"report\xff"), "json"),
    (said("[[1,2]]").replace(b"reports", b"report\xed\xa0\x80"), "json"),
    (said("[[1,2]]").replace(b"reports", rb"report\ud800"), "json"),
    (said("[[1,2]]").decode().encode("utf-16-le"), "json"),
    (said('[[1,2]],"reports":[[1,2]]'), "json"),
    (said('[[1,2]],"extra":0'), "json"),
    (f'{{"fingerprint":"{MARK}"}}'.encode(), "json"),
    (said("[[1.0,2]]"), "json"),
    (said("[[1e0,2]]"), "json"),
    (said("[[true,2]]"), "json"),
    (said("[[1,null]]"), "json"),
    (said('[["1",2]]'), "json"),
    (said("[[NaN,2]]"), "json"),
    (said("[[-Infinity,2]]"), "json"),
    (said("[[01,2]]"), "json"),
    (said("[[1,2],]"), "json"),
    (said("[1,2]"), "json"),
    (said("[[1]]"), "json"),
    (said("[[1,2,3]]"), "json"),
    (said("[[[1,2]]]"), "json"),
    (said('[{"seed":1,"bucket":2}]'), "json"),
    (said("[" * 100_000), "json"),
    (said("[" * 300 + "]" * 300), "json"),
    (said("[" * 100_000 + "]" * 100_000), "json"),
    (said("{}"), "json"),
    (said("null"), "json"),
    (said('"[[1,2]]"'), "json"),
    (said("[[1,2]]", "1"), "json"),
    (said("[[1,2]]", "null"), "json"),
    (said("[[1,2]]", f'"{MARK.upper()}"'), "json"),
    (said("[[1,2]]", '"00000000"'), "fingerprint"),
    (said("[]", '"00000000"'), "fingerprint"),
    (said("[]"), "length"),
    (said("[[1,4]]"), "range"),
    (said("[[-1,2]]"), "range"),
    (said("[[4294967296,2]]"), "range"),
    (said("[[1,2],[1,2],[1,256]]"), "range"),
    (said(f"[[{10**4000},2]]"), "range"),
    # another stream's reports only have to look like some protocol's
    (said("[1]", '"00000000"'), "fingerprint"),
    (said('["AAE="]', '"00000000"'), "fingerprint"),
    (said("[[true,2]]", '"00000000"'), "json"),
    (said("[[1.5,NaN]]", '"00000000"'), "json"),
    (said("[" * 300 + "]" * 300, '"00000000"'), "json"),
    (said("[" * 100_000 + "]" * 100_000, '"00000000"'), "json"),
    # an integer is out of range however long
    (said("[[" + "9" * 4300 + ",2]]"), "range"),
    (said("[[-" + "9" * 4300 + ",2]]"), "range"),
    (said("[[" + "9" * 4301 + ",2]]"), "range"),
    (said("[[" + "9" * 4301 + ",2]]", '"00000000"'), "fingerprint"),
]


@pytest.mark.parametrize("vector", [*FRAMES, *ORACLE_VECTORS], ids=lambda vector: vector["name"])
def test_frame_vectors(vector):
    document = vector["document"]
    assert audit.fingerprint(document).hex() == vector["fingerprint"]
    for item in vector["records"]:
        value = bytes.fromhex(item["hex"]) if "hex" in item else item["text"].encode()
        result = audit.recount(document, [(0, value)], audit.Rule(vector.get("most_reports")))
        if "reason" in item:
            assert (result.accepted, dict(result.rejected)) == (0, {item["reason"]: 1}), item["what"]
        else:
            assert (result.accepted, result.reports) == (1, len(item["reports"]))


@pytest.mark.parametrize(("value", "reason"), MALFORMED, ids=range(len(MALFORMED)))
def test_malformed_records_are_rejected_for_a_reason(value, reason):
    stream = STREAMS["olh-mul32"]
    good = frame(stream, (7, 1))
    result = recount(stream, [(5, good), (9, value)])
    assert (result.accepted, dict(result.rejected), result.watermark, result.reports) == (
        1,
        {reason: 1},
        5,
        1,
    )
    assert counted_by_worker(stream, [(5, good), (9, value)]).rejected == {reason: 1}


WELL_FORMED = [
    said("[[1,2],[4294967295,3]]"),
    said(" [ [ 1 ,\t2 ] ,\r\n[4294967295, 3] ] ") + b" \n",
    f'{{"reports":[[1,2],[4294967295,3]],"fingerprint":"{MARK}"}}'.encode(),
    said("[[1,2],[4294967295,3]]").replace(b"reports", rb"r\u0065ports"),
    HEAD + struct.pack("<IBIB", 1, 2, 4294967295, 3),
]


@pytest.mark.parametrize("value", WELL_FORMED, ids=range(len(WELL_FORMED)))
def test_all_forms_of_the_same_reports_count_the_same(value):
    stream = STREAMS["olh-mul32"]
    result = assert_agree(stream, [(3, value)])
    assert (result.accepted, result.reports) == (1, 2)
    np.testing.assert_array_equal(result.state, recount(stream, [(3, WELL_FORMED[-1])]).state)


# --- two implementations, one answer ----------------------------------------------------------------------------------

SCRAPS = [
    *(
        "{",
        "}",
        "[",
        "]",
        ",",
        ":",
        '"',
        "\\",
        " ",
        "\n",
        "\t",
        "0",
        "1",
        "-",
        "-0",
        ".",
        ".0",
        "e3",
        "00",
        "\x00",
    ),
    *(
        "true",
        "null",
        "NaN",
        "Infinity",
        "[]",
        "{}",
        '""',
        "\\u0030",
        "\\ud83d",
        "\\ud83d\\ude00",
        "é",
        "\ufeff",
    ),
    *('"fingerprint"', '"reports"', '"reports":', "99999999999999999999", "4294967296", "256", '"00000000"'),
]


def mutated_frame(stream, rng):
    value = bytearray(frame(stream, *some_reports(stream, rng, rng.randrange(1, 5))))
    for _ in range(rng.randrange(3)):
        at = rng.randrange(len(value) + 1)
        match rng.randrange(4):
            case 0:
                value[at : at + 1] = rng.randbytes(1)
            case 1:
                del value[at : at + rng.randrange(1, 4)]
            case 2:
                value[at:at] = rng.randbytes(rng.randrange(1, 4))
            case 3:
                value[5:] = rng.randbytes(rng.randrange(12))
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
    """The base64 of a report, most often unchanged; of other bytes, or with other characters."""
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
        case 4:
            at = rng.randrange(len(wire))
            wire[at], wire[-1] = wire[-1], wire[at]
    text = b64encode(wire).decode()
    match rng.randrange(60):
        case 0:
            at = rng.randrange(len(text) + 1)
            text = text[:at] + rng.choice("=A/+-_ \n\0é\ud800B") + text[at + rng.randrange(2) :]
        case 1:
            text = text.rstrip("=")
        case 2:
            text += rng.choice(["=", "==", "AAAA"])
    return text


@every_stream
@pytest.mark.parametrize("make", [mutated_frame, mutated_json])
def test_recount_agrees_with_the_worker_on_mutated_records(stream, make):
    rng = random.Random(f"{make.__name__} {stream.fingerprint.hex()}")
    records = [(rng.randrange(10**12), make(stream, rng)) for _ in range(3000)]
    result = assert_agree(stream, records, cuts=sorted(rng.sample(range(1, 3000), 9)))
    assert result.accepted > 300
    # the mixture is worth something only if it reaches every way to fail
    reached = (
        {"version", "fingerprint", "length"} if make is mutated_frame else {"json", "fingerprint", "length"}
    )
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


def test_recount_agrees_with_the_worker_on_perturbed_users():
    for stream in STREAMS.values():
        rng = np.random.default_rng(3)
        values = rng.integers(0, stream.oracle.domain_size, 3000)
        reports = stream.oracle.perturb(values, rng=rng)
        records = [(t, frames.encode(stream, part)) for t, part in enumerate(np.array_split(reports, 70))]
        records += [
            (t, frames.encode_json(stream, part)) for t, part in enumerate(np.array_split(reports, 70))
        ]
        assert assert_agree(stream, records).reports == 6000


# --- the verdict on what is stored ------------------------------------------------------------------------------------

GROUP = "ldp-worker-s"
STREAM = STREAMS["olh-mul32"]
START = 100
FLUSH = "0123456789abcdef" * 2


def log(n=50, seed=1):
    """Records of offsets START, START+1, ...: good ones, and every fifth malformed."""
    rng = random.Random(seed)
    return [
        (10_000 + i, b"noise" if i % 5 == 4 else frame(STREAM, *some_reports(STREAM, rng, 3)))
        for i in range(n)
    ]


def stored(state, group=GROUP, stream=STREAM):
    """What a commit of a state leaves in the store."""
    before = layout.initial(
        layout.lineage(group, stream, "topic-id"), PartitionState.fresh(stream, state.start)
    )
    metadata, blobs = layout.dump(state, before, FLUSH)
    return metadata.fields(), dict(blobs)


def verify(cut, records, begin=START, end=None, stream=STREAM, read=None):
    def there(first, last):
        assert begin <= first <= last
        return records[first - START : last - START]

    bounds = (begin, START + len(records) if end is None else end)
    return audit.verify(stream.document(), 0, group=GROUP, cut=cut, bounds=bounds, read=read or there)


def test_equal_up_to_the_stored_offset_and_no_further():
    records = log()
    row = verify(stored(counted_by_worker(STREAM, records[:40], START)), records)
    assert row == audit.Row(0, START, START + 40, lag=10, records=40, reports=96, rejected={"version": 8})


def test_nothing_counted_yet_is_no_difference():
    empty = ({}, {"all": None})
    assert verify(empty, log()) == audit.Row(0, None, 0, lag=50)
    claimed = layout.initial(layout.lineage(GROUP, STREAM, "t"), PartitionState.fresh(STREAM, START)).fields()
    assert verify((claimed, {"all": None}), log()) == audit.Row(0, START, START, lag=50)


def changed(what, to):
    def change(state):
        setattr(state, what, to)

    return change


def add_to_entry(state):
    state.windows["all"].state[[17, 60]] += 1


def add_report(state):
    state.windows["all"].reports += 1


@pytest.mark.parametrize(
    ("change", "difference"),
    [
        (changed("accepted", 41), "accepted: 41 in Redis, 40 recounted"),
        (changed("rejected", {"version": 9}), "rejected as version: 9 in Redis, 10 recounted"),
        (changed("rejected", {"version": 10, "json": 1}), "rejected as json: 1 in Redis, 0 recounted"),
        (changed("rejected", {}), "rejected as version: 0 in Redis, 10 recounted"),
        (changed("late", 1), "late: 1 in Redis, 0 recounted"),
        (changed("watermark", 10_049), "watermark: 10049 in Redis, 10048 recounted"),
        (changed("watermark", None), "watermark: None in Redis, 10048 recounted"),
        (add_report, "reports: 121 in Redis, 120 recounted"),
        (changed("offset", START + 49), "rejected as version: 10 in Redis, 9 recounted"),
        (
            changed("offset", START + 51),
            "offset: 151 in Redis, but the log ends at 150: truncated or made anew",
        ),
        (changed("start", START + 1), "start: 101 in Redis, but the log begins at 100 already"),
    ],
)
def test_first_difference_is_named(change, difference):
    state = counted_by_worker(STREAM, log(), START)
    change(state)
    assert verify(stored(state), log()).difference == difference


def test_a_single_entry_of_the_state_is_enough():
    records = log()
    state = counted_by_worker(STREAM, records, START)
    was = int(state.windows["all"].state[17])
    add_to_entry(state)
    row = verify(stored(state), records)
    assert row.difference == f"state[17]: {was + 1} in Redis, {was} recounted; 2 of 120 entries differ"


def test_reports_of_one_record_exchanged_for_others_are_noticed():
    # every total is equal, only the vectors differ
    records = log()
    others = [(records[0][0], frame(STREAM, (1, 1), (2, 2), (3, 3))), *records[1:]]
    row = verify(stored(counted_by_worker(STREAM, records, START)), others)
    assert row.difference.startswith("state[")


def test_metadata_and_counts_must_belong_together():
    records = log()
    fields, blobs = stored(counted_by_worker(STREAM, records, START))
    assert verify((fields, blobs), records).difference is None
    blob = blobs["all"]

    def difference(fields=fields, blob=blob):
        return verify((fields, {"all": blob}), records).difference

    assert difference({}) == "metadata: missing, but there are counts"
    assert difference(blob=None) == "counts: the blob that the metadata name is missing"
    assert difference(blob=blob[:-8]) == f"counts: the blob has {len(blob) - 8} bytes, {len(blob)} are due"
    assert difference(blob=b"LDP2" + blob[4:]).startswith("counts: the blob says b'LDP2'")
    other = fields | {"blobs": json.dumps({"all": "f" * 32})}
    assert difference(other) == f"counts: the blob is of flush {FLUSH}, the metadata name {'f' * 32}"
    assert difference(fields | {"offset": "149"}) == "counts: the blob is of offset 150, the metadata of 149"
    assert difference(fields | {"flush": ""}) == "metadata: of before the first commit, but there are counts"
    assert difference(fields | {"blobs": "{}"}).startswith("metadata: the blobs named are []")
    for key in fields.keys() - {"epoch", "flush"}:
        assert difference(fields | {key: "?"}).startswith("metadata: "), key
        assert difference({k: v for k, v in fields.items() if k != key}).startswith("metadata: "), key


def test_a_blob_may_be_older_than_the_metadata():
    records = log()
    state = counted_by_worker(STREAM, records, START)
    before, blobs = layout.dump(state, layout.initial(layout.lineage(GROUP, STREAM, "t"), state), FLUSH)
    state.changed.clear()
    state.apply(
        STREAM, Batch(0, state.offset, state.offset + 1, Columns.of([], [], []))
    )  # a transaction marker
    after, none = layout.dump(state, before, "f" * 32)
    assert none == {}
    assert verify((after.fields(), blobs), [*records], end=state.offset + 1).difference is None


def test_counts_of_another_stream_or_group_are_refused():
    records = log()
    state = counted_by_worker(STREAM, records, START)
    row = verify(stored(state, group="other"), records)
    assert row.difference == f"lineage: group is 'other' in Redis, {GROUP!r} by the configuration"
    row = verify(stored(state, stream=STREAMS["olh-xxh32"]), records)
    assert row.difference.startswith("lineage: fingerprint is ")


def with_gap(records, lost, found, recorded=None):
    """A worker's state that counted up to ``lost`` and went on at ``found``."""
    state = counted_by_worker(STREAM, records[: lost - START], START, recorded=recorded)
    state.skip(found)
    rest = records[found - START :]
    end = START + len(records)
    offsets = range(found, end)
    state.apply(STREAM, Batch(0, found, end, Columns.of(offsets, [t for t, _ in rest], [v for _, v in rest])))
    return state


def test_point_7_deleted_records_are_named_as_what_cannot_be_recounted():
    records = log()
    cut = stored(counted_by_worker(STREAM, records, START))
    row = verify(cut, records, begin=START + 20)
    said = "not recountable: offsets 100 to 119: counted, then deleted; nothing differs in what remains: 30 records"
    assert (row.difference, row.deleted, row.verdict) == (said, ((100, 120),), "not recountable")
    assert (row.records, row.reports, row.malformed) == (30, 72, 6)
    # all of it is gone, and more was not counted yet
    row = verify(cut, records, begin=START + 60, end=START + 70)
    said = "not recountable: offsets 100 to 149: counted, then deleted; none remains"
    assert (row.difference, row.deleted, row.records) == (said, ((100, 150),), 0)
    # what was not counted when it was deleted is no part of it: the worker's next claim records it as a gap
    assert verify(cut, records, begin=START + 1).deleted == ((100, 101),)


@every_stream
def test_point_7_whatever_was_deleted_right_counts_are_never_different(stream):
    rng = random.Random(f"retention {stream.fingerprint.hex()}")
    records = [
        (
            rng.randrange(10**6),
            b"noise" if rng.randrange(4) == 0 else frame(stream, *some_reports(stream, rng, 2)),
        )
        for _ in range(40)
    ]
    cut = stored(counted_by_worker(stream, records, START), stream=stream)
    for begin in range(START + 1, START + 41):
        row = verify(cut, records, begin=begin, stream=stream)
        assert (row.verdict, row.deleted) == ("not recountable", ((START, begin),)), row.difference
        assert row.records == START + 40 - begin


def empty_state(state):
    state.windows["all"].state[:] = 0


def fill_state(state):
    state.windows["all"].state[:] = state.windows["all"].reports + 1


def no_reports(state):
    state.windows["all"].reports = 0


def more_reports(state):
    state.windows["all"].reports += 1000


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (changed("accepted", 3), "accepted: 3 in Redis, 24 recounted of what remains"),
        (changed("accepted", 60), "records: 20 offsets were deleted, 40 records were counted there"),
        (changed("rejected", {"version": 5}), "rejected as version: 5 in Redis, 6 recounted of what remains"),
        (changed("rejected", {"version": 10, "json": 1}), "records: 20 offsets were deleted, 21 records"),
        (changed("late", 1), "late: 1 in Redis, 0 recounted"),
        (changed("watermark", 10_047), "watermark: 10047 in Redis, 10048 recounted of what remains"),
        (changed("watermark", None), "watermark: None in Redis, 10048 recounted of what remains"),
        (no_reports, "reports: 0 in Redis, 72 recounted of what remains"),
        (empty_state, "state[0]: 0 in Redis, "),
        (fill_state, "state[0]: "),
    ],
)
def test_point_7_a_loss_that_shows_in_what_remains_is_a_difference(change, said):
    state = counted_by_worker(STREAM, log(), START)
    change(state)
    row = verify(stored(state), log(), begin=START + 20)
    assert row.difference.startswith(said)
    assert (row.verdict, row.deleted) == ("different", ())


@pytest.mark.parametrize("name", ["grr-3", "subset-u1", "subset-bits", "hadamard-10", "pgr-10", "oue-10"])
def test_point_7_what_was_deleted_must_add_up_as_the_protocols_reports_do(name):
    stream, rng = STREAMS[name], random.Random(7)
    ones = stream.document().get("k", None if name.startswith("oue") else 1)
    records = [(0, frame(stream, *some_reports(stream, rng, 2))) for _ in range(50)]
    for change in (add_to_first, more_reports):
        state = counted_by_worker(stream, records, START)
        change(state)
        row = verify(stored(state, stream=stream), records, begin=START + 20, stream=stream)
        if ones is None:  # a user's bits are as many as the coins say
            assert row.verdict == "not recountable"
        else:
            reports = 40 if change is add_to_first else 1040
            total = ones * 40 + (change is add_to_first)
            said = f"state: the sum of {reports} deleted reports is {total}, {ones * reports} is due"
            assert row.difference == said


def add_to_first(state):
    state.windows["all"].state[0] += 1


def test_point_7_records_that_were_all_malformed_have_no_reports():
    records = [(5, b"noise")] * 20 + log()
    good = counted_by_worker(STREAM, records, START)
    assert verify(stored(good), records, begin=START + 20).verdict == "not recountable"
    for change, said in (
        (add_report, "reports: 121 of 0 accepted"),
        (changed("watermark", 99_999), "watermark: 99999 in Redis, 10048 recounted of what remains"),
    ):
        state = counted_by_worker(STREAM, records, START)
        state.rejected["version"] = 30
        change(state)
        row = verify(stored(state), records, begin=START + 20)
        assert row.difference.startswith(said.replace("121", "1"))


def test_point_7_retention_that_passes_during_the_audit():
    records = log()
    cut = stored(counted_by_worker(STREAM, records, START))

    def read(first, last):
        assert (first, last) == (START + 5, START + 50)
        yield from records[5:20]
        yield audit.Deleted((START + 20, START + 30))
        yield from records[30:50]

    row = verify(cut, records, begin=START + 5, read=read)
    assert (row.verdict, row.deleted) == ("not recountable", ((100, 105), (120, 130)))
    assert row.records == 35
    assert "offsets 100 to 104, offsets 120 to 129: counted, then deleted" in row.difference


def test_a_gap_is_named_and_the_rest_recounted():
    records = log()
    # lost before anything was counted: all that remains can be read again
    row = verify(stored(with_gap(records, START, START + 20)), records, begin=START + 20)
    said = (
        "gap: offsets 100 to 119: recorded as lost, deleted before they were counted; all else equals the log"
    )
    assert (row.difference, row.gaps, row.verdict, row.records) == (said, ((100, 120),), "gap", 30)
    row = verify(stored(with_gap(records, START, START + 1)), records, begin=START + 1)
    assert row.difference.startswith("gap: offset 100: recorded as lost")
    # counted to 110, the log then began at 120: what was counted before is gone too
    row = verify(stored(with_gap(records, START + 10, START + 20)), records, begin=START + 20)
    said = (
        "gap: offsets 110 to 119: recorded as lost, deleted before they were counted;"
        " not recountable: offsets 100 to 109: counted, then deleted; nothing differs in what remains: 30 records"
    )
    assert (row.difference, row.verdict) == (said, "gap")
    assert (row.gaps, row.deleted) == (((110, 120),), ((100, 110),))
    # a difference in the rest comes first
    state = with_gap(records, START, START + 20)
    state.accepted += 1
    row = verify(stored(state), records, begin=START + 20)
    assert row.difference == f"accepted: {state.accepted} in Redis, {state.accepted - 1} recounted"
    assert (row.gaps, row.verdict) == ((), "different")


def test_a_gap_that_the_log_disproves_is_a_difference():
    records = log()
    row = verify(stored(with_gap(records, START, START + 20)), records, begin=START + 19)
    assert row.difference == "gaps: [100, 120) in Redis, but the log still has it from 119 on"
    state = counted_by_worker(STREAM, records, START)
    state.gaps = [(140, 160)]
    row = verify(stored(state), records)
    assert row.difference == "gaps: [(140, 160)] do not ascend within [100, 150)"


# --- the rules that are recorded --------------------------------------------------------------------------------------

UNARY = STREAMS["oue-64"]
RULES = [
    Rule(START, 0, Terms(None, ones=False)),
    Rule(START + 10, 1, Terms(2, ones=True)),
    Rule(START + 10, 2, Terms(3, ones=True)),
    Rule(START + 25, 3, Terms(1, ones=False)),
    Rule(START + 80, 9, Terms(1, ones=True)),  # not yet
]


def of_all_lengths(stream, n=50, seed=2):
    """Records of 1 to 4 reports; some of the unary ones of nothing but ones."""
    rng = random.Random(seed)
    records = []
    for t in range(n):
        reports = some_reports(stream, rng, rng.randrange(1, 5))
        if stream.oracle.name == "oue" and rng.randrange(2):
            reports[0] = np.frombuffer(b"\xff" * 8, stream.oracle.report_dtype)[0]
        encode = rng.choice([frames.encode, frames.encode_json])
        records.append((t, encode(stream, np.array(reports, stream.oracle.report_dtype))))
    return records


@pytest.mark.parametrize("stream", [STREAM, UNARY], ids=["olh", "oue"])
@pytest.mark.parametrize("cuts", [(), (10, 25), (3, 17, 30)])
def test_point_16_and_19_the_audit_follows_the_rule_recorded_for_each_offset(stream, cuts):
    records = of_all_lengths(stream)
    state = counted_by_worker(stream, records, START, cuts, RULES)
    by_hand = Counter()
    for i, (_, value) in enumerate(records):
        most, ones = [(None, False), (3, True), (1, False)][(i >= 10) + (i >= 25)]
        by_hand.update(audit.recount(stream.document(), [(0, value)], audit.Rule(most, ones)).rejected)
    assert dict(by_hand) == state.rejected
    assert by_hand.keys() == ({"many", "ones"} if stream is UNARY else {"many"})
    for encoded in (state, *([] if stream is UNARY else [with_gap(records, START, START + 5, RULES)])):
        row = audit.verify(
            stream.document(),
            0,
            group=GROUP,
            cut=stored(encoded, stream=stream),
            bounds=(START + 5 if encoded.gaps else START, START + 50),
            read=lambda first, last: records[first - START : last - START],
        )
        assert row.verdict == ("gap" if encoded.gaps else "equal"), row.difference
        assert row.rejected == encoded.rejected


def test_point_16_old_counts_have_no_rules_and_everything_counted():
    records = of_all_lengths(UNARY)
    state = counted_by_worker(UNARY, records, START, recorded=[rules.before(START)])
    fields, blobs = stored(state, stream=UNARY)
    totals = json.loads(fields["totals"])
    assert totals.pop("rules") == [{"offset": START, "revision": 0, "most_reports": None, "ones": False}]
    cut = fields | {"totals": json.dumps(totals)}, blobs
    bounds, read = (START, START + 50), lambda first, last: records[first - START : last - START]
    row = audit.verify(UNARY.document(), 0, group=GROUP, cut=cut, bounds=bounds, read=read)
    assert (row.verdict, row.records, row.malformed) == ("equal", 50, 0)
    assert layout.recorded(layout.Metadata.parse(cut[0])) == [rules.before(START)]


@pytest.mark.parametrize(
    "said",
    [
        [],
        [{"offset": START + 1, "revision": 1, "most_reports": 1, "ones": True}],
        [{"offset": START, "revision": 1, "most_reports": 1}],
        [{"offset": START, "revision": 1, "most_reports": 1, "ones": True, "grace": 5}],
        [rule.as_json() for rule in (RULES[3], RULES[1])],
        ["rule"],
        None,
    ],
)
def test_point_16_rules_that_cannot_be_followed_are_named(said):
    fields, blobs = stored(counted_by_worker(STREAM, log(), START))
    totals = json.loads(fields["totals"]) | {"rules": said}
    fields |= {"totals": json.dumps(totals)}
    assert verify((fields, blobs), log()).difference.startswith("metadata: ")
    with pytest.raises(layout.StateLost, match="cannot be read"):
        layout.recorded(layout.Metadata.parse(fields))


@pytest.mark.parametrize("oracle", [ldp.OUE, ldp.SUE])
def test_point_19_the_audit_finds_the_same_unlikely_ones_by_itself(oracle):
    for epsilon in ("1/100", "1/2", "1/1", "3/1", "8/1", "64/1"):
        for d in (*range(1, 50), 64, 100, 845, 4000):
            expected = oracle(epsilon, domain_size=d).likely_ones
            assert audit._likely_ones(oracle.name, epsilon, d) == expected, (epsilon, d)


# --- what is said -----------------------------------------------------------------------------------------------------


EQUAL = audit.Row(0, 100, 150, 7, records=50, reports=120, rejected={"json": 2, "version": 8})
UNCOUNTED = audit.Row(1, None, 0, 4)
DIFFERENT = audit.Row(2, 0, 5, 0, 3, 3, {"json": 1}, difference="late: 1 in Redis, 0 recounted")
GAP = audit.Row(3, 0, 50, 1, records=30, reports=30, gaps=((0, 20),), difference="gap: offsets 0 to 19: lost")
DELETED = audit.Row(
    4, 0, 50, 1, 30, 30, deleted=((0, 20),), difference="not recountable: offsets 0 to 19: ..."
)


def shown(*rows, width=80):
    console = Console(width=width, force_terminal=False)
    with console.capture() as captured:
        console.print(audit.render(audit.Verdict("colours", rows)))
    return captured.get().splitlines()


def test_verdict_adds_up():
    verdict = audit.Verdict("colours", (EQUAL, UNCOUNTED))
    assert (verdict.equal, verdict.counted, verdict.records, verdict.reports) == (True, True, 50, 120)
    assert (verdict.malformed, verdict.rejected, verdict.lag) == (10, {"json": 2, "version": 8}, 11)
    different = audit.Verdict("colours", (EQUAL, UNCOUNTED, DIFFERENT, GAP))
    assert (different.equal, different.malformed, different.rejected) == (
        False,
        11,
        {"json": 3, "version": 8},
    )
    assert not audit.Verdict("colours", (GAP,)).equal
    assert not audit.Verdict("colours", (UNCOUNTED,)).counted


def test_the_terminal_says_a_row_a_partition_then_what_differs_then_the_outcome():
    lines = shown(EQUAL, UNCOUNTED)
    assert lines[0] == "audit of colours"
    assert [line.split() for line in lines[2:4]] == [
        ["0", "150", "7", "120", "10", "equal"],
        ["1", "0", "4", "0", "0", "none", "yet"],
    ]
    assert lines[-1] == "equal: 120 reports in 50 records, 10 malformed"
    assert shown(UNCOUNTED)[-1] == "nothing is counted yet: no verdict"

    lines = shown(EQUAL, DIFFERENT, GAP)
    assert [line.split()[-1] for line in lines[2:5]] == ["equal", "different", "gap"]
    assert lines[-3:] == [
        "partition 2: late: 1 in Redis, 0 recounted",
        "partition 3: gap: offsets 0 to 19: lost",
        "different in partition 2",
    ]
    assert (
        shown(EQUAL, GAP)[-1] == "equal except for the recorded gaps: 150 reports in 80 records, 10 malformed"
    )


def test_point_11_the_terminal_names_the_reasons_of_malformed_records():
    lines = shown(EQUAL, UNCOUNTED, DIFFERENT)
    assert [line.split() for line in lines[5:8]] == [
        ["malformed", "records", "in", "partition"],
        ["json", "3", "0,", "2"],
        ["version", "8", "0"],
    ]
    assert "malformed  records" not in "\n".join(shown(UNCOUNTED, GAP))


def test_point_7_the_terminal_says_what_is_not_recountable():
    lines = shown(EQUAL, DELETED)
    assert lines[3].split()[-2:] == ["not", "recountable"]
    assert lines[-3] == "partition 4: not recountable: offsets 0 to 19: ..."
    outcome = "not recountable in partition 4; nothing differs in what remains: 150 reports in 80"
    assert " ".join(shown(EQUAL, DELETED, width=200)[-1].split()).startswith(outcome)
    assert (
        "nothing differs except for the recorded gaps in what remains" in shown(GAP, DELETED, width=200)[-1]
    )
    assert shown(DIFFERENT, DELETED)[-1] == "different in partition 2"


@pytest.mark.parametrize(
    ("rows", "verdict", "code", "first"),
    [
        ((), "none yet", 0, None),
        ((UNCOUNTED,), "none yet", 0, None),
        ((UNCOUNTED, EQUAL), "equal", 0, None),
        ((EQUAL, DELETED, UNCOUNTED), "not recountable", 3, 4),
        ((DELETED, GAP), "gap", 1, 3),
        ((audit.Row(0, 0, 9, 0, gaps=((0, 1),), deleted=((1, 2),), difference="gap: ..."),), "gap", 1, 0),
        ((DELETED, GAP, DIFFERENT, EQUAL), "different", 1, 2),
    ],
)
def test_point_7_the_gravest_verdict_is_the_streams_and_has_an_exit_code_of_its_own(
    rows, verdict, code, first
):
    found = audit.Verdict("colours", rows)
    assert (found.verdict, audit.EXIT_CODES[found.verdict]) == (verdict, code)
    assert found.equal == (code == 0)
    assert (found.difference or "").startswith(f"partition {first}: " if code else "")


def test_a_verdict_on_a_billion_fits_in_80_columns():
    row = audit.Row(99, 0, 9_876_543_210, 1_234_567_890, 9_876_543_210, 9_876_543_210, {"json": 123_456})
    lines = shown(row, DIFFERENT)
    assert max(map(len, lines)) <= 80
    assert lines[2].split() == ["99", "9,876,543,210", "1,234,567,890", "9,876,543,210", "123,456", "equal"]
    # whatever the numbers are, the verdict stays whole
    huge = audit.Row(2**31 - 1, 0, 2**63 - 1, 2**63 - 1, 2**63 - 1, 2**63 - 1, {"json": 2**62})
    lines = shown(huge, DIFFERENT, UNCOUNTED)
    assert max(map(len, lines)) <= 80
    assert sum("different" in line for line in lines[:-1]) == sum("none yet" in line for line in lines) == 1
    lines = shown(row, DELETED)
    assert max(map(len, lines)) <= 80
    assert sum("not recountable" in line for line in lines[:-2]) == 1


def test_json_has_the_same_fields_for_the_stream_and_its_partitions():
    tree = json.loads(
        json.dumps(audit.as_json(audit.Verdict("colours", (EQUAL, UNCOUNTED, DIFFERENT, GAP, DELETED))))
    )
    rows = tree["partitions"]
    own = {"partition", "start", "offset", "gaps", "deleted"}
    assert all(row.keys() - own == tree.keys() - {"stream", "partitions"} for row in rows)
    for key, value in tree.items():
        if key not in ("stream", "partitions", "difference"):
            assert {type(row[key]) for row in rows} == {type(value)}, key
    assert (tree["equal"], tree["counted"], tree["malformed"]) == (False, True, 11)
    assert tree["rejected"] == {"json": 3, "version": 8}
    assert tree["difference"] == "partition 2: late: 1 in Redis, 0 recounted"
    assert tree["verdict"] == "different"
    verdicts = ["equal", "none yet", "different", "gap", "not recountable"]
    assert [row["verdict"] for row in rows] == verdicts
    assert [row["equal"] for row in rows] == [True, True, False, False, False]
    assert [row["counted"] for row in rows] == [True, False, True, True, True]
    assert [row["malformed"] for row in rows] == [10, 0, 1, 0, 0]
    assert [row["gaps"] for row in rows] == [[], [], [], [[0, 20]], []]
    assert [row["deleted"] for row in rows] == [[], [], [], [], [[0, 20]]]
    assert rows[0] == {
        "partition": 0,
        "start": 100,
        "offset": 150,
        "verdict": "equal",
        "equal": True,
        "counted": True,
        "difference": None,
        "records": 50,
        "reports": 120,
        "malformed": 10,
        "rejected": {"json": 2, "version": 8},
        "lag": 7,
        "gaps": [],
        "deleted": [],
    }


def test_the_audit_shares_nothing_with_what_it_audits():
    tree = ast.parse(Path(audit.__file__).read_text())
    imported = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            imported += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            imported += [f"{'.' * node.level}{node.module or ''}.{alias.name}" for alias in node.names]
    ours = [name for name in imported if name.split(".")[0] in ("", "ldp", "worker", "tests")]
    assert ours == ["worker.config.Config", "worker.config.Served"]
    # nor by the names of modules in strings, nor by the oracle that a served stream carries
    attributes = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    assert not attributes & {"oracle", "import_module", "__import__"}


def test_counts_that_were_lost_are_a_difference():
    document = ldp.Stream("s", ldp.GRR("1", 3)).document()
    facts = {"group": "g", "cut": ({}, {}), "bounds": (0, 7), "read": lambda begin, end: []}
    assert audit.verify(document, 0, **facts).difference is None
    assert audit.verify(document, 0, **facts, word="claimed").difference is None
    assert "were lost" in audit.verify(document, 0, **facts, word="counted").difference
