"""Report vectors of a second client: values and coins to bytes."""

import json
import runpy
from hashlib import sha256
from itertools import accumulate

import numpy as np
import pytest

import ldp
from ldp import frames, sampling
from ldp.client import Client
from tests.support.wire_vectors import FOLDER, streams

STREAMS = streams("reports")
COINS = json.loads((FOLDER / "coins.json").read_text(encoding="utf-8"))
over_streams = pytest.mark.parametrize(
    "vector",
    [
        pytest.param(
            v, marks=pytest.mark.long if v["document"]["domain_size"] > 1 << 20 else (), id=v["name"]
        )
        for v in STREAMS
    ],
)


class Scripted:
    """In the place of the module `secrets`: the coins that tests/vectors/README.md defines."""

    def __init__(self, seed):
        self.seed, self.block, self.ready = bytes.fromhex(seed), 0, b""

    def take(self, size):
        while len(self.ready) < size:
            self.ready += sha256(self.seed + self.block.to_bytes(4, "little")).digest()
            self.block += 1
        taken, self.ready = self.ready[:size], self.ready[size:]
        return int.from_bytes(taken, "little")

    def randbelow(self, m):
        return self.take(32) * m // 2**256

    def randbits(self, n):
        return self.take((n + 7) // 8) & (1 << n) - 1


def test_the_coins_of_a_seed():
    coins = Scripted(COINS["seed"])
    for draw in COINS["draws"]:
        drawn = coins.randbelow(int(draw["below"])) if "below" in draw else coins.randbits(draw["bits"])
        assert drawn == int(draw["is"])


@pytest.mark.filterwarnings("ignore:the document declares how often")
@over_streams
def test_the_client_sends_the_recorded_bytes(vector, monkeypatch):
    client = Client(vector["document"])
    for case in vector["cases"]:
        monkeypatch.setattr(sampling, "secrets", Scripted(case["seed"]))
        assert client.report(case["value"]).hex() == case["frame"]


@over_streams
def test_the_server_counts_the_recorded_bytes(vector):
    stream = ldp.Stream.from_document("s", vector["document"])
    oracle = stream.oracle
    assert stream.fingerprint.hex() == vector["fingerprint"]
    records = [bytes.fromhex(case["frame"]) for case in vector["cases"]]
    bounds = np.array([0, *accumulate(map(len, records))])
    decoded = frames.decode(stream, b"".join(records), bounds[:-1], bounds[1:])
    assert not decoded.reasons
    assert decoded.counts.tolist() == [1] * len(records)
    state = oracle.zeros()
    oracle.accumulate(state, decoded.reports)
    assert oracle.support(state)[vector["asked"]].tolist() == vector["support"]
    for report, case in zip(np.split(decoded.reports, len(records)), vector["cases"], strict=True):
        fields = report.tobytes().hex() if oracle.length else list(report[0].tolist())
        assert fields == case["report"]
        text = json.dumps({"fingerprint": vector["fingerprint"], "reports": [case["json"]]}).encode()
        assert json.loads(frames.encode_json(stream, report)) == json.loads(text)
        assert np.array_equal(
            frames.decode(stream, text, np.array([0]), np.array([len(text)])).reports, report
        )
        state = oracle.zeros()
        oracle.accumulate(state, report)
        assert oracle.support(state)[vector["asked"]].tolist() == [
            v in case["supports"] for v in vector["asked"]
        ]


def test_vector_files_equal_the_output_of_the_script():
    made = runpy.run_path(str(FOLDER.parent / "make_reports.py"))["files"]()
    stored = [*FOLDER.glob("*.json"), *(FOLDER / "reports").iterdir()]
    assert made == {str(path.relative_to(FOLDER)): path.read_text(encoding="utf-8") for path in stored}
