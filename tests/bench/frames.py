"""Decoding frames: a batch as columns against one record at a time."""

import struct
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import numpy.typing as npt
import orjson

import ldp
from ldp import frames
from tests.bench.measure import Line, compare

REPORTS = 100_000
FRAME = 100
"""Reports of a larger frame."""

Read = tuple[list[tuple[int, ...]], dict[int, str]]


def lines() -> Iterator[Line]:
    """Reports a second: of binary frames of one and of many, of JSON frames of one."""
    stream = ldp.Stream("bench", ldp.OLH("1", domain_size=1024))
    rng = np.random.default_rng(2)
    reports = stream.oracle.perturb(rng.integers(1024, size=REPORTS), rng=rng)
    ones = [frames.encode(stream, report) for report in reports[:, None]]
    hundreds = [frames.encode(stream, some) for some in reports.reshape(-1, FRAME)]
    texts = frames.encode_lines(stream, reports).splitlines()
    yield line("decode binary frames of one report", stream, reports, ones, from_bytes)
    yield line(f"decode binary frames of {FRAME} reports", stream, reports, hundreds, from_bytes)
    yield line("decode JSON frames of one report", stream, reports, texts, from_json)


def line(
    bench: str,
    stream: ldp.Stream,
    reports: npt.NDArray[np.void],
    values: Sequence[bytes],
    one_by_one: Callable[[ldp.Stream, Sequence[bytes]], Read],
) -> Line:
    """One comparison, after a check that both read the same."""
    buffer = np.frombuffer(b"".join(values), np.uint8)
    bounds = np.cumsum([0, *map(len, values)], dtype=np.int64)

    def peer() -> npt.NDArray[np.void]:
        return np.array(one_by_one(stream, values)[0], stream.oracle.report_dtype)

    decoded = frames.decode(stream, buffer, bounds[:-1], bounds[1:])
    assert np.array_equal(decoded.reports, reports) and np.array_equal(peer(), reports), "reports are lost"
    assert decoded.reasons == one_by_one(stream, values)[1] == {}, "a record is rejected"
    return compare(
        bench,
        lambda: frames.decode(stream, buffer, bounds[:-1], bounds[1:]),
        peer,
        peer_name="Python, one record at a time, with " + ("orjson" if one_by_one is from_json else "struct"),
        setup=f"OLH, {len(values)} records a call of {len(buffer) / len(values):.4g} bytes on average; "
        "ours from a joined buffer, the peer from a list of bytes",
        rate=(len(reports), "reports"),
    )


def from_bytes(stream: ldp.Stream, values: Sequence[bytes]) -> Read:
    """The reports of all sound binary records, and why others are rejected."""
    header = b"\x01" + stream.fingerprint
    layout = struct.Struct("<IB")
    g = stream.oracle.fields["bucket"]
    reports: list[tuple[int, ...]] = []
    reasons: dict[int, str] = {}
    for i, value in enumerate(values):
        body = len(value) - len(header)
        if not value.startswith(header):
            reasons[i] = "header"
        elif body <= 0 or body % layout.size:
            reasons[i] = "length"
        else:
            found = list(layout.iter_unpack(value[len(header) :]))
            if all(bucket < g for _, bucket in found):
                reports += found
            else:
                reasons[i] = "range"
    return reports, reasons


def from_json(stream: ldp.Stream, values: Sequence[bytes]) -> Read:
    """The same of JSON records; only a repeated key, which orjson takes, is not seen."""
    fingerprint = stream.fingerprint.hex()
    g = stream.oracle.fields["bucket"]
    reports: list[tuple[int, ...]] = []
    reasons: dict[int, str] = {}
    for i, value in enumerate(values):
        try:
            frame = orjson.loads(value)
            items = frame["reports"]
            if len(frame) != 2 or frame["fingerprint"] != fingerprint or not items:
                reasons[i] = "fingerprint"
                continue
            found = [(seed, bucket) for seed, bucket in items if type(seed) is type(bucket) is int]
        except (ValueError, TypeError, KeyError):
            reasons[i] = "json"
            continue
        if len(found) == len(items) and all(
            0 <= seed < 1 << 32 and 0 <= bucket < g for seed, bucket in found
        ):
            reports += found
        else:
            reasons[i] = "range"
    return reports, reasons
