"""Recounts a topic and compares."""

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ldp.terminal import echo, echo_json, printable, show
from worker.cli.command import amount, bar, command, complain, complain_of, json_option, reach, streams_option

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

    from worker.audit import PartitionVerdict, StreamVerdict
    from worker.config import Config, Served

EXIT_CODES: Mapping[str, int] = {
    "different": 1,
    "gap": 1,
    "not recountable": 3,
    "equal": 0,
    "none yet": 0,
}
"""What each of `worker.audit.VERDICTS` makes the command exit with."""


@command("audit")
@streams_option
@json_option
def audit(config: "Config", stream: str | None, as_json: bool) -> int:
    """Recount the topic and compare with Redis.

    Reads the topic again up to the stored offsets, counts with code of its own, and compares bit for bit.

    \b
    exit code  verdict
    0          equal, or nothing is counted yet
    1          different; or a gap: offsets are recorded as lost, because the
               topic's retention deleted them before they were counted
    3          not recountable: retention deleted records after they were
               counted; in what remains nothing differs

    What is published is recounted, too, up to the offsets that it names: the newest snapshot, and each window that
    is there, final or not; whether each is complete, and whether each method's numbers are what it makes of the plain
    estimate. What lacks records that are deleted by now cannot be recounted, which is said.

    Of several streams each is audited, a line each; the exit code is 1 if any is 1, else 3 if any is 3.

    --json prints, for the stream, in a list where there are several, and for each of its partitions: verdict; equal;
    counted, whether anything was yet; difference, the first one, or what else keeps it from being equal, or null;
    records, reports, malformed, which were read again; rejected, the malformed ones by reason; late, records that
    came too late for their pane; panes, how many are kept; lag, offsets not counted yet. For a partition also its
    number, start and offset, and the stretches [from, to) of gaps, recorded as lost, and deleted, which cannot be
    recounted. For the stream also finals and provisional, how many windows are published that are final and that are
    not, recounted and provisional_recounted, how many of these were recounted; gone, how many windows with reports are
    over and not on the topic, which can be right where windows are deleted; and unknown, what cannot be recounted of
    what is published, or null.
    """  # noqa: D301
    from worker.observe import logs

    logs.silence()
    if stream is not None or len(config.streams) == 1:
        verdict = _verdict(config, config.served(stream))
        if verdict is not None and as_json:
            echo_json(json.dumps(in_json(verdict), indent=2))
        elif verdict is not None:
            show(render(verdict))
        return _code([verdict])
    verdicts = []
    for served in config.streams:
        verdicts.append(verdict := _verdict(config, served, f"{served.stream.name}: "))
        if verdict is not None and not as_json:
            echo(f"{verdict.stream}: {outcome(verdict)}")
    if as_json:
        echo_json(json.dumps([in_json(verdict) for verdict in verdicts if verdict is not None], indent=2))
    return _code(verdicts)


def _verdict(config: "Config", served: "Served", prefix: str = "") -> "StreamVerdict | None":
    """Audits a stream; where that cannot be done, says why on stderr and returns None."""
    from worker.audit import AuditError, verify
    from worker.kafka.client.topics import TopicError

    try:
        reach(config, served.topic)
        with bar(f"recounting {served.stream.name}", "offsets") as move:
            return verify(served, config, move, complain_of)
    except (AuditError, TopicError) as error:
        complain(f"{prefix}{error}")
        return None


def _code(verdicts: "Sequence[StreamVerdict | None]") -> int:
    """Returns the exit code: 1 before 3 before 0."""
    codes = {1 if verdict is None else EXIT_CODES[verdict.verdict] for verdict in verdicts}
    return 1 if 1 in codes else max(codes)


def render(verdict: "StreamVerdict") -> "RenderableType":
    """Returns a verdict for the terminal: a row a partition, a row a reason, what differs, the outcome last."""
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    windowed = bool(verdict.panes or verdict.late)
    for heading in ("partition", "offset", "lag", "reports", "malformed", *(("late", "panes") * windowed)):
        table.add_column(heading, justify="right", overflow="fold")
    table.add_column("verdict")
    for each in verdict.partitions:
        numbers = (each.offset, each.lag, each.reports, each.malformed, *((each.late, each.panes) * windowed))
        style = _STYLES.get(each.verdict, "")
        table.add_row(str(each.partition), *(f"{n:,}" for n in numbers), Text(each.verdict, style=style))
    said = [
        Text(f"partition {r.partition}: {printable(r.difference)}")
        for r in verdict.partitions
        if r.difference
    ]
    said += [Text(printable(each)) for each in (verdict.published, verdict.unknown) if each]
    reasons = [_reasons(verdict)] if verdict.malformed else []
    title = Text(f"audit of {verdict.stream}", style="bold")
    return Group(title, table, *reasons, *said, Text(outcome(verdict)))


_STYLES = {"equal": "green", "not recountable": "yellow", "different": "bold red", "gap": "bold red"}


def _reasons(verdict: "StreamVerdict") -> "Table":
    """Returns the reasons of the malformed records: how many, and in which partitions."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("malformed")
    table.add_column("records", justify="right", overflow="fold")
    table.add_column("in partition")
    for reason, count in verdict.rejected.items():
        where = ", ".join(str(each.partition) for each in verdict.partitions if each.rejected.get(reason))
        table.add_row(printable(reason), f"{count:,}", where)
    return table


def outcome(verdict: "StreamVerdict") -> str:
    """Says what a verdict comes to.

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
    counted += f"; {' and '.join(windows)} recounted" if windows else ""
    if verdict.gone:
        there = f"{verdict.finals:,}" if verdict.finals else "none"
        counted += f"; windows: {verdict.finals + verdict.gone:,} final by the lines, {there} on the topic"
    if different := [str(each.partition) for each in verdict.partitions if each.verdict == "different"]:
        return f"different in partition {', '.join(different)}"
    if verdict.published:
        return "different in what is published"
    if (
        verdict.unknown
        and verdict.verdict == "not recountable"
        and not any(p.deleted for p in verdict.partitions)
    ):
        return f"not recountable in what is published; nothing differs in what remains: {counted}"
    gaps = " except for the recorded gaps" if verdict.verdict == "gap" else ""
    if deleted := [str(each.partition) for each in verdict.partitions if each.deleted]:
        remains = f"nothing differs{gaps} in what remains: {counted}"
        return f"not recountable in partition {', '.join(deleted)}; {remains}"
    return f"equal{gaps}: {counted}" if verdict.counted else "nothing is counted yet: no verdict"


def in_json(verdict: "StreamVerdict") -> dict[str, Any]:
    """Returns a verdict in JSON's types.

    For the stream and, under ``partitions``, for each one: ``verdict``, one of `EXIT_CODES`; ``equal``, whether all was
    recounted, nothing differs and nothing is recorded as lost; ``counted``, whether anything was counted yet;
    ``difference``, the first one, or what else keeps it from being equal, or null; ``lag``, offsets not counted yet;
    ``records``, ``reports`` and ``malformed``, how many were read again; ``rejected``, the malformed ones by reason;
    ``late``, records that came too late for their pane; ``panes``, how many are kept.
    For each partition too: ``partition``, ``start``, ``offset``, and, if nothing else differs, the stretches [from, to)
    of ``gaps``, which are recorded as lost, and ``deleted``, which were counted and then deleted. For the stream too:
    ``finals`` and ``provisional``, how many windows are published that are final and that are not; ``recounted`` and
    ``provisional_recounted``, how many of these were recounted; ``gone``, how many windows with reports are over and
    not on the topic; ``unknown``, what cannot be recounted of what is published, or null.

    Example:
        >>> from worker.audit import PartitionVerdict, StreamVerdict
        >>> tree = in_json(StreamVerdict("colours", (PartitionVerdict(0, 0, 9, 2, 9, 18, {"json": 2}),)))
        >>> tree["equal"], tree["counted"], tree["malformed"], tree["rejected"], tree["partitions"][0]["rejected"]
        (True, True, 2, {'json': 2}, {'json': 2})
    """

    def common(of: "StreamVerdict | PartitionVerdict") -> dict[str, Any]:
        return {
            "verdict": of.verdict,
            "equal": of.difference is None,
            "counted": of.counted,
            "difference": of.difference,
            "records": of.records,
            "reports": of.reports,
            "malformed": of.malformed,
            "rejected": dict(of.rejected),
            "late": of.late,
            "panes": of.panes,
            "lag": of.lag,
        }

    rows = [
        {"partition": each.partition, "start": each.start, "offset": each.offset}
        | common(each)
        | {"gaps": [list(gap) for gap in each.gaps], "deleted": [list(gone) for gone in each.deleted]}
        for each in verdict.partitions
    ]
    published = {
        "finals": verdict.finals,
        "recounted": verdict.recounted,
        "provisional": verdict.provisional,
        "provisional_recounted": verdict.provisional_recounted,
        "gone": verdict.gone,
        "unknown": verdict.unknown,
    }
    return {"stream": verdict.stream} | common(verdict) | published | {"partitions": rows}
