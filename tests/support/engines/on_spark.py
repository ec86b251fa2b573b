"""Counts archives on Spark: ``python -m tests.support.engines.on_spark FOLDER...``."""

from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from ldp.engines import spark
from tests.support.engines.archive import FOLDERS, stream, write

SCHEMA = "topic string, partition int, offset bigint, timestamp bigint, value string"

session = SparkSession.builder.getOrCreate()
session.sparkContext.setLogLevel("ERROR")
for folder in FOLDERS:
    lines = session.read.schema(SCHEMA).json(str(folder / "records.jsonl"))
    records = lines.withColumns(
        {"value": f.unbase64("value"), "timestamp": f.timestamp_millis("timestamp")}
    ).repartition(5)
    for state in spark.count(records, stream(folder), most_reports=100):
        write(state, folder, "spark")
session.stop()
