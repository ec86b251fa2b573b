"""Counts an archive on each request: ``python -m tests.support.engines.server spark|beam FILE DOCUMENT``.

The file has a JSON frame a line. For each line of stdin it is counted once, and the checksum of the state is printed.
"""

import json
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import ldp
from ldp.state import State

ENGINE, FILE, DOCUMENT = sys.argv[1:]
STREAM = ldp.Stream.from_document("state", json.loads(DOCUMENT))


def on_spark() -> Callable[[], State]:
    """Starts Spark; returns a function that counts."""
    from pyspark.sql import SparkSession
    from pyspark.sql import functions as f

    from ldp.engines import spark

    settings = {"spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false"}
    session = SparkSession.builder.master("local[1]").config(map=settings).getOrCreate()

    def count() -> State:
        (state,) = spark.count(session.read.text(FILE).select(f.col("value").cast("binary")), STREAM)
        return state

    return count


def on_beam() -> Callable[[], State]:
    """Returns a function that counts on Beam's local runner."""
    import apache_beam as beam

    from ldp.engines.beam import Count

    def count() -> State:
        with tempfile.TemporaryDirectory() as folder:
            with beam.Pipeline(runner="DirectRunner") as pipeline:
                (
                    pipeline
                    | beam.io.ReadFromText(FILE, coder=beam.coders.BytesCoder())
                    | beam.CombineGlobally(Count(STREAM))
                    | beam.Map(lambda data, to=f"{folder}/state": Path(to).write_bytes(data))
                )
            return State.read(Path(folder) / "state")

    return count


count = {"spark": on_spark, "beam": on_beam}[ENGINE]()
for _ in sys.stdin:
    print(count().to_bytes()[-32:].hex(), flush=True)
