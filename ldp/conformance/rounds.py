"""Tests a client with a store over several periods.

A round is one run of the client, in a new period. Each device sends r + 1 reports of its value. The client must refuse
the last one, and then a report at the time of the former period.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from ldp.conformance import channel, repeating
from ldp.conformance.channel import OTHER_BITS, Rate
from ldp.conformance.running import ClientError, decoded
from ldp.conformance.verdict import FAIL, PASS, Verdict, chosen
from ldp.oracles import RAPPOR

if TYPE_CHECKING:
    import numpy.typing as npt

    from ldp.conformance.channel import Reports
    from ldp.conformance.running import Command
    from ldp.oracles import Oracle

SPENT = b"spent"
_FIRST = 20_000  # Number of the first period


def assess_rounds(
    command: Command, rounds: int, reports: int, alarm: float, own: Sequence[int] = ()
) -> Verdict:
    """Runs a client in `rounds` periods, and returns the verdict.

    `reports` are distributed over the devices. `own` are additional values to test. A conforming client fails with a
    probability of at most `alarm`. Raises ClientError if the client fails, makes a report that a worker would reject,
    or disobeys the budget.
    """
    stream = command.stream
    privacy = stream.privacy
    if privacy is None:
        raise ClientError("the document has no key privacy; a store needs the declaration")
    values, others = chosen(stream.oracle.domain_size, own)
    each = max(reports // (rounds * privacy.reports * len(values)), 2)
    devices = np.repeat(values, each)
    made = np.stack(
        [
            _round(command, devices, privacy.reports, (_FIRST + i) * privacy.period_seconds)
            for i in range(rounds)
        ],
        axis=1,
    ).reshape(devices.size, -1)  # one row per device
    findings = list(_permanence(stream.oracle, made) if privacy.memoised else ())
    compared: list[channel.Rate | channel.Cells] = []
    for v in values:
        rows = made[devices == v]
        for column in (0, -1):  # reports of different devices are independent
            compared += channel.evidence(stream.oracle, v, rows[:, column], [*values, *others])
        compared += _between(stream.oracle, v, rows, privacy.memoised)
    compared += channel.pooled(compared)
    risk = alarm / max(len(compared), 1)
    unlikely = sorted((one.p_value, one.summary) for one in compared)
    findings += [f"{summary} (p = {p:.1g})" for p, summary in unlikely if p < risk]
    return Verdict(FAIL if findings else PASS, made.size, len(compared), findings, None, None, None, None)


def _round(command: Command, own: npt.NDArray[np.int64], most: int, begin: int) -> Reports:
    """Returns (devices, r) reports of one run, after a check of the budget."""
    asked = [
        f"{device} {time} {command.name(int(value))}"
        for device, value in enumerate(own.tolist())
        for time in [begin] * (most + 1) + [begin - 1]
    ]
    answers = np.array(command.answers(asked), dtype=object).reshape(own.size, most + 2)
    for column, fault in (
        (most, "sends more than the document declares"),
        (most + 1, "opens a period again"),
    ):
        if (found := [answer != SPENT for answer in answers[:, column]]) and any(found):
            raise ClientError(f"the client {fault}, on {sum(found):,} of {own.size:,} devices")
    sent = answers[:, :most].ravel().tolist()
    if refused := sent.count(SPENT):
        raise ClientError(
            f"the client refuses {refused:,} of {len(sent):,} reports that are left in the period"
        )
    return decoded(command.stream, sent).reshape(own.size, most)


def _permanence(oracle: Oracle, made: Reports) -> Iterator[str]:
    """Yields a finding if memoised reports of a device differ; not for RAPPOR."""
    if isinstance(oracle, RAPPOR):
        return
    plain = repeating.plain(made)
    changed = int((plain != plain[:, :1]).any(axis=1).sum())
    if changed:
        yield f"{changed:,} of {len(made):,} devices have several reports of one value; memoised reports are equal"


def _between(oracle: Oracle, value: int, rows: Reports, memoised: bool) -> Iterator[Rate]:
    """Compares the first and the last report of each device."""
    first, last = rows[:, 0], rows[:, -1]
    if rows.shape[1] < 2:
        return
    if not memoised:
        same = int((repeating.plain(first) == repeating.plain(last)).sum())
        yield Rate(
            value, "reports equal to the device's first", same, first.size, repeating.collision(oracle)
        )
    elif isinstance(oracle, RAPPOR):
        (stays, turned), (one, zero) = oracle.memoised_stages
        both = np.unpackbits(
            first["bits"] & last["bits"], axis=1, bitorder="little", count=oracle.domain_size
        )
        own = int(both[:, value].sum())
        chance = float(stays * one**2 + turned * zero**2), float(turned * one**2 + stays * zero**2)
        yield Rate(value, "1 bits of the value in both reports", own, first.size, chance[0])
        trials = first.size * (oracle.domain_size - 1)
        yield Rate(value, f"{OTHER_BITS} in both reports", int(both.sum()) - own, trials, chance[1])
