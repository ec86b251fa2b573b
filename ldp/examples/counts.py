# /// script
# requires-python = ">=3.11"
# dependencies = ["duckdb", "ldp-worker"]
# ///
"""Estimates from SQL: a database counts the reports of JSON frames."""

import json
import tempfile
from pathlib import Path

import duckdb
import numpy as np

import ldp
from ldp import frames
from ldp.counts import read_counts

stream = ldp.Stream("drinks", ldp.PGR("1", domain_size=4), labels=("water", "tea", "coffee", "milk"))
rng = np.random.default_rng(2)  # fixed seed: only for simulated users
reports = stream.oracle.perturb(rng.choice(4, 20_000, p=[0.5, 0.3, 0.2, 0.0]), rng=rng)

with tempfile.TemporaryDirectory() as folder:
    file = Path(folder, "frames.jsonl")
    lines = [frames.encode_json(stream, part) for part in np.array_split(reports, 200)]
    file.write_bytes(b"\n".join(lines))
    row = duckdb.execute(
        """
        WITH reports AS (SELECT unnest(json->'reports'->'$[*]') AS report FROM read_ndjson_objects(?)),
        counted AS (SELECT report, count(*) AS n FROM reports GROUP BY report)
        SELECT json_object('reports', (SELECT count(*) FROM reports), 'counters', json_group_object(report, n))
        FROM counted
        """,
        [str(file)],
    ).fetchone()

assert row is not None
print(read_counts(stream, json.loads(row[0])))
