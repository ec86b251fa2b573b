"""A partition in Redis equals the state file of `ldp aggregate`."""

import json
from collections import defaultdict

import numpy as np
import pytest
from click.testing import CliRunner

from ldp.cli import cli
from ldp.state import State
from tests.support.harness import World
from tests.support.harness.archive import records, stored

pytestmark = pytest.mark.integration

STREAMS = {
    "olh": {"protocol": "olh", "domain_size": 40},
    "pgr": {"protocol": "pgr", "domain_size": 25},
    "oue": {"protocol": "oue", "domain_size": 21},
}


def aggregated(world, values, folder, name):
    """Writes a state file of records with `ldp aggregate --state`."""
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
    """Returns whether a state has the bytes of a cell in Redis."""
    data, size = state.to_bytes(), len(cell.counters)
    header = json.loads(data[13 : 13 + int.from_bytes(data[9:13], "little")])
    return (header["reports"], header["width"], data[-32 - size : -32]) == (
        cell.reports,
        cell.width,
        cell.counters,
    )


@pytest.mark.parametrize(
    "protocol", [name if name == "olh" else pytest.param(name, marks=pytest.mark.long) for name in STREAMS]
)
def test_a_partition_in_redis_equals_a_file_of_its_records(protocol, kafka, redis_url, tmp_path):
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
