"""check and create-topics for streams with windows: their clock and their cost."""

from pathlib import Path

import pytest

from worker.check import Finding, Level, machine
from worker.check.redis import assess_memory
from worker.check.topics import assess_topics
from worker.check.windows import assess_windows
from worker.config import Config, parse
from worker.kafka.client import topics

MINUTE, HOUR = 60_000, 3_600_000
PLAIN = """
[[streams]]
name = "colours"
topic = "reports"
protocol = "grr"
epsilon = "1"
domain_size = 1000
"""
HOURLY = parse(
    PLAIN + 'windows = ["24h every 1h","1h"]\ngrace = "10m"\nmax_out_of_orderness = "1m"\nretain = "2d"'
)
SOUND = {
    "cleanup.policy": "delete",
    "retention.ms": "604800000",
    "retention.bytes": "-1",
    "max.message.bytes": "16777216",
    "min.insync.replicas": "2",
}
APPEND = {"message.timestamp.type": "LogAppendTime", "message.timestamp.after.max.ms": str((1 << 63) - 1)}


def topic(settings: dict[str, str] = APPEND) -> topics.Topic:
    return topics.Topic("id-1", 2, 3, SOUND | settings)


def event_time(ahead: int | None) -> topics.Topic:
    bound = {} if ahead is None else {"message.timestamp.after.max.ms": str(ahead)}
    return topic({"message.timestamp.type": "CreateTime"} | bound)


def about(reports: topics.Topic, config: Config = HOURLY) -> list[Finding]:
    return [f for f in assess_topics(config, {"reports": reports}) if f.subject == "topic reports"]


def made(config: Config, event_time: bool = False) -> dict[str, str]:
    return dict(topics.specs(config, 4, event_time)[0].settings)


def test_windowed_topics_use_broker_time_by_default() -> None:
    assert made(HOURLY)["message.timestamp.type"] == "LogAppendTime"
    assert "message.timestamp.after.max.ms" not in made(HOURLY)
    assert [f.level for f in about(topic(made(HOURLY)))] == [Level.OK]
    for asked in (False, True):
        assert made(parse(PLAIN), asked)["message.timestamp.type"] == "CreateTime"
        assert made(parse(PLAIN), asked)["message.timestamp.after.max.ms"] == str(HOUR)


def test_event_time_topics_are_created_with_the_bound_that_check_requires() -> None:
    settings = made(HOURLY, event_time=True)
    assert settings["message.timestamp.type"] == "CreateTime"
    assert settings["message.timestamp.after.max.ms"] == str(MINUTE)
    assert [f.level for f in about(topic(settings))] == [Level.OK]


@pytest.mark.parametrize("ahead", [MINUTE + 1, HOUR, (1 << 63) - 1, None])
def test_unbounded_event_time_is_an_error(ahead: int | None) -> None:
    (found,) = about(event_time(ahead))
    assert found.level is Level.ERROR
    assert "streams.max_out_of_orderness is 1m" in found.text
    assert ("any time ahead" in found.text) == (ahead not in (MINUTE + 1, HOUR))
    assert f"message.timestamp.after.max.ms={MINUTE}" in found.hint
    assert "message.timestamp.type=LogAppendTime" in found.hint


@pytest.mark.parametrize("ahead", [0, MINUTE - 1, MINUTE])
def test_a_broker_bound_on_event_time_is_reported(ahead: int) -> None:
    assert [f.level for f in about(event_time(ahead))] == [Level.OK]
    (found,) = assess_windows(HOURLY, {"reports": event_time(ahead)}, memory=1 << 40)
    assert (
        "uses up streams.max_out_of_orderness = 1m, so only streams.grace = 10m covers delayed records"
        in found.text
    )


def test_brokers_before_kafka_3_6_bound_both_sides_by_one_setting() -> None:
    def old(bound: int) -> topics.Topic:
        times = {"message.timestamp.type": "CreateTime", "message.timestamp.difference.max.ms": str(bound)}
        return topic(times)

    assert [f.level for f in about(old(MINUTE))] == [Level.OK]
    assert [f.level for f in about(old(HOUR))] == [Level.ERROR]


def test_event_time_without_grace_is_a_warning() -> None:
    config = parse(PLAIN + 'windows = ["1h"]\nmax_out_of_orderness = "1m"')
    (found,) = about(event_time(MINUTE), config)
    assert (found.level, "streams.grace is 0s" in found.text) == (Level.WARNING, True)
    assert [f.level for f in about(topic(), config)] == [Level.OK]


MOST_BODIES = (1 + 54 + 54 + 23) * (11 + 5) * 1000 * 16
"""For all time, each hour, and each day that has an hour: Base has six vectors."""


def test_windows_and_their_costs_are_reported() -> None:
    (found,) = assess_windows(HOURLY, {"reports": topic()}, memory=1 << 40)
    assert (found.level, found.subject) == (Level.OK, "windows of colours")
    # 24 panes of 1 h, one for 12 minutes of waiting, one at either end; twice that. 2 partitions, 8,000 bytes a pane
    assert "1h, 24h every 1h, by the broker's clock; up to 54 panes of 1h per partition" in found.text
    assert f"{2 * 55 * 8000 / 1024:.1f} KiB in all" in found.text
    # 24 and 1 of them are open at once, in the 11 minutes of waiting one more each; and all time: 28 times 11
    most = f"{MOST_BODIES / (1 << 20):.1f} MiB"
    assert f"27 open windows; up to 308 messages and {most} per snapshot; " in found.text
    assert "; final windows stay for 2d, 96 of them" in found.text
    assert "late for its 1h is late for the longer windows, too" in found.text


def test_windows_as_long_as_their_panes_become_late() -> None:
    config = parse(PLAIN + 'windows = ["1h"]\nretain = "forever"')
    (found,) = assess_windows(config, {"reports": topic()}, memory=1 << 40)
    assert "final windows stay forever" in found.text
    assert "is late for the longer" not in found.text


def test_a_stream_without_windows_has_no_findings() -> None:
    assert assess_windows(parse(PLAIN), {"reports": topic()}, memory=0) == []
    assert assess_windows(HOURLY, {}, memory=0) == []


def test_panes_over_the_memory_of_the_machine_are_a_warning() -> None:
    # memory of an owner of both partitions, and of a publisher's reads and sends
    need = 2 * 2 * 55 * 8000 + MOST_BODIES
    there = {"reports": topic()}
    assert [f.subject for f in assess_windows(HOURLY, there, memory=need)] == ["windows of colours"]
    _, found = assess_windows(HOURLY, there, memory=need - 1)
    assert (found.level, found.subject) == (Level.WARNING, "memory")
    assert f"{need / (1 << 20):.1f} MiB" in found.text


def test_redis_needs_memory_for_open_panes() -> None:
    there = {"reports": topic()}
    half, all_of_them = (2 * 2 * (1 + panes) * 8000 for panes in (27, 54))
    for room, level in ((half - 1, Level.ERROR), (all_of_them, Level.WARNING), (2 * all_of_them, Level.OK)):
        found = assess_memory(HOURLY, there, {"maxmemory": room})
        assert found.level is level
        assert "if partitions wait for others" in found.text
    assert "windows" in assess_memory(HOURLY, there, {"maxmemory": half - 1}).hint
    assert "if partitions" not in assess_memory(parse(PLAIN), there, {"maxmemory": half}).text


def test_the_head_has_capacity_for_retained_windows() -> None:
    one = parse(PLAIN + 'windows = ["10m"]\nretain = "90d"').streams[0]
    plain = parse(PLAIN).streams[0]
    # a start of 13 digits, a comma and a space
    assert topics.largest_of_snapshots(one, 4) > 90 * 144 * 15
    assert topics.largest_of_snapshots(plain, 4) < 170_000
    ever = parse(PLAIN + 'windows = ["10m"]\nretain = "forever"').streams[0]
    assert topics.largest_of_snapshots(ever, 4) < 170_000  # then it names none


def test_the_memory_limit_is_that_of_the_container(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    limit = tmp_path / "memory.max"
    monkeypatch.setattr(machine, "_LIMIT", limit)
    whole = machine.memory_bytes()
    assert whole > 1 << 28
    for said, found in (("max\n", whole), ("4096\n", 4096), (f"{1 << 62}\n", whole)):
        limit.write_text(said, encoding="ascii")
        assert machine.memory_bytes() == found
