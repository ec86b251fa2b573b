"""Windows: their clock, and what they cost to count and to publish."""

from collections.abc import Mapping

from worker.check.clocks import clock_of
from worker.check.finding import Finding, Level
from worker.config import Config
from worker.config.snapshots import snapshot_cost
from worker.config.windows import duration
from worker.counting.windows import ALL
from worker.kafka.client.topics import Topic
from worker.observe.units import size_text


def assess_windows(config: Config, there: Mapping[str, Topic], memory: int) -> list[Finding]:
    """Describes the windows of the streams, and compares what they need with a worker's memory in bytes."""
    findings, need = [], 0
    for served in config.streams:
        windowing, found, topic = served.configured.limits.windowing, served.cost, there.get(served.topic)
        if windowing is None or found is None or topic is None:
            continue
        most = snapshot_cost(config.snapshots, served)
        names = ", ".join(name for name in windowing.windows if name != ALL)
        kept = f"for {duration(served.retain or 0)}, {found.kept or 0:,} of them"
        kept = "for ever" if found.kept is None else kept
        text = (
            f"{names}, {clock_of(windowing, topic)}; up to {found.panes:,} panes of {duration(windowing.pane)} a"
            f" partition, {size_text(topic.partitions * found.partition_bytes)} in all; {found.open:,} open at once,"
            f" {found.messages:,} messages a snapshot where all is new, {size_text(most.size)} at most; final ones"
            f" stay {kept}"
        )
        if any(window.length > windowing.pane for window in windowing.parsed):
            text += (
                f"; a report that is late for its {duration(windowing.pane)} is late for the longer windows, too: they"
                " are sums of the same panes"
            )
        findings.append(Finding(Level.OK, f"windows of {served.stream.name}", text))
        # panes of an owner of all partitions, and those that a publisher reads and sends
        need += 2 * topic.partitions * found.partition_bytes + most.size
    if need > memory:
        text = f"a worker may need {size_text(need)} for panes and snapshots; this machine has {size_text(memory)}"
        hint = "let windows hop by more, or give workers more memory; workers that share partitions need less each"
        findings.append(Finding(Level.WARNING, "memory", text, hint))
    return findings
