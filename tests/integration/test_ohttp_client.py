"""Oblivious HTTP of the JavaScript client: examples of the RFCs, other implementations, prepared gateways."""

import base64
import json
import random
import re
import shutil
import subprocess
import threading
from contextlib import contextmanager
from email.utils import parsedate_to_datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import groupby
from pathlib import Path

import pytest

from tests.support import npm
from tests.support.docs import block
from tests.support.harness import until
from tests.support.harness.front import Front
from worker.gateway import ohttp

pytestmark = pytest.mark.integration

CLIENT = Path(__file__).parents[2] / "ldp" / "clients" / "javascript"
PROBLEMS = "https://iana.org/assignments/http-problem-types#"
KEY = "01002031e1f05a740102115220e9af918f738674aec95f54db6e04eb705aae8e79815500080001000100010003"
PUBLIC = KEY[6:70]
EPHEMERAL = {
    "secret": "bc51d5e930bda26589890ac7032f70ad12e4ecb37abb1b65b1256c9c48999c73",
    "open": "4b28f881333e7c164ffc499ad9796f877f4e1051ee6d31bad19dec96c208b472",
}
"""RFC 9458, appendix A, as the next three."""
REQUEST = "00034745540568747470730b6578616d706c652e636f6d012f"
ENCAPSULATED_REQUEST = (
    "010020000100014b28f881333e7c164ffc499ad9796f877f4e1051ee6d31bad19dec96c208b472"
    "6374e469135906992e1268c594d2a10c695d858c40a026e7965e7d86b83dd440b2c0185204b4d63525"
)
ENCAPSULATED_RESPONSE = "c789e7151fcba46158ca84b04464910d86f9013e404feea014e7be4a441f234f857fbd"
CURL = "curl/7.16.3 libcurl/7.16.3 OpenSSL/0.9.7l zlib/1.2.3"
KNOWN_REQUEST = (
    "0003474554056874747073000a2f68656c6c6f2e747874406c0a757365722d6167656e74346375726c2f372e31362e33206c69626375"
    "726c2f372e31362e33204f70656e53534c2f302e392e376c207a6c69622f312e322e3304686f73740f7777772e6578616d706c652e63"
    "6f6d0f6163636570742d6c616e677561676506656e2c206d690000"
)
"""RFC 9292, section 5.1, first example; the next two are from section 5.2."""
INDETERMINATE_RESPONSE = (
    "034066 0772756e6e696e67 0a22736c65657020313522 00"
    "4067 046c696e6b 233c2f7374796c652e6373733e3b2072656c3d7072656c6f61643b2061733d7374796c65"
    "046c696e6b 243c2f7363726970742e6a733e3b2072656c3d7072656c6f61643b2061733d736372697074 00"
    "40c8 0464617465 1d4d6f6e2c203237204a756c20323030392031323a32383a353320474d54 06736572766572 06417061636865"
    "0d6c6173742d6d6f646966696564 1d5765642c203232204a756c20323030392031393a31353a353620474d54"
    "0465746167 14223334616133383 72d642d313536386562303022"
    "0d6163636570742d72616e676573 056279746573 0e636f6e74656e742d6c656e677468 023531"
    "0476617279 0f4163636570742d456e636f64696e67 0c636f6e74656e742d74797065 0a746578742f706c61696e 00"
    "33 48656c6c6f20576f726c6421204d7920636f6e74656e7420696e636c75646573206120747261696c696e672043524c462e0d0a"
    "00 00"
).replace(" ", "")
KNOWN_RESPONSE = (
    "0140c8001d5468697320636f6e74656e7420636f6e7461696e732043524c462e0d0a0d07747261696c65720474657874"
)


@pytest.fixture(scope="module")
def ask(tmp_path_factory):
    """Calls the script of tests/support/javascript in a folder with the client and the packages."""
    folder = tmp_path_factory.mktemp("ohttp")
    (folder / "node_modules").symlink_to(npm.packages())
    (folder / "package.json").write_text('{"type": "module"}', encoding="utf-8")
    for file in (CLIENT / "ohttp.js", CLIENT / "upload.js", npm.JAVASCRIPT / "ohttp.mjs"):
        shutil.copy(file, folder)

    def ask(what, **more):
        command = [npm.NODE / "bin" / "node", folder / "ohttp.mjs"]
        text = json.dumps({"ask": what, **more})
        done = subprocess.run(command, input=text, capture_output=True, text=True, check=False, timeout=60)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    return ask


def entry(key):
    return f"{len(key) // 2:04x}{key}"


def varint(number, size):
    """An integer of RFC 9000 in 2^size bytes."""
    return (number | size << (8 * (1 << size) - 2)).to_bytes(1 << size, "big")


def binary(status, fields, content, *, known, coins, shortest, trailers=(), informational=()):
    """Encodes a response, with chunks of random sizes. `shortest`: whether integers have the fewest bytes."""

    def integer(number):
        sizes = [k for k in range(4) if number < 1 << (8 * (1 << k) - 2)]
        return varint(number, sizes[0] if shortest else coins.choice(sizes))

    def prefixed(data):
        return integer(len(data)) + data

    def section(pairs):
        lines = b"".join(prefixed(name.encode()) + prefixed(value.encode()) for name, value in pairs)
        return prefixed(lines) if known else lines + integer(0)

    parts = [integer(1 if known else 3)]
    for code, pairs in [*informational, (status, fields)]:
        parts += [integer(code), section(pairs)]
    if known:
        parts.append(prefixed(content))
    else:
        while content:
            n = coins.randint(1, len(content))
            parts.append(prefixed(content[:n]))
            content = content[n:]
        parts.append(integer(0))
    return b"".join([*parts, section(trailers), bytes(coins.randrange(3))])


def test_the_example_of_rfc_9458(ask):
    changed = [
        f"{ENCAPSULATED_RESPONSE[:at]}{c}{ENCAPSULATED_RESPONSE[at + 1 :]}"
        for at, c in ((0, "d"), (32, "9"), (69, "c"))
    ]
    cut = [ENCAPSULATED_RESPONSE[: 2 * length] for length in (0, 16, 17, 31, 34)]
    assert ENCAPSULATED_RESPONSE not in changed
    responses = [ENCAPSULATED_RESPONSE, *changed, *cut]
    answers = ask("encapsulate", list=entry(KEY), ephemeral=EPHEMERAL, request=REQUEST, responses=responses)
    assert answers == [ENCAPSULATED_REQUEST, "0140c8", *["OperationError"] * len(responses[1:])]


def test_the_first_supported_key_of_a_list(ask):
    other = f"02{KEY[2:]}"
    p256 = "030010" + "04" + 64 * "ab" + "000400010001"
    chacha = f"040020{PUBLIC}000400010003"
    good = {
        entry(KEY): "01",
        entry(KEY) + entry(other): "01",
        entry(p256) + entry(chacha) + entry(other) + entry(KEY): "02",
        entry(f"050020{PUBLIC}00080001000300010001"): "05",
    }
    bad = [
        *(
            "",
            entry(p256),
            entry(chacha),
            entry(KEY)[:-2],
            entry(KEY) + "00",
            entry(KEY) + "002d01",
            entry(KEY + "00"),
        ),
        *(
            entry(f"010020{PUBLIC}{rest}")
            for rest in ("0000", "000200010001", "0006000100010001", "00040001")
        ),
        entry(KEY) + entry(KEY[:-2]),
    ]
    answers = ask("keys", lists=[*good, *bad])
    assert answers[: len(good)] == [number + PUBLIC for number in good.values()]
    assert answers[len(good) :] == ["TypeError"] * len(bad)


def test_requests_have_the_bytes_of_bhttp_js(ask):
    headers = {"User-Agent": CURL, "Host": "www.example.com", "Accept-Language": "en, mi"}
    coins = random.Random(0)
    requests = [["GET", "https://localhost/hello.txt", headers, ""]]
    for length in (1, 63, 64, 200, 16383, 16384, 65536):
        fields = {"idempotency-key": coins.randbytes(16).hex(), "x-long": "v" * (length % 20000)}
        requests.append(
            [
                "POST",
                f"http://gateway.example:{length + 1000 & 65535}/v1",
                fields,
                coins.randbytes(length).hex(),
            ]
        )
    answers = ask("encode", requests=requests)
    assert len({ours for ours, _ in answers}) == len(requests)
    assert [ours == theirs for ours, theirs in answers] == [True] * len(requests)


def test_the_request_of_rfc_9292(ask):
    """With the fields in alphabetical order, as fetch sorts them, and an authority, which each URL has."""
    headers = {"User-Agent": CURL, "Host": "www.example.com", "Accept-Language": "en, mi"}
    (((ours, _)),) = ask("encode", requests=[["GET", "https://www.example.com/hello.txt", headers, ""]])
    control, user, host, language = re.fullmatch(
        "(.*?406c)(0a75736572.*)(04686f7374.*)(0f616363.*)0000", KNOWN_REQUEST
    ).groups()
    authority = "0f" + b"www.example.com".hex()
    assert ours == control.replace("687474707300", "6874747073" + authority) + language + host + user + "0000"


def test_the_responses_of_rfc_9292(ask):
    content = b"Hello World! My content includes a trailing CRLF.\r\n"
    indeterminate, known, bare = ask("decode", messages=[INDETERMINATE_RESPONSE, KNOWN_RESPONSE, "0140c8"])
    fields = {
        "date": "Mon, 27 Jul 2009 12:28:53 GMT",
        "server": "Apache",
        "last-modified": "Wed, 22 Jul 2009 19:15:56 GMT",
        "etag": '"34aa387-d-1568eb00"',
        "accept-ranges": "bytes",
        "content-length": "51",
        "vary": "Accept-Encoding",
        "content-type": "text/plain",
    }
    assert indeterminate == [200, fields, content.hex()]
    assert known == [200, {}, b"This content contains CRLF.\r\n".hex()]
    assert bare == [200, {}, ""]


@pytest.mark.parametrize("shortest", [True, False])
@pytest.mark.parametrize("known", [True, False])
def test_responses_of_both_lengths(ask, known, shortest):
    coins, messages, expected = random.Random(1), [], []
    for _ in range(300):
        status = coins.choice([200, 202, 400, 404, 503, 599])
        fields = {f"x-{i}": coins.choice(["", "v", "w" * 70]) for i in range(coins.randrange(4))}
        content = coins.randbytes(coins.choice([0, 1, 63, 64, 20000]))
        informational = [(100 + i, {"early": "hint"}.items()) for i in range(coins.randrange(3))]
        trailers = {"check": "sum"}.items() if coins.random() < 0.5 else ()
        rest = {"trailers": trailers, "informational": informational, "shortest": shortest}
        messages.append(binary(status, fields.items(), content, known=known, coins=coins, **rest).hex())
        expected.append([status, fields, content.hex()])
    assert ask("decode", messages=messages) == expected
    if shortest:  # bhttp-js misreads sections with longer integers
        assert ask("decode_theirs", messages=messages) == expected


def test_invalid_responses_are_errors(ask):
    messages = {
        **{f"framing {first}": f"{first}40c8" for first in ("00", "02", "04", "40")},
        **{f"status {status}": "01" + varint(status, 1).hex() + "000000" for status in (0, 99, 600, 999)},
        "status 99 before the final one": "014063 00 40c8 000000",
        "no final status": "014064 00",
        "only informational": "0140640040670 0",
        "padding": "0140c8000000 0001",
        "empty name": "0140c8 02 00 00",
        "pseudo-field": "0140c8 07 063a73746174 00",
        "pseudo-field in a trailer": "0140c80000 08 073a737461747573 00",
        "a space in a name": "0140c8 05 0361206200",
        "a line feed in a value": "0140c8 06 0161 03620a63",
        "a field beyond its section": "0140c8 04 0161 0562 6262626262 00",
        "content with status 204": "0140cc 00 0161 00",
        "huge content": "0140c8 00 ffffffffffffffff 61",
    }
    messages = {name: text.replace(" ", "") for name, text in messages.items()}
    answers = ask("decode", messages=list(messages.values()))
    wrong = {name: answer for name, answer in zip(messages, answers, strict=True) if isinstance(answer, list)}
    assert wrong == {}


@pytest.mark.parametrize(
    ("message", "valid"),
    [
        (INDETERMINATE_RESPONSE, [257, 54, 1]),
        (KNOWN_RESPONSE, [45, 44, 14]),
        ("0140c8000000", [3, 2, 1]),
        ("0340c8000000", [3, 2, 1]),
    ],
)
def test_a_response_can_be_cut_between_parts_only(ask, message, valid):
    """After the status, the fields or the content: `valid` counts the bytes that are cut."""
    answers = ask("decode", messages=[message[: 2 * end] for end in range(len(message) // 2 + 1)])
    good = [len(message) // 2 - end for end, answer in enumerate(answers) if isinstance(answer, list)]
    assert good == [*valid, 0]


def problem(name):
    return {
        "body": json.dumps({"type": PROBLEMS + name}),
        "headers": {"Content-Type": "application/problem+json"},
    }


def case(answers, ids=(1,), *, included=False):
    """An upload to a gateway with prepared answers, the last one again and again, and the ids of its keys."""
    return {"answers": answers, "ids": ids, "included": included}


def uploaded(ask, answers, **more):
    (answer,) = ask("upload", cases=[case(answers, **more)])
    return answer


def test_an_upload_is_one_padded_request(ask):
    answer = uploaded(ask, [{"inner": 202}], ids=[7])
    assert (answer["outcome"], answer["pauses"]) == ("stored", [])
    assert answer["fetched"] == [["no-store", "omit", "manual"]]
    (sent,) = answer["sent"]
    assert (sent["outside"], sent["credentials"], sent["redirect"]) == (["Content-Type"], "omit", "manual")
    assert (sent["referrerPolicy"], sent["timed"], sent["id"]) == ("no-referrer", True, 7)
    assert (sent["message"], sent["length"]) == (256, 7 + 32 + 256 + 16)
    assert (sent["method"], sent["url"]) == ("POST", "https://gateway.example/v1/streams/colours/reports")
    assert sent["headers"].keys() == {"content-type", "idempotency-key", "date"}
    assert re.fullmatch("[0-9a-f]{32}", sent["headers"]["idempotency-key"])
    assert sent["body"] == "00ff10"


def test_each_try_encrypts_again_with_the_same_id(ask):
    failures = [
        {"inner": 503, "headers": {"Retry-After": "9"}},
        {},
        *({"outer": status} for status in (408, 429, 500, 502)),
        *({"outer": status, "body": 100 * "a"} for status in (200, 202)),  # not from the gateway
        {"inner": 429},
        {"inner": 202},
    ]
    answer = uploaded(ask, failures)
    assert answer["outcome"] == "stored"
    assert len(answer["sent"]) == len(failures)
    assert len({sent["enc"] for sent in answer["sent"]}) == len(failures)
    seen = [sent["headers"]["idempotency-key"] for sent in answer["sent"] if "message" in sent]
    assert len(seen) == 3
    assert len(set(seen)) == 1
    assert answer["pauses"][0] == 9
    assert all(2**i / 2 <= pause <= 2**i for i, pause in enumerate(answer["pauses"][1:6], 1))
    assert len(answer["fetched"]) == 1
    assert uploaded(ask, [{}])["outcome"] == "TimeoutError"


def test_a_refusal_is_final(ask):
    outcomes = [
        ({"inner": 400, "body": '{"reason": "fingerprint"}'}, [400, "fingerprint"]),
        ({"inner": 404}, [404, ""]),
        ({"outer": 404}, [404, ""]),
        ({"outer": 415}, [415, ""]),
        ({"outer": 400, "body": "null"}, [400, ""]),
        ({"outer": 400, **problem("date")}, [400, "date"]),  # the relay cannot change the date
        ({"inner": 400, **problem("ohttp-key")}, [400, "ohttp-key"]),
    ]
    answers = ask("upload", cases=[case([given, {"inner": 202}]) for given, _ in outcomes])
    found = [(answer["outcome"], len(answer["sent"]), len(answer["fetched"])) for answer in answers]
    assert found == [(outcome, 1, 1) for _, outcome in outcomes]


def test_a_rejected_key_is_fetched_again_once(ask):
    rejected = {"outer": 400, **problem("ohttp-key")}
    renew = {"renew": True, **rejected}
    cases = [
        case([renew, {"inner": 202}], ids=[1, 2]),
        case([renew, {"inner": 202}], ids=[1, 1]),
        case([renew], ids=[1, 2, 3, 4]),
        case([rejected]),
        case([renew], ids=[1, 2], included=True),
    ]
    answers = ask("upload", cases=cases)
    assert [answer["outcome"] for answer in answers] == ["stored"] * 2 + [[400, "ohttp-key"]] * 3
    assert [[sent["id"] for sent in answer["sent"]] for answer in answers] == [
        [1, 2],
        [1, 1],
        [1, 2],
        [1],
        [1],
    ]
    assert [len(answer["fetched"]) for answer in answers] == [2, 2, 2, 2, 0]
    assert [answer["pauses"] for answer in answers] == [[]] * 5


def test_a_wrong_clock_is_corrected_for_one_request(ask):
    date = "Mon, 07 Feb 2022 00:28:05 GMT"
    wrong = {"inner": 400, **problem("date")}
    wrong["headers"]["Date"] = date
    corrected = uploaded(ask, [wrong, {"inner": 503}, wrong, {"inner": 202}])
    assert corrected["outcome"] == "stored"
    dates = [sent["headers"]["date"] for sent in corrected["sent"]]
    assert dates[1] == dates[3] == date
    assert date not in (dates[0], dates[2])
    assert all(parsedate_to_datetime(text) for text in dates)
    assert len(corrected["pauses"]) == 3
    once = uploaded(ask, [wrong])
    assert (once["outcome"], len(once["sent"])) == ([400, "date"], 2)


@contextmanager
def relay(front, stale):
    """Forwards requests to a gateway; yields its URL and its log. The first request for keys gets a stale list."""
    log = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            first = self.path not in [path for path, *_ in log]
            self.answer(b"", (200, stale) if first else front.ask(front.port, "GET", self.path))

        def do_POST(self):
            body = self.rfile.read(int(self.headers["Content-Length"]))
            kind = {"Content-Type": self.headers["Content-Type"]}
            self.answer(body, front.ask(front.port, "POST", self.path, body, kind))

        def answer(self, body, answer):
            status, content = answer
            log.append((self.path, body, status, content))
            self.send_response(status)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as running:
        thread = threading.Thread(target=running.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{running.server_port}", log
        finally:
            running.shutdown()
            thread.join()


MORE = """
const later = oblivious(`${relay}/ohttp`, `${relay}/ohttp-keys`);
const stream = "https://reports.example.org/v1/streams/colours";
const published = await (await later(new Request(`${stream}/document`))).json();
await upload(`${stream}/reports`, new Client(published).report("red"), later);
"""
"""An upload with keys from the relay, which are stale at first, in addition to the upload of the guide."""


def test_the_guide_uploads_through_a_relay_to_a_gateway(kafka, tmp_path):
    packages = tmp_path / "node_modules"
    packages.mkdir()
    for package in npm.packages().iterdir():
        (packages / package.name).symlink_to(package)
    shutil.copytree(CLIENT, packages / "ldp-client")
    current, stale = (ohttp.new_key(tmp_path / name).published for name in ("key", "stale"))
    topic = f"s{random.SystemRandom().randrange(1 << 40):x}"
    table = (
        block("guides/receive-reports", "[[streams]]").replace("colour-", f"{topic}-").replace("1000", "2")
    )
    settings = {"gateway.ohttp.key_files": [str(tmp_path / "key")]}
    with (
        Front(kafka, tmp_path, table=table, settings=settings) as front,
        relay(front, stale) as (url, log),
    ):
        front.start("shuffle")
        guide = block("guides/javascript-client", "import { oblivious }")
        assert "https://relay.example.net" in guide
        guide = guide.replace("https://relay.example.net", url)
        guide, count = re.subn('(?<=const list = ").*(?=";)', base64.b64encode(current).decode(), guide)
        assert count == 1
        client = f"const client = new Client({json.dumps(front.served.stream.document())});\n"
        script = (
            'import { Client } from "ldp-client";\n' + client + guide + f'const relay = "{url}";\n' + MORE
        )
        (tmp_path / "upload.mjs").write_text(script, encoding="utf-8")
        command = [npm.NODE / "bin" / "node", tmp_path / "upload.mjs"]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
        assert done.returncode == 0, done.stderr
        until(lambda: len(front.records(front.served.topic)) == 2, "a frame for each partition")
        frames = [record.value for record in front.records(front.served.topic)]
    fingerprint = frames[0][:5]
    assert [frame[:5] for frame in frames] == [fingerprint] * 2
    # a slow gateway answers 503, and the client tries again
    assert [key for key, _ in groupby((path, status) for path, _, status, _ in log)] == [
        ("/ohttp", 200),
        ("/ohttp-keys", 200),
        ("/ohttp", 400),
        ("/ohttp-keys", 200),
        ("/ohttp", 200),
    ]
    sent = [body for path, body, *_ in log if path == "/ohttp"]
    assert {len(body) for body in sent} == {7 + 32 + 256 + 16}
    assert not any(fingerprint in body for body in sent)
    assert len(log[0][3]) == len(log[-1][3]) == 16 + 256 + 16
