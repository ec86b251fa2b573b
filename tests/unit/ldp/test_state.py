"""State files: format, canonical form, merging, refused files."""

import hashlib
import io
import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ldp
from ldp.files import Aggregator, perturbed
from ldp.offset_range import TIME_ENDS, OffsetRange
from ldp.oracles import ORACLES
from ldp.state import State
from worker.counting.windows import TIME_ENDS as WORKERS_TIME_ENDS

D = 10
GRR = ldp.Stream("colours", ldp.GRR("1", 3), labels=["rot", "grün", "blau"])
HOUR = 3_600_000
SMALL = State(
    GRR,
    600,
    [1, 299, 300],
    records=12,
    rejected={"json": 2, "empty": 1},
    windows=((0, HOUR),),
    log=(OffsetRange("r", 1, 5, 30, -1, 100), OffsetRange("r", 0, 0, 9)),
)
over_protocols = pytest.mark.parametrize("name", ORACLES)


def counted(stream, values, seed=7):
    aggregator = Aggregator(stream)
    for part, _ in perturbed(stream, [np.asarray(values)], binary=False, rng=np.random.default_rng(seed)):
        aggregator.read(io.BytesIO(part), "lines")
    return aggregator


def sealed(data):
    """A file with a valid checksum."""
    return data + hashlib.sha256(data).digest()


def changed(state, **keys):
    """A state's file with other values in its header; None takes a key away."""
    data = state.to_bytes()
    length = int.from_bytes(data[9:13], "little")
    header = {**json.loads(data[13 : 13 + length]), **keys}
    text = json.dumps(
        {key: value for key, value in header.items() if value is not ...},
        sort_keys=True,
        separators=(",", ":"),
        ensure_ascii=False,
    ).encode()
    return sealed(data[:9] + len(text).to_bytes(4, "little") + text + data[13 + length : -32])


def test_a_file_matches_its_definition():
    data = SMALL.to_bytes()
    assert data[:9] == b"LDPSTATE\x01"
    length = int.from_bytes(data[9:13], "little")
    header = (
        '{"document":{"domain_size":3,"epsilon":"1/1","labels":["rot","grün","blau"],"protocol":"grr"},'
        '"log":[{"max_timestamp":null,"most_reports":null,"offset":9,"partition":0,"start":0,"topic":"r"},'
        '{"max_timestamp":-1,"most_reports":100,"offset":30,"partition":1,"start":5,"topic":"r"}],'
        '"records":12,"rejected":{"empty":1,"json":2},"reports":600,"width":2,"windows":[[0,3600000]]}'
    )
    assert data[13 : 13 + length].decode() == header
    body = data[13 + length : -32]
    assert [int.from_bytes(body[i : i + 2], "little") for i in range(0, len(body), 2)] == [1, 299, 300]
    assert data[-32:] == hashlib.sha256(data[:-32]).digest()


@over_protocols
@pytest.mark.parametrize("n", [1, 300])
def test_reading_returns_the_written_state(name, n, tmp_path):
    stream = ldp.Stream("s", ldp.oracle(name, "1", D))
    aggregator = counted(stream, np.arange(n) ** 2 % D)
    state = State.of(aggregator, log=[OffsetRange("t", 3, 0, n, 1000, 5)])
    state.write(tmp_path / "a.ldp")
    found = State.read(tmp_path / "a.ldp", "s")
    assert found == state
    assert (found.stream, found.reports, found.records, found.log) == (stream, n, n, state.log)
    assert found.counters.tolist() == aggregator.state.tolist()
    assert [path.name for path in tmp_path.iterdir()] == ["a.ldp"]
    expected = aggregator.estimate()
    assert np.array_equal(found.estimate().frequencies, expected.frequencies)


def test_equal_states_have_equal_files():
    other = State(
        replace(GRR, name="another"),
        600,
        np.array([1, 299, 300], np.uint16),
        12,
        {"empty": 1, "json": 2},
        ((HOUR // 2, HOUR), (0, HOUR // 2)),
        (OffsetRange("r", 0, 0, 4), OffsetRange("r", 1, 5, 30, -1, 100), OffsetRange("r", 0, 4, 9)),
    )
    assert other.to_bytes() == SMALL.to_bytes()
    assert other == SMALL
    assert hash(other) == hash(SMALL)
    assert replace(SMALL, records=13) != SMALL


def test_an_empty_count_is_a_valid_state():
    empty = State(GRR, 0, [0, 0, 0], 0, {"json": 4})
    assert State.from_bytes(empty.to_bytes()) == empty
    assert empty.merge(State(GRR, 3, [1, 1, 1], 1)).rejected == {"json": 4}
    with pytest.raises(ValueError, match="n is 0"):
        empty.estimate()


@over_protocols
def test_states_of_parts_add_up_to_the_state_of_all(name):
    stream = ldp.Stream("s", ldp.oracle(name, "1", D))
    parts = [np.arange(n) % D for n in (400, 1, 250)]
    states = [State.of(counted(stream, part, seed)) for seed, part in enumerate(parts)]
    whole = Aggregator(stream)
    for seed, part in enumerate(parts):
        for text, _ in perturbed(stream, [part], binary=False, rng=np.random.default_rng(seed)):
            whole.read(io.BytesIO(text), "lines")
    assert states[0].merge(*states[1:]) == State.of(whole)
    assert states[2].merge(states[0]).merge(states[1]) == State.of(whole)


def test_adjacent_ranges_join_and_others_stay_separate():
    one = State(GRR, 1, [1, 0, 0], 1, log=(OffsetRange("r", 0, 0, 10, 70),))
    touching = State(GRR, 1, [1, 0, 0], 1, log=(OffsetRange("r", 0, 10, 20, 50),))
    behind = State(GRR, 1, [1, 0, 0], 1, log=(OffsetRange("r", 0, 30, 40, 90),))
    limited = State(GRR, 1, [1, 0, 0], 1, log=(OffsetRange("r", 0, 20, 30, 90, 5),))
    assert one.merge(touching).log == (OffsetRange("r", 0, 0, 20, 70),)
    assert behind.merge(touching, one).log == (
        OffsetRange("r", 0, 0, 20, 70),
        OffsetRange("r", 0, 30, 40, 90),
    )
    assert len(one.merge(touching, limited, behind).log) == 3


def test_disjoint_windows_add_up_without_a_log():
    log = (OffsetRange("r", 0, 0, 10),)
    first = State(GRR, 2, [1, 1, 0], 2, windows=((0, HOUR),), log=log)
    second = State(GRR, 3, [1, 1, 1], 3, windows=((HOUR, 2 * HOUR),), log=log)
    both = first.merge(second)
    assert (both.windows, both.log, both.reports) == (((0, 2 * HOUR),), (), 5)
    pooled = first.estimate().merge(second.estimate())
    assert both.estimate().windows == pooled.windows
    assert np.array_equal(both.estimate().frequencies, pooled.frequencies)
    again = State(GRR, 4, [2, 1, 1], 4, windows=((0, 2 * HOUR),))
    assert first.merge(second, again) == both.merge(again)
    with pytest.raises(ValueError, match="overlap"):
        first.merge(again, second)


OLH = State(ldp.Stream("s", ldp.OLH("1", 3)), 1, [1, 0, 1], 1)
WHOLE, WINDOW = State(GRR, 1, [1, 0, 0], 1), State(GRR, 1, [1, 0, 0], 1, windows=((0, 10),))


@pytest.mark.parametrize(
    ("one", "other", "said"),
    [
        (WHOLE, OLH, "only states of one document"),
        (WHOLE, replace(WHOLE, stream=replace(GRR, labels=("a", "b", "c"))), "only states of one document"),
        (WHOLE, WINDOW, "all time contains the reports of every window"),
        (WINDOW, WHOLE, "all time contains the reports of every window"),
        (WINDOW, replace(WINDOW, windows=((5, 15),)), r"\(0, 10\) and \(5, 15\) overlap"),
        (
            replace(WHOLE, log=(OffsetRange("r", 0, 0, 5),)),
            replace(WHOLE, log=(OffsetRange("r", 0, 4, 9),)),
            "offsets 0 to 4",
        ),
        (*[State(GRR, 1 << 62, [1 << 62, 0, 0], 1)] * 2, "the total of reports is"),
    ],
)
def test_incompatible_states_are_refused(one, other, said):
    with pytest.raises(ValueError, match=said):
        one.merge(other)


@pytest.mark.parametrize("name", ORACLES)
def test_unreachable_counters_are_refused(name):
    oracle = ldp.oracle(name, "1", D)
    with pytest.raises(ValueError, match=r"counts|counters|sum"):
        State(ldp.Stream("s", oracle), 2, np.full(oracle.state_size, 3), 2)
    with pytest.raises(ValueError, match=r"counts|counters"):
        State(ldp.Stream("s", oracle), 0, np.full(oracle.state_size, 1), 0)
    with pytest.raises(ValueError, match="shape"):
        State(ldp.Stream("s", oracle), 2, np.zeros(oracle.state_size + 1, np.int64), 2)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"reports": 599}, "sum"),
        ({"reports": -1}, "reports is -1"),
        ({"reports": 600.0}, "reports must be an integer"),
        ({"records": 0}, "records is 0; allowed is 1 to 600"),
        ({"records": 33}, "36 records in 34 offsets of the log"),
        ({"rejected": []}, "rejected is \\[\\]"),
        ({"rejected": {"json": 0}}, "rejected for json is 0"),
        ({"rejected": {"A reason": 1}}, "a reason is 'A reason'"),
        ({"windows": [[5, 5]]}, "a window's end is 5"),
        ({"windows": [[0, 10], [5, 15]]}, "overlap"),
        ({"windows": [[HOUR, 2 * HOUR], [0, HOUR]]}, "not in canonical form"),
        ({"log": [{"topic": "r"}]}, "missing 3 required"),
        ({"log": [{"topic": "", "partition": 0, "start": 0, "offset": 9}]}, "topic is ''"),
        ({"log": [{"topic": "r", "partition": 0, "start": 9, "offset": 9}]}, "offset is 9"),
        ({"log": [{"topic": "r", "partition": 0, "start": 0, "offset": 99}]}, "not in canonical form"),
        ({"log": {}}, "not in canonical form"),
        ({"width": 3}, "width is 3"),
        ({"width": 4}, "the counters have 6 bytes; 3 counters need 4 bytes each"),
        ({"document": {}}, "protocol is None"),
        ({"document": {**GRR.document(), "domain_size": 4}}, "there are 3 labels for 4 values"),
        ({"more": 1}, "must have exactly the keys document, log"),
    ],
)
def test_an_impossible_header_is_refused(wrong, said, tmp_path):
    path = tmp_path / "wrong.ldp"
    path.write_bytes(changed(SMALL, **wrong))
    with pytest.raises(ValueError, match=f"wrong.ldp: .*{said}"):
        State.read(path)


def test_every_truncation_and_flipped_bit_is_detected():
    data = SMALL.to_bytes()
    for end in range(len(data)):
        with pytest.raises(ValueError, match=r"not a state|truncated"):
            State.from_bytes(data[:end])
    for i in range(len(data)):
        for bit in range(8):
            with pytest.raises(ValueError, match=r"not a state|version|damaged"):
                State.from_bytes(data[:i] + bytes([data[i] ^ 1 << bit]) + data[i + 1 :])
    with pytest.raises(ValueError, match="damaged"):
        State.from_bytes(data + b"\n")


def test_a_newer_version_is_named():
    data = SMALL.to_bytes()
    with pytest.raises(ValueError, match="the state file has version 2; supported is version 1"):
        State.from_bytes(sealed(data[:8] + b"\x02" + data[9:-32]))


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=9), inner, max_size=3),
    max_leaves=6,
)


@settings(max_examples=100, deadline=None)
@given(
    st.sampled_from(["document", "log", "records", "rejected", "reports", "width", "windows"]), json_values
)
def test_any_header_is_valid_or_a_clear_error(key, value):
    try:
        found = State.from_bytes(changed(SMALL, **{key: value}))
    except ValueError:
        return
    assert State.from_bytes(found.to_bytes()) == found


def test_writing_is_atomic(tmp_path):
    path = tmp_path / "a.ldp"
    SMALL.write(path)
    before = path.read_bytes()
    code = (
        "import resource, sys; from pathlib import Path; from ldp.state import State\n"
        "path = Path(sys.argv[1]); state = State.read(path)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))\n"
        "try: state.write(path)\n"
        "except OSError: sys.exit(3)\n"
    )
    done = subprocess.run([sys.executable, "-c", code, str(path)], check=False, timeout=120)
    assert done.returncode == 3
    assert path.read_bytes() == before
    assert [one.name for one in tmp_path.iterdir()] == ["a.ldp"]


def test_a_link_is_followed_and_a_folder_is_refused(tmp_path):
    (tmp_path / "link.ldp").symlink_to(tmp_path / "a.ldp")
    SMALL.write(tmp_path / "link.ldp")
    assert State.read(tmp_path / "a.ldp") == SMALL
    assert (tmp_path / "link.ldp").is_symlink()
    with pytest.raises(FileExistsError, match="is not a file"):
        SMALL.write(tmp_path)


def test_the_time_range_matches_that_of_the_worker():
    assert TIME_ENDS == WORKERS_TIME_ENDS


VECTORS = json.loads((Path(__file__).parents[2] / "vectors" / "states.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("vector", VECTORS["states"], ids=lambda vector: vector["what"])
def test_a_vector_survives_a_round_trip(vector):
    state = State.from_bytes(bytes.fromhex(vector["hex"]))
    assert state.counters.tolist() == vector["counters"]
    assert state.stream.document() == vector["header"]["document"]
    assert [covered.document() for covered in state.log] == vector["header"]["log"]
    assert state.to_bytes().hex() == vector["hex"]


@pytest.mark.parametrize("vector", VECTORS["refused"], ids=lambda vector: vector["what"])
def test_an_invalid_vector_is_refused(vector):
    with pytest.raises(ValueError, match=r"."):
        State.from_bytes(bytes.fromhex(vector["hex"]))
