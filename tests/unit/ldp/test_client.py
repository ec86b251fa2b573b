"""The device client: its frames are those of `ldp.frames`."""

import json
import subprocess
import sys

import numpy as np
import pytest

import ldp
from ldp import frames, wire
from ldp.client import Client
from tests.support.wire_vectors import packs, streams

STREAMS = [
    vector for vector in streams("frames") + streams("oracles") if "segment" not in vector["document"]
]  # test_javascript_client.py has segments
REPORTS = streams("reports")
over_streams = pytest.mark.parametrize("vector", STREAMS, ids=lambda vector: vector["name"])
LABELLED = {"protocol": "grr", "epsilon": "64/1", "domain_size": 3, "labels": ["rouge", "vert", "bleu ciel"]}


def test_labels_and_indices_share_one_domain():
    client = Client(LABELLED)
    assert [client.report(value)[5] for value in ("rouge", "vert", "bleu ciel", 0, 1, 2)] == [0, 1, 2] * 2


@pytest.mark.parametrize(
    ("value", "error", "says"),
    [
        ("violet", ValueError, "not one of the stream's 3 labels"),
        ("0", ValueError, "not one of the stream's 3 labels"),
        (-4711, ValueError, "outside 0 to 2"),
        (3, ValueError, "outside 0 to 2"),
        (True, TypeError, "type bool"),
        (1.0, TypeError, "type float"),
        (None, TypeError, "type NoneType"),
    ],
)
def test_a_bad_value_is_refused_and_not_repeated(value, error, says):
    with pytest.raises(error, match=says) as caught:
        Client(LABELLED).report(value)
    if value in ("violet", 4711, -4711):
        assert str(value).strip("-") not in str(caught.value)
    assert caught.value.__context__ is None  # its text would be logged with it


@over_streams
def test_packed_frames_equal_frames_encode(vector):
    """The vectors' reports, packed by the client, against numpy's encoders; and truncated by the operator's limit."""
    stream = ldp.Stream.from_document("s", vector["document"])
    client = Client(vector["document"])
    good = [bytes.fromhex(r["hex"]) for r in vector["records"] if "hex" in r and "reports" in r]
    bounds = np.cumsum([0, *map(len, good)])
    reports = frames.decode(stream, b"".join(good), bounds[:-1], bounds[1:], check_weight=False).reports
    for most in (1, 2, 3, len(reports), len(reports) + 1, 10_000):
        parts = [reports[first : first + most] for first in range(0, len(reports), most)]
        assert client.pack(good, most_reports=most) == [frames.encode(stream, part) for part in parts]
        as_json = client.pack(good, most_reports=most, as_json=True)
        assert as_json == [frames.encode_json(stream, part) for part in parts]
        assert [len(json.loads(frame)["reports"]) for frame in as_json] == [len(part) for part in parts]


@pytest.mark.filterwarnings("ignore:the document declares how often")
@pytest.mark.parametrize("stream", REPORTS, ids=lambda vector: vector["name"])
def test_a_packed_report_in_json_matches_the_vectors(stream):
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
        (ldp.SubsetSelection("5", domain_size=10_000), True, 179),  # 66 indices of two bytes, in base64
        (ldp.OUE("1", domain_size=80_000), False, 10_000),
        (ldp.OUE("1", domain_size=80_000), True, 13_339),  # base64 in quotes, and a comma
        (ldp.OUE("1", domain_size=9_000_000), False, 1_125_000),  # longer than any frame should be
    ],
)
def test_packed_frames_fill_the_record_size_limit(oracle, as_json, size):
    client, stream = Client(oracle.parameters()), ldp.Stream("s", oracle)
    ends = len('{"fingerprint":"01234567","reports":[]}') - 1 if as_json else 5
    each = max(1, (1_000_000 - ends) // size)
    reports = 2 * each + 1
    frame = wire.header(stream.fingerprint) + bytes(oracle.report_bytes)
    packed = client.pack([frame] * reports, most_reports=1 << 30, as_json=as_json)
    assert [len(made) for made in packed] == [ends + size * each, ends + size * each, ends + size]


@pytest.mark.parametrize("case", packs(), ids=str)
def test_reports_are_packed_up_to_the_limits_of_the_vectors(case):
    client = Client(case["document"])
    size = client._oracle.report_bytes
    frame = client._header + bytes(size)
    packed = client.pack([frame] * case["reports"], most_reports=case["most_reports"])
    assert [len(made) for made in packed] == [5 + size * n for n in case["packed"]]


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
        (b"", ValueError, "frame 1 is not a frame; a binary frame of this stream begins with 01890535f0"),
        (b"\x01\x00\x00\x00\x00\x00", ValueError, "frame 1 has fingerprint 00000000; .* with 01890535f0"),
        (b'{"fingerprint":"890535f0","reports":[[1,0]]}', ValueError, "frame 1 is not a frame; "),
        (b"rouge", ValueError, "frame 1 is not a frame; "),
        ("the header alone", ValueError, "frame 1 has 5 bytes; allowed are 5 plus 5 for each of one or more"),
        (
            "and half a report",
            ValueError,
            "frame 1 has 12 bytes; allowed are 5 plus 5 for each of one or more",
        ),
        ("text", TypeError, "frame 1 is of type str"),
    ],
)
def test_an_invalid_frame_is_not_packed(frame, error, says):
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
def test_the_limit_of_reports_per_record_is_an_integer(most, error):
    client = Client(LABELLED)
    with pytest.raises(error, match="most_reports"):
        client.pack([client.report(0)], most_reports=most)


def test_a_device_needs_only_the_standard_library():
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
        # modules that the interpreter loads at its start do not count
        [sys.executable, "-c", "import sys; before = {m.partition('.')[0] for m in sys.modules}\n" + code],
        input=json.dumps([stream["document"] for stream in STREAMS]).encode(),
        check=True,
        timeout=180,
    )
