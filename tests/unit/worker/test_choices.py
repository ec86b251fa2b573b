"""Cost of a record: the page's bytes equal the encoders' in written record batches."""

from functools import partial

import lz4.frame
import pytest
import zstandard

from tests.bench import choices
from tests.support.docs import page

TABLE = page("guides/send-reports").partition("## Cost of a record")[2].partition("\n## ")[0]
BATCH_HEADER = 61
BATCH = 128 << 10
COMPRESS = {
    "plain": bytes,
    "lz4": partial(lz4.frame.compress, block_linked=False),  # as Kafka's clients do
    "zstd": zstandard.compress,
}


def rows():
    """The table's cells, by row and column."""
    lines = [line.strip("| ").split(" | ") for line in TABLE.splitlines() if line.startswith("| ")]
    head, _, *body = lines[: 2 + len(choices.CHOICES)]
    return {name: dict(zip(head[1:], cells, strict=True)) for name, *cells in body}


def varint(number):
    """A zigzag varint of a number from 0 on; −1 is 0x01."""
    number, written = 1 if number == -1 else 2 * number, b""
    while number > 127:
        written += bytes([number & 127 | 128])
        number >>= 7
    return written + bytes([number])


def record(i, value):
    """Record i of a batch, at 512 records a millisecond, without key and headers."""
    body = b"\0" + varint(i // 512) + varint(i) + varint(-1) + varint(len(value)) + value + b"\0"
    return varint(len(body)) + body


def derived(protocol, choice, codec):
    """Bytes per report: in a batch filled to 128 KiB, or in a batch of one record."""
    stream = choices.stream(protocol)
    enough = 5 * BATCH // (4 * len(choices.values(stream, choice, choice.reports)[0]))
    values = choices.values(stream, choice, enough * choice.reports)
    if choice.alone:
        return BATCH_HEADER + len(record(0, values[0]))  # too short to be worth compressing
    records, n = b"", 0
    while len(records) + len(one := record(n, values[n])) + BATCH_HEADER <= BATCH:
        records, n = records + one, n + 1
    return (BATCH_HEADER + len(COMPRESS[codec](records))) / n / choice.reports


def test_the_table_has_every_choice():
    assert list(rows()) == [choice.name for choice in choices.CHOICES]


@pytest.mark.parametrize("protocol", choices.PROTOCOLS)
@pytest.mark.parametrize("choice", choices.CHOICES, ids=lambda choice: choice.name)
def test_sizes_match_the_exact_calculation(protocol, choice):
    for codec in choices.CODECS:
        said = float(rows()[choice.name][f"`{protocol}`, {codec}"])
        exact = derived(protocol, choice, codec)
        # how well it compresses is the codec's version's matter
        assert said == pytest.approx(exact, abs=0.06 if codec == "plain" else max(0.06, 0.03 * exact)), codec


def test_the_command_prints_the_table_of_the_page():
    printed = list(choices.table(with_speeds=False))
    assert len(printed) == 2 + len(choices.CHOICES)
    head, *body = (line.strip("| ").split(" | ") for line in (printed[0], *printed[2:]))
    for name, *cells in body:
        for column, cell in zip(head[1:], cells, strict=True):
            assert float(cell) == pytest.approx(float(rows()[name][column]), abs=0.11, rel=0.03), (
                name,
                column,
            )
