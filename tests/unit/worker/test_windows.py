"""Windows and panes, by looking at every millisecond of small ones."""

import pytest

from worker.counting.cells import CellKey, key_of
from worker.counting.windows import LONGEST, Pane, Window, Windowing, milliseconds, parse, parse_all

SHAPES = [(1, 1), (3, 3), (6, 2), (6, 3), (10, 5), (12, 4)]


@pytest.mark.parametrize(("length", "every"), SHAPES)
def test_window_functions_match_enumeration(length, every):
    window = Window("w", length, every)
    starts = range(-40 * every, 50 * every, every)
    for time in range(40):
        assert window.next_start(time) == min(start for start in starts if start > time)
        assert window.last_end(time) == max(s + length for s in starts if s + length <= time)
        assert window.first_open(time) == min(start for start in starts if start + length > time)
    for start in range(40):
        for size in range(1, 6):
            having = [s for s in starts if 0 <= s <= start and start + size <= s + length]
            assert [s for s in window.starts(Pane(start, size)) if s <= start] == having


@pytest.mark.parametrize(
    "names", [("1h",), ("all", "6h every 2h"), ("6h every 2h", "9h every 3h"), ("1h", "40m")]
)
def test_panes_are_the_longest_that_divide_every_window(names):
    windowing = Windowing(names, grace=60_000)
    minute = 60_000
    edges = {
        time // minute
        for w in windowing.parsed
        for s in range(0, 72 * 60 * minute, w.every)
        for time in (s, s + w.length)
    }
    pane = windowing.pane // minute
    assert all(edge % pane == 0 for edge in edges)
    longer = range(pane + 1, max(edges))
    assert not any(all(edge % other == 0 for edge in edges) for other in longer)


def test_the_bound_covers_panes_kept_open_by_reports_of_a_partition():
    """Twice (longest window + 2 · out of order + grace) / pane + 2, rounded up."""
    for names, grace, max_out_of_orderness, most in [
        (("1h",), 0, 0, 2 * (1 + 2)),
        (("24h every 1h",), 0, 0, 2 * (24 + 2)),
        (("24h every 1h",), 1, 0, 2 * (25 + 2)),
        (("24h every 1h", "90m every 30m"), 600_000, 1_200_000, 2 * (48 + 2 + 2)),
    ]:
        windowing = Windowing(names, grace, max_out_of_orderness)
        assert (windowing.most_panes, windowing.hold) == (most, grace + max_out_of_orderness)


@pytest.mark.parametrize("start", [0, 1, 3_600_000, 2**62])
def test_pane_names_survive_a_round_trip(start):
    pane = Pane(start, 1_200_000)
    assert pane.end == start + 1_200_000
    for key in (CellKey(pane, "00c0ffee"), CellKey(None, "8e9f39d0")):
        assert key_of(str(key)) == key


@pytest.mark.parametrize(
    "pane", ["", "All", "0", "-1+5", "01+5", "5+0", "5+05", "5+", "+5", "5+5+5", " 5+5", "5+5\n", "٥+5"]
)
def test_names_of_invalid_panes_are_refused(pane):
    with pytest.raises(ValueError, match="a cell is 'all' or"):
        key_of(f"{pane}@8e9f39d0")


@pytest.mark.parametrize(
    "document", ["", "@", "@8e9f39d", "@8e9f39d00", "@8E9F39D0", "@8e9f39d0\n", "@8e9f39d0@"]
)
def test_names_of_invalid_documents_are_refused(document):
    with pytest.raises(ValueError, match="a cell is 'all' or"):
        key_of(f"all{document}")


@pytest.mark.parametrize(
    ("text", "length"),
    [("0s", 0), ("1s", 1000), ("90s", 90_000), ("5m", 300_000), ("36h", 129_600_000), ("366d", LONGEST)],
)
def test_lengths_are_converted_to_milliseconds(text, length):
    assert milliseconds(text) == length


@pytest.mark.parametrize(
    "text", ["", "1", "h", "01h", "-1h", "+1h", "1.5h", "1H", "1h ", "1ms", "367d", "1e3s", "١h"]
)
def test_invalid_lengths_are_named(text):
    with pytest.raises(ValueError, match="a length is a whole number with s, m, h or d") as refused:
        milliseconds(text)
    assert repr(text) in str(refused.value)


@pytest.mark.parametrize(
    "text", ["0s", "1h every 0s", "1h every 25m", "1h every 2h", "1h every 10m every 5m", "1hevery 10m"]
)
def test_invalid_windows_are_refused(text):
    with pytest.raises(ValueError, match="given; a"):
        parse(text)


@pytest.mark.parametrize("names", [(), ("1h", "60m"), ("1h", "1h every 1h"), ("all", "all", "1h")])
def test_invalid_and_repeated_windows_are_refused(names):
    with pytest.raises(ValueError, match=r"given; two of them are the same window|no windows given"):
        parse_all(names)


def test_windowing_has_windows():
    with pytest.raises(ValueError, match="at least one window other than"):
        Windowing(("all",))
