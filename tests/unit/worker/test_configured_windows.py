"""Configured windows: accepted values, refusals with their numbers, and cost."""

import pytest

from tests.support.tables import rows
from worker.config import ConfigError, parse
from worker.config.snapshots import MOST_BYTES as MOST_SNAPSHOT
from worker.config.snapshots import most_bytes
from worker.config.windows import MOST_KEPT, MOST_OPEN, cost, duration
from worker.counting.bounds import MOST_PANES
from worker.counting.rules import RecordLimits
from worker.counting.windows import Pane, Windowing, milliseconds
from worker.kafka.client.transactions import transaction_seconds

STREAM = """
[[streams]]
name = "colours"
topic = "colour-reports"
protocol = "grr"
epsilon = "1"
domain_size = 845
"""
SECOND, MINUTE, HOUR, DAY = 1000, 60_000, 3_600_000, 86_400_000


def served(more="", size=845):
    return parse(STREAM.replace("845", str(size)) + more).streams[0]


def fault(more, size=845):
    with pytest.raises(ConfigError) as caught:
        served(more, size)
    return str(caught.value)


def test_without_windows_the_defaults_apply():
    for more in ("", 'windows = ["all"]'):
        assert served(more).configured.limits == RecordLimits(10_000, True, 16 << 20)
        assert served(more).configured.limits.windowing is None


@pytest.mark.parametrize(
    ("windows", "recorded"),
    [
        ('["1h"]', ("all", "1h")),
        ('["all", "1h"]', ("all", "1h")),
        ('["1h", "all"]', ("all", "1h")),
        ('["24h every 1h", "1h"]', ("all", "1h", "24h every 1h")),
        ('["24h", "24h every 1h", "90m every 30m"]', ("all", "90m every 30m", "24h every 1h", "24h")),
    ],
)
def test_all_time_is_always_included_and_the_order_is_irrelevant(windows, recorded):
    found = served(f"windows = {windows}").configured.limits.windowing
    assert found is not None
    assert found.windows == recorded
    assert (found.grace, found.max_out_of_orderness) == (0, 10 * SECOND)


def test_lateness_retention_and_late_dead_letters_are_read():
    more = 'windows = ["1h"]\ngrace = "10m"\nmax_out_of_orderness = "90s"\nidle_timeout = "1m"\nretain = "2d"'
    found = served(more + "\nlate_dead_letters = true")
    assert found.configured.limits.windowing == Windowing(("all", "1h"), 10 * MINUTE, 90 * SECOND)
    assert (found.idle_timeout, found.retain, found.late_dead_letters) == (60.0, 2 * DAY, True)
    usual = served('windows = ["1h"]')
    assert (usual.idle_timeout, usual.retain, usual.late_dead_letters) == (300.0, 7 * DAY, False)
    assert served('windows = ["1h"]\nretain = "forever"').retain is None


def test_idle_timeout_retain_and_late_dead_letters_are_not_rules():
    more = 'windows = ["1h"]\nidle_timeout = "1m"\nretain = "2d"\nlate_dead_letters = true'
    assert served(more).configured == served('windows = ["1h"]').configured


LENGTH = "allowed are 0s to 366d, a whole number with s, m, h or d"
FAULTS = f"""
windows = [] | windows: an empty list given; at least one is needed
windows = "1h" | windows: '1h' given; a list is needed, in square brackets
windows = [1] | windows[0]: 1 given; a string is needed, in quotes
windows = ["all", "1x"] | windows[1]: '1x' given; a length is a whole number with s, m
windows = ["1h every 25m"] | windows[0]: '1h every 25m' given; a window's length must
windows = ["0h"] | windows[0]: '0h' given; a window's length must
windows = ["1h every 1h every 1h"] | windows[0]: '1h every 1h every 1h' given; a window is
windows = ["1h", "60m"] | windows: ['1h', '60m'] given; two of them are the same window
windows = ["all", "all"] | windows: ['all', 'all'] given; two of them are the same
windows = ["1h"] ; grace = "10" | grace: '10' given; {LENGTH}
windows = ["1h"] ; grace = 10 | grace: 10 given; a string is needed, in quotes
windows = ["1h"] ; max_out_of_orderness = "-1s" | max_out_of_orderness: '-1s' given;
windows = ["1h"] ; idle_timeout = "0s" | idle_timeout: '0s' given; allowed are 1s to
windows = ["1h"] ; retain = "0s" | retain: '0s' given; allowed are 1s to 366d, a whole
windows = ["1h"] ; retain = "ever" | retain: 'ever' given; allowed are 1s to 366d, a whole
windows = ["1h"] ; late_dead_letters = "yes" | late_dead_letters: 'yes' given; true or false is needed
windows = ["all"] ; retain = "7d" | retain: '7d' given; it has no effect without
grace = "10m" | grace: '10m' given; it has no effect without windows other than 'all'
late_dead_letters = true | late_dead_letters: true given; it has no effect without windows other than 'all'
"""


@pytest.mark.parametrize(("more", "expected"), rows(FAULTS))
def test_a_window_fault_names_the_allowed_values(more, expected):
    assert fault(more).startswith(f"streams[colours].{expected}")


def test_excessive_windows_are_refused_with_their_numbers():
    # 7 days hold 10,080 minutes; plus 10 s of disorder on both sides, and a pane at either end; twice that
    assert 2 * (10_080 + 1 + 2) == 20_166
    assert "could have 20,166 panes of 1m, and at most 4,096 are allowed" in fault(
        'windows = ["7d every 1m"]'
    )
    # 2 * (24 + 1 + 2) panes, and all time, of 2^22 counters of 8 bytes: 1.7 GiB
    found = fault('windows = ["24h every 1h"]', size=1 << 22)
    assert f"could have 54 panes of 1h, each of {8 << 22:,} bytes, and at most {1 << 30:,} bytes" in found
    found = fault('windows = ["24h every 2m"]')
    assert "721 windows would be open at once, 7,942 messages per snapshot, and at most 512" in found
    found = fault('windows = ["10m"]\nretain = "366d"')
    assert found.startswith(
        "streams[colours].retain: 52,704 windows would stay on the snapshot topic, and at most 20,000"
    )
    assert "panes of 1h" in fault('windows = ["1h"]\ngrace = "366d"')


def snapshots(table, more="", size=10**6):
    config = parse(STREAM.replace("845", str(size)) + more + f"\n[snapshots]\n{table}")
    return most_bytes(config.snapshots, config.streams[0])


def test_a_snapshot_over_the_transaction_limit_is_refused():
    daily = 'windows = ["24h every 1h"]'
    # for all time, each hour that a partition may hold, and the 23 before; Base has five more vectors
    size = (1 + 54 + 23) * (11 + 5) * 4 * 2 * 10**6
    with pytest.raises(ConfigError) as caught:
        snapshots("", daily, size=2 * 10**6)
    assert str(caught.value).startswith(
        "streams[colours]: one snapshot could have 78 windows of 2,000,000 values and 11 methods,"
        f" {size:,} bytes in total, and at most {8 << 30:,} bytes are allowed; list fewer snapshots.methods"
    )
    # each of the ways out that it names is one
    fewer = snapshots('methods = ["base", "norm-sub"]', daily, size=2 * 10**6)
    assert fewer == size // 16 * 7
    assert snapshots("", 'windows = ["24h"]') == (1 + 8) * (11 + 5) * 4 * 10**6
    assert snapshots("", daily, size=10**5) == size // 20


def test_the_transaction_timeout_covers_the_longest_snapshot():
    assert transaction_seconds(snapshots("")) == 30
    # only all time, with the largest domain
    assert snapshots("", size=1 << 24) == 1 << 30
    assert transaction_seconds(1 << 30) == 64
    # brokers allow an open transaction for 15 minutes by default
    assert transaction_seconds(MOST_SNAPSHOT) == 512 < 900


@pytest.mark.parametrize(
    ("windows", "grace", "max_out_of_orderness"),
    [
        (("all", "1h"), "0s", "0s"),
        (("all", "1h"), "0s", "10s"),
        (("all", "1h", "24h every 1h"), "10m", "1m"),
        (("all", "90m every 30m"), "2h", "0s"),
    ],
)
def test_costs_match_a_simulation_over_time(windows, grace, max_out_of_orderness):
    """Which windows are neither passed by the line nor begun beyond the newest time, each quarter of an hour."""
    windowing = Windowing(windows, milliseconds(grace), milliseconds(max_out_of_orderness))
    most = 0
    for quarter in range(200, 400):
        for newest in (quarter * 15 * MINUTE, quarter * 15 * MINUTE + 5 * SECOND):
            line = newest - windowing.grace - windowing.max_out_of_orderness
            starts = [(w, n * w.every) for w in windowing.parsed for n in range(newest // w.every + 1)]
            most = max(most, sum(start + window.length > line for window, start in starts))
    found = cost(windowing, 8 * 845, retain=7 * DAY)
    assert found.open == most
    assert found.messages == 11 * (1 + most)
    assert found.kept == sum(7 * DAY // window.every for window in windowing.parsed)
    assert found.named == {w.name: found.open_of[w.name] + 7 * DAY // w.every for w in windowing.parsed}
    assert found.panes == windowing.most_panes
    assert found.partition_bytes == (found.panes + 1) * 845 * 8
    assert cost(windowing, 845, None).kept is None
    assert set(cost(windowing, 845, None).named.values()) == {0}


def test_values_at_the_bounds_are_accepted():
    kept = f"{MOST_KEPT}m"
    assert served(f'windows = ["1m"]\nretain = "{kept}"').retain == MOST_KEPT * MINUTE
    assert f"{MOST_KEPT + 1:,} windows would stay" in fault(f'windows = ["1m"]\nretain = "{MOST_KEPT + 1}m"')
    # without anything out of order a window has as many panes as minutes, and one at either end
    exact = 'max_out_of_orderness = "0s"'
    most = MOST_PANES // 2 - 2
    assert "would be open at once" in fault(f'windows = ["{most}m every 1m"]\n{exact}')
    assert f"{MOST_PANES + 2:,} panes" in fault(f'windows = ["{most + 1}m every 1m"]\n{exact}')
    assert served(f'windows = ["{MOST_OPEN}m every 1m"]\n{exact}')
    assert f"{MOST_OPEN + 1} windows would" in fault(f'windows = ["{MOST_OPEN + 1}m every 1m"]\n{exact}')


def test_durations_are_formatted_as_configured():
    for text in ("0s", "90s", "10m", "36h", "7d"):
        assert duration(milliseconds(text)) == text
    assert Pane(0, milliseconds("60m")).end == HOUR
    assert duration(HOUR) == "1h"
