"""Runs the examples of docs/guides/spark-and-beam.md in a folder: ``python -m tests.support.engines.readme FOLDER``.

They find there what they name: colours.json; archive, the records as Spark's source for Kafka has them; and
reports.jsonl, the records that are JSON, a line each.
"""

import json
import os
import re
import runpy
from base64 import b64decode
from pathlib import Path

import pyarrow as pa
from pyarrow import parquet

from tests.support.docs import page
from tests.support.engines.archive import FOLDERS

(folder,) = FOLDERS
blocks = re.findall(r"^```python\n(.*?)^```$", page("guides/spark-and-beam"), re.MULTILINE | re.DOTALL)
os.chdir(folder)
rows = [json.loads(line) for line in Path("records.jsonl").read_text(encoding="utf-8").splitlines()]
for row in rows:
    row["value"] = None if row["value"] is None else b64decode(row["value"])
types = {"topic": pa.string(), "partition": pa.int32(), "offset": pa.int64(), "value": pa.binary()}
types["timestamp"] = pa.timestamp("ms", "UTC")
Path("archive").mkdir()
parquet.write_table(pa.Table.from_pylist(rows, pa.schema(types)), "archive/part.parquet")
lines = [row["value"] for row in rows if row["value"] is not None and row["value"][:1] == b"{"]
Path("reports.jsonl").write_bytes(b"".join(line + b"\n" for line in lines))
Path("document.json").rename("colours.json")
Path("examples.py").write_text("\n".join(blocks), encoding="utf-8")
runpy.run_path("examples.py", run_name="__main__")
