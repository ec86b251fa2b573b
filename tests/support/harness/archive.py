"""Archives of a topic, and the bytes of a partition in Redis."""

import json
import struct
from base64 import b64encode
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kafka import KafkaConsumer, TopicPartition

from tests.support.harness.waiting import until
from tests.support.harness.world import World

_BLOB = struct.Struct("<4sIq16sIIBqB")


@dataclass(frozen=True)
class Cell:
    """A cell in Redis: reports, bytes of a counter, and counters."""

    reports: int
    width: int
    counters: bytes


@dataclass(frozen=True)
class Stored:
    """A partition in Redis."""

    offset: int
    totals: dict[str, Any]
    cells: dict[str, Cell]


def stored(world: World, partition: int) -> Stored:
    """Reads a partition's keys as docs/internals/storage-format.md defines them."""
    tag = f"{{{world.name}:{partition}}}"
    meta: Any = world.redis.hgetall(f"{tag}:meta")
    cells = {}
    for name in json.loads(meta[b"blobs"]):
        blob: Any = world.redis.get(f"{tag}:window:{name}")
        magic, entries, _, _, segments, _, length, reports, width = _BLOB.unpack_from(blob)
        assert (magic, segments, length) == (b"LDP1", 1, 0)
        assert len(blob) == _BLOB.size + entries * width
        cells[name.partition("@")[0]] = Cell(reports, width, blob[_BLOB.size :])
    return Stored(int(meta[b"offset"]), json.loads(meta[b"totals"]), cells)


def records(world: World) -> Iterator[Any]:
    """Yields every record of a topic."""
    ends = world.ends()
    with closing(KafkaConsumer(bootstrap_servers=world.kafka, group_id=None)) as consumer:
        partitions = [TopicPartition(world.topic, partition) for partition in ends]
        consumer.assign(partitions)
        consumer.seek_to_beginning(*partitions)

        def done() -> bool:
            found.extend(record for some in consumer.poll(200).values() for record in some)
            return all(consumer.position(tp) >= ends[tp.partition] for tp in partitions)

        found: list[Any] = []
        until(done, "every record is read")
    yield from found


def archive(world: World, folder: Path) -> None:
    """Writes a topic as an archive of `tests.support.engines.archive`."""
    folder.mkdir()
    (folder / "document.json").write_text(json.dumps(world.stream.document()), encoding="utf-8")
    with (folder / "records.jsonl").open("w", encoding="utf-8") as file:
        for record in records(world):
            value = None if record.value is None else b64encode(record.value).decode()
            line = {"topic": record.topic, "partition": record.partition, "offset": record.offset}
            file.write(json.dumps(line | {"timestamp": record.timestamp, "value": value}) + "\n")
