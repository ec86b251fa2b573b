"""The newest reports of a topic, read in chunks that end within a record batch."""

import math

import numpy as np
import pytest
from kafka.record.memory_records import MemoryRecordsBuilder

from tests.batches import NOW
from worker.config import parse
from worker.kafka.client.raw_fetch import Fetched
from worker.kafka.reports.reader import _Reading

CONFIG = parse(
    '[[streams]]\nname = "s"\ntopic = "reports"\nprotocol = "grr"\nepsilon = "1"\ndomain_size = 3\n'
)


@pytest.mark.parametrize("end", [1, 2, 39, 40, 41, 77, 80])
def test_each_record_with_a_key_is_in_one_chunk(end):
    builder = MemoryRecordsBuilder(2, 0, 1 << 20)
    for i in range(80):
        builder.append(NOW, b"key" if i % 5 == 1 else None, b"x")
    builder.close()
    data = np.frombuffer(bytes(builder.buffer()), np.uint8)
    reading = _Reading(None, CONFIG.streams[0], math.inf)
    reading._judge(Fetched(0, 80, data, []), end)
    assert (reading.judged.records, reading.judged.keyed) == (end, len(range(1, end, 5)))
    reading._judge(Fetched(end, 80, data, []), 80)
    assert (reading.judged.records, reading.judged.keyed) == (80, 16)
