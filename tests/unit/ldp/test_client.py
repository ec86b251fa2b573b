"""The device's end: its frames are those of `ldp.frames`, from the standard library alone."""

import json
import subprocess
import sys

import numpy as np
import pytest

import ldp
from ldp import Stream, frames, wire
from ldp.client import Client
from ldp.oracles import ORACLES
from tests.wire_vectors import streams

STREAMS = streams("frames") + streams("oracles")
REPORTS = streams("reports")
over_streams = pytest.mark.parametrize("vector", STREAMS, ids=lambda vector: vector["name"])
LABELLED = {"protocol": "grr", "epsilon": "64/1", "domain_size": 3, "labels": ["rouge", "vert", "bleu ciel"]}


def test_the_vectors_have_every_protocol():
    assert {stream["document"]["protocol"] for stream in STREAMS} == set(ORACLES)


@over_streams
def test_a_frame_is_what_frames_encode_gives_for_its_report(vector):
    stream = ldp.Stream.from_document("s", vector["document"])
    client = Client(vector["document"])
    for value in {0, stream.oracle.domain_size // 2, stream.oracle.domain_size - 1}:
        frame = client.report(value)
        decoded = frames.decode(stream, frame, np.array([0]), np.array([len(frame)]))
        assert decoded.counts.tolist() == [1], decoded.reasons
        assert frames.encode(stream, decoded.reports) == frame
        assert frame[:5].hex() == "01" + vector["fingerprint"]


@over_streams
def test_a_report_is_the_one_that_the_oracle_drew(vector, monkeypatch):
    """The client's bytes against numpy's, for the reports in the vectors."""
    stream = ldp.Stream.from_document("s", vector["document"])
    client = Client(vector["document"])
    good = [bytes.fromhex(r["hex"]) for r in vector["records"] if "hex" in r and "reports" in r]
    assert good
    for record in good:
        decoded = frames.decode(stream, record, np.array([0]), np.array([len(record)]))
        for i, row in enumerate(decoded.reports.tolist()):
            drawn = row if stream.oracle.length is None else row[0].tolist()
            monkeypatch.setattr(type(stream.oracle), "perturb_one", lambda *_, drawn=drawn: tuple(drawn))
            assert client.report(0) == frames.encode(stream, decoded.reports[i : i + 1])


@pytest.mark.parametrize("name", ORACLES)
def test_reports_are_of_the_value_that_was_given(name):
    """At ε = 64 a value that nobody has is supported at most half of the time, up to e⁻⁶⁴."""
    labels = [f"value {v}" for v in range(10)]
    stream = ldp.Stream("s", ldp.oracle(name, "64", 10), labels=labels)
    client = Client(json.loads(json.dumps(stream.document())))
    for given in (7, "value 7"):
        wire = b"".join(client.report(given)[5:] for _ in range(200))
        state = stream.oracle.zeros()
        stream.oracle.accumulate(state, np.frombuffer(wire, stream.oracle.report_dtype))
        estimate = stream.oracle.estimate(stream.oracle.support(state), 200)
        assert estimate.frequencies.argmax() == 7


def test_reports_of_one_value_differ():
    client = Client(ldp.OLH("1", domain_size=100).parameters())
    assert len({client.report(3) for _ in range(20)}) > 10


def test_labels_and_indices_are_one_domain():
    client = Client(LABELLED)
    assert [client.report(value)[5] for value in ("rouge", "vert", "bleu ciel", 0, 1, 2)] == [0, 1, 2] * 2


@pytest.mark.parametrize(
    ("value", "error", "says"),
    [
        ("violet", ValueError, "none of the stream's 3 labels"),
        ("Rouge", ValueError, "none of the stream's 3 labels"),
        ("0", ValueError, "none of the stream's 3 labels"),
        (4711, ValueError, "outside 0 to 2"),
        (-4711, ValueError, "outside 0 to 2"),
        (3, ValueError, "outside 0 to 2"),
        (True, TypeError, "type bool"),
        (1.0, TypeError, "type float"),
        (None, TypeError, "type NoneType"),
        (b"rouge", TypeError, "type bytes"),
    ],
)
def test_a_bad_value_is_refused_and_not_repeated(value, error, says):
    with pytest.raises(error, match=says) as caught:
        Client(LABELLED).report(value)
    if value in ("violet", 4711, -4711):
        assert str(value).strip("-") not in str(caught.value)
    assert caught.value.__context__ is None  # whose text would be logged with it


def test_without_labels_a_label_is_refused():
    with pytest.raises(ValueError, match="none of the stream's 0 labels"):
        Client(ldp.GRR("1", domain_size=3).parameters()).report("rouge")


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"epsilon": 1.0}, TypeError),
        ({"epsilon": "2/2"}, ValueError),
        ({"protocol": "rappor"}, ValueError),
        ({"g": 3}, ValueError),
        ({"labels": ["rouge", "rouge", "vert"]}, ValueError),
        ({"labels": ["rouge"]}, ValueError),
        ({"domain_size": "3"}, TypeError),
    ],
)
def test_a_document_that_is_wrong_is_refused(change, error):
    with pytest.raises(error):
        Client(LABELLED | change)


def test_a_document_is_an_object():
    with pytest.raises(TypeError, match="JSON object"):
        Client(json.dumps(LABELLED))


def test_a_frame_begins_with_the_version_and_the_fingerprint():
    made = Client(LABELLED)
    assert made.report(0)[: wire.HEADER_BYTES] == b"\x01" + Stream.from_document("s", LABELLED).fingerprint


@over_streams
def test_packed_frames_are_those_of_frames_encode(vector):
    """The vectors' reports, packed by the client, against numpy's encoders; and cut where the operator says."""
    stream = ldp.Stream.from_document("s", vector["document"])
    client = Client(vector["document"])
    good = [bytes.fromhex(r["hex"]) for r in vector["records"] if "hex" in r and "reports" in r]
    bounds = np.cumsum([0, *map(len, good)])
    reports = frames.decode(stream, b"".join(good), bounds[:-1], bounds[1:], judge_ones=False).reports
    for most in (1, 2, 3, len(reports), len(reports) + 1, 10_000):
        parts = [reports[first : first + most] for first in range(0, len(reports), most)]
        assert client.pack(good, most_reports=most) == [frames.encode(stream, part) for part in parts]
        as_json = client.pack(good, most_reports=most, as_json=True)
        assert as_json == [frames.encode_json(stream, part) for part in parts]
        assert [len(json.loads(frame)["reports"]) for frame in as_json] == [len(part) for part in parts]


@pytest.mark.parametrize("stream", REPORTS, ids=lambda vector: vector["name"])
def test_a_packed_report_is_in_json_what_the_vectors_say(stream):
    """The vectors of reports were made by a second client, which shares nothing with this one."""
    client = Client(stream["document"])
    cases = stream["cases"]
    (packed,) = client.pack(
        [bytes.fromhex(case["frame"]) for case in cases], most_reports=len(cases), as_json=True
    )
    assert json.loads(packed) == {
        "fingerprint": stream["fingerprint"],
        "reports": [case["json"] for case in cases],
    }


@pytest.mark.parametrize(
    ("oracle", "as_json", "size"),
    [
        (ldp.OUE("1", domain_size=800), False, 100),
        (ldp.SubsetSelection("5", domain_size=10_000), True, 179),  # 66 indices of two bytes, in base64
        (ldp.OUE("1", domain_size=80_000), False, 10_000),
        (ldp.OUE("1", domain_size=80_000), True, 13_339),  # base64 in quotes, and a comma
        (ldp.OUE("1", domain_size=9_000_000), False, 1_125_000),  # longer than any frame should be
    ],
)
def test_a_packed_frame_is_as_long_as_a_record_may_be(oracle, as_json, size):
    client, stream = Client(oracle.parameters()), ldp.Stream("s", oracle)
    ends = len('{"fingerprint":"01234567","reports":[]}') - 1 if as_json else 5
    each = max(1, (1_000_000 - ends) // size)
    reports = 2 * each + 1
    frame = wire.header(stream.fingerprint) + bytes(oracle.report_bytes)
    packed = client.pack([frame] * reports, most_reports=1 << 30, as_json=as_json)
    assert [len(made) for made in packed] == [ends + size * each, ends + size * each, ends + size]


def test_a_packed_frame_can_be_packed_again():
    client = Client(LABELLED)
    kept = [client.report(i % 3) for i in range(10)]
    (together,) = client.pack(kept, most_reports=10)
    assert together == kept[0] + b"".join(frame[5:] for frame in kept[1:])
    again = client.pack([*client.pack(kept[:7], most_reports=3), *kept[7:]], most_reports=10)
    assert again == [together]
    assert client.pack([], most_reports=10) == client.pack([], most_reports=10, as_json=True) == []


@pytest.mark.parametrize(
    ("frame", "error", "says"),
    [
        (b"", ValueError, "frame 1 is none; a binary frame of this stream begins with 01890535f0"),
        (b"\x01\x00\x00\x00\x00\x00", ValueError, "frame 1 has the fingerprint 00000000; .* with 01890535f0"),
        (b'{"fingerprint":"890535f0","reports":[[1,0]]}', ValueError, "frame 1 is none; "),
        (b"rouge", ValueError, "frame 1 is none; "),
        ("the header alone", ValueError, "frame 1 has 5 bytes; allowed are 5, and 5 for each of one or more"),
        (
            "and half a report",
            ValueError,
            "frame 1 has 12 bytes; allowed are 5, and 5 for each of one or more",
        ),
        ("text", TypeError, "frame 1 is of type str"),
    ],
)
def test_a_frame_that_is_none_is_not_packed(frame, error, says):
    client = Client(ldp.OLH("1", domain_size=10).parameters())
    good = client.report(3)
    given = {"the header alone": good[:5], "and half a report": good + good[5:7]}.get(frame, frame)
    for as_json in (False, True):
        with pytest.raises(error, match=says) as caught:
            client.pack([good, given], most_reports=10, as_json=as_json)
        assert b"rouge".hex() not in str(caught.value)


@pytest.mark.parametrize(
    ("most", "error"), [(0, ValueError), (-1, ValueError), (True, TypeError), (1.0, TypeError)]
)
def test_how_many_reports_a_record_may_have_is_a_whole_number(most, error):
    client = Client(LABELLED)
    with pytest.raises(error, match="most_reports"):
        client.pack([client.report(0)], most_reports=most)


def test_packing_draws_no_coins(monkeypatch):
    client = Client(LABELLED)
    kept = [client.report(0) for _ in range(5)]
    monkeypatch.setattr(type(client._oracle), "perturb_one", None)
    monkeypatch.setattr("os.urandom", None)
    assert len(client.pack(kept, most_reports=5)[0]) == 10


def test_a_device_needs_the_standard_library_alone():
    code = (
        "import json, sys\n"
        "from ldp.client import Client\n"
        "for document in json.load(sys.stdin):\n"
        "    client = Client(document)\n"
        "    kept = [client.report(0), client.report(0)]\n"
        "    client.pack(kept, most_reports=2), client.pack(kept, most_reports=2, as_json=True)\n"
        "known = {*sys.stdlib_module_names, 'ldp', '__main__', *before}\n"
        "assert not {'numpy', 'scipy', 'numba'} & set(sys.modules)\n"
        "foreign = {name.partition('.')[0] for name in sys.modules} - known\n"
        "assert not foreign, foreign\n"
    )
    subprocess.run(
        # what an interpreter's own start has loaded does not count
        [sys.executable, "-c", "import sys; before = {m.partition('.')[0] for m in sys.modules}\n" + code],
        input=json.dumps([stream["document"] for stream in STREAMS]).encode(),
        check=True,
        timeout=180,
    )
