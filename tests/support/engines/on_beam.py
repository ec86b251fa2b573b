"""Counts archives on Beam's local runner: ``python -m tests.support.engines.on_beam FOLDER...``."""

import json
from base64 import b64decode
from typing import NamedTuple

import apache_beam as beam

from ldp.engines.beam import Count
from ldp.state import State
from tests.support.engines.archive import FOLDERS, stream, write


class Record(NamedTuple):
    """A record as ReadFromKafka returns it with metadata."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    value: bytes | None


def record(line: str) -> tuple[tuple[str, int], Record]:
    """Returns a line's partition and record."""
    read = json.loads(line)
    value = None if read["value"] is None else b64decode(read["value"])
    found = Record(**{**read, "value": value})
    return (found.topic, found.partition), found


for folder in FOLDERS:
    with beam.Pipeline(runner="DirectRunner") as pipeline:
        states = (
            pipeline
            | beam.io.ReadFromText(str(folder / "records.jsonl"))
            | beam.Map(record)
            | beam.CombinePerKey(Count(stream(folder), most_reports=100))
        )
        states | beam.Map(lambda keyed, to=folder: write(State.from_bytes(keyed[1]), to, "beam"))
