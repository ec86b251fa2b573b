"""What the bench of the way in fills a topic with, and what it says that is, by an independent decode."""

import json
import struct

import numpy as np
import pytest
from kafka.record import MemoryRecords

from tests.bench.ingest import pool as pools
from tests.bench.ingest.cases import GRR, OLH, PGR, Case
from tests.integration.harness import truth

SMALL = {"domain_size": 20}
CASES = (
    Case("grr", GRR | SMALL, batch=100),
    Case("json", GRR | SMALL, batch=1_000, codec="zstd", as_json=True),
    Case("olh", OLH | SMALL, batch=70, codec="gzip", reports=3),
    Case("pgr", PGR, batch=10, codec="snappy"),
)


@pytest.fixture(autouse=True)
def _small(monkeypatch):
    monkeypatch.setattr(pools, "NATURAL", 500)
    monkeypatch.setattr(pools, "SEGMENT_BYTES", 50_000)


def log_of(folder):
    """The (base offset, batch) of each batch in a partition's folder, and its records' (offset, value)."""
    batches, values = [], []
    for path in sorted(folder.iterdir()):
        records = MemoryRecords(path.read_bytes())
        first = True
        while records.has_next():
            batch = records.next_batch()
            assert batch.validate_crc()
            if first:
                assert int(path.stem) == batch.base_offset
            first = False
            batches.append((batch.base_offset, batch.records_count))
            values += [(record.offset, record.value) for record in batch]
    return batches, values


def reports_of(stream, value):
    """The numbers of each report of a frame, by the description of the wire."""
    if value.startswith(b"{"):
        return [(index,) for index in json.loads(value)["reports"]]
    assert value[:5] == b"\x01" + stream.fingerprint
    layout = {"grr": "<B", "olh": "<IB", "pgr": "<H"}[stream.document()["protocol"]]
    return list(struct.iter_unpack(layout, value[5:]))


def counted(stream, values):
    """The reports and the state that frames make."""
    rows = [report for value in values for report in reports_of(stream, value)]
    if stream.document()["protocol"] == "olh":
        state = truth.support(stream, np.array(rows, stream.oracle.report_dtype))
    else:
        state = np.bincount([index for (index,) in rows], minlength=stream.oracle.state_size)
    return len(rows), state.tolist()


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_truth_of_what_is_filled_is_what_an_independent_decode_counts(case, tmp_path):
    pool = pools.make(case)
    turns = pool.turns(2 * pool.records + 1)
    assert turns == 3
    pools.lay(pool, tmp_path / "reports-0", turns)

    batches, values = log_of(tmp_path / "reports-0")
    assert batches == [(at, case.batch) for at in range(0, turns * pool.records, case.batch)]
    assert [offset for offset, _ in values] == list(range(turns * pool.records))
    for records in (0, 1, pool.records - 1, pool.records + case.batch // 2, turns * pool.records):
        reports, state = pool.truth(records)
        assert (reports, state.tolist()) == counted(pool.stream, [value for _, value in values[:records]])


def test_a_large_log_is_in_segments(tmp_path):
    pool = pools.make(CASES[0])
    pools.lay(pool, tmp_path / "reports-0", 20)
    assert len(list((tmp_path / "reports-0").iterdir())) > 1
