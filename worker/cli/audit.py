"""Command `audit`: recounts a topic and compares the counts with Redis."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ldp.terminal import amount, echo, echo_json, printable, show
from worker.cli.command import bar, command, complain, json_option, reach, streams_option
from worker.cli.shown import table_of

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

    from worker.audit import PartitionVerdict, StreamVerdict
    from worker.config import Config, Served

EXIT_CODES: Mapping[str, int] = {"different": 1, "gap": 1, "not recountable": 3, "equal": 0, "none yet": 0}
"""Exit code for each of `worker.audit.VERDICTS`."""


@command("audit")
@streams_option
@json_option
def audit(config: "Config", stream: str | None, as_json: bool) -> int:
    """Recount the topic and compare the counts with Redis.

    Reads the topic up to the stored offsets, recounts it with separate code, and compares bit for bit. Also
    recounts the newest snapshot and each window on the snapshot topic, up to their offsets.

    \b
    exit code  verdict
    0          equal, or nothing is counted yet
    1          different; or a gap: the topic's retention deleted records
               before they were counted
    3          not recountable: retention deleted records after they were
               counted; the remaining records match

    With several streams, prints one line per stream; the exit code is 1 if any is 1, else 3 if any is 3.

    --json prints an object for the stream, or a list for several streams. The keys of streams and partitions are
    verdict, equal, counted, difference (the first one, or null), records, reports, malformed, rejected (malformed
    records by reason), late, panes and lag. A partition also has its number, start, offset, and [from, to) of gaps and
    deleted records. A stream also has finals and provisional (windows on the topic), recounted and
    provisional_recounted, parts (snapshots of documents and segments) and parts_recounted, gone (closed windows with
    reports, missing from the topic), and unknown (why snapshots are not recountable, or null).
    """  # noqa: D301
    if stream is not None or len(config.streams) == 1:
        verdict = _verdict(config, config.served(stream))
        if verdict is not None and as_json:
            echo_json(in_json(verdict), indent=2)
        elif verdict is not None:
            show(render(verdict))
        return _code([verdict])
    verdicts = []
    for served in config.streams:
        verdicts.append(verdict := _verdict(config, served, f"{served.name}: "))
        if verdict is not None and not as_json:
            echo(f"{verdict.stream}: {outcome(verdict)}")
    if as_json:
        echo_json([in_json(verdict) for verdict in verdicts if verdict is not None], indent=2)
    return _code(verdicts)


def _verdict(config: "Config", served: "Served", prefix: str = "") -> "StreamVerdict | None":
    """Audits a stream; prints an error and returns None if the audit fails."""
    from worker.audit import AuditError, verify
    from worker.kafka.client.topics import TopicError

    try:
        reach(config, served.topic)
        with bar(f"recounting {served.name}", "offsets") as move:
            return verify(served, config, move, complain)
    except (AuditError, TopicError) as error:
        complain(f"{prefix}{error}")
        return None


def _code(verdicts: "Sequence[StreamVerdict | None]") -> int:
    codes = {1 if verdict is None else EXIT_CODES[verdict.verdict] for verdict in verdicts}
    return 1 if 1 in codes else max(codes)


def render(verdict: "StreamVerdict") -> "RenderableType":
    """Renders a verdict: partitions, reasons for rejection, and differences."""
    from rich.console import Group
    from rich.text import Text

    windowed = bool(verdict.panes or verdict.late)
    headings = ("partition", "offset", "lag", "reports", "malformed", *(("late", "panes") * windowed))
    table = table_of(*headings, "verdict", right=headings)
    for each in verdict.partitions:
        numbers = (each.offset, each.lag, each.reports, each.malformed, *((each.late, each.panes) * windowed))
        style = _STYLES.get(each.verdict, "")
        table.add_row(str(each.partition), *(f"{n:,}" for n in numbers), Text(each.verdict, style=style))
    differences = [f"partition {r.partition}: {r.difference}" for r in verdict.partitions if r.difference]
    differences += [each for each in (verdict.published, verdict.unknown) if each]
    reasons = [_reasons(verdict)] if verdict.malformed else []
    title = Text(f"audit of {verdict.stream}", style="bold")
    texts = [Text(printable(each)) for each in differences]
    return Group(title, table, *reasons, *texts, Text(outcome(verdict)))


_STYLES = {"equal": "green", "not recountable": "yellow", "different": "bold red", "gap": "bold red"}


def _reasons(verdict: "StreamVerdict") -> "Table":
    table = table_of("malformed", "records", "in partition", right=["records"])
    for reason, count in verdict.rejected.items():
        where = ", ".join(str(each.partition) for each in verdict.partitions if each.rejected.get(reason))
        table.add_row(printable(reason), f"{count:,}", where)
    return table


def outcome(verdict: "StreamVerdict") -> str:
    """Describes a verdict in one line.

    Example:
        >>> from worker.audit import PartitionVerdict, StreamVerdict
        >>> good = PartitionVerdict(0, 0, 9, 2, 9, 18), PartitionVerdict(1, 0, 5, 0, 5, 5, {"json": 1})
        >>> outcome(StreamVerdict("colours", good))
        'equal: 23 reports in 14 records, 1 malformed'
        >>> bad = PartitionVerdict(0, 0, 9, 2, difference="late: 3 in Redis, 0 recounted")
        >>> outcome(StreamVerdict("colours", (bad,)))
        'different in partition 0'
    """
    counted = f"{amount(verdict.reports, 'report')} in {amount(verdict.records, 'record')}"
    counted += f", {verdict.malformed:,} malformed"
    windows = [
        f"{recounted:,} of {amount(there, kind + ' window')}"
        for recounted, there, kind in (
            (verdict.recounted, verdict.finals, "final"),
            (verdict.provisional_recounted, verdict.provisional, "provisional"),
        )
        if there
    ]
    if verdict.parts:
        windows.append(f"{verdict.parts_recounted:,} of {amount(verdict.parts, 'part')}")
    counted += f"; {' and '.join(windows)} recounted" if windows else ""
    if verdict.gone:
        there = f"{verdict.finals:,}" if verdict.finals else "none"
        counted += f"; windows: {verdict.finals + verdict.gone:,} closed, {there} of them on the topic"
    if different := [str(each.partition) for each in verdict.partitions if each.verdict == "different"]:
        return f"different in partition {', '.join(different)}"
    if verdict.published:
        return "different in the snapshots"
    if (
        verdict.unknown
        and verdict.verdict == "not recountable"
        and not any(p.deleted for p in verdict.partitions)
    ):
        return f"not recountable in the snapshots; the rest matches: {counted}"
    gaps = " except for the recorded gaps" if verdict.verdict == "gap" else ""
    if deleted := [str(each.partition) for each in verdict.partitions if each.deleted]:
        remains = f"the rest matches{gaps}: {counted}"
        return f"not recountable in partition {', '.join(deleted)}; {remains}"
    return f"equal{gaps}: {counted}" if verdict.counted else "no verdict: nothing is counted yet"


def in_json(verdict: "StreamVerdict") -> dict[str, Any]:
    """Returns a verdict as a dict for JSON; the command's help lists the keys."""
    of_all = ("records", "reports", "malformed", "rejected", "late", "panes", "lag")
    windows = ("finals", "recounted", "provisional", "provisional_recounted")
    of_stream = (*windows, "parts", "parts_recounted", "gone", "unknown")

    def common(of: "StreamVerdict | PartitionVerdict") -> dict[str, Any]:
        named = {"verdict": of.verdict, "equal": of.difference is None, "counted": of.counted}
        return named | {"difference": of.difference} | {name: getattr(of, name) for name in of_all}

    rows = [
        {"partition": each.partition, "start": each.start, "offset": each.offset}
        | common(each)
        | {"gaps": [list(gap) for gap in each.gaps], "deleted": [list(gone) for gone in each.deleted]}
        for each in verdict.partitions
    ]
    published = {name: getattr(verdict, name) for name in of_stream}
    return {"stream": verdict.stream} | common(verdict) | published | {"partitions": rows}
