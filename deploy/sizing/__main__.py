"""Prints the memory, traffic and CPU time that streams need.

    python -m deploy.sizing                    the table in docs/operate/capacity.md
    python -m deploy.sizing --config worker.toml --rate 5000 --partitions 16
                                               your own streams, each at this rate in reports per second

The formulas are in `deploy/sizing/formulas.py`.
"""

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path

from rich.filesize import decimal

import ldp
from deploy.sizing.formulas import DAY, Load
from ldp.segments import Segments, prefixes
from worker import config as configuration
from worker.config.windows import cost
from worker.counting.windows import Windowing


def cases() -> Iterator[Load]:
    """Yields the streams of docs/operate/capacity.md, after a year."""
    small = ldp.GRR("1", 10)
    yield Load.of("a poll", small, 100, 1)
    colours = ldp.OLH("1", 1_024)
    yield Load.of("telemetry", colours, 5_000, 16)
    windowing = Windowing(("1h", "24h every 1h"), grace=600_000, max_out_of_orderness=10_000)
    windows = cost(windowing, colours.state_size, 7 * DAY * 1000)
    yield Load.of("telemetry in windows", colours, 5_000, 16, windows, publish_every=60)
    yield Load.of("words", ldp.oracle("pgr", "1", 100_000), 10_000, 16, commit_every=5, publish_every=60)
    for protocol, partitions in (("pgr", 32), ("hadamard", 32), ("olh", 32), ("pgr", 1_000)):
        oracle = ldp.oracle(protocol, "1", 1_000_000)
        yield Load.of("a billion a day", oracle, 11_574, partitions, commit_every=10, publish_every=300)


HEAD = (
    "case",
    "protocol, d",
    "reports/s, partitions",
    "commit, snapshot every",
    "topic",
    "counting",
    "worker",
    "Redis memory",
    "Redis in",
    "Redis out",
    "per snapshot",
    "publishing",
    "snapshots",
)


def table(loads: Sequence[Load]) -> Iterator[str]:
    """Yields the lines of a Markdown table."""
    yield f"| {' | '.join(HEAD)} |"
    yield "| --- " * len(HEAD) + "|"
    for load in loads:
        panes = len(load.blobs) - 1
        cells = (
            load.name,
            f"`{load.oracle.name}`, {load.oracle.domain_size:,}",
            f"{load.rate:,.0f}, {load.partitions}" + (f", {panes} panes each" if panes else ""),
            f"{load.commit_every:g} s, {load.publish_every:g} s",
            f"{size_text(DAY * load.topic_bytes_a_second)}/d",
            f"{load.counting_cores:.2g} cores",
            size_text(load.worker_bytes),
            size_text(load.redis_bytes),
            f"{size_text(load.commit_bytes / load.commit_every)}/s",
            f"{size_text(load.cut_bytes / load.publish_every)}/s",
            f"{load.publish_seconds:.2g} s, {size_text(load.topic_bytes)}",
            f"{load.publish_seconds / load.publish_every:.2g} cores",
            f"{size_text(DAY / load.publish_every * load.topic_bytes)}/d",
        )
        yield f"| {' | '.join(cells)} |"


def size_text(size: float) -> str:
    """Formats a number of bytes in decimal units.

    Example:
        >>> size_text(948.2), size_text(1.25e6), size_text(125e12)
        ('948 bytes', '1.2 MB', '125.0 TB')
    """
    return decimal(round(size))


def configured(path: Path, rate: float, partitions: int) -> Iterator[Load]:
    """Yields the streams of a configuration, after a year."""
    loaded = configuration.load(path, {})
    for served in loaded.streams:
        windowing = served.configured.limits.windowing
        places, declared = loaded.slots(served), served.configured.segments
        snapshots, parts = loaded.snapshots, {prefix for name in declared for prefix in prefixes(name)}
        yield Load.of(
            served.stream.name,
            served.stream.oracle,
            rate,
            partitions,
            served.cost,
            0 if windowing is None else windowing.pane / 1000,
            commit_every=loaded.commit_every_seconds,
            publish_every=snapshots.every_seconds,
            methods=len(snapshots.methods),
            rows=0 if places is None else places.size,
            segments=1 if served.stream.segment is None else len(Segments(declared).cells) - 1,
            parts=(len(parts), len(snapshots.parts_methods), snapshots.parts_fewest),
        )


def main() -> None:
    """Runs the command line."""
    parser = argparse.ArgumentParser(prog="python -m deploy.sizing")
    parser.add_argument("--config", type=Path, help="print the streams of this configuration")
    parser.add_argument("--rate", type=float, default=1_000.0, help="reports/s of a stream, %(default)g")
    parser.add_argument("--partitions", type=int, default=4, help="partitions of a topic, %(default)s")
    given = parser.parse_args()
    loads = configured(given.config, given.rate, given.partitions) if given.config else cases()
    print("\n".join(table([*loads])))


if __name__ == "__main__":
    main()
