"""The pages on capacity, the output of their commands, and the sizes that the code produces."""

import gzip
import json
import math
import re
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import ldp
from deploy.sizing import __main__ as tables
from deploy.sizing import formulas as sizing
from ldp.analysis.protocol_selection import plan
from ldp.snapshot import JSON, Cut, encode, rounded, take
from ldp.snapshot.documents import BASE_ONLY, VECTORS
from tests.support.cells import key_in
from tests.support.docs import page
from worker.config import parse
from worker.counting import layout
from worker.counting.cells import Cell, CellKey
from worker.counting.lineage import lineage_of
from worker.counting.partition_state import PartitionState

ROOT = Path(__file__).parents[3]
SECTION = page("operate/capacity")


def load(protocol, d, *reports, partitions=1):
    return sizing.Load("a test", ldp.oracle(protocol, "1", d), partitions, reports)


def printed(capsys, monkeypatch, *options):
    monkeypatch.setattr(sys, "argv", ["sizing", *options])
    tables.main()
    return capsys.readouterr().out


def test_the_page_has_the_command_and_its_table(capsys, monkeypatch):
    assert printed(capsys, monkeypatch) in SECTION
    assert "\n.venv/bin/python -m deploy.sizing\n" in SECTION


def test_streams_of_a_configuration_have_their_panes_and_periods(tmp_path, capsys, monkeypatch):
    toml = tmp_path / "worker.toml"
    toml.write_text(
        'commit_every_seconds = 2.0\nsnapshots.every_seconds = 30.0\n[[streams]]\nname = "colours"\ntopic = "t"\n'
        'protocol = "grr"\nepsilon = "1"\ndomain_size = 3\nwindows = ["1h", "24h every 1h"]\n',
        encoding="utf-8",
    )
    out = printed(capsys, monkeypatch, "--config", str(toml), "--rate", "2000", "--partitions", "6")
    (served,) = parse(toml.read_text(encoding="utf-8")).streams
    (row,) = [line for line in out.splitlines() if line.startswith("| colours ")]
    panes = served.cost.panes // 2
    assert f"| `grr`, 3 | 2,000, 6, {panes} panes each | 2 s, 30 s |" in row
    assert next(tables.configured(toml, 2000, 6)).due == 1 + served.cost.open


def test_fewer_methods_need_less_and_rows_need_more(tmp_path):
    """Rows and vectors as a snapshot of the same configuration has them."""
    text = (
        'snapshots.methods = ["base", "norm-sub"]\nrows.topic = "rows"\nrows.methods = ["base"]\n'
        '[[streams]]\nname = "colours"\ntopic = "t"\nprotocol = "grr"\nepsilon = "1"\ndomain_size = 40\n'
        'queries = [{name = "some", values = [1, 2]}, {name = "most", top = 3}]\n'
    )
    toml = tmp_path / "worker.toml"
    toml.write_text(text, encoding="utf-8")
    (found,) = tables.configured(toml, 1000, 2)
    loaded = parse(text)
    (served,) = loaded.streams
    estimate = served.stream.oracle.estimate(np.full(40, 50), 2000)
    taken = take(served.stream, estimate, Cut({0: 2000}, {}), 1, methods=loaded.snapshots.methods)
    vectors = [json.loads(part.body) for part in encode(taken) if part.content_type == JSON]
    assert found.methods + len(BASE_ONLY) == sum(1 for text in vectors for name in VECTORS if text.get(name))
    everything = replace(found, methods=11)
    assert everything.topic_bytes - found.topic_bytes == pytest.approx(9 * (100 + 40 * 5.6))
    rows = 40 + 1 + 3  # the most frequent, a set, three of the user's choice
    assert found.topic_bytes - replace(found, rows=0).topic_bytes == 39 * rows


@pytest.mark.parametrize(
    ("protocol", "d", "reports"),
    [("grr", 10, 300), ("olh", 1024, 100), ("olh", 1024, 50_000), ("grr", 3, 10**10), ("pgr", 1024, 10**6)],
)
def test_the_size_of_a_blob_matches_the_estimate(protocol, d, reports):
    """Size of the state in which one counter has the most that reports are likely to add."""
    given = load(protocol, d, reports)
    stream = ldp.Stream("s", given.oracle)
    state = PartitionState.fresh(ldp.Fleet((stream,)), 0)
    counts = stream.oracle.zeros()
    counts[0] = math.ceil(reports * sizing.chance(given.oracle))
    key = key_in(state)
    state.cells[key][""] = Cell(reports, counts)
    before = layout.initial(lineage_of("g", "t"), state)
    _, blobs = layout.dump(state, before, "0" * 32)
    assert (len(blobs[str(key)]),) == given.blobs


@pytest.mark.parametrize("protocol", ["grr", "olh", "oue", "subset", "hadamard", "pgr"])
def test_no_counter_overflows_its_width(protocol):
    """All users have one value, the worst that there can be."""
    oracle, rng = ldp.oracle(protocol, "1", 40), np.random.default_rng(3)
    for reports in (100, 600, 60_000):
        state = oracle.zeros()
        oracle.accumulate(state, oracle.perturb(np.zeros(reports, np.int64), rng=rng))
        assert state.max() < 1 << 8 * sizing.width(oracle, reports)


@pytest.mark.parametrize("d", [1_024, 9_000])
def test_the_size_of_a_snapshot_matches_the_estimate(d):
    given = load("olh", d, 10**6)
    stream = ldp.Stream("s", given.oracle)
    counts = np.random.default_rng(1).binomial(10**6, float(given.oracle.q), d)
    bodies = encode(rounded(take(stream, stream.oracle.estimate(counts, 10**6), Cut({0: 1_000_000}, {}), 1)))
    size = sum(len(gzip.compress(part.body)) for part in bodies)
    assert given.topic_bytes == pytest.approx(size, rel=0.25)


def test_record_sizes_match_the_guide():
    text = page("guides/send-reports")
    (cells,) = re.findall(r"^\| one report \|(.*)\|$", text, re.MULTILINE)
    for place, name in ((0, "pgr"), (3, "olh")):
        rate = sizing.Load("s", ldp.oracle(name, "1", 1024), 1, (1,), rate=1.0)
        assert rate.topic_bytes_a_second == pytest.approx(float(cells.split("|")[place]), abs=0.15)


def test_decode_costs_match_the_plan():
    for row in plan("1", 1000, 10**6).rows:
        oracle = ldp.oracle(row.protocol, "1", 1000)
        steps = sizing.Load("s", oracle, 1, (1,)).steps
        assert round(steps) == row.decode_steps
        assert 8 * oracle.state_size == row.state_bytes


def test_formulas_match_an_independent_calculation():
    """Each formula is written out here with its numbers."""
    for name, d, reports, partitions, r in (("pgr", 10**6, 10**6, 7, 16e-9), ("olh", 1_024, 10**4, 3, 5e-9)):
        given = load(name, d, reports, reports, partitions=partitions)
        oracle, P, C = given.oracle, partitions, 2
        K, w = oracle.state_size, {"pgr": 1, "olh": 2}[name]
        assert layout.HEADER_BYTES == 50
        blob = 50 + w * K
        assert given.redis_bytes == pytest.approx(P * (1000 + C * (150 + 1.25 * blob)))
        assert given.commit_bytes == P * (1000 + 150 * C + blob)
        assert given.cut_bytes == P * (1000 + C * (150 + blob))
        assert given.commit_seconds == pytest.approx(P * (0.3e-3 + K * 2.4e-9))
        steps = K * math.log2(K) if name == "pgr" else 0
        values = 12e-6 * min(d, 1_800) + 0.8e-6 * d + 4.6e-9 * steps
        assert given.publish_seconds == pytest.approx(7.5e-3 + P * 0.26e-3 + P * C * K * r + values)
        memory = 235e6 + 8 * P * C * K + 430 * d + (40 * K if name == "pgr" else 0)
        assert given.publisher_bytes == pytest.approx(memory)
        apart = 235e6 if d > 81_920 else 0
        assert given.worker_bytes == pytest.approx(memory + apart + 40e6 + 8 * P * C * K)


def test_conclusions_match_the_computed_numbers():
    pgr, hadamard, olh, wide = (each for each in tables.cases() if each.name == "a billion a day")
    text = " ".join(SECTION.split())
    assert (
        f"takes {wide.publish_seconds:.0f} s of CPU, and a worker needs {wide.worker_bytes / 1e9:.0f} GB"
        in text
    )
    assert f"{wide.commit_bytes / 1e9:.1f} GB/s" in text
    assert hadamard.cut_bytes < pgr.cut_bytes / 2
    assert 1 < olh.counting_cores < 2
    errors = [math.sqrt(o.q * (1 - o.q)) / (o.p - o.q) for o in (pgr.oracle, hadamard.oracle, olh.oracle)]
    assert round(100 * (errors[0] / errors[2] - 1)) == 1
    assert 12 <= 100 * (errors[1] / errors[2] - 1) < 13
    assert f"K = {pgr.oracle.state_size / 1e6:.1f}·d" in text
    assert 1.2 < (errors[1] / errors[0]) ** 2 < 1.3
    words = next(each for each in tables.cases() if each.name == "words")
    assert f"each snapshot is {words.topic_bytes / 1e6:.1f} MB" in text
    assert f"gives {words.topic_bytes * 17_280 / 1e9:.0f} GB a day" in text


@pytest.mark.parametrize("segments", [1, 4])
def test_the_size_of_segments_matches_the_layout(segments):
    stream = ldp.Stream("s", ldp.OUE("1", 40), segment="country" if segments > 1 else None)
    state, key = PartitionState.fresh(ldp.Fleet((stream,)), 0), CellKey(None, stream.fingerprint.hex())
    counts = np.full(40, 300)
    names = [f"DE:{i:04}" for i in range(segments)] if segments > 1 else [""]
    state.cells = {key: {name: Cell(300, counts) for name in names}}
    state.changed = {key}
    _, blobs = layout.dump(state, layout.initial(lineage_of("g", "t"), state), "0" * 32)
    given = sizing.Load("s", stream.oracle, 1, (600 * segments,), segments=segments)
    (size,) = map(len, blobs.values())
    assert 0 <= size - given.blobs[0] <= 7 * (segments > 1)  # the name of the first segment
    assert given.counters == segments * 40


def test_parts_of_a_snapshot():
    given = sizing.Load("s", ldp.OUE("1", 40), 1, (1,), rate=100.0, publish_every=5.0, methods=3)
    parted = replace(given, segments=5, parts=(7, 2, 1000))
    assert parted.parts_due == pytest.approx(7 * 100 * 5 / 5 / 1000)
    more = parted.parts_due * (100 * (2 + 1) + (2 + 5) * 40 * 5.6)
    assert parted.topic_bytes - given.topic_bytes == pytest.approx(more)
    assert replace(parted, rate=1e9).parts_due == 7


def test_declared_segments_of_a_configuration_are_counted(tmp_path):
    text = """
snapshots.parts_fewest = 500
[[streams]]
name = "s"
topic = "t"
protocol = "grr"
epsilon = "1"
domain_size = 40
segment = "country:app"
segments = ["DE", "US:4.3", "US:4.2"]
"""
    (tmp_path / "worker.toml").write_text(text, encoding="utf-8")
    (found,) = tables.configured(tmp_path / "worker.toml", 1000, 2)
    # DE, US:4.2 and US:4.3, and the rests of these, of US, and of all
    assert (found.segments, found.parts) == (8, (4, 2, 500))
