"""Input that decompresses to a gigabyte costs little more memory than the cap."""

import struct
import subprocess
import sys
import zlib
from pathlib import Path

import lz4.block
import pytest
import snappy
import zstandard

from tests.support.batches import GZIP, LZ4, SNAPPY, ZSTD, batch

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[3]
CAP, LITTLE = 16 << 20, 4 << 20
PIECE = bytes(1 << 20)

CHILD = """
import sys
from pathlib import Path
import numpy as np
from tests.support.batches import batch, compressed, drain, record
from worker.kafka.decoding.records import Arena, Reader

def memory(name):
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith(name)).split()[1]) << 10

bomb, cap, arena = Path(sys.argv[1]).read_bytes(), int(sys.argv[2]), Arena()
like = batch(0, compressed(record(0, bytes(5_000)), bomb[22] & 7), 1, attributes=bomb[22] & 7)
for fetched in (like, like[:-1] + b"?"):  # everything is imported and compiled, the arena is touched
    drain(fetched, 0, [], [(0, cap)], arena)
arena.data[:] = 1
before = memory("VmRSS")
Path("/proc/self/clear_refs").write_text("5")  # the high-water mark begins anew
chunk = Reader(np.frombuffer(bomb, np.uint8), 0, [], [(0, cap)]).read(arena)
assert [one.why for one in chunk.unreadable] == ["size"]
print(memory("VmHWM") - before)
"""


def gzip_bomb():
    made = zlib.compressobj(1, wbits=31)
    return b"".join(made.compress(PIECE) for _ in range(1 << 10)) + made.flush()


def snappy_bomb():
    block = snappy.compress(PIECE)
    return b"\x82SNAPPY\0" + bytes(8) + (struct.pack(">i", len(block)) + block) * (1 << 10)


def lz4_bomb():
    block = lz4.block.compress(PIECE, store_size=False)
    head = struct.pack("<IBB", 0x184D2204, 0x60, 0x70) + b"?"
    return head + (struct.pack("<I", len(block)) + block) * (1 << 10) + bytes(4)


def zstd_bomb(window_log):
    parameters = zstandard.ZstdCompressionParameters(window_log=window_log, write_content_size=False)
    made = zstandard.ZstdCompressor(compression_params=parameters).compressobj()
    return b"".join(made.compress(PIECE) for _ in range(1 << 10)) + made.flush()


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="memory is told by /proc")
@pytest.mark.parametrize(
    ("codec", "section", "most"),
    [
        pytest.param(GZIP, gzip_bomb, CAP, id="gzip"),
        pytest.param(SNAPPY, snappy_bomb, CAP, id="snappy"),
        pytest.param(LZ4, lz4_bomb, CAP, id="lz4"),
        pytest.param(ZSTD, lambda: zstd_bomb(20), CAP, id="zstd"),
        # a window is touched as far as it is filled
        pytest.param(ZSTD, lambda: zstd_bomb(27), 2 * CAP, id="zstd with a large window"),
    ],
)
def test_a_gigabyte_costs_no_more_than_the_cap(tmp_path, codec, section, most):
    file = tmp_path / "bomb"
    file.write_bytes(batch(0, section(), 1, attributes=codec))
    command = [sys.executable, "-c", CHILD, str(file), str(CAP)]
    said = subprocess.run(command, cwd=ROOT, check=False, capture_output=True, text=True, timeout=120)
    assert said.returncode == 0, said.stderr
    assert int(said.stdout) <= most + LITTLE
