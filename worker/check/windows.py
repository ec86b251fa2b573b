"""Checks of windows: their clock and their cost."""

from collections.abc import Mapping

from worker.check.clocks import clock_of
from worker.check.finding import Finding, Level
from worker.config import Config
from worker.config.snapshots import most_bytes
from worker.config.windows import duration
from worker.counting.windows import ALL
from worker.kafka.client.topics import Topic
from worker.observe.units import size_text


def assess_windows(config: Config, there: Mapping[str, Topic], memory: int) -> list[Finding]:
    """Describes the windows and compares their cost with a worker's memory."""
    findings, need = [], 0
    for served in config.streams:
        windowing, found, topic = served.configured.limits.windowing, served.cost, there.get(served.topic)
        if windowing is None or topic is None:
            continue
        most = most_bytes(config.snapshots, served)
        names = ", ".join(name for name in windowing.windows if name != ALL)
        kept = f"for {duration(served.retain or 0)}, {found.kept or 0:,} of them"
        kept = "forever" if found.kept is None else kept
        text = (
            f"{names}, {clock_of(windowing, topic)}; up to {found.panes:,} panes of {duration(windowing.pane)} per"
            f" partition, {size_text(topic.partitions * found.partition_bytes)} in all; {found.open:,} open windows;"
            f" up to {found.messages:,} messages and {size_text(most)} per snapshot; final windows stay {kept}"
        )
        if any(window.length > windowing.pane for window in windowing.parsed):
            text += (
                f"; a report that is late for its {duration(windowing.pane)} is late for the longer windows, too, as"
                " they share its panes"
            )
        findings.append(Finding(Level.OK, f"windows of {served.name}", text))
        # panes in an owner of all partitions, and the publisher's copies of panes and snapshot
        need += 2 * topic.partitions * found.partition_bytes + most
    if need > memory:
        text = f"a worker may need {size_text(need)} for panes and snapshots; this machine has {size_text(memory)}"
        hint = "configure longer hops, add memory, or run more workers, which then need less each"
        findings.append(Finding(Level.WARNING, "memory", text, hint))
    return findings
