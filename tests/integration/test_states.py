"""What Redis holds is what a state's file holds: the same records, by a worker and by `ldp aggregate`, bit for bit."""

import json
from collections import defaultdict

import numpy as np
import pytest
from click.testing import CliRunner

from ldp import frames
from ldp.cli import cli
from ldp.state import State
from tests.integration.harness import World
from tests.integration.harness.archive import records, stored

pytestmark = pytest.mark.integration

HOUR = 3_600_000
FIRST = 1_700_000_000_000 // HOUR * HOUR
SETTINGS = {"message.timestamp.type": "CreateTime", "retention.ms": "-1"}
STREAMS = {
    "olh": {"protocol": "olh", "domain_size": 40},
    "pgr": {"protocol": "pgr", "domain_size": 25},
    "oue": {"protocol": "oue", "domain_size": 21},
}


def aggregated(world, values, folder, name):
    """The file that `ldp aggregate --state` writes of records: a file a binary frame, and one of the other lines."""
    folder.mkdir()
    document, lines, output = folder / "document.json", folder / "lines.jsonl", folder / f"{name}.ldp"
    document.write_text(json.dumps(world.stream.document()), encoding="utf-8")
    binary = [value for value in values if value[:1] == b"\x01"]
    lines.write_bytes(b"".join(value + b"\n" for value in values if value[:1] != b"\x01"))
    files = [lines]
    for i, value in enumerate(binary):
        files.append(folder / f"{i}.bin")
        files[-1].write_bytes(value)
    command = ["aggregate", "--document", document, "--most-reports", "100", "--state", output, *files]
    done = CliRunner().invoke(cli, [*map(str, command)])
    assert done.exit_code == 0, done.output
    return output


def same(state, cell):
    """Whether a state's file has the counters and reports of a cell in Redis, byte for byte."""
    data, size = state.to_bytes(), len(cell.counters)
    header = json.loads(data[13 : 13 + int.from_bytes(data[9:13], "little")])
    return (header["reports"], header["width"], data[-32 - size : -32]) == (
        cell.reports,
        cell.width,
        cell.counters,
    )


@pytest.mark.parametrize("protocol", STREAMS)
def test_a_partition_in_redis_is_the_file_of_its_records(protocol, kafka, redis_url, tmp_path):
    with World(kafka, redis_url, tmp_path, partitions=2, most_reports=100, **STREAMS[protocol]) as world:
        world.start()
        world.send(40, reports=3)
        world.send(20, reports=2, as_json=True)
        world.send(3, reports=101, counted=False)
        world.sent.futures += [world.put(value) for value in (b"noise", b"{}", b"\x01", b"\x01" + bytes(5))]
        world.covered()
        values = defaultdict(list)
        for record in records(world):
            values[record.partition].append(record.value)
        states = []
        for partition in range(world.partitions):
            path = aggregated(world, values[partition], tmp_path / f"{partition}", f"{partition}")
            state, kept = State.read(path), stored(world, partition)
            assert [*kept.cells] == ["all"]
            assert same(state, kept.cells["all"])
            assert (state.records, state.rejected) == (kept.totals["accepted"], kept.totals["rejected"])
            states.append(state)
        whole = states[0].merge(*states[1:])
        assert whole.reports == world.n == 160
        assert whole.rejected == {"fingerprint": 1, "json": 1, "length": 1, "many": 3, "version": 1}
        snapshot = world.covered()
        assert np.array_equal(snapshot.estimate().frequencies, whole.estimate().frequencies)


def test_a_pane_in_redis_is_the_file_of_its_hour_and_all_of_them_that_of_all_time(kafka, redis_url, tmp_path):
    table = {"protocol": "pgr", "domain_size": 25, "windows": ["1h"], "grace": "10m", "out_of_order": "5m"}
    with World(
        kafka, redis_url, tmp_path, partitions=1, reports=SETTINGS, most_reports=100, **table
    ) as world:
        world.start()
        values = defaultdict(list)
        for i in range(90):
            drawn, time = world.draw(1 + i % 3), FIRST + HOUR * i // 30
            encode = frames.encode_json if i % 4 == 0 else frames.encode
            value = encode(world.stream, drawn)
            values[time // HOUR * HOUR].append(value)
            world.sent.reports.append(drawn)
            world.sent.futures.append(world.put(value, timestamp=time))
        late = frames.encode(world.stream, world.draw(1))  # of the first hour, which is over
        world.sent.futures.append(world.put(late, timestamp=FIRST))
        world.covered()
        kept = stored(world, 0)
        hours = {}
        for start, some in values.items():
            state = State.read(aggregated(world, some, tmp_path / f"{start}", "hour"))
            hours[start] = State(
                state.stream, state.reports, state.counters, state.records, windows=((start, start + HOUR),)
            )
            assert same(hours[start], kept.cells[f"{start}+{HOUR}"])
        day = hours[FIRST].merge(*(hours[start] for start in list(hours)[1:]))
        assert day.windows == ((FIRST, FIRST + 3 * HOUR),)
        everything = [*(value for some in values.values() for value in some), late]
        whole = State.read(aggregated(world, everything, tmp_path / "all", "all"))
        counters = [
            np.frombuffer(cell.counters, f"<u{cell.width}").astype(int) for cell in kept.cells.values()
        ]
        assert np.array_equal(sum(counters), whole.counters)
        assert sum(cell.reports for cell in kept.cells.values()) == whole.reports == day.reports + 1
