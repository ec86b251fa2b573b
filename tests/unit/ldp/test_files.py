"""Reports and values in files: counts against an independent recount."""

import io
import itertools
import json
import os
import re
import subprocess
import sys
import tracemalloc
from collections import Counter
from pathlib import Path

import jsonschema
import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

import ldp
from ldp import files, frames, snapshot
from ldp.cli import cli
from ldp.consistency import METHODS
from ldp.files import Aggregator, perturbed, values
from ldp.oracles import ORACLES
from tests.support.docs import page
from worker.audit.parsing import by_fingerprint
from worker.audit.records import Records
from worker.audit.recount import recount

ROOT = Path(__file__).parents[3]
SCHEMA = json.loads((ROOT / "ldp" / "snapshot" / "snapshot.schema.json").read_text())
COLOURS = ldp.Stream("file", ldp.OLH("1", 3), labels=("red", "green", "blue"))
GRR = ldp.Stream("file", ldp.GRR("1", 3))
GOOD = frames.encode_json(GRR, np.array([(0,), (2,)], GRR.oracle.report_dtype))
OTHER = GOOD.replace(GRR.fingerprint.hex().encode(), b"00000000")


def written(stream, given, binary, seed=7):
    parts = perturbed(stream, [np.asarray(given)], binary=binary, rng=np.random.default_rng(seed))
    return b"".join(part for part, _ in parts)


def aggregated(stream, *contents, most=None):
    aggregator = Aggregator(stream, most)
    for i, content in enumerate(contents):
        aggregator.read(io.BytesIO(content), f"file {i}")
    return aggregator


def run(*args, stdin=b""):
    return CliRunner().invoke(cli, [*map(str, args)], input=stdin)


@pytest.fixture
def colours(tmp_path):
    path = tmp_path / "colours.json"
    path.write_text(json.dumps(COLOURS.document()), encoding="utf-8")
    return path


@pytest.mark.parametrize("protocol", ORACLES)
def test_counts_match_an_independent_recount(protocol):
    stream = ldp.Stream("s", ldp.oracle(protocol, "1", 300))
    given = np.random.default_rng(3).integers(0, 300, 500)
    lines, frame = (written(stream, given, binary) for binary in (False, True))
    assert lines.count(b"\n") == len(given)
    for content, records in ((lines, lines.splitlines()), (frame, [frame])):
        expected = recount(by_fingerprint(stream.document()), [Records.of(list(enumerate(records)))])
        state = expected.all[stream.fingerprint.hex(), ""].state
        aggregator = aggregated(stream, content)
        assert expected.reports == aggregator.reports == len(given)
        assert not expected.rejected
        assert not aggregator.rejected
        assert aggregator.state.tolist() == state.tolist()
        assert aggregator.records == len(records)
    both = aggregated(stream, lines, b"", frame, lines)
    assert both.state.tolist() == (3 * state).tolist()
    assert (both.reports, both.records) == (1500, 1001)


LINE = st.sampled_from([GOOD, OTHER, b"", b"\r", b" ", b"{", b"\x01" + GRR.fingerprint + b"\x02", b"noise"])


@settings(max_examples=60, deadline=None)
@given(
    lines=st.lists(LINE, max_size=8),
    ends=st.sampled_from([b"\n", b"\r\n"]),
    closed=st.booleans(),
    block=st.integers(5, 90),
)
def test_lines_are_counted_separately_at_every_block_size(lines, ends, closed, block):
    content = ends.join(lines) + (ends if closed and lines else b"")
    expected_state, expected_rejected, records = GRR.oracle.zeros(), [], 0
    whole = content.split(b"\n")
    frame = content.startswith(b"\x01")
    for number, line in enumerate([content] if frame else whole, 1):
        record = line if frame else line.removesuffix(b"\r")
        if not record:
            continue
        records += 1
        if record == GOOD:
            expected_state += [1, 0, 1]
        elif frame:  # one frame, of one report only if nothing follows
            rest = record[5:]
            if set(rest) <= {0, 1, 2}:
                expected_state += np.bincount(list(rest), minlength=3)
            else:
                expected_rejected.append(("range", "file 0, one binary frame"))
        else:
            reason = {OTHER: "fingerprint", b"{": "json"}.get(record, "version")
            expected_rejected.append((reason, f"file 0, line {number}"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(files, "BLOCK", block)
        patch.setattr(files, "LINES_BLOCK", block)
        aggregator = aggregated(GRR, content)
    reasons = {reason for reason, _ in expected_rejected}
    assert aggregator.places == {
        reason: [place for other, place in expected_rejected if other == reason][:3] for reason in reasons
    }
    assert aggregator.state.tolist() == expected_state.tolist()
    assert aggregator.records == records
    assert aggregator.rejected == Counter(reason for reason, _ in expected_rejected)


def test_a_line_over_the_limit_is_skipped(monkeypatch):
    monkeypatch.setattr(files, "LINES_BLOCK", 16)
    monkeypatch.setattr(files, "LONGEST_LINE", 200)
    long = b'{"fingerprint":"' + b"0" * 1000
    aggregator = aggregated(GRR, b"\n".join([long, GOOD, long, b"", long + b"\n" + GOOD, long]))
    assert aggregator.rejected == {"length": 4}
    assert aggregator.places == {"length": [f"file 0, line {line}" for line in (1, 3, 5)]}
    assert (aggregator.reports, aggregator.records) == (4, 6)


@pytest.mark.parametrize("stream", [GRR, ldp.Stream("s", ldp.OUE("1", 20))], ids=lambda s: s.oracle.name)
@pytest.mark.parametrize("block", [5, 11])
def test_a_frame_is_counted_completely_or_not_at_every_block_size(monkeypatch, stream, block):
    monkeypatch.setattr(files, "BLOCK", block)
    monkeypatch.setattr(files, "LINES_BLOCK", 5 + block % 3)
    size = stream.oracle.report_dtype.itemsize
    frame = written(stream, [0, 2, 1, 1, 0, 0, 2], binary=True)
    bad = bytearray(frame)
    bad[4 + 2 * size] = 0xFF  # the last byte of the second report
    for content in [
        *(frame[:end] for end in range(1, len(frame) + 1)),
        *(bytes(bad[:end]) for end in range(12, len(bad))),
    ]:
        expected = frames.decode(stream, content, np.array([0]), np.array([len(content)]))
        aggregator = aggregated(stream, content)
        assert aggregator.rejected == Counter(expected.reasons.values()), content.hex()
        assert [*aggregator.places.values()] in ([], [["file 0, one binary frame"]])
        assert aggregator.reports == expected.reports.size
        counted = stream.oracle.zeros()
        stream.oracle.accumulate(counted, expected.reports)
        assert aggregator.state.tolist() == counted.tolist()
        assert aggregator.records == 1


@pytest.mark.parametrize("block", [5, 31])
@pytest.mark.parametrize("most", [None, 2])
def test_a_frame_is_checked_as_one_record_at_every_block_size(monkeypatch, block, most):
    monkeypatch.setattr(files, "BLOCK", block)
    monkeypatch.setattr(files, "LINES_BLOCK", block)
    stream = ldp.Stream("s", ldp.OUE("1", 100))
    good, unlikely, outside = bytes([0x5A] * 12 + [0x0A]), bytes(13), bytes([0x5A] * 12 + [0x1A])
    for reports in itertools.product([good, unlikely, outside], repeat=3):
        for cut in (0, 1):
            content = b"\x01" + stream.fingerprint + b"".join(reports)
            content = content[: len(content) - cut]
            expected = frames.decode(
                stream, content, np.array([0]), np.array([len(content)]), most_reports=most
            )
            aggregator = aggregated(stream, content, most=most)
            assert aggregator.rejected == Counter(expected.reasons.values())
            assert aggregator.reports == expected.reports.size
    lines = frames.encode_json(stream, stream.oracle.perturb([1, 2, 3])) + b"\n"
    assert aggregated(stream, lines, most=most).rejected == ({"many": 1} if most == 2 else {})


def test_aggregate_accepts_a_limit_and_has_none_by_default(colours):
    lines = frames.encode_json(COLOURS, COLOURS.oracle.perturb([0, 2, 1])) + b"\n"
    assert run("aggregate", "--document", colours, stdin=lines).exit_code == 0
    result = run("aggregate", "--document", colours, "--most-reports", "2", stdin=lines + lines)
    assert result.exit_code == 1
    assert "many" in result.stderr


class Endless:
    """A beginning, then one byte over and over."""

    def __init__(self, beginning, byte, size):
        self.beginning, self.block, self.left = beginning, byte * files.BLOCK, size

    def read(self, size):
        if self.beginning:
            first, self.beginning = self.beginning, b""
            return first
        assert size <= files.BLOCK
        taken = min(size, self.left)
        self.left -= taken
        return self.block[:taken]


@pytest.mark.parametrize(
    ("beginning", "byte", "reports"),
    [(b"\x01" + GRR.fingerprint, b"\x01", 20 << 20), (b"{", b"1", 0), (b"", b"\n", 0)],
    ids=["frame", "line", "blank"],
)
def test_memory_is_bounded(monkeypatch, beginning, byte, reports):
    monkeypatch.setattr(files, "LONGEST_LINE", 1 << 22)
    size = reports or (1 << 14 if byte == b"\n" else 32 << 20)
    aggregated(GRR, GOOD)
    tracemalloc.start()
    try:
        aggregator = Aggregator(GRR)
        aggregator.read(Endless(beginning, byte, size), "endless")
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert aggregator.reports == reports
    assert peak < 16 << 20


def taken(stream, content):
    return [index for block in values(stream, io.BytesIO(content), "here") for index in block.tolist()]


@pytest.mark.parametrize("block", [1, 1 << 16])
def test_each_line_is_one_value(monkeypatch, block):
    monkeypatch.setattr(files, "LINES_BLOCK", block)
    assert taken(COLOURS, b"green\r\nred\nblue\ngreen") == [1, 0, 2, 1]
    assert taken(GRR, b"2\n0\r\n1\n") == [2, 0, 1]
    assert taken(GRR, b"") == []
    named = ldp.Stream("s", ldp.GRR("1", 2), labels=("grün", "1"))
    assert taken(named, "1\ngrün\n".encode()) == [1, 0]


@pytest.mark.parametrize(
    ("stream", "wrong", "allowed"),
    [(COLOURS, wrong, "not one of the 3 labels") for wrong in ("purple", "", " red", "0")]
    + [
        (GRR, wrong, "not an index from 0 to 2")
        for wrong in ("3", "-1", "+1", " 1", "1.0", "1_0", "٢", "", "9" * 5000, str(2**64))
    ],
)
def test_an_invalid_value_is_named_by_its_line_only(monkeypatch, stream, wrong, allowed):
    monkeypatch.setattr(files, "LINES_BLOCK", 4)
    right = "green" if stream is COLOURS else "1"
    with pytest.raises(ValueError, match=f"^here, line 4 is (blank, )?{allowed}$") as raised:
        taken(stream, f"{right}\n{right}\r\n{right}\n{wrong}\n{right}\n".encode())
    assert ("blank" in str(raised.value)) == (not wrong)


def test_the_document_command_prints_the_document_of_the_stream(tmp_path):
    asked = ("document", "--protocol", "olh", "--epsilon", "0.5")
    result = run(*asked, "--labels", "red, green,blue", "--parameter", "g=7", "--parameter", "hash=xxh32")
    oracle = ldp.OLH("1/2", 3, g=7, hash="xxh32")
    stream = ldp.Stream("s", oracle, labels=("red", "green", "blue"))
    assert json.loads(result.stdout) == stream.document()
    names = tmp_path / "names"
    names.write_text("a, b\ngrün\n", encoding="utf-8")
    assert json.loads(run(*asked, "--labels-file", names).stdout)["labels"] == ["a, b", "grün"]
    assert json.loads(run(*asked, "--domain-size", 9).stdout) == ldp.OLH("1/2", 9).parameters()


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (("--protocol", "grp", "--domain-size", "3"), "'grp'; allowed are grr, olh"),
        (("--epsilon", "0", "--domain-size", "3"), "epsilon is 0"),
        ((), "exactly one of --labels, --labels-file and --domain-size"),
        (("--labels", "a", "--domain-size", "1"), "exactly one of"),
        (("--domain-size", "3", "--parameter", "k=2"), "'k=2'; olh takes g=..., hash=..."),
        (("--domain-size", "3", "--parameter", "g=x"), "g must be an integer, not 'x'"),
        (("--domain-size", "3", "--protocol", "grr", "--parameter", "g=2"), "grr takes no parameter"),
    ],
)
def test_an_impossible_document_exits_2(args, says):
    result = run("document", "--protocol", "olh", "--epsilon", "1", *args)
    assert (result.exit_code, result.stdout) == (2, "")
    assert says in result.stderr


@pytest.mark.parametrize("form", ["json", "binary"])
def test_perturb_and_aggregate_match_the_package(tmp_path, colours, form):
    content = b"red\ngreen\nred\n" * 20
    seeded = ("perturb", "--document", colours, "--format", form, "--insecure-seed", 7)
    made = run(*seeded, stdin=content)
    assert made.exit_code == 0
    assert "SIMULATION" in made.stderr
    assert made.stdout_bytes == written(COLOURS, [0, 1, 0] * 20, form == "binary")
    file = tmp_path / "values"
    file.write_bytes(content)
    assert run(*seeded, file).stdout_bytes == made.stdout_bytes
    secret = [run("perturb", "--document", colours, "--format", form, file) for _ in range(2)]
    assert not secret[0].stderr
    assert len({run.stdout_bytes for run in [*secret, made]}) == 3

    reports = tmp_path / "reports"
    reports.write_bytes(made.stdout_bytes)
    result = run(
        "aggregate", "--document", colours, "--name", "s", reports, "-", stdin=secret[0].stdout_bytes
    )
    assert (result.exit_code, result.stderr) == (0, "")
    aggregator = aggregated(COLOURS, made.stdout_bytes, secret[0].stdout_bytes)
    assert aggregator.reports == 120
    cut = snapshot.Cut({0: 120 if form == "json" else 2}, {})
    named = ldp.Stream("s", COLOURS.oracle, COLOURS.labels)
    expected = snapshot.encode(snapshot.take(named, aggregator.estimate(), cut, 1))
    assert result.stdout_bytes.splitlines() == [message.body for message in expected]
    validator = jsonschema.Draft202012Validator(SCHEMA)
    for line in result.stdout.splitlines():
        validator.validate(json.loads(line))


def test_long_vectors_and_labels_are_inline(tmp_path):
    d = snapshot.INLINE + 3
    stream = ldp.Stream("file", ldp.GRR("8", d), labels=tuple(f"l{i}" for i in range(d)))
    document = tmp_path / "document"
    document.write_text(json.dumps(stream.document()))
    content = written(stream, np.arange(d), binary=True)
    result = run(
        "aggregate", "--document", document, "--method", "norm-sub", "--method", "base", stdin=content
    )
    head, domain, *bodies = map(json.loads, result.stdout.splitlines())
    assert (head["reports"], head["offsets"], domain["labels"]) == (d, {"0": 1}, list(stream.labels))
    assert [body["method"] for body in bodies] == ["norm-sub", "base"]
    estimate = aggregated(stream, content).estimate()
    assert bodies[0]["frequencies"] == METHODS["norm-sub"](estimate).tolist()
    assert bodies[1]["high"] == estimate.interval()[1].tolist()
    assert {body["chunks"] for body in (domain, *bodies)} == {0}
    for part in (head, domain, *bodies):
        jsonschema.Draft202012Validator(SCHEMA).validate(part)


def test_malformed_records_are_reported(tmp_path, colours):
    good = written(COLOURS, [0, 1], binary=False)
    text = tmp_path / "a.jsonl"
    text.write_bytes(good + b"\nno\r\n" + OTHER + b"\n" + b"{\n" * 4)
    binary = tmp_path / "b.bin"
    binary.write_bytes(written(COLOURS, [0, 1], binary=True)[:-1])
    result = run("aggregate", "--document", colours, text, binary)
    assert result.exit_code == 0
    assert json.loads(result.stdout.splitlines()[0])["reports"] == 2
    assert json.loads(result.stdout.splitlines()[0])["offsets"] == {"0": 9}
    assert result.stderr.splitlines() == [
        "ldp: 7 of 9 records are malformed and not counted:",
        f"ldp:   json 4: {frames.REASONS['json']} ({text}, line 6; {text}, line 7; {text}, line 8; ...)",
        f"ldp:   version 1: {frames.REASONS['version']} ({text}, line 4)",
        f"ldp:   fingerprint 1: {frames.REASONS['fingerprint']} ({text}, line 5)",
        f"ldp:   length 1: {frames.REASONS['length']} ({binary}, one binary frame)",
        f"ldp: the fingerprint of --document is {COLOURS.fingerprint.hex()}",
    ]


def test_input_without_reports_exits_1(colours):
    result = run("aggregate", "--document", colours, stdin=b"red\n")  # a value, not a report
    assert (result.exit_code, result.stdout) == (1, "")
    assert "the input has no report to count; ldp perturb turns values into reports" in result.stderr


def test_a_wrong_value_exits_1_with_the_number_of_written_reports(tmp_path, colours):
    content = b"red\n" * 40_000 + b"violet\n"
    result = run("perturb", "--document", colours, "--insecure-seed", 1, stdin=content)
    assert result.exit_code == 1
    assert "violet" not in result.output
    line, out = re.search(
        r"stdin, line (\d+) is not one .*; ([\d,]+) reports written before it$", result.stderr
    ).groups()
    assert int(line) == 40_001
    assert int(out.replace(",", "")) == result.stdout.count("\n") == 2 * files.LINES_BLOCK // 4


def shell(script, **options):
    environ = os.environ | {
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "COLUMNS": "80",
    }
    return subprocess.run(
        ["sh", "-c", script], env=environ, capture_output=True, text=True, timeout=120, check=False, **options
    )


@pytest.mark.slow
def test_closed_pipes_and_full_disks_are_reported(tmp_path, colours):
    lines = tmp_path / "values"
    lines.write_bytes(b"red\n" * 8_000)
    closed = shell(
        "ldp perturb --document colours.json values | head -1 | ldp aggregate --document colours.json | head -c 1",
        cwd=tmp_path,
    )
    assert (closed.stdout, closed.stderr) == ("{", "")
    full = shell("ldp perturb --document colours.json values > /dev/full", cwd=tmp_path)
    assert (full.returncode, full.stderr) == (1, "Error: stdout: No space left on device\n")


@pytest.mark.slow
def test_the_tutorial_shows_the_printed_output(tmp_path, monkeypatch):
    blocks = re.findall(r"^```(\w+)\n(.*?)^```$", page("tutorials/files-only"), re.MULTILINE | re.DOTALL)
    (i,) = (i for i, (language, text) in enumerate(blocks) if language == "sh" and "ldp perturb" in text)
    shown = blocks[i + 1][1].splitlines()
    done = shell(blocks[i][1], cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    printed = done.stdout.splitlines()
    assert len(printed) == len(shown)
    assert printed[:2] == shown[:2]
    assert printed[3].split() == shown[3].split()
    sigma = float(re.search(r"standard error of Base ([\d.]+) %", printed[1])[1])
    truth = {"red": 60, "green": 30, "blue": 10}
    for line in (printed[-3:], shown[-3:]):
        assert [row.split()[0] for row in line] == list(truth)
        for row in line:
            label, base, low, _, high, *_ = row.split()
            assert abs(float(base) - truth[label]) < 8 * sigma
            assert float(low) < float(base) < float(high)
    counted = shell("ldp aggregate --document colours.json reports.jsonl --state colours.ldp", cwd=tmp_path)
    assert counted.returncode == 0, counted.stderr
    monkeypatch.chdir(tmp_path)
    (plotted,) = (text for language, text in blocks if language == "python")
    exec(plotted, {})
    assert (tmp_path / "colours.png").read_bytes().startswith(b"\x89PNG")


def test_a_byte_order_mark_is_not_part_of_a_label_or_value(tmp_path):
    (tmp_path / "labels").write_bytes(b"\xef\xbb\xbfred\r\ngr\xe2\x80\xa8een\r\nblue\r\n")
    assert files.labels(tmp_path / "labels") == ["red", "gr\u2028een", "blue"]
    blocks = list(values(COLOURS, io.BytesIO(b"\xef\xbb\xbfred\nblue\n"), "stdin"))
    assert [block.tolist() for block in blocks] == [[0, 2]]


@pytest.mark.parametrize("form", ["json", "binary"])
def test_files_with_segments_count_together(tmp_path, form):
    stream = ldp.Stream("file", ldp.GRR("1", 300), segment="country:app")
    path = tmp_path / "sliced.json"
    path.write_text(json.dumps(stream.document()), encoding="utf-8")
    given = b"".join(b"%d\n" % (i % 300) for i in range(70_000))  # more than one block of a frame
    made = [
        run("perturb", "--document", path, "--format", form, "--segment", segment, stdin=given).stdout_bytes
        for segment in ("US:4.3", "DE:1")
    ]
    aggregator = aggregated(stream, *made)
    assert (aggregator.reports, aggregator.state.sum(), aggregator.rejected) == (140_000, 140_000, {})
    for segment in ((), ("--segment", "DE")):
        result = run("perturb", "--document", path, "--format", form, *segment, stdin=given)
        assert result.exit_code == 1
        assert "the document has the levels country:app; 0 reports written" in result.stderr
    if form == "json":
        return
    plain = ldp.Stream("file", ldp.GRR("1", 300))
    own = plain.fingerprint
    for content, reason in (
        (made[0][:-1], "length"),
        (made[0][:12], "length"),
        (made[0][:9], "segment"),
        (made[0][:5], "segment"),
        (made[0][:4], "length"),
        (b"\x01" + made[0][1:5] + made[0][12:], "segment"),
    ):
        assert aggregated(stream, content).rejected == {reason: 1}, reason
    assert aggregated(plain, b"\x02" + own + made[0][5:]).rejected == {"segment": 1}
    assert aggregated(plain, b"{}\n" + made[0][:20].replace(b"\n", b"") + b"\n").rejected == {
        "json": 1,
        "version": 1,
    }
