import pytest

import ldp
from worker.counting.bounds import MOST_BLOB_BYTES, MOST_BYTES, MOST_PANES, excess
from worker.counting.windows import Windowing

HOURS = Windowing(("all", "1h"))
LONG = Windowing(("all", "23d every 1h"))


def documents(number, size=1024, segment=None):
    return [ldp.Stream("s", ldp.OUE(f"{i + 1}/20", size), segment=segment) for i in range(number)]


@pytest.mark.parametrize(
    ("number", "segments", "windowing", "expected"),
    [
        (16, 256, HOURS, None),
        (17, 0, None, "17 documents, live and retired; at most 16 are allowed"),
        (1, 257, None, "257 segments, live and retired; at most 256 are allowed"),
        (3, 0, LONG, None),
        (4, 0, LONG, "1,108 panes of each of 4 documents; at most 4,096 in total are allowed"),
    ],
)
def test_numbers_of_documents_segments_and_panes(number, segments, windowing, expected):
    names = [f"S{i}" for i in range(segments)]
    assert excess(documents(number), names, windowing) == expected
    assert MOST_PANES == 4096


def test_bytes_of_a_blob_and_of_a_partition():
    large, blob = 1 << 20, 8 << 20
    named = documents(1, large, "country")
    assert excess(named, ["DE", "FR", "IT"], None) is None and 8 * blob <= MOST_BLOB_BYTES
    assert f"could have {10 * blob:,} bytes of counts" in excess(named, ["DE", "FR", "IT", "US"], None)
    assert excess(documents(1, large), ["DE", "FR", "IT", "US"], None) is None, (
        "no report of it has a segment"
    )
    assert excess(documents(16, large), [], None) is None
    days = Windowing(("all", "6h every 1h"))
    panes = days.most_panes
    total = 16 * (1 + panes) * blob
    assert total > MOST_BYTES
    assert excess(documents(16, large), [], days) == (
        f"a partition could have {total:,} bytes of counts, with {panes} panes; at most 1,073,741,824 bytes are"
        " allowed"
    )


def test_one_document_without_segments_keeps_the_bounds_of_windows():
    assert excess(documents(1, 1 << 24), [], LONG) is None
