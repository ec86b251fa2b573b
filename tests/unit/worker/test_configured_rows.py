"""The table of rows: accepted values, its topic, and refused settings."""

import re

import pytest

from ldp.snapshot import Cut, Period, Slots, encode_rows, slots, take
from tests.support.docs import page
from tests.support.estimates import estimated
from worker.check import Level
from worker.check.topics import assess_topics
from worker.config import ConfigError, parse
from worker.config.rows import MOST_AT_ONCE_ROWS, MOST_ROWS, TOP
from worker.kafka.client import topics


def config(rows="", stream="domain_size = 1000"):
    return parse(
        f"""
        [rows]
        {rows}
        [[streams]]
        name = "colours"
        topic = "reports"
        protocol = "grr"
        epsilon = "1"
        {stream}
        """
    )


def test_without_a_topic_no_rows_are_configured():
    assert config().slots(config().streams[0]) is None
    assert [spec.role for spec in topics.specs(config(), 1)] == [
        "reports of colours",
        "snapshots",
        "dead letters",
    ]


def test_each_window_has_the_configured_rows():
    queries = '[[streams.queries]]\nname = "warm"\nvalues = [1]\n[[streams.queries]]\nname = "most"\ntop = 7'
    found = config('topic = "r"\nmethods = ["power", "base"]', f"domain_size = 1000\n{queries}")
    assert found.slots(found.streams[0]) == Slots(("power", "base"), {"": TOP, "warm": 1, "most": 7})
    usual = config('topic = "r"', "domain_size = 50")
    assert usual.slots(usual.streams[0]) == Slots(("base", "norm-sub"), {"": 50})


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ("methods = []", "rows.methods: "),
        ('methods = ["bass"]', "each once, of base, base-pos, "),
        ('methods = ["base", "base"]', "each once, of base, base-pos, "),
        ('topic = "a b"', "rows.topic: "),
        ('topic = "reports"', "rows.topic: 'reports' given; it must be a topic without other uses"),
        ('topic = "ldp-snapshots"', "it must be a topic without other uses"),
        ('methods = ["base"]\ntopics = "r"', "did you mean topic?"),
    ],
)
def test_invalid_row_settings_are_refused(rows, said):
    with pytest.raises(ConfigError) as error:
        config(rows)
    assert said in str(error.value)


def windowed(retain, values):
    """A stream with a number of rows per window and method."""
    query = f'queries = [{{name = "most", top = {values - TOP}}}]'
    table = f'domain_size = 100000\nwindows = ["24h every 1h"]\nretain = "{retain}"\n{query}'
    return config('topic = "r"', table)


def test_rows_over_the_transaction_limit_are_refused():
    """54 panes of an hour have 77 windows of 24 hours, as a stream begins, and there is all time: 78."""
    most = MOST_AT_ONCE_ROWS // (2 * 78)
    windowed("1d", most)
    with pytest.raises(ConfigError, match=r"^streams\[colours\]: one snapshot could have") as error:
        windowed("1d", most + 1)
    assert f"{2 * 78 * (most + 1):,} rows, {2 * (most + 1):,} per window" in str(error.value)


def test_rows_over_the_topic_limit_are_refused():
    """A year of hours, 25 that are open, and all time."""
    windows = 366 * 24 + 26
    most = MOST_ROWS // (2 * windows)
    windowed("366d", most)
    with pytest.raises(ConfigError) as error:
        windowed("366d", most + 1)
    assert f"{2 * (most + 1) * windows:,} rows could be on the topic of rows" in str(error.value)
    assert windowed("forever", 500).streams[0].cost.kept is None


def test_the_page_has_the_limits_and_columns():
    section = page("guides/databases")
    assert f"{MOST_AT_ONCE_ROWS:,} rows per snapshot or {MOST_ROWS:,} rows per stream" in section
    assert f"the {TOP} most frequent values" in section
    columns = re.findall(r"^\| (`.*?`) \|", section, re.MULTILINE)
    said = [name for names in columns for name in re.findall(r"`(\w+)`", names)]
    stream = config().streams[0].stream
    taken = take(stream, estimated(stream.oracle, [5] * 1000, 5000), Cut({}, {}), 1)
    (row, *_) = encode_rows(taken, slots(["base"], 1, (), 1000))
    assert {*said} == {*re.findall(r'"(\w+)":', row.value.decode())}


def test_the_topic_is_compacted_and_accepts_the_longest_row():
    label = "🟣" * 300_000
    found = config('topic = "r"', f'labels = ["{label}", "b"]')
    (spec,) = (spec for spec in topics.specs(found, 1) if spec.name == "r")
    assert (spec.partitions, spec.settings["cleanup.policy"]) == (1, "compact")
    stream = found.streams[0].stream
    window = Period("366d every 366d", 31_622_400_000, 63_244_800_000, final=True)
    taken = take(stream, estimated(stream.oracle, [2, 1], 3), Cut({}, {}), 1 << 62, window=window)
    longest = max(len(row.key) + len(row.value) for row in encode_rows(taken, slots(["base"], 2, (), 2)))
    assert longest < int(spec.settings["max.message.bytes"]) < 1.01 * longest
    assert "max.message.bytes" not in topics.specs(config('topic = "r"'), 1)[2].settings


SOUND = {"cleanup.policy": "compact", "min.insync.replicas": "2", "max.message.bytes": "1048588"}


@pytest.mark.parametrize(
    ("changed", "level", "said"),
    [
        ({}, Level.OK, "1 partition(s), 3 replica(s), compact"),
        (
            {"cleanup.policy": "delete"},
            Level.ERROR,
            "eventually delete rows of final windows",
        ),
        ({"cleanup.policy": "compact,delete"}, Level.ERROR, "set cleanup.policy=compact"),
        ({"max.message.bytes": "2000"}, Level.ERROR, "snapshots are published only with their rows"),
        ({"min.insync.replicas": "1"}, Level.WARNING, "min.insync.replicas=1"),
    ],
)
def test_a_rows_topic_is_assessed(changed, level, said):
    there = {"r": topics.Topic("id", 1, 3, SOUND | changed)}
    (found,) = (one for one in assess_topics(config('topic = "r"'), there) if one.subject == "topic r")
    assert found.level is level
    assert said in f"{found.text} {found.hint}"


def test_a_missing_rows_topic_is_an_error():
    (found,) = (one for one in assess_topics(config('topic = "r"'), {}) if one.subject == "topic r")
    assert (found.level, found.text) == (Level.ERROR, "missing; needed for rows")
