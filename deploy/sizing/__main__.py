"""What a deployment takes: memory, bytes and processor time, by what is counted, stored and published.

    python -m deploy.sizing                    the table of docs/operate/capacity.md
    python -m deploy.sizing --paper            the arithmetic of its last part, a billion reports a day
    python -m deploy.sizing --config worker.toml --rate 5000 --partitions 16
                                               of streams of your own, each with so many reports a second

The formulas are in `formulas`.
"""

import argparse
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from rich.filesize import decimal

import ldp
from deploy.sizing.formulas import BATCH_BYTES, DAY, HELD, Load, width
from ldp import wire
from worker import config as configuration
from worker.config.rows import row_cost
from worker.config.windows import cost
from worker.counting.windows import Windowing


def cases() -> Iterator[Load]:
    """The streams of the table in docs/operate/capacity.md, after a year."""
    small = ldp.GRR("1", 10)
    yield Load.of("a poll", small, 100, 1)
    colours = ldp.OLH("1", 1_024)
    yield Load.of("telemetry", colours, 5_000, 16)
    windowing = Windowing(("1h", "24h every 1h"), grace=600_000, max_out_of_orderness=10_000)
    windows = cost(windowing, colours.state_size, 7 * DAY * 1000)
    yield Load.of("the same in windows", colours, 5_000, 16, windows, publish_every=60)
    yield Load.of("words", ldp.oracle("pgr", "1", 100_000), 10_000, 16, commit_every=5, publish_every=60)
    yield Load.of(
        "a billion a day", ldp.oracle("pgr", "1", 1_000_000), 11_574, 32, commit_every=10, publish_every=300
    )


HEAD = (
    "case",
    "protocol, d",
    "reports/s, partitions",
    "commit, snapshot every",
    "topic",
    "counting",
    "worker",
    "Redis keeps",
    "in",
    "out",
    "a snapshot",
    "publishing",
    "snapshots",
)


def table(loads: Sequence[Load]) -> Iterator[str]:
    """The lines of a table in Markdown."""
    yield f"| {' | '.join(HEAD)} |"
    yield "| --- " * len(HEAD) + "|"
    for load in loads:
        panes = len(load.blobs) - 1
        cells = (
            load.name,
            f"`{load.oracle.name}`, {load.oracle.domain_size:,}",
            f"{load.rate:,.0f}, {load.partitions}" + (f", {panes} panes each" if panes else ""),
            f"{load.commit_every:g} s, {load.publish_every:g} s",
            f"{said(DAY * load.topic_bytes_a_second)}/d",
            f"{load.counting_cores:.2g} cores",
            said(load.worker_bytes),
            said(load.redis_bytes),
            f"{said(load.commit_bytes(load.changed) / load.commit_every)}/s",
            f"{said(load.cut_bytes / load.publish_every)}/s",
            f"{load.publish_seconds:.2g} s, {said(load.topic_bytes)}",
            f"{load.publish_seconds / load.publish_every:.2g} cores",
            f"{said(DAY / load.publish_every * load.topic_bytes)}/d",
        )
        yield f"| {' | '.join(cells)} |"


def said(size: float) -> str:
    """Says how many bytes, in decimal units.

    Example:
        >>> said(948.2), said(1.25e6), said(125e12)
        ('948 bytes', '1.2 MB', '125.0 TB')
    """
    return decimal(round(size))


def configured(path: Path, rate: float, partitions: int) -> Iterator[Load]:
    """The streams of a configuration, each with so many reports a second and partitions, after a year."""
    loaded = configuration.load(path, {})
    for served in loaded.streams:
        windowing = served.configured.limits.windowing
        places = loaded.slots(served)
        yield Load.of(
            served.stream.name,
            served.stream.oracle,
            rate,
            partitions,
            served.cost,
            0 if windowing is None else windowing.pane / 1000,
            commit_every=loaded.commit_every_seconds,
            publish_every=loaded.snapshots.every_seconds,
            methods=len(loaded.snapshots.methods),
            rows=0 if places is None else row_cost(places, served).window,
        )


PAPER = tuple(ldp.oracle(name, "1", 10**6) for name in ("pgr", "hadamard", "olh", "subset"))
REPORTS, PARTITIONS, FEW, WORKERS, PEAK = 10**9, 1_000, 32, 8, 3
"""Reports a day; partitions, and as many as are enough; workers; the busiest time's reports in those of the mean."""
RATE = REPORTS / DAY
EVERY = 60.0
"""Seconds between two commits, where states are that large."""

Row = tuple[str, Callable[[ldp.Oracle, Load], str]]
COUNTING: tuple[Row, ...] = (
    ("standard error of a day's Base", lambda o, _: f"{math.sqrt(variance(o) / REPORTS):.3g}"),
    ("a frame of one report", lambda o, _: said(wire.frame_bytes(o.report_bytes))),
    ("topic, full batches", lambda _, load: f"{said(DAY * load.topic_bytes_a_second)}/d"),
    (
        "topic, a batch a record",
        lambda _, load: f"{said(DAY * (load.topic_bytes_a_second + RATE * BATCH_BYTES))}/d",
    ),
    (f"cores to count, at {PEAK} times the mean", lambda _, load: f"{PEAK * load.report_cores:.2g}"),
)
"""What is the same for any number of partitions."""
STORING: tuple[Row, ...] = (
    ("counters of a partition, K", lambda o, _: f"{o.state_size:,}"),
    (
        "bytes of a counter, after a day and a year",
        lambda o, load: ", ".join(
            str(width(o, math.ceil(days * REPORTS / load.partitions))) for days in (1, 365)
        ),
    ),
    ("Redis keeps, after a year", lambda _, load: said(load.redis_bytes)),
    ("in, and appended, by a commit a minute", lambda _, load: f"{said(load.commit_bytes(1) / EVERY)}/s"),
    ("cores to commit that", lambda _, load: f"{load.commit_seconds(1) / EVERY:.2g}"),
    ("out, for a snapshot", lambda _, load: said(load.cut_bytes)),
    ("the publisher's memory", lambda _, load: said(load.publisher_bytes)),
    ("to read and add all, CPU", lambda _, load: f"{load.cut_seconds:.2g} s"),
    ("to estimate and publish, CPU", lambda _, load: f"{load.estimate_seconds:.2g} s"),
)
"""And what is not."""
SUMMED: tuple[Row, ...] = (
    ("out, for a snapshot", lambda _, load: said(WORKERS * HELD * load.oracle.state_size)),
    ("the publisher's memory", lambda _, load: said(replace(load, partitions=WORKERS).publisher_bytes)),
    ("to read and add all, CPU", lambda _, load: f"{replace(load, partitions=WORKERS).cut_seconds:.2g} s"),
)
"""With a sum of each worker."""


def paper() -> Iterator[str]:
    """The lines of the table of a billion reports a day, of what each protocol would take."""
    yield f"| | {' | '.join(f'`{oracle.name}`' for oracle in PAPER)} |"
    yield "| --- " * (1 + len(PAPER)) + "|"
    parts = (
        ("", COUNTING, PARTITIONS),
        (f"P = {PARTITIONS:,}: ", STORING, PARTITIONS),
        (f"P = {PARTITIONS:,}, {WORKERS} sums: ", SUMMED, PARTITIONS),
        (f"P = {FEW}: ", STORING[2:-1], FEW),
    )
    for where, rows, partitions in parts:
        loads = [Load.of(oracle.name, oracle, RATE, partitions) for oracle in PAPER]
        for name, cell in rows:
            yield f"| {where}{name} | {' | '.join(cell(load.oracle, load) for load in loads)} |"


def variance(oracle: ldp.Oracle) -> float:
    """Of Base for a value that nobody has, times the reports."""
    return float(oracle.q * (1 - oracle.q) / (oracle.p - oracle.q) ** 2)


def main() -> None:
    """Prints a table."""
    parser = argparse.ArgumentParser(prog="python -m deploy.sizing")
    parser.add_argument("--paper", action="store_true", help="a billion reports a day")
    parser.add_argument("--config", type=Path, help="of whose streams")
    parser.add_argument("--rate", type=float, default=1_000.0, help="reports a second of each; 1000")
    parser.add_argument("--partitions", type=int, default=4, help="of each one's topic; 4")
    given = parser.parse_args()
    loads = configured(given.config, given.rate, given.partitions) if given.config else cases()
    print("\n".join(paper() if given.paper else table([*loads])))


if __name__ == "__main__":
    main()
