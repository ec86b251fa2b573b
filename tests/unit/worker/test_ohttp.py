"""Binary HTTP and oblivious HTTP: the examples of the RFCs, faults, and the gateway's answers."""

import base64
import json
import re
import secrets
import subprocess
import time
from email.utils import parsedate_to_datetime
from importlib.metadata import version

import numpy as np
import pytest
from click.testing import CliRunner
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
)
from pyhpke import AEADId, KEMKey, KEMKeyPair

from tests.support.ohttp import Sealed, dated, read_response, write_request
from tests.unit.worker.test_gateway import FRAME, KEY, PATH, STREAM, Gate, in_a_loop
from worker import check
from worker.cli import cli, command
from worker.config import ConfigError, load, parse
from worker.gateway import ohttp
from worker.gateway.binary import MalformedError, read_request, write_response
from worker.observe.uploads import GatewayMetrics
from worker.service import gateway

# --- RFC 9292 -----------------------------------------------------------------------------------------------

CONTROL = "0347455405687474707300 0a2f68656c6c6f2e747874"
LINES = (
    "0a757365722d6167656e74 346375726c2f372e31362e33206c69626375726c2f372e31362e33204f70656e53534c2f302e392e376c"
    "207a6c69622f312e322e33 04686f7374 0f7777772e6578616d706c652e636f6d 0f6163636570742d6c616e6775616765 06656e2c206d69"
)
KNOWN = bytes.fromhex(f"00{CONTROL}406c{LINES}0000")
INDETERMINATE = bytes.fromhex(f"02{CONTROL}{LINES}00000000000000000000000000")
FIELDS = [
    (b"user-agent", b"curl/7.16.3 libcurl/7.16.3 OpenSSL/0.9.7l zlib/1.2.3"),
    (b"host", b"www.example.com"),
    (b"accept-language", b"en, mi"),
]


@pytest.mark.parametrize(
    "message", [KNOWN, KNOWN[:-1], KNOWN[:-2], KNOWN + bytes(256), INDETERMINATE, INDETERMINATE[:-12]]
)
def test_the_requests_of_rfc_9292_are_read(message):
    """Also with empty parts cut off, and with padding."""
    request = read_request(message)
    assert (request.method, request.path, request.content) == ("GET", "/hello.txt", b"")
    assert request.fields == FIELDS


def test_the_responses_of_rfc_9292_are_written():
    """The response of section 5.2 has trailers in addition."""
    response = bytes.fromhex("0140c8001d5468697320636f6e74656e7420636f6e7461696e732043524c462e0d0a")
    assert write_response(200, [], b"This content contains CRLF.\r\n") == response
    assert write_response(200, [(b"a", b"bc")], b"") == bytes.fromhex("0140c8 05 0161 026263 00")


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("size", [0, 1, 63, 64, 16383, 16384, 65536])
def test_all_lengths_are_read(known, size):
    content = secrets.token_bytes(size)
    request = read_request(write_request(b"POST", b"/a?b=c", [(b"x", b"")], content, known))
    assert (request.method, request.path, request.fields) == ("POST", "/a?b=c", [(b"x", b"")])
    assert request.content == content


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"\1\3GET\5https\0\1/",  # framing of a response
        b"\3\3GET\5https\0\1/",
        b"\4\3GET\5https\0\1/",
        b"\0\3GET\5https\0\0",  # no path
        b"\0\3GET\5https\0\1*",
        b"\0\3GET\5https\0\3/ /",
        b"\0\2G \5https\0\1/",
        b"\0\3GET\5https\0\1/\4\1A\1b\0",  # an upper-case name
        b"\0\3GET\5https\0\1/\7\4:abc\1b\0",  # a pseudo-field
        b"\0\3GET\5https\0\1/\4\1a\1\n\0",
        b"\0\3GET\5https\0\1/\2\0\0\0",  # a name without characters
        b"\0\3GET\5https\0\1/\3\1a\1b\0",  # a section that ends in a field
        b"\2\3GET\5https\0\1/\1a\1b",  # no end of the fields
        b"\2\3GET\5https\0\1/\0\1a",  # no end of the content
        b"\0\3GET\5https\0\1/\0\0\0\1",  # padding
        b"\0\xff\xff\xff\xff\xff\xff\xff\xff",
        *(KNOWN[:i] for i in range(1, 130) if i != 23),  # 23 bytes are the control data
    ],
)
def test_a_malformed_request_is_refused(message):
    with pytest.raises(MalformedError):
        read_request(message)


def test_random_changes_of_a_request_cause_no_other_error():
    """The gateway decrypts what any client has encrypted."""
    rng = np.random.default_rng(9292)
    for _ in range(20_000):
        message = bytearray(KNOWN if rng.random() < 0.5 else INDETERMINATE)
        for at in rng.integers(len(message), size=rng.integers(1, 4)):
            message[at] = rng.integers(256)
        try:
            read_request(bytes(message[: rng.integers(len(message) // 2, len(message) + 1)]))
        except MalformedError:
            continue


# --- RFC 9458, appendix A -----------------------------------------------------------------------------------

SECRET = "3c168975674b2fa8e465970b79c8dcf09f1c741626480bd4c6162fc5b6a98e1a"
EPHEMERAL = "bc51d5e930bda26589890ac7032f70ad12e4ecb37abb1b65b1256c9c48999c73"
CONFIG = "01002031e1f05a740102115220e9af918f738674aec95f54db6e04eb705aae8e79815500080001000100010003"
INSIDE = "00034745540568747470730b6578616d706c652e636f6d012f"
REQUEST = (
    "010020000100014b28f881333e7c164ffc499ad9796f877f4e1051ee6d31bad19dec96c208b4726374e469135906992e"
    "1268c594d2a10c695d858c40a026e7965e7d86b83dd440b2c0185204b4d63525"
)
NONCE = "c789e7151fcba46158ca84b04464910d"
RESPONSE = "c789e7151fcba46158ca84b04464910d86f9013e404feea014e7be4a441f234f857fbd"


def private(text):
    return X25519PrivateKey.from_private_bytes(bytes.fromhex(text))


def test_the_example_of_rfc_9458_byte_for_byte(monkeypatch):
    key = ohttp.Key(private(SECRET), 1)
    assert key.config.hex() == CONFIG
    opened = ohttp.opened({1: key}, bytes.fromhex(REQUEST))
    assert opened.message.hex() == INSIDE
    assert read_request(opened.message).path == "/"
    monkeypatch.setattr(ohttp, "PADDING", 1)
    monkeypatch.setattr(secrets, "token_bytes", lambda size: bytes.fromhex(NONCE)[:size])
    assert opened.seal(write_response(200, [], b"")[:3]).hex() == RESPONSE
    pair = KEMKeyPair(
        *(KEMKey.from_pyca_cryptography_key(k) for k in (private(EPHEMERAL), private(EPHEMERAL).public_key()))
    )
    sealed = Sealed(key.published, bytes.fromhex(INSIDE), ephemeral=pair)
    assert sealed.request.hex() == REQUEST
    assert sealed.open(bytes.fromhex(RESPONSE)).hex() == "0140c8"


# --- the gateway --------------------------------------------------------------------------------------------

KEYS = {key.id: key for key in (ohttp.Key(private(SECRET), 2), ohttp.Key(private(EPHEMERAL), 1))}
CURRENT, OLDER = (key.published for key in KEYS.values())
SEALED = {"content-type": "message/ohttp-req"}
UPLOAD = [(b"content-type", b"application/octet-stream"), (b"idempotency-key", KEY.encode())]


class Door(Gate):
    """A gateway with two keys."""

    def __init__(self, *given, **named):
        self.sealed = []
        super().__init__(*given, keys=KEYS, count_sealed=lambda *each: self.sealed.append(each), **named)

    def ask(self, message, keys=CURRENT, aead=AEADId.AES128_GCM):
        """Returns status, fields and content of the encapsulated answer."""
        sealed = Sealed(keys, message, aead)
        answer = self.get(sealed.request, SEALED, path="/ohttp")
        assert (answer.status, answer.headers["content-type"]) == (200, "message/ohttp-res")
        opened = sealed.open(answer.body)
        assert len(opened) % 256 == 0
        return read_response(opened)


def upload(fields=UPLOAD, content=FRAME, known=True, path=PATH, seconds=None):
    return write_request(b"POST", path.encode(), dated(fields, seconds), content, known)


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("keys", [CURRENT, OLDER])
@pytest.mark.parametrize("aead", [AEADId.AES128_GCM, AEADId.CHACHA20_POLY1305])
def test_an_encapsulated_upload_is_forwarded(known, keys, aead):
    door = Door()
    status, _, content = door.ask(upload(known=known), keys, aead)
    assert (status, content) == (202, b"")
    assert door.intake.sent == [("colour-intake", bytes.fromhex(KEY), FRAME)]
    assert (door.counted, door.sealed) == ([("colours", "accepted")], [(str(keys[2]), "answered")])
    assert door.application.inflight == 0


def problem(kind):
    return f"https://iana.org/assignments/http-problem-types#{kind}"


MINUTE = 60


@pytest.mark.parametrize("late", [-9, 9])
def test_a_date_near_the_gateways_clock_is_accepted(late):
    assert Door().ask(upload(seconds=time.time() + late * MINUTE))[0] == 202


@pytest.mark.parametrize(
    "message",  # a function, because tests can run long after they are collected
    [
        lambda: upload(seconds=time.time() - 11 * MINUTE),
        lambda: upload(seconds=time.time() + 60 * MINUTE),
        lambda: write_request(b"POST", PATH.encode(), UPLOAD, FRAME),
        lambda: write_request(b"POST", PATH.encode(), dated(dated(UPLOAD)), FRAME),
        lambda: write_request(b"POST", PATH.encode(), [*UPLOAD, (b"date", b"Fri, 27 Nov 2026")], FRAME),
        lambda: write_request(b"POST", PATH.encode(), [*UPLOAD, (b"date", b"\xff" * 29)], FRAME),
        lambda: write_request(b"GET", b"/v1/streams/colours/document", []),
    ],
)
def test_a_request_of_another_time_is_refused_with_the_date(message):
    door = Door()
    status, fields, content = door.ask(message())
    assert (status, fields["content-type"]) == (400, "application/problem+json")
    assert json.loads(content)["type"] == problem("date")
    corrected = parsedate_to_datetime(fields["date"]).timestamp()
    assert door.ask(upload(seconds=corrected))[0] == 202
    assert [outcome for _, outcome in door.sealed] == ["date", "answered"]
    assert len(door.intake.sent) == 1


@pytest.mark.parametrize(
    ("message", "status", "reason"),
    [
        (lambda: upload(content=b"?"), 400, "version"),
        (lambda: upload(fields=UPLOAD[:1]), 400, "idempotency-key"),  # a relay could repeat it unnoticed
        (lambda: upload(fields=[*UPLOAD[:1], (b"idempotency-key", b"?")]), 400, "idempotency-key"),
        (lambda: upload(fields=UPLOAD[1:]), 415, None),
        (lambda: b"?" * 256, 400, "message"),
        (lambda: upload(path="/v1/streams/other/reports"), 404, None),
        (lambda: upload(path="/v1/streams/colours/document"), 404, None),
        (lambda: upload(path="/v1/streams/colours/reports/"), 404, None),
        (lambda: upload(path="/ohttp"), 404, None),
        (lambda: upload(path="/ohttp-keys"), 404, None),
        (lambda: upload(path="//reports.example.org/v1/streams/colours/reports"), 404, None),
        (lambda: write_request(b"GET", PATH.encode(), dated([])), 404, None),
    ],
)
def test_a_refusal_is_encrypted(message, status, reason):
    door = Door()
    answer = door.ask(message())
    assert (answer[0], json.loads(answer[2])["reason"] if answer[2] else None) == (status, reason)
    assert door.intake.sent == []
    assert door.application.inflight == 0


def test_a_query_and_escapes_in_the_path_are_read_as_in_plain_http():
    assert Door().ask(upload(path="/v1/streams/%63olours/reports?a=b"))[0] == 202


def test_the_document_is_encrypted():
    door = Door()
    path = b"/v1/streams/colours/document"
    status, fields, content = door.ask(write_request(b"GET", path, dated([])))
    assert (status, json.loads(content)) == (200, STREAM.document())
    known = dated([(b"if-none-match", fields["etag"].encode())])
    assert door.ask(write_request(b"GET", path, known))[0] == 304


def test_a_failed_send_is_refused_inside():
    status, fields, _ = Door(answer=False).ask(upload())
    assert status == 503
    assert 1 <= int(fields["retry-after"]) <= 10


def test_the_relay_sees_answers_of_one_size():
    sizes = set()
    for door, message in [(Door(), upload()), (Door(), upload(content=b"?")), (Door(answer=False), upload())]:
        answer = door.get(Sealed(CURRENT, message).request, SEALED, path="/ohttp")
        sizes.add(len(answer.body))
    assert len(sizes) == 1


def test_the_current_key_is_published():
    answer = Door().get(path="/ohttp-keys", method="GET")
    assert (answer.status, answer.headers["content-type"]) == (200, "application/ohttp-keys")
    assert answer.body == CURRENT


def test_without_keys_there_is_no_oblivious_http():
    gate = Gate()
    assert gate.get(Sealed(CURRENT, upload()).request, SEALED, path="/ohttp").status == 404
    assert gate.get(path="/ohttp-keys", method="GET").status == 404


@pytest.mark.parametrize(
    ("body", "headers", "status", "outcome"),
    [
        (b"", SEALED, 400, "key"),
        (Sealed(b"\0\51\3" + CURRENT[3:], upload()).request, SEALED, 400, "key"),  # unknown id
        (Sealed(OLDER[:2] + b"\2" + OLDER[3:], upload()).request, SEALED, 400, "key"),  # another key
        (Sealed(CURRENT, upload()).request, {"content-type": "application/octet-stream"}, 415, "rejected"),
        (bytes(65537), SEALED, 413, "rejected"),
    ],
)
def test_a_request_that_no_key_opens_is_refused_in_plain(body, headers, status, outcome):
    door = Door()
    answer = door.get(body, headers, path="/ohttp")
    assert answer.status == status
    if status == 400:
        assert answer.headers["content-type"] == "application/problem+json"
        assert json.loads(answer.body)["type"] == problem("ohttp-key")
    assert door.sealed == [("unknown", outcome)]
    assert door.application.inflight == 0


def test_a_full_gateway_refuses_before_it_reads():
    door = Door()
    door.application.inflight = 1 << 24
    answer = door.get(Sealed(CURRENT, upload()).request, SEALED, path="/ohttp")
    assert (answer.status, door.sealed) == (503, [("unknown", "refused")])


def mutants(seed, count):
    """Yields encapsulated requests with changed, missing and additional bytes."""
    rng = np.random.default_rng(seed)
    whole = [
        Sealed(keys, upload(known=known)).request for keys in (CURRENT, OLDER) for known in (True, False)
    ]
    for _ in range(count):
        message = bytearray(whole[rng.integers(len(whole))])
        match rng.integers(4):
            case 0:  # in the header or the encapsulated key
                message[rng.integers(39)] ^= rng.integers(1, 256)
            case 1:
                for at in rng.choice(len(message), rng.integers(1, 5), replace=False):
                    message[at] ^= rng.integers(1, 256)
            case 2:
                del message[rng.integers(len(message)) :]
            case 3:
                at = rng.integers(len(message) + 1)
                message[at:at] = rng.bytes(rng.integers(1, 40))
        yield bytes(message)


@pytest.mark.parametrize(
    ("seed", "count"), [(0, 2_000), *(pytest.param(i, 200_000, marks=pytest.mark.long) for i in range(1, 6))]
)
def test_a_changed_request_is_answered_with_400(seed, count):
    async def all_of_them():
        door = Door()
        for message in mutants(seed, count):
            answer = await door.request(message, SEALED, path="/ohttp")
            assert answer.status == 400
            assert len(answer.body) < 200
        assert door.sealed == [("unknown", "key")] * count
        assert (door.counted, door.intake.sent, door.application.inflight) == ([], [], 0)

    in_a_loop(all_of_them())


# --- key files ----------------------------------------------------------------------------------------------

PEM = Encoding.PEM, PrivateFormat.PKCS8
STREAM_TABLE = """
[[streams]]
name = "colours"
topic = "colour-reports"
intake = "colour-intake"
protocol = "grr"
epsilon = "1"
domain_size = 3
"""


def invoke(*words, **environ):
    return CliRunner(env=environ).invoke(cli, [*map(str, words)])


@pytest.fixture
def files(tmp_path):
    """Two key files and a configuration with them."""
    made = [tmp_path / "ohttp-2", tmp_path / "ohttp-1"]
    ids = set()
    while len(ids) < 2:  # 1 of 256 pairs has one id
        for file in made:
            file.unlink(missing_ok=True)
            result = invoke("ohttp-key", "new", file)
            assert (result.exit_code, str(file) in result.stdout) == (0, True)
        ids = set(ohttp.read_keys(made[:1])) | set(ohttp.read_keys(made[1:]))
    table = '[gateway.ohttp]\nkey_files = ["ohttp-2", "ohttp-1"]\n'
    (tmp_path / "worker.toml").write_text(table + STREAM_TABLE)
    return made


def test_a_new_key_is_private_and_opens_requests(files):
    assert [file.stat().st_mode & 0o777 for file in files] == [0o600, 0o600]
    keys = ohttp.read_keys(files)
    for key in keys.values():
        assert ohttp.opened(keys, Sealed(key.published, b"x").request).message == b"x"
    again = invoke("ohttp-key", "new", files[0])
    assert (again.exit_code, "File exists" in again.stderr) == (2, True)
    assert ohttp.read_keys(files).keys() == keys.keys()


def test_the_list_shows_ids_and_public_configurations(files):
    result = invoke("ohttp-key", "list", "--config", files[0].parent / "worker.toml")
    lines = [line.split(" ") for line in result.stdout.splitlines()]
    keys = ohttp.read_keys(files)
    assert [(int(line[0]), line[2]) for line in lines] == list(zip(keys, map(str, files), strict=True))
    assert [base64.b64decode(line[1]) for line in lines] == [key.published for key in keys.values()]
    for file in files:
        for part in file.read_text().splitlines()[1:-1]:
            assert part not in result.output


def test_a_key_of_openssl_is_read(tmp_path):
    """It has the same format."""
    subprocess.run(["openssl", "genpkey", "-algorithm", "X25519", "-out", tmp_path / "key"], check=True)
    (key,) = ohttp.read_keys([tmp_path / "key"]).values()
    assert ohttp.opened({key.id: key}, Sealed(key.published, b"x").request).message == b"x"


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "cannot be read (No such file or directory)"),
        (b"", "has no private X25519 key"),
        (b"\xff", "has no private X25519 key"),
        (Ed25519PrivateKey.generate().private_bytes(*PEM, NoEncryption()), "has no private X25519 key"),
        (private(SECRET).private_bytes(*PEM, BestAvailableEncryption(b"x")), "has no private X25519 key"),
        (b"same", "of another key"),
    ],
)
def test_a_key_file_that_cannot_be_used_is_named(files, content, said):
    if content == b"same":
        content = files[1].read_bytes()
    files[0].unlink()
    if content is not None:
        files[0].write_bytes(content)
    config = load(files[0].parent / "worker.toml", {})
    bad = files[1] if said == "of another key" else files[0]
    with pytest.raises(ConfigError, match=rf"^gateway.ohttp.key_files: {bad} .*{re.escape(said)}"):
        gateway.run(config)
    (finding,) = check.assess_keys(config.gateway.ohttp.key_files)
    assert (finding.level, said in finding.text) == (check.Level.ERROR, True)
    result = invoke("ohttp-key", "list", "--config", files[0].parent / "worker.toml")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "ohttp-key" in result.stderr or "ohttp.key_files" in result.stderr


def test_check_names_the_keys_and_warns_of_public_files(files):
    first, second = ohttp.read_keys(files)
    (finding,) = check.assess_keys(files)
    assert (finding.level, finding.text) == (
        check.Level.OK,
        f"key {first} is current; also accepted: {second}",
    )
    files[1].chmod(0o604)
    (finding,) = check.assess_keys(files)
    assert (finding.level, finding.text) == (check.Level.WARNING, f"all users can read {files[1]}")
    files[1].chmod(0o640)  # Kubernetes gives secrets to the group of the pod
    assert [finding.level for finding in check.assess_keys(files)] == [check.Level.OK]
    assert check.assess_keys([]) == []


def test_a_variable_sets_the_key_files(files):
    variable = {"LDP_WORKER_GATEWAY__OHTTP__KEY_FILES": f"{files[1]},{files[0]}"}
    assert load(files[0].parent / "worker.toml", variable).gateway.ohttp.key_files == files[::-1]
    assert parse(STREAM_TABLE).gateway.ohttp.key_files == []


def test_the_metrics_show_which_keys_are_in_use():
    metrics = GatewayMetrics(["colours"], int, [7])
    name = "ldp_gateway_ohttp_requests_total"
    assert metrics.registry.get_sample_value(name, {"key": "7", "outcome": "answered"}) == 0
    assert metrics.registry.get_sample_value(name, {"key": "unknown", "outcome": "key"}) == 0


@pytest.mark.parametrize("words", [("gateway",), ("ohttp-key", "list"), ("ohttp-key", "new", "file")])
def test_a_missing_extra_is_named(files, monkeypatch, words):
    monkeypatch.setattr(command, "_version", lambda name: None if name == "pyhpke" else version(name))
    result = invoke(*words, LDP_WORKER_CONFIG=str(files[0].parent / "worker.toml"))
    assert result.exit_code == 2
    assert result.stderr == (
        "ldp-worker: not installed: pyhpke; install the extra: pip install 'ldp-worker[gateway]'\n"
    )
